/* GELU of one number and its slope, for gelu and geglu, in the exact, the tanh and the sigmoid form. In bfloat16 the tanh
 * form takes half as long as with tanhf: (1 + tanh u) / 2 is the logistic function of 2u, an exponential and a quotient,
 * and keeps its relative error far below zero. */
#ifndef CKPT_KERNELS_CUDA_GELU_CUH
#define CKPT_KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/fast.cuh"

namespace
{
constexpr float half_root = 0.707106781f;   /* sqrt(1/2) */
constexpr float root_two_pi = 0.797884561f; /* sqrt(2/pi) */
constexpr float cubic = 0.044715f;          /* of the tanh form */
constexpr float normal_peak = 0.398942280f; /* 1 / sqrt(2 pi) */
constexpr float steep = 1.702f;             /* of the sigmoid form */

struct gelu_exact {
    __device__ float operator()(float x) const
    {
        return 0.5f * x * (1.0f + erff(half_root * x));
    }
};

struct gelu_exact_slope {
    __device__ float operator()(float x, float dy) const
    {
        const float density = normal_peak * expf(-0.5f * x * x);
        const float bend = density == 0.0f ? 0.0f : x * density; /* x may be infinite */
        return dy * (0.5f * (1.0f + erff(half_root * x)) + bend);
    }
};

template <typename T> struct gelu_tanh;
template <> struct gelu_tanh<float> {
    __device__ float operator()(float x) const
    {
        return 0.5f * x * (1.0f + tanhf(root_two_pi * (x + cubic * x * x * x)));
    }
};
template <> struct gelu_tanh<bf16> {
    __device__ float operator()(float x) const
    {
        const float u = root_two_pi * (x + cubic * x * x * x);
        return quotient_for<bf16>(x, 1.0f + exp_for<bf16>(-2.0f * u));
    }
};

/* For large |x| the slope of the inner function is 0 and `inside` may be infinite. */
template <typename T> struct gelu_tanh_slope;
template <> struct gelu_tanh_slope<float> {
    __device__ float operator()(float x, float dy) const
    {
        const float inner = tanhf(root_two_pi * (x + cubic * x * x * x)), fall = 1.0f - inner * inner;
        const float inside = root_two_pi * (1.0f + 3.0f * cubic * x * x);
        const float bend = fall == 0.0f ? 0.0f : x * fall * inside;
        return dy * (0.5f * (1.0f + inner) + 0.5f * bend);
    }
};
template <> struct gelu_tanh_slope<bf16> {
    __device__ float operator()(float x, float dy) const
    {
        const float u = root_two_pi * (x + cubic * x * x * x);
        const float s = logistic<bf16>(2.0f * u), fall = s * (1.0f - s);
        const float inside = 2.0f * root_two_pi * (1.0f + 3.0f * cubic * x * x);
        const float bend = fall == 0.0f ? 0.0f : x * fall * inside;
        return dy * (s + bend);
    }
};

/* x far below zero: as in logistic. */
template <typename T> struct gelu_sigmoid {
    __device__ float operator()(float x) const
    {
        return quotient_for<T>(x, 1.0f + exp_for<T>(-steep * x));
    }
};

template <typename T> struct gelu_sigmoid_slope {
    __device__ float operator()(float x, float dy) const
    {
        const float s = logistic<T>(steep * x);
        return dy * (s * (1.0f + steep * x * (1.0f - s)));
    }
};
} // namespace

#endif
