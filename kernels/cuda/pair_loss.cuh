/* Losses that are the sum of a term of x and its target over two tensors of one shape, divided by a number. Either side
 * may be the one that learns. Forward reads both tensors, backward reads both and writes one or two: bound by memory.
 * `F` is a type from the op's own file: float term(x, target), and float by_x(x, target), by_target(x, target), which
 * `factor` times the loss's gradient multiplies. */
#ifndef CKPT_KERNELS_CUDA_PAIR_LOSS_CUH
#define CKPT_KERNELS_CUDA_PAIR_LOSS_CUH

#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/loss.cuh"

enum { PAIR_PART = 16 * CKPT_GPU_LOSS_TERMS /* elements; a term of the sum is 16 of them */ };

/* A thread adds its terms in float32, one sum of at most 16 for each position in a pack; then in double. */
template <typename T, typename F>
__global__ void __launch_bounds__(LOSS_THREADS)
    pair_loss_parts(int64_t count, F f, const T *x, const T *target, loss_part *part)
{
    __shared__ loss_part shared[LOSS_THREADS];
    const int64_t V = pack<T>::count, start = (int64_t)blockIdx.x * PAIR_PART;
    float sum[pack<T>::count] = {0};
#pragma unroll 4
    for (int n = 0; n < PAIR_PART / LOSS_THREADS / pack<T>::count; n++) {
        const int64_t at = start + (n * LOSS_THREADS + (int)threadIdx.x) * V;
        if (at < count) {
            const pack<T> a = load16(x + at), b = load16(target + at);
            for (int j = 0; j < pack<T>::count; j++) {
                sum[j] += at + j < count ? f.term(to_float(a.at[j]), to_float(b.at[j])) : 0.0f;
            }
        }
    }
    loss_part own = {0, 0};
    for (int j = 0; j < pack<T>::count; j++) {
        own.sum += (double)sum[j];
    }
    const loss_part all = block_halves<LOSS_THREADS>(own, shared);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = all;
    }
}

/* dx and dt NULL where not wanted. If both are one buffer, it ends up with dt. */
template <typename T, typename F>
__global__ void __launch_bounds__(ITEM_THREADS)
    pair_loss_gradient(int64_t packs, F f, double factor, const T *x, const T *target, const float *grad, T *dx, T *dt)
{
    const float scale = (float)(factor * (double)loss_gradient(grad));
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> a = load16(x + at), b = load16(target + at);
        pack<T> by_x, by_target;
        for (int j = 0; j < pack<T>::count; j++) {
            const float value = to_float(a.at[j]), wanted = to_float(b.at[j]);
            by_x.at[j] = from_float<T>(scale * f.by_x(value, wanted));
            by_target.at[j] = from_float<T>(scale * f.by_target(value, wanted));
        }
        if (dx != NULL) {
            store16(dx + at, by_x);
        }
        if (dt != NULL) {
            store16(dt + at, by_target);
        }
    }
}

template <typename T, typename F> static void start_pair_loss(const ckpt_kernel_args *args, F f, double divisor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), parts = (count + PAIR_PART - 1) / PAIR_PART;
    loss_part *const part = (loss_part *)args->workspace;
    CKPT_LAUNCH(cuda_of(args), (pair_loss_parts<T, F>), (unsigned)parts, LOSS_THREADS, 0, count, f,
                (const T *)args->in[0], (const T *)args->in[1], part);
    CKPT_LAUNCH(cuda_of(args), loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, divisor,
                (float *)args->out[0], (float *)NULL);
}

template <typename T, typename F> static void start_pair_gradients(const ckpt_kernel_args *args, F f, double factor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    CKPT_LAUNCH_ITEMS(cuda_of(args), (pair_loss_gradient<T, F>), packs_of<T>(count), f, factor, (const T *)args->in[0],
                      (const T *)args->in[1], (const float *)args->grad_out[0], (T *)args->grad_in[0],
                      (T *)args->grad_in[1]);
}

/* What a mean is divided by. */
static double pair_count(const ckpt_kernel_args *args)
{
    return (double)ckpt_shape_count(&args->node->in[0].shape);
}

#endif
