/* Group norm and instance norm over the rows (pixels) and a group of the channels of each image. As in batch norm the sums
 * of each channel are of x minus the image's first row (channel_sums.cuh); then a block adds the parts and channels of one
 * group, in order, in double. Forward reads x twice and writes y, 8 FLOP an element; backward reads x and dy twice and
 * writes dx (which it reads where it adds), 11 FLOP. Both are bound by memory. */
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/parts.cuh"

namespace
{
enum { GROUP_COLUMNS = 32, GROUP_ROWS = 8 };

/* Of a call. weight, bias: NULL where there are none. */
struct groupnorm_call {
    channel_sizes s;
    int64_t groups;
    const float *weight, *bias;
};
} // namespace

/* A block adds the sums of one group of one image: 8 threads share the parts of a channel, and 32 the channels. Forward:
 * first[n, g] = mean, second[n, g] = rstd. Backward, where the sums are of dy and dy (x - first row): channel[n][0][c] =
 * the sum of dy xhat, channel[n][1][c] = of dy; factor[n, g] = what the input's gradient needs of their means. */
template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(GROUP_COLUMNS *GROUP_ROWS, 4)
    groupnorm_totals(groupnorm_call call, double eps, const T *x, const float *part, float *mean, float *rstd,
                     float *channel, float2 *factor)
{
    __shared__ double sums[2][GROUP_ROWS][GROUP_COLUMNS];
    const int x_at = (int)threadIdx.x % GROUP_COLUMNS, y_at = (int)threadIdx.x / GROUP_COLUMNS;
    const int64_t C = call.s.channels, each = divide(C, call.groups).whole;
    const quotient of = divide(blockIdx.x, call.groups);
    const int64_t n = of.whole, first = of.rest * each;
    const T *const row = x + n * call.s.rows * C;
    const double rows = (double)call.s.rows, origin = (double)to_float(row[first]);
    const double m = BACKWARD ? (double)mean[blockIdx.x] : 0, k = BACKWARD ? (double)rstd[blockIdx.x] : 0;
    double plain = 0, product = 0; /* of the group; threads of the first row only */
    for (int64_t start = 0; start < each; start += GROUP_COLUMNS) {
        const int64_t c = first + start + x_at;
        const bool mine = start + x_at < each;
        double own = 0, own_product = 0;
        for (int64_t p = y_at; mine && p < call.s.parts; p += GROUP_ROWS) {
            const float *const from = part + 2 * C * (n * call.s.parts + p) + c;
            own += (double)from[0];
            own_product += (double)from[C];
        }
        sums[0][y_at][x_at] = own;
        sums[1][y_at][x_at] = own_product;
        __syncthreads();
        if (y_at == 0 && mine) {
            for (int y = 1; y < GROUP_ROWS; y++) {
                own += sums[0][y][x_at];
                own_product += sums[1][y][x_at];
            }
            const double here = (double)to_float(row[c]);
            if (BACKWARD) {
                const double slope = (own_product + (here - m) * own) * k;
                const double weight = call.weight != NULL ? (double)call.weight[c] : 1;
                channel[2 * C * n + c] = (float)slope;
                channel[2 * C * n + C + c] = (float)own;
                plain += weight * own;
                product += weight * slope;
            } else {
                const double apart = here - origin;
                plain += own + rows * apart;
                product += own_product + 2 * apart * own + rows * apart * apart;
            }
        }
        __syncthreads();
    }
    if (y_at == 0) {
        sums[0][0][x_at] = plain;
        sums[1][0][x_at] = product;
    }
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    for (int i = 1; i < GROUP_COLUMNS; i++) {
        plain += sums[0][0][i];
        product += sums[1][0][i];
    }
    const double count = rows * (double)each;
    if (BACKWARD) {
        factor[blockIdx.x] = make_float2((float)(plain / count * k), (float)(product / count * k * k));
    } else {
        const double shift = plain / count, difference = product / count - shift * shift;
        const double var = difference < 0 ? 0 : difference; /* NaN passes */
        mean[blockIdx.x] = (float)(origin + shift);
        rstd[blockIdx.x] = (float)(1 / sqrt(var + eps));
    }
}

/* rstd w of a thread's channels, and their groups of all images. */
template <int N>
__device__ inline void groupnorm_channels(const groupnorm_call &call, const channel_place<N> &at, const float *rstd,
                                          int64_t group[N], float slope[N])
{
    const int64_t each = divide(call.s.channels, call.groups).whole;
    for (int j = 0; j < N; j++) {
        group[j] = at.image * call.groups + divide(at.channel + j, each).whole;
        slope[j] = rstd[group[j]] * (call.weight != NULL ? call.weight[at.channel + j] : 1.0f);
    }
}

/* y = (x - mean) (rstd w) + b */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    groupnorm_apply(groupnorm_call call, int across, const T *x, const float *mean, const float *rstd, T *y)
{
    const channel_place<N> at(across, call.s.channels);
    if (at.inside) {
        int64_t group[N];
        float slope[N], middle[N], last[N];
        groupnorm_channels<N>(call, at, rstd, group, slope);
        for (int j = 0; j < N; j++) {
            middle[j] = mean[group[j]];
            last[j] = call.bias != NULL ? call.bias[at.channel + j] : 0.0f;
        }
        const int64_t step = (int64_t)gridDim.y * at.high, image = at.image * call.s.rows;
#pragma unroll 2
        for (int64_t r = (int64_t)blockIdx.y * at.high + at.row; r < call.s.rows; r += step) {
            const int64_t from = (image + r) * call.s.channels + at.channel;
            wide<float, N> v = load_floats<N>(x + from);
            for (int j = 0; j < N; j++) {
                v.at[j] = (v.at[j] - middle[j]) * slope[j] + last[j];
            }
            put_wide<N>(y + from, v, false);
        }
    }
}

