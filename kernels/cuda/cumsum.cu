/* Running sums along a dim; those of backward run from the end. Columns: a thread has the running sums of one. Rows, where
 * the dim is the last in memory: a block sums THREADS neighbours at a time by doubling steps, and carries their sum on.
 * x is read once, y written once: bound by memory where there are columns or rows for all threads, else by latency. */
#include "kernels/cuda/wide.cuh"

enum { THREADS = ITEM_THREADS };

template <typename T> __device__ static inline void cumsum_put(T *to, float sum, bool adds)
{
    *to = from_float<T>(adds ? to_float(*to) + sum : sum);
}

template <typename T>
__global__ void cumsum_columns(int64_t items, int64_t n, int64_t columns, bool back, bool adds, const T *from, T *to)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient q = divide(item, columns);
        const int64_t first = q.whole * n * columns + q.rest;
        float sum = 0;
#pragma unroll 4
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = first + (back ? n - 1 - i : i) * columns;
            sum += to_float(from[at]);
            cumsum_put(to + at, sum, adds);
        }
    }
}

template <typename T> __global__ void cumsum_rows(int64_t rows, int64_t n, bool back, bool adds, const T *from, T *to)
{
    __shared__ float sum[THREADS];
    const int thread = (int)threadIdx.x;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float carried = 0;
        for (int64_t first = 0; first < n; first += THREADS) {
            const int64_t i = first + thread, at = row * n + (back ? n - 1 - i : i);
            sum[thread] = i < n ? to_float(from[at]) : 0.0f;
            for (int step = 1; step < THREADS; step *= 2) {
                __syncthreads();
                const float before = thread >= step ? sum[thread - step] : 0.0f;
                __syncthreads();
                sum[thread] += before;
            }
            __syncthreads();
            if (i < n) {
                cumsum_put(to + at, carried + sum[thread], adds);
            }
            carried += sum[THREADS - 1];
            __syncthreads();
        }
    }
}

template <typename T> static void start(const ckpt_kernel_args *args, bool back, bool adds, const void *from, void *to)
{
    const ckpt_shape *const x = &args->node->in[0].shape;
    const int64_t axis = ckpt_node_int(args->node, "axis"), d = axis < 0 ? axis + x->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, stride);
    const int64_t n = x->dim[d], columns = stride[d], items = ckpt_shape_count(x) / n;
    if (columns == 1) {
        CKPT_LAUNCH(cuda_of(args), cumsum_rows<T>, grid_for(cuda_of(args), items, 1), THREADS, 0, items, n, back, adds,
                    (const T *)from, (T *)to);
    } else {
        CKPT_LAUNCH_ITEMS(cuda_of(args), cumsum_columns<T>, items, n, columns, back, adds, (const T *)from, (T *)to);
    }
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start<T>(args, false, false, args->in[0], args->out[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start<T>(args, true, (args->grad_in_adds & 1) != 0, args->grad_out[0], args->grad_in[0]);
}

extern "C" const ckpt_kernel ckpt_cuda_cumsum = {
    .op = "cumsum",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
