/* SiLU tile by tile: the logistic function fills a tile in the first-level cache, and a second pass finishes it. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { TILE = 512 };

static void forward_tile(int64_t n, const float *x, float *y)
{
    float s[TILE];
    ckpt_vector_sigmoid(n, x, s);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * s[i];
    }
}

static void backward_tile(int64_t n, const float *x, const float *dy, bool adds, float *dx)
{
    float s[TILE];
    ckpt_vector_sigmoid(n, x, s);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        s[i] = dy[i] * (s[i] * (1.0f + x[i] * (1.0f - s[i])));
    }
    if (adds) {
        ckpt_vector_add(n, s, dx);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] = s[i];
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), tiles = (count + TILE - 1) / TILE;
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE;
        forward_tile(count - start < TILE ? count - start : TILE, x + start, y + start);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), tiles = (count + TILE - 1) / TILE;
    const float *const x = args->in[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE;
        backward_tile(count - start < TILE ? count - start : TILE, x + start, dy + start, adds, dx + start);
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_silu = {
    .op = "silu",
    .forward = forward,
    .backward = backward,
};
