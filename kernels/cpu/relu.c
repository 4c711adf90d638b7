/* ReLU and ReLU6. The gradient passes where the output is inside the open interval, which is where the input is; a mask
 * has those bits. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/pointwise.h"

enum { TILE = 1024 };

static float top_of(const ckpt_kernel_args *args)
{
    return strcmp(args->node->op->name, "relu6") == 0 ? 6.0f : INFINITY;
}

/* NaN passes. */
static inline float clamp(float x, float top)
{
    const float low = x < 0.0f ? 0.0f : x;
    return low > top ? top : low;
}

/* A tile from `start` on of whole words of the mask, but for the last. Two loops: in one, gcc 12 joins the comparisons to
 * branches. */
static inline void clamp_tile(bool narrow, int64_t start, int64_t n, float top, const void *x, void *y, uint32_t *mask)
{
    uint8_t keep[TILE];
#pragma omp simd
    for (int64_t i = start; i < start + n; i++) {
        ckpt_put_element(narrow, clamp(ckpt_element(narrow, x, i), top), y, i);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float value = ckpt_element(narrow, y, start + i);
        const bool low = value > 0.0f, high = value < top;
        keep[i] = low & high;
    }
    ckpt_pack_mask(n, keep, mask);
}

static inline void forward_with_mask(bool narrow, const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), tiles = (count + TILE - 1) / TILE;
    const float top = top_of(args);
    const void *const x = args->in[0];
    void *const y = args->out[0];
    uint32_t *const mask = args->saved[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t start = t * TILE, n = count - start < TILE ? count - start : TILE;
        clamp_tile(narrow, start, n, top, x, y, mask + start / 32);
    }
}

static inline void forward_of(bool narrow, const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float top = top_of(args);
    const void *const x = args->in[0];
    void *const y = args->out[0];
    if (ckpt_way_is(args->way, "mask")) {
        forward_with_mask(narrow, args);
    } else {
        CKPT_EACH(ckpt_put_element(narrow, clamp(ckpt_element(narrow, x, i), top), y, i))
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (args->node->dtype == CKPT_BFLOAT16) {
        forward_of(true, args);
    } else {
        forward_of(false, args);
    }
    return CKPT_OK;
}

static inline float pass(float y, float top, float dy)
{
    const float inside = y > 0.0f ? dy : 0.0f;
    return y < top ? inside : 0.0f;
}

static inline void backward_of(bool narrow, const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float top = top_of(args);
    const void *const y = ckpt_way_is(args->way, "input") ? args->in[0] : args->out[0];
    const void *const dy = args->grad_out[0];
    void *const dx = args->grad_in[0];
    if (ckpt_way_is(args->way, "mask")) {
        ckpt_masked_gradient(narrow, args, args->saved[0], 1.0f);
    } else if ((args->grad_in_adds & 1) != 0) {
        CKPT_EACH(const float more = pass(ckpt_element(narrow, y, i), top, ckpt_element(narrow, dy, i));
                  ckpt_put_element(narrow, ckpt_element(narrow, dx, i) + more, dx, i))
    } else {
        CKPT_EACH(const float own = pass(ckpt_element(narrow, y, i), top, ckpt_element(narrow, dy, i));
                  ckpt_put_element(narrow, own, dx, i))
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (args->node->dtype == CKPT_BFLOAT16) {
        backward_of(true, args);
    } else {
        backward_of(false, args);
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_relu = {
    .op = "relu",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_relu6 = {
    .op = "relu6",
    .forward = forward,
    .backward = backward,
};
