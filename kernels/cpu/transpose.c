/* Permutes dimensions of the logical shape; the strides of both shapes give the positions in memory. */
#include "kernels/cpu/permute.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_walk walk = ckpt_walk_transpose(args->node, false);
    ckpt_permute(&walk, args->in[0], false, args->out[0], args->node->threads);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_walk walk = ckpt_walk_transpose(args->node, true);
    ckpt_permute(&walk, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_transpose = {
    .op = "transpose",
    .forward = forward,
    .backward = backward,
};
