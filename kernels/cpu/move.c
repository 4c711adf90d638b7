/* slice, pad, roll, forward and backward: copies (kernels/walk.h). */
#include "kernels/cpu/permute.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_walk walk)
{
    ckpt_permute(&walk, args->in[0], false, args->out[0], args->node->threads);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_walk walk)
{
    ckpt_permute(&walk, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0], args->node->threads);
    return CKPT_OK;
}

#define MOVE(name)                                                                                                     \
    static ckpt_code name##_forward(const ckpt_kernel_args *args, ckpt_err *err)                                       \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return forward(args, ckpt_walk_##name(args->node, false));                                                     \
    }                                                                                                                  \
    static ckpt_code name##_backward(const ckpt_kernel_args *args, ckpt_err *err)                                      \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return backward(args, ckpt_walk_##name(args->node, true));                                                     \
    }
MOVE(slice)
MOVE(pad)
MOVE(roll)

const ckpt_kernel ckpt_cpu_slice = {
    .op = "slice",
    .forward = slice_forward,
    .backward = slice_backward,
};

const ckpt_kernel ckpt_cpu_pad = {
    .op = "pad",
    .forward = pad_forward,
    .backward = pad_backward,
};

const ckpt_kernel ckpt_cpu_roll = {
    .op = "roll",
    .forward = roll_forward,
    .backward = roll_backward,
};
