/* SiLU: x times the logistic function of x. Backward reads the input.
 * Forward moves 2 tensors for one exponential and one quotient an element, backward 3 (4 when it adds) for those and
 * 5 FLOP: bound by memory. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/pointwise.cuh"

namespace
{
template <typename T> struct silu_value {
    __device__ float operator()(float x) const
    {
        return quotient_for<T>(x, 1.0f + exp_for<T>(-x)); /* x far below zero: as in sigmoid.cu */
    }
};

template <typename T> struct silu_slope {
    __device__ float operator()(float x, float dy) const
    {
        const float s = quotient_for<T>(1.0f, 1.0f + exp_for<T>(-x));
        return dy * (s * (1.0f + x * (1.0f - s)));
    }
};
} // namespace

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
