/* bfloat16 numbers, as their 16 bits, to float32 and back. */
#ifndef CKPT_KERNELS_CPU_BFLOAT16_H
#define CKPT_KERNELS_CPU_BFLOAT16_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* For loops over either type: element i, as float32, of a float32 or bfloat16 array; and a float32 stored in one, to
 * bfloat16 rounded to nearest even. With a constant `narrow` they are vector loops. */
static inline float ckpt_element(bool narrow, const void *x, int64_t i)
{
    if (!narrow) {
        return ((const float *)x)[i];
    }
    const uint32_t word = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &word, sizeof word);
    return value;
}

static inline void ckpt_put_element(bool narrow, float value, void *y, int64_t i)
{
    if (!narrow) {
        ((float *)y)[i] = value;
        return;
    }
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    const uint32_t rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16, quiet = word >> 16 | 0x40;
    ((uint16_t *)y)[i] = (uint16_t)((word & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

/* y = x, exactly; serial. */
void ckpt_widen(int64_t n, const uint16_t *x, float *y);
/* y = x rounded to nearest even, as ckpt_bfloat16_of does; serial. */
void ckpt_narrow(int64_t n, const float *x, uint16_t *y);

/* y += x; serial. The second rounds the sum. */
void ckpt_widen_add(int64_t n, const uint16_t *x, float *y);
void ckpt_narrow_add(int64_t n, const uint16_t *x, uint16_t *y);

/* For kernels that compute a run of elements in float32, whatever the array's type: where the `n` elements from element `at`
 * on can be read, and where they are to be written (`adds`: added to). That is the array itself or, of bfloat16, `room`;
 * ckpt_close_run rounds what was written there. */
static inline const float *ckpt_run(bool narrow, const void *x, int64_t at, int64_t n, float *room)
{
    if (!narrow) {
        return (const float *)x + at;
    }
    ckpt_widen(n, (const uint16_t *)x + at, room);
    return room;
}

static inline float *ckpt_open_run(bool narrow, void *y, int64_t at, int64_t n, bool adds, float *room)
{
    if (!narrow) {
        return (float *)y + at;
    }
    if (adds) {
        ckpt_widen(n, (const uint16_t *)y + at, room);
    }
    return room;
}

static inline void ckpt_close_run(bool narrow, const float *room, int64_t n, void *y, int64_t at)
{
    if (narrow) {
        ckpt_narrow(n, room, (uint16_t *)y + at);
    }
}

/* The first two on threads. */
void ckpt_widen_all(int64_t count, const uint16_t *x, float *y, int threads);
void ckpt_narrow_all(int64_t count, const float *x, uint16_t *y, int threads);

#endif
