/* The ways in which an op may be run: its own, and its variants. */
#ifndef CKPT_PLANNER_SCHEDULE_WAYS_H
#define CKPT_PLANNER_SCHEDULE_WAYS_H

#include "core/formats/graph.h"
#include "planner/schedule/options.h"

/* How many ways an op has, and the run that is its k-th, from 0: its own way. */
int ckpt_way_count(const ckpt_graph *graph, int op);
int ckpt_way_run(const ckpt_graph *graph, int op, int k);

/* May a plan use this run? Inexact variants only where the options allow them. */
bool ckpt_run_allowed(const ckpt_graph *graph, int run, const ckpt_plan_options *options);

/* `allowed`: the graph without the inexact variants that the options do not allow, where they stand behind an op's others;
 * or the graph itself. Runs keep their numbers. What is looked for takes no longer for such variants. Errors:
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ways_allowed(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                                          const ckpt_graph **allowed, ckpt_err *err);

/* Do two runs of an op write the same bits? */
bool ckpt_runs_agree(const ckpt_graph *graph, int a, int b);

/* Time of every op that must run, once, in the fastest way that may be used: no schedule is faster. Cost: O(ops and
 * variants). */
ckpt_ns ckpt_least_time(const ckpt_graph *graph, const ckpt_plan_options *options);

#endif
