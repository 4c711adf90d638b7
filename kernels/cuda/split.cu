/* A tensor cut into pieces along an axis; backward joins the gradients, with zeros for a piece that nothing reads. How,
 * and at what cost: pieces.cuh. */
#include "kernels/cuda/pieces.cuh"

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    pieces_copy<T, false>(args, &node->in[0].shape, node->out, node->out_count, args->out, 0,
                          const_cast<void *>(args->in[0]));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    const uint64_t adds = (args->grad_in_adds & 1) != 0 ? ~UINT64_C(0) : 0;
    pieces_copy<T, true>(args, &node->in[0].shape, node->out, node->out_count, args->grad_out, adds, args->grad_in[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_split = {
    .op = "split",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
