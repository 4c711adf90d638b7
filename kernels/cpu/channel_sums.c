/* Sums of channels, a strip of them and a block of rows at a time. */
#include "kernels/cpu/channel_sums.h"

#include <stddef.h>

enum { STRIP = 256, ROWS = 64 };

/* One block of a strip: plain += v, product += v (x - center), v = dy, or x - center when dy is NULL. */
static void block_sums(int64_t rows, int64_t channels, int width, const float *x, const float *dy, const float *center,
                       float *plain, float *product)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *x_row = x + r * channels;
        if (dy == NULL) {
#pragma omp simd
            for (int c = 0; c < width; c++) {
                const float u = x_row[c] - center[c];
                plain[c] += u;
                product[c] += u * u;
            }
        } else {
            const float *dy_row = dy + r * channels;
#pragma omp simd
            for (int c = 0; c < width; c++) {
                plain[c] += dy_row[c];
                product[c] += dy_row[c] * (x_row[c] - center[c]);
            }
        }
    }
}

void ckpt_channel_sums(int64_t first, int64_t end, int64_t channels, const float *x, const float *dy,
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
            block_sums(rows, channels, width, x + at, dy == NULL ? NULL : dy + at, center + c0, plain, product);
            for (int c = 0; c < width; c++) {
                plain_total[c] += (double)plain[c];
                product_total[c] += (double)product[c];
            }
        }
    }
}
