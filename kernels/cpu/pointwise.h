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
