/* The sum of a loss, in an order that depends only on the number of terms: each block adds a part of
 * CKPT_GPU_LOSS_TERMS terms, in double, and one more block adds the parts. A part stores its sum and the number of its
 * terms that count, 16 bytes: little beside the pass over the inputs of the terms. */
#ifndef CKPT_KERNELS_CUDA_LOSS_CUH
#define CKPT_KERNELS_CUDA_LOSS_CUH

#include "kernels/cuda/device.cuh"

namespace
{
enum { LOSS_THREADS = 256 };

struct loss_part {
    double sum, counted;
    __device__ void operator+=(const loss_part &other)
    {
        sum += other.sum;
        counted += other.counted;
    }
};

/* One block. loss = the parts' sum / divisor; divisor 0: / the terms that count (0 / 0 is NaN, as in PyTorch). */
__global__ void __launch_bounds__(LOSS_THREADS)
    loss_finish(int64_t parts, const loss_part *part, double divisor, float *loss, float *counted)
{
    __shared__ loss_part shared[LOSS_THREADS];
    loss_part own = {0, 0};
    for (int64_t p = threadIdx.x; p < parts; p += LOSS_THREADS) {
        own.sum += part[p].sum;
        own.counted += part[p].counted;
    }
    const loss_part total = block_halves<LOSS_THREADS>(own, shared);
    if (threadIdx.x == 0) {
        *loss = (float)(total.sum / (divisor != 0 ? divisor : total.counted));
        if (counted != NULL) {
            *counted = (float)total.counted;
        }
    }
}

/* The gradient of a loss: 1 if none is given. */
__device__ inline float loss_gradient(const float *grad)
{
    return grad != NULL ? *grad : 1.0f;
}
} // namespace

#endif
