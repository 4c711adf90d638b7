/* What the files of a graph and its outline share. The check finds the entry that breaks a rule; the reader adds its line
 * and column. */
#ifndef CKPT_CORE_FORMATS_GRAPH_IMPL_H
#define CKPT_CORE_FORMATS_GRAPH_IMPL_H

#include "core/formats/graph.h"
#include "core/json/json.h"
#include "core/json/json_write.h"

typedef struct ckpt_graph_where {
    const char *array; /* "static", "buffers", "ops", "outputs"; NULL: the whole graph */
    int index;
} ckpt_graph_where;

/* ckpt_graph_check, with `where` set on failure. */
CKPT_MUST_USE ckpt_code ckpt_graph_check_at(ckpt_graph *graph, ckpt_arena *out, ckpt_graph_where *where, ckpt_err *err);

/* Members "static", "buffers" and "phase" of `object`. */
CKPT_MUST_USE ckpt_code ckpt_statics_read(const ckpt_item *object, bool needed, ckpt_arena *out,
                                          const ckpt_static **statics, int *count, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_buffers_read(const ckpt_item *object, ckpt_arena *out, const ckpt_buffer **buffer,
                                          int *count, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_phase_read(const ckpt_item *op, ckpt_arena *out, ckpt_phase *phase, ckpt_err *err);

/* The members "static" and "buffers", one entry per line. */
void ckpt_statics_write(const ckpt_static *statics, int count, ckpt_json_writer *w);
void ckpt_buffers_write(const ckpt_buffer *buffer, int count, ckpt_json_writer *w);

#endif
