/* Adafactor: the second moments of a matrix are kept as those of its rows and of its columns. */
#include <math.h>

#include "ops/whole_update.h"

enum { LR, BETA2_DECAY, EPS1, EPS2, CLIP, WEIGHT_DECAY };

static const ckpt_attr_spec attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 0.01, .help = "learning rate; no more than 1 / sqrt(t) is used"},
    [BETA2_DECAY] = {.name = "beta2_decay",
                     .kind = CKPT_FLOAT,
                     .real = -0.8,
                     .help = "the moments move by t to this power in step t"},
    [EPS1] = {.name = "eps1", .kind = CKPT_FLOAT, .real = 0x1p-23, .help = "least root of a moment"},
    [EPS2] = {.name = "eps2", .kind = CKPT_FLOAT, .real = 1e-3, .help = "least root mean square of w in the rate"},
    [CLIP] = {.name = "d",
              .kind = CKPT_FLOAT,
              .real = 1,
              .help = "updates of a larger root mean square are scaled to it"},
    [WEIGHT_DECAY] = {.name = "weight_decay", .kind = CKPT_FLOAT, .help = "w shrinks by lr times this"},
    {0},
};

static int slots(const double *hyper)
{
    (void)hyper;
    return 2;
}

/* Moments of rows, of columns; a vector is one row, and has none of the first. */
static ckpt_bytes slot_bytes(const ckpt_matrix *matrix, int slot)
{
    const ckpt_bytes rows = matrix->rows > 1 ? matrix->stack * matrix->rows * 4 : 0;
    return slot == 0 ? rows : matrix->stack * matrix->columns * 4;
}

static ckpt_bytes workspace(const ckpt_matrix *matrix, bool gpu)
{
    return gpu ? ckpt_adafactor_space_of(matrix).bytes : 0;
}

static void numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    const double lr = hyper[LR] * rate, most = 1.0 / sqrt((double)step);
    numbers[0] = (float)(lr < most ? lr : most);
    numbers[1] = (float)pow((double)step, hyper[BETA2_DECAY]);
    numbers[2] = (float)(1.0 - lr * hyper[WEIGHT_DECAY]);
}

/* The least moment is eps1 squared: if it were 0, a gradient of zeros would be divided by 0. */
static const double eps1_least = 0x1p-63;

static ckpt_code check(const double *hyper, ckpt_err *err)
{
    if (!(hyper[LR] >= 0 && hyper[WEIGHT_DECAY] >= 0 && hyper[EPS2] >= 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "lr %g, weight_decay %g, eps2 %g: none may be negative", hyper[LR],
                         hyper[WEIGHT_DECAY], hyper[EPS2]);
    }
    if (!(hyper[BETA2_DECAY] <= 0 && hyper[CLIP] > 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "beta2_decay %g, d %g: wanted at most 0, and more than 0",
                         hyper[BETA2_DECAY], hyper[CLIP]);
    }
    if (!(hyper[EPS1] >= eps1_least)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "eps1 %g: wanted at least %g, whose square is a float", hyper[EPS1],
                         eps1_least);
    }
    return CKPT_OK;
}

const ckpt_optimizer ckpt_optimizer_adafactor = {
    .name = "adafactor",
    .formula =
        "r += t^b (mean over columns of g^2 - r); c likewise over rows; u = g / max(sqrt(r c / mean r), eps1); "
        "w -= lr decay w; w -= max(eps2, rms w) min(lr, 1 / sqrt t) u / max(1, rms(u) / d); a vector has c alone; "
        "a filter is a matrix of its output channels",
    .source = "Shazeer & Stern, ICML 2018, arXiv:1804.04235; torch.optim.Adafactor",
    .attrs = attrs,
    .slots_max = 2,
    .slots = slots,
    .slot_bytes = slot_bytes,
    .workspace = workspace,
    .numbers = numbers,
    .check = check,
};
