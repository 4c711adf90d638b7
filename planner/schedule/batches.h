/* Micro-batches in the names of a lowered graph: the layer "h.0.mlp" of micro-batch 2 is labelled "h.0.mlp@2". What is
 * set for a layer is set for all its micro-batches, so it is worked out on a graph of one of them. */
#ifndef CKPT_PLANNER_SCHEDULE_BATCHES_H
#define CKPT_PLANNER_SCHEDULE_BATCHES_H

#include "core/formats/graph.h"

/* The micro-batch that a label names; -1: none. `*length` (may be NULL): how long the layer's own name is. */
int ckpt_batch_of(const char *label, int *length);

/* How many micro-batches a graph has: 0 unless the label of every forward op names one, none above the number of ops,
 * and its name begins with its label. Cost: O(ops). */
int ckpt_batch_count(const ckpt_graph *graph);

/* The forward and backward ops of micro-batch 0 with the buffers they write, under their layers' own names. Gradients
 * that are summed over micro-batches and what belongs to none is not there. Errors: CKPT_NO_MEMORY, CKPT_BAD_INPUT (two
 * names are the same without their micro-batch). */
CKPT_MUST_USE ckpt_code ckpt_batch_first(const ckpt_graph *graph, ckpt_arena *out, const ckpt_graph **first,
                                         ckpt_err *err);

/* `graph` with what is set on the forward ops of `from`, found by their names without micro-batch; on others nothing is
 * set. Units are of one micro-batch: "h.0/h.0.mlp" becomes "h.0@2/h.0.mlp@2". Errors: CKPT_NO_MEMORY. Cost: O(ops log
 * ops). */
CKPT_MUST_USE ckpt_code ckpt_batch_spread(const ckpt_graph *graph, const ckpt_graph *from, ckpt_arena *out,
                                          const ckpt_graph **spread, ckpt_err *err);

#endif
