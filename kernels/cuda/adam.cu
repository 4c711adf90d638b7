/* Adam and AdamW in one pass over parameter, gradient and both moments, which also writes the bfloat16 copy: 28 bytes a
 * parameter, 30 with the copy, and about 15 operations: bound by memory. The formulas and their order are those of
 * kernels/cpu/adam.c; a product and a following sum are one fused operation here, rounded once instead of twice,
 * so results differ in the last places. The step's numbers are the moments' bias corrections and
 * what weight decay does (ops/defs/adam.c). */
#include "kernels/cuda/update.cuh"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

namespace
{
struct adam_rule {
    enum { STATES = 2, OF_AVERAGE = 0 };
    float part1, part2, rest1, rest2, eps;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        const float w = *param * (decay ? number[2] : 1.0f);
        const float g = grad + (decay ? number[3] : 0.0f) * w;
        const float m = part1 * state[0] + rest1 * g;
        const float v = part2 * state[1] + rest2 * g * g;
        state[0] = m;
        state[1] = v;
        *param = w - number[0] * m / (sqrtf(v) * number[1] + eps);
    }
};
} // namespace

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    const double *const value = args->hyper;
    adam_rule rule = {};
    rule.part1 = (float)value[BETA1];
    rule.part2 = (float)value[BETA2];
    rule.rest1 = (float)(1.0 - value[BETA1]);
    rule.rest2 = (float)(1.0 - value[BETA2]);
    rule.eps = (float)value[EPS];
    update_all(args, count, rule);
    return ckpt_cuda_launched("adam", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adam = {
    .optimizer = "adam",
    .update = update,
};

extern "C" const ckpt_optimizer_kernel ckpt_cuda_adamw = {
    .optimizer = "adamw",
    .update = update,
};
