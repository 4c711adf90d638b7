/* GELU in its exact, its tanh and its sigmoid form. With s(x) the logistic function, 1/2 (1 + tanh(u)) = s(2u), so the
 * last two are x s(v) with v = x (a + b x^2). */
#include "kernels/cpu/gelu.h"

#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { TILE = CKPT_GELU_TILE };

static const float half_root = 0.707106781f;        /* sqrt(1/2) */
static const float normal_peak = 0.398942280f;      /* 1 / sqrt(2 pi) */
static const float twice_root_two_pi = 1.59576912f; /* 2 sqrt(2/pi) */
static const float cubic = 0.0713548163f;           /* 0.044715 of it */
static const float steep = 1.702f;                  /* of the sigmoid form */

ckpt_gelu_form ckpt_gelu_form_of(const ckpt_node *node)
{
    const char *const form = ckpt_node_string(node, "approximate");
    return strcmp(form, "tanh") == 0      ? CKPT_GELU_TANH
           : strcmp(form, "sigmoid") == 0 ? CKPT_GELU_SIGMOID
                                          : CKPT_GELU_ERF;
}

/* The share of x that passes, and x times the share's slope: y = x share, dy/dx = share + bend. */
typedef struct passing {
    ckpt_lanes share, bend;
} passing;

/* share = 1/2 (1 + erf(x / sqrt(2))), whose slope is the normal density: 0 in float beyond 14. */
static inline passing exact(ckpt_lanes x)
{
    const ckpt_lanes inside = ckpt_within(x, 14.0f);
    const ckpt_lanes density = normal_peak * ckpt_lanes_exp(-0.5f * inside * inside);
    return (passing){0.5f + 0.5f * ckpt_lanes_erf(half_root * inside), inside * density};
}

/* share = s(v), v = x (a + b x^2): 0 or 1 in float beyond 60. */
static inline passing logistic(ckpt_lanes x, float a, float b)
{
    const ckpt_lanes inside = ckpt_within(x, 60.0f), z = inside * inside;
    const ckpt_lanes s = ckpt_lanes_sigmoid(inside * ckpt_fused(z, ckpt_all(b), ckpt_all(a)));
    return (passing){s, inside * (s * (1.0f - s)) * ckpt_fused(z, ckpt_all(3 * b), ckpt_all(a))};
}

/* `form`, `value` and `slopes` are constants here. */
static inline passing pass(ckpt_gelu_form form, ckpt_lanes x)
{
    return form == CKPT_GELU_ERF    ? exact(x)
           : form == CKPT_GELU_TANH ? logistic(x, twice_root_two_pi, cubic)
                                    : logistic(x, steep, 0);
}

static inline __attribute__((always_inline)) void each(ckpt_gelu_form form, bool value, bool slopes, int64_t n,
                                                       const float *x, float *y, float *slope)
{
    for (int64_t i = 0; i < n; i += CKPT_LANES) {
        const ckpt_lanes at = ckpt_load_some(n - i, x + i);
        const passing p = pass(form, at);
        if (value) {
            ckpt_store_some(n - i, at * p.share, y + i);
        }
        if (slopes) {
            ckpt_store_some(n - i, p.share + p.bend, slope + i);
        }
    }
}

static inline __attribute__((always_inline)) void each_of(ckpt_gelu_form form, bool value, bool slopes, int64_t n,
                                                          const float *x, float *y, float *slope)
{
    switch (form) {
    case CKPT_GELU_ERF: each(CKPT_GELU_ERF, value, slopes, n, x, y, slope); break;
    case CKPT_GELU_TANH: each(CKPT_GELU_TANH, value, slopes, n, x, y, slope); break;
    case CKPT_GELU_SIGMOID: each(CKPT_GELU_SIGMOID, value, slopes, n, x, y, slope); break;
    }
}

void ckpt_gelu_tile(ckpt_gelu_form form, int64_t n, const float *x, float *y, float *slope)
{
    if (slope == NULL) {
        each_of(form, true, false, n, x, y, slope);
    } else if (y == NULL) {
        each_of(form, false, true, n, x, y, slope);
    } else {
        each_of(form, true, true, n, x, y, slope);
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
