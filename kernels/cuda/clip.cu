/* The norm of all gradients and the scale that clips them. Each block sums the squares of one part of the numbers
 * (ckpt_gpu_square_part), and one more block adds the parts. A last block adds the sums of the layers in order and
 * computes the scale, which updates read from the device, so that all of it is part of a recording. Sums are double, in
 * which the square of a float is exact. Reads each number once for 2 FLOP: bound by memory. Numbers may start anywhere,
 * so they are loaded one by one, neighbours by neighbouring threads. */
#include "kernels/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) clip_squares(int64_t count, int64_t part, const float *from, double *sums)
{
    __shared__ double shared[THREADS];
    const int64_t start = (int64_t)blockIdx.x * part, end = start + part < count ? start + part : count;
    double own = 0;
#pragma unroll 8
    for (int64_t i = start + (int)threadIdx.x; i < end; i += THREADS) {
        const double x = (double)from[i];
        own += x * x;
    }
    const double sum = block_halves<THREADS>(own, shared);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(THREADS) clip_parts(int64_t parts, const double *sums, double *sum)
{
    __shared__ double shared[THREADS];
    double own = 0;
    for (int64_t p = threadIdx.x; p < parts; p += THREADS) {
        own += sums[p];
    }
    const double all = block_halves<THREADS>(own, shared);
    if (threadIdx.x == 0) {
        *sum = all;
    }
}

/* One block: all threads load, the first adds in order. */
__global__ void __launch_bounds__(THREADS) clip_find_scale(const ckpt_cuda_counters *counters, int64_t count,
                                                           const double *sum, double base, double most, float *scale)
{
    __shared__ double some[THREADS];
    double total = 0;
    for (int64_t from = 0; from < count; from += THREADS) {
        const int64_t at = from + (int)threadIdx.x, left = count - from;
        some[threadIdx.x] = at < count ? sum[at] : 0.0;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int j = 0; j < THREADS && j < left; j++) {
                total += some[j];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const double ratio = most * counters->numbers.clip / (base * sqrt(total) + 1e-6);
        *scale = (float)(base * (ratio >= 1.0 ? 1.0 : ratio)); /* NaN passes */
    }
}

} // namespace

extern "C" ckpt_code ckpt_cuda_square_sum(ckpt_cuda *cuda, const float *from, int64_t count, double *sum,
                                          void *workspace, ckpt_err *err)
{
    const int64_t part = ckpt_gpu_square_part(count), parts = (count + part - 1) / part;
    if (parts > 0) {
        CKPT_LAUNCH(cuda, clip_squares, (unsigned)parts, THREADS, 0, count, part, from, (double *)workspace);
    }
    CKPT_LAUNCH(cuda, clip_parts, 1, THREADS, 0, parts, (const double *)workspace, sum);
    return ckpt_cuda_launched("sum of squares", err);
}

extern "C" ckpt_code ckpt_cuda_clip_scale(ckpt_cuda *cuda, const double *sum, int64_t count, double base, double most,
                                          float *scale, ckpt_err *err)
{
    CKPT_LAUNCH(cuda, clip_find_scale, 1, THREADS, 0, cuda->counters, count, sum, base, most, scale);
    return ckpt_cuda_launched("scale of the gradients", err);
}
