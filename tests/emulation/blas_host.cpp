/* Matrix products by plain loops, behind the header that cuBLASLt is behind (kernels/cuda/blas.c): work of the compute
 * stream, captured like a kernel. Products are summed in double and rounded once. Every product claims workspace up to
 * what it is allowed and fills it with NaN, so that somebody who keeps a tensor there, or gives less, is found out.
 *
 * After ckpt_emulated_candidates there are others to choose from, which sum in float32 in another order, and some that
 * must not be chosen although they say they are faster. */
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "emulated_impl.h"

extern "C" {
#include "kernels/cuda/blas.h"
#include "kernels/cuda/trial.h"
}

#include "emulation.h"

namespace
{

/* How a product is summed. */
enum algorithm {
    PLAIN, /* in double */
    UP,
    DOWN,    /* in float32, from either end */
    DRIFTS,  /* as UP, and another bit each time */
    SPLITS,  /* in parts, and drops what is left over */
    FORGETS, /* as UP without the last term */
    LARGE,   /* wants more workspace than anybody gives */
    ALGORITHMS
};
const char *const name[ALGORITHMS] = {"plain", "up", "down", "drifts", "splits", "forgets", "large"};

} // namespace

struct ckpt_blas_product {
    ckpt_blas_shape shape;
    ckpt_bytes claim;
    ckpt_cuda *cuda;
    algorithm used;
    char choice[CKPT_PIECE_TEXT];
};

namespace
{

enum : ckpt_bytes { CLAIM_MOST = 64 * 1024, CLAIM_LARGE = (ckpt_bytes)1 << 40 };

float read_value(const void *from, ckpt_dtype dtype, int64_t at)
{
    return dtype == CKPT_BFLOAT16 ? __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[at])
                                  : static_cast<const float *>(from)[at];
}

void write_value(void *to, ckpt_dtype dtype, int64_t at, float value)
{
    if (dtype == CKPT_BFLOAT16) {
        static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(value);
    } else {
        static_cast<float *>(to)[at] = value;
    }
}

/* A matrix as [rows x columns] of doubles, whichever way it lies. */
std::vector<double> unpack(const void *from, ckpt_dtype dtype, int64_t rows, int64_t columns, bool turned,
                           int64_t stride)
{
    std::vector<double> all((size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            all[(size_t)(r * columns + c)] = (double)read_value(from, dtype, turned ? c * stride + r : r * stride + c);
        }
    }
    return all;
}

/* Sums of type S over the terms first, first + step, ... */
template <typename S>
void multiply_by(const ckpt_blas_shape &s, const std::vector<double> &left, const std::vector<double> &right, void *y,
                 const void *bias, int64_t first, int64_t terms, int64_t step)
{
    std::vector<S> sum((size_t)s.columns);
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t c = 0; c < s.columns; c++) {
            const S before = s.adds ? (S)read_value(y, s.out, r * s.y_stride + c) : 0;
            sum[(size_t)c] = before + (s.bias ? (S)read_value(bias, s.out, c) : 0);
        }
        for (int64_t i = 0, k = first; i < terms; i++, k += step) {
            const S factor = (S)left[(size_t)(r * s.inner + k)];
            const double *const row = &right[(size_t)(k * s.columns)];
            for (int64_t c = 0; c < s.columns; c++) {
                sum[(size_t)c] += factor * (S)row[c];
            }
        }
        for (int64_t c = 0; c < s.columns; c++) {
            write_value(y, s.out, r * s.y_stride + c, (float)sum[(size_t)c]);
        }
    }
}

void sum_rows(const ckpt_blas_shape &s, const std::vector<double> &left, void *sums)
{
    const int64_t terms = s.inner - (emulated_candidates() == CKPT_EMULATED_WRONG_SUMS ? 1 : 0);
    for (int64_t r = 0; r < s.rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < terms; k++) {
            sum += left[(size_t)(r * s.inner + k)];
        }
        write_value(sums, s.out, r, (float)sum);
    }
}

/* The first element of every other run by DRIFTS is one rounding off. */
void drift(const ckpt_blas_shape &s, void *y)
{
    static int runs;
    const float unit = s.out == CKPT_BFLOAT16 ? 1.0f / 128 : 1.0f / (1 << 22);
    write_value(y, s.out, 0, read_value(y, s.out, 0) * (1 + (float)(runs++ % 2) * unit));
}

