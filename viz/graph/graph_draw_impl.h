/* What the files behind ckpt_graph_draw share. A drawing is made in steps: a box per layer with what it reads
 * (graph_figure.c), the ways its ops are done in (graph_ways.c), the ranges that stand together (graph_segments.c), repeated blocks folded to one (graph_fold.c) or,
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
    ckpt_ns recomputed_ns;
    int column; /* never less than that of the box before */
    ckpt_bytes activation_bytes, saved_bytes;
    ckpt_ns forward_ns, backward_ns; /* in a folded block: the mean of what it stands for */

    /* Variants. Bytes and times are those of the way that the plan chose, of an op's first run. */
    const char *way, *backward_way; /* how many ways its ops have, or by which the plan does them; NULL: no words */
    const char *tip;                /* all ways of its ops, a line each; NULL: none has a choice */
    int other_ways;                 /* ops that the plan does in another way than their own */
    bool idle;                      /* an optional op that the plan does not run */
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
    int *box_of;           /* per op of the graph: the box in which it counts; -1: none */
    int *first_run;        /* per op of the graph: how it is done first, as a run of the graph; -1: it is not run */
    int *runs;             /* per run of the graph: how often the plan has it; NULL: there are no steps */
    ckpt_figure_box *box;
    int box_count;
    ckpt_figure_edge *edge; /* by `to`; in a figure of layers one per buffer read, in the reader's order */
    int edge_count;
    ckpt_figure_range *range;
    int range_count;
    int decided[CKPT_DECISIONS];    /* of all layers */
    int other_ways, idle, optional; /* ops, of all phases */
    int column_count;
    bool folded, boxed;
    ckpt_arena *scratch;
} ckpt_figure;

/* A box per layer, and an edge per buffer that one reads and another writes. Errors of all these: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_figure_layers(ckpt_figure *figure, ckpt_err *err);

/* How the plan does each op. Before the layers. */
CKPT_MUST_USE ckpt_code ckpt_figure_runs(ckpt_figure *figure, ckpt_err *err);

/* The words on ways in boxes of layers. */
CKPT_MUST_USE ckpt_code ckpt_figure_ways(ckpt_figure *figure, ckpt_err *err);

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

/* About how large the drawing is, in points. */
CKPT_MUST_USE ckpt_code ckpt_figure_size(const ckpt_figure *figure, int *width, int *height, ckpt_err *err);

/* Order and nesting of ranges; drops those that cross another one before them. */
CKPT_MUST_USE ckpt_code ckpt_figure_nest(ckpt_figure *figure, ckpt_err *err);

/* Bytes of the first `depth` parts of a dotted name. */
size_t ckpt_name_prefix(const char *name, int depth);

/* Lay out the graph that `dot` describes and append the picture to `text`. Graphviz says nothing on stderr.
 *   format   "svg", "png", "pdf" */
CKPT_MUST_USE ckpt_code ckpt_dot_render(const char *dot, const char *format, ckpt_text *text, ckpt_err *err);

#endif
