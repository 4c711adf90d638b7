/* Threads share the rows of the whole; within a row the pieces come in order. A loop copies short pieces: with channels
 * last a piece is often a dozen numbers, for which a call of memcpy costs more than the copy. */
#include "kernels/cpu/pieces.h"

#include <string.h>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/vector.h"

enum { SHORT = 64 };

#define COPY(type)                                                                                                     \
    static void copy_##type(int64_t n, const type *from, type *to)                                                     \
    {                                                                                                                  \
        if (n > SHORT) {                                                                                               \
            memcpy(to, from, (size_t)n * sizeof *to);                                                                  \
            return;                                                                                                    \
        }                                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            to[i] = from[i];                                                                                           \
        }                                                                                                              \
    }
COPY(float)
COPY(uint16_t)

/* Neighbours of a row to their place in another, elements `from_at` and `to_at`. */
static void place(bool narrow, int64_t n, bool adds, const void *from, int64_t from_at, void *to, int64_t to_at)
{
    if (narrow && adds) {
        ckpt_narrow_add(n, (const uint16_t *)from + from_at, (uint16_t *)to + to_at);
    } else if (narrow) {
        copy_uint16_t(n, (const uint16_t *)from + from_at, (uint16_t *)to + to_at);
    } else if (adds) {
        ckpt_vector_add(n, (const float *)from + from_at, (float *)to + to_at);
    } else {
        copy_float(n, (const float *)from + from_at, (float *)to + to_at);
    }
}

static void clear(bool narrow, int64_t n, void *to, int64_t at)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    memset((char *)to + (size_t)at * size, 0, (size_t)n * size);
}

void ckpt_pieces_describe(const ckpt_node *node, const ckpt_shape *whole, const ckpt_tensor *piece, int count,
                          ckpt_pieces *pieces)
{
    const int64_t axis = ckpt_node_int(node, "axis"), d = axis < 0 ? axis + whole->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(whole, stride);
    pieces->whole_length = whole->dim[d] * stride[d];
    pieces->outer = ckpt_shape_count(whole) / pieces->whole_length;
    pieces->count = count;
    pieces->narrow = node->dtype == CKPT_BFLOAT16;
    pieces->threads = node->threads;
    for (int k = 0; k < count; k++) {
        pieces->length[k] = piece[k].shape.dim[d] * stride[d];
    }
}

void ckpt_pieces_join(const ckpt_pieces *pieces, const void *const *piece, bool adds, void *whole)
{
    const int64_t count = pieces->outer * pieces->whole_length;
#pragma omp parallel for schedule(static) num_threads(pieces->threads) if (count > CKPT_PARALLEL)
    for (int64_t row = 0; row < pieces->outer; row++) {
        int64_t to = row * pieces->whole_length;
        for (int k = 0; k < pieces->count; k++) {
            const int64_t n = pieces->length[k];
            if (piece[k] != NULL) {
                place(pieces->narrow, n, adds, piece[k], row * n, whole, to);
            } else if (!adds) {
                clear(pieces->narrow, n, whole, to);
            }
            to += n;
        }
    }
}

void ckpt_pieces_cut(const ckpt_pieces *pieces, const void *whole, uint64_t adds, void *const *piece)
{
    const int64_t count = pieces->outer * pieces->whole_length;
#pragma omp parallel for schedule(static) num_threads(pieces->threads) if (count > CKPT_PARALLEL)
    for (int64_t row = 0; row < pieces->outer; row++) {
        int64_t from = row * pieces->whole_length;
        for (int k = 0; k < pieces->count; k++) {
            const int64_t n = pieces->length[k];
            if (piece[k] != NULL) {
                place(pieces->narrow, n, (adds >> k & 1) != 0, whole, from, piece[k], row * n);
            }
            from += n;
        }
    }
}
