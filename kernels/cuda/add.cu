/* Sum of two or more tensors, added in the order of the inputs. Forward reads n tensors and writes one, for n - 1 FLOP
 * an element; backward reads the gradient once and writes n tensors (and reads those it adds to). Both are bound by
 * memory. Two inputs of different shapes are broadcast. */
#include "kernels/cuda/broadcast.cuh"

namespace
{
/* Passed by value: the GPU keeps a kernel's arguments in constant memory. */
struct add_inputs {
    int count;
    const void *at[CKPT_IN_MAX];
};

struct add_gradients {
    int count;
    uint64_t adds;
    void *at[CKPT_IN_MAX]; /* NULL: not wanted */
};

struct sum {
    enum { READS = 0 };
    static __device__ float value(float a, float b)
    {
        return a + b;
    }
    static __device__ float slope(int k, float dy, float a, float b)
    {
        (void)k;
        (void)a;
        (void)b;
        return dy;
    }
};
} // namespace

/* The output may be one of the inputs, so it is written last. */
template <typename T> __global__ void __launch_bounds__(ITEM_THREADS) add_forward(int64_t packs, add_inputs x, T *y)
{
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> first = load16((const T *)x.at[0] + at), second = load16((const T *)x.at[1] + at);
        float sum[pack<T>::count];
        for (int j = 0; j < pack<T>::count; j++) {
            sum[j] = to_float(first.at[j]) + to_float(second.at[j]);
        }
#pragma unroll 4
        for (int k = 2; k < x.count; k++) {
            const pack<T> more = load16((const T *)x.at[k] + at);
            for (int j = 0; j < pack<T>::count; j++) {
                sum[j] += to_float(more.at[j]);
            }
        }
        pack<T> rounded;
        for (int j = 0; j < pack<T>::count; j++) {
            rounded.at[j] = from_float<T>(sum[j]);
        }
        store16(y + at, rounded);
    }
}

/* In increasing order of the inputs: two of them may be one buffer, and the first may be dy itself. */
template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS) add_backward(int64_t packs, const T *dy, add_gradients dx)
{
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> slope = load16(dy + at);
        for (int k = 0; k < dx.count; k++) {
            T *const to = (T *)dx.at[k];
            if (to == NULL) {
                continue;
            }
            if ((dx.adds >> k & 1) != 0) {
                pack<T> sum = load16(to + at);
                for (int j = 0; j < pack<T>::count; j++) {
                    sum.at[j] = from_float<T>(to_float(sum.at[j]) + to_float(slope.at[j]));
                }
                store16(to + at, sum);
            } else if (to != dy) {
                store16(to + at, slope);
            }
        }
    }
}

static bool broadcasts(const ckpt_node *node)
{
    return !ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape);
}

/* Equal shapes are worked on in packs of 16 bytes whatever their rows. */
static int64_t forward_width(const ckpt_node *node)
{
    return broadcasts(node) ? broadcast_forward_width(node) : 8;
}
static int64_t backward_width(const ckpt_node *node)
{
    return broadcasts(node) ? broadcast_backward_width(node) : 8;
}

template <typename T> static int64_t packs_in(const ckpt_kernel_args *args)
{
    return packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
}

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    if (broadcasts(args->node)) {
        start_broadcast_forward<T, V, sum>(args);
        return;
    }
    add_inputs x = {.count = args->node->in_count};
    for (int k = 0; k < x.count; k++) {
        x.at[k] = args->in[k];
    }
    CKPT_LAUNCH_ITEMS(cuda_of(args), add_forward<T>, packs_in<T>(args), x, (T *)args->out[0]);
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    if (broadcasts(args->node)) {
        start_broadcast_backward<T, V, sum>(args);
        return;
    }
    add_gradients dx = {.count = args->node->in_count, .adds = args->grad_in_adds};
    for (int k = 0; k < dx.count; k++) {
        dx.at[k] = args->grad_in[k];
    }
    CKPT_LAUNCH_ITEMS(cuda_of(args), add_backward<T>, packs_in<T>(args), (const T *)args->grad_out[0], dx);
}

/* ckpt_cuda_add is the device's own sum (sum.cu). */
extern "C" const ckpt_kernel ckpt_cuda_op_add = {
    .op = "add",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(forward_width, start_forward),
    .backward = CKPT_WIDE(backward_width, start_backward),
};
