/* Sine and cosine of an angle that was counted in turns, in double, so that its whole turns cost no digits. */
#ifndef CKPT_KERNELS_CUDA_TURNS_CUH
#define CKPT_KERNELS_CUDA_TURNS_CUH

#include "kernels/cuda/device.cuh"

/* x: cosine, y: sine. sincospif takes halves of turns, and unlike sinf and cosf has no slow path for large arguments,
 * which would take local memory. */
__device__ inline float2 turned_by(double turns)
{
    const float part = (float)(turns - rint(turns));
#ifdef CKPT_EMULATION
    return make_float2(cosf(part * 6.28318531f), sinf(part * 6.28318531f));
#else
    float2 angle;
    sincospif(2.0f * part, &angle.y, &angle.x);
    return angle;
#endif
}

#endif
