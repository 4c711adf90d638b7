/* Difference of two tensors, broadcast. */
#include "kernels/cpu/broadcast.h"

#define DIFFERENCE(dy, a, b) ((a) - (b))
#define SECOND(dy, a, b)     (-(dy))
CKPT_BROADCAST_LOOP(difference_row, DIFFERENCE)
CKPT_BROADCAST_LOOP(second_row, SECOND)

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_forward(args, difference_row);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_backward(args, (ckpt_broadcast_loop *const[2]){NULL, second_row});
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_sub = {
    .op = "sub",
    .workspace = ckpt_broadcast_kernel_workspace,
    .forward = forward,
    .backward = backward,
};
