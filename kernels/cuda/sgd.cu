/* SGD in one pass over parameter, gradient and velocity, which also writes the bfloat16 copy: 12 bytes a parameter, 20
 * with momentum, 2 more for the copy, and at most 8 operations: bound by memory. The formulas and their order are those
 * of kernels/cpu/sgd.c; a product and a following sum are one fused operation here, so results differ in the last
 * places. */
#include "kernels/cuda/update.cuh"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };

namespace
{
/* state[0]: the velocity, with momentum. */
template <bool MOMENTUM_KEPT> struct sgd_rule {
    enum { STATES = MOMENTUM_KEPT ? 1 : 0, OF_AVERAGE = 0 };
    float momentum;
    bool nesterov;

    __device__ void operator()(const float number[CKPT_STEP_NUMBERS], bool decay, float grad, float *param,
                               float state[]) const
    {
        const float g = grad + (decay ? number[1] : 0.0f) * *param;
        float direction = g;
        if (MOMENTUM_KEPT) {
            const float v = momentum * state[0] + g;
            state[0] = v;
            direction = nesterov ? g + momentum * v : v;
        }
        *param -= number[0] * direction;
    }
};
} // namespace

template <bool MOMENTUM_KEPT> static void start(const ckpt_update_args *args, int count)
{
    const double *const value = args->hyper;
    sgd_rule<MOMENTUM_KEPT> rule = {};
    rule.momentum = (float)value[MOMENTUM];
    rule.nesterov = value[NESTEROV] != 0.0;
    update_all(args, count, rule);
}

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    args->hyper[MOMENTUM] > 0.0 ? start<true>(args, count) : start<false>(args, count);
    return ckpt_cuda_launched("sgd", err);
}

extern "C" const ckpt_optimizer_kernel ckpt_cuda_sgd = {
    .optimizer = "sgd",
    .update = update,
};
