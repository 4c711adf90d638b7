/* Product of two tensors of one shape, or of x [N, C, H, W] and one factor per channel [N, C, 1, 1]. Channels are
 * neighbours in memory, so a gate is a row of C factors that multiplies every pixel of its image.
 * Forward moves 3 tensors (with gates 2 and the gates) for one FLOP an element. Backward moves 5 for two FLOP: dy, both
 * inputs, both gradients. With gates it moves 3 for three: one pass over dy and x gives dx and the parts of the gates'
 * gradient, which a second kernel adds in order. All are bound by memory. */
#include "kernels/cuda/wide.cuh"

enum { THREADS = ITEM_THREADS, STRIP = 256 /* channels of one block of the gates' gradient */ };

template <typename T> __device__ inline pack<T> product_of(const pack<T> &a, const pack<T> &b)
{
    pack<T> y;
    for (int j = 0; j < pack<T>::count; j++) {
        y.at[j] = from_float<T>(to_float(a.at[j]) * to_float(b.at[j]));
    }
    return y;
}

/* y may be a or b. */
template <typename T>
__global__ void __launch_bounds__(THREADS) mul_forward(int64_t packs, const T *a, const T *b, T *y)
{
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        store16(y + at, product_of(load16(a + at), load16(b + at)));
    }
}

/* da = dy b, db = dy a; NULL where not wanted. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    mul_backward(int64_t packs, const T *a, const T *b, const T *dy, T *da, T *db)
{
    for (int64_t i = first_item(); i < packs; i += item_step()) {
        const int64_t at = i * pack<T>::count;
        const pack<T> slope = load16(dy + at);
        const pack<T> x = db != NULL ? load16(a + at) : pack<T>(), z = da != NULL ? load16(b + at) : pack<T>();
        if (da != NULL) {
            store16(da + at, product_of(slope, z));
        }
        if (db != NULL) {
            store16(db + at, product_of(slope, x));
        }
    }
}

/* V channels of one pixel per thread; y may be x. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    mul_gate_forward(int64_t cells, int64_t C, int64_t image, const T *x, const T *gate, T *y)
{
    const int64_t across = C / V;
    for (int64_t i = first_item(); i < cells; i += item_step()) {
        const int64_t pixel = i / across, channel = (i - pixel * across) * V;
        wide<float, V> v = load_floats<V>(x + i * V);
        const wide<float, V> factor = load_floats<V>(gate + pixel / image * C + channel);
        for (int j = 0; j < V; j++) {
            v.at[j] *= factor.at[j];
        }
        put_wide<V>(y + i * V, v, false);
    }
}

/* A block is one (image and strip of channels, part of the pixels). Its threads are `across` cells of V channels times
 * THREADS / across pixels. dx = dy gate; to[part][image][channel] = the part's sum of dy x, the gradient itself where
 * there is one part. dx, to: NULL where not wanted. */
template <typename T, int V, typename G>
__global__ void __launch_bounds__(THREADS) mul_gate_backward(int64_t C, int64_t image, int64_t part_pixels, int across,
                                                             const T *x, const T *gate, const T *dy, T *dx, G *to)
{
    __shared__ float sums[THREADS * V];
    const int x_at = (int)threadIdx.x % across, y_at = (int)threadIdx.x / across, high = THREADS / across;
    const int64_t strips = (C + STRIP - 1) / STRIP, images = gridDim.x / strips, n = blockIdx.x / strips;
    const int64_t strip = (blockIdx.x - n * strips) * STRIP, channel = strip + x_at * V;
    const int64_t start = (int64_t)blockIdx.y * part_pixels;
    const int64_t end = start + part_pixels < image ? start + part_pixels : image;
    float sum[V] = {0};
    if (channel < C) {
        const wide<float, V> factor = load_floats<V>(gate + n * C + channel);
#pragma unroll 2
        for (int64_t p = start + y_at; p < end; p += high) {
            const int64_t at = (n * image + p) * C + channel;
            const wide<float, V> value = load_floats<V>(x + at), slope = load_floats<V>(dy + at);
            wide<float, V> product;
            for (int j = 0; j < V; j++) {
                product.at[j] = slope.at[j] * factor.at[j];
                sum[j] += slope.at[j] * value.at[j];
            }
            if (dx != NULL) {
                put_wide<V>(dx + at, product, false);
            }
        }
    }
    for (int j = 0; j < V; j++) {
        sums[(y_at * across + x_at) * V + j] = sum[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (to != NULL && mine < across * V && strip + mine < C) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y * across * V + mine];
        }
        to[(blockIdx.y * images + n) * C + strip + mine] = from_float<G>(total);
    }
}

