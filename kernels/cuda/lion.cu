/* Lion in one pass over parameter, gradient and mean, which also writes the bfloat16 copy: 20 bytes a parameter, 22 with
 * the copy, and about 9 operations: bound by memory. Formulas and order are those of kernels/cpu/lion.c; a product and a
 * following sum are one fused operation here. */
#include "kernels/cuda/update.cuh"

enum { LR, BETA1, BETA2, WEIGHT_DECAY };

namespace
{
struct lion_rule {
    enum { STATES = 1, OF_AVERAGE = 0 };
    float part1, part2, rest1, rest2;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        const float c = part1 * state[0] + rest1 * grad;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
        state[0] = part2 * state[0] + rest2 * grad;
        *param = *param * (decay ? number[1] : 1.0f) - number[0] * sign;
    }
};
} // namespace

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    const double *const value = args->hyper;
    lion_rule rule = {};
    rule.part1 = (float)value[BETA1];
    rule.part2 = (float)value[BETA2];
    rule.rest1 = (float)(1.0 - value[BETA1]);
    rule.rest2 = (float)(1.0 - value[BETA2]);
    update_all(args, count, rule);
    return ckpt_cuda_launched("lion", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_lion = {
    .optimizer = "lion",
    .update = update,
};
