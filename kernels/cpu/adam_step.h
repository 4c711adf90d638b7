/* The step of Adam and AdamW on values whose moments are floats: of both, and of what other optimizers leave to AdamW. */
#ifndef CKPT_KERNELS_CPU_ADAM_STEP_H
#define CKPT_KERNELS_CPU_ADAM_STEP_H

#include "kernels/kernel.h"

typedef struct ckpt_adam_rule {
    float beta1, beta2, rest1, rest2, eps;
    float size, root; /* lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    float stay, pull; /* what is left of a weight; what of it is added to the gradient */
} ckpt_adam_rule;

/* `number`: size, root, stay, pull of parameters that decay. */
ckpt_adam_rule ckpt_adam_rule_of(double beta1, double beta2, double eps, const float number[4], bool decay);

/* One pass over parameter, gradient, slot[0] and slot[1]. */
void ckpt_adam_step(const ckpt_update_args *args, const ckpt_adam_rule *rule);

#endif
