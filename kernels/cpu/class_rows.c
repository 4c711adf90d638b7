/* Log-sum-exp of each row makes both directions one pass over the logits after the maximum is known. */
#include "kernels/cpu/class_rows.h"

#include <math.h>

#include "kernels/cpu/vector.h"

/* Parts of the sum, each in row order: this depends on the rows only, not on the threads. */
enum { PARTS = 64 };

ckpt_code ckpt_class_rows_check(const ckpt_class_rows *rows, int64_t *counted, ckpt_err *err)
{
    int64_t wrong = 0, kept = 0;
    for (int64_t r = 0; r < rows->count; r++) {
        const int64_t target = rows->target[r];
        const int64_t keep = target != rows->ignore;
        kept += keep;
        wrong += keep & (int64_t)(target < 0 || target >= rows->classes);
    }
    for (int64_t r = 0; r < rows->count && wrong > 0; r++) {
        const int64_t target = rows->target[r];
        if (target != rows->ignore && (target < 0 || target >= rows->classes)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "target of row %lld: found %lld, wanted 0..%lld or ignore_index %lld",
                             (long long)r, (long long)target, (long long)rows->classes - 1, (long long)rows->ignore);
        }
    }
    *counted = kept;
    return CKPT_OK;
}

/* The mean of a row's logits by the weights of its target. */
static double wanted_logit(const ckpt_class_rows *rows, const float *x, int32_t target)
{
    if (rows->smoothing == 0) {
        return (double)x[target];
    }
    const double mean = (double)ckpt_vector_sum(rows->classes, x) / (double)rows->classes;
    return (1 - rows->smoothing) * (double)x[target] + rows->smoothing * mean;
}

double ckpt_class_rows_loss(const ckpt_class_rows *rows, const float *logits, float *lse)
{
    double sum[PARTS] = {0};
#pragma omp parallel for schedule(static) num_threads(rows->threads) if (rows->count * rows->classes > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t end = rows->count * (part + 1) / PARTS;
        double part_sum = 0.0;
        for (int64_t r = rows->count * part / PARTS; r < end; r++) {
            const float *const x = logits + r * rows->classes;
            const float most = ckpt_vector_max(rows->classes, x);
            lse[r] = most + logf(ckpt_vector_exp_sum(rows->classes, x, most));
            if (rows->target[r] != rows->ignore) {
                part_sum += (double)lse[r] - wanted_logit(rows, x, rows->target[r]);
            }
        }
        sum[part] = part_sum;
    }
    double total = 0.0;
    for (int part = 0; part < PARTS; part++) {
        total += sum[part];
    }
    return total;
}

void ckpt_class_rows_gradient(const ckpt_class_rows *rows, const float *logits, const float *lse, float scale,
                              float *grad)
{
    const float spread = (float)((double)scale * rows->smoothing / (double)rows->classes);
    const float hit = (float)((double)scale * (1 - rows->smoothing));
#pragma omp parallel for schedule(static) num_threads(rows->threads) if (rows->count * rows->classes > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows->count; r++) {
        float *const dx = grad + r * rows->classes;
        if (rows->target[r] == rows->ignore) {
            for (int64_t k = 0; k < rows->classes; k++) {
                dx[k] = 0.0f;
            }
            continue;
        }
        ckpt_vector_exp(rows->classes, logits + r * rows->classes, lse[r], scale, dx);
        if (rows->smoothing > 0) {
#pragma omp simd
            for (int64_t k = 0; k < rows->classes; k++) {
                dx[k] -= spread;
            }
        }
        dx[rows->target[r]] -= hit;
    }
}
