/* Keep, recompute or offload, chosen together against the simulator. Alone in the planner it decides about copies. */
#ifndef CKPT_PLANNER_OFFLOAD_OFFLOAD_H
#define CKPT_PLANNER_OFFLOAD_OFFLOAD_H

#include "planner/schedule/strategy.h"

/* What may be done to a buffer that is not kept. */
typedef enum ckpt_offload_mode { CKPT_OFFLOAD_JOINT, CKPT_OFFLOAD_COPIES, CKPT_OFFLOAD_RECOMPUTE } ckpt_offload_mode;

/* Graphs of no more than that are searched exactly, larger ones are hardly ever done within the nodes. */
enum { CKPT_EXACT_BUFFERS = 20, CKPT_EXACT_OPS = 32 };

/* Improve `candidates`, whose candidates (and least) are starts, beside those that are made here: better candidates
 * within `limit` are added, and candidates->min_peak is lowered. Without a link there is nothing to copy, and nothing
 * is done but for CKPT_OFFLOAD_RECOMPUTE. What is offloaded takes at most options->host_bytes on the host.
 *   tries   how many schedules are looked at in all
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(tries * uses). Source: planner/offload/offload_search.c. */
CKPT_MUST_USE ckpt_code ckpt_offload_improve(const ckpt_graph *graph, ckpt_bytes limit, ckpt_offload_mode mode,
                                             int64_t tries, const ckpt_plan_options *options, ckpt_arena *out,
                                             ckpt_candidates *candidates, ckpt_err *err);

/* A number of tries that fits options->effort for this graph. */
int64_t ckpt_offload_tries(const ckpt_graph *graph, const ckpt_plan_options *options);

#endif
