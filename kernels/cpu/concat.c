/* Joins tensors along an axis; backward cuts the gradient into pieces. */
#include "kernels/cpu/pieces.h"
#include "kernels/kernel.h"

static void describe(const ckpt_node *node, ckpt_pieces *pieces)
{
    ckpt_pieces_describe(node, &node->out[0].shape, node->in, node->in_count, pieces);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pieces pieces;
    describe(args->node, &pieces);
    ckpt_pieces_join(&pieces, args->in, false, args->out[0]);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pieces pieces;
    describe(args->node, &pieces);
    ckpt_pieces_cut(&pieces, args->grad_out[0], args->grad_in_adds, args->grad_in);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_concat = {
    .op = "concat",
    .forward = forward,
    .backward = backward,
};
