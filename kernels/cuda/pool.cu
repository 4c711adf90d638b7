/* Pooling: maxpool2d, avgpool2d, the adaptive ones, and global_avgpool. Memory order is N, H, W, C, so a thread has a pack
 * of channels of one pixel. These are our own kernels rather than cuDNN's: max pooling saves where the first maximum stood
 * and its backward reads only that, while cuDNN's backward reads x and y, which a plan would have to keep. Backward
 * gathers: each input pixel adds up the windows that cover it, in order, so threads write to no common element and need no
 * atomics. Bytes moved: max forward x, y and a byte of index for each y (4 for a window of more than 256 positions); max
 * backward dy, the index and dx; the averages x and y, or dy and dx; dx twice where backward adds. Windows that overlap
 * read through the caches. One operation for each element of a window: bound by memory. */
#include "kernels/cuda/wide.cuh"

enum { THREADS = 256, GROUP = 8, LANES = THREADS / GROUP };

struct pool_window {
    int64_t batch, channels, in[2], out[2], kernel[2], stride[2], padding[2];
    bool adaptive; /* windows from floor(o in / out) to ceil((o + 1) in / out), and positions of the whole image */
};

static pool_window window_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    pool_window w = {};
    w.batch = x->dim[0];
    w.channels = x->dim[1];
    w.adaptive = strncmp(node->op->name, "adaptive", strlen("adaptive")) == 0;
    for (int d = 0; d < 2; d++) {
        w.in[d] = x->dim[2 + d];
        w.out[d] = y->dim[2 + d];
        if (w.adaptive) {
            w.kernel[d] = w.in[d];
            continue;
        }
        w.kernel[d] = ckpt_node_int_at(node, "kernel_size", d);
        w.stride[d] = ckpt_node_int_at(node, "stride", d);
        w.stride[d] = w.stride[d] == 0 ? w.kernel[d] : w.stride[d];
        w.padding[d] = ckpt_node_int_at(node, "padding", d);
    }
    return w;
}

struct pool_span {
    int64_t first, end;
};

/* The input positions of output position `o` along dim `d`. */
__device__ static pool_span covered(const pool_window &w, int d, int64_t o)
{
    if (w.adaptive) {
        return {divide(o * w.in[d], w.out[d]).whole, divide((o + 1) * w.in[d] - 1, w.out[d]).whole + 1};
    }
    const int64_t start = o * w.stride[d] - w.padding[d], end = start + w.kernel[d];
    return {start < 0 ? 0 : start, end > w.in[d] ? w.in[d] : end};
}

/* The output positions whose window covers input position `i` along dim `d`. */
__device__ static pool_span covering(const pool_window &w, int d, int64_t i)
{
    if (w.adaptive) {
        return {divide(i * w.out[d], w.in[d]).whole, divide((i + 1) * w.out[d] - 1, w.in[d]).whole + 1};
    }
    const int64_t at = i + w.padding[d]; /* o * stride <= at < o * stride + kernel */
    const int64_t first = at < w.kernel[d] ? 0 : divide(at - w.kernel[d], w.stride[d]).whole + 1;
    const int64_t end = divide(at, w.stride[d]).whole + 1;
    return {first, end > w.out[d] ? w.out[d] : end};
}

/* The input position that positions of output position `o` are counted from. */
__device__ static int64_t origin(const pool_window &w, int d, int64_t o)
{
    return w.adaptive ? 0 : o * w.stride[d] - w.padding[d];
}

/* 1 / the number of pixels that the window of output pixel (i, j) covers. */
__device__ static float share_of(const pool_window &w, int64_t i, int64_t j)
{
    const pool_span rows = covered(w, 0, i), columns = covered(w, 1, j);
    return 1 / (float)((rows.end - rows.first) * (columns.end - columns.first));
}

/* Item number `item` of a tensor of images of `size`: image, row, column, and the first of its N channels. */
struct pool_pixel {
    int64_t image, row, column, channel;
};
template <int N> __device__ static pool_pixel pixel_of(int64_t item, const int64_t size[2], int64_t channels)
{
    const quotient pack_of = divide(item, channels / N), column_of = divide(pack_of.whole, size[1]);
    const quotient row_of = divide(column_of.whole, size[0]);
    return {row_of.whole, row_of.rest, column_of.rest, pack_of.rest * N};
}

template <typename T, int N, typename I>
__global__ void pool_max_forward(int64_t items, pool_window w, const T *x, T *y, I *index)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const pool_pixel at = pixel_of<N>(item, w.out, w.channels);
        const pool_span rows = covered(w, 0, at.row), columns = covered(w, 1, at.column);
        const int64_t top = origin(w, 0, at.row), left = origin(w, 1, at.column);
        wide<T, N> most = {};
        wide<I, N> where = {};
        bool first = true;
        for (int64_t h = rows.first; h < rows.end; h++) {
            for (int64_t k = columns.first; k < columns.end; k++) {
                const wide<T, N> v =
                    load_wide<N>(x + ((at.image * w.in[0] + h) * w.in[1] + k) * w.channels + at.channel);
                const I position = (I)((h - top) * w.kernel[1] + k - left);
                for (int j = 0; j < N; j++) {
                    const float value = to_float(v.at[j]);
                    const bool take = first || value > to_float(most.at[j]) || value != value; /* NaN wins */
                    most.at[j] = take ? v.at[j] : most.at[j];
                    where.at[j] = take ? position : where.at[j];
                }
                first = false;
            }
        }
        store_wide<N>(y + item * N, most);
        store_wide<N>(index + item * N, where);
    }
}

