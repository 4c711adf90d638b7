/* Sum of two or more tensors; bfloat16 where none is stretched. Inputs are added in order, a block at a time, so that each is read once. Backward passes
 * the gradient to the inputs in increasing order, because two of them may be one buffer. Two inputs may broadcast. */
#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/vector.h"

#define SUM(dy, a, b) ((a) + (b))
CKPT_BROADCAST_LOOP(sum_row, SUM)

static bool broadcasts(const ckpt_node *node)
{
    return !ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape);
}

/* Each block is summed as float32 and rounded once. */
static void forward16(const ckpt_kernel_args *args)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), blocks = CKPT_BLOCKS(count);
    uint16_t *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t start = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        if (args->node->in_count == 2) {
            const uint16_t *const first = args->in[0], *const second = args->in[1];
#pragma omp simd
            for (int64_t i = start; i < start + n; i++) {
                ckpt_put_element(true, ckpt_element(true, first, i) + ckpt_element(true, second, i), y, i);
            }
            continue;
        }
        float sum[CKPT_BLOCK];
        ckpt_widen(n, (const uint16_t *)args->in[0] + start, sum);
        for (int k = 1; k < args->node->in_count; k++) {
            ckpt_widen_add(n, (const uint16_t *)args->in[k] + start, sum);
        }
        ckpt_narrow(n, sum, y + start);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (args->node->dtype == CKPT_BFLOAT16) {
        forward16(args);
        return CKPT_OK;
    }
    if (broadcasts(args->node)) {
        ckpt_broadcast_forward(args, sum_row);
        return CKPT_OK;
    }
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), blocks = CKPT_BLOCKS(count);
    const int inputs = args->node->in_count;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t start = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        float sum[CKPT_BLOCK]; /* the output may be the buffer of an input, so it is written last */
        const float *const first = (const float *)args->in[0] + start;
        const float *const second = (const float *)args->in[1] + start;
        float *const y = (float *)args->out[0] + start;
        if (inputs == 2) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                y[i] = first[i] + second[i];
            }
            continue;
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            sum[i] = first[i] + second[i];
        }
        for (int k = 2; k < inputs; k++) {
            ckpt_vector_add(n, (const float *)args->in[k] + start, sum);
        }
        memcpy(y, sum, (size_t)n * sizeof *y);
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    if (broadcasts(args->node)) {
        ckpt_broadcast_backward(args, (ckpt_broadcast_loop *const[2]){NULL, NULL});
        return CKPT_OK;
    }
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape), blocks = CKPT_BLOCKS(count);
    const bool narrow = args->node->dtype == CKPT_BFLOAT16;
    const int64_t size = ckpt_dtype_bytes(args->node->dtype);
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t start = b * CKPT_BLOCK * size, n = CKPT_IN_BLOCK(count, b);
        const char *const dy = (const char *)args->grad_out[0] + start;
        for (int k = 0; k < args->node->in_count; k++) {
            if (args->grad_in[k] == NULL) {
                continue;
            }
            char *const dx = (char *)args->grad_in[k] + start;
            const bool adds = (args->grad_in_adds >> k & 1) != 0;
            if (adds && narrow) {
                ckpt_narrow_add(n, (const void *)dy, (void *)dx);
            } else if (adds) {
                ckpt_vector_add(n, (const void *)dy, (void *)dx);
            } else if (dx != dy) {
                memcpy(dx, dy, (size_t)(n * size));
            }
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_add = {
    .op = "add",
    .workspace = ckpt_broadcast_kernel_workspace,
    .forward = forward,
    .backward = backward,
};
