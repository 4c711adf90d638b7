/* The loops of ops that compute each element by itself: relu, sigmoid, tanh. They expect `args` and `count` around them,
 * run on the node's threads, and name the element `i`. gelu and dropout have loops of their own. */
#ifndef CKPT_KERNELS_CPU_POINTWISE_H
#define CKPT_KERNELS_CPU_POINTWISE_H

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

#define CKPT_THREADS_OF_NODE                                                                                           \
    _Pragma("omp parallel for simd num_threads(args->node->threads) if (parallel : count > CKPT_PARALLEL)")
#define CKPT_EACH(statement)                                                                                           \
    CKPT_THREADS_OF_NODE for (int64_t i = 0; i < count; i++)                                                           \
    {                                                                                                                  \
        statement;                                                                                                     \
    }

/* dx[i] = or += the expression `gradient`, as the caller asks for. */
#define CKPT_EACH_GRADIENT(dx, gradient)                                                                               \
    do {                                                                                                               \
        if ((args->grad_in_adds & 1) != 0) {                                                                           \
            CKPT_EACH((dx)[i] += (gradient))                                                                           \
        } else {                                                                                                       \
            CKPT_EACH((dx)[i] = (gradient))                                                                            \
        }                                                                                                              \
    } while (0)

/* The block that follows, for each word `w` of a mask of `count` elements. */
#define CKPT_EACH_WORD                                                                                                 \
    _Pragma("omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)") for (     \
        int64_t w = 0; w < (count + 31) / 32; w++)

/* Elements of word w: 32 but in the last. */
static inline int64_t ckpt_in_word(int64_t count, int64_t w)
{
    return count - 32 * w < 32 ? count - 32 * w : 32;
}

/* dx = or += factor * dy where the mask has a bit, else 0. */
static inline void ckpt_masked_gradient(const ckpt_kernel_args *args, const uint32_t *mask, float factor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
    CKPT_EACH_WORD
    {
        for (int64_t i = 32 * w; i < 32 * w + ckpt_in_word(count, w); i++) {
            const float kept = dy[i] * factor, passed = (mask[w] >> (i - 32 * w) & 1) != 0 ? kept : 0.0f;
            dx[i] = adds ? dx[i] + passed : passed;
        }
    }
}

/* y = function(x), a block at a time. */
static inline void ckpt_pointwise_blocks(const ckpt_kernel_args *args, int64_t count,
                                         void (*function)(int64_t n, const float *x, float *y))
{
    const float *const x = args->in[0];
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        function(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
}

#endif
