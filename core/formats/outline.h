/* The outline of a graph: its names, sizes, kinds and times, without who reads what. A plan carries one ("graph" in its
 * file), so that the plan can be drawn and compared without the graph. Knows no plan. */
#ifndef CKPT_CORE_FORMATS_OUTLINE_H
#define CKPT_CORE_FORMATS_OUTLINE_H

#include "core/formats/graph.h"

/* A variant of an op. */
typedef struct ckpt_outline_way {
    const char *name;
    ckpt_ns time_ns;
} ckpt_outline_way;

typedef struct ckpt_outline_op {
    const char *name, *layer; /* layer: "" for none */
    ckpt_phase phase;
    ckpt_ns time_ns;             /* in its own way */
    const char *variant;         /* what that is called; NULL: nothing */
    const ckpt_outline_way *way; /* the others */
    int way_count;
} ckpt_outline_op;

/* op_count 0: unknown, as in plan files older than outlines. */
typedef struct ckpt_outline {
    const ckpt_static *statics;
    int static_count;
    const ckpt_buffer *buffer;
    int buffer_count;
    const ckpt_outline_op *op;
    int op_count;
} ckpt_outline;

/* The outline of a graph. Borrows the graph's texts and arrays; the ops are in `out`. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_outline(const ckpt_graph *graph, ckpt_arena *out, ckpt_outline *outline,
                                          ckpt_err *err);

#endif
