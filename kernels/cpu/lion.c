/* Lion in one pass over parameter, gradient and mean. The step's numbers: ops/defs/lion.c. */
#include "kernels/cpu/update.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY };

static void step(const ckpt_update_args *args, const void *numbers, int64_t first, int64_t n)
{
    const float *const number = numbers;
    const double *const hyper = args->hyper;
    const float *const grad = args->grad;
    const float scale = args->scale != NULL ? *args->scale : 1.0f; /* times 1 changes no bit */
    float *const param = args->param, *const mean = args->slot[0];
    const float lr = number[0], stay = args->decay ? number[1] : 1.0f;
    const float beta1 = (float)hyper[BETA1], beta2 = (float)hyper[BETA2];
    const float rest1 = (float)(1.0 - hyper[BETA1]), rest2 = (float)(1.0 - hyper[BETA2]);
#pragma omp simd
    for (int64_t i = first; i < first + n; i++) {
        const float g = grad[i] * scale;
        const float c = beta1 * mean[i] + rest1 * g;
        const float up = c > 0.0f ? lr : 0.0f, down = c < 0.0f ? lr : 0.0f;
        mean[i] = beta2 * mean[i] + rest2 * g;
        param[i] = param[i] * stay - (up - down);
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

const ckpt_optimizer_kernel ckpt_cpu_lion = {
    .optimizer = "lion",
    .update = update,
};
