/* Dimensions are sorted by the order of the destination, and neighbours that stay neighbours are merged. If the last
 * dimension is the last on both sides, rows are copied. Otherwise two dimensions change places and are copied in square
 * tiles, so that both sides use whole cache lines. */
#include "kernels/cpu/permute.h"

#include <string.h>

#include "kernels/cpu/vector.h"

enum { TILE = 64 };

typedef struct axis {
    int64_t dim, from, to;
} axis;

void ckpt_permutation_invert(ckpt_permutation *permutation)
{
    for (int d = 0; d < permutation->rank; d++) {
        const int64_t stride = permutation->from_stride[d];
        permutation->from_stride[d] = permutation->to_stride[d];
        permutation->to_stride[d] = stride;
    }
}

/* Finds the merged axes longer than 1, slowest of the destination first; returns their number, at least 1. */
static int simplify(const ckpt_permutation *permutation, axis *axes)
{
    int count = 0;
    for (int d = 0; d < permutation->rank; d++) {
        if (permutation->dim[d] == 1) {
            continue;
        }
        const axis a = {permutation->dim[d], permutation->from_stride[d], permutation->to_stride[d]};
        int at = count++;
        for (; at > 0 && axes[at - 1].to < a.to; at--) {
            axes[at] = axes[at - 1];
        }
        axes[at] = a;
    }
    int merged = 0;
    for (int i = 1; i < count; i++) {
        axis *const last = &axes[merged];
        if (last->from == axes[i].dim * axes[i].from && last->to == axes[i].dim * axes[i].to) {
            *last = (axis){last->dim * axes[i].dim, axes[i].from, axes[i].to};
        } else {
            axes[++merged] = axes[i];
        }
    }
    if (count == 0) {
        axes[0] = (axis){1, 1, 1};
    }
    return merged + 1;
}

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

static void copy_rows(const axis *axes, int count, const float *from, bool adds, float *to, int threads)
{
    const int64_t length = axes[count - 1].dim, rows = index_count(axes, count - 1);
    const int64_t chunks = CKPT_BLOCKS(length);
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * length > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < rows * chunks; piece++) {
        const int64_t chunk = piece % chunks, n = CKPT_IN_BLOCK(length, chunk);
        int64_t source, target;
        find_offsets(axes, count - 1, piece / chunks, &source, &target);
        source += chunk * CKPT_BLOCK;
        target += chunk * CKPT_BLOCK;
        if (adds) {
            ckpt_vector_add(n, from + source, to + target);
        } else {
            memcpy(to + target, from + source, (size_t)n * sizeof *to);
        }
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

void ckpt_permute(const ckpt_permutation *permutation, const float *from, bool adds, float *to, int threads)
{
    axis axes[CKPT_RANK_MAX + 1];
    const int count = simplify(permutation, axes);
    int dense = count - 1;
    for (int i = 0; i < count; i++) {
        dense = axes[i].from == 1 ? i : dense;
    }
    if (dense == count - 1) {
        copy_rows(axes, count, from, adds, to, threads);
    } else {
        copy_tiles(axes, count, dense, from, adds, to, threads);
    }
}
