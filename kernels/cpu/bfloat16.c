/* Loops without a branch, which the compiler makes vector loops of. */
#include "kernels/cpu/bfloat16.h"

#include "kernels/cpu/vector.h"

void ckpt_widen(int64_t n, const uint16_t *restrict x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = ckpt_element(true, x, i);
    }
}

void ckpt_narrow(int64_t n, const float *restrict x, uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        ckpt_put_element(true, x[i], y, i);
    }
}

void ckpt_widen_add(int64_t n, const uint16_t *restrict x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += ckpt_element(true, x, i);
    }
}

void ckpt_narrow_add(int64_t n, const uint16_t *restrict x, uint16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        ckpt_put_element(true, ckpt_element(true, y, i) + ckpt_element(true, x, i), y, i);
    }
}

void ckpt_widen_all(int64_t count, const uint16_t *x, float *y, int threads)
{
    if (threads == 1) { /* no region, which would be one in another where a thread has a piece */
        ckpt_widen(count, x, y);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        ckpt_widen(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
}

void ckpt_narrow_all(int64_t count, const float *x, uint16_t *y, int threads)
{
    if (threads == 1) {
        ckpt_narrow(count, x, y);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < CKPT_BLOCKS(count); b++) {
        ckpt_narrow(CKPT_IN_BLOCK(count, b), x + b * CKPT_BLOCK, y + b * CKPT_BLOCK);
    }
}
