/* Loops without a branch, which the compiler makes vector loops of. */
#include "kernels/cpu/bfloat16.h"

#include <string.h>

#include "kernels/cpu/vector.h"

void ckpt_widen(int64_t n, const uint16_t *restrict x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = (uint32_t)x[i] << 16;
        memcpy(&y[i], &word, sizeof word);
    }
}

void ckpt_narrow(int64_t n, const float *restrict x, uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        const uint32_t rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16, quiet = word >> 16 | 0x40;
        y[i] = (uint16_t)((word & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
    }
}

void ckpt_widen_add(int64_t n, const uint16_t *restrict x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = (uint32_t)x[i] << 16;
        float term;
        memcpy(&term, &word, sizeof word);
        y[i] += term;
    }
}

void ckpt_widen_all(int64_t count, const uint16_t *x, float *y, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        ckpt_widen(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
}

void ckpt_narrow_all(int64_t count, const float *x, uint16_t *y, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        ckpt_narrow(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
}
