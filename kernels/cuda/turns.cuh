/* Sine and cosine of an angle that was counted in turns, in double, so that its whole turns cost no digits. */
#ifndef CKPT_KERNELS_CUDA_TURNS_CUH
#define CKPT_KERNELS_CUDA_TURNS_CUH

#include "kernels/cuda/device.cuh"

/* x: cosine, y: sine. */
__device__ inline float2 turned_by(double turns)
{
    const float part = (float)(turns - rint(turns)) * 6.28318531f;
    return make_float2(cosf(part), sinf(part));
}

#endif
