/* Kullback-Leibler divergence of log-probabilities x from target probabilities. */
#include <math.h>

#include "kernels/cpu/pair_loss.h"

CKPT_PAIR_TERMS(terms, b == 0 ? 0.0 : b * (log(b) - a))

static void by_x(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)x;
    (void)p;
    const float factor = (float)-scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * target[i];
    }
}

static void by_target(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)p;
    const float factor = (float)scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * ((target[i] == 0 ? 0.0f : logf(target[i]) + 1.0f) - x[i]);
    }
}

/* Dim 0. */
static double batch_of(const ckpt_kernel_args *args)
{
    return (double)args->node->in[0].shape.dim[0];
}

CKPT_PAIR_KERNEL(0, batch_of(args))

const ckpt_kernel ckpt_cpu_kl = {
    .op = "kl",
    .forward = forward,
    .backward = backward,
};
