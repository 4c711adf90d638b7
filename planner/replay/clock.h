/* The clock and the decision per layer, which the checker, the simulator and the planner share. Knows no strategy. */
#ifndef CKPT_PLANNER_REPLAY_CLOCK_H
#define CKPT_PLANNER_REPLAY_CLOCK_H

#include "core/formats/plan.h"

typedef struct ckpt_moment {
    ckpt_ns start_ns, end_ns;
} ckpt_moment;

/* Time of a copy, rounded up; false when 63 bits do not hold it or there is no link (a rate of 0). */
bool ckpt_copy_time(ckpt_bytes bytes, int64_t bytes_per_s, ckpt_ns *time);

/* The clock between two steps. */
typedef struct ckpt_clock {
    const ckpt_graph *graph;
    ckpt_ns now;         /* compute stream, which is also when the next step is issued */
    ckpt_ns d2h, h2d;    /* when each copy engine becomes free */
    ckpt_ns *written_ns; /* per buffer: when its fetch arrives */
    ckpt_ns *read_ns;    /* per buffer: when its offload has read it */
} ckpt_clock;

/* At 0, with tables from `scratch`. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_clock_start(ckpt_clock *clock, const ckpt_graph *graph, ckpt_arena *scratch,
                                         ckpt_err *err);
/* Advance by one step; reads its kind, target and inplace. False when it ends beyond 2^63 ns. */
bool ckpt_clock_step(ckpt_clock *clock, const ckpt_step *step, ckpt_moment *moment);
/* When everything has ended. */
ckpt_ns ckpt_clock_end(const ckpt_clock *clock);

/* When every step starts and ends, and when everything has ended. Steps must be legal.
 *   moment   room for plan->step_count
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_clock(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *scratch,
                                        ckpt_moment *moment, ckpt_ns *time, ckpt_err *err);

/* An op under a name that others may share. */
typedef struct ckpt_named {
    const char *name;
    int op;
} ckpt_named;

int ckpt_named_compare(const void *a, const void *b); /* for qsort: by name, then by op */

/* Every layer with a forward op, in the order of their first ops: CKPT_RECOMPUTE when one of its forward ops is
 * recomputed, else CKPT_OFFLOADED when one of its results is offloaded, else CKPT_KEEP. Steps must be legal. Errors:
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_layers_decide(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                           ckpt_layer_decision **layer, int *count, ckpt_err *err);

#endif
