/* ReLU and ReLU6. Backward reads the output: the gradient passes where it is inside the open interval.
 * Forward moves 2 tensors, backward 3 (4 when it adds), for 2 comparisons an element: bound by memory. */
#include "kernels/cuda/device.cuh"

enum { THREADS = 256 };

/* NaN passes, as on the CPU. */
template <typename T> __global__ void relu_forward(int64_t packs, float top, const T *x, T *y)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        pack<T> v = load16(x + i * pack<T>::count);
        for (int j = 0; j < pack<T>::count; j++) {
            const float value = to_float(v.at[j]), low = value < 0.0f ? 0.0f : value;
            v.at[j] = from_float<T>(low > top ? top : low);
        }
        store16(y + i * pack<T>::count, v);
    }
}

template <typename T> __global__ void relu_backward(int64_t packs, float top, bool adds, const T *y, const T *dy, T *dx)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        const int64_t at = i * pack<T>::count;
        const pack<T> value = load16(y + at), slope = load16(dy + at);
        pack<T> grad = adds ? load16(dx + at) : pack<T>();
        for (int j = 0; j < pack<T>::count; j++) {
            const float v = to_float(value.at[j]);
            const float inside = v > 0.0f && v < top ? to_float(slope.at[j]) : 0.0f;
            grad.at[j] = from_float<T>(adds ? to_float(grad.at[j]) + inside : inside);
        }
        store16(dx + at, grad);
    }
}

template <typename T> static void start_forward(const ckpt_kernel_args *args, float top)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const int64_t packs = packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
    CKPT_LAUNCH(cuda, relu_forward<T>, grid_for(cuda, packs, THREADS), THREADS, 0, packs, top, (const T *)args->in[0],
                (T *)args->out[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args, float top)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const int64_t packs = packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
    CKPT_LAUNCH(cuda, relu_backward<T>, grid_for(cuda, packs, THREADS), THREADS, 0, packs, top,
                (args->grad_in_adds & 1) != 0, (const T *)args->out[0], (const T *)args->grad_out[0],
                (T *)args->grad_in[0]);
}

static float top_of(const ckpt_node *node)
{
    return strcmp(node->op->name, "relu6") == 0 ? 6.0f : INFINITY;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args, top_of(args->node));
    return ckpt_cuda_launched("relu", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args, top_of(args->node));
    return ckpt_cuda_launched("relu backward", err);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_relu;
const ckpt_kernel ckpt_cuda_relu = {
    .op = "relu",
    .forward = forward,
    .backward = backward,
};

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_relu6;
const ckpt_kernel ckpt_cuda_relu6 = {
    .op = "relu6",
    .forward = forward,
    .backward = backward,
};
