/* Schedules as strategies write them: orders, candidates, and the steps that follow from an order. Knows no strategy and no
 * offsets. */
#ifndef CKPT_PLANNER_SCHEDULE_SCHEDULE_H
#define CKPT_PLANNER_SCHEDULE_SCHEDULE_H

#include "planner/schedule/strategy.h"

/* A sequence being written. Appending beyond memory is remembered and reported by ckpt_order_end. */
typedef struct ckpt_order {
    int *op;
    int count, room;
    bool failed;
} ckpt_order;

void ckpt_order_init(ckpt_order *order);
void ckpt_order_fini(ckpt_order *order);
void ckpt_order_add(ckpt_order *order, int op);
void ckpt_order_range(ckpt_order *order, int from, int to); /* ops from .. to - 1 */
/* Measure the order and copy it into `out` as a candidate, when it is within the limit and no candidate is as good in
 * time and peak. The order is empty afterwards and may be written again; ckpt_order_fini ends it. */
CKPT_MUST_USE ckpt_code ckpt_order_offer(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                                         ckpt_candidates *candidates, ckpt_err *err);
/* The same for an order that does not depend on the limit: it may also be the candidates' min_peak. */
CKPT_MUST_USE ckpt_code ckpt_order_end(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                                       ckpt_candidates *candidates, ckpt_err *err);
/* Offer every op once, in reference order. */
CKPT_MUST_USE ckpt_code ckpt_order_keep_all(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                                            ckpt_candidates *candidates, ckpt_err *err);
/* Add a measured candidate within the limit, unless one of them is as good in time and peak. They
 * stay in the order of their times, without those that another makes needless; the slowest goes when there are too
 * many. The sequence is not copied. */
void ckpt_candidates_add(ckpt_candidates *candidates, const ckpt_candidate *added);
/* Add the candidates of another, and take its min_peak where that is lower, or as low and faster. */
void ckpt_candidates_merge(ckpt_candidates *candidates, const ckpt_candidates *part);
/* Add the incumbents of the options that are within the limit. */
void ckpt_candidates_incumbents(ckpt_candidates *candidates, ckpt_bytes limit, const ckpt_plan_options *options);
/* Tell options->progress that `part` begins. */
void ckpt_candidates_progress(const ckpt_candidates *candidates, const char *part, ckpt_bytes limit,
                              const ckpt_plan_options *options);
/* Take a bound, unless the one there is is better: higher, or for all schedules and not lower by more than 0.1 %. */
void ckpt_candidates_bound(ckpt_candidates *candidates, ckpt_ns time, const char *how, const char *scope);
/* How its bounds are found. The solver is a floating-point one, so they are no proofs: `how` stays this even where a
 * plan reaches the bound. */
#define CKPT_ILP_HOW "integer program, floating point"
/* `how` for a plan of that time: "exact" when it reaches the bound and that rests on integers alone. */
const char *ckpt_bound_how(ckpt_ns bound, const char *how, ckpt_ns time);
/* Its figures. */
CKPT_MUST_USE ckpt_code ckpt_order_measure(const ckpt_order *order, const ckpt_graph *graph, ckpt_arena *scratch,
                                           ckpt_candidate *measured, ckpt_err *err);

/* Live bytes during each entry of a sequence, static not counted. Errors and cost as ckpt_sequence_measure. */
CKPT_MUST_USE ckpt_code ckpt_sequence_profile(const ckpt_graph *graph, const ckpt_sequence *sequence,
                                              ckpt_arena *scratch, ckpt_bytes *each_entry, ckpt_err *err);

/* The same runs, with those that stand right before a reduction and are recomputations moved behind it, wherever the
 * peak does not rise for that. In `out`. Errors: CKPT_NO_MEMORY, as ckpt_sequence_measure. Cost: a measurement per
 * move. */
CKPT_MUST_USE ckpt_code ckpt_sequence_reduce_first(const ckpt_graph *graph, const ckpt_sequence *sequence,
                                                   ckpt_arena *out, ckpt_sequence *moved, ckpt_err *err);

/* Steps, unplaced allocations (workspaces included), peak, times and what is copied of a sequence into `plan`. */
CKPT_MUST_USE ckpt_code ckpt_sequence_steps(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *out,
                                            ckpt_plan *plan, ckpt_err *err);

#endif
