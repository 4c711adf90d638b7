/* Mean negative log-likelihood of the target class, from log-probabilities. It reads and writes one number per row, so
 * only clearing the gradient is worth threads. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

static ckpt_code check_targets(const ckpt_kernel_args *args, int64_t N, int64_t K, ckpt_err *err)
{
    const int32_t *const target = args->in[1];
    for (int64_t r = 0; r < N; r++) {
        if (target[r] < 0 || target[r] >= K) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "target of row %lld: found %ld, wanted 0..%lld", (long long)r,
                             (long)target[r], (long long)K - 1);
        }
    }
    return CKPT_OK;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t N = shape->dim[0], K = shape->dim[1];
    CKPT_TRY(check_targets(args, N, K, err));
    const float *const x = args->in[0];
    const int32_t *const target = args->in[1];
    double sum = 0.0;
    for (int64_t r = 0; r < N; r++) {
        sum -= (double)x[r * K + target[r]];
    }
    *(float *)args->out[0] = (float)(sum / (double)N);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t N = shape->dim[0], K = shape->dim[1];
    CKPT_TRY(check_targets(args, N, K, err));
    const int32_t *const target = args->in[1];
    float *const dx = args->grad_in[0];
    const float loss_grad = args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f;
    const float value = -loss_grad / (float)N;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (N * K > CKPT_PARALLEL)
    for (int64_t r = 0; r < N; r++) {
        memset(dx + r * K, 0, (size_t)K * sizeof *dx);
        dx[r * K + target[r]] = value;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_nll_loss = {
    .op = "nll_loss",
    .forward = forward,
    .backward = backward,
};
