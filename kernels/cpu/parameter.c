/* A learned tensor as a value: a copy there, and of the gradient back. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    memcpy(args->out[0], args->param[0], (size_t)ckpt_tensor_bytes(&args->node->out[0]));
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_tensor *const tensor = &args->node->out[0];
    if ((args->grad_param_adds & 1) != 0) {
        ckpt_vector_add(ckpt_shape_count(&tensor->shape), args->grad_out[0], args->grad_param[0]);
    } else {
        memcpy(args->grad_param[0], args->grad_out[0], (size_t)ckpt_tensor_bytes(tensor));
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_parameter = {
    .op = "parameter",
    .forward = forward,
    .backward = backward,
};
