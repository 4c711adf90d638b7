/* Stochastic gradient descent with momentum, as PyTorch writes it: the first step's velocity is the gradient itself. */
#include "ops/optimizer.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };

static const ckpt_attr_spec attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 0.01, .help = "learning rate"},
    [MOMENTUM] = {.name = "momentum", .kind = CKPT_FLOAT, .help = "share of the last velocity that stays"},
    [NESTEROV] = {.name = "nesterov", .kind = CKPT_BOOL, .help = "look ahead along the velocity"},
    [WEIGHT_DECAY] = {.name = "weight_decay", .kind = CKPT_FLOAT, .help = "added to the gradient, times the weight"},
    {0},
};

static int slots(const double *hyper)
{
    return hyper[MOMENTUM] > 0 ? 1 : 0;
}

static void numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    (void)step;
    numbers[0] = (float)(hyper[LR] * rate);
    numbers[1] = (float)hyper[WEIGHT_DECAY];
}

static ckpt_code check(const double *hyper, ckpt_err *err)
{
    if (!(hyper[LR] >= 0 && hyper[WEIGHT_DECAY] >= 0 && hyper[MOMENTUM] >= 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "lr %g, momentum %g, weight_decay %g: none may be negative", hyper[LR],
                         hyper[MOMENTUM], hyper[WEIGHT_DECAY]);
    }
    if (hyper[NESTEROV] != 0 && !(hyper[MOMENTUM] > 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "nesterov wants a momentum above 0");
    }
    return CKPT_OK;
}

const ckpt_optimizer ckpt_optimizer_sgd = {
    .name = "sgd",
    .formula = "g += decay w; v = momentum v + g (first step v = g); w -= lr (v, or g + momentum v with nesterov)",
    .source = "Sutskever et al., ICML 2013; torch.optim.SGD",
    .attrs = attrs,
    .slots_max = 1,
    .slots = slots,
    .numbers = numbers,
    .check = check,
};
