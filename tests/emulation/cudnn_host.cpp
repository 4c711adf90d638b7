/* Convolutions and attention by plain loops, behind the headers that cuDNN is behind (kernels/cuda/cudnn.c,
 * cudnn_attention.c): work of the compute stream, summed in double, rounded once, with a workspace that is claimed and
 * filled with NaN as in blas_host.cpp. Like there, ckpt_emulated_candidates brings others to choose from. */
#include <stdio.h>
#include <string.h>

#include <cmath>
#include <new>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "emulated_impl.h"

extern "C" {
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/trial.h"
}

#include "emulation.h"

struct ckpt_cudnn_attention {
    ckpt_cudnn_attention *next;
    ckpt_cudnn_attention_shape shape;
    ckpt_bytes bytes;
    cudaStream_t stream;
};

namespace
{

enum algorithm {
    PLAIN,  /* summed in double */
    SINGLE, /* in float32 */
    DRIFTS, /* as SINGLE, and another bit each time */
    LARGE,  /* as SINGLE, in a larger workspace than there may be */
    ALGORITHMS
};
const char *const name[ALGORITHMS] = {"plain", "single", "drifts", "large"};

/* What a convolution claims; less is refused, so that a caller's other way can be tested. */
enum : ckpt_bytes { CLAIM = 512, CLAIM_LARGE = (ckpt_bytes)1 << 40 };

ckpt_bytes claim_of(algorithm how)
{
    return how == LARGE ? CLAIM_LARGE : CLAIM;
}

} // namespace

struct ckpt_cudnn_convolution {
    ckpt_convolution shape;
    ckpt_cudnn_direction direction;
    ckpt_cuda *cuda;
    algorithm used;
    char choice[CKPT_PIECE_TEXT];
};

namespace
{

double read_value(const void *from, ckpt_dtype dtype, int64_t at)
{
    return dtype == CKPT_BFLOAT16 ? (double)__bfloat162float(static_cast<const __nv_bfloat16 *>(from)[at])
                                  : (double)static_cast<const float *>(from)[at];
}

template <typename S> void write_all(void *to, ckpt_dtype dtype, const std::vector<S> &sum)
{
    for (size_t at = 0; at < sum.size(); at++) {
        if (dtype == CKPT_BFLOAT16) {
            static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn((float)sum[at]);
        } else {
            static_cast<float *>(to)[at] = (float)sum[at];
        }
    }
}

/* Calls visit(x index, w index, y index) for every product of the convolution, in a fixed order. */
template <typename F> void walk(const ckpt_convolution &s, const F &visit)
{
    const int64_t in_group = s.in_channels / s.groups, out_group = s.out_channels / s.groups;
    const int64_t taps = ckpt_convolution_taps(&s), rows = ckpt_convolution_out_rows(&s);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at[3] = {row / s.out[2] / s.out[1] % s.out[0], row / s.out[2] % s.out[1], row % s.out[2]};
        for (int64_t o = 0; o < s.out_channels; o++) {
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t of[3] = {tap / s.kernel[2] / s.kernel[1], tap / s.kernel[2] % s.kernel[1],
                                       tap % s.kernel[2]};
                int64_t pixel = row / (s.out[0] * s.out[1] * s.out[2]);
                bool inside = true;
                for (int d = 0; d < 3; d++) {
                    const int64_t a = at[d] * s.stride[d] + of[d] * s.dilation[d] - s.padding[d];
                    inside = inside && a >= 0 && a < s.in[d];
                    pixel = pixel * s.in[d] + a;
                }
                const int64_t x = pixel * s.in_channels + o / out_group * in_group;
                const int64_t w = (o * taps + tap) * in_group, y = row * s.out_channels + o;
                for (int64_t c = 0; c < in_group && inside; c++) {
                    visit((size_t)(x + c), (size_t)(w + c), (size_t)y);
                }
            }
        }
    }
}

std::vector<double> unpack(const void *from, ckpt_dtype dtype, int64_t count)
{
    std::vector<double> all((size_t)count);
    for (int64_t at = 0; at < count; at++) {
        all[(size_t)at] = read_value(from, dtype, at);
    }
    return all;
}

