/* Mean negative log-likelihood of the right class, from log-probabilities. Forward reads one number per row, scattered.
 * Backward writes the whole gradient once, two comparisons an element. Both are bound by memory. A target that is no
 * class makes the loss and its row of the gradient NaN; it is never used as an index. */
#include "kernels/cuda/loss.cuh"

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS)
    nll_loss_parts(int64_t N, int64_t K, const T *x, const int32_t *target, loss_part *part)
{
    __shared__ loss_part shared[LOSS_THREADS];
    const int64_t start = (int64_t)blockIdx.x * CKPT_GPU_LOSS_TERMS;
    loss_part own = {0, 0};
    for (int n = 0; n < CKPT_GPU_LOSS_TERMS / LOSS_THREADS; n++) {
        const int64_t r = start + n * LOSS_THREADS + (int)threadIdx.x;
        if (r < N) {
            const int64_t t = target[r];
            own.sum -= t >= 0 && t < K ? (double)to_float(x[r * K + t]) : (double)NAN;
        }
    }
    const loss_part sum = block_halves<LOSS_THREADS>(own, shared);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}

/* Pack by pack over the whole tensor: one division finds the row of the first element, the others count on. */
template <typename T>
__global__ void __launch_bounds__(ITEM_THREADS)
    nll_loss_gradient(int64_t packs, int64_t N, int64_t K, const int32_t *target, const float *grad, T *dx)
{
    const float value = -loss_gradient(grad) / (float)N;
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        int64_t row = at / K, column = at - row * K, t = target[row];
        pack<T> v;
        for (int j = 0; j < pack<T>::count; j++) {
            v.at[j] = from_float<T>(t < 0 || t >= K ? NAN : column == t ? value : 0.0f);
            if (++column == K) {
                column = 0;
                row++;
                t = row < N ? target[row] : 0;
            }
        }
        store16(dx + at, v);
    }
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const int64_t N = args->node->in[0].shape.dim[0], parts = (N + CKPT_GPU_LOSS_TERMS - 1) / CKPT_GPU_LOSS_TERMS;
    loss_part *const part = (loss_part *)args->workspace;
    CKPT_LAUNCH(cuda_of(args), nll_loss_parts<T>, (unsigned)parts, LOSS_THREADS, 0, N, args->node->in[0].shape.dim[1],
                (const T *)args->in[0], (const int32_t *)args->in[1], part);
    CKPT_LAUNCH(cuda_of(args), loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, (double)N,
                (float *)args->out[0], (float *)NULL);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    CKPT_LAUNCH_ITEMS(cuda_of(args), nll_loss_gradient<T>, packs_of<T>(ckpt_shape_count(shape)), shape->dim[0],
                      shape->dim[1], (const int32_t *)args->in[1], (const float *)args->grad_out[0],
                      (T *)args->grad_in[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_nll_loss = {
    .op = "nll_loss",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
