/* Batch norm over the rows (N H W) of each channel. These are our own kernels rather than cuDNN's: the order of their
 * sums is fixed by construction, evaluation and recomputation follow the CPU exactly, and all of it can be compared
 * with the CPU without a GPU. They move as many bytes as cuDNN's deterministic mode.
 *
 * Sums go down the columns of [rows x channels] as bias gradients do (channel_sums.cuh), in parts that are then added in
 * order, in double. As on the CPU they are sums of x minus the first row, so that a one-pass variance keeps its digits.
 * Forward reads x twice and writes y, 8 FLOP an element; backward reads x and dy twice and writes dx (which it reads where
 * it adds), 11 FLOP. Both are bound by memory.
 *
 * A frozen batch norm is an affine map by the running statistics. Each direction computes 1 / sqrt(variance) again, in
 * workspace. Forward reads x once and backward dy once; the gradients of learned parameters read both once more.
 *
 * Backward sees xhat as (value - center) scale. In the way "output" these are y, the bias and 1 / weight instead of x, the
 * mean and rstd; a weight of 0 then gives NaN. */
#include "kernels/cuda/channel_sums.cuh"

namespace
{

enum { LAST_COLUMNS = 32, LAST_ROWS = 16 };

/* Adds the parts of 32 channels: 16 threads share the parts of a channel and are added in order. True for the one
 * thread of each channel that gets both sums. */
__device__ inline bool batchnorm_total(const channel_sizes &s, const float *part, int64_t *channel, double *plain,
                                       double *product)
{
    __shared__ double sums[2][LAST_ROWS][LAST_COLUMNS];
    const int x_at = (int)threadIdx.x % LAST_COLUMNS, y_at = (int)threadIdx.x / LAST_COLUMNS;
    *channel = (int64_t)blockIdx.x * LAST_COLUMNS + x_at;
    double own = 0, own_product = 0;
    if (*channel < s.channels) {
#pragma unroll 4
        for (int64_t p = y_at; p < s.parts; p += LAST_ROWS) {
            const float *const from = part + 2 * s.channels * p + *channel;
            own += (double)from[0];
            own_product += (double)from[s.channels];
        }
    }
    sums[0][y_at][x_at] = own;
    sums[1][y_at][x_at] = own_product;
    __syncthreads();
    if (y_at != 0 || *channel >= s.channels) {
        return false;
    }
    *plain = *product = 0;
    for (int y = 0; y < LAST_ROWS; y++) {
        *plain += sums[0][y][x_at];
        *product += sums[1][y][x_at];
    }
    return true;
}

/* running_mean is NULL in a recomputation. */
template <typename T>
__global__ void __launch_bounds__(LAST_COLUMNS *LAST_ROWS)
    batchnorm_moments(channel_sizes s, double eps, double momentum, const T *x, const float *part, float *mean,
                      float *rstd, float *running_mean, float *running_var)
{
    int64_t c = 0;
    double plain = 0, product = 0;
    if (batchnorm_total(s, part, &c, &plain, &product)) {
        const double count = (double)s.rows, shift = plain / count;
        const double difference = product / count - shift * shift;
        const double var = difference < 0 ? 0 : difference; /* NaN passes */
        const double center = (double)to_float(x[c]) + shift;
        mean[c] = (float)center;
        rstd[c] = (float)(1 / sqrt(var + eps));
        if (running_mean != NULL) {
            const double unbiased = s.rows > 1 ? var * count / (count - 1) : var;
            running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * center);
            running_var[c] = (float)((1 - momentum) * (double)running_var[c] + momentum * unbiased);
        }
    }
}

__global__ void batchnorm_use_statistics(int64_t channels, float eps, const float *running_mean,
                                         const float *running_var, float *mean, float *rstd)
{
    for (int64_t c = first_item(); c < channels; c += item_step()) {
        if (mean != NULL) {
            mean[c] = running_mean[c];
        }
        rstd[c] = 1 / sqrtf(running_var[c] + eps);
    }
}

/* The parameters' gradients, and what dx needs of the sums: factor[0][c] = db / n, factor[1][c] = dw scale / n. The scale
 * is rstd, or 1 / weight where that is not NULL. */
__global__ void __launch_bounds__(LAST_COLUMNS *LAST_ROWS)
    batchnorm_slopes(channel_sizes s, const float *part, const float *rstd, const float *weight, float *dscale,
                     float *dshift, uint64_t adds, float *factor)
{
    int64_t c = 0;
    double plain = 0, product = 0;
    if (batchnorm_total(s, part, &c, &plain, &product)) {
        const double scale = weight != NULL ? 1 / (double)weight[c] : (double)rstd[c], count = (double)s.rows;
        dscale[c] = ((adds & 1) != 0 ? dscale[c] : 0.0f) + (float)(product * scale);
        dshift[c] = ((adds & 2) != 0 ? dshift[c] : 0.0f) + (float)plain;
        factor[c] = (float)(plain / count);
        factor[s.channels + c] = (float)(product * scale * scale / count);
    }
}