/* Sums of type S. */
template <typename S>
void convolve(const ckpt_convolution &s, ckpt_cudnn_direction direction, const void *a, const void *b, void *c)
{
    const int64_t x_count = ckpt_convolution_in_rows(&s) * s.in_channels;
    const int64_t y_count = ckpt_convolution_out_rows(&s) * s.out_channels;
    const int64_t w_count = s.out_channels * ckpt_convolution_taps(&s) * (s.in_channels / s.groups);
    std::vector<S> sum;
    if (direction == CKPT_CUDNN_FORWARD) {
        const std::vector<double> x = unpack(a, s.dtype, x_count), w = unpack(b, s.dtype, w_count);
        sum.resize((size_t)y_count);
        walk(s, [&](size_t at_x, size_t at_w, size_t at_y) { sum[at_y] += (S)x[at_x] * (S)w[at_w]; });
    } else if (direction == CKPT_CUDNN_INPUT_GRADIENT) {
        const std::vector<double> dy = unpack(a, s.dtype, y_count), w = unpack(b, s.dtype, w_count);
        sum.resize((size_t)x_count);
        walk(s, [&](size_t at_x, size_t at_w, size_t at_y) { sum[at_x] += (S)dy[at_y] * (S)w[at_w]; });
    } else {
        const std::vector<double> x = unpack(a, s.dtype, x_count), dy = unpack(b, s.dtype, y_count);
        sum.resize((size_t)w_count);
        walk(s, [&](size_t at_x, size_t at_w, size_t at_y) { sum[at_w] += (S)dy[at_y] * (S)x[at_x]; });
    }
    write_all(c, s.dtype, sum);
}

/* As in blas_host.cpp. */
void drift(ckpt_dtype dtype, void *c)
{
    static int runs;
    const std::vector<double> first = {read_value(c, dtype, 0) *
                                       (1 + (runs++ % 2) / (dtype == CKPT_BFLOAT16 ? 128.0 : 4194304.0))};
    write_all(c, dtype, first);
}

int64_t cost_of(const ckpt_convolution &s, algorithm how)
{
    const int which = emulated_candidates();
    const int64_t place = (how + which + s.in_channels + s.out_channels) % 2;
    return which <= 0 ? 0 : (how > SINGLE ? 1 : 10 + 10 * place) * (int64_t)1000000000;
}

bool aligned(const void *pointer)
{
    return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/* One head: rows of `size` numbers, `stride` apart. */
struct head_rows {
    const __nv_bfloat16 *from;
    int64_t stride, size;
    double at(int64_t row, int64_t d) const
    {
        return (double)__bfloat162float(from[row * stride + d]);
    }
    double dot(int64_t row, const head_rows &other, int64_t other_row) const
    {
        double sum = 0;
        for (int64_t d = 0; d < size; d++) {
            sum += at(row, d) * other.at(other_row, d);
        }
        return sum;
    }
};

struct one_head {
    ckpt_cudnn_attention_shape s;
    int64_t in, out; /* element at which it starts */
    head_rows q, k, v, o, dO;
    float *lse, *delta;
    double scale;
    int64_t keys(int64_t query) const
    {
        return s.causal ? query + 1 : s.tokens;
    }
    double score(int64_t query, int64_t key) const
    {
        return scale * q.dot(query, k, key);
    }
};

one_head head_of(const ckpt_cudnn_attention_shape &s, const ckpt_cudnn_attention_tensors &t, int64_t b, int64_t h)
{
    const auto rows = [&](const void *from, int64_t at, int64_t stride) {
        return head_rows{from == nullptr ? nullptr : static_cast<const __nv_bfloat16 *>(from) + at, stride, s.size};
    };
    const int64_t in = b * s.tokens * s.in_row + h * s.size, out = b * s.tokens * s.out_row + h * s.size;
    const int64_t queries = (b * s.heads + h) * s.tokens;
    return one_head{s,
                    in,
                    out,
                    rows(t.q, in, s.in_row),
                    rows(t.k, in, s.in_row),
                    rows(t.v, in, s.in_row),
                    rows(t.o, out, s.out_row),
                    rows(t.dO, out, s.out_row),
                    t.lse + queries,
                    t.delta == nullptr ? nullptr : t.delta + queries,
                    1 / sqrt((double)s.size)};
}

void write_rows(void *to, int64_t at, int64_t stride, int64_t size, const std::vector<double> &value)
{
    for (size_t i = 0; i < value.size(); i++) {
        static_cast<__nv_bfloat16 *>(to)[at + (int64_t)i / size * stride + (int64_t)i % size] =
            __float2bfloat16_rn((float)value[i]);
    }
}

void attend(const one_head &h, void *o)
{
    const int64_t T = h.s.tokens, D = h.s.size;
    std::vector<double> p((size_t)T), y((size_t)(T * D));
    for (int64_t i = 0; i < T; i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < h.keys(i); j++) {
            p[(size_t)j] = h.score(i, j);
            most = fmax(most, p[(size_t)j]);
        }
        for (int64_t j = 0; j < h.keys(i); j++) {
            p[(size_t)j] = exp(p[(size_t)j] - most);
            sum += p[(size_t)j];
        }
        for (int64_t j = 0; j < h.keys(i); j++) {
            for (int64_t d = 0; d < D; d++) {
                y[(size_t)(i * D + d)] += p[(size_t)j] / sum * h.v.at(j, d);
            }
        }
        h.lse[i] = (float)(most + log(sum));
    }
    write_rows(o, h.out, h.s.out_row, D, y);
}

