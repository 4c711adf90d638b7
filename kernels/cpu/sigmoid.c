/* Logistic function. Backward reads the output: y (1 - y). */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), blocks = CKPT_BLOCKS(count);
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        ckpt_vector_sigmoid(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const y = args->out[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    if ((args->grad_in_adds & 1) != 0) {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            dx[i] += dy[i] * (y[i] * (1.0f - y[i]));
        }
    } else {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_sigmoid = {
    .op = "sigmoid",
    .forward = forward,
    .backward = backward,
};
