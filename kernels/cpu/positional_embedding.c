/* Adds a learned row per position to every sequence of the batch. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t B = shape->dim[0], T = shape->dim[1], H = shape->dim[2];
    const float *const x = args->in[0], *const table = args->param[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (B * T * H > CKPT_PARALLEL)
    for (int64_t row = 0; row < B * T; row++) {
        const float *const position = table + row % T * H;
#pragma omp simd
        for (int64_t i = 0; i < H; i++) {
            y[row * H + i] = x[row * H + i] + position[i];
        }
    }
    return CKPT_OK;
}

/* Adds the gradients of all sequences at one position, in order. */
static void position_gradient(const ckpt_shape *shape, int64_t t, const float *dy, bool adds, float *grad)
{
    const int64_t B = shape->dim[0], T = shape->dim[1], H = shape->dim[2];
    for (int64_t b = 0; b < B; b++) {
        if (b == 0 && !adds) {
            memcpy(grad + t * H, dy + t * H, (size_t)H * sizeof *grad);
        } else {
            ckpt_vector_add(H, dy + (b * T + t) * H, grad + t * H);
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t B = shape->dim[0], T = shape->dim[1], H = shape->dim[2], count = B * T * H;
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0], *const grad = args->grad_param[0];
    if (dx != NULL) {
        const bool adds = (args->grad_in_adds & 1) != 0;
        const int64_t blocks = CKPT_BLOCKS(count);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t start = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
            if (adds) {
                ckpt_vector_add(n, dy + start, dx + start);
            } else {
                memmove(dx + start, dy + start, (size_t)n * sizeof *dx);
            }
        }
    }
    const bool adds = (args->grad_param_adds & 1) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t t = 0; t < T; t++) {
        position_gradient(shape, t, dy, adds, grad);
    }
    const int64_t rows = args->node->param[0].tensor.shape.dim[0];
    if (!adds && rows > T) {
        memset(grad + T * H, 0, (size_t)((rows - T) * H) * sizeof *grad);
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_positional_embedding = {
    .op = "positional_embedding",
    .forward = forward,
    .backward = backward,
};