void attend_backward(const one_head &h, const ckpt_cudnn_attention_tensors &t)
{
    const int64_t T = h.s.tokens, D = h.s.size;
    std::vector<double> dq((size_t)(T * D)), dk((size_t)(T * D)), dv((size_t)(T * D));
    for (int64_t i = 0; i < T; i++) {
        h.delta[i] = (float)h.dO.dot(i, h.o, i);
        for (int64_t j = 0; j < h.keys(i); j++) {
            const double p = exp(h.score(i, j) - (double)h.lse[i]);
            const double ds = h.scale * p * (h.dO.dot(i, h.v, j) - (double)h.delta[i]);
            for (int64_t d = 0; d < D; d++) {
                dv[(size_t)(j * D + d)] += p * h.dO.at(i, d);
                dq[(size_t)(i * D + d)] += ds * h.k.at(j, d);
                dk[(size_t)(j * D + d)] += ds * h.q.at(i, d);
            }
        }
    }
    write_rows(t.dq, h.in, h.s.in_row, D, dq);
    write_rows(t.dk, h.in, h.s.in_row, D, dk);
    write_rows(t.dv, h.in, h.s.in_row, D, dv);
}

} // namespace

extern "C" ckpt_code ckpt_cudnn_open(ckpt_cuda *cuda, ckpt_err *err)
{
    (void)err;
    cuda->cudnn = cuda;
    return CKPT_OK;
}

extern "C" void ckpt_cudnn_close(ckpt_cuda *cuda)
{
    cuda->cudnn = nullptr;
}

extern "C" void ckpt_cudnn_version(char *text, size_t room)
{
    snprintf(text, room, "convolutions by plain loops");
}

static void use(ckpt_cudnn_convolution *convolution, algorithm how)
{
    convolution->used = how;
    snprintf(convolution->choice, sizeof convolution->choice, "loops:%s", name[how]);
}

