/* Sums of channels, a strip of them and a block of rows at a time. */
#include "kernels/cpu/channel_sums.h"

#include <stddef.h>

#include "kernels/cpu/bfloat16.h"

enum { STRIP = 256, ROWS = 64 };

/* One block of a strip, whose first element is `at`: plain += v, product += v (x - center), v = dy, or x - center when
 * dy is NULL. */
static inline void block_sums(bool narrow, int64_t rows, int64_t channels, int width, const void *x, const void *dy,
                              int64_t at, const float *center, float *plain, float *product)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = at + r * channels;
        if (dy == NULL) {
#pragma omp simd
            for (int c = 0; c < width; c++) {
                const float u = ckpt_element(narrow, x, row + c) - center[c];
                plain[c] += u;
                product[c] += u * u;
            }
        } else {
#pragma omp simd
            for (int c = 0; c < width; c++) {
                const float v = ckpt_element(narrow, dy, row + c);
                plain[c] += v;
                product[c] += v * (ckpt_element(narrow, x, row + c) - center[c]);
            }
        }
    }
}

void ckpt_channel_sums(bool narrow, int64_t first, int64_t end, int64_t channels, const void *x, const void *dy,
                       const float *center, double *total)
{
    for (int64_t c0 = 0; c0 < channels; c0 += STRIP) {
        const int width = (int)(channels - c0 < STRIP ? channels - c0 : STRIP);
        double *plain_total = total + c0, *product_total = total + channels + c0;
        for (int c = 0; c < width; c++) {
            plain_total[c] = 0;
            product_total[c] = 0;
        }
        for (int64_t r = first; r < end; r += ROWS) {
            float plain[STRIP] = {0}, product[STRIP] = {0};
            const int64_t rows = end - r < ROWS ? end - r : ROWS;
            const int64_t at = r * channels + c0;
            if (narrow) {
                block_sums(true, rows, channels, width, x, dy, at, center + c0, plain, product);
            } else {
                block_sums(false, rows, channels, width, x, dy, at, center + c0, plain, product);
            }
            for (int c = 0; c < width; c++) {
                plain_total[c] += (double)plain[c];
                product_total[c] += (double)product[c];
            }
        }
    }
}
