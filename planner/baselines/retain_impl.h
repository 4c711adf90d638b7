/* Baselines are what people do without this planner: each strategy here follows its source and is there to compare
 * with. This file: the schedule that follows from choosing what is kept for backward. */
#ifndef CKPT_PLANNER_BASELINES_RETAIN_IMPL_H
#define CKPT_PLANNER_BASELINES_RETAIN_IMPL_H

#include "planner/schedule/schedule.h"

/* A forward op whose outputs backward reads: what keeping or dropping it means, taken alone. */
typedef struct ckpt_retained {
    int op;
    ckpt_bytes bytes; /* of its outputs that an op behind the forward section reads */
    ckpt_ns time;     /* to recompute it */
} ckpt_retained;

/* Every op of the forward section (the ops before the first that is no forward op) that may be recomputed and of which
 * something is read behind that section, in reference order, into `item` (room for op_count). Gives how many.
 * Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_retained_find(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_retained *item,
                                           int *count, ckpt_err *err);

/* Append a whole step in which the outputs of the ops in `drop` (per op; only what may be recomputed) are let go with
 * their last use in the forward section and recomputed just before the first later op that reads them. Whatever that
 * needs and nobody keeps is recomputed with it. What has been recomputed stays until its last use: at most one
 * recomputation per op. Errors: CKPT_NO_MEMORY. Cost: O(uses + n log n). */
CKPT_MUST_USE ckpt_code ckpt_retain_write(const ckpt_graph *graph, const bool *drop, ckpt_arena *scratch,
                                          ckpt_order *order, ckpt_err *err);

/* Offers orders to `candidates` that recompute; `order` is empty, `candidates->min_peak` is keep-all. */
typedef ckpt_code (*ckpt_dropper)(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                  ckpt_order *order, ckpt_arena *scratch, ckpt_arena *out, ckpt_candidates *candidates,
                                  ckpt_err *err);

/* Keep-all where that is within the limit, else also what `drop` offers. Errors: as `drop`. */
CKPT_MUST_USE ckpt_code ckpt_keep_or_drop(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                          ckpt_dropper drop, ckpt_arena *out, ckpt_candidates *candidates,
                                          ckpt_err *err);

#endif