static ckpt_code find(ckpt_cudnn_convolution *convolution, const char *choice, ckpt_bytes limit, ckpt_err *err)
{
    for (int how = 0; how < ALGORITHMS; how++) {
        if (strncmp(choice, "loops:", 6) == 0 && strcmp(choice + 6, name[how]) == 0 &&
            (limit < 0 || claim_of((algorithm)how) <= limit)) {
            use(convolution, (algorithm)how);
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_DEVICE,
                     "plain loops cannot do this convolution by the plan's algorithm \"%.60s\": profile and plan again",
                     choice);
}

extern "C" ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_convolution *shape,
                                                   ckpt_cudnn_direction direction, ckpt_bytes limit, const char *choice,
                                                   ckpt_cudnn_convolution **convolution, ckpt_err *err)
{
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    if (limit >= 0 && limit < CLAIM) {
        return CKPT_FAIL(err, CKPT_DEVICE, "convolution: found %lld bytes of workspace, wanted %lld", (long long)limit,
                         (long long)CLAIM);
    }
    ckpt_cudnn_convolution *const made = new (std::nothrow) ckpt_cudnn_convolution{};
    if (made == nullptr) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a convolution");
    }
    made->shape = *shape;
    made->direction = direction;
    made->cuda = cuda;
    use(made, PLAIN);
    const ckpt_code code = choice == nullptr ? CKPT_OK : find(made, choice, limit, err);
    if (code != CKPT_OK) {
        delete made;
        return code;
    }
    *convolution = made;
    return CKPT_OK;
}

extern "C" void ckpt_cudnn_convolution_destroy(ckpt_cudnn_convolution *convolution)
{
    delete convolution;
}

extern "C" ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution)
{
    return claim_of(convolution->used);
}

extern "C" const char *ckpt_cudnn_convolution_choice(const ckpt_cudnn_convolution *convolution)
{
    return convolution->choice;
}

extern "C" const char *ckpt_cudnn_convolution_remark(const ckpt_cudnn_convolution *convolution)
{
    (void)convolution;
    return "";
}

static ckpt_code start(const ckpt_cudnn_convolution *convolution, algorithm how, const void *a, const void *b, void *c,
                       void *workspace, ckpt_err *err)
{
    const ckpt_convolution s = convolution->shape;
    const ckpt_cudnn_direction direction = convolution->direction;
    if (!aligned(a) || !aligned(b) || !aligned(c) || !aligned(workspace)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "convolution: a %p, b %p, c %p, workspace %p: missing or not aligned", a, b,
                         c, workspace);
    }
    return ckpt_cuda_check(ckpt_emulated_start(convolution->cuda->stream[CKPT_STREAM_COMPUTE],
                                               [s, direction, how, a, b, c, workspace] {
                                                   memset(workspace, 0xff, (size_t)CLAIM);
                                                   if (how == PLAIN) {
                                                       convolve<double>(s, direction, a, b, c);
                                                   } else {
                                                       convolve<float>(s, direction, a, b, c);
                                                   }
                                                   if (how == DRIFTS) {
                                                       drift(s.dtype, c);
                                                   }
                                                   memset(workspace, 0xff, (size_t)CLAIM);
                                                   emulated_spend(cost_of(s, how));
                                               }),
                           "convolution", err);
}

extern "C" ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a, const void *b,
                                                void *c, void *workspace, ckpt_err *err)
{
    return start(convolution, convolution->used, a, b, c, workspace, err);
}

namespace
{

struct convolution_trial {
    const ckpt_cudnn_convolution *convolution;
    std::vector<algorithm> at;
    const void *a, *b;
    void *c, *workspace;
};

ckpt_code run_candidate(void *self, int k, ckpt_err *err)
{
    const convolution_trial *const t = static_cast<const convolution_trial *>(self);
    return start(t->convolution, t->at[(size_t)k], t->a, t->b, t->c, t->workspace, err);
}

int64_t result_count(const ckpt_convolution &s, ckpt_cudnn_direction direction)
{
    return direction == CKPT_CUDNN_FORWARD ? ckpt_convolution_out_rows(&s) * s.out_channels
           : direction == CKPT_CUDNN_INPUT_GRADIENT
               ? ckpt_convolution_in_rows(&s) * s.in_channels
               : s.out_channels * (s.in_channels / s.groups) * ckpt_convolution_taps(&s);
}

} // namespace

