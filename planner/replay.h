/* The checker and the simulator: they replay a plan and know no strategy. ckpt-train links only this part. */
#ifndef CKPT_PLANNER_REPLAY_H
#define CKPT_PLANNER_REPLAY_H

#include "core/plan.h"
#include "core/trace.h"

/* The first broken rule of docs/formats.md, as CKPT_BAD_INPUT naming the step or place; CKPT_OK when the plan can
 * be replayed on `graph` and keeps its own figures: steps legal, every lifetime exactly one place, no two places
 * that share a step share an address, places inside arena_bytes, static + arena <= budget, summary as replayed.
 * The plan must be bound. Cost: O(steps + places log places). */
CKPT_MUST_USE ckpt_code ckpt_plan_check(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err);

/* Replay on the clock: ops one after another on "compute", copies beside them, one at a time in each direction, a
 * run waits for the fetches it reads. The plan must have passed ckpt_plan_check. */
CKPT_MUST_USE ckpt_code ckpt_plan_simulate(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                           const ckpt_trace **trace, ckpt_err *err);

#endif
