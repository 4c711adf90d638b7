/* Looks up rows of a table. Backward adds each token's gradient to its row, in token order. Every thread owns a range
 * of features: nothing is locked, and the order is the same for any number of threads. */
#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { SLICE = 64 }; /* the fewest features worth a thread: a few cache lines */

static ckpt_code check_ids(const ckpt_kernel_args *args, int64_t tokens, int64_t rows, ckpt_err *err)
{
    const int32_t *const id = args->in[0];
    int64_t wrong = 0;
    for (int64_t t = 0; t < tokens; t++) {
        wrong += (int64_t)(id[t] < 0 || id[t] >= rows);
    }
    for (int64_t t = 0; t < tokens && wrong > 0; t++) {
        if (id[t] < 0 || id[t] >= rows) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "id of token %lld: found %ld, wanted 0..%lld", (long long)t,
                             (long)id[t], (long long)rows - 1);
        }
    }
    return CKPT_OK;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_shape *const weight = &args->node->param[0].tensor.shape;
    const int64_t tokens = ckpt_shape_count(&args->node->in[0].shape), rows = weight->dim[0], F = weight->dim[1];
    CKPT_TRY(check_ids(args, tokens, rows, err));
    const int32_t *const id = args->in[0];
    const bool narrow = args->node->dtype == CKPT_BFLOAT16;
    const char *const table = narrow ? args->param16[0] : (const void *)args->param[0];
    char *const y = args->out[0];
    const int64_t row = F * ckpt_dtype_bytes(args->node->dtype);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (tokens * F > CKPT_PARALLEL)
    for (int64_t t = 0; t < tokens; t++) {
        memcpy(y + t * row, table + id[t] * row, (size_t)row);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_shape *const weight = &args->node->param[0].tensor.shape;
    const int64_t tokens = ckpt_shape_count(&args->node->in[0].shape), rows = weight->dim[0], F = weight->dim[1];
    CKPT_TRY(check_ids(args, tokens, rows, err));
    const int32_t *const id = args->in[0];
    const float *const dy = args->grad_out[0];
    const uint16_t *const dy16 = args->grad_out[0];
    const bool narrow = args->node->dtype == CKPT_BFLOAT16;
    float *const grad = args->grad_param[0];
    const int64_t threads = args->node->threads;
    if ((args->grad_param_adds & 1) == 0) {
        /* One long piece per thread, so that the C library writes past the caches. */
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (rows * F > CKPT_PARALLEL)
        for (int64_t piece = 0; piece < threads; piece++) {
            const int64_t from = rows * piece / threads * F, to = rows * (piece + 1) / threads * F;
            memset(grad + from, 0, (size_t)(to - from) * sizeof *grad);
        }
    }
    const int64_t slices = F / SLICE < 1 ? 1 : F / SLICE < threads ? F / SLICE : threads;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (tokens * F > CKPT_PARALLEL)
    for (int64_t slice = 0; slice < slices; slice++) {
        const int64_t from = F * slice / slices, n = F * (slice + 1) / slices - from;
        for (int64_t t = 0; t < tokens; t++) {
            if (narrow) {
                ckpt_widen_add(n, dy16 + t * F + from, grad + id[t] * F + from);
            } else {
                ckpt_vector_add(n, dy + t * F + from, grad + id[t] * F + from);
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_embedding = {
    .op = "embedding",
    .forward = forward,
    .backward = backward,
};
