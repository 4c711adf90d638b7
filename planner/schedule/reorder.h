/* Another order of the ops, where the data flow allows one: which of them keeps the least in memory. Knows no budget and
 * no strategy: what is planned is a graph whose ops stand in that order. */
#ifndef CKPT_PLANNER_SCHEDULE_REORDER_H
#define CKPT_PLANNER_SCHEDULE_REORDER_H

#include "planner/schedule/strategy.h"

/* The ops in an order whose plain run, every op once, has a low peak; ops that may not move (ckpt_op_may_move) keep
 * theirs, and every read finds the additions of reference order. The same at every budget.
 *   order   written: order[i] is the op that runs as i-th
 *   better  the peak is lower than in reference order
 * Errors: CKPT_NO_MEMORY. Cost: what the effort pays for, at most a second at normal effort. */
CKPT_MUST_USE ckpt_code ckpt_reorder_find(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                                          const int **order, bool *better, ckpt_err *err);

/* The same graph with its ops in that order. Errors: CKPT_NO_MEMORY. Cost: O(ops). */
CKPT_MUST_USE ckpt_code ckpt_reorder_graph(const ckpt_graph *graph, const int *order, ckpt_arena *out,
                                           const ckpt_graph **made, ckpt_err *err);

/* The most that one op needs for itself, whatever the order: its reads, writes and workspace, less what it may save in
 * place; of an op with variants, in the way that needs least. */
ckpt_bytes ckpt_reorder_floor(const ckpt_graph *graph);

#endif
