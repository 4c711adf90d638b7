/* Muon: momentum and an upright copy, five iterations of Newton and Schulz in float32, and the step; other parameters take
 * AdamW's step. Of a matrix [n, m], m <= n: 10 m^2 (2 n + m) FLOP on the cores for float, bound by them: a block has a
 * tile of 64 x 64, a thread 4 x 4 of it, each element one chain of sums over the inner dimension. Formulas are those of
 * kernels/cpu/muon.c. */
#include "kernels/cuda/adam.cuh"

extern "C" {
#include "ops/whole_update.h"
}

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY, EPS, MATCH_RMS, ADAMW_LR, BETA1, BETA2, ADAMW_EPS };

namespace
{
enum { THREADS = 256, ITERATIONS = 5, TILE = 64, DEPTH = 16, OWN = 4, ACROSS = TILE / OWN };

/* One matrix of a parameter. */
struct muon_piece {
    const ckpt_cuda_counters *counters;
    const float *factor; /* of gradients; NULL: 1 */
    const float *grad;
    float *param;
    bf16 *param16; /* NULL: a float32 model */
    float *buffer;
    int64_t rows, columns, small;
    int group;
    bool decay, nesterov, turned;
    float keep, rest, rate; /* momentum, 1 - momentum, factor of the learning rate */
};

/* As `product` of kernels/cpu/muon.c. */
struct muon_product {
    int64_t rows, columns, inner;
    const float *a;
    int64_t a_row, a_column;
    const float *b, *d;
    float times, d_times;
    float *to;
};
} // namespace

__device__ inline int64_t muon_upright(const muon_piece &p, int64_t i)
{
    const int64_t r = i / p.columns, c = i % p.columns;
    return p.turned ? c * p.small + r : r * p.small + c;
}

__global__ void __launch_bounds__(THREADS) muon_gather(muon_piece p, float *x)
{
    const float scale = p.factor != NULL ? *p.factor : 1.0f;
    for (int64_t i = first_item(); i < p.rows * p.columns; i += item_step()) {
        const float g = product_of(p.grad[i], scale);
        const float m = p.buffer[i] + p.rest * (g - p.buffer[i]);
        p.buffer[i] = m;
        x[muon_upright(p, i)] = p.nesterov ? g + p.keep * (m - g) : m;
    }
}

__global__ void __launch_bounds__(THREADS) muon_scale(int64_t count, const double *squares, double least, float *x)
{
    const double norm = sqrt(*squares);
    const float inverse = (float)(1.0 / (norm > least ? norm : least));
    for (int64_t i = first_item(); i < count; i += item_step()) {
        x[i] *= inverse;
    }
}

