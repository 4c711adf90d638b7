/* Exponential and quotient by type of tensor. For float32 they are accurate: expf within 1 unit in the last place, the
 * quotient correctly rounded. For bfloat16 they are the GPU's instructions: exp within 2 + 1.2 |x| units of float32,
 * the quotient within 2 if the divisor is below 2^126, and 0 above. A unit of bfloat16 is 65,536 units of float32, so
 * for |x| < 100 the error is less than a hundredth of the rounding of the result. The emulation uses the accurate ones.
 * Bounds: CUDA C++ Programming Guide, mathematical functions, __expf and __fdividef. */
#ifndef CKPT_KERNELS_CUDA_FAST_CUH
#define CKPT_KERNELS_CUDA_FAST_CUH

#include "kernels/cuda/device.cuh"

template <typename T> __device__ inline float exp_for(float x);
template <> __device__ inline float exp_for<float>(float x)
{
    return expf(x);
}
template <> __device__ inline float exp_for<bf16>(float x)
{
#ifdef CKPT_EMULATION
    return expf(x);
#else
    return __expf(x);
#endif
}

template <typename T> __device__ inline float quotient_for(float a, float b);
template <> __device__ inline float quotient_for<float>(float a, float b)
{
    return a / b;
}
template <> __device__ inline float quotient_for<bf16>(float a, float b)
{
#ifdef CKPT_EMULATION
    return a / b;
#else
    return __fdividef(a, b);
#endif
}

/* The logistic function. For x far below zero exp(-x) is too large for the fast quotient, which is then 0; the true result
 * is below 2^-115. */
template <typename T> __device__ inline float logistic(float x)
{
    return quotient_for<T>(1.0f, 1.0f + exp_for<T>(-x));
}

#endif
