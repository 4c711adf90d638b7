/* If the last dimension is the last on both sides, rows are copied. Otherwise two dimensions change places and are copied
 * in square tiles, so that both sides use whole cache lines. */
#include "kernels/cpu/permute.h"

#include <string.h>

#include "kernels/cpu/vector.h"

enum { TILE = 64, SHORT = 64 };

typedef ckpt_walk_axis axis;

/* Offsets of the number-th index of `count` axes, last axis fastest. */
static void find_offsets(const axis *axes, int count, int64_t number, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    for (int i = count - 1; i >= 0; i--) {
        const int64_t index = number % axes[i].dim;
        number /= axes[i].dim;
        *from += index * axes[i].from;
        *to += index * axes[i].to;
    }
}

static int64_t index_count(const axis *axes, int count)
{
    int64_t product = 1;
    for (int i = 0; i < count; i++) {
        product *= axes[i].dim;
    }
    return product;
}

/* The position of the source that position `at` of an axis reads; -1: none. */
static int64_t read_position(const axis *a, int64_t at)
{
    const int64_t from = at - a->first;
    if (a->wraps) {
        return (from + a->length) % a->length;
    }
    if (a->step == 1) {
        return from < 0 || from >= a->length ? -1 : from;
    }
    return from < 0 || from % a->step != 0 || from / a->step >= a->length ? -1 : from / a->step;
}

/* Where the source of the number-th row starts; -1: the row reads nothing. */
static int64_t find_source(const ckpt_walk *walk, int64_t number)
{
    int64_t source = walk->offset;
    for (int i = walk->count - 2; i >= 0; i--) {
        const axis *const a = &walk->axis[i];
        const int64_t at = read_position(a, number % a->dim);
        if (at < 0) {
            return -1;
        }
        source += at * a->from;
        number /= a->dim;
    }
    return source;
}

static void fill(int64_t n, float value, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = value;
    }
}

static void raise(int64_t n, float value, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] += value;
    }
}

/* n neighbours from elements `stride` apart. A loop copies short pieces, for which a call of memcpy costs more. */
static void copy(int64_t n, const float *from, int64_t stride, float factor, bool adds, float *to)
{
    if (stride == 1 && factor == 1.0f && adds) {
        ckpt_vector_add(n, from, to);
    } else if (stride == 1 && factor == 1.0f && n > SHORT) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else if (stride == 1 && factor == 1.0f) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = from[i];
        }
    } else if (stride == 0) {
        const float value = factor == 1.0f ? from[0] : factor * from[0];
        adds ? raise(n, value, to) : fill(n, value, to);
    } else if (factor == 1.0f && !adds) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = from[i * stride];
        }
    } else if (adds) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] += factor * from[i * stride];
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = factor * from[i * stride];
        }
    }
}

/* Positions at .. at + n - 1 of a row that reads modulo its length. */
static void copy_wrapped(const ckpt_walk *walk, const float *from, int64_t at, int64_t n, bool adds, float *to)
{
    const axis *const a = &walk->axis[walk->count - 1];
    if (a->length == 1) {
        copy(n, from, 0, walk->factor, adds, to);
        return;
    }
    for (int64_t done = 0; done < n;) {
        const int64_t first = read_position(a, at + done);
        const int64_t piece = a->length - first < n - done ? a->length - first : n - done;
        copy(piece, from + first * a->from, a->from, walk->factor, adds, to + done);
        done += piece;
    }
}

