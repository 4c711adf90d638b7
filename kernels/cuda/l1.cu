/* Mean absolute error: 3 FLOP an element forward, 2 backward (pair_loss.cuh). The gradient is 0 where x is the target. */
#include "kernels/cuda/pair_loss.cuh"

namespace
{
struct l1_function {
    __device__ float term(float x, float target) const
    {
        return fabsf(x - target);
    }
    __device__ float by_x(float x, float target) const
    {
        return (x > target ? 1.0f : 0.0f) - (x < target ? 1.0f : 0.0f);
    }
    __device__ float by_target(float x, float target) const
    {
        return -by_x(x, target);
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pair_loss<T>(args, l1_function(), pair_count(args));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pair_gradients<T>(args, l1_function(), 1.0 / pair_count(args));
}

extern "C" const ckpt_kernel ckpt_cuda_l1 = {
    .op = "l1",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
