/* Tiles of y, each from panels of x and w that are widened on the stack. */
#include "kernels/cpu/product16.h"

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/tile.h"

enum { ROWS = 32, COLUMNS = 48, DEPTH = 64, PANEL = DEPTH * (COLUMNS > ROWS ? COLUMNS : ROWS) };

static float element(const ckpt_dnn_matrix *m, const void *from, int64_t at)
{
    float value = m->dtype == CKPT_BFLOAT16 ? 0 : ((const float *)from)[at];
    if (m->dtype == CKPT_BFLOAT16) {
        ckpt_widen(1, (const uint16_t *)from + at, &value);
    }
    return value;
}

/* to[rows x columns], rows one behind the other, from the matrix at (row, column). */
static void load(const ckpt_dnn_matrix *m, const void *from, int64_t row, int64_t column, int64_t rows, int64_t columns,
                 float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = (row + r) * m->row_stride + column * m->column_stride;
        if (m->dtype == CKPT_BFLOAT16 && m->column_stride == 1) {
            ckpt_widen(columns, (const uint16_t *)from + at, to + r * columns);
            continue;
        }
        for (int64_t c = 0; c < columns; c++) {
            to[r * columns + c] = element(m, from, at + c * m->column_stride);
        }
    }
}

static void store(const ckpt_dnn_matrix *m, const float *from, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, void *to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = (row + r) * m->row_stride + (column + c) * m->column_stride;
            if (m->dtype == CKPT_BFLOAT16) {
                ckpt_narrow(1, &from[r * columns + c], (uint16_t *)to + at);
            } else {
                ((float *)to)[at] = from[r * columns + c];
            }
        }
    }
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void ckpt_product16_run(const ckpt_product16 *p, const void *x, const void *w, void *y, const void *bias, int threads)
{
    const int64_t M = p->y.rows, N = p->y.columns, K = p->x.columns, across = (N + COLUMNS - 1) / COLUMNS;
    const ckpt_dnn_matrix line = {1, N, N, 1, p->w.dtype};
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t tile = 0; tile < (M + ROWS - 1) / ROWS * across; tile++) {
        float a[PANEL], b[PANEL], c[ROWS * COLUMNS];
        const int64_t row = tile / across * ROWS, column = tile % across * COLUMNS;
        const int64_t m = smaller(ROWS, M - row), n = smaller(COLUMNS, N - column);
        if (p->adds) {
            load(&p->y, y, row, column, m, n, c);
        }
        for (int64_t first = 0; first < K; first += DEPTH) {
            const int64_t k = smaller(DEPTH, K - first);
            load(&p->x, x, row, first, m, k, a);
            load(&p->w, w, first, column, k, n, b);
            ckpt_tile_product(m, n, k, a, k, 1, b, n, c, n, p->adds || first > 0);
        }
        for (int64_t r = 0; p->bias && r < m; r++) {
            for (int64_t j = 0; j < n; j++) {
                c[r * n + j] += element(&line, bias, column + j);
            }
        }
        store(&p->y, c, row, column, m, n, y);
    }
}
