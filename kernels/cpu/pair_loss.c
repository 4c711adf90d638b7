/* The sums are made in parts, in double, and added in order: this depends on the size only, not on the threads. */
#include "kernels/cpu/pair_loss.h"

enum { PARTS = 64 };

void ckpt_pair_loss(const ckpt_kernel_args *args, ckpt_pair_terms *terms, double p, double divisor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const x = args->in[0], *const target = args->in[1];
    double sum[PARTS] = {0};
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t from = count / PARTS * part, to = part + 1 < PARTS ? count / PARTS * (part + 1) : count;
        sum[part] = terms(to - from, x + from, target + from, p);
    }
    double total = 0.0;
    for (int part = 0; part < PARTS; part++) {
        total += sum[part];
    }
    *(float *)args->out[0] = (float)(total / divisor);
}

void ckpt_pair_gradients(const ckpt_kernel_args *args, ckpt_pair_slope *const slope[2], double p, double divisor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), blocks = CKPT_BLOCKS(count);
    const float *const x = args->in[0], *const target = args->in[1];
    const double scale = (args->grad_out[0] != NULL ? (double)*(const float *)args->grad_out[0] : 1.0) / divisor;
    for (int k = 0; k < 2; k++) {
        float *const to = args->grad_in[k];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
        for (int64_t b = 0; b < (to != NULL ? blocks : 0); b++) {
            const int64_t at = b * CKPT_BLOCK;
            slope[k](CKPT_IN_BLOCK(count, b), x + at, target + at, scale, p, to + at);
        }
    }
}
