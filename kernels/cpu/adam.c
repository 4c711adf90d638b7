/* Adam and AdamW in one pass over parameter, gradient and both moments. The corrections for the moments' start at
 * zero are numbers per step, worked out in double. */
#include <math.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY };

/* `keep`: what decoupled decay leaves of a parameter; `shrink`: decay that is added to the gradient. */
static void step_all(const double *hyper, double keep, double shrink, uint64_t step, int64_t count, float *param,
                     const float *grad, float *const *slot, int threads)
{
    const float stay = (float)keep, pull = (float)shrink;
    const float beta1 = (float)hyper[BETA1], beta2 = (float)hyper[BETA2], eps = (float)hyper[EPS];
    const float rest1 = (float)(1.0 - hyper[BETA1]), rest2 = (float)(1.0 - hyper[BETA2]);
    const float size = (float)(hyper[LR] / (1.0 - pow(hyper[BETA1], (double)step)));
    const float root = (float)(1.0 / sqrt(1.0 - pow(hyper[BETA2], (double)step)));
    float *const mean = slot[0], *const square = slot[1];
#pragma omp parallel for simd schedule(static) num_threads(threads) if (parallel : count > CKPT_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
        const float w = param[i] * stay;
        const float g = grad[i] + pull * w;
        const float m = beta1 * mean[i] + rest1 * g;
        const float v = beta2 * square[i] + rest2 * g * g;
        mean[i] = m;
        square[i] = v;
        param[i] = w - size * m / (sqrtf(v) * root + eps);
    }
}

static void adam(const double *hyper, bool decay, uint64_t step, int64_t count, float *param, const float *grad,
                 float *const *slot, int threads)
{
    step_all(hyper, 1.0, decay ? hyper[WEIGHT_DECAY] : 0.0, step, count, param, grad, slot, threads);
}

static void adamw(const double *hyper, bool decay, uint64_t step, int64_t count, float *param, const float *grad,
                  float *const *slot, int threads)
{
    step_all(hyper, decay ? 1.0 - hyper[LR] * hyper[WEIGHT_DECAY] : 1.0, 0.0, step, count, param, grad, slot, threads);
}

const ckpt_optimizer_kernel ckpt_cpu_adam = {
    .optimizer = "adam",
    .update = adam,
};

const ckpt_optimizer_kernel ckpt_cpu_adamw = {
    .optimizer = "adamw",
    .update = adamw,
};
