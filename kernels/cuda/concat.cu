/* Tensors one after another along an axis; backward cuts the gradient up again. How and what it costs: pieces.cuh. */
#include "kernels/cuda/pieces.cuh"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const auto join = node->out[0].dtype == CKPT_BFLOAT16 ? pieces_copy<bf16, true> : pieces_copy<float, true>;
    join((const ckpt_cuda *)args->context, &node->out[0].shape, node->in, node->in_count, ckpt_node_int(node, "axis"),
         args->in, 0, args->out[0]);
    return ckpt_cuda_launched("concat", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const auto cut = node->out[0].dtype == CKPT_BFLOAT16 ? pieces_copy<bf16, false> : pieces_copy<float, false>;
    cut((const ckpt_cuda *)args->context, &node->out[0].shape, node->in, node->in_count, ckpt_node_int(node, "axis"),
        args->grad_in, args->grad_in_adds, const_cast<void *>(args->grad_out[0]));
    return ckpt_cuda_launched("concat backward", err);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_concat;
const ckpt_kernel ckpt_cuda_concat = {
    .op = "concat",
    .forward = forward,
    .backward = backward,
};
