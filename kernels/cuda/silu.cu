/* SiLU: x times the logistic function of x. Backward reads the input.
 * Forward moves 2 tensors for one exponential and one quotient an element, backward 3 (4 when it adds) for those and
 * 5 FLOP: bound by memory. */
#include "kernels/cuda/pointwise.cuh"
#include "kernels/cuda/silu.cuh"

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pointwise_forward<T>(args, silu_value<T>());
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pointwise_backward<T>(args, silu_slope<T>(), args->in[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_silu = {
    .op = "silu",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
