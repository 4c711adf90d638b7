/* Mean negative log-likelihood of the right class, from log-probabilities. Forward reads one number per row, scattered;
 * backward writes the whole gradient once, two comparisons an element: bound by memory. A target that is no class makes
 * the loss and its row of the gradient NaN; it is never used as an index. */
#include "kernels/cuda/loss.cuh"

enum { THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS)
    nll_loss_parts(int64_t N, int64_t K, const T *x, const int32_t *target, loss_part *part)
{
    __shared__ double storage[2 * LOSS_THREADS];
    const int64_t start = (int64_t)blockIdx.x * CKPT_GPU_LOSS_TERMS;
    loss_part own = {0, 0};
    for (int n = 0; n < CKPT_GPU_LOSS_TERMS / LOSS_THREADS; n++) {
        const int64_t r = start + n * LOSS_THREADS + (int)threadIdx.x;
        if (r < N) {
            const int64_t t = target[r];
            own.sum -= t >= 0 && t < K ? (double)to_float(x[r * K + t]) : (double)NAN;
        }
    }
    const loss_part sum = loss_add(own, (loss_part *)storage);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}

/* Pack by pack over the whole tensor: one division finds the row, the elements that follow step on. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    nll_loss_gradient(int64_t packs, int64_t N, int64_t K, const int32_t *target, const float *grad, T *dx)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    const float value = -loss_gradient(grad) / (float)N;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
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
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t N = shape->dim[0], parts = (N + CKPT_GPU_LOSS_TERMS - 1) / CKPT_GPU_LOSS_TERMS;
    loss_part *const part = (loss_part *)args->workspace;
    CKPT_LAUNCH(cuda, nll_loss_parts<T>, (unsigned)parts, LOSS_THREADS, 0, N, shape->dim[1], (const T *)args->in[0],
                (const int32_t *)args->in[1], part);
    CKPT_LAUNCH(cuda, loss_finish, 1, LOSS_THREADS, 0, parts, (const loss_part *)part, (double)N, (float *)args->out[0],
                (float *)NULL);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t packs = packs_of<T>(ckpt_shape_count(shape));
    CKPT_LAUNCH(cuda, nll_loss_gradient<T>, grid_for(cuda, packs, THREADS), THREADS, 0, packs, shape->dim[0],
                shape->dim[1], (const int32_t *)args->in[1], (const float *)args->grad_out[0], (T *)args->grad_in[0]);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args);
    return ckpt_cuda_launched("nll_loss", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args);
    return ckpt_cuda_launched("nll_loss backward", err);
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = *backward = 0;
    node->op->gpu_workspace(node, forward, backward);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_nll_loss;
const ckpt_kernel ckpt_cuda_nll_loss = {
    .op = "nll_loss",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
