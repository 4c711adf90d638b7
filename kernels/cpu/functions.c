/* Functions of one element: a table of two loops each, values and slopes. A block's slopes lie in the first-level cache
 * until dy multiplies them. */
#include <limits.h>
#include <math.h>

#include "kernels/cpu/pointwise.h"

enum { BLOCK = 1024 };

/* An op's numbers, in the order of its attributes. */
typedef struct numbers {
    float a, b;
} numbers;

/* `to` = f of every element of `from`, which may be `to`. */
typedef void function_loop(numbers p, int64_t n, const float *from, float *to);

typedef struct function {
    const char *op;
    function_loop *value, *slope; /* of the input; of what backward declared, the input or the output */
} function;

#define LOOP(name, expression)                                                                                         \
    static void name(numbers p, int64_t n, const float *from, float *to)                                               \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            const float x = from[i];                                                                                   \
            to[i] = (expression);                                                                                      \
        }                                                                                                              \
    }

static inline float between(float x, float low, float high)
{
    const float above = x < low ? low : x;
    return above > high ? high : above;
}

LOOP(hardswish_value, x *between(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f))
LOOP(hardswish_slope, x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f)
LOOP(leaky_relu_value, x > 0.0f ? x : p.a * x)
LOOP(leaky_relu_slope, x > 0.0f ? 1.0f : p.a)
LOOP(elu_slope, x > 0.0f ? 1.0f : x + p.a)
LOOP(exp_slope, x)

/* exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2): exact near 0, where the difference would cancel. */
static void elu_value(numbers p, int64_t n, const float *from, float *to)
{
    float half[BLOCK];
    half[0] = 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        half[i] = 0.5f * from[i];
    }
    ckpt_vector_tanh(n, half, half);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float below = p.a * (2.0f * half[i] / (1.0f - half[i]));
        to[i] = from[i] > 0.0f ? from[i] : below;
    }
}

/* log(1 + e) = 2 atanh(e / (2 + e)) for 0 <= e <= 1, by atanh's series: s <= 1/3, and s^16 / 17 is below 2e-9. */
static inline float log_one_and(float e)
{
    const float s = e / (2.0f + e), z = s * s;
    float q = 1.0f / 15.0f;
    q = q * z + 1.0f / 13.0f;
    q = q * z + 1.0f / 11.0f;
    q = q * z + 1.0f / 9.0f;
    q = q * z + 1.0f / 7.0f;
    q = q * z + 1.0f / 5.0f;
    q = q * z + 1.0f / 3.0f;
    return 2.0f * (s + s * (z * q));
}

/* log(1 + exp(z)) = max(z, 0) + log(1 + exp(-|z|)) */
static void softplus_value(numbers p, int64_t n, const float *from, float *to)
{
    float e[BLOCK];
    e[0] = 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        e[i] = -fabsf(p.a * from[i]);
    }
    ckpt_vector_exp(n, e, 0.0f, 1.0f, e);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float z = p.a * from[i];
        const float bent = ((z > 0.0f ? z : 0.0f) + log_one_and(e[i])) / p.a;
        to[i] = z > p.b ? from[i] : bent;
    }
}

static void softplus_slope(numbers p, int64_t n, const float *from, float *to)
{
    float z[BLOCK];
    z[0] = 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        z[i] = p.a * from[i];
    }
    ckpt_vector_sigmoid(n, z, to);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = z[i] > p.b ? 1.0f : to[i];
    }
}

static void exp_value(numbers p, int64_t n, const float *from, float *to)
{
    (void)p;
    ckpt_vector_exp(n, from, 0.0f, 1.0f, to);
}

/* to = factor from^exponent, for those that people use without the library's function. */
static void powers(float factor, float exponent, int64_t n, const float *from, float *to)
{
#define POWERS(expression)                                                                                             \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                                \
    {                                                                                                                  \
        const float x = from[i];                                                                                       \
        (void)x;                                                                                                       \
        to[i] = factor * (expression);                                                                                 \
    }
    const int halves = fabsf(exponent) <= 3.0f ? (int)(2.0f * exponent) : INT_MAX;
    switch ((float)halves == 2.0f * exponent ? halves : INT_MAX) {
    case -4: POWERS(1.0f / (x * x)) break;
    case -2: POWERS(1.0f / x) break;
    case -1: POWERS(1.0f / sqrtf(x)) break;
    case 0: POWERS(1.0f) break;
    case 1: POWERS(sqrtf(x)) break;
    case 2: POWERS(x) break;
    case 4: POWERS(x * x) break;
    case 6: POWERS(x * x * x) break;
    default:
        for (int64_t i = 0; i < n; i++) {
            to[i] = factor * powf(from[i], exponent);
        }
    }
#undef POWERS
}

static void pow_value(numbers p, int64_t n, const float *from, float *to)
{
    powers(1.0f, p.a, n, from, to);
}

/* Of a constant, x^0, the slope is 0 even at x = 0. */
static void pow_slope(numbers p, int64_t n, const float *from, float *to)
{
    powers(p.a, p.a == 0.0f ? 0.0f : p.a - 1.0f, n, from, to);
}

static const function functions[] = {
    {"hardswish", hardswish_value, hardswish_slope},
    {"elu", elu_value, elu_slope},
    {"leaky_relu", leaky_relu_value, leaky_relu_slope},
    {"softplus", softplus_value, softplus_slope},
    {"exp", exp_value, exp_slope},
    {"pow", pow_value, pow_slope},
};

static const function *function_of(const ckpt_node *node)
{
    const function *f = functions;
    while (strcmp(f->op, node->op->name) != 0) {
        f++;
    }
    return f;
}

static numbers numbers_of(const ckpt_node *node)
{
    float value[2] = {0};
    const ckpt_attr_spec *const specs = node->op->attrs;
    for (int i = 0; specs != NULL && specs[i].name != NULL; i++) {
        value[i] = (float)node->attr[i].real;
    }
    return (numbers){value[0], value[1]};
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const function *const f = function_of(args->node);
    const numbers p = numbers_of(args->node);
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t start = 0; start < count; start += BLOCK) {
        f->value(p, count - start < BLOCK ? count - start : BLOCK, x + start, y + start);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const function *const f = function_of(args->node);
    const numbers p = numbers_of(args->node);
    const float *const read = args->node->backward_out != 0 ? args->out[0] : args->in[0];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t n = count - start < BLOCK ? count - start : BLOCK;
        float slope[BLOCK];
        f->slope(p, n, read + start, slope);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            slope[i] *= dy[start + i];
        }
        if (adds) {
            ckpt_vector_add(n, slope, dx + start);
        } else {
            memcpy(dx + start, slope, (size_t)n * sizeof *dx);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_hardswish = {
    .op = "hardswish",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_elu = {
    .op = "elu",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_leaky_relu = {
    .op = "leaky_relu",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_softplus = {
    .op = "softplus",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_exp = {
    .op = "exp",
    .forward = forward,
    .backward = backward,
};

const ckpt_kernel ckpt_cpu_pow = {
    .op = "pow",
    .forward = forward,
    .backward = backward,
};
