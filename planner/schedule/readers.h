/* Who reads what when every op runs once. */
#ifndef CKPT_PLANNER_SCHEDULE_READERS_H
#define CKPT_PLANNER_SCHEDULE_READERS_H

#include "core/formats/graph.h"

/* The ops that read or add to buffer b, rising: reader[from[b]] .. reader[from[b + 1] - 1]. The end of the step, op_count,
 * reads the outputs. Errors: CKPT_NO_MEMORY. Cost: O(total reads). */
CKPT_MUST_USE ckpt_code ckpt_readers_find(const ckpt_graph *graph, ckpt_arena *out, int **from, int **reader,
                                          ckpt_err *err);

#endif
