/* A row of the table for every pair of query and key. A gradient of the table is summed by one thread, query by query. */
#include "ops/relative_bias.h"

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_relative r = ckpt_relative_of(args->node);
    const float *const table = args->param[0];
    float *const y = args->out[0];
    const int64_t rows = r.heads * r.queries;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (rows * r.keys > CKPT_PARALLEL)
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t row = 0; row < r.rows; row++) {
            int64_t from = 0, end = 0;
            const float value = table[row * r.heads + i / r.queries];
            ckpt_relative_keys(&r, row, i % r.queries, &from, &end);
            for (int64_t key = from; key < end; key++) {
                y[i * r.keys + key] = value;
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_relative r = ckpt_relative_of(args->node);
    const float *const dy = args->grad_out[0];
    float *const grad = args->grad_param[0];
    const bool adds = (args->grad_param_adds & 1) != 0;
    const int64_t pairs = r.heads * r.queries * r.keys;
#pragma omp parallel for schedule(static, 1) num_threads(args->node->threads) if (pairs > CKPT_PARALLEL)
    for (int64_t i = 0; i < r.rows * r.heads; i++) {
        const float *const head = dy + i % r.heads * r.queries * r.keys;
        float sum = 0;
        for (int64_t query = 0; query < r.queries; query++) {
            int64_t from = 0, end = 0;
            ckpt_relative_keys(&r, i / r.heads, query, &from, &end);
            sum += end > from ? ckpt_vector_sum(end - from, head + query * r.keys + from) : 0;
        }
        grad[i] = adds ? grad[i] + sum : sum;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_relative_bias = {
    .op = "relative_bias",
    .forward = forward,
    .backward = backward,
};
