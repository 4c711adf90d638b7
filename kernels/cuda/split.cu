/* A tensor cut into pieces along an axis; backward joins the gradients, zeros where nothing reads a piece. How and what
 * it costs: pieces.cuh. */
#include "kernels/cuda/pieces.cuh"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const auto cut = node->in[0].dtype == CKPT_BFLOAT16 ? pieces_copy<bf16, false> : pieces_copy<float, false>;
    cut((const ckpt_cuda *)args->context, &node->in[0].shape, node->out, node->out_count, ckpt_node_int(node, "axis"),
        args->out, 0, const_cast<void *>(args->in[0]));
    return ckpt_cuda_launched("split", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const auto join = node->in[0].dtype == CKPT_BFLOAT16 ? pieces_copy<bf16, true> : pieces_copy<float, true>;
    const uint64_t adds = (args->grad_in_adds & 1) != 0 ? ~UINT64_C(0) : 0;
    join((const ckpt_cuda *)args->context, &node->in[0].shape, node->out, node->out_count, ckpt_node_int(node, "axis"),
         args->grad_out, adds, args->grad_in[0]);
    return ckpt_cuda_launched("split backward", err);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_split;
const ckpt_kernel ckpt_cuda_split = {
    .op = "split",
    .forward = forward,
    .backward = backward,
};
