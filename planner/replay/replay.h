/* The checker and the simulator replay a plan. They know plans and graphs, and must know no strategy: who trains by a
 * plan needs this part alone. */
#ifndef CKPT_PLANNER_REPLAY_REPLAY_H
#define CKPT_PLANNER_REPLAY_REPLAY_H

#include "core/formats/plan.h"
#include "core/formats/trace.h"

/* The first broken rule of docs/reference/formats.md, as CKPT_BAD_INPUT naming the step or allocation; CKPT_OK when the
 * plan can be replayed on `graph` and keeps its own figures: steps legal, every live range exactly one allocation, no
 * two allocations that share a step share an address, allocations inside arena_bytes, static + arena <= budget, summary
 * and layers as replayed. The plan must be bound. Cost: O(steps + allocations log allocations). */
CKPT_MUST_USE ckpt_code ckpt_plan_check(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err);

/* The same for a program that runs the plan and does not know which costs made it (a profile, another device's
 * roofline): workspaces are what the allocations say; times, the link, keep-all and layers are not checked. */
CKPT_MUST_USE ckpt_code ckpt_plan_check_run(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err);

/* Replay on the clock: ops one after another on "compute", copies beside them, one at a time in each direction, a
 * run waits for the fetches it reads, a free for the copies of its buffer. The plan must have passed
 * ckpt_plan_check. One event per step; allocations as in the plan. */
CKPT_MUST_USE ckpt_code ckpt_plan_simulate(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                           const ckpt_trace **trace, ckpt_err *err);

/* The step as it would be without any plan: every op once, every buffer freed after its last use.
 *   peak   static included
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(total reads + writes). */
CKPT_MUST_USE ckpt_code ckpt_keep_all_measure(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak,
                                              ckpt_ns *time, ckpt_err *err);

#endif
