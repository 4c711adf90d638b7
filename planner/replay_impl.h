/* What the checker, the simulator and the planner share: the clock, and the word for each layer. */
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

/* Every layer with a forward op, in the order of their first ones: CKPT_RECOMPUTE when one of its forward ops runs
 * again, else CKPT_OFFLOADED when something they write is offloaded, else CKPT_KEEP. Steps must be legal.
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_layers_decide(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                           ckpt_layer_decision **layer, int *count, ckpt_err *err);

#endif
