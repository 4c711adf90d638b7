/* Where every element of a copy comes from: transpose, reshape between rank 4 and other ranks, slice, pad, roll, tile,
 * forward and backward, and the backward of sums. Both devices go by it: the destination is written once, in the order
 * of its memory. */
#ifndef CKPT_KERNELS_WALK_H
#define CKPT_KERNELS_WALK_H

#include "ops/op.h"

/* Position i of the destination reads position (i - first) / step of the source, if that is a whole number of 0 ..
 * length - 1. `wraps`: modulo length; then 0 <= first < length and step is 1. */
typedef struct ckpt_walk_axis {
    int64_t dim, to;      /* positions of the destination, and the elements between two */
    int64_t length, from; /* likewise of the source */
    int64_t first, step;
    bool wraps;
} ckpt_walk_axis;

typedef struct ckpt_walk {
    int count;                          /* at least 1 */
    ckpt_walk_axis axis[CKPT_RANK_MAX]; /* slowest of the destination first; the last one is dense there */
    bool plain;                         /* every axis reads all of its positions in order */
    int64_t offset;                     /* of the source's first element */
    float fill;                         /* elements that read nothing get it; when adding they stay as they are */
    float factor;                       /* of what is read; 1: bits are copied */
} ckpt_walk;

/* A copy of the index space `dim` between two tensors of these strides, of which the destination is dense. */
ckpt_walk ckpt_walk_strided(int rank, const int64_t *dim, const int64_t *from_stride, const int64_t *to_stride);

/* By the node's attributes, from in[0] to out[0]; `back`: from the gradient of out[0] to that of in[0]. */
ckpt_walk ckpt_walk_transpose(const ckpt_node *node, bool back);
ckpt_walk ckpt_walk_slice(const ckpt_node *node, bool back);
ckpt_walk ckpt_walk_pad(const ckpt_node *node, bool back);
ckpt_walk ckpt_walk_roll(const ckpt_node *node, bool back);
/* Forward of tile alone; its backward is a sum (ops/reduction.h). */
ckpt_walk ckpt_walk_tile(const ckpt_node *node);
/* Backward of sum; `mean`: of mean. */
ckpt_walk ckpt_walk_spread(const ckpt_node *node, bool mean);

#endif
