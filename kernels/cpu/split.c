/* Cuts a tensor into pieces along an axis; backward joins the gradients, with zeros for pieces that nothing reads. */
#include "kernels/cpu/pieces.h"
#include "kernels/kernel.h"

static void describe(const ckpt_node *node, ckpt_pieces *pieces)
{
    ckpt_pieces_describe(node, &node->in[0].shape, node->out, node->out_count, pieces);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pieces pieces;
    describe(args->node, &pieces);
    ckpt_pieces_cut(&pieces, args->in[0], 0, args->out);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pieces pieces;
    describe(args->node, &pieces);
    ckpt_pieces_join(&pieces, args->grad_out, (args->grad_in_adds & 1) != 0, args->grad_in[0]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_split = {
    .op = "split",
    .forward = forward,
    .backward = backward,
};