/* dgate[g] = the parts of gate g, at most 512, added in order. */
template <typename T>
__global__ void __launch_bounds__(THREADS) mul_gate_parts(int64_t parts, int64_t gates, const float *part, T *dgate)
{
    for (int64_t g = first_item(); g < gates; g += item_step()) {
        float sum = 0;
#pragma unroll 8
        for (int64_t p = 0; p < parts; p++) {
            sum += part[p * gates + g];
        }
        dgate[g] = from_float<T>(sum);
    }
}

static bool gated(const ckpt_node *node)
{
    return !ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape);
}

/* With gates, packs need every row of channels to start at 16 bytes. */
static int64_t channels_of(const ckpt_node *node)
{
    return gated(node) ? node->in[0].shape.dim[1] : 8;
}

template <typename T, int V> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t count = ckpt_shape_count(shape);
    const T *const a = (const T *)args->in[0], *const b = (const T *)args->in[1];
    if (gated(args->node)) {
        CKPT_LAUNCH_ITEMS(cuda_of(args), (mul_gate_forward<T, V>), count / V, shape->dim[1],
                          shape->dim[2] * shape->dim[3], a, b, (T *)args->out[0]);
    } else {
        CKPT_LAUNCH_ITEMS(cuda_of(args), mul_forward<T>, packs_of<T>(count), a, b, (T *)args->out[0]);
    }
}

template <typename T, int V>
static void start_gate_backward(const ckpt_cuda *cuda, const ckpt_shape *shape, const T *x, const T *gate, const T *dy,
                                T *dx, T *dgate, float *workspace)
{
    const int64_t N = shape->dim[0], C = shape->dim[1], image = shape->dim[2] * shape->dim[3];
    const int64_t part = ckpt_gpu_part_rows(N, image, C), parts = (image + part - 1) / part;
    const dim3 grid((unsigned)(N * ((C + STRIP - 1) / STRIP)), (unsigned)parts);
    const int across = strip_threads(C, STRIP, V);
    if (parts == 1 || dgate == NULL) {
        CKPT_LAUNCH(cuda, (mul_gate_backward<T, V, T>), grid, THREADS, 0, C, image, part, across, x, gate, dy, dx,
                    dgate);
        return;
    }
    CKPT_LAUNCH(cuda, (mul_gate_backward<T, V, float>), grid, THREADS, 0, C, image, part, across, x, gate, dy, dx,
                workspace);
    CKPT_LAUNCH(cuda, mul_gate_parts<T>, grid_for(cuda, N * C, THREADS), THREADS, 0, parts, N * C,
                (const float *)workspace, dgate);
}

template <typename T, int V> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const T *const a = (const T *)args->in[0], *const b = (const T *)args->in[1];
    const T *const dy = (const T *)args->grad_out[0];
    T *const da = (T *)args->grad_in[0], *const db = (T *)args->grad_in[1];
    if (gated(args->node)) {
        start_gate_backward<T, V>(cuda_of(args), shape, a, b, dy, da, db, (float *)args->workspace);
    } else {
        CKPT_LAUNCH_ITEMS(cuda_of(args), mul_backward<T>, packs_of<T>(ckpt_shape_count(shape)), a, b, dy, da, db);
    }
}

extern "C" const ckpt_kernel ckpt_cuda_mul = {
    .op = "mul",
    .workspace = op_workspace,
    .forward = CKPT_WIDE(channels_of, start_forward),
    .backward = CKPT_WIDE(channels_of, start_backward),
};