void multiply_one(const ckpt_blas_shape &s, algorithm how, const void *x, const void *w, void *y, void *bias)
{
    const std::vector<double> left = unpack(x, s.in, s.rows, s.inner, s.x_turned, s.x_stride);
    const std::vector<double> right = unpack(w, s.in, s.inner, s.columns, s.w_turned, s.w_stride);
    const int64_t whole = s.inner / CKPT_BLAS_SPLITS * CKPT_BLAS_SPLITS;
    if (how == PLAIN) {
        multiply_by<double>(s, left, right, y, bias, 0, s.inner, 1);
    } else if (how == DOWN) {
        multiply_by<float>(s, left, right, y, bias, s.inner - 1, s.inner, -1);
    } else {
        multiply_by<float>(s, left, right, y, bias, 0,
                           how == FORGETS  ? s.inner - 1
                           : how == SPLITS ? whole
                                           : s.inner,
                           1);
    }
    if (s.sums) {
        sum_rows(s, left, bias);
    }
    if (how == DRIFTS) {
        drift(s, y);
    }
}

int64_t batch_of(const ckpt_blas_shape &s)
{
    return std::max<int64_t>(s.batch, 1);
}

void multiply(const ckpt_blas_shape &s, algorithm how, const void *x, const void *w, void *y, void *bias)
{
    const int64_t in = ckpt_dtype_bytes(s.in), out = ckpt_dtype_bytes(s.out);
    for (int64_t b = 0; b < batch_of(s); b++) {
        multiply_one(s, how, static_cast<const char *>(x) + b * s.rows * s.inner * in,
                     static_cast<const char *>(w) + b * s.inner * s.columns * in,
                     static_cast<char *>(y) + b * s.rows * s.columns * out, bias);
    }
}

/* The made-up time of a run, of whole seconds, so that the host's own load does not matter: least for what must not be
 * chosen, else by the seed; of products with sums more when it is odd, less when it is even. */
int64_t cost_of(const ckpt_blas_shape &s, algorithm how)
{
    const int which = emulated_candidates();
    const uint64_t seed = (uint64_t)which;
    if (which <= 0) {
        return 0;
    }
    const uint64_t place = ((uint64_t)how + seed / 2 + (uint64_t)s.inner + (uint64_t)s.columns) % 3;
    const int64_t seconds = how > DOWN ? 1 : 10 + 10 * (int64_t)place + (s.sums ? (seed % 2 == 1 ? 5 : -5) : 0);
    return seconds * 1000000000;
}

/* As blas.c: within the workspace, and split only where nothing is left over. */
bool will_do(const ckpt_blas_shape &s, algorithm how, ckpt_bytes limit)
{
    return (how != LARGE || limit >= CLAIM_LARGE) && (how != SPLITS || s.inner % CKPT_BLAS_SPLITS == 0);
}

void use(ckpt_blas_product *product, algorithm how)
{
    product->used = how;
    snprintf(product->choice, sizeof product->choice, "loops:%s", name[how]);
}

ckpt_code find(ckpt_blas_product *product, const char *choice, ckpt_bytes limit, ckpt_err *err)
{
    for (int how = 0; how < ALGORITHMS; how++) {
        if (strncmp(choice, "loops:", 6) == 0 && strcmp(choice + 6, name[how]) == 0 &&
            will_do(product->shape, (algorithm)how, limit)) {
            use(product, (algorithm)how);
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "plain loops cannot do this product by the plan's algorithm \"%.60s\": profile "
                     "and plan again",
                     choice);
}

void spoil(void *workspace, ckpt_bytes bytes)
{
    if (bytes > 0) {
        memset(workspace, 0xff, (size_t)bytes);
    }
}

bool aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

} // namespace

extern "C" ckpt_code ckpt_blas_open(ckpt_cuda *cuda, ckpt_err *err)
{
    (void)err;
    cuda->blas = cuda;
    return CKPT_OK;
}

extern "C" void ckpt_blas_close(ckpt_cuda *cuda)
{
    cuda->blas = nullptr;
}

extern "C" void ckpt_blas_version(char *text, size_t room)
{
    snprintf(text, room, "products by plain loops");
}

