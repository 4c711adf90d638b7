/* Huber loss: 5 FLOP an element forward, 4 backward (pair_loss.cuh). */
#include "kernels/cuda/pair_loss.cuh"

namespace
{
struct huber_function {
    float delta;

    __device__ float term(float x, float target) const
    {
        const float error = fabsf(x - target);
        return error < delta ? 0.5f * error * error : delta * (error - 0.5f * delta);
    }
    __device__ float by_x(float x, float target) const
    {
        const float error = x - target;
        return error < -delta ? -delta : error > delta ? delta : error; /* NaN stays NaN */
    }
    __device__ float by_target(float x, float target) const
    {
        return -by_x(x, target);
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pair_loss<T>(args, huber_function{(float)ckpt_node_float(args->node, "delta")}, pair_count(args));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pair_gradients<T>(args, huber_function{(float)ckpt_node_float(args->node, "delta")}, 1.0 / pair_count(args));
}

extern "C" const ckpt_kernel ckpt_cuda_huber = {
    .op = "huber",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
