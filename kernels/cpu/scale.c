/* A constant factor and offset. */
#include "kernels/cpu/pointwise.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float factor = (float)ckpt_node_float(args->node, "factor");
    const float offset = (float)ckpt_node_float(args->node, "offset");
    const float *const x = args->in[0];
    float *const y = args->out[0];
    CKPT_EACH(y[i] = factor * x[i] + offset)
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float factor = (float)ckpt_node_float(args->node, "factor");
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    CKPT_EACH_GRADIENT(dx, factor * dy[i]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_scale = {
    .op = "scale",
    .forward = forward,
    .backward = backward,
};
