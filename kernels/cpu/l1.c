/* Mean absolute error. Its gradient is 0 where x is the target, as in PyTorch. */
#include <math.h>

#include "kernels/cpu/pair_loss.h"

CKPT_PAIR_TERMS(terms, fabs(a - b))

static void by_x(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)p;
    const float factor = (float)scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * (float)((x[i] > target[i]) - (x[i] < target[i]));
    }
}

CKPT_PAIR_BY_DIFFERENCE

CKPT_PAIR_KERNEL(0, ckpt_pair_count(args))

const ckpt_kernel ckpt_cpu_l1 = {
    .op = "l1",
    .forward = forward,
    .backward = backward,
};
