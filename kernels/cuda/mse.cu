/* Mean squared error. Either side may be the one that learns. Forward reads both tensors, 3 FLOP an element; backward
 * reads both and writes one or two, 2 FLOP. Both are bound by memory. */
#include "kernels/cuda/loss.cuh"

enum { PART = 16 * CKPT_GPU_LOSS_TERMS /* elements; a term of the sum is 16 of them */ };

/* A thread adds its squares in float32, one sum of at most 16 squares for each position in a pack; then in double. */
template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) mse_parts(int64_t count, const T *x, const T *target, loss_part *part)
{
    __shared__ double storage[2 * LOSS_THREADS];
    const int64_t V = pack<T>::count, start = (int64_t)blockIdx.x * PART;
    float sum[pack<T>::count] = {0};
#pragma unroll 4
    for (int n = 0; n < PART / LOSS_THREADS / pack<T>::count; n++) {
        const int64_t at = start + (n * LOSS_THREADS + (int)threadIdx.x) * V;
        if (at < count) {
            const pack<T> a = load16(x + at), b = load16(target + at);
            for (int j = 0; j < pack<T>::count; j++) {
                const float difference = to_float(a.at[j]) - to_float(b.at[j]);
                sum[j] += at + j < count ? difference * difference : 0.0f;
            }
        }
    }
    loss_part own = {0, 0};
    for (int j = 0; j < pack<T>::count; j++) {
        own.sum += (double)sum[j];
    }
    const loss_part all = loss_add(own, (loss_part *)storage);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = all;
    }
}

/* dx = 2 (x - target) grad / count, dt = -dx; NULL where not wanted. If both are one buffer, it ends up with dt. */
template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS)
    mse_gradient(int64_t packs, double factor, const T *x, const T *target, const float *grad, T *dx, T *dt)
{
    const float scale = (float)(factor * (double)loss_gradient(grad));
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> a = load16(x + at), b = load16(target + at);
        pack<T> up, down;
        for (int j = 0; j < pack<T>::count; j++) {
            const float slope = scale * (to_float(a.at[j]) - to_float(b.at[j]));
            up.at[j] = from_float<T>(slope);
            down.at[j] = from_float<T>(-slope);
        }
        if (dx != NULL) {
            store16(dx + at, up);
        }
        if (dt != NULL) {
            store16(dt + at, down);
        }
    }
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), parts = (count + PART - 1) / PART;
    loss_part *const part = (loss_part *)args->workspace;
    CKPT_LAUNCH(cuda_of(args), mse_parts<T>, (unsigned)parts, LOSS_THREADS, 0, count, (const T *)args->in[0],
                (const T *)args->in[1], part);
    CKPT_LAUNCH(cuda_of(args), loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, (double)count,
                (float *)args->out[0], (float *)NULL);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    CKPT_LAUNCH_ITEMS(cuda_of(args), mse_gradient<T>, packs_of<T>(count), 2.0 / (double)count, (const T *)args->in[0],
                      (const T *)args->in[1], (const float *)args->grad_out[0], (T *)args->grad_in[0],
                      (T *)args->grad_in[1]);
}

extern "C" const ckpt_kernel ckpt_cuda_mse = {
    .op = "mse",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
