/* What the checker and the simulator share: the clock. */
#ifndef CKPT_PLANNER_REPLAY_IMPL_H
#define CKPT_PLANNER_REPLAY_IMPL_H

#include "core/plan.h"

typedef struct ckpt_moment {
    ckpt_ns start_ns, end_ns;
} ckpt_moment;

/* When every step starts and ends, and when everything has ended. Steps must be legal.
 *   moment   room for plan->step_count
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_clock(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *scratch,
                                        ckpt_moment *moment, ckpt_ns *time, ckpt_err *err);

#endif
