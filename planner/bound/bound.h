/* What no schedule can beat: times and peaks, proved in integers (docs/explanation/lower-bound.md). Knows graphs alone,
 * no strategy and no schedule. */
#ifndef CKPT_PLANNER_BOUND_BOUND_H
#define CKPT_PLANNER_BOUND_BOUND_H

#include "planner/schedule/strategy.h"

typedef struct ckpt_bound {
    ckpt_ns time_ns;   /* no schedule in `scope` whose live bytes stay within the limit is faster */
    bool infeasible;   /* proved: there is none at all within the limit */
    const char *how;   /* "lp + branching", ... */
    const char *scope; /* "all", or a class of docs/reference/formats.md */
} ckpt_bound;

/* The best bound that `options->effort` pays for, over all variants that the options allow. `upper` is the time of a schedule that is known (INT64_MAX: none): a
 * bound that reaches it is enough, and `how` is then "exact". Rounded so that the 64-bit integer is safe.
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_bound_find(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ns upper,
                                        const ckpt_plan_options *options, ckpt_arena *out, ckpt_bound *bound,
                                        ckpt_err *err);

/* Live bytes (static not counted) below which no schedule at all exists: what an op needs, and what it takes to bring a
 * group of forward ops back for its backward when nothing else is held. Cost: bounded work, up to about 50 ms. */
CKPT_MUST_USE ckpt_code ckpt_bound_peak(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err);

#endif
