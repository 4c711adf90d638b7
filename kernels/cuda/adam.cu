/* Adam and AdamW in one pass over parameter, gradient and both moments, which also writes the bfloat16 copy: 28 bytes a
 * parameter, 30 with the copy, and about 15 operations: bound by memory. The formulas and their order are those of
 * kernels/cpu/adam.c; a product and a following sum are one fused operation here, rounded once instead of twice,
 * so results differ in the last places. The step's numbers are the moments' bias corrections and what weight decay does
 * (ops/defs/adam.c). */
#include "kernels/cuda/adam.cuh"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

static ckpt_code update(const ckpt_update_args *args, int count, const ckpt_numbers *numbers, ckpt_err *err)
{
    (void)numbers;
    const double *const value = args->hyper;
    update_all(args, count, adam_rule_of<0, true>(value[BETA1], value[BETA2], value[EPS]));
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
