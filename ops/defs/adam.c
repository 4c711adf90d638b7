/* Adam and AdamW: they differ in where weight decay enters, and in its default. AdamW may keep its moments as bytes, with
 * a scale for every block of 256; parameters of fewer than 4,096 values keep floats. */
#include <math.h>

#include "ops/whole_update.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

static const ckpt_attr_spec adam_attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 1e-3, .help = "learning rate"},
    [BETA1] = {.name = "beta1", .kind = CKPT_FLOAT, .real = 0.9, .help = "decay of the mean"},
    [BETA2] = {.name = "beta2", .kind = CKPT_FLOAT, .real = 0.999, .help = "decay of the mean square"},
    [EPS] = {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-8, .help = "added to the root"},
    [WEIGHT_DECAY] = {.name = "weight_decay", .kind = CKPT_FLOAT, .help = "added to the gradient, times the weight"},
    {0},
};

static const ckpt_attr_spec adamw_attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 1e-3, .help = "learning rate"},
    [BETA1] = {.name = "beta1", .kind = CKPT_FLOAT, .real = 0.9, .help = "decay of the mean"},
    [BETA2] = {.name = "beta2", .kind = CKPT_FLOAT, .real = 0.999, .help = "decay of the mean square"},
    [EPS] = {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-8, .help = "added to the root"},
    [WEIGHT_DECAY] = {.name = "weight_decay", .kind = CKPT_FLOAT, .real = 0.01, .help = "w shrinks by lr times this"},
    {0},
};

static int slots(const double *hyper)
{
    (void)hyper;
    return 2;
}

static ckpt_bytes eight_bit_bytes(const ckpt_matrix *matrix, int slot)
{
    const int64_t count = matrix->stack * matrix->rows * matrix->columns;
    (void)slot;
    return ckpt_eight_bit_takes(count) ? ckpt_eight_bit_scale(count) + 4 * ckpt_eight_bit_blocks(count) : 4 * count;
}

/* The corrections for the moments' start at zero: lr / (1 - b1^t), 1 / sqrt(1 - b2^t). */
static void corrections(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    numbers[0] = (float)(hyper[LR] * rate / (1.0 - pow(hyper[BETA1], (double)step)));
    numbers[1] = (float)(1.0 / sqrt(1.0 - pow(hyper[BETA2], (double)step)));
}

/* Where weight decay applies: what is left of a weight, and what of it is added to the gradient. */
static void adam_numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    corrections(hyper, rate, step, numbers);
    numbers[2] = 1.0f;
    numbers[3] = (float)hyper[WEIGHT_DECAY];
}

static void adamw_numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    corrections(hyper, rate, step, numbers);
    numbers[2] = (float)(1.0 - hyper[LR] * rate * hyper[WEIGHT_DECAY]);
    numbers[3] = 0.0f;
}

static ckpt_code check(const double *hyper, ckpt_err *err)
{
    if (!(hyper[LR] >= 0 && hyper[EPS] >= 0 && hyper[WEIGHT_DECAY] >= 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "lr %g, eps %g, weight_decay %g: none may be negative", hyper[LR],
                         hyper[EPS], hyper[WEIGHT_DECAY]);
    }
    if (!(hyper[BETA1] >= 0 && hyper[BETA1] < 1 && hyper[BETA2] >= 0 && hyper[BETA2] < 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "beta1 %g, beta2 %g: wanted at least 0 and less than 1", hyper[BETA1],
                         hyper[BETA2]);
    }
    return CKPT_OK;
}

const ckpt_optimizer ckpt_optimizer_adam = {
    .name = "adam",
    .formula = "g += decay w; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; "
               "w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)",
    .source = "Kingma & Ba, ICLR 2015, arXiv:1412.6980; torch.optim.Adam",
    .attrs = adam_attrs,
    .slots_max = 2,
    .slots = slots,
    .numbers = adam_numbers,
    .check = check,
};

const ckpt_optimizer ckpt_optimizer_adamw = {
    .name = "adamw",
    .formula = "w -= lr decay w; then Adam without decay",
    .source = "Loshchilov & Hutter, ICLR 2019, arXiv:1711.05101; torch.optim.AdamW",
    .attrs = adamw_attrs,
    .slots_max = 2,
    .slots = slots,
    .numbers = adamw_numbers,
    .check = check,
};

const ckpt_optimizer ckpt_optimizer_adamw8bit = {
    .name = "adamw8bit",
    .formula =
        "AdamW; between steps m and v are bytes of a dynamic map times the largest of each block of 256 values, in "
        "parameters of 4096 or more",
    .source = "Dettmers et al., ICLR 2022, arXiv:2110.02861",
    .attrs = adamw_attrs,
    .slots_max = 2,
    .slots = slots,
    .slot_bytes = eight_bit_bytes,
    .numbers = adamw_numbers,
    .check = check,
};
