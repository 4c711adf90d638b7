/* Adam and AdamW in one pass over parameter, gradient and both moments, which also writes the bfloat16 copy: 28 bytes a
 * parameter, 30 with the copy, and about 15 operations: bound by memory. The formulas and their order are those of
 * kernels/cpu/adam.c; a product and a following sum are one fused operation here, rounded once instead of twice,
 * so results differ in the last places. The step's numbers are the moments' bias corrections (ops/defs/adam.c). */
#include "kernels/cuda/update.cuh"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

namespace
{
struct adam_rule {
    enum { STATES = 2 };
    float stay, pull; /* with decay: factor of a parameter under decoupled decay; factor of it added to the gradient */
    float part1, part2, rest1, rest2, eps;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        const float w = *param * (decay ? stay : 1.0f);
        const float g = grad + (decay ? pull : 0.0f) * w;
        const float m = part1 * state[0] + rest1 * g;
        const float v = part2 * state[1] + rest2 * g * g;
        state[0] = m;
        state[1] = v;
        *param = w - number[0] * m / (sqrtf(v) * number[1] + eps);
    }
};
} // namespace

static ckpt_code step_all(const ckpt_update_args *args, int count, double keep, double shrink, ckpt_err *err)
{
    const double *const value = args->hyper;
    adam_rule rule = {};
    rule.stay = (float)keep;
    rule.pull = (float)shrink;
    rule.part1 = (float)value[BETA1];
    rule.part2 = (float)value[BETA2];
    rule.rest1 = (float)(1.0 - value[BETA1]);
    rule.rest2 = (float)(1.0 - value[BETA2]);
    rule.eps = (float)value[EPS];
    update_all(args, count, rule);
    return ckpt_cuda_launched("adam", err);
}

static ckpt_code adam(const ckpt_update_args *args, int count, const float *number, ckpt_err *err)
{
    (void)number;
    return step_all(args, count, 1.0, args->hyper[WEIGHT_DECAY], err);
}

static ckpt_code adamw(const ckpt_update_args *args, int count, const float *number, ckpt_err *err)
{
    (void)number;
    return step_all(args, count, 1.0 - args->hyper[LR] * args->hyper[WEIGHT_DECAY], 0.0, err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adam = {
    .optimizer = "adam",
    .update = adam,
};

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adamw = {
    .optimizer = "adamw",
    .update = adamw,
};
