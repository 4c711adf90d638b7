/* SGD in one pass over parameter, gradient and velocity. The velocity starts as zeros, so that its first value is the
 * gradient, as in PyTorch (which has no dampening here). */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { LR, MOMENTUM, NESTEROV, WEIGHT_DECAY };

static void update(const double *hyper, bool decay, uint64_t step, int64_t count, float *param, const float *grad,
                   float *const *slot, int threads)
{
    (void)step;
    const float lr = (float)hyper[LR], momentum = (float)hyper[MOMENTUM];
    const float shrink = decay ? (float)hyper[WEIGHT_DECAY] : 0.0f;
    const bool nesterov = hyper[NESTEROV] != 0.0;
    if (!(hyper[MOMENTUM] > 0.0)) {
#pragma omp parallel for simd schedule(static) num_threads(threads) if (parallel : count > CKPT_PARALLEL)
        for (int64_t i = 0; i < count; i++) {
            param[i] -= lr * (grad[i] + shrink * param[i]);
        }
        return;
    }
    float *const velocity = slot[0];
#pragma omp parallel for simd schedule(static) num_threads(threads) if (parallel : count > CKPT_PARALLEL)
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] + shrink * param[i];
        const float v = momentum * velocity[i] + g;
        const float ahead = g + momentum * v;
        velocity[i] = v;
        param[i] -= lr * (nesterov ? ahead : v);
    }
}

const ckpt_optimizer_kernel ckpt_cpu_sgd = {
    .optimizer = "sgd",
    .update = update,
};