/* dx = rstd (dy w - mean(dy w) - xhat mean(dy w xhat)), means over the group; terms collected. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    groupnorm_input(groupnorm_call call, int across, const T *x, const T *dy, const float *mean, const float *rstd,
                    const float2 *factor, T *dx, bool adds)
{
    const channel_place<N> at(across, call.s.channels);
    if (at.inside) {
        int64_t group[N];
        float slope[N], middle[N];
        float2 means[N];
        groupnorm_channels<N>(call, at, rstd, group, slope);
        for (int j = 0; j < N; j++) {
            middle[j] = mean[group[j]];
            means[j] = factor[group[j]];
        }
        const int64_t step = (int64_t)gridDim.y * at.high, image = at.image * call.s.rows;
        for (int64_t r = (int64_t)blockIdx.y * at.high + at.row; r < call.s.rows; r += step) {
            const int64_t from = (image + r) * call.s.channels + at.channel;
            const wide<float, N> a = load_floats<N>(x + from), b = load_floats<N>(dy + from);
            wide<float, N> result;
            for (int j = 0; j < N; j++) {
                result.at[j] = b.at[j] * slope[j] - means[j].x - (a.at[j] - middle[j]) * means[j].y;
            }
            put_wide<N>(dx + from, result, adds);
        }
    }
}

static groupnorm_call make_call(const ckpt_kernel_args *args)
{
    const ckpt_group_sizes s = ckpt_group_sizes_of(args->node);
    const bool affine = args->node->param_count > 0;
    return {{s.rows, s.channels, s.part_rows, s.parts},
            s.groups,
            affine ? args->param[0] : NULL,
            affine ? args->param[1] : NULL};
}

/* The sums of every part, in workspace; then, of each group, what `totals` makes of them. */
template <typename T, int N, bool BACKWARD>
static void start_totals(const ckpt_kernel_args *args, const groupnorm_call &call, const T *dy, float *channel,
                         float2 *factor)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t images = args->node->saved[0].shape.dim[0];
    const T *const x = (const T *)args->in[0];
    float *const part = (float *)args->workspace;
    CKPT_LAUNCH(cuda, (channel_sums<T, N>), channel_grid(call.s, images, call.s.part_rows), THREADS, 0, call.s,
                strip_threads(call.s.channels, STRIP, N), x, dy, (const float *)NULL, part);
    CKPT_LAUNCH(cuda, (groupnorm_totals<T, BACKWARD>), (unsigned)(images * call.groups), GROUP_COLUMNS * GROUP_ROWS, 0,
                call, (double)(float)ckpt_node_float(args->node, "eps"), x, (const float *)part,
                (float *)args->saved[0], (float *)args->saved[1], channel, factor);
}

template <typename T, int N> static void start_forward(const ckpt_kernel_args *args)
{
    const groupnorm_call call = make_call(args);
    const int64_t images = args->node->saved[0].shape.dim[0];
    const int across = strip_threads(call.s.channels, STRIP, N);
    start_totals<T, N, false>(args, call, NULL, NULL, NULL);
    CKPT_LAUNCH(cuda_of(args), (groupnorm_apply<T, N>),
                channel_grid(call.s, images, (int64_t)(THREADS / across) * APPLY_ROWS), THREADS, 0, call, across,
                (const T *)args->in[0], (const float *)args->saved[0], (const float *)args->saved[1],
                (T *)args->out[0]);
}

template <typename T, int N> static void start_backward(const ckpt_kernel_args *args)
{
    const groupnorm_call call = make_call(args);
    const int64_t images = args->node->saved[0].shape.dim[0], C = call.s.channels;
    const int across = strip_threads(C, STRIP, N);
    const T *const dy = (const T *)args->grad_out[0];
    char *const sums = (char *)args->workspace + ckpt_round_up(8 * images * C * call.s.parts, CKPT_ALIGN);
    float *const channel = (float *)sums;
    float2 *const factor = (float2 *)(sums + ckpt_round_up(8 * images * C, CKPT_ALIGN));
    start_totals<T, N, true>(args, call, dy, channel, factor);
    if (args->grad_in[0] != NULL) {
        CKPT_LAUNCH(cuda_of(args), (groupnorm_input<T, N>),
                    channel_grid(call.s, images, (int64_t)(THREADS / across) * APPLY_ROWS), THREADS, 0, call, across,
                    (const T *)args->in[0], dy, (const float *)args->saved[0], (const float *)args->saved[1],
                    (const float2 *)factor, (T *)args->grad_in[0], (args->grad_in_adds & 1) != 0);
    }
    if (call.weight != NULL) {
        start_norm_parts(args, images, C, channel);
    }
}

static int64_t channels_of(const ckpt_node *node)
{
    return ckpt_group_sizes_of(node).channels;
}

extern "C" const ckpt_kernel ckpt_cuda_groupnorm = {
    .op = "groupnorm",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(channels_of, start_forward),
    .backward = CKPT_WIDE(channels_of, start_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_instancenorm = {
    .op = "instancenorm",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(channels_of, start_forward),
    .backward = CKPT_WIDE(channels_of, start_backward),
};
