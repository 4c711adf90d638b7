/* Small matrix products. With AVX-512, 8 rows x 48 columns of c stay in 24 registers over all k. Without it, a plain
 * loop that the compiler vectorises along the columns. */
#include "kernels/cpu/tile.h"

#ifdef __AVX512F__

#include <immintrin.h>

enum { ROWS = 8, LANES = 16, VECTORS = 3 };

/* Eight rows of one vector: variables, because the compiler would put an array on the stack. */
typedef struct column {
    __m512 r0, r1, r2, r3, r4, r5, r6, r7;
} column;

static inline __m512 start(const float *c, __mmask16 m, bool adds)
{
    return adds ? _mm512_maskz_loadu_ps(m, c) : _mm512_setzero_ps();
}

static inline column column_load(const float *c, int64_t row, __mmask16 m, bool adds)
{
    return (column){start(c, m, adds),           start(c + row, m, adds),     start(c + 2 * row, m, adds),
                    start(c + 3 * row, m, adds), start(c + 4 * row, m, adds), start(c + 5 * row, m, adds),
                    start(c + 6 * row, m, adds), start(c + 7 * row, m, adds)};
}

static inline void column_store(float *c, int64_t row, __mmask16 m, const column *s)
{
    _mm512_mask_storeu_ps(c, m, s->r0);
    _mm512_mask_storeu_ps(c + row, m, s->r1);
    _mm512_mask_storeu_ps(c + 2 * row, m, s->r2);
    _mm512_mask_storeu_ps(c + 3 * row, m, s->r3);
    _mm512_mask_storeu_ps(c + 4 * row, m, s->r4);
    _mm512_mask_storeu_ps(c + 5 * row, m, s->r5);
    _mm512_mask_storeu_ps(c + 6 * row, m, s->r6);
    _mm512_mask_storeu_ps(c + 7 * row, m, s->r7);
}

/* s += x b for the eight elements of a column of a. */
static inline column column_add(column s, const float *x, int64_t row, __m512 b)
{
    s.r0 = _mm512_fmadd_ps(_mm512_set1_ps(x[0]), b, s.r0);
    s.r1 = _mm512_fmadd_ps(_mm512_set1_ps(x[row]), b, s.r1);
    s.r2 = _mm512_fmadd_ps(_mm512_set1_ps(x[2 * row]), b, s.r2);
    s.r3 = _mm512_fmadd_ps(_mm512_set1_ps(x[3 * row]), b, s.r3);
    s.r4 = _mm512_fmadd_ps(_mm512_set1_ps(x[4 * row]), b, s.r4);
    s.r5 = _mm512_fmadd_ps(_mm512_set1_ps(x[5 * row]), b, s.r5);
    s.r6 = _mm512_fmadd_ps(_mm512_set1_ps(x[6 * row]), b, s.r6);
    s.r7 = _mm512_fmadd_ps(_mm512_set1_ps(x[7 * row]), b, s.r7);
    return s;
}

/* 8 rows of c and `vectors` vectors, a constant where this is called; m: the columns of the last one. */
static inline __attribute__((always_inline)) void block(int vectors, __mmask16 m, int64_t k, const float *a,
                                                        int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                                                        float *c, int64_t c_row, bool adds)
{
    const __mmask16 all = 0xFFFF, m0 = vectors == 1 ? m : all, m1 = vectors == 2 ? m : all;
    column s0 = column_load(c, c_row, m0, adds), s1 = s0, s2 = s0;
    s1 = vectors > 1 ? column_load(c + LANES, c_row, m1, adds) : s1;
    s2 = vectors > 2 ? column_load(c + 2 * LANES, c_row, m, adds) : s2;
    for (int64_t i = 0; i < k; i++) {
        const float *const x = a + i * a_column, *const y = b + i * b_row;
        s0 = column_add(s0, x, a_row, _mm512_maskz_loadu_ps(m0, y));
        s1 = vectors > 1 ? column_add(s1, x, a_row, _mm512_maskz_loadu_ps(m1, y + LANES)) : s1;
        s2 = vectors > 2 ? column_add(s2, x, a_row, _mm512_maskz_loadu_ps(m, y + 2 * LANES)) : s2;
    }
    column_store(c, c_row, m0, &s0);
    if (vectors > 1) {
        column_store(c + LANES, c_row, m1, &s1);
    }
    if (vectors > 2) {
        column_store(c + 2 * LANES, c_row, m, &s2);
    }
}

/* One row and one vector. */
static void single(__mmask16 m, int64_t k, const float *a, int64_t a_column, const float *b, int64_t b_row, float *c,
                   bool adds)
{
    __m512 sum = start(c, m, adds);
    for (int64_t i = 0; i < k; i++) {
        sum = _mm512_fmadd_ps(_mm512_set1_ps(a[i * a_column]), _mm512_maskz_loadu_ps(m, b + i * b_row), sum);
    }
    _mm512_mask_storeu_ps(c, m, sum);
}

/* As many columns at a time as there are vectors for: all but the last strip have VECTORS of them. */
static void strip(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                  int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t j = 0; j < n;) {
        const int64_t left = n - j, vectors = left > (VECTORS - 1) * LANES ? VECTORS : (left + LANES - 1) / LANES;
        const int64_t last = left - (vectors - 1) * LANES;
        const __mmask16 m = (__mmask16)(last >= LANES ? 0xFFFFU : (1U << last) - 1);
        if (rows < ROWS) {
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t v = 0; v < vectors; v++) {
                    single(v + 1 < vectors ? 0xFFFF : m, k, a + r * a_row, a_column, b + j + v * LANES, b_row,
                           c + j + v * LANES + r * c_row, adds);
                }
            }
        } else if (vectors == VECTORS) {
            block(VECTORS, m, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
        } else if (vectors == 2) {
            block(2, m, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
        } else {
            block(1, m, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
        }
        j += vectors * LANES;
    }
}

void ckpt_tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                       int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t i = 0; i < m; i += ROWS) {
        const int64_t rows = m - i < ROWS ? m - i : ROWS;
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
