/* Mean squared error, with gradients for both inputs. */
#include "kernels/cpu/pair_loss.h"

CKPT_PAIR_TERMS(terms, (a - b) * (a - b))

static void by_x(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)p;
    const float factor = (float)(2.0 * scale);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * (x[i] - target[i]);
    }
}

CKPT_PAIR_BY_DIFFERENCE

CKPT_PAIR_KERNEL(0, ckpt_pair_count(args))

const ckpt_kernel ckpt_cpu_mse = {
    .op = "mse",
    .forward = forward,
    .backward = backward,
};
