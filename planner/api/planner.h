/* Graph and budget in, plan out: a strategy's name becomes a checked plan. Knows every part of the planner that `auto`
 * is made of; nothing below it may include it. */
#ifndef CKPT_PLANNER_API_PLANNER_H
#define CKPT_PLANNER_API_PLANNER_H

#include "planner/schedule/strategy.h"

/* Plan `graph` by strategy `name` ("auto": the fastest of all that fit).
 *
 *   plan   set on CKPT_OK only; verdict CKPT_INFEASIBLE names the minimum budget at which this strategy does find a
 *          plan. A plan that fits has been through ckpt_plan_check.
 *
 * Errors: CKPT_BAD_INPUT (no such strategy), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options,
                                       ckpt_arena *out, ckpt_plan **plan, ckpt_err *err);

#endif
