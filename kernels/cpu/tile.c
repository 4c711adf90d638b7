/* Small matrix products. With AVX-512, 8 rows x 32 columns of c stay in 16 registers over all k. Without it, a plain
 * loop that the compiler vectorises along the columns. */
#include "kernels/cpu/tile.h"

#ifdef __AVX512F__

#include <immintrin.h>

enum { ROWS = 8, LANES = 16, COLUMNS = 2 * LANES };

/* Masks of the columns that exist in two vectors. */
typedef struct rest {
    __mmask16 low, high;
} rest;

static inline rest rest_of(int64_t left)
{
    const unsigned low = left >= LANES ? 0xFFFFU : (1U << left) - 1;
    const unsigned high = left >= COLUMNS ? 0xFFFFU : left <= LANES ? 0 : (1U << (left - LANES)) - 1;
    return (rest){(__mmask16)low, (__mmask16)high};
}

/* One row of a block: two registers. The block below uses eight variables because the compiler would put an array on
 * the stack. */
typedef struct pair {
    __m512 low, high;
} pair;

static inline pair pair_load(const float *c, rest m, bool adds)
{
    return adds ? (pair){_mm512_maskz_loadu_ps(m.low, c), _mm512_maskz_loadu_ps(m.high, c + LANES)}
                : (pair){_mm512_setzero_ps(), _mm512_setzero_ps()};
}

static inline void pair_store(float *c, rest m, pair sum)
{
    _mm512_mask_storeu_ps(c, m.low, sum.low);
    _mm512_mask_storeu_ps(c + LANES, m.high, sum.high);
}

static inline pair pair_add(pair sum, float a, pair b)
{
    const __m512 x = _mm512_set1_ps(a);
    return (pair){_mm512_fmadd_ps(x, b.low, sum.low), _mm512_fmadd_ps(x, b.high, sum.high)};
}

/* 8 rows of c, at most 32 columns. */
static void block(rest m, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                  float *c, int64_t c_row, bool adds)
{
    pair s0 = pair_load(c, m, adds), s1 = pair_load(c + c_row, m, adds);
    pair s2 = pair_load(c + 2 * c_row, m, adds), s3 = pair_load(c + 3 * c_row, m, adds);
    pair s4 = pair_load(c + 4 * c_row, m, adds), s5 = pair_load(c + 5 * c_row, m, adds);
    pair s6 = pair_load(c + 6 * c_row, m, adds), s7 = pair_load(c + 7 * c_row, m, adds);
    for (int64_t i = 0; i < k; i++) {
        const pair row = pair_load(b + i * b_row, m, true);
        const float *x = a + i * a_column;
        s0 = pair_add(s0, x[0], row);
        s1 = pair_add(s1, x[a_row], row);
        s2 = pair_add(s2, x[2 * a_row], row);
        s3 = pair_add(s3, x[3 * a_row], row);
        s4 = pair_add(s4, x[4 * a_row], row);
        s5 = pair_add(s5, x[5 * a_row], row);
        s6 = pair_add(s6, x[6 * a_row], row);
        s7 = pair_add(s7, x[7 * a_row], row);
    }
    pair_store(c, m, s0);
    pair_store(c + c_row, m, s1);
    pair_store(c + 2 * c_row, m, s2);
    pair_store(c + 3 * c_row, m, s3);
    pair_store(c + 4 * c_row, m, s4);
    pair_store(c + 5 * c_row, m, s5);
    pair_store(c + 6 * c_row, m, s6);
    pair_store(c + 7 * c_row, m, s7);
}

static void single(rest m, int64_t k, const float *a, int64_t a_column, const float *b, int64_t b_row, float *c,
                   bool adds)
{
    pair sum = pair_load(c, m, adds);
    for (int64_t i = 0; i < k; i++) {
        sum = pair_add(sum, a[i * a_column], pair_load(b + i * b_row, m, true));
    }
    pair_store(c, m, sum);
}

static void strip(int64_t rows, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                  int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t j = 0; j < n; j += COLUMNS) {
        const rest m = rest_of(n - j);
        if (rows == ROWS) {
            block(m, k, a, a_row, a_column, b + j, b_row, c + j, c_row, adds);
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            single(m, k, a + r * a_row, a_column, b + j, b_row, c + j + r * c_row, adds);
        }
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
