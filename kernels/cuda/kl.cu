/* Kullback-Leibler divergence of log-probabilities x from target probabilities: a logarithm an element, backward only
 * for the targets (pair_loss.cuh). */
#include "kernels/cuda/pair_loss.cuh"

namespace
{
struct kl_function {
    __device__ float term(float x, float target) const
    {
        return target == 0 ? 0.0f : target * (logf(target) - x);
    }
    __device__ float by_x(float, float target) const
    {
        return -target;
    }
    __device__ float by_target(float x, float target) const
    {
        return (target == 0 ? 0.0f : logf(target) + 1.0f) - x;
    }
};

/* Dim 0. */
double kl_batch(const ckpt_kernel_args *args)
{
    return (double)args->node->in[0].shape.dim[0];
}
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pair_loss<T>(args, kl_function(), kl_batch(args));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pair_gradients<T>(args, kl_function(), 1.0 / kl_batch(args));
}

extern "C" const ckpt_kernel ckpt_cuda_kl = {
    .op = "kl",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