template <typename T, int N, typename I>
__global__ void pool_max_backward(int64_t items, pool_window w, bool adds, const T *dy, const I *index, T *dx)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const pool_pixel at = pixel_of<N>(item, w.in, w.channels);
        const pool_span rows = covering(w, 0, at.row), columns = covering(w, 1, at.column);
        wide<float, N> sum = {};
        for (int64_t i = rows.first; i < rows.end; i++) {
            for (int64_t j = columns.first; j < columns.end; j++) {
                const int64_t u = at.row - origin(w, 0, i), v = at.column - origin(w, 1, j);
                const I position = (I)(u * w.kernel[1] + v);
                const int64_t from = ((at.image * w.out[0] + i) * w.out[1] + j) * w.channels + at.channel;
                const wide<T, N> slope = load_wide<N>(dy + from);
                const wide<I, N> where = load_wide<N>(index + from);
                for (int c = 0; c < N; c++) {
                    sum.at[c] += where.at[c] == position ? to_float(slope.at[c]) : 0.0f;
                }
            }
        }
        put_wide<N>(dx + item * N, sum, adds);
    }
}

/* Forward averages the pixels that a window covers, backward the windows that cover a pixel. scale: 1 / the pixels of
 * a window, unless windows are adaptive and differ. */
template <typename T, int N, bool BACKWARD>
__global__ void pool_average(int64_t items, pool_window w, float scale, bool adds, const T *from, T *to)
{
    const int64_t *const from_size = BACKWARD ? w.out : w.in, *const to_size = BACKWARD ? w.in : w.out;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const pool_pixel at = pixel_of<N>(item, to_size, w.channels);
        const pool_span rows = BACKWARD ? covering(w, 0, at.row) : covered(w, 0, at.row);
        const pool_span columns = BACKWARD ? covering(w, 1, at.column) : covered(w, 1, at.column);
        wide<float, N> sum = {};
        for (int64_t i = rows.first; i < rows.end; i++) {
            for (int64_t j = columns.first; j < columns.end; j++) {
                const int64_t pixel_number = (at.image * from_size[0] + i) * from_size[1] + j;
                const wide<T, N> v = load_wide<N>(from + pixel_number * w.channels + at.channel);
                const float share = BACKWARD && w.adaptive ? share_of(w, i, j) : 1;
                for (int c = 0; c < N; c++) {
                    sum.at[c] += to_float(v.at[c]) * share;
                }
            }
        }
        const float each = !w.adaptive ? scale : BACKWARD ? 1 : share_of(w, at.row, at.column);
        for (int c = 0; c < N; c++) {
            sum.at[c] *= each;
        }
        put_wide<N>(to + item * N, sum, adds);
    }
}

/* A block has GROUP packs of channels of one image, 128 bytes of a pixel, and LANES threads for each: lane l adds up
 * the pixels l, l + LANES, ..., and the lanes are added in order. */
template <typename T, int N>
__global__ void pool_global_forward(int64_t groups, int64_t images, int64_t pixels, int64_t channels, const T *x, T *y)
{
    __shared__ float part[LANES][GROUP * N];
    const int column = (int)threadIdx.x % GROUP, lane = (int)threadIdx.x / GROUP;
    const float count = (float)pixels;
    for (int64_t block = blockIdx.x; block < groups * images; block += gridDim.x) {
        const quotient of = divide(block, groups);
        const int64_t channel = (of.rest * GROUP + column) * N;
        wide<float, N> sum = {};
        for (int64_t p = lane; p < pixels && channel < channels; p += LANES) {
            const wide<T, N> v = load_wide<N>(x + (of.whole * pixels + p) * channels + channel);
            for (int j = 0; j < N; j++) {
                sum.at[j] += to_float(v.at[j]);
            }
        }
        for (int j = 0; j < N; j++) {
            part[lane][j * GROUP + column] = sum.at[j];
        }
        __syncthreads();
        if (lane == 0 && channel < channels) {
            for (int j = 0; j < N; j++) {
                float total = 0;
                for (int l = 0; l < LANES; l++) {
                    total += part[l][j * GROUP + column];
                }
                sum.at[j] = total / count;
            }
            put_wide<N>(y + of.whole * channels + channel, sum, false);
        }
        __syncthreads();
    }
}

