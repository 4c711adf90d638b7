/* Serial loops over arrays that several CPU kernels share; callers split the work among threads. Sums run over 16 or 64
 * lanes that are combined in a fixed order. A result therefore depends only on values and count, not on addresses, and the
 * compiler may use any vector width.
 *
 * An output may be the input array itself; otherwise arrays do not overlap. */
#ifndef CKPT_KERNELS_CPU_VECTOR_H
#define CKPT_KERNELS_CPU_VECTOR_H

#include <stdint.h>

enum {
    /* Elements that a thread takes at a time: 16 KiB of float, half of a first-level cache. */
    CKPT_BLOCK = 4096,
    /* Fewer elements are not worth waking another thread. This depends on the size only, not on the load, so that the
     * split into blocks, and with it every bit, stays the same. */
    CKPT_PARALLEL = 16384,
};

/* The number of blocks of `count` elements, and the elements in block `b`. */
#define CKPT_BLOCKS(count)      (((count) + CKPT_BLOCK - 1) / CKPT_BLOCK)
#define CKPT_IN_BLOCK(count, b) ((count) - (b)*CKPT_BLOCK < CKPT_BLOCK ? (count) - (b)*CKPT_BLOCK : CKPT_BLOCK)

/* Reductions; n >= 1. max ignores NaN except in x[0], so that a sum of exp(x - max) still becomes NaN. */
float ckpt_vector_max(int64_t n, const float *x);
float ckpt_vector_sum(int64_t n, const float *x);
float ckpt_vector_dot(int64_t n, const float *x, const float *y);
/* sum of exp(x - shift) */
float ckpt_vector_exp_sum(int64_t n, const float *x, float shift);
/* The same, and y = exp(x - shift). */
float ckpt_vector_powers(int64_t n, const float *x, float shift, float *y);

/* y = scale * exp(x - shift). exp is within 2 units in the last place, but 0 below 2^-125.5; y is 0 where that would be
 * subnormal: products of such numbers take tens of times as long, and no sum shows them. */
void ckpt_vector_exp(int64_t n, const float *x, float shift, float scale, float *y);
/* Within 4 units in the last place. */
void ckpt_vector_tanh(int64_t n, const float *x, float *y);
void ckpt_vector_sigmoid(int64_t n, const float *x, float *y);

/* y += x */
void ckpt_vector_add(int64_t n, const float *x, float *y);

/* Words of elements first .. first + n - 1 of a tensor, as ckpt_philox_block draws them; first is a multiple of 4. */
void ckpt_vector_philox(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t first, int64_t n,
                        uint32_t *words);

#endif
