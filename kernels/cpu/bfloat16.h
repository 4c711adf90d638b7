/* bfloat16 numbers, as their 16 bits, to float32 and back. */
#ifndef CKPT_KERNELS_CPU_BFLOAT16_H
#define CKPT_KERNELS_CPU_BFLOAT16_H

#include <stdint.h>

/* y = x, exactly; serial. */
void ckpt_widen(int64_t n, const uint16_t *x, float *y);
/* y = x rounded to nearest even, as ckpt_bfloat16_of does; serial. */
void ckpt_narrow(int64_t n, const float *x, uint16_t *y);

/* y += x; serial. */
void ckpt_widen_add(int64_t n, const uint16_t *x, float *y);

/* The first two on threads. */
void ckpt_widen_all(int64_t count, const uint16_t *x, float *y, int threads);
void ckpt_narrow_all(int64_t count, const float *x, uint16_t *y, int threads);

#endif
