/* Column sums. A strip of columns is summed over ROWS rows in a local array in the first-level cache, then added to the
 * total. The blocks keep rounding errors small: they grow with rows / ROWS + ROWS, not with rows. */
#include "kernels/cpu/column_sums.h"

enum { STRIP = 256, ROWS = 64 };

static void strip_sum(int64_t rows, int64_t columns, int width, const float *x, float *sum, bool adds)
{
    float total[STRIP];
    for (int c = 0; c < width; c++) {
        total[c] = 0;
    }
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t end = first + ROWS < rows ? first + ROWS : rows;
        float part[STRIP] = {0};
        int64_t r = first;
        for (; r + 4 <= end; r += 4) {
            const float *a = x + r * columns, *b = a + columns, *c = b + columns, *d = c + columns;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                part[j] += (a[j] + b[j]) + (c[j] + d[j]);
            }
        }
        for (; r < end; r++) {
            const float *a = x + r * columns;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                part[j] += a[j];
            }
        }
        for (int j = 0; j < width; j++) {
            total[j] += part[j];
        }
    }
    for (int j = 0; j < width; j++) {
        sum[j] = adds ? sum[j] + total[j] : total[j];
    }
}

void ckpt_column_sums(int64_t rows, int64_t columns, const float *x, float *sum, bool adds, int threads)
{
    const int64_t strips = (columns + STRIP - 1) / STRIP;
#pragma omp parallel for schedule(static) num_threads(threads) if (strips > 1 && rows * columns > 16384)
    for (int64_t s = 0; s < strips; s++) {
        const int64_t first = s * STRIP;
        const int width = (int)(columns - first < STRIP ? columns - first : STRIP);
        strip_sum(rows, columns, width, x + first, sum + first, adds);
    }
}
