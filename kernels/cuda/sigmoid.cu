/* Logistic function. Backward reads the output: y (1 - y).
 * Forward moves 2 tensors for one exponential and one quotient an element, backward 3 (4 when it adds) for 3 FLOP:
 * bound by memory. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/pointwise.cuh"

namespace
{
template <typename T> struct sigmoid_value {
    __device__ float operator()(float x) const
    {
        return logistic<T>(x);
    }
};

struct sigmoid_slope {
    __device__ float operator()(float y, float dy) const
    {
        return dy * (y * (1.0f - y));
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pointwise_forward<T>(args, sigmoid_value<T>());
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pointwise_backward<T>(args, sigmoid_slope(), args->out[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_sigmoid = {
    .op = "sigmoid",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
