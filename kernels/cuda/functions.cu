/* Functions of one element: hardswish, elu, leaky_relu, softplus, exp, pow. Forward moves 2 tensors, backward 3 (4 when it
 * adds), for at most one exponential, logarithm or power an element: bound by memory, but pow of an unusual exponent,
 * whose power takes some hundred instructions. */
#include "kernels/cuda/pointwise.cuh"

namespace
{
/* An op's numbers, in the order of its attributes. */
struct numbers {
    float a, b;
};

struct hardswish {
    static __device__ float value(numbers, float x)
    {
        return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
    }
    static __device__ float slope(numbers, float x)
    {
        return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f;
    }
};

/* Slopes of the next three are of the output. */
struct elu {
    static __device__ float value(numbers p, float x)
    {
        return x > 0.0f ? x : p.a * expm1f(x);
    }
    static __device__ float slope(numbers p, float y)
    {
        return y > 0.0f ? 1.0f : y + p.a;
    }
};

struct leaky_relu {
    static __device__ float value(numbers p, float x)
    {
        return x > 0.0f ? x : p.a * x;
    }
    static __device__ float slope(numbers p, float y)
    {
        return y > 0.0f ? 1.0f : p.a;
    }
};

struct exponential {
    static __device__ float value(numbers, float x)
    {
        return expf(x);
    }
    static __device__ float slope(numbers, float y)
    {
        return y;
    }
};

/* log(1 + exp(z)) = max(z, 0) + log(1 + exp(-|z|)) */
struct softplus {
    static __device__ float value(numbers p, float x)
    {
        const float z = p.a * x;
        return z > p.b ? x : (fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)))) / p.a;
    }
    static __device__ float slope(numbers p, float x)
    {
        const float z = p.a * x;
        return z > p.b ? 1.0f : 1.0f / (1.0f + expf(-z));
    }
};

struct power {
    /* The usual exponents are products and roots; which it is, is the same for all threads. */
    static __device__ float of(float x, float exponent)
    {
        return exponent == 2.0f    ? x * x
               : exponent == 1.0f  ? x
               : exponent == 0.0f  ? 1.0f
               : exponent == 3.0f  ? x * x * x
               : exponent == 0.5f  ? sqrtf(x)
               : exponent == -0.5f ? 1.0f / sqrtf(x)
               : exponent == -1.0f ? 1.0f / x
               : exponent == -2.0f ? 1.0f / (x * x)
                                   : powf(x, exponent);
    }
    static __device__ float value(numbers p, float x)
    {
        return of(x, p.a);
    }
    static __device__ float slope(numbers p, float x)
    {
        return p.a == 0.0f ? 0.0f : p.a * of(x, p.a - 1.0f);
    }
};

/* What pointwise.cuh calls. */
template <typename F> struct value_of {
    numbers p;
    __device__ float operator()(float x) const
    {
        return F::value(p, x);
    }
};
template <typename F> struct slope_of {
    numbers p;
    __device__ float operator()(float a, float dy) const
    {
        return dy * F::slope(p, a);
    }
};
} // namespace

static numbers numbers_of(const ckpt_node *node)
{
    float value[2] = {0, 0};
    const ckpt_attr_spec *const specs = node->op->attrs;
    for (int i = 0; specs != NULL && specs[i].name != NULL; i++) {
        value[i] = (float)node->attr[i].real;
    }
    return {value[0], value[1]};
}

template <typename F, typename T> static void start_forward(const ckpt_kernel_args *args)
{
    start_pointwise_forward<T>(args, value_of<F>{numbers_of(args->node)});
}

template <typename F, typename T> static void start_backward(const ckpt_kernel_args *args)
{
    start_pointwise_backward<T>(args, slope_of<F>{numbers_of(args->node)},
                                args->node->backward_out != 0 ? args->out[0] : args->in[0]);
}

template <typename F> static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    return run_typed<start_forward<F, float>, start_forward<F, bf16>>(args, err);
}

template <typename F> static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    return run_typed<start_backward<F, float>, start_backward<F, bf16>>(args, err);
}

extern "C" const ckpt_kernel ckpt_cuda_hardswish = {
    .op = "hardswish",
    .forward = forward<hardswish>,
    .backward = backward<hardswish>,
};

extern "C" const ckpt_kernel ckpt_cuda_elu = {
    .op = "elu",
    .forward = forward<elu>,
    .backward = backward<elu>,
};

extern "C" const ckpt_kernel ckpt_cuda_leaky_relu = {
    .op = "leaky_relu",
    .forward = forward<leaky_relu>,
    .backward = backward<leaky_relu>,
};

extern "C" const ckpt_kernel ckpt_cuda_softplus = {
    .op = "softplus",
    .forward = forward<softplus>,
    .backward = backward<softplus>,
};

extern "C" const ckpt_kernel ckpt_cuda_exp = {
    .op = "exp",
    .forward = forward<exponential>,
    .backward = backward<exponential>,
};

extern "C" const ckpt_kernel ckpt_cuda_pow = {
    .op = "pow",
    .forward = forward<power>,
    .backward = backward<power>,
};
