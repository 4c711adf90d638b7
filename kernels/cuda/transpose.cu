/* Dimensions in another order, as written in the model; the strides of both shapes know where things lie. How and what
 * it costs: permute.cuh. */
#include "kernels/cuda/permute.cuh"

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    permute_forward<T>(args, ckpt_walk_transpose(args->node, false));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    permute_backward<T>(args, ckpt_walk_transpose(args->node, true));
}

extern "C" const ckpt_kernel ckpt_cuda_transpose = {
    .op = "transpose",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
