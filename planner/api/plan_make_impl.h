/* What the files behind ckpt_plan_make share: from candidates to a checked plan.
 *
 * Strategies count live bytes; allocations may need more (fragmentation). So a strategy names several candidates, and
 * the fastest whose allocations fit is taken. Where that is not the fastest of all, the strategy is asked again under
 * lower limits. The candidate of minimum peak is always among those tried, and its allocations are the same at every
 * limit. What they take, or less, is the minimum budget. */
#ifndef CKPT_PLANNER_API_PLAN_MAKE_IMPL_H
#define CKPT_PLANNER_API_PLAN_MAKE_IMPL_H

#include "planner/api/planner.h"
#include "planner/schedule/schedule.h"

/* Arena bytes of candidates of minimum peak, so that no trial packs one again. */
typedef struct ckpt_packed {
    struct ckpt_packed *next;
    ckpt_sequence sequence;
    ckpt_bytes bytes[2]; /* at the effort of the plan, and at the one above; -1: not tried */
} ckpt_packed;

typedef struct ckpt_packed_list {
    ckpt_packed *first;
    ckpt_arena arena;
} ckpt_packed_list;

typedef struct ckpt_maker {
    const ckpt_graph *graph;
    const ckpt_strategy *strategy;
    const ckpt_plan_options *options;
    ckpt_bytes budget, limit; /* limit = budget - static; CKPT_BYTES_MAX both: none */
    bool trial;               /* only whether something fits: no repair, which could only find faster plans */
    ckpt_packed_list *packed;
    ckpt_arena *out;
} ckpt_maker;

/* The strategy's candidates under `limit`. */
CKPT_MUST_USE ckpt_code ckpt_maker_ask(const ckpt_maker *m, const ckpt_plan_options *options, ckpt_bytes limit,
                                       ckpt_candidates *candidates, ckpt_err *err);

/* Live bytes below which there is no schedule. */
CKPT_MUST_USE ckpt_code ckpt_maker_floor(const ckpt_maker *m, ckpt_bytes *lowest, ckpt_err *err);

/* Ask under m->limit, then write steps and allocations of the fastest candidate that fits. */
CKPT_MUST_USE ckpt_code ckpt_maker_attempt(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan,
                                           bool *fits, ckpt_err *err);

/* Arena bytes of a candidate of minimum peak, the same whatever the limit; with more effort unless they are at most
 * `enough`. `plan` NULL: only the bytes are wanted. */
CKPT_MUST_USE ckpt_code ckpt_maker_pack_min_peak(const ckpt_maker *m, const ckpt_candidate *min_peak, ckpt_bytes enough,
                                                 ckpt_plan *plan, ckpt_bytes *bytes, ckpt_err *err);

/* The answer when nothing fits: the minimum budget, and below what no schedule exists. */
CKPT_MUST_USE ckpt_code ckpt_maker_refuse(const ckpt_maker *m, const ckpt_candidate *min_peak, ckpt_plan *plan,
                                          ckpt_err *err);

/* The rest of a plan that has steps and allocations: bound, summary, layers; then it is checked. */
CKPT_MUST_USE ckpt_code ckpt_maker_finish(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan,
                                          ckpt_err *err);

/* What does not depend on the strategy: names, static block, budget, keep-all. */
CKPT_MUST_USE ckpt_code ckpt_maker_head(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err);

#endif
