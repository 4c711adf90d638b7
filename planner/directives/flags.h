/* What the user asked for on ops (flags, rules, policies), as an order of runs. It is obeyed, not improved. Knows
 * orders of runs and graphs; must not know `auto` (strategy_flags.c alone asks it). */
#ifndef CKPT_PLANNER_DIRECTIVES_FLAGS_H
#define CKPT_PLANNER_DIRECTIVES_FLAGS_H

#include "planner/schedule/schedule.h"

/* Every op in reference order, and behind the forward section the recomputations that the user asked for, each when
 * backward first needs one of its results:
 *
 *   - A unit (`segment` of ops with `checkpoint` CKPT_YES) is recomputed as one, as far as backward still needs it
 *     (PyTorch calls this early stop). What leaves the unit is kept. A unit inside another is recomputed with that one,
 *     except what it keeps for itself: that waits until backward needs it.
 *   - An op in no unit whose `policy` says so is recomputed by itself, with the ops that it needs and whose results are
 *     not in memory.
 *   - An op flagged CKPT_NO, or that may not be recomputed, is kept.
 *   - A unit with nothing behind it but the loss is kept where recomputing it would not lower the peak.
 *
 *   prefer   CKPT_PREFER_... count as CKPT_MUST_...
 *
 * Errors: CKPT_NO_MEMORY, CKPT_OVERFLOW. Cost: O(uses + units * ops of the largest unit). */
CKPT_MUST_USE ckpt_code ckpt_flags_order(const ckpt_graph *graph, bool prefer, ckpt_order *order, ckpt_err *err);

/* Copies in an order for what is set to be offloaded and is not copied there yet; none without a link.
 *   host_bytes   room on the host; 0: no limit
 * Errors: CKPT_BAD_INPUT (the host is too small), CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(uses + buffers log buffers)
 * and for each copy the runs beside it. */
CKPT_MUST_USE ckpt_code ckpt_flags_copies(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes host_bytes,
                                          ckpt_err *err);

/* A graph whose reference order is `order`. A recomputation is an op of its own there and writes buffers of its own, so
 * every schedule of that graph contains it. Such an op is not recomputed a second time.
 *
 *   op, buffer   for each op and buffer of the new graph: its index in `graph`
 *
 * Errors: CKPT_NO_MEMORY. */
typedef struct ckpt_unrolled {
    ckpt_graph graph;
    int *op, *buffer;
} ckpt_unrolled;

CKPT_MUST_USE ckpt_code ckpt_flags_unroll(const ckpt_graph *graph, const ckpt_sequence *order, ckpt_arena *out,
                                          ckpt_unrolled *unrolled, ckpt_err *err);

#endif
