/* Tiles of a product, each from panels of its operands that are widened on the stack. A convolution is a product of
 * matrices that nowhere lie as such: what a pixel sees through all taps is a row, found element by element. */
#include "kernels/cpu/product16.h"

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/pixels.h"
#include "kernels/cpu/tile.h"

enum { ROWS = 32, COLUMNS = 48, DEPTH = 64, PANEL = DEPTH * COLUMNS };

typedef enum kind {
    MATRIX, /* as `matrix` says */
    SEEN,   /* [pixel of y, (channel, tap)]: the pixel of x behind that tap */
    SEEING, /* [pixel of x, (filter, tap)]: the pixel of y that sees it */
    FILTERS /* [(filter, tap), channel] */
} kind;

/* Of a convolution: of one group, whose first filter and first channel these are. */
typedef struct operand {
    kind kind;
    ckpt_dnn_matrix matrix;
    const ckpt_convolution *shape;
    int64_t filter, channel;
    const void *at;
} operand;

static float number(ckpt_dtype dtype, const void *from, int64_t at)
{
    if (dtype == CKPT_FLOAT32) {
        return ((const float *)from)[at];
    }
    return ckpt_bfloat16_value(((const uint16_t *)from)[at]);
}

static float element(const operand *o, int64_t row, int64_t column)
{
    const ckpt_convolution *const s = o->shape;
    if (o->kind == MATRIX) {
        const ckpt_dnn_matrix *const m = &o->matrix;
        return number(m->dtype, o->at, row * m->row_stride + column * m->column_stride);
    }
    const int64_t taps = ckpt_convolution_taps(s), channels = s->in_channels / s->groups;
    if (o->kind == FILTERS) {
        const int64_t filter = o->filter + row / taps;
        return number(CKPT_BFLOAT16, o->at, (filter * channels + column) * taps + row % taps);
    }
    const ckpt_place tap = ckpt_place_of(column % taps, s->kernel);
    const int64_t pixel = o->kind == SEEN ? ckpt_pixel_seen(s, row, &tap) : ckpt_pixel_seeing(s, row, &tap);
    const int64_t at = o->kind == SEEN ? pixel * s->in_channels + o->channel + column / taps
                                       : pixel * s->out_channels + o->filter + column / taps;
    return pixel < 0 ? 0 : number(CKPT_BFLOAT16, o->at, at);
}

/* to[rows x columns], rows one behind the other, from (row, column) on. */
static void load(const operand *o, int64_t row, int64_t column, int64_t rows, int64_t columns, float *to)
{
    const ckpt_dnn_matrix *const m = &o->matrix;
    for (int64_t r = 0; r < rows; r++) {
        if (o->kind == MATRIX && m->dtype == CKPT_BFLOAT16 && m->column_stride == 1) {
            ckpt_widen(columns, (const uint16_t *)o->at + (row + r) * m->row_stride + column, to + r * columns);
            continue;
        }
        for (int64_t c = 0; c < columns; c++) {
            to[r * columns + c] = element(o, row + r, column + c);
        }
    }
}

static void store(const ckpt_dnn_matrix *m, const float *from, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, void *to)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t at = (row + i / columns) * m->row_stride + (column + i % columns) * m->column_stride;
        if (m->dtype == CKPT_BFLOAT16) {
            ((uint16_t *)to)[at] = ckpt_bfloat16_of(from[i]);
        } else {
            ((float *)to)[at] = from[i];
        }
    }
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* y[M x N] = or += x[M x K] w[K x N] + bias. `y` is of the kind MATRIX. */
static void multiply(int64_t M, int64_t N, int64_t K, const operand *x, const operand *w, const operand *y,
                     const operand *bias, bool adds, int threads)
{
    const int64_t across = (N + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t tile = 0; tile < (M + ROWS - 1) / ROWS * across; tile++) {
        float a[PANEL], b[PANEL], c[ROWS * COLUMNS];
        const int64_t row = tile / across * ROWS, column = tile % across * COLUMNS;
        const int64_t m = smaller(ROWS, M - row), n = smaller(COLUMNS, N - column);
        if (adds) {
            load(y, row, column, m, n, c);
        }
        for (int64_t first = 0; first < K; first += DEPTH) {
            const int64_t k = smaller(DEPTH, K - first);
            load(x, row, first, m, k, a);
            load(w, first, column, k, n, b);
            ckpt_tile_product(m, n, k, a, k, 1, b, n, c, n, adds || first > 0);
        }
        for (int64_t i = 0; bias != NULL && i < m * n; i++) {
            c[i] += element(bias, 0, column + i % n);
        }
        store(&y->matrix, c, row, column, m, n, (void *)(uintptr_t)y->at);
    }
}

