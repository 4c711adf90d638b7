/* SGD in one pass over parameter, gradient and velocity. The velocity starts as zeros, so its first value is the
 * gradient, as in PyTorch without dampening. The step's numbers: ops/defs/sgd.c. */
#include "kernels/cpu/update.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };

static void step(const ckpt_update_args *args, const void *numbers, int64_t first, int64_t n)
{
    const float *const number = numbers;
    const double *const hyper = args->hyper;
    const float *const grad = args->grad;
    float *const param = args->param;
    const float lr = number[0], momentum = (float)hyper[MOMENTUM];
    const float shrink = args->decay ? number[1] : 0.0f;
    const bool nesterov = hyper[NESTEROV] != 0.0;
    const float scale = args->scale != NULL ? *args->scale : 1.0f; /* times 1 changes no bit */
    if (!(hyper[MOMENTUM] > 0.0)) {
#pragma omp simd
        for (int64_t i = first; i < first + n; i++) {
            const float scaled = grad[i] * scale;
            param[i] -= lr * (scaled + shrink * param[i]);
        }
        return;
    }
    float *const velocity = args->slot[0];
#pragma omp simd
    for (int64_t i = first; i < first + n; i++) {
        const float scaled = grad[i] * scale;
        const float g = scaled + shrink * param[i];
        const float v = momentum * velocity[i] + g;
        const float ahead = g + momentum * v;
        velocity[i] = v;
        param[i] -= lr * (nesterov ? ahead : v);
    }
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    for (int i = 0; i < count; i++) {
        ckpt_update_blocks(&args[i], numbers->of[args[i].group], step);
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_sgd = {
    .optimizer = "sgd",
    .update = update,
};
