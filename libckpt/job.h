/* A source and options, ready to be planned: strategy, budget in bytes, and what is written into a plan about them. */
#ifndef CKPT_LIBCKPT_JOB_H
#define CKPT_LIBCKPT_JOB_H

#include "libckpt/source.h"
#include "planner/api/planner.h"

typedef struct ckpt_planning {
    const ckpt_options *asked;
    ckpt_arena *out;
    ckpt_graph_source source;
    ckpt_plan_options options;
    const char *strategy;
    const char *notes; /* lines on what was set: left out, obeyed, or not read */
    ckpt_bytes reserve;
    ckpt_ns begin_ns; /* on ckpt_clock_ns */
    int done, total;  /* budgets of a sweep, for the progress callback */
} ckpt_planning;

/* Effort, solver, callbacks, time limit (which begins) and host memory. `planning` must stay where it is: callbacks
 * point to it. Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_planning_init(ckpt_planning *planning, const ckpt_options *asked, ckpt_arena *out,
                                           ckpt_err *err);

/* What is set is put on the graph of planning->source; what would do nothing is refused.
 *   compare    all strategies are compared: none follows what is set
 *   absolute   the budget may not be a share of keep-all's peak
 * Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_planning_begin(ckpt_planning *planning, bool compare, bool absolute, ckpt_err *err);

/* Begin with the schedule of a plan. Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_planning_start(ckpt_planning *planning, const ckpt_document *document, ckpt_err *err);

/* What the plan was made for and from. */
void ckpt_planning_stamp(const ckpt_planning *planning, ckpt_plan *plan);

/* For a plan that is written: the outline of its graph, and the words of `asked` that made it. The threads are in them
 * even where they were the machine's own number, and a time limit only where the plan was ended `early`, by whatever.
 *   maximize   the variable of --maximize; NULL: none
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_planning_record(const ckpt_planning *planning, const ckpt_options *asked,
                                             const char *input, const char *maximize, bool early, ckpt_plan *plan,
                                             ckpt_err *err);

#endif
