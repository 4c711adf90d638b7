/* Philox4x32-10: random numbers from a counter. A recomputed dropout draws the same mask, and each element of a
 * parameter gets its own number in any order of drawing. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011. */
#ifndef CKPT_KERNELS_PHILOX_H
#define CKPT_KERNELS_PHILOX_H

#include <stdint.h>

/* Multipliers and key increments as published. */
#define CKPT_PHILOX_M0 UINT32_C(0xD2511F53)
#define CKPT_PHILOX_M1 UINT32_C(0xCD9E8D57)
#define CKPT_PHILOX_W0 UINT32_C(0x9E3779B9)
#define CKPT_PHILOX_W1 UINT32_C(0xBB67AE85)

/* The four words for `counter` under `key`. */
void ckpt_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Words for elements 4 * block .. 4 * block + 3 of a tensor: key = seed, counter = (block, step and layer mixed):
 * counter[0..1] = block, counter[2] = step (low 32 bits), counter[3] = layer << 8 | stream. `layer` < 2^24,
 * `stream` tells apart uses within a layer (0 dropout, 1 attention dropout, 2 + k initialisation of parameter k). */
void ckpt_philox_block(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t block, uint32_t out[4]);

/* Uniform in (0, 1]: (word + 1) * 2^-32, rounded to float, never 0. */
float ckpt_philox_uniform(uint32_t word);

/* The smallest word whose uniform is above p: an element is kept iff word >= threshold. 2^32 if there is none (p >= 1).
 * Ops allow p < 1 only, for which it is a word: the uniform of the largest word is 1. */
uint64_t ckpt_philox_threshold(double p);

#endif
