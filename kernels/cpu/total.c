/* The sum of losses. Backward hands each the gradient of the sum. */
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    float sum = 0.0f;
    for (int k = 0; k < args->node->in_count; k++) {
        sum += *(const float *)args->in[k];
    }
    *(float *)args->out[0] = sum;
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const float gradient = args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f;
    for (int k = 0; k < args->node->in_count; k++) {
        float *const to = args->grad_in[k];
        if (to != NULL) {
            *to = (args->grad_in_adds >> k & 1) != 0 ? *to + gradient : gradient;
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_total = {
    .op = "total",
    .forward = forward,
    .backward = backward,
};