extern "C" ckpt_code ckpt_cudnn_convolution_tune(ckpt_cudnn_convolution *convolution, const void *a, const void *b,
                                                 void *c, void *workspace, ckpt_bytes workspace_bytes,
                                                 ckpt_tuning *tuning, ckpt_err *err)
{
    const ckpt_convolution &s = convolution->shape;
    const int64_t count = result_count(s, convolution->direction);
    convolution_trial self = {convolution, {}, a, b, c, workspace};
    for (int how = 0; how < (emulated_candidates() <= 0 ? 1 : ALGORITHMS); how++) {
        if (claim_of((algorithm)how) <= workspace_bytes) {
            self.at.push_back((algorithm)how);
        }
    }
    ckpt_trial trial = {};
    trial.cuda = convolution->cuda;
    trial.what = "convolution";
    trial.count = (int)self.at.size();
    trial.self = &self;
    trial.run = run_candidate;
    trial.result[0] = {c, s.dtype, 1, count, count};
    trial.terms = ckpt_convolution_out_rows(&s) + ckpt_convolution_taps(&s) * s.out_channels;
    int fastest = 0;
    ckpt_ns took = 0;
    CKPT_TRY(ckpt_trial_run(&trial, tuning, &fastest, &took, err));
    use(convolution, self.at[(size_t)fastest]);
    return CKPT_OK;
}

extern "C" ckpt_code ckpt_cudnn_attention_get(ckpt_cuda *cuda, const ckpt_cudnn_attention_shape *shape,
                                              const ckpt_cudnn_attention **attention, ckpt_err *err)
{
    CKPT_TRY(ckpt_cudnn_open(cuda, err));
    ckpt_cudnn_attention *const made = new (std::nothrow) ckpt_cudnn_attention{};
    if (made == nullptr) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "an attention");
    }
    const int64_t queries = (shape->tokens + 63) / 64 * 64, keys = (shape->tokens + 127) / 128 * 128;
    made->shape = *shape;
    made->bytes = shape->backward ? 2 * shape->batch * shape->heads * queries * keys + 256 : 256; /* as cuDNN 9.19 */
    made->stream = cuda->stream[CKPT_STREAM_COMPUTE];
    made->next = cuda->attention;
    cuda->attention = made;
    *attention = made;
    return CKPT_OK;
}

extern "C" void ckpt_cudnn_attention_close(ckpt_cuda *cuda)
{
    while (cuda->attention != nullptr) {
        ckpt_cudnn_attention *const first = cuda->attention;
        cuda->attention = first->next;
        delete first;
    }
}

extern "C" ckpt_bytes ckpt_cudnn_attention_workspace(const ckpt_cudnn_attention *attention)
{
    return attention->bytes;
}

extern "C" const char *ckpt_cudnn_attention_engine(const ckpt_cudnn_attention *attention)
{
    return attention->shape.backward ? "loops backward" : "loops";
}

extern "C" ckpt_code ckpt_cudnn_attention_run(const ckpt_cudnn_attention *attention,
                                              const ckpt_cudnn_attention_tensors *tensors, void *workspace,
                                              ckpt_err *err)
{
    const ckpt_cudnn_attention_shape s = attention->shape;
    const ckpt_cudnn_attention_tensors t = *tensors;
    const ckpt_bytes bytes = attention->bytes;
    if (!aligned(t.q) || !aligned(t.k) || !aligned(t.v) || !aligned(t.o) || t.lse == nullptr || !aligned(workspace) ||
        (s.backward && (!aligned(t.dO) || !aligned(t.dq) || !aligned(t.dk) || !aligned(t.dv) || t.delta == nullptr))) {
        return CKPT_FAIL(err, CKPT_DEVICE, "attention: a tensor is missing or not aligned");
    }
    return ckpt_cuda_check(ckpt_emulated_start(attention->stream,
                                               [s, t, bytes, workspace] {
                                                   memset(workspace, 0xff, (size_t)bytes);
                                                   for (int64_t h = 0; h < s.batch * s.heads; h++) {
                                                       const one_head head = head_of(s, t, h / s.heads, h % s.heads);
                                                       s.backward ? attend_backward(head, t) : attend(head, t.o);
                                                   }
                                                   memset(workspace, 0xff, (size_t)bytes);
                                               }),
                           "attention", err);
}
