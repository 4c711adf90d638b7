/* A row of the table for every pair of query and key. Forward: a warp takes a row of keys and fills it, row of the table
 * by row; it writes every element once, so that memory is the bound. Backward: a block sums a number of the table over
 * the pairs that have read it, in a fixed order; it reads every element once. */
#include "kernels/cuda/device.cuh"

extern "C" {
#include "ops/relative_bias.h"
}

enum { THREADS = 128, WARPS = THREADS / 32 };

template <typename T>
__global__ void __launch_bounds__(THREADS) relative_forward(ckpt_relative r, const float *table, T *y)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (item >= r.heads * r.queries) {
        return;
    }
    for (int64_t row = 0; row < r.rows; row++) {
        int64_t from = 0, end = 0;
        const T value = from_float<T>(table[row * r.heads + item / r.queries]);
        ckpt_relative_keys(&r, row, item % r.queries, &from, &end);
        for (int64_t key = from + lane; key < end; key += 32) {
            y[item * r.keys + key] = value;
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) relative_backward(ckpt_relative r, const T *dy, float *grad, bool adds)
{
    __shared__ float shared[32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t row = blockIdx.x / r.heads, head = blockIdx.x % r.heads;
    float sum = 0;
    for (int64_t query = warp; query < r.queries; query += WARPS) {
        int64_t from = 0, end = 0;
        ckpt_relative_keys(&r, row, query, &from, &end);
        for (int64_t key = from + lane; key < end; key += 32) {
            sum += to_float(dy[(head * r.queries + query) * r.keys + key]);
        }
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) {
        grad[blockIdx.x] = adds ? grad[blockIdx.x] + sum : sum;
    }
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_relative r = ckpt_relative_of(args->node);
    CKPT_LAUNCH(cuda_of(args), relative_forward<T>, (unsigned)((r.heads * r.queries + WARPS - 1) / WARPS), THREADS, 0,
                r, args->param[0], (T *)args->out[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    const ckpt_relative r = ckpt_relative_of(args->node);
    CKPT_LAUNCH(cuda_of(args), relative_backward<T>, (unsigned)(r.rows * r.heads), THREADS, 0, r,
                (const T *)args->grad_out[0], args->grad_param[0], (args->grad_param_adds & 1) != 0);
}

extern "C" const ckpt_kernel ckpt_cuda_relative_bias = {
    .op = "relative_bias",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