template <typename T, int N>
__global__ void pool_global_backward(int64_t items, int64_t pixels, int64_t channels, bool adds, const T *dy, T *dx)
{
    const float count = (float)pixels;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient pack_of = divide(item, channels / N);
        const int64_t image = divide(pack_of.whole, pixels).whole;
        const wide<T, N> slope = load_wide<N>(dy + image * channels + pack_of.rest * N);
        wide<float, N> share;
        for (int j = 0; j < N; j++) {
            share.at[j] = to_float(slope.at[j]) / count;
        }
        put_wide<N>(dx + item * N, share, adds);
    }
}

static int64_t channels_of(const ckpt_node *node)
{
    return node->in[0].shape.dim[1];
}

template <typename T, int N, typename I> static void start_max_forward_with(const ckpt_kernel_args *args)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (pool_max_forward<T, N, I>), ckpt_shape_count(&args->node->out[0].shape) / N,
                      window_of(args->node), (const T *)args->in[0], (T *)args->out[0], (I *)args->saved[0]);
}

template <typename T, int N, typename I> static void start_max_backward_with(const ckpt_kernel_args *args)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (pool_max_backward<T, N, I>), ckpt_shape_count(&args->node->in[0].shape) / N,
                      window_of(args->node), (args->grad_in_adds & 1) != 0, (const T *)args->grad_out[0],
                      (const I *)args->saved[0], (T *)args->grad_in[0]);
}

static bool byte_positions(const ckpt_kernel_args *args)
{
    return args->node->saved[0].dtype == CKPT_UINT8;
}

template <typename T, int N> static void start_max_forward(const ckpt_kernel_args *args)
{
    (byte_positions(args) ? start_max_forward_with<T, N, uint8_t> : start_max_forward_with<T, N, int32_t>)(args);
}

template <typename T, int N> static void start_max_backward(const ckpt_kernel_args *args)
{
    if (args->grad_in[0] != NULL) {
        (byte_positions(args) ? start_max_backward_with<T, N, uint8_t> : start_max_backward_with<T, N, int32_t>)(args);
    }
}

template <typename T, int N, bool BACKWARD>
static void start_average(const ckpt_kernel_args *args, const ckpt_tensor *written, bool adds, const void *from,
                          void *to)
{
    const pool_window w = window_of(args->node);
    CKPT_LAUNCH_ITEMS(cuda_of(args), (pool_average<T, N, BACKWARD>), ckpt_shape_count(&written->shape) / N, w,
                      1 / (float)(w.kernel[0] * w.kernel[1]), adds, (const T *)from, (T *)to);
}

template <typename T, int N> static void start_average_forward(const ckpt_kernel_args *args)
{
    start_average<T, N, false>(args, &args->node->out[0], false, args->in[0], args->out[0]);
}

template <typename T, int N> static void start_average_backward(const ckpt_kernel_args *args)
{
    if (args->grad_in[0] != NULL) {
        start_average<T, N, true>(args, &args->node->in[0], (args->grad_in_adds & 1) != 0, args->grad_out[0],
                                  args->grad_in[0]);
    }
}

template <typename T, int N> static void start_global_forward(const ckpt_kernel_args *args)
{
    const int64_t *const dim = args->node->in[0].shape.dim;
    const int64_t groups = (dim[1] / N + GROUP - 1) / GROUP;
    CKPT_LAUNCH(cuda_of(args), (pool_global_forward<T, N>), grid_for(cuda_of(args), groups * dim[0], 1), THREADS, 0,
                groups, dim[0], dim[2] * dim[3], dim[1], (const T *)args->in[0], (T *)args->out[0]);
}

template <typename T, int N> static void start_global_backward(const ckpt_kernel_args *args)
{
    const ckpt_shape *const x = &args->node->in[0].shape;
    if (args->grad_in[0] != NULL) {
        CKPT_LAUNCH_ITEMS(cuda_of(args), (pool_global_backward<T, N>), ckpt_shape_count(x) / N, x->dim[2] * x->dim[3],
                          x->dim[1], (args->grad_in_adds & 1) != 0, (const T *)args->grad_out[0],
                          (T *)args->grad_in[0]);
    }
}

extern "C" const ckpt_kernel ckpt_cuda_maxpool2d = {
    .op = "maxpool2d",
    .forward = CKPT_WIDE(channels_of, start_max_forward),
    .backward = CKPT_WIDE(channels_of, start_max_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_avgpool2d = {
    .op = "avgpool2d",
    .forward = CKPT_WIDE(channels_of, start_average_forward),
    .backward = CKPT_WIDE(channels_of, start_average_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_adaptive_maxpool2d = {
    .op = "adaptive_maxpool2d",
    .forward = CKPT_WIDE(channels_of, start_max_forward),
    .backward = CKPT_WIDE(channels_of, start_max_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_adaptive_avgpool2d = {
    .op = "adaptive_avgpool2d",
    .forward = CKPT_WIDE(channels_of, start_average_forward),
    .backward = CKPT_WIDE(channels_of, start_average_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_global_avgpool = {
    .op = "global_avgpool",
    .forward = CKPT_WIDE(channels_of, start_global_forward),
    .backward = CKPT_WIDE(channels_of, start_global_backward),
};
