/* Tensors one after another along an axis; backward cuts the gradient up again. How, and at what cost: pieces.cuh. */
#include "kernels/cuda/pieces.cuh"

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    pieces_copy<T, true>(args, &node->out[0].shape, node->in, node->in_count, args->in, 0, args->out[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    pieces_copy<T, false>(args, &node->out[0].shape, node->in, node->in_count, args->grad_in, args->grad_in_adds,
                          const_cast<void *>(args->grad_out[0]));
}

extern "C" const ckpt_kernel ckpt_cuda_concat = {
    .op = "concat",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
