/* Images enlarged by a whole factor s. A thread has a pack of channels of one pixel. Backward gathers: an input pixel
 * adds up the output pixels that it had a share in, in order: s x s of them for nearest, about 2s x 2s for bilinear,
 * which neighbours read again through the caches. Moved: x and y, or dy and dx; 1 to 8 operations for each element of
 * y: bound by memory. */
#include "kernels/cuda/wide.cuh"

enum { THREADS = 256 };

struct upsample_shape {
    int64_t channels, height, width, scale; /* of the input */
};

/* Output row or column `i` of an input of `length` is (1 - part) x[low] + part x[high]: pixel centres at half numbers,
 * positions before the first centre at it: (i + 1/2) / s - 1/2 = (2i + 1 - s) / 2s. Nearest: low = high. */
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

/* The output rows or columns that input row or column `h` has a share in, and the share of one. */
struct upsample_range {
    int64_t first, end;
};
template <bool BILINEAR> __device__ static upsample_range range_of(int64_t h, int64_t scale, int64_t length)
{
    if (!BILINEAR) {
        return {h * scale, (h + 1) * scale};
    }
    /* h - 1 < position < h + 1, and what was moved to the first centre or has no second one. */
    const int64_t first = h == 0 ? 0 : (h - 1) * scale + (scale - 1) / 2;
    const int64_t end = h + 1 == length ? length * scale : (h + 1) * scale + scale / 2;
    return {first, end};
}
__device__ static float share_of(const upsample_sample &s, int64_t h)
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
            const float weight = share_of(sample_of<BILINEAR>(i, shape.scale, shape.height), row_of.rest);
            for (int64_t j = columns.first; j < columns.end; j++) {
                const float share = weight * share_of(sample_of<BILINEAR>(j, shape.scale, shape.width), column_of.rest);
                const wide<T, N> slope = load_wide<N>(image + (i * out_width + j) * C);
                for (int c = 0; c < N && share > 0.0f; c++) { /* 0 times infinity is none of ours */
                    sum.at[c] += share * to_float(slope.at[c]);
                }
            }
        }
        put_wide<N>(dx + item * N, sum, false);
    }
}

static upsample_shape shape_of(const ckpt_node *node)
{
    const int64_t *const dim = node->in[0].shape.dim;
    return {dim[1], dim[2], dim[3], ckpt_node_int(node, "scale")};
}

template <typename T, int N, bool BILINEAR> static void launch(const ckpt_kernel_args *args, bool backward)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_tensor *const written = backward ? &args->node->in[0] : &args->node->out[0];
    const int64_t items = ckpt_shape_count(&written->shape) / N;
    const int grid = grid_for(cuda, items, THREADS);
    if (backward) {
        CKPT_LAUNCH(cuda, (upsample_backward<T, N, BILINEAR>), grid, THREADS, 0, items, shape_of(args->node),
                    (const T *)args->grad_out[0], (T *)args->grad_in[0]);
    } else {
        CKPT_LAUNCH(cuda, (upsample_forward<T, N, BILINEAR>), grid, THREADS, 0, items, shape_of(args->node),
                    (const T *)args->in[0], (T *)args->out[0]);
    }
}

template <typename T> static void start(const ckpt_kernel_args *args, bool backward)
{
    const bool bilinear = strcmp(ckpt_node_string(args->node, "mode"), "bilinear") == 0;
    if (args->node->in[0].shape.dim[1] % pack<T>::count == 0) {
        bilinear ? launch<T, pack<T>::count, true>(args, backward) : launch<T, pack<T>::count, false>(args, backward);
    } else {
        bilinear ? launch<T, 1, true>(args, backward) : launch<T, 1, false>(args, backward);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, false);
    return ckpt_cuda_launched("upsample", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start, args, true);
    return ckpt_cuda_launched("upsample backward", err);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_upsample;
const ckpt_kernel ckpt_cuda_upsample = {
    .op = "upsample",
    .forward = forward,
    .backward = backward,
};
