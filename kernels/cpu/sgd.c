/* SGD in one pass over parameter, gradient and velocity. The velocity starts as zeros, so its first value is the
 * gradient, as in PyTorch without dampening. The step's numbers: ops/defs/sgd.c. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };

static void step_all(const ckpt_update_args *args, const float *number)
{
    const double *const hyper = args->hyper;
    const float *const grad = args->grad;
    float *const param = args->param;
    const float lr = number[0], momentum = (float)hyper[MOMENTUM];
    const float shrink = args->decay ? number[1] : 0.0f;
    const bool nesterov = hyper[NESTEROV] != 0.0;
    const float scale = args->scale != NULL ? *args->scale : 1.0f; /* times 1 changes no bit */
    if (!(hyper[MOMENTUM] > 0.0)) {
#pragma omp parallel for simd schedule(static) num_threads(args->threads) if (parallel : args->count > CKPT_PARALLEL)
        for (int64_t i = 0; i < args->count; i++) {
            const float scaled = grad[i] * scale;
            param[i] -= lr * (scaled + shrink * param[i]);
        }
        return;
    }
    float *const velocity = args->slot[0];
#pragma omp parallel for simd schedule(static) num_threads(args->threads) if (parallel : args->count > CKPT_PARALLEL)
    for (int64_t i = 0; i < args->count; i++) {
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
        step_all(&args[i], numbers->of[args[i].group]);
    }
    return CKPT_OK;
}

const ckpt_optimizer_kernel ckpt_cpu_sgd = {
    .optimizer = "sgd",
    .update = update,
};
