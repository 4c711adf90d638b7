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
};

/* Sums over the block, by halves; thread 0 has the result. `shared`: one element per thread. */
__device__ inline loss_part loss_add(const loss_part &own, loss_part *shared)
{
    const int mine = (int)threadIdx.x;
    shared[mine] = own;
    __syncthreads();
    for (int half = LOSS_THREADS / 2; half > 0; half /= 2) {
        if (mine < half) {
            shared[mine].sum += shared[mine + half].sum;
            shared[mine].counted += shared[mine + half].counted;
        }
        __syncthreads();
    }
    return shared[0];
}

/* One block. loss = the parts' sum / divisor; divisor 0: / the terms that count (0 / 0 is NaN, as in PyTorch). */
__global__ void __launch_bounds__(LOSS_THREADS)
    loss_finish(int64_t parts, const loss_part *part, double divisor, float *loss, float *counted)
{
    __shared__ double storage[2 * LOSS_THREADS];
    loss_part own = {0, 0};
    for (int64_t p = threadIdx.x; p < parts; p += LOSS_THREADS) {
        own.sum += part[p].sum;
        own.counted += part[p].counted;
    }
    const loss_part total = loss_add(own, (loss_part *)storage);
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
