/* GELU in its exact, its tanh and its sigmoid form, tile by tile: the inner function (erf, tanh, sigmoid, exp) fills a
 * tile in the first-level cache, and a second pass finishes it. */
#include "kernels/cpu/gelu.h"

#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { TILE = CKPT_GELU_TILE };

static const float half_root = 0.707106781f;   /* sqrt(1/2) */
static const float root_two_pi = 0.797884561f; /* sqrt(2/pi) */
static const float cubic = 0.044715f;          /* of the tanh form */
static const float normal_peak = 0.398942280f; /* 1 / sqrt(2 pi) */
static const float steep = 1.702f;             /* of the sigmoid form */

ckpt_gelu_form ckpt_gelu_form_of(const ckpt_node *node)
{
    const char *const form = ckpt_node_string(node, "approximate");
    return strcmp(form, "tanh") == 0      ? CKPT_GELU_TANH
           : strcmp(form, "sigmoid") == 0 ? CKPT_GELU_SIGMOID
                                          : CKPT_GELU_ERF;
}

/* inner = erf or tanh of the inner term; y = x/2 (1 + inner). Sigmoid form: y = x inner. */
static void inner_tile(ckpt_gelu_form form, int64_t n, const float *x, float *inner)
{
    if (form == CKPT_GELU_TANH) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            inner[i] = root_two_pi * (x[i] + cubic * x[i] * x[i] * x[i]);
        }
        ckpt_vector_tanh(n, inner, inner);
        return;
    }
    const float factor = form == CKPT_GELU_ERF ? half_root : steep;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        inner[i] = factor * x[i];
    }
    if (form == CKPT_GELU_ERF) {
        ckpt_vector_erf(n, inner, inner);
    } else {
        ckpt_vector_sigmoid(n, inner, inner);
    }
}

static void value_tile(ckpt_gelu_form form, int64_t n, const float *x, const float *inner, float *y)
{
    if (form == CKPT_GELU_SIGMOID) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i] * inner[i];
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0.5f * x[i] * (1.0f + inner[i]);
    }
}

/* slope = dy/dx = (1 + inner)/2 + x/2 d(inner)/dx; sigmoid form: inner + x d(inner)/dx */
static void slope_tile(ckpt_gelu_form form, int64_t n, const float *x, const float *inner, float *slope)
{
    if (form == CKPT_GELU_TANH) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const float inside = root_two_pi * (1.0f + 3.0f * cubic * x[i] * x[i]);
            /* for large |x|, 1 - inner^2 is 0 and `inside` may be infinite */
            const float fall = 1.0f - inner[i] * inner[i];
            const float bend = fall == 0.0f ? 0.0f : x[i] * fall * inside;
            slope[i] = 0.5f * (1.0f + inner[i]) + 0.5f * bend;
        }
    } else if (form == CKPT_GELU_SIGMOID) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            slope[i] = inner[i] * (1.0f + steep * x[i] * (1.0f - inner[i]));
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

void ckpt_gelu_tile(ckpt_gelu_form form, int64_t n, const float *x, float *y, float *slope)
{
    float inner[TILE];
    inner[0] = 0.0f;
    inner_tile(form, n, x, inner);
    if (y != NULL) {
        value_tile(form, n, x, inner, y);
    }
    if (slope != NULL) {
        slope_tile(form, n, x, inner, slope);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0];
    float *const y = args->out[0];
    const ckpt_gelu_form form = ckpt_gelu_form_of(args->node);
    const int64_t tiles = (count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE;
        ckpt_gelu_tile(form, count - start < TILE ? count - start : TILE, x + start, y + start, NULL);
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
    const ckpt_gelu_form form = ckpt_gelu_form_of(args->node);
    const bool adds = (args->grad_in_adds & 1) != 0;
    const int64_t tiles = (count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE, n = count - start < TILE ? count - start : TILE;
        float slope[TILE];
        ckpt_gelu_tile(form, n, x + start, NULL, slope);
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
