/* ReLU and ReLU6. Backward reads the output: the gradient passes where it is inside the open interval. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/pointwise.h"

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

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float top = top_of(args);
    const float *const x = args->in[0];
    float *const y = args->out[0];
    CKPT_EACH(y[i] = clamp(x[i], top))
    return CKPT_OK;
}

static inline float pass(float y, float top, float dy)
{
    const float inside = y > 0.0f ? dy : 0.0f;
    return y < top ? inside : 0.0f;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float top = top_of(args);
    const float *const y = args->out[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    CKPT_EACH_GRADIENT(dx, pass(y[i], top, dy[i]));
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
