/* Sums of channels, a strip of them and a block of rows at a time. */
#include "kernels/cpu/channel_sums.h"

#include <stddef.h>

#include "kernels/cpu/bfloat16.h"

enum { STRIP = 256, ROWS = 64, TOGETHER = 4 };

/* `rows` of a strip, a constant here: the sums go through memory once for all of them. The first element is `at`:
 * plain += v, product += v (x - center), v = dy, or x - center when dy is NULL. */
static inline __attribute__((always_inline)) void add_rows(int rows, bool narrow, int64_t channels, int width,
                                                           const void *x, const void *dy, int64_t at,
                                                           const float *center, float *plain, float *product)
{
#pragma omp simd
    for (int c = 0; c < width; c++) {
        const float middle = center[c];
        float sum = plain[c], products = product[c];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const int64_t i = at + r * channels + c;
            const float u = ckpt_element(narrow, x, i) - middle, v = dy == NULL ? u : ckpt_element(narrow, dy, i);
            sum += v;
            products += v * u;
        }
        plain[c] = sum;
        product[c] = products;
    }
}

/* A block of a strip. */
static inline __attribute__((always_inline)) void block_sums(bool narrow, int64_t rows, int64_t channels, int width,
                                                             const void *x, const void *dy, int64_t at,
                                                             const float *center, float *plain, float *product)
{
    const bool heavy = narrow && dy != NULL; /* GCC does not unroll that for four rows, and then has no vector loop */
    int64_t r = 0;
    for (; !heavy && r + TOGETHER <= rows; r += TOGETHER) {
        add_rows(TOGETHER, narrow, channels, width, x, dy, at + r * channels, center, plain, product);
    }
    for (; r < rows; r++) {
        add_rows(1, narrow, channels, width, x, dy, at + r * channels, center, plain, product);
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
            if (narrow && dy == NULL) {
                block_sums(true, rows, channels, width, x, NULL, at, center + c0, plain, product);
            } else if (narrow) {
                block_sums(true, rows, channels, width, x, dy, at, center + c0, plain, product);
            } else if (dy == NULL) {
                block_sums(false, rows, channels, width, x, NULL, at, center + c0, plain, product);
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
