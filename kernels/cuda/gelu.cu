/* GELU in its exact and its tanh form. Backward reads the input.
 * Forward moves 2 tensors, backward 3 (4 when it adds). In float32 that bounds them. In bfloat16 an element is 4 bytes
 * forward and 6 backward, for about 25 operations forward and 40 backward in the exact form (erff, and expf backward):
 * arithmetic takes about as long as memory on an H100. The tanh form takes half in bfloat16: (1 + tanh u) / 2 is the
 * logistic function of 2u, an exponential and a quotient, and keeps its relative error far below zero. */
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/pointwise.cuh"

namespace
{
constexpr float half_root = 0.707106781f;   /* sqrt(1/2) */
constexpr float root_two_pi = 0.797884561f; /* sqrt(2/pi) */
constexpr float cubic = 0.044715f;          /* of the tanh form */
constexpr float normal_peak = 0.398942280f; /* 1 / sqrt(2 pi) */

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
        const float s = quotient_for<bf16>(1.0f, 1.0f + exp_for<bf16>(-2.0f * u)), fall = s * (1.0f - s);
        const float inside = 2.0f * root_two_pi * (1.0f + 3.0f * cubic * x * x);
        const float bend = fall == 0.0f ? 0.0f : x * fall * inside;
        return dy * (s + bend);
    }
};
} // namespace

static bool tanh_form(const ckpt_node *node)
{
    return strcmp(ckpt_node_string(node, "approximate"), "tanh") == 0;
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    if (tanh_form(args->node)) {
        start_pointwise_forward<T>(args, gelu_tanh<T>());
    } else {
        start_pointwise_forward<T>(args, gelu_exact());
    }
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    if (tanh_form(args->node)) {
        start_pointwise_backward<T>(args, gelu_tanh_slope<T>(), args->in[0]);
    } else {
        start_pointwise_backward<T>(args, gelu_exact_slope(), args->in[0]);
    }
}

extern "C" const ckpt_kernel ckpt_cuda_gelu = {
    .op = "gelu",
    .forward = CKPT_TYPED(start_forward),
    .backward = CKPT_TYPED(start_backward),
};
