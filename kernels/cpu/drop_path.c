/* Stochastic depth. An example, a row of dim 0, is kept iff uniform > p, tested on the integer word of its number. Dim 0
 * is the slowest in memory for every rank, so an example is one piece. */
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"
#include "kernels/philox.h"

enum { STREAM = 0 };

/* What an example's elements are multiplied with. */
static float factor_of(const ckpt_kernel_args *args, int64_t example)
{
    uint32_t word[4];
    const double p = ckpt_node_float(args->node, "p");
    if (args->evaluating) {
        return 1.0f;
    }
    ckpt_philox_block(args->seed, args->step, (uint32_t)args->node->index, STREAM, (uint64_t)(example / 4), word);
    return word[example % 4] >= (uint32_t)ckpt_philox_threshold(p) ? (float)(1.0 / (1.0 - p)) : 0.0f;
}

/* A dropped element is 0, also where x is no number. */
static void scaled(int64_t n, float factor, const float *x, bool adds, float *y)
{
    if (factor == 0.0f) {
        if (!adds) {
            memset(y, 0, (size_t)n * sizeof *y);
        }
    } else if (adds) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] += factor * x[i];
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = factor * x[i];
        }
    }
}

static void run(const ckpt_kernel_args *args, const float *x, bool adds, float *y)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t examples = shape->dim[0], count = ckpt_shape_count(shape), each = count / examples;
    const int64_t blocks = CKPT_BLOCKS(each);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < examples * blocks; piece++) {
        const int64_t example = piece / blocks, b = piece % blocks, start = example * each + b * CKPT_BLOCK;
        scaled(CKPT_IN_BLOCK(each, b), factor_of(args, example), x + start, adds, y + start);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args, args->in[0], false, args->out[0]);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_drop_path = {
    .op = "drop_path",
    .forward = forward,
    .backward = backward,
};
