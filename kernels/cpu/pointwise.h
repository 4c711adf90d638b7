/* The loops of ops that compute each element by itself: relu, sigmoid, tanh. They expect `args` and `count` around them,
 * run on the node's threads, and name the element `i`. gelu and dropout have loops of their own. */
#ifndef CKPT_KERNELS_CPU_POINTWISE_H
#define CKPT_KERNELS_CPU_POINTWISE_H

#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* Where a thread is enough it is no region: one of a thread in another costs as much as some thousand elements. */
#define CKPT_EACH(statement)                                                                                           \
    if (count > CKPT_PARALLEL && args->node->threads > 1) {                                                            \
        _Pragma("omp parallel for simd num_threads(args->node->threads)") for (int64_t i = 0; i < count; i++)          \
        {                                                                                                              \
            statement;                                                                                                 \
        }                                                                                                              \
    } else {                                                                                                           \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++)                                                        \
        {                                                                                                              \
            statement;                                                                                                 \
        }                                                                                                              \
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

/* Words of a mask, one bit an element, from n bytes that are 0 or 1, with room for whole words. A product gathers eight
 * bytes, little endian: byte j, times 2^(56 - 7j), lands on bit 56 + j. */
static inline void ckpt_pack_mask(int64_t n, uint8_t *keep, uint32_t *mask)
{
    memset(keep + n, 0, (size_t)(-n & 31));
    for (int64_t w = 0; w < (n + 31) / 32; w++) {
        uint32_t word = 0;
        for (int k = 0; k < 4; k++) {
            uint64_t eight;
            memcpy(&eight, keep + 32 * w + 8 * k, sizeof eight);
            word |= (uint32_t)(eight * UINT64_C(0x0102040810204080) >> 56) << 8 * k;
        }
        mask[w] = word;
    }
}

/* Elements start .. start + n - 1. Without a branch: bits of a trained mask cannot be foretold. */
static inline void ckpt_masked_word(bool narrow, int n, uint32_t word, float factor, bool adds, const void *dy,
                                    void *dx, int64_t start)
{
    float passed[32];
    _Pragma("omp simd") for (int i = 0; i < n; i++)
    {
        const float kept = ckpt_element(narrow, dy, start + i) * factor;
        uint32_t bits;
        memcpy(&bits, &kept, sizeof bits);
        bits &= 0u - (word >> i & 1u);
        memcpy(&passed[i], &bits, sizeof bits);
    }
    _Pragma("omp simd") for (int i = 0; i < n; i++)
    {
        ckpt_put_element(narrow, adds ? ckpt_element(narrow, dx, start + i) + passed[i] : passed[i], dx, start + i);
    }
}

/* dx = or += factor * dy where the mask has a bit, else 0. Written twice: of 32 elements it is a vector loop. `narrow`:
 * both are bfloat16. */
static inline void ckpt_masked_gradient(bool narrow, const ckpt_kernel_args *args, const uint32_t *mask, float factor)
{
    const int64_t count = ckpt_shape_count(&args->node->in[0].shape);
    const void *const dy = args->grad_out[0];
    void *const dx = args->grad_in[0];
    const bool adds = (args->grad_in_adds & 1) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t w = 0; w < (count + 31) / 32; w++) {
        const int64_t start = 32 * w;
        if (count - start >= 32) {
            ckpt_masked_word(narrow, 32, mask[w], factor, adds, dy, dx, start);
        } else {
            ckpt_masked_word(narrow, (int)(count - start), mask[w], factor, adds, dy, dx, start);
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
