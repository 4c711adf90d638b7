/* Adam and AdamW in one pass over parameter, gradient and both moments. The step's numbers are the bias corrections of
 * the moments and what weight decay does (ops/defs/adam.c). */
#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

static void step_all(const ckpt_update_args *args, const float *number)
{
    const double *const hyper = args->hyper;
    const float *const grad = args->grad;
    const float scale = args->scale != NULL ? *args->scale : 1.0f; /* times 1 changes no bit */
    float *const param = args->param;
    const float stay = args->decay ? number[2] : 1.0f, pull = args->decay ? number[3] : 0.0f;
    const float beta1 = (float)hyper[BETA1], beta2 = (float)hyper[BETA2], eps = (float)hyper[EPS];
    const float rest1 = (float)(1.0 - hyper[BETA1]), rest2 = (float)(1.0 - hyper[BETA2]);
    const float size = number[0], root = number[1];
    float *const mean = args->slot[0], *const square = args->slot[1];
#pragma omp parallel for simd schedule(static) num_threads(args->threads) if (parallel : args->count > CKPT_PARALLEL)
    for (int64_t i = 0; i < args->count; i++) {
        const float w = param[i] * stay;
        const float scaled = grad[i] * scale;
        const float g = scaled + pull * w;
        const float m = beta1 * mean[i] + rest1 * g;
        const float v = beta2 * square[i] + rest2 * g * g;
        mean[i] = m;
        square[i] = v;
        param[i] = w - size * m / (sqrtf(v) * root + eps);
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

const ckpt_optimizer_kernel ckpt_cpu_adam = {
    .optimizer = "adam",
    .update = update,
};

const ckpt_optimizer_kernel ckpt_cpu_adamw = {
    .optimizer = "adamw",
    .update = update,
};
