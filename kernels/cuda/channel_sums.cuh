/* Two sums per channel over the rows (pixels) of images, in parts, for batch norm, to which the whole batch is one image,
 * and group norm. A block sums 256 channels of one part of an image's rows (ckpt_gpu_part_rows); its threads stride over
 * the rows and are then added in order. */
#ifndef CKPT_KERNELS_CUDA_CHANNEL_SUMS_CUH
#define CKPT_KERNELS_CUDA_CHANNEL_SUMS_CUH

#include "kernels/cuda/wide.cuh"

namespace
{
enum { THREADS = 256, STRIP = 256, APPLY_ROWS = 8, GRID_MOST = 65535 };

/* Of one image. */
struct channel_sizes {
    int64_t rows, channels, part_rows, parts;
};

/* The thread's N channels and first row in a block of `wide` threads across, and the block's image. */
template <int N> struct channel_place {
    int64_t image, channel;
    int row, high;
    bool inside;
    __device__ channel_place(int across, int64_t channels) : row((int)threadIdx.x / across), high(THREADS / across)
    {
        const unsigned strips = (unsigned)((channels + STRIP - 1) / STRIP);
        image = blockIdx.x / strips;
        channel = (int64_t)(blockIdx.x % strips) * STRIP + (int)threadIdx.x % across * N;
        inside = channel < channels;
    }
};

/* part[p][0][c] = sum of v, part[p][1][c] = sum of v (x - center), over the rows of part p, those of an image behind each
 * other. v is dy, or x - center where dy is NULL. A NULL center stands for the first row of the image. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    channel_sums(channel_sizes s, int across, const T *x, const T *dy, const float *center, float *part)
{
    __shared__ float plain[THREADS * N], product[THREADS * N];
    const channel_place<N> at(across, s.channels);
    const int64_t image = at.image * s.rows * s.channels, start = (int64_t)blockIdx.y * s.part_rows;
    const int64_t end = start + s.part_rows < s.rows ? start + s.part_rows : s.rows;
    wide<float, N> sum = {}, squares = {};
    if (at.inside) {
        const wide<float, N> middle =
            center != NULL ? load_wide<N>(center + at.channel) : load_floats<N>(x + image + at.channel);
#pragma unroll 4
        for (int64_t r = start + at.row; r < end; r += at.high) {
            const int64_t from = image + r * s.channels + at.channel;
            const wide<float, N> a = load_floats<N>(x + from);
            const wide<float, N> b = dy != NULL ? load_floats<N>(dy + from) : a;
            for (int j = 0; j < N; j++) {
                const float u = a.at[j] - middle.at[j], v = dy != NULL ? b.at[j] : u;
                sum.at[j] += v;
                squares.at[j] += v * u;
            }
        }
    }
    for (int j = 0; j < N; j++) {
        plain[threadIdx.x * N + j] = sum.at[j];
        product[threadIdx.x * N + j] = squares.at[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    const int64_t channel = at.channel - mine % across * N + mine;
    if (mine < across * N && channel < s.channels) {
        float total = 0, total_product = 0;
        for (int y = 0; y < at.high; y++) {
            total += plain[y * across * N + mine];
            total_product += product[y * across * N + mine];
        }
        float *const to = part + 2 * s.channels * (at.image * s.parts + (int64_t)blockIdx.y) + channel;
        to[0] = total;
        to[s.channels] = total_product;
    }
}

/* Blocks for every strip of channels of each image, and every so many of its rows. */
dim3 channel_grid(const channel_sizes &s, int64_t images, int64_t rows_per_block)
{
    const int64_t blocks = (s.rows + rows_per_block - 1) / rows_per_block;
    return dim3((unsigned)(images * ((s.channels + STRIP - 1) / STRIP)),
                (unsigned)(blocks < GRID_MOST ? blocks : (int64_t)GRID_MOST));
}
} // namespace

#endif
