/* The last step of a sum down columns: another kernel has left the sums of its parts (parts of rows, groups of rows,
 * images) one behind another, and here they are added in order. Reads each part once for one FLOP: bound by memory. */
#ifndef CKPT_KERNELS_CUDA_PARTS_CUH
#define CKPT_KERNELS_CUDA_PARTS_CUH

#include "kernels/cuda/device.cuh"

namespace
{
enum { PARTS_COLUMNS = 32, PARTS_ROWS = 32 };

/* Where a sum goes; `adds`: to what is there. */
template <typename T> struct parts_to {
    T *at;
    bool adds;
};
} // namespace

/* Adds the columns of [parts][columns], of which `first` takes `width` and `second` the others: up to 32 threads share the
 * parts of a column and are added in order. */
template <typename T>
__global__ void __launch_bounds__(PARTS_COLUMNS *PARTS_ROWS)
    parts_add(int64_t parts, int64_t columns, int64_t width, const float *part, parts_to<T> first, parts_to<T> second)
{
    __shared__ float sums[PARTS_ROWS][PARTS_COLUMNS];
    const int x_at = (int)threadIdx.x % PARTS_COLUMNS, y_at = (int)threadIdx.x / PARTS_COLUMNS;
    const int high = (int)blockDim.x / PARTS_COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * PARTS_COLUMNS + x_at;
    float own = 0;
    if (column < columns) {
#pragma unroll 8
        for (int64_t p = y_at; p < parts; p += high) {
            own += part[p * columns + column];
        }
    }
    sums[y_at][x_at] = own;
    __syncthreads();
    if (y_at == 0 && column < columns) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y][x_at];
        }
        T *const to = column < width ? first.at + column : second.at + (column - width);
        const bool adds = column < width ? first.adds : second.adds;
        *to = from_float<T>(adds ? to_float(*to) + total : total);
    }
}

/* The sums of part[parts][width], or with a second place of part[parts][2 * width]. */
template <typename T>
static void start_parts(const ckpt_cuda *cuda, int64_t parts, int64_t width, const float *part,
                        const parts_to<T> &first, const parts_to<T> &second)
{
    const int64_t columns = second.at != NULL ? 2 * width : width;
    const int high = parts < PARTS_ROWS ? (int)parts : PARTS_ROWS;
    CKPT_LAUNCH(cuda, parts_add<T>, (unsigned)((columns + PARTS_COLUMNS - 1) / PARTS_COLUMNS), PARTS_COLUMNS * high, 0,
                parts, columns, width, part, first, second);
}

/* Gradients of a norm's parameters, one or two vectors of `width`, from part[groups][parameters * width]. */
static inline void start_norm_parts(const ckpt_kernel_args *args, int64_t groups, int64_t width, const float *part)
{
    const bool both = args->node->param_count > 1;
    start_parts<float>(cuda_of(args), groups, width, part, {args->grad_param[0], (args->grad_param_adds & 1) != 0},
                       {both ? args->grad_param[1] : NULL, (args->grad_param_adds & 2) != 0});
}

#endif
