/* What the files behind ckpt_graph_draw share. A drawing is made in steps: a box per layer with what it reads
 * (graph_figure.c), the ranges that stand together (graph_segments.c), repeated blocks folded to one (graph_fold.c) or,
 * where nothing repeats, neighbours in one box (graph_boxes.c), columns (graph_columns.c), DOT (graph_draw.c), a
 * picture (graph_render.c). */
#ifndef CKPT_VIZ_GRAPH_GRAPH_DRAW_IMPL_H
#define CKPT_VIZ_GRAPH_GRAPH_DRAW_IMPL_H

#include "core/formats/graph.h"
#include "core/formats/plan.h"

enum { CKPT_DECISIONS = CKPT_OFFLOADED + 1 };

/* One rectangle: a layer, or several that stand next to each other. */
typedef struct ckpt_figure_box {
    const char *name, *last;         /* of the first and the last layer */
    size_t name_length, last_length; /* as far as neighbours share them */
    size_t hidden;                   /* bytes at the beginning of `name` that the block around the box says */
    int layers;
    int decided[CKPT_DECISIONS];
    int outputs;    /* activations written */
    int recomputed; /* recomputed runs, of all its layers */
    int column;     /* never less than that of the box before */
    ckpt_bytes activation_bytes, saved_bytes;
    ckpt_ns forward_ns, backward_ns; /* in a folded block: the mean of what it stands for */
} ckpt_figure_box;

/* Box `to` reads `bytes` that box `from` writes. */
typedef struct ckpt_figure_edge {
    int from, to;
    int buffer; /* of the graph; -1: several */
    bool next;  /* from one repetition of a folded block to a later one */
    ckpt_bytes bytes;
    const char *source; /* the layer that is read; in a folded drawing what the first of the readers reads */
} ckpt_figure_edge;

typedef enum ckpt_range_kind { CKPT_RANGE_REPEAT, CKPT_RANGE_UNIT, CKPT_RANGE_SEGMENT } ckpt_range_kind;

/* Boxes first..last that stand together. Ranges nest; they are ordered by `first`, the outer one before the inner. */
typedef struct ckpt_figure_range {
    ckpt_range_kind kind;
    int first, last;
    int layers;       /* of the graph, from `first` to `last` (repeat: of one block) */
    int times;        /* repeat */
    const char *name; /* unit: its name; repeat: what the first block is called, and `to` the last: "h.0", "h.23" */
    const char *to;
    ckpt_bytes bytes; /* segment: what backward reads and is not kept; repeat: written by one repetition */
    ckpt_ns time_ns;  /* segment: of its recomputed runs; repeat: forward and backward of one repetition, on average */
    bool continued;   /* the rest of a range that a column's end cuts */
} ckpt_figure_range;

typedef struct ckpt_figure {
    const ckpt_graph *graph;
    const ckpt_plan *plan; /* NULL: none */
    ckpt_phase phase;      /* forward; the first op's when there is no forward op */
    int layer_count;       /* ops of that phase */
    int *layer_of;         /* per op of the graph; -1: of another phase */
    ckpt_figure_box *box;
    int box_count;
    ckpt_figure_edge *edge; /* by `to`; in a figure of layers one per buffer read, in the reader's order */
    int edge_count;
    ckpt_figure_range *range;
    int range_count;
    int decided[CKPT_DECISIONS]; /* of all layers */
    int column_count;
    bool folded, boxed;
    ckpt_arena *scratch;
} ckpt_figure;

/* A box per layer, and an edge per buffer that one reads and another writes. Errors of all these: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_figure_layers(ckpt_figure *figure, ckpt_err *err);

/* The ranges of a figure of layers: what the plan recomputes together, and the user's flagged units. */
CKPT_MUST_USE ckpt_code ckpt_figure_segments(ckpt_figure *figure, ckpt_err *err);

/* Draw blocks that follow each other and do not differ once. Cost: O(layers^2) comparisons of integers at most. */
CKPT_MUST_USE ckpt_code ckpt_figure_fold(ckpt_figure *figure, ckpt_err *err);

/* Neighbours share boxes, at most `most` of them. */
CKPT_MUST_USE ckpt_code ckpt_figure_join(ckpt_figure *figure, int most, ckpt_err *err);

/* One edge for each pair of boxes, or one more when it goes to the next repetition too; by `to`. */
CKPT_MUST_USE ckpt_code ckpt_figure_edges(ckpt_figure *figure, ckpt_err *err);

/* Give every box its column; ranges that a column's end cuts become two. */
CKPT_MUST_USE ckpt_code ckpt_figure_columns(ckpt_figure *figure, ckpt_err *err);

/* Order and nesting of ranges; drops those that cross another one before them. */
CKPT_MUST_USE ckpt_code ckpt_figure_nest(ckpt_figure *figure, ckpt_err *err);

/* Bytes of the first `depth` parts of a dotted name. */
size_t ckpt_name_prefix(const char *name, int depth);

/* Lay out the graph that `dot` describes and append the picture to `text`. Graphviz says nothing on stderr.
 *   format   "svg", "png", "pdf" */
CKPT_MUST_USE ckpt_code ckpt_dot_render(const char *dot, const char *format, ckpt_text *text, ckpt_err *err);

#endif
