/* Mean squared error, with gradients for both inputs. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* Parts of the sum, in double, added in order: this depends on the size only, not on the threads. */
enum { PARTS = 64 };

static double part_sum(int64_t n, const float *x, const float *target)
{
    enum { LANES = 8 };
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const double difference = (double)x[i + j] - (double)target[i + j];
            lane[j] += difference * difference;
        }
    }
    for (int j = 0; i + j < n; j++) {
        const double difference = (double)x[i + j] - (double)target[i + j];
        lane[j] += difference * difference;
    }
    double sum = 0.0;
    for (int j = 0; j < LANES; j++) {
        sum += lane[j];
    }
    return sum;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0], *const target = args->in[1];
    double sum[PARTS] = {0};
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t from = count / PARTS * part, to = part + 1 < PARTS ? count / PARTS * (part + 1) : count;
        sum[part] = part_sum(to - from, x + from, target + from);
    }
    double total = 0.0;
    for (int part = 0; part < PARTS; part++) {
        total += sum[part];
    }
    *(float *)args->out[0] = (float)(total / (double)count);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0], *const target = args->in[1];
    const float loss_grad = args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f;
    for (int k = 0; k < 2; k++) {
        float *const dx = args->grad_in[k];
        const float scale = (float)((k == 0 ? 2.0 : -2.0) * (double)loss_grad / (double)count);
        if (dx != NULL) {
#pragma omp parallel for simd schedule(static) num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)
            for (int64_t i = 0; i < count; i++) {
                dx[i] = scale * (x[i] - target[i]);
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_mse = {
    .op = "mse",
    .forward = forward,
    .backward = backward,
};
