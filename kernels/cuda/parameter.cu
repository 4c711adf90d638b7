/* A learned tensor as a value: rounded to the activations' type, and the gradient back to float32. Bytes moved: the
 * tensor in both types, and its gradient once more where backward adds. Bound by memory. */
#include "kernels/cuda/wide.cuh"

template <typename T, int V>
__global__ void __launch_bounds__(ITEM_THREADS) parameter_forward(int64_t items, const float *weight, T *y)
{
    for (int64_t i = first_item(); i < items; i += item_step()) {
        put_wide<V>(y + i * V, load_floats<V>(weight + i * V), false);
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(ITEM_THREADS) parameter_backward(int64_t items, const T *dy, float *grad, bool adds)
{
    for (int64_t i = first_item(); i < items; i += item_step()) {
        put_wide<V>(grad + i * V, load_floats<V>(dy + i * V), adds);
    }
}

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (parameter_forward<T, V>), ckpt_shape_count(&args->node->out[0].shape) / V,
                      args->param[0], (T *)args->out[0]);
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (parameter_backward<T, V>), ckpt_shape_count(&args->node->out[0].shape) / V,
                      (const T *)args->grad_out[0], args->grad_param[0], (args->grad_param_adds & 1) != 0);
}

/* Parameters and their gradients lie one behind the other, and nothing behind their ends is touched. */
static int64_t elements_of(const ckpt_node *node)
{
    return ckpt_shape_count(&node->out[0].shape);
}

extern "C" const ckpt_kernel ckpt_cuda_parameter = {
    .op = "parameter",
    .forward = CKPT_WIDE(elements_of, start_forward),
    .backward = CKPT_WIDE(elements_of, start_backward),
};
