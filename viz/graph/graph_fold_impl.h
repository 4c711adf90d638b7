/* What the search for repeated blocks (graph_fold.c) and their drawing (graph_blocks.c) share. */
#ifndef CKPT_VIZ_GRAPH_GRAPH_FOLD_IMPL_H
#define CKPT_VIZ_GRAPH_GRAPH_FOLD_IMPL_H

#include "viz/graph/graph_draw_impl.h"

/* Blocks that repeat: first, first + period, ... */
typedef struct ckpt_blocks {
    int period, first, times;
} ckpt_blocks;

typedef struct ckpt_folding {
    ckpt_figure *figure;
    int count;       /* layers */
    uint64_t *token; /* what a layer is */
    int *edge_at;    /* per layer, and one more: its first edge */
    int *reader_at, *reader;
    uint64_t *begins, *ends;   /* per layer: the kinds of ranges that it is the first, the last of; a sum */
    int *cross;                /* per layer: the innermost range that holds it and the one before; -1: none */
    int *stands_for;           /* per layer: the one that is drawn for it */
    int *seen;                 /* per layer */
    ckpt_figure_range *repeat; /* first..last: layers of the first block */
    int repeat_count;
    ckpt_blocks *found; /* a stack: what a range of layers is searched for */
    int found_count;
} ckpt_folding;

/* Boxes, arrows and ranges of one block for all that stand in `stands_for`. */
CKPT_MUST_USE ckpt_code ckpt_folding_apply(ckpt_folding *folding, ckpt_err *err);

#endif
