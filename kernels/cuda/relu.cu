/* ReLU and ReLU6. The gradient passes where the output is inside the open interval, which is where the input is; a mask
 * has those bits. Forward moves 2 tensors, backward 3 (4 when it adds), for 2 comparisons an element: bound by memory. */
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
    __device__ bool keeps(float y) const
    {
        return y > 0.0f && y < top;
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
    const relu_value value = {top_of(args->node)};
    if (ckpt_way_is(args->way, "mask")) {
        start_pointwise_forward_mask<T>(args, value);
    } else {
        start_pointwise_forward<T>(args, value);
    }
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    if (ckpt_way_is(args->way, "mask")) {
        start_pointwise_backward_mask<T>(args, 1.0f);
    } else {
        start_pointwise_backward<T>(args, relu_slope{top_of(args->node)},
                                    ckpt_way_is(args->way, "input") ? args->in[0] : args->out[0]);
    }
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
