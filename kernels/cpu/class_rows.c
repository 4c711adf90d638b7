/* Log-sum-exp of each row makes both directions one pass over the logits after the maximum is known. */
#include "kernels/cpu/class_rows.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/bfloat16.h"
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

/* Elements of a row that are looked at together: all of float32, a block of bfloat16, which is widened first. */
static int64_t piece_of(const ckpt_class_rows *rows)
{
    return rows->dtype == CKPT_FLOAT32 || rows->classes < CKPT_BLOCK ? rows->classes : CKPT_BLOCK;
}

/* Elements of a row from `first` on: n of them. */
static const float *piece_at(const ckpt_class_rows *rows, const void *logits, int64_t row, int64_t first, int64_t n,
                             float *room)
{
    return ckpt_run(rows->dtype == CKPT_BFLOAT16, logits, row * rows->classes + first, n, room);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static float row_most(const ckpt_class_rows *rows, const void *logits, int64_t row)
{
    float room[CKPT_BLOCK], most = 0;
    const int64_t piece = piece_of(rows);
    for (int64_t first = 0; first < rows->classes; first += piece) {
        const int64_t n = smaller(piece, rows->classes - first);
        const float found = ckpt_vector_max(n, piece_at(rows, logits, row, first, n, room));
        most = first == 0 || found > most ? found : most;
    }
    return most;
}

/* Of exp(x - most). */
static float row_exp_sum(const ckpt_class_rows *rows, const void *logits, int64_t row, float most)
{
    float room[CKPT_BLOCK], sum = 0;
    const int64_t piece = piece_of(rows);
    for (int64_t first = 0; first < rows->classes; first += piece) {
        const int64_t n = smaller(piece, rows->classes - first);
        sum += ckpt_vector_exp_sum(n, piece_at(rows, logits, row, first, n, room), most);
    }
    return sum;
}

/* The mean of a row's logits by the weights of its target. */
static double wanted_logit(const ckpt_class_rows *rows, const void *logits, int64_t row)
{
    float room[CKPT_BLOCK];
    const double target = (double)*piece_at(rows, logits, row, rows->target[row], 1, room);
    if (rows->smoothing == 0) {
        return target;
    }
    double sum = 0;
    const int64_t piece = piece_of(rows);
    for (int64_t first = 0; first < rows->classes; first += piece) {
        const int64_t n = smaller(piece, rows->classes - first);
        sum += (double)ckpt_vector_sum(n, piece_at(rows, logits, row, first, n, room));
    }
    return (1 - rows->smoothing) * target + rows->smoothing * (sum / (double)rows->classes);
}

double ckpt_class_rows_loss(const ckpt_class_rows *rows, const void *logits, float *lse)
{
    double sum[PARTS] = {0};
#pragma omp parallel for schedule(static) num_threads(rows->threads) if (rows->count * rows->classes > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t end = rows->count * (part + 1) / PARTS;
        double part_sum = 0.0;
        for (int64_t r = rows->count * part / PARTS; r < end; r++) {
            const float most = row_most(rows, logits, r);
            lse[r] = most + logf(row_exp_sum(rows, logits, r, most));
            if (rows->target[r] != rows->ignore) {
                part_sum += (double)lse[r] - wanted_logit(rows, logits, r);
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

/* Elements first .. first + n - 1 of a row's gradient. `x` may be `dx`. */
static void piece_gradient(const ckpt_class_rows *rows, int64_t row, int64_t first, int64_t n, float lse, float scale,
                           const float *x, float *dx)
{
    const float spread = (float)((double)scale * rows->smoothing / (double)rows->classes);
    const float hit = (float)((double)scale * (1 - rows->smoothing));
    const int64_t target = rows->target[row] - first;
    ckpt_vector_exp(n, x, lse, scale, dx);
    if (rows->smoothing > 0) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            dx[k] -= spread;
        }
    }
    if (target >= 0 && target < n) {
        dx[target] -= hit;
    }
}

void ckpt_class_rows_gradient(const ckpt_class_rows *rows, const void *logits, const float *lse, float scale,
                              void *grad)
{
    const int64_t piece = piece_of(rows), size = ckpt_dtype_bytes(rows->dtype);
    const bool narrow = rows->dtype == CKPT_BFLOAT16;
#pragma omp parallel for schedule(static) num_threads(rows->threads) if (rows->count * rows->classes > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows->count; r++) {
        float room[CKPT_BLOCK];
        char *const row = (char *)grad + r * rows->classes * size;
        if (rows->target[r] == rows->ignore) {
            memset(row, 0, (size_t)(rows->classes * size));
            continue;
        }
        for (int64_t first = 0; first < rows->classes; first += piece) {
            const int64_t n = smaller(piece, rows->classes - first);
            const float *const x = piece_at(rows, logits, r, first, n, room);
            piece_gradient(rows, r, first, n, lse[r], scale, x, ckpt_open_run(narrow, row, first, n, false, room));
            ckpt_close_run(narrow, room, n, row, first);
        }
    }
}
