/* GELU in its exact and its tanh form, tile by tile: the inner function (erf, tanh, exp) fills a tile in the
 * first-level cache, and a second pass finishes it. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { TILE = 512 };

static const float half_root = 0.707106781f;   /* sqrt(1/2) */
static const float root_two_pi = 0.797884561f; /* sqrt(2/pi) */
static const float cubic = 0.044715f;          /* of the tanh form */
static const float normal_peak = 0.398942280f; /* 1 / sqrt(2 pi) */

static bool tanh_form(const ckpt_node *node)
{
    return strcmp(ckpt_node_string(node, "approximate"), "tanh") == 0;
}

/* inner = erf or tanh of the inner term; y = x/2 (1 + inner) */
static void inner_tile(bool approximate, int64_t n, const float *x, float *inner)
{
    if (approximate) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            inner[i] = root_two_pi * (x[i] + cubic * x[i] * x[i] * x[i]);
        }
        ckpt_vector_tanh(n, inner, inner);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            inner[i] = half_root * x[i];
        }
        ckpt_vector_erf(n, inner, inner);
    }
}

static void forward_tile(bool approximate, int64_t n, const float *x, float *y)
{
    float inner[TILE];
    inner[0] = 0.0f;
    inner_tile(approximate, n, x, inner);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0.5f * x[i] * (1.0f + inner[i]);
    }
}

/* slope = dy/dx = (1 + inner)/2 + x/2 d(inner)/dx */
static void slope_tile(bool approximate, int64_t n, const float *x, float *slope)
{
    float inner[TILE];
    inner[0] = 0.0f;
    inner_tile(approximate, n, x, inner);
    if (approximate) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float inside = root_two_pi * (1.0f + 3.0f * cubic * x[i] * x[i]);
            /* for large |x|, 1 - inner^2 is 0 and `inside` may be infinite */
            const float fall = 1.0f - inner[i] * inner[i];
            const float bend = fall == 0.0f ? 0.0f : x[i] * fall * inside;
            slope[i] = 0.5f * (1.0f + inner[i]) + 0.5f * bend;
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            slope[i] = -0.5f * x[i] * x[i];
        }
        ckpt_vector_exp(n, slope, 0.0f, normal_peak, slope);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float bend = slope[i] == 0.0f ? 0.0f : x[i] * slope[i];
            slope[i] = 0.5f * (1.0f + inner[i]) + bend;
        }
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0];
    float *const y = args->out[0];
    const bool approximate = tanh_form(args->node);
    const int64_t tiles = (count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE;
        forward_tile(approximate, count - start < TILE ? count - start : TILE, x + start, y + start);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool approximate = tanh_form(args->node), adds = (args->grad_in_adds & 1) != 0;
    const int64_t tiles = (count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE, n = count - start < TILE ? count - start : TILE;
        float slope[TILE];
        slope_tile(approximate, n, x + start, slope);
        if (adds) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dx[start + i] += dy[start + i] * slope[i];
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dx[start + i] = dy[start + i] * slope[i];
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_gelu = {
    .op = "gelu",
    .forward = forward,
    .backward = backward,
};
