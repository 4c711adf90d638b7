/* Quotient of two tensors, broadcast. The divisor's gradient is two quotients, since b^2 may leave float's range. */
#include "kernels/cpu/broadcast.h"

#define QUOTIENT(dy, a, b) ((a) / (b))
#define FIRST(dy, a, b)    ((dy) / (b))
#define SECOND(dy, a, b)   (-((dy) / (b)) * ((a) / (b)))
CKPT_BROADCAST_LOOP(quotient_row, QUOTIENT)
CKPT_BROADCAST_LOOP(first_row, FIRST)
CKPT_BROADCAST_LOOP(second_row, SECOND)

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_forward(args, quotient_row);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_backward(args, (ckpt_broadcast_loop *const[2]){first_row, second_row});
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_div = {
    .op = "div",
    .workspace = ckpt_broadcast_kernel_workspace,
    .forward = forward,
    .backward = backward,
};
