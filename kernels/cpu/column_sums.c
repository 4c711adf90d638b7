/* Column sums. A strip of columns is summed over ROWS rows in a local array in the first-level cache, then added to the
 * total. The blocks keep rounding errors small: they grow with rows / ROWS + ROWS, not with rows. */
#include "kernels/cpu/column_sums.h"

#include "kernels/cpu/bfloat16.h"

enum { STRIP = 256, ROWS = 64 };

/* Of columns column .. column + width - 1. */
static void strip_sum(ckpt_dtype dtype, int64_t rows, int64_t columns, int64_t column, int width, const void *x,
                      float *sum, bool adds)
{
    const bool narrow = dtype == CKPT_BFLOAT16;
    float room[4][STRIP];
    float total[STRIP];
    for (int c = 0; c < width; c++) {
        total[c] = 0;
    }
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t end = first + ROWS < rows ? first + ROWS : rows;
        float part[STRIP] = {0};
        int64_t r = first;
        for (; r + 4 <= end; r += 4) {
            const int64_t at = r * columns + column;
            const float *const a = ckpt_run(narrow, x, at, width, room[0]),
                               *const b = ckpt_run(narrow, x, at + columns, width, room[1]),
                               *const c = ckpt_run(narrow, x, at + 2 * columns, width, room[2]),
                               *const d = ckpt_run(narrow, x, at + 3 * columns, width, room[3]);
#pragma omp simd
            for (int j = 0; j < width; j++) {
                part[j] += (a[j] + b[j]) + (c[j] + d[j]);
            }
        }
        for (; r < end; r++) {
            const float *const a = ckpt_run(narrow, x, r * columns + column, width, room[0]);
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

void ckpt_column_sums(ckpt_dtype dtype, int64_t rows, int64_t columns, const void *x, float *sum, bool adds,
                      int threads)
{
    const int64_t strips = (columns + STRIP - 1) / STRIP;
#pragma omp parallel for schedule(static) num_threads(threads) if (strips > 1 && rows * columns > 16384)
    for (int64_t s = 0; s < strips; s++) {
        const int64_t first = s * STRIP;
        const int width = (int)(columns - first < STRIP ? columns - first : STRIP);
        strip_sum(dtype, rows, columns, first, width, x, sum + first, adds);
    }
}
