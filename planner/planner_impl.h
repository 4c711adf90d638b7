/* What the files of the planner share. */
#ifndef CKPT_PLANNER_PLANNER_IMPL_H
#define CKPT_PLANNER_PLANNER_IMPL_H

#include "planner/planner.h"

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
/* Copy into `out` as the answer's sequence, and finish the order in any case. */
CKPT_MUST_USE ckpt_code ckpt_order_end(ckpt_order *order, ckpt_arena *out, ckpt_answer *answer, ckpt_err *err);
/* The same as a sequence that lives as long as the order. */
ckpt_sequence ckpt_order_view(const ckpt_order *order);

/* Steps, unplaced places (workspaces included), peak and times of a sequence into `plan`. */
CKPT_MUST_USE ckpt_code ckpt_sequence_steps(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *out,
                                            ckpt_plan *plan, ckpt_err *err);

#endif
