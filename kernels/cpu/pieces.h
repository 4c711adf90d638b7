/* A tensor as pieces along one dimension: forward and backward of concat and split. */
#ifndef CKPT_KERNELS_CPU_PIECES_H
#define CKPT_KERNELS_CPU_PIECES_H

#include "core/formats/tensor.h"
#include "ops/op.h"

/* In memory the whole is `outer` rows, each made of the pieces' rows one after another: the sum of length[k] is
 * whole_length. */
typedef struct ckpt_pieces {
    int64_t outer, whole_length;
    int count;
    int64_t length[CKPT_IN_MAX]; /* elements of a piece in one row */
    bool narrow;                 /* bfloat16: sums are rounded once; else float32 */
    int threads;
} ckpt_pieces;

/* Describes the pieces piece[0..count) of `whole` along the node's `axis` (of the logical shape; negative: from the
 * end). */
void ckpt_pieces_describe(const ckpt_node *node, const ckpt_shape *whole, const ckpt_tensor *piece, int count,
                          ckpt_pieces *pieces);

/* whole = the pieces side by side; a NULL piece is zeros. `adds`: whole += pieces. */
void ckpt_pieces_join(const ckpt_pieces *pieces, const void *const *piece, bool adds, void *whole);

/* Copies the whole into its pieces (NULL: skipped), in increasing order; bit k of `adds`: piece k += instead. */
void ckpt_pieces_cut(const ckpt_pieces *pieces, const void *whole, uint64_t adds, void *const *piece);

#endif
