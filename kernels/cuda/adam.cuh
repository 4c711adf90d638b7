/* The rule of Adam and AdamW for update.cuh: of both, and of what other optimizers leave to AdamW. The step's numbers from
 * FIRST on: size, root, stay, and where the decay is COUPLED to the gradient, pull (kernels/cpu/adam_step.h). */
#ifndef CKPT_KERNELS_CUDA_ADAM_CUH
#define CKPT_KERNELS_CUDA_ADAM_CUH

#include "kernels/cuda/update.cuh"

namespace
{
template <int FIRST, bool COUPLED> struct adam_rule {
    enum { STATES = 2, OF_AVERAGE = 0 };
    float part1, part2, rest1, rest2, eps;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        const float w = *param * (decay ? number[FIRST + 2] : 1.0f);
        const float g = grad + (COUPLED && decay ? number[FIRST + 3] : 0.0f) * w;
        const float m = part1 * state[0] + rest1 * g;
        const float v = part2 * state[1] + rest2 * g * g;
        state[0] = m;
        state[1] = v;
        *param = w - number[FIRST] * m / (sqrtf(v) * number[FIRST + 1] + eps);
    }
};
} // namespace

template <int FIRST, bool COUPLED>
static inline adam_rule<FIRST, COUPLED> adam_rule_of(double beta1, double beta2, double eps)
{
    adam_rule<FIRST, COUPLED> rule = {};
    rule.part1 = (float)beta1;
    rule.part2 = (float)beta2;
    rule.rest1 = (float)(1.0 - beta1);
    rule.rest2 = (float)(1.0 - beta2);
    rule.eps = (float)eps;
    return rule;
}

#endif
