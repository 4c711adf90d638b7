/* Binary cross entropy of logits: an exponential and a logarithm an element forward, an exponential backward
 * (pair_loss.cuh). The exponential is of a number that is not positive, so nothing overflows. */
#include "kernels/cuda/pair_loss.cuh"

namespace
{
struct bce_function {
    __device__ float term(float x, float target) const
    {
        return fmaxf(x, 0.0f) - x * target + log1pf(expf(-fabsf(x)));
    }
    __device__ float by_x(float x, float target) const
    {
        const float e = expf(-fabsf(x));
        return (x >= 0 ? 1.0f : e) / (1.0f + e) - target;
    }
    __device__ float by_target(float x, float) const
    {
        return -x;
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pair_loss<T>(args, bce_function(), pair_count(args));
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pair_gradients<T>(args, bce_function(), 1.0 / pair_count(args));
}

extern "C" const ckpt_kernel ckpt_cuda_bce = {
    .op = "bce",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
