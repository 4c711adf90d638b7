/* Threads share the rows of the whole; within a row the pieces come in order. A loop copies short pieces: with channels
 * last a piece is often a dozen floats, for which a call of memcpy costs more than the copy. */
#include "kernels/cpu/pieces.h"

#include <string.h>

#include "kernels/cpu/vector.h"

enum { SHORT = 64 };

static void copy(int64_t n, const float *from, float *to)
{
    if (n > SHORT) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i];
    }
}

static void clear(int64_t n, float *to)
{
    memset(to, 0, (size_t)n * sizeof *to);
}

void ckpt_pieces_describe(const ckpt_shape *whole, const ckpt_tensor *piece, int count, int64_t axis, int threads,
                          ckpt_pieces *pieces)
{
    const int64_t d = axis < 0 ? axis + whole->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(whole, stride);
    pieces->whole_length = whole->dim[d] * stride[d];
    pieces->outer = ckpt_shape_count(whole) / pieces->whole_length;
    pieces->count = count;
    pieces->threads = threads;
    for (int k = 0; k < count; k++) {
        pieces->length[k] = piece[k].shape.dim[d] * stride[d];
    }
}

void ckpt_pieces_join(const ckpt_pieces *pieces, const void *const *piece, bool adds, float *whole)
{
    const int64_t count = pieces->outer * pieces->whole_length;
#pragma omp parallel for schedule(static) num_threads(pieces->threads) if (count > CKPT_PARALLEL)
    for (int64_t row = 0; row < pieces->outer; row++) {
        float *to = whole + row * pieces->whole_length;
        for (int k = 0; k < pieces->count; k++) {
            const int64_t n = pieces->length[k];
            if (piece[k] != NULL && adds) {
                ckpt_vector_add(n, (const float *)piece[k] + row * n, to);
            } else if (piece[k] != NULL) {
                copy(n, (const float *)piece[k] + row * n, to);
            } else if (!adds) {
                clear(n, to);
            }
            to += n;
        }
    }
}

void ckpt_pieces_cut(const ckpt_pieces *pieces, const float *whole, uint64_t adds, void *const *piece)
{
    const int64_t count = pieces->outer * pieces->whole_length;
#pragma omp parallel for schedule(static) num_threads(pieces->threads) if (count > CKPT_PARALLEL)
    for (int64_t row = 0; row < pieces->outer; row++) {
        const float *from = whole + row * pieces->whole_length;
        for (int k = 0; k < pieces->count; k++) {
            const int64_t n = pieces->length[k];
            if (piece[k] != NULL && (adds >> k & 1) != 0) {
                ckpt_vector_add(n, from, (float *)piece[k] + row * n);
            } else if (piece[k] != NULL) {
                copy(n, from, (float *)piece[k] + row * n);
            }
            from += n;
        }
    }
}
