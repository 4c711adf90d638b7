/* Lion: the sign of a mean of gradients is the step, so all values move by the learning rate. */
#include "ops/optimizer.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY };

static const ckpt_attr_spec attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 1e-4, .help = "learning rate"},
    [BETA1] = {.name = "beta1", .kind = CKPT_FLOAT, .real = 0.9, .help = "share of the mean in the step's direction"},
    [BETA2] = {.name = "beta2", .kind = CKPT_FLOAT, .real = 0.99, .help = "decay of the mean"},
    [WEIGHT_DECAY] = {.name = "weight_decay", .kind = CKPT_FLOAT, .help = "w shrinks by lr times this"},
    {0},
};

static int slots(const double *hyper)
{
    (void)hyper;
    return 1;
}

static void numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    (void)step;
    numbers[0] = (float)(hyper[LR] * rate);
    numbers[1] = (float)(1.0 - hyper[LR] * rate * hyper[WEIGHT_DECAY]);
}

static ckpt_code check(const double *hyper, ckpt_err *err)
{
    if (!(hyper[LR] >= 0 && hyper[WEIGHT_DECAY] >= 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "lr %g, weight_decay %g: none may be negative", hyper[LR],
                         hyper[WEIGHT_DECAY]);
    }
    if (!(hyper[BETA1] >= 0 && hyper[BETA1] < 1 && hyper[BETA2] >= 0 && hyper[BETA2] < 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "beta1 %g, beta2 %g: wanted at least 0 and less than 1", hyper[BETA1],
                         hyper[BETA2]);
    }
    return CKPT_OK;
}

const ckpt_optimizer ckpt_optimizer_lion = {
    .name = "lion",
    .formula = "c = b1 m + (1 - b1) g; w -= lr (sign(c) + decay w); m = b2 m + (1 - b2) g",
    .source = "Chen et al., NeurIPS 2023, arXiv:2302.06675, algorithm 2",
    .attrs = attrs,
    .slots_max = 1,
    .slots = slots,
    .numbers = numbers,
    .check = check,
};
