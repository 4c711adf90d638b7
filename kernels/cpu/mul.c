/* Product of two tensors of one shape, or of x [N, C, H, W] and one factor per channel [N, C, 1, 1]. Channels are the
 * fastest dimension, so a gate is a row of C factors that multiplies every pixel of its image. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* In one image: channels that a thread sums at a time, and pixels in a block of the sum. */
enum { CHANNELS = 64, PIXELS = 256 };

static bool gated(const ckpt_node *node)
{
    return !ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t count = ckpt_shape_count(shape);
    const float *const a = args->in[0], *const b = args->in[1];
    float *const y = args->out[0];
    if (!gated(args->node)) {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            y[i] = a[i] * b[i];
        }
        return CKPT_OK;
    }
    const int64_t C = shape->dim[1], pixels = count / C, image = shape->dim[2] * shape->dim[3];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t p = 0; p < pixels; p++) {
        const float *const gate = b + p / image * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            y[p * C + c] = a[p * C + c] * gate[c];
        }
    }
    return CKPT_OK;
}

/* dgate[c] = sum over the pixels of dy x, in blocks: rounding grows with the number of blocks and their length, not
 * with their product. */
static void gate_gradient(const float *x, const float *dy, int64_t pixels, int64_t C, int64_t n, float *dgate)
{
    float total[CHANNELS] = {0};
    for (int64_t first = 0; first < pixels; first += PIXELS) {
        const int64_t end = first + PIXELS < pixels ? first + PIXELS : pixels;
        float sum[CHANNELS] = {0};
        for (int64_t p = first; p < end; p++) {
#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                sum[c] += dy[p * C + c] * x[p * C + c];
            }
        }
        for (int64_t c = 0; c < n; c++) {
            total[c] += sum[c];
        }
    }
    memcpy(dgate, total, (size_t)n * sizeof *dgate);
}

static void backward_gated(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t count = ckpt_shape_count(shape);
    const int64_t C = shape->dim[1], image = shape->dim[2] * shape->dim[3], chunks = (C + CHANNELS - 1) / CHANNELS;
    const float *const x = args->in[0], *const gates = args->in[1];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0], *const dgate = args->grad_in[1];
    if (dx != NULL) {
        const int64_t pixels = count / C;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
        for (int64_t p = 0; p < pixels; p++) {
            const float *const gate = gates + p / image * C;
#pragma omp simd
            for (int64_t c = 0; c < C; c++) {
                dx[p * C + c] = dy[p * C + c] * gate[c];
            }
        }
    }
    if (dgate != NULL) {
        const int64_t pieces = shape->dim[0] * chunks;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t n = piece / chunks, c = piece % chunks * CHANNELS, from = n * image * C + c;
            gate_gradient(x + from, dy + from, image, C, C - c < CHANNELS ? C - c : CHANNELS, dgate + n * C + c);
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (gated(args->node)) {
        backward_gated(args);
        return CKPT_OK;
    }
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const dy = args->grad_out[0];
    for (int k = 0; k < 2; k++) {
        const float *const other = args->in[1 - k];
        float *const dx = args->grad_in[k];
        if (dx != NULL) {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
            for (int64_t i = 0; i < count; i++) {
                dx[i] = dy[i] * other[i];
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_mul = {
    .op = "mul",
    .forward = forward,
    .backward = backward,
};
