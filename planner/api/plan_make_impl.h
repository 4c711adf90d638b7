/* What the files behind ckpt_plan_make share: from candidates to a checked plan.
 *
 * Strategies count live bytes; allocations may need more (fragmentation). So a strategy names several candidates, and
 * the fastest whose allocations fit is taken. Where that is not the fastest of all, the strategy is asked again under
 * lower limits. Where none fits, the schedules of lowest peak are tried. They and their allocations are the same at
 * every limit, and the least that one of them takes is the minimum budget. */
#ifndef CKPT_PLANNER_API_PLAN_MAKE_IMPL_H
#define CKPT_PLANNER_API_PLAN_MAKE_IMPL_H

#include "planner/api/planner.h"
#include "planner/schedule/schedule.h"

typedef struct ckpt_maker {
    const ckpt_graph *graph;
    const ckpt_strategy *strategy;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    ckpt_arena *out;
} ckpt_maker;

/* The whole plan, ops in the graph's order. */
CKPT_MUST_USE ckpt_code ckpt_maker_make(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err);
/* The same, or with ops in another order where that is better. */
CKPT_MUST_USE ckpt_code ckpt_maker_reorder(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err);

/* The strategy's candidates under `limit`. */
CKPT_MUST_USE ckpt_code ckpt_maker_ask(const ckpt_maker *m, const ckpt_plan_options *options, ckpt_bytes limit,
                                       ckpt_candidates *candidates, ckpt_err *err);

/* Live bytes below which there is no schedule. */
CKPT_MUST_USE ckpt_code ckpt_maker_floor(const ckpt_maker *m, ckpt_bytes *lowest, ckpt_err *err);

/* Ask under m->limit, then write steps and allocations of the fastest candidate that fits. When none does, those of the
 * schedule that takes least. */
CKPT_MUST_USE ckpt_code ckpt_maker_attempt(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan,
                                           bool *fits, ckpt_err *err);

/* Steps and allocations of a candidate; an arena of `enough` bytes will do. */
CKPT_MUST_USE ckpt_code ckpt_maker_pack(const ckpt_maker *m, const ckpt_candidate *candidate, ckpt_bytes enough,
                                        int effort, ckpt_plan *plan, ckpt_err *err);

/* Of the candidates none fits: steps and allocations of the fastest schedule of lowest peak that does, or of the one
 * that takes least; that one is the same at every limit. `candidates` become those of lowest peak. */
CKPT_MUST_USE ckpt_code ckpt_maker_lowest(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan,
                                          ckpt_err *err);

/* The answer when nothing fits: what `lowest` takes is the minimum budget. */
CKPT_MUST_USE ckpt_code ckpt_maker_refuse(const ckpt_maker *m, const ckpt_plan *lowest, ckpt_plan *plan, ckpt_err *err);

/* The rest of a plan that has steps and allocations: bound, summary, layers; then it is checked. */
CKPT_MUST_USE ckpt_code ckpt_maker_finish(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan,
                                          ckpt_err *err);

/* What does not depend on the strategy: names, static block, budget, keep-all. */
CKPT_MUST_USE ckpt_code ckpt_maker_head(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err);

#endif
