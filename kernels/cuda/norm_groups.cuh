/* The last step of the gradients of a norm's parameters: sums over groups of rows, or images, are added in order. */
#ifndef CKPT_KERNELS_CUDA_NORM_GROUPS_CUH
#define CKPT_KERNELS_CUDA_NORM_GROUPS_CUH

#include "kernels/cuda/device.cuh"

namespace
{
enum { LAST_COLUMNS = 32, LAST_ROWS = 32 };
} // namespace

/* Adds the columns of [groups][columns], of dw and then of db: up to 32 threads share the groups of a column and are added in order. */
static __global__ void __launch_bounds__(LAST_COLUMNS *LAST_ROWS)
    norm_groups(int64_t groups, int64_t columns, int64_t width, const float *part, float *dw, bool dw_adds, float *db,
                bool db_adds)
{
    __shared__ float sums[LAST_ROWS][LAST_COLUMNS];
    const int x_at = (int)threadIdx.x % LAST_COLUMNS, y_at = (int)threadIdx.x / LAST_COLUMNS;
    const int high = (int)blockDim.x / LAST_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * LAST_COLUMNS + x_at;
    float own = 0;
    if (column < columns) {
#pragma unroll 8
        for (int64_t g = y_at; g < groups; g += high) {
            own += part[g * columns + column];
        }
    }
    sums[y_at][x_at] = own;
    __syncthreads();
    if (y_at == 0 && column < columns) {
        float total = 0;
        for (int n = 0; n < high; n++) {
            total += sums[n][x_at];
        }
        float *const to = column < width ? dw + column : db + (column - width);
        *to = (column < width ? dw_adds : db_adds) ? *to + total : total;
    }
}

/* Gradients of the node's parameters, one or two vectors of `width`, from part[groups][parameters * width]. */
static void start_norm_groups(const ckpt_kernel_args *args, int64_t groups, int64_t width, const float *part)
{
    const int64_t columns = args->node->param_count * width;
    const unsigned blocks = (unsigned)((columns + LAST_COLUMNS - 1) / LAST_COLUMNS);
    const int high = groups < LAST_ROWS ? (int)groups : LAST_ROWS;
    CKPT_LAUNCH(cuda_of(args), norm_groups, blocks, LAST_COLUMNS * high, 0, groups, columns, width, part,
                args->grad_param[0], (args->grad_param_adds & 1) != 0,
                columns > width ? args->grad_param[1] : (float *)NULL, (args->grad_param_adds & 2) != 0);
}

#endif
