/* A learned row per position, added to every sequence of the batch. The parameter is float32 in any model; it is read
 * once for each sequence, from the caches. Backward takes one pass: a thread has the same position in all sequences,
 * copies each gradient to dx and adds them up in order. Bytes moved: forward x, y and the table; backward dy, dx (twice
 * when it adds) and the table's gradient. One addition for each element: bound by memory. */
#include "kernels/cuda/wide.cuh"

template <typename T, int N>
__global__ void positional_forward(int64_t items, int64_t plane, const T *x, const float *table, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const wide<T, N> value = load_wide<N>(x + item * N);
        wide<float, N> sum = load_wide<N>(table + divide(item, plane).rest * N);
        for (int j = 0; j < N; j++) {
            sum.at[j] += to_float(value.at[j]);
        }
        put_wide<N>(y + item * N, sum, false);
    }
}

/* `plane`: accesses in one sequence. `rest`: those of the table's rows behind the last position. dx may be NULL, or
 * dy. */
struct positional_gradient {
    int64_t batch, plane, rest;
    bool x_adds, table_adds;
};

template <typename T, int N>
__global__ void positional_backward(positional_gradient shape, const T *dy, T *dx, float *table)
{
    for (int64_t item = first_item(); item < shape.plane; item += item_step()) {
        wide<float, N> sum = {};
        for (int64_t b = 0; b < shape.batch; b++) {
            const int64_t at = (b * shape.plane + item) * N;
            const wide<T, N> slope = load_wide<N>(dy + at);
            wide<float, N> value;
            for (int j = 0; j < N; j++) {
                value.at[j] = to_float(slope.at[j]);
                sum.at[j] += value.at[j];
            }
            if (dx != NULL) {
                put_wide<N>(dx + at, value, shape.x_adds);
            }
        }
        put_wide<N>(table + item * N, sum, shape.table_adds);
    }
    for (int64_t item = first_item(); item < shape.rest && !shape.table_adds; item += item_step()) {
        put_wide<N>(table + (shape.plane + item) * N, wide<float, N>{}, false);
    }
}

template <typename T, int N> static void start_forward(const ckpt_kernel_args *args)
{
    const int64_t *const dim = args->node->in[0].shape.dim;
    const int64_t plane = dim[1] * dim[2] / N;
    CKPT_LAUNCH_ITEMS(cuda_of(args), (positional_forward<T, N>), dim[0] * plane, plane, (const T *)args->in[0],
                      args->param[0], (T *)args->out[0]);
}

template <typename T, int N> static void start_backward(const ckpt_kernel_args *args)
{
    const int64_t *const dim = args->node->in[0].shape.dim;
    positional_gradient shape = {};
    shape.batch = dim[0];
    shape.plane = dim[1] * dim[2] / N;
    shape.rest = (args->node->param[0].tensor.shape.dim[0] - dim[1]) * dim[2] / N;
    shape.x_adds = (args->grad_in_adds & 1) != 0;
    shape.table_adds = (args->grad_param_adds & 1) != 0;
    const int64_t items = shape.plane > shape.rest ? shape.plane : shape.rest;
    CKPT_LAUNCH(cuda_of(args), (positional_backward<T, N>), grid_for(cuda_of(args), items, ITEM_THREADS), ITEM_THREADS,
                0, shape, (const T *)args->grad_out[0], (T *)args->grad_in[0], args->grad_param[0]);
}

/* Packs need every row of the table to start at 16 bytes. */
static int64_t features_of(const ckpt_node *node)
{
    return node->in[0].shape.dim[2];
}

extern "C" const ckpt_kernel ckpt_cuda_positional_embedding = {
    .op = "positional_embedding",
    .forward = CKPT_WIDE(features_of, start_forward),
    .backward = CKPT_WIDE(features_of, start_backward),
};
