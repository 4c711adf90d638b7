/* A sum, mean or maximum over dims of a tensor, as the kernels of both devices see it: sum, mean, max and the backward of
 * tile. */
#ifndef CKPT_OPS_REDUCTION_H
#define CKPT_OPS_REDUCTION_H

#include "ops/op.h"

typedef struct ckpt_reduction_axis {
    int64_t dim, from, to; /* positions, and elements between two of them in the input and in the result */
} ckpt_reduction_axis;

/* Outputs and terms are numbered in the order of the input's memory, last axis fastest.
 *
 * Equations: the dims of `kept` multiply to `outputs`, those of `reduced` to `terms`; the last axis of one of the two is
 * dense in the input; part p is over terms p part_terms .. (p + 1) part_terms - 1. */
typedef struct ckpt_reduction {
    int kept_count, reduced_count; /* each at least 1; neighbours are merged */
    ckpt_reduction_axis kept[CKPT_RANK_MAX], reduced[CKPT_RANK_MAX];
    int64_t outputs, terms;
    bool columns;              /* the last kept axis is dense in the input, not the last reduced one */
    int64_t parts, part_terms; /* terms are summed in parts, and then these in order: more threads than outputs */
} ckpt_reduction;

/* The dims of in[0] that the attribute "axis" names, as bits; all if it is not given. */
uint64_t ckpt_reduction_axes(const ckpt_node *node);

/* Of a node with attributes "axis" and "keepdim", from in[0] to out[0]; of tile, from the gradient of out[0] to that of
 * in[0]. Parts follow from the shape alone, and are those of the CPU or of a GPU (node->threads). */
ckpt_reduction ckpt_reduction_of_axes(const ckpt_node *node);
ckpt_reduction ckpt_reduction_of_tile(const ckpt_node *node);
/* What the parts take, `bytes` for each part of an output; 0 where there is one part. */
ckpt_bytes ckpt_reduction_workspace(const ckpt_reduction *r, ckpt_bytes bytes);

#endif