__global__ void __launch_bounds__(THREADS) muon_multiply(muon_product p)
{
    __shared__ float a[DEPTH][TILE + 4], b[DEPTH][TILE];
    const int64_t across = (p.columns + TILE - 1) / TILE;
    const int64_t top = (int64_t)blockIdx.x / across * TILE, left = (int64_t)blockIdx.x % across * TILE;
    const int t = (int)threadIdx.x, y = t / ACROSS * OWN, x = t % ACROSS * OWN;
    float sum[OWN][OWN] = {};
    for (int64_t k = 0; k < p.inner; k += DEPTH) {
        for (int i = t; i < TILE * DEPTH; i += THREADS) {
            /* neighbours read neighbours of a, whichever way it lies */
            const int r = p.a_row == 1 ? i % TILE : i / DEPTH, d = p.a_row == 1 ? i / TILE : i % DEPTH;
            const bool in = top + r < p.rows && k + d < p.inner;
            a[d][r] = in ? p.a[(top + r) * p.a_row + (k + d) * p.a_column] : 0.0f;
            const int e = i / TILE, c = i % TILE;
            b[e][c] = k + e < p.inner && left + c < p.columns ? p.b[(k + e) * p.columns + left + c] : 0.0f;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++) {
            for (int i = 0; i < OWN; i++) {
                for (int j = 0; j < OWN; j++) {
                    sum[i][j] += a[d][y + i] * b[d][x + j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < OWN && top + y + i < p.rows; i++) {
        for (int j = 0; j < OWN && left + x + j < p.columns; j++) {
            const int64_t at = (top + y + i) * p.columns + left + x + j;
            p.to[at] = p.d != NULL ? p.times * sum[i][j] + p.d_times * p.d[at] : sum[i][j];
        }
    }
}

__global__ void __launch_bounds__(THREADS) muon_step(muon_piece p, const float *x)
{
    const float *const number = p.counters->numbers.of[p.group];
    const float stay = p.decay ? number[1] : 1.0f, rate = number[0] * p.rate;
    for (int64_t i = first_item(); i < p.rows * p.columns; i += item_step()) {
        const float w = p.param[i] * stay - rate * x[muon_upright(p, i)];
        p.param[i] = w;
        if (p.param16 != NULL) {
            p.param16[i] = from_float<bf16>(w);
        }
    }
}

static void multiply(const ckpt_cuda *cuda, const muon_product &p)
{
    const int64_t tiles = (p.rows + TILE - 1) / TILE * ((p.columns + TILE - 1) / TILE);
    CKPT_LAUNCH(cuda, muon_multiply, (unsigned)tiles, THREADS, 0, p);
}

/* x becomes nearly orthogonal; gives where it is. */
static float *iterate(const ckpt_cuda *cuda, char *base, const ckpt_muon_space &s)
{
    float *x = (float *)(void *)(base + s.one), *other = (float *)(void *)(base + s.other);
    float *const gram = (float *)(void *)(base + s.gram), *const poly = (float *)(void *)(base + s.product);
    for (int n = 0; n < ITERATIONS; n++) {
        multiply(cuda, {s.small, s.small, s.large, x, 1, s.small, x, NULL, 1.0f, 0.0f, gram});
        multiply(cuda, {s.small, s.small, s.small, gram, s.small, 1, gram, gram, 2.0315f, -4.7750f, poly});
        multiply(cuda, {s.large, s.small, s.small, x, s.small, 1, poly, x, 1.0f, 3.4445f, other});
        float *const made = other;
        other = x;
        x = made;
    }
    return x;
}

static muon_piece piece_of(const ckpt_update_args *args, const ckpt_muon_space &s, int64_t at)
{
    const double *const value = args->hyper;
    const double wide = (double)args->matrix.columns, high = (double)args->matrix.rows;
    muon_piece p = {};
    p.counters = ((const ckpt_cuda *)args->context)->counters;
    p.factor = args->scale;
    p.grad = args->grad + at;
    p.param = args->param + at;
    p.param16 = args->param16 != NULL ? (bf16 *)args->param16 + at : NULL;
    p.buffer = args->slot[0] + at;
    p.rows = args->matrix.rows;
    p.columns = args->matrix.columns;
    p.small = s.small;
    p.group = args->group;
    p.decay = args->decay;
    p.nesterov = value[NESTEROV] != 0.0;
    p.turned = s.turned;
    p.keep = (float)value[MOMENTUM];
    p.rest = (float)(1.0 - value[MOMENTUM]);
    p.rate = (float)(value[MATCH_RMS] != 0.0 ? 0.2 * sqrt(high > wide ? high : wide)
                     : high > wide           ? sqrt(high / wide)
                                             : 1.0);
    return p;
}

static ckpt_code step_matrices(const ckpt_update_args *args, ckpt_err *err)
{
    ckpt_cuda *const cuda = (ckpt_cuda *)args->context;
    const ckpt_muon_space s = ckpt_muon_space_of(&args->matrix, true);
    const int64_t count = s.large * s.small;
    char *const base = (char *)args->workspace;
    float *const x = (float *)(void *)(base + s.one);
    double *const squares = (double *)(void *)(base + s.sum);
    const unsigned grid = (unsigned)grid_for(cuda, count, THREADS);
    for (int64_t k = 0; k < args->matrix.stack; k++) {
        const muon_piece p = piece_of(args, s, k * count);
        CKPT_LAUNCH(cuda, muon_gather, grid, THREADS, 0, p, x);
        CKPT_TRY(ckpt_cuda_square_sum(cuda, x, count, squares, base + s.square, err));
        CKPT_LAUNCH(cuda, muon_scale, grid, THREADS, 0, count, (const double *)squares, args->hyper[EPS], x);
        const float *const made = iterate(cuda, base, s);
        CKPT_LAUNCH(cuda, muon_step, grid, THREADS, 0, p, made);
    }
    return ckpt_cuda_launched("muon", err);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    const double *const value = args->hyper;
    for (int i = 0; i < count; i++) {
        int others = i; /* a run of them is one launch */
        while (others < count && !ckpt_muon_takes(&args[others].matrix)) {
            others++;
        }
        if (others > i) {
            update_all(args + i, others - i, adam_rule_of<2, false>(value[BETA1], value[BETA2], value[ADAMW_EPS]));
            i = others - 1;
            continue;
        }
        CKPT_TRY(step_matrices(&args[i], err));
    }
    return ckpt_cuda_launched("muon", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_muon = {
    .optimizer = "muon",
    .update = update,
};
