/* Huber loss: half the square of the error up to delta, from there on a straight line. */
#include <math.h>

#include "kernels/cpu/pair_loss.h"

static inline double term(double error, double delta)
{
    return error < delta ? 0.5 * error * error : delta * (error - 0.5 * delta);
}

/* NaN stays NaN. */
static inline float clamp(float error, float delta)
{
    return error < -delta ? -delta : error > delta ? delta : error;
}

CKPT_PAIR_TERMS(terms, term(fabs(a - b), p))

static void by_x(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    const float factor = (float)scale, delta = (float)p;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * clamp(x[i] - target[i], delta);
    }
}

CKPT_PAIR_BY_DIFFERENCE

static double delta_of(const ckpt_kernel_args *args)
{
    return ckpt_node_float(args->node, "delta");
}

CKPT_PAIR_KERNEL(delta_of(args), ckpt_pair_count(args))

const ckpt_kernel ckpt_cpu_huber = {
    .op = "huber",
    .forward = forward,
    .backward = backward,
};
