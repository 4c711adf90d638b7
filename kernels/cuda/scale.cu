/* A constant factor and offset. Forward moves 2 tensors for 2 FLOP an element, backward too (3 when it adds) for one:
 * bound by memory. */
#include "kernels/cuda/pointwise.cuh"

namespace
{
struct scale_value {
    float factor, offset;
    __device__ float operator()(float x) const
    {
        return product_of(factor, x) + offset;
    }
};

/* Backward reads no tensor but dy, which stands for both arguments. */
struct scale_slope {
    float factor;
    __device__ float operator()(float a, float dy) const
    {
        (void)a;
        return product_of(factor, dy);
    }
};
} // namespace

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pointwise_forward<T>(
        args, scale_value{(float)ckpt_node_float(args->node, "factor"), (float)ckpt_node_float(args->node, "offset")});
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pointwise_backward<T>(args, scale_slope{(float)ckpt_node_float(args->node, "factor")}, args->grad_out[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_scale = {
    .op = "scale",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
