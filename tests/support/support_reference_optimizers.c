/* Optimizers that update a parameter as a whole, by their formulas in double. */
#include <math.h>
#include <string.h>

#include "core/base/memory.h"
#include "tests/support/support_reference.h"

static double hyper_of(const ckpt_optimizer *optimizer, const double *hyper, const char *name)
{
    for (int i = 0; optimizer->attrs[i].name != NULL; i++) {
        if (strcmp(optimizer->attrs[i].name, name) == 0) {
            return hyper[i];
        }
    }
    return NAN;
}

const ckpt_setting ckpt_whole_settings[] = {
    {"adafactor", {0.01, -0.8, 0x1p-23, 1e-3, 1, 0}},
    {"adafactor", {0.6, -0.5, 1e-2, 1e-2, 0.5, 0.1}},
    {"muon", {1e-3, 0.95, 1, 0.1, 1e-7, 0, 3e-4, 0.9, 0.95, 1e-8}},
    {"muon", {0.02, 0.9, 0, 0.01, 1e-3, 1, 1e-3, 0.8, 0.99, 1e-6}},
    {"adamw8bit", {1e-3, 0.9, 0.999, 1e-8, 0.01}},
    {"adamw8bit", {1e-2, 0.8, 0.95, 1e-6, 0.1}},
};
const int ckpt_whole_setting_count = (int)(sizeof ckpt_whole_settings / sizeof ckpt_whole_settings[0]);

static double root_mean_square(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum / (double)count);
}

/* torch.optim.Adafactor, a matrix of the stack after the other; `update` is room for the update. */
static void adafactor(const ckpt_optimizer *o, const double *hyper, bool decay, const ckpt_matrix *matrix,
                      uint64_t step, double *param, const double *grad, double *const *slot, double *update)
{
    const double lr = hyper_of(o, hyper, "lr"), eps1 = hyper_of(o, hyper, "eps1"), eps2 = hyper_of(o, hyper, "eps2");
    const double move = pow((double)step, hyper_of(o, hyper, "beta2_decay")), t = 1 / sqrt((double)step);
    const int64_t rows = matrix->rows, columns = matrix->columns, count = matrix->stack * rows * columns;
    const double size = root_mean_square(param, count);
    const double alpha = (size > eps2 ? size : eps2) * (lr < t ? lr : t);
    for (int64_t i = 0; i < matrix->stack; i++) {
        double *const row = slot[0] + i * rows, *const column = slot[1] + i * columns, mean = 0;
        const double *const g = grad + i * rows * columns;
        for (int64_t c = 0; c < columns; c++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++) {
                sum += g[r * columns + c] * g[r * columns + c];
            }
            column[c] += move * (sum / (double)rows - column[c]);
        }
        for (int64_t r = 0; r < rows && rows > 1; r++) {
            const double size_of_row = root_mean_square(g + r * columns, columns);
            row[r] += move * (size_of_row * size_of_row - row[r]);
            mean += row[r] / (double)rows;
        }
        for (int64_t k = 0; k < rows * columns; k++) {
            const double v =
                rows > 1 ? row[k / columns] * column[k % columns] / (mean > eps1 ? mean : eps1) : column[k];
            update[i * rows * columns + k] = g[k] / sqrt(v > eps1 * eps1 ? v : eps1 * eps1);
        }
    }
    const double large = root_mean_square(update, count) / hyper_of(o, hyper, "d");
    for (int64_t k = 0; k < count; k++) {
        param[k] -= decay ? lr * hyper_of(o, hyper, "weight_decay") * param[k] : 0;
        param[k] -= alpha / (large > 1 ? large : 1) * update[k];
    }
}

/* x = a x + (b G + c G G) x with G = x x^T, five times, of a matrix that lies flat: rows <= columns. */
static void newton_schulz(int64_t rows, int64_t columns, double *x, double *gram, double *poly, double *next)
{
    for (int n = 0; n < 5; n++) {
        for (int64_t i = 0; i < rows * rows; i++) {
            gram[i] = 0;
            for (int64_t c = 0; c < columns; c++) {
                gram[i] += x[i / rows * columns + c] * x[i % rows * columns + c];
            }
        }
        for (int64_t i = 0; i < rows * rows; i++) {
            poly[i] = -4.7750 * gram[i];
            for (int64_t k = 0; k < rows; k++) {
                poly[i] += 2.0315 * gram[i / rows * rows + k] * gram[k * rows + i % rows];
            }
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            next[i] = 3.4445 * x[i];
            for (int64_t k = 0; k < rows; k++) {
                next[i] += poly[i / columns * rows + k] * x[k * columns + i % columns];
            }
        }
        memcpy(x, next, (size_t)(rows * columns) * sizeof *x);
    }
}

