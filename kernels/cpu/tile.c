/* Small matrix products: some rows and vectors of c stay in registers over all k. */
#include "kernels/cpu/tile.h"

#include "kernels/cpu/lanes.h"

/* As many rows and vectors of c as leave registers for a vector of b each and a number of a: of 32, or of 16. Rows that
 * are left over go by 4, 2 and 1. */
#ifdef __AVX512F__
enum { ROWS = 8, VECTORS = 3 };
#else
enum { ROWS = 6, VECTORS = 2 };
#endif

typedef struct product {
    int64_t k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool adds;
} product;

/* `rows` x `vectors` of c. The last vector has `last` columns; all of them, if it is `whole`. The first three are
 * constants where this is called, so that the sums are registers. */
static inline __attribute__((always_inline)) void block(int rows, int vectors, bool whole, int64_t last,
                                                        const product *p)
{
    const product q = *p;
    ckpt_lanes sum[ROWS][VECTORS], y[VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            const float *const from = q.c + r * q.c_row + v * CKPT_LANES;
            sum[r][v] = !q.adds ? ckpt_all(0) : whole || v + 1 < vectors ? ckpt_load(from) : ckpt_load_some(last, from);
        }
    }
    for (int64_t i = 0; i < q.k; i++) {
        const float *const x = q.a + i * q.a_column, *const b = q.b + i * q.b_row;
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            y[v] = whole || v + 1 < vectors ? ckpt_load(b + v * CKPT_LANES) : ckpt_load_some(last, b + v * CKPT_LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const ckpt_lanes factor = ckpt_all(x[r * q.a_row]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) {
                sum[r][v] = ckpt_fused(factor, y[v], sum[r][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            float *const to = q.c + r * q.c_row + v * CKPT_LANES;
            if (whole || v + 1 < vectors) {
                ckpt_store(sum[r][v], to);
            } else {
                ckpt_store_some(last, sum[r][v], to);
            }
        }
    }
}

static inline __attribute__((always_inline)) void columns(int rows, int vectors, int64_t last, const product *p)
{
    if (last == CKPT_LANES) {
        block(rows, vectors, true, last, p);
    } else {
        block(rows, vectors, false, last, p);
    }
}

/* `rows`, a constant, and all n columns. */
static inline __attribute__((always_inline)) void strip(int rows, int64_t n, product p)
{
    for (int64_t j = 0; j < n;) {
        const int64_t left = n - j, most = (left + CKPT_LANES - 1) / CKPT_LANES;
        const int vectors = most < VECTORS ? (int)most : VECTORS;
        const int64_t before = (vectors - 1) * CKPT_LANES,
                      last = left - before < CKPT_LANES ? left - before : CKPT_LANES;
        switch (vectors) {
        case 1: columns(rows, 1, last, &p); break;
        case 2: columns(rows, 2, last, &p); break;
        default: columns(rows, VECTORS, last, &p); break;
        }
        j += vectors * CKPT_LANES;
        p.b += vectors * CKPT_LANES;
        p.c += vectors * CKPT_LANES;
    }
}

void ckpt_tile_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
                       int64_t b_row, float *c, int64_t c_row, bool adds)
{
    for (int64_t i = 0; i < m;) {
        const product p = {k, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, adds};
        const int64_t left = m - i;
        const bool halves = ROWS == 6 && left == 8; /* 4 and 4 are faster than 6 and 2 */
        const int rows = left >= ROWS && !halves ? ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        switch (rows) {
        case ROWS: strip(ROWS, n, p); break;
        case 4: strip(4, n, p); break;
        case 2: strip(2, n, p); break;
        default: strip(1, n, p); break;
        }
        i += rows;
    }
}
