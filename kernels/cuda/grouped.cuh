/* Products over the rows of groups that follow each other, where each group has a matrix of its own: y = x W_g, and the
 * gradients dW_g = dy^T x. Where the groups begin is known on the device alone. A block makes 64 x 64 of a result from
 * slices of 32 in shared memory: in bfloat16 on tensor cores, in float32 by multiplication and addition. Every sum goes
 * in one order.
 *
 * A slice is read once for 64 columns of the result: at 2 x 64 x 64 FLOP for 2 x 64 elements, bound by arithmetic in
 * float32, and in bfloat16 by the reads from the second-level cache. */
#ifndef CKPT_KERNELS_CUDA_GROUPED_CUH
#define CKPT_KERNELS_CUDA_GROUPED_CUH

#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
constexpr int GROUPED_SIDE = 64, GROUPED_DEPTH = 32, GROUPED_THREADS = 128;

/* Rows of a slice are GROUPED_DEPTH numbers and a gap that keeps warps off one another's banks. */
template <typename T> struct grouped_slice {
    static constexpr int pitch = GROUPED_DEPTH + (sizeof(T) == 2 ? 8 : 1);
    alignas(16) T at[GROUPED_SIDE * pitch];
};

/* slice[r][k] = from[r * stride + k], or from[k * stride + r] if TURNED, and 0 outside r < rows, k < depth. */
template <bool TURNED, typename T>
__device__ inline void grouped_load(grouped_slice<T> &slice, const T *from, int64_t stride, int64_t rows, int64_t depth)
{
    constexpr int LINE = TURNED ? GROUPED_SIDE : GROUPED_DEPTH;
    for (int i = (int)threadIdx.x; i < GROUPED_SIDE * GROUPED_DEPTH; i += GROUPED_THREADS) {
        const int r = TURNED ? i % LINE : i / LINE, k = TURNED ? i / LINE : i % LINE;
        const bool inside = r < rows && k < depth;
        slice.at[r * grouped_slice<T>::pitch + k] =
            inside ? from[TURNED ? k * stride + r : r * stride + k] : from_float<T>(0.0f);
    }
}

/* A thread's 32 numbers of the result: of a warp's 32 x 32 what mma leaves it, or 8 x 4 neighbours. */
struct grouped_place {
    int row, column;
};
template <typename T> __device__ inline grouped_place grouped_place_of(int i)
{
    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
    if constexpr (sizeof(T) == 2) {
        const int quarter = i % 4, column = i / 4 % 4, row = i / 16;
        return {warp / 2 * 32 + row * 16 + lane / 4 + 8 * (quarter / 2),
                warp % 2 * 32 + column * 8 + lane % 4 * 2 + quarter % 2};
    } else {
        return {thread / 16 * 8 + i / 4, thread % 16 * 4 + i % 4};
    }
}

/* Two neighbours, of even columns, as mma takes them. */
__device__ inline uint32_t grouped_two(const bf16 *at)
{
    const wide<bf16, 2> two = load_wide<2>(at);
    uint32_t bits;
    memcpy(&bits, &two, sizeof bits);
    return bits;
}

/* sum += a b^T over the depth of the slices. */
__device__ inline void grouped_multiply(float (&sum)[32], const grouped_slice<float> &a, const grouped_slice<float> &b)
{
    constexpr int pitch = grouped_slice<float>::pitch;
    const int row = (int)threadIdx.x / 16 * 8, column = (int)threadIdx.x % 16 * 4;
    for (int k = 0; k < GROUPED_DEPTH; k++) {
        CKPT_UNROLL
        for (int i = 0; i < 32; i++) {
            sum[i] += a.at[(row + i / 4) * pitch + k] * b.at[(column + i % 4) * pitch + k];
        }
    }
}
__device__ inline void grouped_multiply(float (&sum)[32], const grouped_slice<bf16> &a, const grouped_slice<bf16> &b)
{
    constexpr int pitch = grouped_slice<bf16>::pitch;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int k = 2 * t; k < GROUPED_DEPTH; k += 16) {
        uint32_t left[2][4], right[4][2];
        CKPT_UNROLL
        for (int i = 0; i < 8; i++) { /* rows g and g + 8, columns 2t and 2t + 8 */
            const int row = warp / 2 * 32 + i / 4 * 16 + g + i % 2 * 8;
            left[i / 4][i % 4] = grouped_two(a.at + row * pitch + k + i / 2 % 2 * 8);
            right[i / 2][i % 2] = grouped_two(b.at + (warp % 2 * 32 + i / 2 * 8 + g) * pitch + k + i % 2 * 8);
        }
        CKPT_UNROLL
        for (int i = 0; i < 8; i++) {
            float part[4];
            CKPT_UNROLL
            for (int j = 0; j < 4; j++) {
                part[j] = sum[4 * i + j];
            }
            mma_bf16(part, left[i / 4], right[i % 4][0], right[i % 4][1]);
            CKPT_UNROLL
            for (int j = 0; j < 4; j++) {
                sum[4 * i + j] = part[j];
            }
        }
    }
}