/* A group of a convolution: pointers are those of ckpt_dnn_direction. */
static void convolve(const ckpt_product16 *p, int64_t group, const void *const pointer[4], int threads)
{
    const ckpt_convolution *const s = &p->shape;
    const int64_t filters = s->out_channels / s->groups, channels = s->in_channels / s->groups;
    const int64_t taps = ckpt_convolution_taps(s), filter = group * filters, channel = group * channels;
    const int64_t in_rows = ckpt_convolution_in_rows(s), out_rows = ckpt_convolution_out_rows(s);
    const int64_t seen = channels * taps;
    const uint16_t *const x = pointer[0], *const w = pointer[1], *const y = pointer[2];
    const operand all_x = {MATRIX, {in_rows, channels, s->in_channels, 1, s->dtype}, s, filter, channel, x + channel};
    const operand all_y = {MATRIX, {out_rows, filters, s->out_channels, 1, s->dtype}, s, filter, channel, y + filter};
    const operand columns = {SEEN, {0}, s, filter, channel, x};
    if (p->direction == CKPT_DNN_FORWARD) {
        const float *const numbers = pointer[3];
        const operand turned = {MATRIX, {seen, filters, 1, seen, s->dtype}, s, filter, channel, w + filter * seen};
        const operand bias = {MATRIX,  {1, filters, filters, 1, CKPT_FLOAT32}, s, filter,
                              channel, s->bias ? numbers + filter : NULL};
        multiply(out_rows, filters, seen, &columns, &turned, &all_y, s->bias ? &bias : NULL, false, threads);
    } else if (p->direction == CKPT_DNN_INPUT_GRADIENT) {
        const operand seeing = {SEEING, {0}, s, filter, channel, y}, bank = {FILTERS, {0}, s, filter, channel, w};
        multiply(in_rows, channels, filters * taps, &seeing, &bank, &all_x, NULL, false, threads);
    } else {
        const float *const to = pointer[1];
        const operand turned = {MATRIX,    {filters, out_rows, 1, s->out_channels, s->dtype}, s, filter, channel,
                                y + filter};
        const operand dw = {MATRIX, {filters, seen, seen, 1, CKPT_FLOAT32}, s, filter, channel, to + filter * seen};
        multiply(filters, seen, out_rows, &turned, &columns, &dw, NULL, false, threads);
    }
}

void ckpt_product16_run(const ckpt_product16 *p, const void *const pointer[4], int threads)
{
    if (!p->convolves) {
        const ckpt_dnn_matrix line = ckpt_dnn_plain(1, p->y.columns, p->w.dtype);
        const operand x = {.matrix = p->x, .at = pointer[0]}, w = {.matrix = p->w, .at = pointer[1]},
                      y = {.matrix = p->y, .at = pointer[2]}, bias = {.matrix = line, .at = pointer[3]};
        multiply(p->y.rows, p->y.columns, p->x.columns, &x, &w, &y, p->bias ? &bias : NULL, p->adds, threads);
        return;
    }
    for (int64_t group = 0; group < p->shape.groups; group++) {
        convolve(p, group, pointer, threads);
    }
    if (p->direction == CKPT_DNN_WEIGHT_GRADIENT && p->shape.bias) {
        ckpt_column_sums(p->shape.dtype, ckpt_convolution_out_rows(&p->shape), p->shape.out_channels, pointer[2],
                         (float *)(uintptr_t)pointer[3], false, threads);
    }
}
