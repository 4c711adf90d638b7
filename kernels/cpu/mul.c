/* Product of two tensors, broadcast. */
#include "kernels/cpu/broadcast.h"

#define PRODUCT(dy, a, b) ((a) * (b))
#define FIRST(dy, a, b)   ((dy) * (b))
#define SECOND(dy, a, b)  ((dy) * (a))
CKPT_BROADCAST_LOOP(product_row, PRODUCT)
CKPT_BROADCAST_LOOP(first_row, FIRST)
CKPT_BROADCAST_LOOP(second_row, SECOND)

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_forward(args, product_row);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_broadcast_backward(args, (ckpt_broadcast_loop *const[2]){first_row, second_row});
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_mul = {
    .op = "mul",
    .workspace = ckpt_broadcast_kernel_workspace,
    .forward = forward,
    .backward = backward,
};
