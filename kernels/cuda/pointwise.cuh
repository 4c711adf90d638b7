/* Ops that work element by element, from one tensor to one of the same shape: forward y = f(x), backward dx = f'(a) dy,
 * where a is the input or the output. `f` is a type from the op's own file with a `float operator()` on the device.
 * 16 bytes per access, two packs in flight of each tensor. x and y may be the same tensor, and so may dy and dx. */
#ifndef CKPT_KERNELS_CUDA_POINTWISE_CUH
#define CKPT_KERNELS_CUDA_POINTWISE_CUH

#include "kernels/cuda/device.cuh"

enum { POINTWISE_THREADS = 256 };

template <typename T, typename F> __device__ inline pack<T> pointwise_value(F f, pack<T> x)
{
    for (int j = 0; j < pack<T>::count; j++) {
        x.at[j] = from_float<T>(f(to_float(x.at[j])));
    }
    return x;
}

template <typename T, typename F>
__device__ inline pack<T> pointwise_slope(F f, bool adds, const pack<T> &a, const pack<T> &dy, pack<T> dx)
{
    for (int j = 0; j < pack<T>::count; j++) {
        const float slope = f(to_float(a.at[j]), to_float(dy.at[j]));
        dx.at[j] = from_float<T>(adds ? to_float(dx.at[j]) + slope : slope);
    }
    return dx;
}

template <typename T, typename F>
__global__ void __launch_bounds__(POINTWISE_THREADS) pointwise_forward(int64_t packs, F f, const T *x, T *y)
{
    const int64_t stride = item_step(), V = pack<T>::count;
    for (int64_t i = first_item(); i < packs; i += 2 * stride) {
        const bool both = i + stride < packs;
        const int64_t first = i * V, second = both ? (i + stride) * V : first;
        const pack<T> a = load16(x + first), b = load16(x + second);
        store16(y + first, pointwise_value(f, a));
        if (both) {
            store16(y + second, pointwise_value(f, b));
        }
    }
}

template <typename T, typename F>
__global__ void __launch_bounds__(POINTWISE_THREADS)
    pointwise_backward(int64_t packs, F f, bool adds, const T *a, const T *dy, T *dx)
{
    const int64_t stride = item_step(), V = pack<T>::count;
    for (int64_t i = first_item(); i < packs; i += 2 * stride) {
        const bool both = i + stride < packs;
        const int64_t first = i * V, second = both ? (i + stride) * V : first;
        const pack<T> a0 = load16(a + first), a1 = load16(a + second);
        const pack<T> dy0 = load16(dy + first), dy1 = load16(dy + second);
        const pack<T> dx0 = adds ? load16(dx + first) : pack<T>(), dx1 = adds ? load16(dx + second) : pack<T>();
        store16(dx + first, pointwise_slope(f, adds, a0, dy0, dx0));
        if (both) {
            store16(dx + second, pointwise_slope(f, adds, a1, dy1, dx1));
        }
    }
}

/* Masks, one bit an element: a thread makes or reads a byte, of 8 elements. `F`: the value and, by keeps(value), its
 * bit. */
template <typename T, typename F>
__global__ void __launch_bounds__(POINTWISE_THREADS)
    pointwise_forward_mask(int64_t bytes, F f, const T *x, T *y, uint8_t *mask)
{
    const int V = pack<T>::count;
    for (int64_t i = first_item(); i < bytes; i += item_step()) {
        unsigned int bits = 0;
        for (int j = 0; j < 8; j += V) {
            const pack<T> v = pointwise_value(f, load16(x + 8 * i + j));
            for (int n = 0; n < V; n++) {
                bits |= (f.keeps(to_float(v.at[n])) ? 1u : 0u) << (j + n);
            }
            store16(y + 8 * i + j, v);
        }
        mask[i] = (uint8_t)bits;
    }
}

template <typename T>
__global__ void __launch_bounds__(POINTWISE_THREADS)
    pointwise_backward_mask(int64_t bytes, float factor, bool adds, const uint8_t *mask, const T *dy, T *dx)
{
    const int V = pack<T>::count;
    for (int64_t i = first_item(); i < bytes; i += item_step()) {
        const unsigned int bits = mask[i];
        for (int j = 0; j < 8; j += V) {
            const pack<T> g = load16(dy + 8 * i + j);
            pack<T> d = adds ? load16(dx + 8 * i + j) : pack<T>();
            for (int n = 0; n < V; n++) {
                const float kept = to_float(g.at[n]) * factor, passed = (bits >> (j + n) & 1) != 0 ? kept : 0.0f;
                d.at[n] = from_float<T>(adds ? to_float(d.at[n]) + passed : passed);
            }
            store16(dx + 8 * i + j, d);
        }
    }
}

/* Whole words of the mask: the last may be of fewer elements, and buffers are padded beyond that. */
static int64_t mask_bytes(const ckpt_kernel_args *args)
{
    return (ckpt_shape_count(&args->node->in[0].shape) + 7) / 8;
}

template <typename T, typename F> static void start_pointwise_forward_mask(const ckpt_kernel_args *args, F f)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t bytes = mask_bytes(args);
    CKPT_LAUNCH(cuda, (pointwise_forward_mask<T, F>), grid_for(cuda, bytes, POINTWISE_THREADS), POINTWISE_THREADS, 0,
                bytes, f, (const T *)args->in[0], (T *)args->out[0], (uint8_t *)args->saved[0]);
}

template <typename T> static void start_pointwise_backward_mask(const ckpt_kernel_args *args, float factor)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t bytes = mask_bytes(args);
    CKPT_LAUNCH(cuda, pointwise_backward_mask<T>, grid_for(cuda, bytes, POINTWISE_THREADS), POINTWISE_THREADS, 0, bytes,
                factor, (args->grad_in_adds & 1) != 0, (const uint8_t *)args->saved[0], (const T *)args->grad_out[0],
                (T *)args->grad_in[0]);
}

template <typename T, typename F> static void start_pointwise_forward(const ckpt_kernel_args *args, F f)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t packs = packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
    CKPT_LAUNCH(cuda, (pointwise_forward<T, F>), grid_for(cuda, packs, 2 * POINTWISE_THREADS), POINTWISE_THREADS, 0,
                packs, f, (const T *)args->in[0], (T *)args->out[0]);
}

/* `read`: the input or the output. */
template <typename T, typename F>
static void start_pointwise_backward(const ckpt_kernel_args *args, F f, const void *read)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t packs = packs_of<T>(ckpt_shape_count(&args->node->in[0].shape));
    CKPT_LAUNCH(cuda, (pointwise_backward<T, F>), grid_for(cuda, packs, 2 * POINTWISE_THREADS), POINTWISE_THREADS, 0,
                packs, f, (args->grad_in_adds & 1) != 0, (const T *)read, (const T *)args->grad_out[0],
                (T *)args->grad_in[0]);
}

#endif
