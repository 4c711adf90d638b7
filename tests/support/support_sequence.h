/* Sequences with copies and in-place runs for planner tests, and a clock that shares nothing with the planner's. */
#ifndef CKPT_TESTS_SUPPORT_SEQUENCE_H
#define CKPT_TESTS_SUPPORT_SEQUENCE_H

#include "planner/api/planner.h"
#include "tests/support/support_graphs.h"

/* The same graph with some outputs as large as one of their op's inputs and allowed in its place; a link of so many
 * bytes per second each way, 0: none. */
ckpt_graph *ckpt_test_variant(const ckpt_graph *graph, ckpt_arena *arena, uint64_t seed, bool inplace, int64_t d2h,
                              int64_t h2d);

/* A legal sequence: everything in order, some ops again, some buffers away between two uses. */
ckpt_sequence ckpt_test_sequence(const ckpt_graph *graph, ckpt_arena *arena, uint64_t seed);

/* Steps and places of a sequence as a whole plan, through ckpt_plan_check and ckpt_test_replay. */
ckpt_plan *ckpt_test_plan(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *arena, const char *what);

/* When the plan's last step has ended: ops one after another, copies one at a time in each direction in the order of
 * the steps, a run after the fetches it reads, a free after the copies of its
 * buffer. Small buffers only. */
ckpt_ns ckpt_test_clock(const ckpt_graph *graph, const ckpt_plan *plan);

#endif
