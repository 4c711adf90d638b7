/* Binary cross entropy of logits. The exponential is of a number that is not positive, so nothing overflows. */
#include <math.h>

#include "kernels/cpu/pair_loss.h"

CKPT_PAIR_TERMS(terms, fmax(a, 0) - a * b + log1p(exp(-fabs(a))))

static void by_x(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)p;
    const float factor = (float)scale;
    float probability[CKPT_BLOCK]; /* `to` may be either input */
    ckpt_vector_sigmoid(n, x, probability);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * (probability[i] - target[i]);
    }
}

static void by_target(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)target;
    (void)p;
    const float factor = (float)-scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * x[i];
    }
}

CKPT_PAIR_KERNEL(0, ckpt_pair_count(args))

const ckpt_kernel ckpt_cpu_bce = {
    .op = "bce",
    .forward = forward,
    .backward = backward,
};
