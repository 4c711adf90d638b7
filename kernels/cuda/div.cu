/* Quotient of two tensors, broadcast. The divisor's gradient is two quotients, since b^2 may leave float's range. */
#include "kernels/cuda/broadcast.cuh"

namespace
{
struct ratio {
    enum { READS = 1 };
    static __device__ float value(float a, float b)
    {
        return a / b;
    }
    static __device__ float slope(int k, float dy, float a, float b)
    {
        return k == 0 ? dy / b : -(dy / b) * (a / b);
    }
};
} // namespace

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    start_broadcast_forward<T, V, ratio>(args);
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    start_broadcast_backward<T, V, ratio>(args);
}

extern "C" const ckpt_kernel ckpt_cuda_div = {
    .op = "div",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(broadcast_forward_width, start_forward),
    .backward = CKPT_WIDE(broadcast_backward_width, start_backward),
};