/* dx = dy (rstd w) */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    batchnorm_frozen_input(channel_sizes s, int across, const T *dy, const float *rstd, const float *scale, T *dx,
                           bool adds)
{
    const channel_place<N> at(across, s.channels);
    if (at.inside) {
        wide<float, N> slope = load_wide<N>(rstd + at.channel);
        for (int j = 0; j < N; j++) {
            slope.at[j] *= scale[at.channel + j];
        }
        const int64_t step = (int64_t)gridDim.y * at.high;
        for (int64_t r = (int64_t)blockIdx.y * at.high + at.row; r < s.rows; r += step) {
            wide<float, N> v = load_floats<N>(dy + r * s.channels + at.channel);
            for (int j = 0; j < N; j++) {
                v.at[j] *= slope.at[j];
            }
            put_wide<N>(dx + r * s.channels + at.channel, v, adds);
        }
    }
}

/* y = (x - mean) (rstd w) + b */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    batchnorm_apply(channel_sizes s, int across, const T *x, const float *mean, const float *rstd, const float *scale,
                    const float *shift, T *y)
{
    const channel_place<N> at(across, s.channels);
    if (at.inside) {
        const wide<float, N> middle = load_wide<N>(mean + at.channel), last = load_wide<N>(shift + at.channel);
        wide<float, N> slope = load_wide<N>(rstd + at.channel);
        for (int j = 0; j < N; j++) {
            slope.at[j] *= scale[at.channel + j];
        }
        const int64_t step = (int64_t)gridDim.y * at.high;
        for (int64_t r = (int64_t)blockIdx.y * at.high + at.row; r < s.rows; r += 2 * step) {
            /* Two rows in flight. */
            const int64_t one = r * s.channels + at.channel;
            const int64_t two = r + step < s.rows ? one + step * s.channels : one;
            wide<float, N> a = load_floats<N>(x + one), b = load_floats<N>(x + two);
            for (int j = 0; j < N; j++) {
                a.at[j] = (a.at[j] - middle.at[j]) * slope.at[j] + last.at[j];
                b.at[j] = (b.at[j] - middle.at[j]) * slope.at[j] + last.at[j];
            }
            put_wide<N>(y + one, a, false);
            put_wide<N>(y + two, b, false);
        }
    }
}

/* dx = (dy - db / n - (x - mean) dw rstd / n) (rstd w). Source: Ioffe & Szegedy 2015, section 3, terms collected. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    batchnorm_input(channel_sizes s, int across, const T *x, const T *dy, const float *mean, const float *rstd,
                    const float *scale, const float *factor, T *dx, bool adds)
{
    const channel_place<N> at(across, s.channels);
    if (at.inside) {
        const wide<float, N> middle = load_wide<N>(mean + at.channel), plain = load_wide<N>(factor + at.channel);
        const wide<float, N> product = load_wide<N>(factor + s.channels + at.channel);
        wide<float, N> slope = load_wide<N>(rstd + at.channel);
        for (int j = 0; j < N; j++) {
            slope.at[j] *= scale[at.channel + j];
        }
        const int64_t step = (int64_t)gridDim.y * at.high;
        for (int64_t r = (int64_t)blockIdx.y * at.high + at.row; r < s.rows; r += step) {
            const int64_t from = r * s.channels + at.channel;
            const wide<float, N> a = load_floats<N>(x + from), b = load_floats<N>(dy + from);
            wide<float, N> result;
            for (int j = 0; j < N; j++) {
                result.at[j] = (b.at[j] - plain.at[j] - (a.at[j] - middle.at[j]) * product.at[j]) * slope.at[j];
            }
            put_wide<N>(dx + from, result, adds);
        }
    }
}

channel_sizes batchnorm_sizes_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t channels = x->dim[1], rows = ckpt_shape_count(x) / channels;
    const int64_t part_rows = ckpt_gpu_part_rows(1, rows, channels);
    return {rows, channels, part_rows, (rows + part_rows - 1) / part_rows};
}

int batchnorm_last_blocks(const channel_sizes &s)
{
    return (int)((s.channels + LAST_COLUMNS - 1) / LAST_COLUMNS);
}

/* Weight and bias are parameters, or statistics where they do not learn. */
const float *batchnorm_affine(const ckpt_kernel_args *args, int k)
{
    return args->node->param_count > 0 ? args->param[k] : args->stat[2 + k];
}

void start_statistics(const ckpt_kernel_args *args, int64_t channels, float *mean, float *rstd)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), batchnorm_use_statistics, channels, (float)ckpt_node_float(args->node, "eps"),
                      (const float *)args->stat[0], (const float *)args->stat[1], mean, rstd);
}

