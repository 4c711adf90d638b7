/* Adam and AdamW in one pass over parameter, gradient and both moments. The step's numbers are the bias corrections of
 * the moments and what weight decay does (ops/defs/adam.c). */
#include <math.h>

#include "kernels/cpu/adam_step.h"
#include "kernels/cpu/update.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

ckpt_adam_rule ckpt_adam_rule_of(double beta1, double beta2, double eps, const float number[4], bool decay)
{
    return (ckpt_adam_rule){.beta1 = (float)beta1,
                            .beta2 = (float)beta2,
                            .rest1 = (float)(1.0 - beta1),
                            .rest2 = (float)(1.0 - beta2),
                            .eps = (float)eps,
                            .size = number[0],
                            .root = number[1],
                            .stay = decay ? number[2] : 1.0f,
                            .pull = decay ? number[3] : 0.0f};
}

static void step(const ckpt_update_args *args, const void *rule, int64_t first, int64_t n)
{
    const ckpt_adam_rule r = *(const ckpt_adam_rule *)rule;
    const float *const grad = args->grad;
    const float scale = args->scale != NULL ? *args->scale : 1.0f; /* times 1 changes no bit */
    float *const param = args->param, *const mean = args->slot[0], *const square = args->slot[1];
#pragma omp simd
    for (int64_t i = first; i < first + n; i++) {
        const float w = param[i] * r.stay;
        const float scaled = grad[i] * scale;
        const float g = scaled + r.pull * w;
        const float m = r.beta1 * mean[i] + r.rest1 * g;
        const float v = r.beta2 * square[i] + r.rest2 * g * g;
        mean[i] = m;
        square[i] = v;
        param[i] = w - r.size * m / (sqrtf(v) * r.root + r.eps);
    }
}

void ckpt_adam_step(const ckpt_update_args *args, const ckpt_adam_rule *rule)
{
    ckpt_update_blocks(args, rule, step);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)err;
    for (int i = 0; i < count; i++) {
        const double *const hyper = args[i].hyper;
        const ckpt_adam_rule rule =
            ckpt_adam_rule_of(hyper[BETA1], hyper[BETA2], hyper[EPS], numbers->of[args[i].group], args[i].decay);
        ckpt_adam_step(&args[i], &rule);
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
