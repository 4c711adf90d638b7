/* A graph of several micro-batches as copies of a graph of one, and schedules of that one put together. Knows how
 * micro-batches are named (planner/schedule/batches.h); it plans one by asking `auto`. */
#ifndef CKPT_PLANNER_MICRO_MICRO_IMPL_H
#define CKPT_PLANNER_MICRO_MICRO_IMPL_H

#include "planner/schedule/schedule.h"

/* `one` has the ops that all micro-batches have in the same order, with a "hold" op, which only takes workspace,
 * wherever ops of another micro-batch come in between. An op of none (an update, a reduction), and one that only waits
 * until a message has gone, is not in it. What several micro-batches or such ops touch (gradients of parameters) is
 * left out. */
typedef struct ckpt_micro {
    const ckpt_graph *whole;
    int batches;
    int in_flight; /* micro-batches that are begun and not done while another one runs, at most */
    ckpt_graph one;
    ckpt_graph_op *op; /* of `one` */
    int holds;
    int *batch;        /* per op of the whole graph: its micro-batch; -1: not in `one` */
    int *copy;         /* [batch * one.op_count + op]: the op it is there; -1: a hold */
    int *copy_buffer;  /* [batch * one.buffer_count + buffer] */
    ckpt_ns rest_ns;   /* the ops that are not in `one` */
    ckpt_ns *least_ns; /* per op of `one`: over all micro-batches */
    ckpt_bytes *least_workspace;
} ckpt_micro;

/* *micro NULL: there are no micro-batches, or they are not alike. Errors: CKPT_NO_MEMORY. Cost: O(ops + uses). */
CKPT_MUST_USE ckpt_code ckpt_micro_find(const ckpt_graph *graph, ckpt_arena *out, ckpt_micro **micro, ckpt_err *err);

/* Let every hold take so many bytes. */
void ckpt_micro_hold(ckpt_micro *micro, ckpt_bytes bytes);

/* The schedule of the whole graph that does schedule[j] of `one` in micro-batch j, each up to its next first run, in
 * reference order. `at`: scratch, [2 * batches]. */
void ckpt_micro_compose(const ckpt_micro *micro, const ckpt_sequence *const *schedule, int *at, ckpt_order *order);

#endif
