/* Muon for weights of hidden layers, AdamW for everything else. */
#include <math.h>

#include "ops/ops_impl.h"
#include "ops/whole_update.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY, EPS, MATCH_RMS, ADAMW_LR, BETA1, BETA2, ADAMW_EPS };

static const ckpt_attr_spec attrs[] = {
    [LR] = {.name = "lr", .kind = CKPT_FLOAT, .real = 1e-3, .help = "learning rate of hidden layers' weights"},
    [MOMENTUM] = {.name = "momentum", .kind = CKPT_FLOAT, .real = 0.95, .help = "decay of the mean gradient"},
    [NESTEROV] = {.name = "nesterov", .kind = CKPT_BOOL, .integer = 1, .help = "look ahead along the mean"},
    [WEIGHT_DECAY] = {.name = "weight_decay",
                      .kind = CKPT_FLOAT,
                      .real = 0.1,
                      .help = "w shrinks by its lr times this"},
    [EPS] = {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-7, .help = "least norm that a matrix is divided by"},
    [MATCH_RMS] = {.name = "match_rms",
                   .kind = CKPT_BOOL,
                   .help = "lr times 0.2 sqrt(max(rows, columns)) in place of sqrt(max(1, rows / columns))"},
    [ADAMW_LR] = {.name = "adamw_lr",
                  .kind = CKPT_FLOAT,
                  .real = 3e-4,
                  .help = "learning rate of all other parameters"},
    [BETA1] = {.name = "beta1", .kind = CKPT_FLOAT, .real = 0.9, .help = "of these: decay of the mean"},
    [BETA2] = {.name = "beta2", .kind = CKPT_FLOAT, .real = 0.95, .help = "of these: decay of the mean square"},
    [ADAMW_EPS] = {.name = "adamw_eps", .kind = CKPT_FLOAT, .real = 1e-8, .help = "of these: added to the root"},
    {0},
};

static int slots(const double *hyper)
{
    (void)hyper;
    return 2;
}

static ckpt_bytes slot_bytes(const ckpt_matrix *matrix, int slot)
{
    const ckpt_bytes all = matrix->stack * matrix->rows * matrix->columns * 4;
    return slot == 0 || !ckpt_muon_takes(matrix) ? all : 0;
}

static ckpt_bytes workspace(const ckpt_matrix *matrix, bool gpu)
{
    return ckpt_muon_takes(matrix) ? ckpt_muon_space_of(matrix, gpu).bytes : 0;
}

/* Three products in each of five iterations. */
static ckpt_flop flop(const ckpt_matrix *matrix)
{
    if (!ckpt_muon_takes(matrix)) {
        return 0;
    }
    const ckpt_muon_space s = ckpt_muon_space_of(matrix, false);
    const ckpt_flop square = ckpt_times(s.small, s.small);
    return ckpt_times(10 * matrix->stack, ckpt_times(square, 2 * s.large + s.small));
}

static void numbers(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS])
{
    const double lr = hyper[LR] * rate, adamw = hyper[ADAMW_LR] * rate;
    numbers[0] = (float)lr;
    numbers[1] = (float)(1.0 - lr * hyper[WEIGHT_DECAY]);
    numbers[2] = (float)(adamw / (1.0 - pow(hyper[BETA1], (double)step)));
    numbers[3] = (float)(1.0 / sqrt(1.0 - pow(hyper[BETA2], (double)step)));
    numbers[4] = (float)(1.0 - adamw * hyper[WEIGHT_DECAY]);
}

static ckpt_code check(const double *hyper, ckpt_err *err)
{
    if (!(hyper[LR] >= 0 && hyper[ADAMW_LR] >= 0 && hyper[WEIGHT_DECAY] >= 0 && hyper[ADAMW_EPS] >= 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "lr %g, adamw_lr %g, weight_decay %g, adamw_eps %g: none may be negative",
                         hyper[LR], hyper[ADAMW_LR], hyper[WEIGHT_DECAY], hyper[ADAMW_EPS]);
    }
    if (!(hyper[MOMENTUM] >= 0 && hyper[MOMENTUM] < 1 && hyper[BETA1] >= 0 && hyper[BETA1] < 1 && hyper[BETA2] >= 0 &&
          hyper[BETA2] < 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "momentum %g, beta1 %g, beta2 %g: wanted at least 0 and less than 1",
                         hyper[MOMENTUM], hyper[BETA1], hyper[BETA2]);
    }
    if (!(hyper[EPS] > 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "eps %g: wanted more than 0", hyper[EPS]);
    }
    return CKPT_OK;
}

const ckpt_optimizer ckpt_optimizer_muon = {
    .name = "muon",
    .formula = "m += (1 - momentum) (g - m); u = m, or g + momentum (m - g) with nesterov; x = u / |u|, five times "
               "x = 3.4445 x - 4.775 (x x^T) x + 2.0315 (x x^T)^2 x; w -= lr decay w; w -= lr sqrt(max(1, rows / "
               "columns)) x; vectors, embeddings and heads: adamw",
    .source = "Jordan et al. 2024, kellerjordan.github.io/posts/muon; torch.optim.Muon, but in float32",
    .attrs = attrs,
    .slots_max = 2,
    .slots = slots,
    .slot_bytes = slot_bytes,
    .workspace = workspace,
    .flop = flop,
    .numbers = numbers,
    .check = check,
};
