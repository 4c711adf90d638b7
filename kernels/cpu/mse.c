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

static void by_target(int64_t n, const float *x, const float *target, double scale, double p, float *to)
{
    (void)p;
    const float factor = (float)(-2.0 * scale);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor * (x[i] - target[i]);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pair_loss(args, terms, 0, ckpt_pair_count(args));
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    ckpt_pair_gradients(args, (ckpt_pair_slope *const[2]){by_x, by_target}, 0, ckpt_pair_count(args));
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_mse = {
    .op = "mse",
    .forward = forward,
    .backward = backward,
};
