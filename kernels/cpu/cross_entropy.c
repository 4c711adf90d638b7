/* Softmax and negative log-likelihood in one, over rows of contiguous classes. Forward saves log-sum-exp of each row
 * and the number of rows that count, so that backward needs one pass: (softmax - one hot) / count. */
#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* Parts of the sum, each in row order: this depends on the rows only, not on the threads. */
enum { PARTS = 64 };

typedef struct row_set {
    int64_t count, classes; /* classes are contiguous for every rank, 4 included */
    const int32_t *target;
    int64_t ignore;
} row_set;

static row_set find_rows(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t classes = shape->rank == 4 ? shape->dim[1] : shape->dim[shape->rank - 1];
    return (row_set){.count = ckpt_shape_count(shape) / classes,
                     .classes = classes,
                     .target = args->in[1],
                     .ignore = ckpt_node_int(args->node, "ignore_index")};
}

/* Every target is a class or ignored; *counted rows are not ignored. */
static ckpt_code check_targets(const row_set *rows, int64_t *counted, ckpt_err *err)
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

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const row_set rows = find_rows(args);
    int64_t counted = 0;
    CKPT_TRY(check_targets(&rows, &counted, err));
    const float *const logits = args->in[0];
    float *const lse = args->saved[0];
    double sum[PARTS] = {0};
#pragma omp parallel for schedule(static)                                                                              \
    num_threads(args->node->threads) if (rows.count * rows.classes > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t end = rows.count * (part + 1) / PARTS;
        double part_sum = 0.0;
        for (int64_t r = rows.count * part / PARTS; r < end; r++) {
            const float *const x = logits + r * rows.classes;
            const float most = ckpt_vector_max(rows.classes, x);
            lse[r] = most + logf(ckpt_vector_exp_sum(rows.classes, x, most));
            if (rows.target[r] != rows.ignore) {
                part_sum += (double)lse[r] - (double)x[rows.target[r]];
            }
        }
        sum[part] = part_sum;
    }
    double total = 0.0;
    for (int part = 0; part < PARTS; part++) {
        total += sum[part];
    }
    *(float *)args->saved[1] = (float)counted;
    *(float *)args->out[0] = (float)(total / (double)counted); /* no row counts: NaN, as in PyTorch */
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const row_set rows = find_rows(args);
    int64_t now = 0; /* not used: forward has counted; the check guards the write to dx[target] */
    CKPT_TRY(check_targets(&rows, &now, err));
    const float counted = *(const float *)args->saved[1];
    const float *const logits = args->in[0];
    const float *const lse = args->saved[0];
    float *const grad = args->grad_in[0];
    const float scale = (args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f) / counted;
#pragma omp parallel for schedule(static)                                                                              \
    num_threads(args->node->threads) if (rows.count * rows.classes > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows.count; r++) {
        float *const dx = grad + r * rows.classes;
        if (rows.target[r] == rows.ignore) {
            for (int64_t k = 0; k < rows.classes; k++) {
                dx[k] = 0.0f;
            }
            continue;
        }
        ckpt_vector_exp(rows.classes, logits + r * rows.classes, lse[r], scale, dx);
        dx[rows.target[r]] -= scale;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_cross_entropy = {
    .op = "cross_entropy",
    .forward = forward,
    .backward = backward,
};
