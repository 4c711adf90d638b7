/* GELU in its exact, its tanh and its sigmoid form. Backward reads the input.
 * Forward moves 2 tensors, backward 3 (4 when it adds). In float32 that bounds them. In bfloat16 an element is 4 bytes
 * forward and 6 backward, for about 25 operations forward and 40 backward in the exact form (erff, and expf backward):
 * arithmetic takes about as long as memory on an H100. The other forms take half. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/pointwise.cuh"

static bool has_form(const ckpt_node *node, const char *form)
{
    return strcmp(ckpt_node_string(node, "approximate"), form) == 0;
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    if (has_form(args->node, "tanh")) {
        start_pointwise_forward<T>(args, gelu_tanh<T>());
    } else if (has_form(args->node, "sigmoid")) {
        start_pointwise_forward<T>(args, gelu_sigmoid<T>());
    } else {
        start_pointwise_forward<T>(args, gelu_exact());
    }
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    if (has_form(args->node, "tanh")) {
        start_pointwise_backward<T>(args, gelu_tanh_slope<T>(), args->in[0]);
    } else if (has_form(args->node, "sigmoid")) {
        start_pointwise_backward<T>(args, gelu_sigmoid_slope<T>(), args->in[0]);
    } else {
        start_pointwise_backward<T>(args, gelu_exact_slope(), args->in[0]);
    }
}

extern "C" const ckpt_kernel ckpt_cuda_gelu = {
    .op = "gelu",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
