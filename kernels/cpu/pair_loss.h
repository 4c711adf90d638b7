/* Losses that are the sum of a term of x and its target over two tensors of one shape: mse, l1, huber, bce, kl. An op has
 * a function that sums terms, made by CKPT_PAIR_TERMS, and one for each gradient. */
#ifndef CKPT_KERNELS_CPU_PAIR_LOSS_H
#define CKPT_KERNELS_CPU_PAIR_LOSS_H

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* The sum of n terms, in an order that n alone decides. `p`: the op's own number. */
typedef double ckpt_pair_terms(int64_t n, const float *x, const float *target, double p);
/* to = scale * the derivative of the terms. `to` may be x or target; n <= CKPT_BLOCK. */
typedef void ckpt_pair_slope(int64_t n, const float *x, const float *target, double scale, double p, float *to);

/* Defines a ckpt_pair_terms of the expression `term` of the doubles a, which is of x, and b, of the target. */
#define CKPT_PAIR_TERMS(name, term)                                                                                    \
    static inline double name##_of(double a, double b, double p)                                                       \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        return (term);                                                                                                 \
    }                                                                                                                  \
    static double name(int64_t n, const float *x, const float *target, double p)                                       \
    {                                                                                                                  \
        enum { LANES = 8 };                                                                                            \
        double lane[LANES] = {0}, sum = 0.0;                                                                           \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            _Pragma("omp simd") for (int j = 0; j < LANES; j++)                                                        \
            {                                                                                                          \
                lane[j] += name##_of((double)x[i + j], (double)target[i + j], p);                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int j = 0; i + j < n; j++) {                                                                              \
            lane[j] += name##_of((double)x[i + j], (double)target[i + j], p);                                          \
        }                                                                                                              \
        for (int j = 0; j < LANES; j++) {                                                                              \
            sum += lane[j];                                                                                            \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

/* Of a term of x - target, `by_target` is what `by_x` is, with the other sign. */
#define CKPT_PAIR_BY_DIFFERENCE                                                                                        \
    static void by_target(int64_t n, const float *x, const float *target, double scale, double p, float *to)           \
    {                                                                                                                  \
        by_x(n, x, target, -scale, p, to);                                                                             \
    }

/* out[0] = the sum of all terms / divisor, whatever the threads. */
void ckpt_pair_loss(const ckpt_kernel_args *args, ckpt_pair_terms *terms, double p, double divisor);
/* The gradients that are wanted: slope[k] is the terms' derivative by input k. */
void ckpt_pair_gradients(const ckpt_kernel_args *args, ckpt_pair_slope *const slope[2], double p, double divisor);

/* What a mean is divided by. */
static inline double ckpt_pair_count(const ckpt_kernel_args *args)
{
    return (double)ckpt_shape_count(&args->node->in[0].shape);
}

/* Defines `forward` and `backward` of an op from its `terms`, `by_x` and `by_target`. `p`: its own number; `divisor`: what
 * the sum is divided by; both may read `args`. */
#define CKPT_PAIR_KERNEL(p, divisor)                                                                                   \
    static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)                                              \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        ckpt_pair_loss(args, terms, (p), (divisor));                                                                   \
        return CKPT_OK;                                                                                                \
    }                                                                                                                  \
    static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)                                             \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        ckpt_pair_gradients(args, (ckpt_pair_slope *const[2]){by_x, by_target}, (p), (divisor));                       \
        return CKPT_OK;                                                                                                \
    }

#endif
