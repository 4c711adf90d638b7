/* Images enlarged by a whole factor s. A thread has a pack of channels of one pixel. Backward gathers: an input pixel
 * adds up, in order, the output pixels it had a weight in: s x s of them for nearest, about 2s x 2s for bilinear, which
 * its neighbours read too, through the caches. Bytes moved: x and y, or dy and dx. 1 to 8 operations for each element
 * of y: bound by memory. */
#include "kernels/cuda/wide.cuh"

struct upsample_shape {
    int64_t channels, height, width, scale; /* of the input */
};

static int64_t channels_of(const ckpt_node *node)
{
    return node->in[0].shape.dim[1];
}

static upsample_shape shape_of(const ckpt_node *node)
{
    const int64_t *const dim = node->in[0].shape.dim;
    return {dim[1], dim[2], dim[3], ckpt_node_int(node, "scale")};
}

static bool is_bilinear(const ckpt_node *node)
{
    return strcmp(ckpt_node_string(node, "mode"), "bilinear") == 0;
}

/* Output row or column `i` of an input of `length` is (1 - part) x[low] + part x[high]. Pixel centres are at half
 * numbers, and positions before the first centre move to it: (i + 1/2) / s - 1/2 = (2i + 1 - s) / 2s. Nearest: low =
 * high. */
struct upsample_sample {
    int64_t low, high;
    float part;
};
template <bool BILINEAR> __device__ static upsample_sample sample_of(int64_t i, int64_t scale, int64_t length)
{
    if (!BILINEAR) {
        const int64_t at = divide(i, scale).whole;
        return {at, at, 0.0f};
    }
    const int64_t halves = 2 * i + 1 - scale;
    const quotient at = divide(halves < 0 ? 0 : halves, 2 * scale);
    return {at.whole, at.whole + 1 < length ? at.whole + 1 : at.whole, (float)at.rest / (float)(2 * scale)};
}

/* The output rows or columns that input row or column `h` has a weight in, and its weight in one of them. */
struct upsample_range {
    int64_t first, end;
};
template <bool BILINEAR> __device__ static upsample_range range_of(int64_t h, int64_t scale, int64_t length)
{
    if (!BILINEAR) {
        return {h * scale, (h + 1) * scale};
    }
    /* h - 1 < position < h + 1, and the positions that moved to the first centre or are behind the last. */
    const int64_t first = h == 0 ? 0 : (h - 1) * scale + (scale - 1) / 2;
    const int64_t end = h + 1 == length ? length * scale : (h + 1) * scale + scale / 2;
    return {first, end};
}
__device__ static float weight_of(const upsample_sample &s, int64_t h)
{
    return (s.low == h ? 1.0f - s.part : 0.0f) + (s.high == h ? s.part : 0.0f);
}

template <typename T, int N, bool BILINEAR>
__global__ void upsample_forward(int64_t items, upsample_shape shape, const T *x, T *y)
{
    const int64_t C = shape.channels;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient pack_of = divide(item, C / N), column_of = divide(pack_of.whole, shape.width * shape.scale);
        const quotient row_of = divide(column_of.whole, shape.height * shape.scale);
        const upsample_sample s = sample_of<BILINEAR>(row_of.rest, shape.scale, shape.height);
        const upsample_sample t = sample_of<BILINEAR>(column_of.rest, shape.scale, shape.width);
        const T *const image = x + row_of.whole * shape.height * shape.width * C + pack_of.rest * N;
        const wide<T, N> a = load_wide<N>(image + (s.low * shape.width + t.low) * C);
        if (!BILINEAR) {
            store_wide<N>(y + item * N, a);
            continue;
        }
        const wide<T, N> b = load_wide<N>(image + (s.low * shape.width + t.high) * C);
        const wide<T, N> c = load_wide<N>(image + (s.high * shape.width + t.low) * C);
        const wide<T, N> d = load_wide<N>(image + (s.high * shape.width + t.high) * C);
        wide<float, N> mixed;
        for (int j = 0; j < N; j++) {
            const float upper = (1.0f - t.part) * to_float(a.at[j]) + t.part * to_float(b.at[j]);
            const float lower = (1.0f - t.part) * to_float(c.at[j]) + t.part * to_float(d.at[j]);
            mixed.at[j] = (1.0f - s.part) * upper + s.part * lower;
        }
        put_wide<N>(y + item * N, mixed, false);
    }
}

template <typename T, int N, bool BILINEAR>
__global__ void upsample_backward(int64_t items, upsample_shape shape, const T *dy, T *dx)
{
    const int64_t C = shape.channels, out_width = shape.width * shape.scale;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient pack_of = divide(item, C / N), column_of = divide(pack_of.whole, shape.width);
        const quotient row_of = divide(column_of.whole, shape.height);
        const upsample_range rows = range_of<BILINEAR>(row_of.rest, shape.scale, shape.height);
        const upsample_range columns = range_of<BILINEAR>(column_of.rest, shape.scale, shape.width);
        const T *const image = dy + row_of.whole * shape.height * shape.scale * out_width * C + pack_of.rest * N;
        wide<float, N> sum = {};
        for (int64_t i = rows.first; i < rows.end; i++) {
            const float weight = weight_of(sample_of<BILINEAR>(i, shape.scale, shape.height), row_of.rest);
            for (int64_t j = columns.first; j < columns.end; j++) {
                const float both = weight * weight_of(sample_of<BILINEAR>(j, shape.scale, shape.width), column_of.rest);
                const wide<T, N> slope = load_wide<N>(image + (i * out_width + j) * C);
                for (int c = 0; c < N && both > 0.0f; c++) { /* 0 times infinity would be NaN */
                    sum.at[c] += both * to_float(slope.at[c]);
                }
            }
        }
        put_wide<N>(dx + item * N, sum, false);
    }
}

template <typename T, int N> static void start_forward(const ckpt_kernel_args *args)
{
    const auto kernel = is_bilinear(args->node) ? upsample_forward<T, N, true> : upsample_forward<T, N, false>;
    CKPT_LAUNCH_ITEMS(cuda_of(args), kernel, ckpt_shape_count(&args->node->out[0].shape) / N, shape_of(args->node),
                      (const T *)args->in[0], (T *)args->out[0]);
}

template <typename T, int N> static void start_backward(const ckpt_kernel_args *args)
{
    const auto kernel = is_bilinear(args->node) ? upsample_backward<T, N, true> : upsample_backward<T, N, false>;
    CKPT_LAUNCH_ITEMS(cuda_of(args), kernel, ckpt_shape_count(&args->node->in[0].shape) / N, shape_of(args->node),
                      (const T *)args->grad_out[0], (T *)args->grad_in[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_upsample = {
    .op = "upsample",
    .forward = CKPT_WIDE(channels_of, start_forward),
    .backward = CKPT_WIDE(channels_of, start_backward),
};
