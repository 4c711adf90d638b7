/* Product of two tensors of one shape, or of x [N, C, H, W] and one factor per channel [N, C, 1, 1]: channels lie next
 * to each other, so a gate is a row of C factors that every pixel of its image is multiplied by.
 * Forward moves 3 tensors (2 and the gates) for one FLOP an element. Backward moves 5 for two: dy, both inputs, both
 * gradients; with gates 3 for three, since one pass over dy and x gives dx and the parts of the gates' gradient, which
 * a second kernel adds in order. All bound by memory. */
#include "kernels/cuda/rows.cuh"

enum { THREADS = 256, STRIP = 256 /* channels of one block of the gates' gradient */ };

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
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        const int64_t at = i * pack<T>::count;
        store16(y + at, product_of(load16(a + at), load16(b + at)));
    }
}

/* da = dy b, db = dy a; NULL where not wanted. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    mul_backward(int64_t packs, const T *a, const T *b, const T *dy, T *da, T *db)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
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
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, across = C / V;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < cells; i += stride) {
        const int64_t pixel = i / across, channel = (i - pixel * across) * V;
        cell<T, V> v = load_cell<V>(x + i * V);
        const cell<T, V> factor = load_cell<V>(gate + pixel / image * C + channel);
        for (int j = 0; j < V; j++) {
            v.at[j] *= factor.at[j];
        }
        store_cell(y + i * V, v);
    }
}

/* Block (image and strip of channels, part of the pixels): threads are `wide` cells of V channels times THREADS / wide
 * pixels. dx = dy gate; to[part][image][channel] = the part's sum of dy x, the gradient itself where there is one part.
 * dx, to: NULL where not wanted. */
template <typename T, int V, typename G>
__global__ void __launch_bounds__(THREADS) mul_gate_backward(int64_t C, int64_t image, int64_t part_pixels, int wide,
                                                             const T *x, const T *gate, const T *dy, T *dx, G *to)
{
    __shared__ float sums[THREADS * V];
    const int x_at = (int)threadIdx.x % wide, y_at = (int)threadIdx.x / wide, high = THREADS / wide;
    const int64_t strips = (C + STRIP - 1) / STRIP, images = gridDim.x / strips, n = blockIdx.x / strips;
    const int64_t strip = (blockIdx.x - n * strips) * STRIP, channel = strip + x_at * V;
    const int64_t start = (int64_t)blockIdx.y * part_pixels;
    const int64_t end = start + part_pixels < image ? start + part_pixels : image;
    float sum[V] = {0};
    if (channel < C) {
        const cell<T, V> factor = load_cell<V>(gate + n * C + channel);
#pragma unroll 2
        for (int64_t p = start + y_at; p < end; p += high) {
            const int64_t at = (n * image + p) * C + channel;
            const cell<T, V> value = load_cell<V>(x + at), slope = load_cell<V>(dy + at);
            cell<T, V> product;
            for (int j = 0; j < V; j++) {
                product.at[j] = slope.at[j] * factor.at[j];
                sum[j] += slope.at[j] * value.at[j];
            }
            if (dx != NULL) {
                store_cell(dx + at, product);
            }
        }
    }
    for (int j = 0; j < V; j++) {
        sums[(y_at * wide + x_at) * V + j] = sum[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (to != NULL && mine < wide * V && strip + mine < C) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y * wide * V + mine];
        }
        to[(blockIdx.y * images + n) * C + strip + mine] = from_float<G>(total);
    }
}

/* dgate[g] = the parts of gate g, added in order; at most 512 of them. */
template <typename T>
__global__ void __launch_bounds__(THREADS) mul_gate_parts(int64_t parts, int64_t gates, const float *part, T *dgate)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; g < gates; g += stride) {
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

template <typename T, int V> static void start_gate_forward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t cells = ckpt_shape_count(shape) / V;
    CKPT_LAUNCH(cuda, (mul_gate_forward<T, V>), grid_for(cuda, cells, THREADS), THREADS, 0, cells, shape->dim[1],
                shape->dim[2] * shape->dim[3], (const T *)args->in[0], (const T *)args->in[1], (T *)args->out[0]);
}

template <typename T, int V> static void start_gate_backward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t N = shape->dim[0], C = shape->dim[1], image = shape->dim[2] * shape->dim[3];
    const int64_t part = ckpt_gpu_part_rows(N, image, C), parts = (image + part - 1) / part;
    const dim3 grid((unsigned)(N * ((C + STRIP - 1) / STRIP)), (unsigned)parts);
    const T *const x = (const T *)args->in[0], *const gate = (const T *)args->in[1];
    const T *const dy = (const T *)args->grad_out[0];
    T *const dx = (T *)args->grad_in[0], *const dgate = (T *)args->grad_in[1];
    const int wide = strip_width(C, STRIP, V);
    if (parts == 1 || dgate == NULL) {
        CKPT_LAUNCH(cuda, (mul_gate_backward<T, V, T>), grid, THREADS, 0, C, image, part, wide, x, gate, dy, dx, dgate);
        return;
    }
    float *const to = (float *)args->workspace;
    CKPT_LAUNCH(cuda, (mul_gate_backward<T, V, float>), grid, THREADS, 0, C, image, part, wide, x, gate, dy, dx, to);
    CKPT_LAUNCH(cuda, mul_gate_parts<T>, grid_for(cuda, N * C, THREADS), THREADS, 0, parts, N * C, (const float *)to,
                dgate);
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t packs = packs_of<T>(ckpt_shape_count(shape));
    if (!gated(args->node)) {
        CKPT_LAUNCH(cuda, mul_forward<T>, grid_for(cuda, packs, THREADS), THREADS, 0, packs, (const T *)args->in[0],
                    (const T *)args->in[1], (T *)args->out[0]);
    } else if (shape->dim[1] % pack<T>::count == 0) {
        start_gate_forward<T, pack<T>::count>(args);
    } else {
        start_gate_forward<T, 1>(args);
    }
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t packs = packs_of<T>(ckpt_shape_count(shape));
    if (!gated(args->node)) {
        CKPT_LAUNCH(cuda, mul_backward<T>, grid_for(cuda, packs, THREADS), THREADS, 0, packs, (const T *)args->in[0],
                    (const T *)args->in[1], (const T *)args->grad_out[0], (T *)args->grad_in[0], (T *)args->grad_in[1]);
    } else if (shape->dim[1] % pack<T>::count == 0) {
        start_gate_backward<T, pack<T>::count>(args);
    } else {
        start_gate_backward<T, 1>(args);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_forward, args);
    return ckpt_cuda_launched("mul", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args);
    return ckpt_cuda_launched("mul backward", err);
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)state;
    *forward = *backward = 0;
    node->op->gpu_workspace(node, forward, backward);
}

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_mul;
const ckpt_kernel ckpt_cuda_mul = {
    .op = "mul",
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
