/* ReLU and ReLU6. Backward reads the output: the gradient passes where it is inside the open interval.
 * Forward moves 2 tensors, backward 3 (4 when it adds), for 2 comparisons an element: bound by memory. */
#include "kernels/cuda/pointwise.cuh"

namespace
{
/* NaN passes, as on the CPU. */
struct relu_value {
    float top;
    __device__ float operator()(float x) const
    {
        const float low = x < 0.0f ? 0.0f : x;
        return low > top ? top : low;
    }
};

struct relu_slope {
    float top;
    __device__ float operator()(float y, float dy) const
    {
        return y > 0.0f && y < top ? dy : 0.0f;
    }
};
} // namespace

static float top_of(const ckpt_node *node)
{
    return strcmp(node->op->name, "relu6") == 0 ? 6.0f : INFINITY;
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pointwise_forward<T>(args, relu_value{top_of(args->node)});
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pointwise_backward<T>(args, relu_slope{top_of(args->node)}, args->out[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_relu = {
    .op = "relu",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_relu6 = {
    .op = "relu6",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