/* y[row, column] for rows of a group: the sum over one or two pairs of x [rows, inner] times the group's matrix, which is
 * stored as [columns, inner], or as [inner, columns] if TURNED. first[g] is the first row of group g, first[groups] the
 * end. */
template <typename T> struct grouped_rows_args {
    int64_t columns, inner;
    int groups;
    const int32_t *first;
    const T *x[2], *w[2]; /* the second pair may be NULL */
    T *y;
};

template <typename T, bool TURNED>
__global__ void __launch_bounds__(GROUPED_THREADS) grouped_rows(grouped_rows_args<T> a)
{
    __shared__ grouped_slice<T> left, right;
    int64_t tile = blockIdx.x, start = 0, end = 0;
    int group = 0;
    for (; group < a.groups; group++) {
        start = a.first[group];
        end = a.first[group + 1];
        const int64_t tiles = (end - start + GROUPED_SIDE - 1) / GROUPED_SIDE;
        if (tile < tiles) {
            break;
        }
        tile -= tiles;
    }
    if (group == a.groups) {
        return; /* more blocks than tiles, all of its threads */
    }
    const int64_t row = start + tile * GROUPED_SIDE, column = (int64_t)blockIdx.y * GROUPED_SIDE;
    float sum[32] = {0};
    for (int p = 0; p < 2; p++) { /* not indexed by p: the arguments would be copied to local memory */
        const T *const x = (p == 0 ? a.x[0] : a.x[1]) + row * a.inner;
        const T *const w = (p == 0 ? a.w[0] : a.w[1]) + group * a.columns * a.inner;
        if (p == 1 && a.x[1] == NULL) {
            break;
        }
        for (int64_t k = 0; k < a.inner; k += GROUPED_DEPTH) {
            grouped_load<false>(left, x + k, a.inner, end - row, a.inner - k);
            grouped_load<TURNED>(right, TURNED ? w + k * a.columns + column : w + column * a.inner + k,
                                 TURNED ? a.columns : a.inner, a.columns - column, a.inner - k);
            __syncthreads();
            grouped_multiply(sum, left, right);
            __syncthreads();
        }
    }
    CKPT_UNROLL
    for (int i = 0; i < 32; i++) {
        const grouped_place place = grouped_place_of<T>(i);
        if (row + place.row < end && column + place.column < a.columns) {
            a.y[(row + place.row) * a.columns + column + place.column] = from_float<T>(sum[i]);
        }
    }
}

/* y_g[i, j] = the sum over the rows r of group g of a[r, i] b[r, j]; 0 for a group without rows. */
template <typename T>
__global__ void __launch_bounds__(GROUPED_THREADS)
    grouped_weights(int64_t height, int64_t width, const int32_t *first, const T *a, const T *b, float *y)
{
    __shared__ grouped_slice<T> left, right;
    const int group = (int)blockIdx.z;
    const int64_t i0 = (int64_t)blockIdx.y * GROUPED_SIDE, j0 = (int64_t)blockIdx.x * GROUPED_SIDE,
                  end = first[group + 1];
    float sum[32] = {0};
    for (int64_t r = first[group]; r < end; r += GROUPED_DEPTH) {
        grouped_load<true>(left, a + r * height + i0, height, height - i0, end - r);
        grouped_load<true>(right, b + r * width + j0, width, width - j0, end - r);
        __syncthreads();
        grouped_multiply(sum, left, right);
        __syncthreads();
    }
    CKPT_UNROLL
    for (int i = 0; i < 32; i++) {
        const grouped_place place = grouped_place_of<T>(i);
        if (i0 + place.row < height && j0 + place.column < width) {
            y[(group * height + i0 + place.row) * width + j0 + place.column] = sum[i];
        }
    }
}

/* rows: the most there are. */
template <typename T, bool TURNED>
static void start_grouped_rows(const ckpt_cuda *cuda, int64_t rows, const grouped_rows_args<T> &a)
{
    const int64_t across = (a.columns + GROUPED_SIDE - 1) / GROUPED_SIDE;
    const dim3 grid((unsigned)(rows / GROUPED_SIDE + a.groups), (unsigned)across);
    CKPT_LAUNCH(cuda, (grouped_rows<T, TURNED>), grid, GROUPED_THREADS, 0, a);
}
template <typename T>
static void start_grouped_weights(const ckpt_cuda *cuda, int groups, int64_t height, int64_t width,
                                  const int32_t *first, const T *a, const T *b, float *y)
{
    const dim3 grid((unsigned)((width + GROUPED_SIDE - 1) / GROUPED_SIDE),
                    (unsigned)((height + GROUPED_SIDE - 1) / GROUPED_SIDE), (unsigned)groups);
    CKPT_LAUNCH(cuda, grouped_weights<T>, grid, GROUPED_THREADS, 0, height, width, first, a, b, y);
}
} // namespace

#endif
