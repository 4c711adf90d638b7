/* Hyperbolic tangent. Backward reads the output: 1 - y^2. */
#include "kernels/cpu/pointwise.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pointwise_blocks(args, ckpt_shape_count(&args->node->in[0].shape), ckpt_vector_tanh);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const y = args->out[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    CKPT_EACH_GRADIENT(dx, dy[i] * (1.0f - y[i] * y[i]));
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_tanh = {
    .op = "tanh",
    .forward = forward,
    .backward = backward,
};
