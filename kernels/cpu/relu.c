/* ReLU and ReLU6. Backward reads the output: the gradient passes where it is inside the open interval. */
#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* NaN passes. */
static ckpt_code clamp(const ckpt_kernel_args *args, float top)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
        const float low = x[i] < 0.0f ? 0.0f : x[i];
        y[i] = low > top ? top : low;
    }
    return CKPT_OK;
}

static ckpt_code clamp_backward(const ckpt_kernel_args *args, float top)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const y = args->out[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    if ((args->grad_in_adds & 1) != 0) {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            const float inside = y[i] > 0.0f ? dy[i] : 0.0f;
            dx[i] += y[i] < top ? inside : 0.0f;
        }
    } else {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            const float inside = y[i] > 0.0f ? dy[i] : 0.0f;
            dx[i] = y[i] < top ? inside : 0.0f;
        }
    }
    return CKPT_OK;
}

static ckpt_code relu_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return clamp(args, INFINITY);
}

static ckpt_code relu_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return clamp_backward(args, INFINITY);
}

static ckpt_code relu6_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return clamp(args, 6.0f);
}

static ckpt_code relu6_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return clamp_backward(args, 6.0f);
}

const ckpt_kernel ckpt_cpu_relu = {
    .op = "relu",
    .forward = relu_forward,
    .backward = relu_backward,
};

const ckpt_kernel ckpt_cpu_relu6 = {
    .op = "relu6",
    .forward = relu6_forward,
    .backward = relu6_backward,
};
