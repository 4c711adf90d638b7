/* Sines and cosines of a diffusion's steps, in double: there are a few thousand of them. */
#include <math.h>
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

typedef struct sizes {
    int64_t batch, features, half;
    int64_t sines, cosines; /* the first feature of each */
    double fall;            /* of ln frequency, from one to the next */
} sizes;

static sizes sizes_of(const ckpt_node *node)
{
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t half = y->dim[1] / 2;
    const bool flip = ckpt_node_bool(node, "flip");
    return (sizes){y->dim[0], y->dim[1], half, flip ? half : 0, flip ? 0 : half, ckpt_timestep_fall(node)};
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const sizes s = sizes_of(args->node);
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.batch * s.features > CKPT_PARALLEL)
    for (int64_t i = 0; i < s.half; i++) {
        const double frequency = exp(-s.fall * (double)i);
        for (int64_t b = 0; b < s.batch; b++) {
            const double angle = (double)x[b] * frequency;
            y[b * s.features + s.sines + i] = (float)sin(angle);
            y[b * s.features + s.cosines + i] = (float)cos(angle);
        }
    }
    for (int64_t b = 0; b < s.batch && s.features > 2 * s.half; b++) {
        y[b * s.features + 2 * s.half] = 0;
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const sizes s = sizes_of(args->node);
    const float *const x = args->in[0], *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.batch * s.features > CKPT_PARALLEL)
    for (int64_t b = 0; b < s.batch; b++) {
        const float *const sines = dy + b * s.features + s.sines, *const cosines = dy + b * s.features + s.cosines;
        double sum = 0;
        for (int64_t i = 0; i < s.half; i++) {
            const double frequency = exp(-s.fall * (double)i), angle = (double)x[b] * frequency;
            sum += frequency * (cos(angle) * (double)sines[i] - sin(angle) * (double)cosines[i]);
        }
        dx[b] = adds ? dx[b] + (float)sum : (float)sum;
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_timestep_embedding = {
    .op = "timestep_embedding",
    .forward = forward,
    .backward = backward,
};
