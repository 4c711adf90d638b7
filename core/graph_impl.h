/* What reading and checking a graph share: the check says which entry broke the rule, the reader where it stands. */
#ifndef CKPT_CORE_GRAPH_IMPL_H
#define CKPT_CORE_GRAPH_IMPL_H

#include "core/graph.h"

typedef struct ckpt_graph_where {
    const char *array; /* "static", "buffers", "ops", "outputs"; NULL: the whole graph */
    int index;
} ckpt_graph_where;

/* ckpt_graph_check, with `where` set on failure. */
CKPT_MUST_USE ckpt_code ckpt_graph_check_at(ckpt_graph *graph, ckpt_arena *out, ckpt_graph_where *where, ckpt_err *err);

#endif