/* Positions at .. at + n - 1 of a row; `from` NULL: it reads nothing. */
static void copy_row(const ckpt_walk *walk, const float *from, int64_t at, int64_t n, bool adds, float *to)
{
    const axis *const a = &walk->axis[walk->count - 1];
    if (from != NULL && a->wraps) {
        copy_wrapped(walk, from, at, n, adds, to);
        return;
    }
    const int64_t behind = a->first + (a->length - 1) * a->step + 1, end = at + n < behind ? at + n : behind;
    const int64_t begin = at > a->first ? at : a->first;
    if (from == NULL || begin >= end) {
        adds ? (void)0 : fill(n, walk->fill, to);
    } else if (a->step == 1) {
        if (!adds) {
            fill(begin - at, walk->fill, to);
            fill(at + n - end, walk->fill, to + (end - at));
        }
        copy(end - begin, from + (begin - a->first) * a->from, a->from, walk->factor, adds, to + (begin - at));
    } else {
        if (!adds) {
            fill(n, walk->fill, to);
        }
        for (int64_t i = (begin - a->first + a->step - 1) / a->step; a->first + i * a->step < end; i++) {
            float *const place = to + (a->first + i * a->step - at);
            const float value = from[i * a->from];
            *place = adds ? *place + walk->factor * value : walk->factor * value;
        }
    }
}

static void copy_rows(const ckpt_walk *walk, const float *from, bool adds, float *to, int threads)
{
    const int64_t length = walk->axis[walk->count - 1].dim, rows = index_count(walk->axis, walk->count - 1);
    const int64_t chunks = CKPT_BLOCKS(length);
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * length > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < rows * chunks; piece++) {
        const int64_t row = piece / chunks, chunk = piece % chunks, at = chunk * CKPT_BLOCK;
        const int64_t source = find_source(walk, row);
        copy_row(walk, source < 0 ? NULL : from + source, at, CKPT_IN_BLOCK(length, chunk), adds,
                 to + row * length + at);
    }
}

/* `across` is dense in the source, `along` in the destination. */
static void copy_tile(const axis *across, const axis *along, int64_t n_across, int64_t n_along, const float *from,
                      bool adds, float *to)
{
    float tile[TILE][TILE]; /* [across][along] */
    for (int64_t j = 0; j < n_along; j++) {
        for (int64_t i = 0; i < n_across; i++) {
            tile[i][j] = from[j * along->from + i];
        }
    }
    for (int64_t i = 0; i < n_across; i++) {
        float *const row = to + i * across->to;
        if (adds) {
            for (int64_t j = 0; j < n_along; j++) {
                row[j] += tile[i][j];
            }
        } else {
            memcpy(row, tile[i], (size_t)n_along * sizeof *row);
        }
    }
}

/* `dense`: the axis that is dense in the source, not the last one. */
static void copy_tiles(const axis *axes, int count, int dense, const float *from, bool adds, float *to, int threads)
{
    const axis across = axes[dense], along = axes[count - 1];
    axis outer[CKPT_RANK_MAX];
    int outer_count = 0;
    for (int i = 0; i < count - 1; i++) {
        if (i != dense) {
            outer[outer_count++] = axes[i];
        }
    }
    const int64_t tiles_across = (across.dim + TILE - 1) / TILE, tiles_along = (along.dim + TILE - 1) / TILE;
    const int64_t tiles = tiles_across * tiles_along, total = index_count(outer, outer_count) * tiles;
    const int64_t elements = index_count(axes, count);
#pragma omp parallel for schedule(static) num_threads(threads) if (elements > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < total; piece++) {
        int64_t source, target;
        find_offsets(outer, outer_count, piece / tiles, &source, &target);
        const int64_t i = piece % tiles / tiles_along * TILE, j = piece % tiles_along * TILE;
        const int64_t n_across = across.dim - i < TILE ? across.dim - i : TILE;
        const int64_t n_along = along.dim - j < TILE ? along.dim - j : TILE;
        copy_tile(&across, &along, n_across, n_along, from + source + i + j * along.from, adds,
                  to + target + i * across.to + j);
    }
}

void ckpt_permute(const ckpt_walk *walk, const float *from, bool adds, float *to, int threads)
{
    int dense = walk->count - 1;
    for (int i = 0; i < walk->count && walk->plain; i++) {
        dense = walk->axis[i].from == 1 ? i : dense;
    }
    if (dense == walk->count - 1 || walk->factor != 1.0f) {
        copy_rows(walk, from, adds, to, threads);
    } else {
        copy_tiles(walk->axis, walk->count, dense, from + walk->offset, adds, to, threads);
    }
}