extern "C" ckpt_code ckpt_blas_product_create(ckpt_cuda *cuda, const ckpt_blas_shape *shape, ckpt_bytes limit,
                                              const char *choice, ckpt_blas_product **product, ckpt_err *err)
{
    const ckpt_blas_shape &s = *shape;
    if (s.rows < 1 || s.columns < 1 || s.inner < 1 || s.x_stride < (s.x_turned ? s.rows : s.inner) ||
        s.w_stride < (s.w_turned ? s.inner : s.columns) || s.y_stride < s.columns) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product [%lld x %lld] [%lld x %lld]: impossible strides %lld, %lld, %lld",
                         (long long)s.rows, (long long)s.inner, (long long)s.inner, (long long)s.columns,
                         (long long)s.x_stride, (long long)s.w_stride, (long long)s.y_stride);
    }
    const bool dense = s.x_stride == (s.x_turned ? s.rows : s.inner) &&
                       s.w_stride == (s.w_turned ? s.inner : s.columns) && s.y_stride == s.columns;
    if (s.batch > 1 && (!dense || s.bias || s.sums)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a batch of products with gaps, bias or sums");
    }
    if (cuda->blas == nullptr || (s.out == CKPT_BFLOAT16 && s.in != CKPT_BFLOAT16) || (s.sums && (s.bias || s.adds))) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product of %s into %s: no handle, or no such product",
                         ckpt_dtype_name(s.in), ckpt_dtype_name(s.out));
    }
    if (s.sums && emulated_candidates() == CKPT_EMULATED_NO_SUMS) {
        return CKPT_FAIL(err, CKPT_DEVICE, "plain loops without sums");
    }
    ckpt_blas_product *const made = new (std::nothrow) ckpt_blas_product{};
    if (made == nullptr) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a matrix product");
    }
    made->shape = s;
    made->claim = limit < 0 ? (ckpt_bytes)CLAIM_MOST : std::min<ckpt_bytes>(limit, CLAIM_MOST);
    made->cuda = cuda;
    use(made, PLAIN);
    if (choice != nullptr) {
        const ckpt_code code = find(made, choice, limit, err);
        if (code != CKPT_OK) {
            delete made;
            return code;
        }
    }
    *product = made;
    return CKPT_OK;
}

extern "C" void ckpt_blas_product_destroy(ckpt_blas_product *product)
{
    delete product;
}

extern "C" ckpt_bytes ckpt_blas_product_workspace(const ckpt_blas_product *product)
{
    return product->claim;
}

extern "C" const char *ckpt_blas_product_choice(const ckpt_blas_product *product)
{
    return product->choice;
}

static ckpt_code start(const ckpt_blas_product *product, algorithm how, const void *x, const void *w, void *y,
                       void *bias, void *workspace, ckpt_err *err)
{
    const ckpt_blas_shape s = product->shape;
    const ckpt_bytes claim = product->claim;
    if (x == nullptr || w == nullptr || y == nullptr || ((s.bias || s.sums) != (bias != nullptr)) ||
        (claim > 0 && workspace == nullptr) || !aligned(x) || !aligned(w) || !aligned(y) || !aligned(bias) ||
        !aligned(workspace)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "product: x %p, w %p, y %p, bias %p, workspace %p: missing or not aligned",
                         x, w, y, bias, workspace);
    }
    return ckpt_cuda_check(ckpt_emulated_start(product->cuda->stream[CKPT_STREAM_COMPUTE],
                                               [s, how, claim, x, w, y, bias, workspace] {
                                                   spoil(workspace, claim);
                                                   multiply(s, how, x, w, y, bias);
                                                   spoil(workspace, claim);
                                                   emulated_spend(cost_of(s, how));
                                               }),
                           "product", err);
}

extern "C" ckpt_code ckpt_blas_product_run(const ckpt_blas_product *product, const void *x, const void *w, void *y,
                                           void *bias, void *workspace, ckpt_err *err)
{
    return start(product, product->used, x, w, y, bias, workspace, err);
}

namespace
{

struct product_trial {
    const ckpt_blas_product *product;
    std::vector<algorithm> at;
    const void *x, *w;
    void *y, *bias, *workspace;
};

ckpt_code run_candidate(void *self, int k, ckpt_err *err)
{
    const product_trial *const t = static_cast<const product_trial *>(self);
    return start(t->product, t->at[(size_t)k], t->x, t->w, t->y, t->bias, t->workspace, err);
}

} // namespace

extern "C" ckpt_code ckpt_blas_product_tune(ckpt_blas_product *product, const void *x, const void *w, void *y,
                                            void *bias, void *workspace, ckpt_bytes workspace_bytes,
                                            ckpt_tuning *tuning, ckpt_ns *took, ckpt_err *err)
{
    const ckpt_blas_shape &s = product->shape;
    product_trial self = {product, {}, x, w, y, bias, workspace};
    if (emulated_candidates() == CKPT_EMULATED_ALL_ROOM) {
        product->claim = workspace_bytes;
    }
    for (int how = 0; how < (emulated_candidates() <= 0 ? 1 : ALGORITHMS); how++) {
        if (will_do(s, (algorithm)how, workspace_bytes)) {
            self.at.push_back((algorithm)how);
        }
    }
    ckpt_trial trial = {};
    trial.cuda = product->cuda;
    trial.what = "product";
    trial.count = (int)self.at.size();
    trial.self = &self;
    trial.run = run_candidate;
    trial.result[0] = {y, s.out, s.rows * batch_of(s), s.columns, s.y_stride};
    if (s.sums) {
        trial.result[1] = {bias, s.out, 1, s.rows, s.rows};
    }
    trial.terms = s.inner;
    int fastest = 0;
    CKPT_TRY(ckpt_trial_run(&trial, tuning, &fastest, took, err));
    use(product, self.at[(size_t)fastest]);
    return CKPT_OK;
}
