/* Mean squared error: 3 FLOP an element forward, 2 backward (pair_loss.cuh). */
#include "kernels/cuda/pair_loss.cuh"

namespace
{
struct mse_function {
    __device__ float term(float x, float target) const
    {
        const float error = x - target;
        return error * error;
    }
    __device__ float by_x(float x, float target) const
    {
        return x - target;
    }
    __device__ float by_target(float x, float target) const
    {
        return -(x - target);
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pair_loss<T>(args, mse_function(), pair_count(args));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pair_gradients<T>(args, mse_function(), 2.0 / pair_count(args));
}

extern "C" const ckpt_kernel ckpt_cuda_mse = {
    .op = "mse",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