/* torch.optim.Muon on one matrix, in double; `work`: 4 times the larger square. */
static void muon(const ckpt_optimizer *o, const double *hyper, bool decay, int64_t rows, int64_t columns, double *param,
                 const double *grad, double *buffer, double *work)
{
    const double lr = hyper_of(o, hyper, "lr"), momentum = hyper_of(o, hyper, "momentum");
    const int64_t count = rows * columns, low = rows < columns ? rows : columns, high = rows + columns - low;
    const bool turned = rows > columns;
    double norm = 0;
    for (int64_t i = 0; i < count; i++) {
        buffer[i] += (1 - momentum) * (grad[i] - buffer[i]);
        const double u = hyper_of(o, hyper, "nesterov") != 0 ? grad[i] + momentum * (buffer[i] - grad[i]) : buffer[i];
        work[turned ? i % columns * rows + i / columns : i] = u;
        norm += u * u;
    }
    norm = sqrt(norm) > hyper_of(o, hyper, "eps") ? sqrt(norm) : hyper_of(o, hyper, "eps");
    for (int64_t i = 0; i < count; i++) {
        work[i] /= norm;
    }
    newton_schulz(low, high, work, work + count, work + count + low * low, work + count + 2 * low * low);
    const double ratio = (double)rows / (double)columns;
    const double factor = hyper_of(o, hyper, "match_rms") != 0 ? 0.2 * sqrt((double)high) : sqrt(ratio > 1 ? ratio : 1);
    for (int64_t i = 0; i < count; i++) {
        param[i] -= decay ? lr * hyper_of(o, hyper, "weight_decay") * param[i] : 0;
        param[i] -= lr * factor * work[turned ? i % columns * rows + i / columns : i];
    }
}

typedef struct adamw_rule {
    double lr, beta1, beta2, eps, decay;
} adamw_rule;

static void adamw(const adamw_rule *r, uint64_t step, int64_t count, double *param, const double *grad,
                  double *const *slot)
{
    for (int64_t i = 0; i < count; i++) {
        param[i] -= r->lr * r->decay * param[i];
        slot[0][i] = r->beta1 * slot[0][i] + (1 - r->beta1) * grad[i];
        slot[1][i] = r->beta2 * slot[1][i] + (1 - r->beta2) * grad[i] * grad[i];
        param[i] -= r->lr * (slot[0][i] / (1 - pow(r->beta1, (double)step))) /
                    (sqrt(slot[1][i] / (1 - pow(r->beta2, (double)step))) + r->eps);
    }
}

bool ckpt_reference_update_whole(const ckpt_optimizer *optimizer, const double *hyper, bool decay,
                                 const ckpt_matrix *matrix, uint64_t step, double *param, const double *grad,
                                 double *const *slot)
{
    const int64_t rows = matrix->rows, columns = matrix->columns, count = matrix->stack * rows * columns;
    const bool is_muon = strcmp(optimizer->name, "muon") == 0;
    const double weight_decay = decay ? hyper_of(optimizer, hyper, "weight_decay") : 0;
    if (strcmp(optimizer->name, "adamw8bit") == 0 || (is_muon && !(matrix->hidden && rows > 1 && columns > 1))) {
        const adamw_rule rule = {hyper_of(optimizer, hyper, is_muon ? "adamw_lr" : "lr"),
                                 hyper_of(optimizer, hyper, "beta1"), hyper_of(optimizer, hyper, "beta2"),
                                 hyper_of(optimizer, hyper, is_muon ? "adamw_eps" : "eps"), weight_decay};
        adamw(&rule, step, count, param, grad, slot);
        return true;
    }
    const int64_t low = rows < columns ? rows : columns;
    double *const room = ckpt_memory_get((size_t)(2 * count + 2 * low * low) * sizeof *room);
    const bool known = room != NULL && (is_muon || strcmp(optimizer->name, "adafactor") == 0);
    if (known && !is_muon) {
        adafactor(optimizer, hyper, decay, matrix, step, param, grad, slot, room);
    }
    for (int64_t k = 0; known && is_muon && k < matrix->stack; k++) {
        const int64_t at = k * rows * columns;
        muon(optimizer, hyper, decay, rows, columns, param + at, grad + at, slot[0] + at, room);
    }
    ckpt_memory_put(room);
    return known;
}
