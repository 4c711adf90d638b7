/* Small matrix products. With AVX-512, 8 rows x 32 columns of c stay in 16 registers while k runs; elsewhere a plain
 * loop that the compiler vectorises along the columns. */
#include "kernels/cpu/tile.h"

#ifdef __AVX512F__

#include <immintrin.h>

enum { ROWS = 8, LANES = 16, COLUMNS = 2 * LANES };

/* `rows` and `full` are constants wherever this is inlined; `rest` masks the columns that exist. */
static inline void block(int rows, bool full, const __mmask16 rest[2], int64_t k, const float *a, int64_t a_row,
                         int64_t a_column, const float *b, int64_t b_row, float *c, int64_t c_row, bool adds)
{
    __m512 sum[ROWS][2];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            const float *at = c + r * c_row + v * LANES;
            sum[r][v] = !adds ? _mm512_setzero_ps() : full ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(rest[v], at);
        }
    }
    for (int64_t i = 0; i < k; i++) {
        const float *row = b + i * b_row;
        const __m512 b0 = full ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(rest[0], row);
        const __m512 b1 = full ? _mm512_loadu_ps(row + LANES) : _mm512_maskz_loadu_ps(rest[1], row + LANES);
        const float *column = a + i * a_column;
        for (int r = 0; r < rows; r++) {
            const __m512 x = _mm512_set1_ps(column[r * a_row]);
            sum[r][0] = _mm512_fmadd_ps(x, b0, sum[r][0]);
            sum[r][1] = _mm512_fmadd_ps(x, b1, sum[r][1]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < 2; v++) {
            float *at = c + r * c_row + v * LANES;
            if (full) {
                _mm512_storeu_ps(at, sum[r][v]);
            } else {
                _mm512_mask_storeu_ps(at, rest[v], sum[r][v]);
            }
        }
    }
}

static void strip(int rows, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                  int64_t b_row, float *c, int64_t c_row, bool adds)
{
    int64_t j = 0;
    const __mmask16 none[2] = {0, 0};
    for (; rows == ROWS && j + COLUMNS <= n; j += COLUMNS) {
        block(ROWS, true, none, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
    }
    for (; j < n; j += COLUMNS) {
        const int64_t left = n - j;
        const __mmask16 rest[2] = {
            (__mmask16)(left >= LANES ? 0xFFFF : (1U << left) - 1),
            (__mmask16)(left >= COLUMNS ? 0xFFFF
                        : left <= LANES ? 0
                                        : (1U << (left - LANES)) - 1),
        };
        if (rows == ROWS) {
            block(ROWS, false, rest, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
        } else {
            for (int r = 0; r < rows; r++) {
                block(1, false, rest, k, a + r * a_row, a_row, a_column, b + j, b_row, c + j + r * c_row, c_row, adds);
            }
        }
    }
}

void ckpt_tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                       int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t i = 0; i < m; i += ROWS) {
        const int rows = (int)(m - i < ROWS ? m - i : ROWS);
        strip(rows, n, k, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, adds);
    }
}

#else

#include <string.h>

void ckpt_tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                       int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t i = 0; i < m; i++) {
        float *row = c + i * c_row;
        if (!adds) {
            memset(row, 0, (size_t)n * sizeof *row);
        }
        for (int64_t l = 0; l < k; l++) {
            const float x = a[i * a_row + l * a_column];
            const float *b_at = b + l * b_row;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                row[j] += x * b_at[j];
            }
        }
    }
}

#endif