template <typename T, int N>
void start_apply(const ckpt_kernel_args *args, const channel_sizes &s, const float *mean, const float *rstd)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int across = strip_threads(s.channels, STRIP, N);
    CKPT_LAUNCH(cuda, (batchnorm_apply<T, N>), channel_grid(s, 1, (int64_t)(THREADS / across) * APPLY_ROWS), THREADS, 0,
                s, across, (const T *)args->in[0], mean, rstd, batchnorm_affine(args, 0), batchnorm_affine(args, 1),
                (T *)args->out[0]);
}

template <typename T, int N> void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_node *const node = args->node;
    const channel_sizes s = batchnorm_sizes_of(node);
    const double eps = (double)(float)ckpt_node_float(node, "eps");
    const int across = strip_threads(s.channels, STRIP, N);
    const T *const x = (const T *)args->in[0];
    if (ckpt_node_bool(node, "frozen")) {
        float *const rstd = (float *)args->workspace;
        start_statistics(args, s.channels, NULL, rstd);
        start_apply<T, N>(args, s, args->stat[0], rstd);
        return;
    }
    float *const mean = (float *)args->saved[0], *const rstd = (float *)args->saved[1];
    if (args->evaluating) {
        start_statistics(args, s.channels, mean, rstd);
    } else {
        float *const part = (float *)args->workspace;
        CKPT_LAUNCH(cuda, (channel_sums<T, N>), channel_grid(s, 1, s.part_rows), THREADS, 0, s, across, x,
                    (const T *)NULL, (const float *)NULL, part);
        CKPT_LAUNCH(cuda, batchnorm_moments<T>, batchnorm_last_blocks(s), LAST_COLUMNS * LAST_ROWS, 0, s, eps,
                    ckpt_node_float(node, "momentum"), x, (const float *)part, mean, rstd,
                    args->recomputed ? (float *)NULL : args->stat[0], args->recomputed ? (float *)NULL : args->stat[1]);
    }
    start_apply<T, N>(args, s, mean, rstd);
}

template <typename T, int N> void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const bool frozen = ckpt_node_bool(args->node, "frozen"), undone = ckpt_way_is(args->way, "output");
    const channel_sizes s = batchnorm_sizes_of(args->node);
    const int across = strip_threads(s.channels, STRIP, N);
    const dim3 grid = channel_grid(s, 1, (int64_t)(THREADS / across) * APPLY_ROWS);
    const T *const x = (const T *)(undone ? args->out[0] : args->in[0]), *const dy = (const T *)args->grad_out[0];
    T *const dx = (T *)args->grad_in[0];
    float *const own_rstd = (float *)args->workspace; /* frozen: rstd is not saved */
    float *const factor = own_rstd + (frozen ? ckpt_round_up(s.channels, CKPT_ALIGN / 4) : 0);
    float *const part = factor + ckpt_round_up(2 * s.channels, CKPT_ALIGN / 4);
    const float *const mean = frozen ? args->stat[0] : (const float *)args->saved[0];
    const float *const center = undone ? args->param[1] : mean;
    const float *const rstd = frozen ? own_rstd : (const float *)args->saved[1];
    const float *const scale = batchnorm_affine(args, 0);
    const bool adds = (args->grad_in_adds & 1) != 0;
    if (frozen) {
        start_statistics(args, s.channels, NULL, own_rstd);
    }
    if (args->node->param_count > 0) {
        CKPT_LAUNCH(cuda, (channel_sums<T, N>), channel_grid(s, 1, s.part_rows), THREADS, 0, s, across, x, dy, center,
                    part);
        CKPT_LAUNCH(cuda, batchnorm_slopes, batchnorm_last_blocks(s), LAST_COLUMNS * LAST_ROWS, 0, s,
                    (const float *)part, rstd, undone ? args->param[0] : NULL, args->grad_param[0], args->grad_param[1],
                    args->grad_param_adds, factor);
    }
    if (dx != NULL && frozen) {
        CKPT_LAUNCH(cuda, (batchnorm_frozen_input<T, N>), grid, THREADS, 0, s, across, dy, rstd, scale, dx, adds);
    } else if (dx != NULL) {
        CKPT_LAUNCH(cuda, (batchnorm_input<T, N>), grid, THREADS, 0, s, across, x, dy, center, rstd, scale,
                    (const float *)factor, dx, adds);
    }
}

int64_t batchnorm_channels(const ckpt_node *node)
{
    return node->in[0].shape.dim[1];
}

} // namespace

extern "C" const ckpt_kernel ckpt_cuda_batchnorm = {
    .op = "batchnorm",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(batchnorm_channels, start_forward),
    .backward = CKPT_WIDE(batchnorm_channels, start_backward),
};
