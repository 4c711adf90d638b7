/* SiLU of one number and its slope, for silu and swiglu. */
#ifndef CKPT_KERNELS_CUDA_SILU_CUH
#define CKPT_KERNELS_CUDA_SILU_CUH

#include "kernels/cuda/fast.cuh"

namespace
{
template <typename T> struct silu_value {
    __device__ float operator()(float x) const
    {
        return quotient_for<T>(x, 1.0f + exp_for<T>(-x)); /* x far below zero: as in logistic */
    }
};

template <typename T> struct silu_slope {
    __device__ float operator()(float x, float dy) const
    {
        const float s = logistic<T>(x);
        return dy * (s * (1.0f + x * (1.0f - s)));
    }
};
} // namespace

#endif
