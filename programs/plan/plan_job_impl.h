/* What the files of ckpt-plan share (plan_main.c and its neighbours plan_..._main.c): where a graph comes from, and a
 * request with all that it takes to answer it. */
#ifndef CKPT_PROGRAMS_PLAN_PLAN_JOB_IMPL_H
#define CKPT_PROGRAMS_PLAN_PLAN_JOB_IMPL_H

#include "libckpt/job.h"
#include "libckpt/solver_plugin.h"
#include "planner/analysis/analysis.h"
#include "programs/plan/plan_request_impl.h"

/* All that the ways to answer share. */
typedef struct ckpt_job {
    const ckpt_cli *cli;
    const ckpt_request *request;
    ckpt_arena *out;
    ckpt_planning planning;
    bool (*cancelled)(void *context); /* somebody pressed Ctrl-C */
    bool solver_tried;                /* it was opened, or cannot be, and that has been said */
    const ckpt_solver *solver;        /* NULL: none */
    void *solver_library;             /* to close */
    ckpt_text text;                   /* what goes to standard output */
    bool found;                       /* the answer is yes */
    int usage;                        /* -1; else what to end with: the usage is wrong, and that has been said */
} ckpt_job;

/* Everything in `options` but the budget, which may be a share of something not known yet. Opens the solver where effort
 * or strategy asks for it; says on standard error that it is missing. */
CKPT_MUST_USE ckpt_code ckpt_job_options(ckpt_job *job, ckpt_err *err);

/* Source, what is set, and budget; what would do nothing is refused. Says on standard error whether flags
 * were obeyed. */
CKPT_MUST_USE ckpt_code ckpt_job_begin(ckpt_job *job, ckpt_err *err);

/* The same for another pipeline stage of the same source: nothing is said again. */
CKPT_MUST_USE ckpt_code ckpt_job_begin_stage(ckpt_job *job, const ckpt_graph_source *other, ckpt_err *err);

/* One plan, with what is to be said of it on standard error, and its files. `job->found`: it fits. Errors:
 * CKPT_INTERRUPTED (before any was found), of planning and writing. */
CKPT_MUST_USE ckpt_code ckpt_job_plan(ckpt_job *job, ckpt_plan **plan, ckpt_err *err);

/* Write a predicted trace, with what it was predicted for. */
CKPT_MUST_USE ckpt_code ckpt_job_trace(const ckpt_job *job, const ckpt_trace *predicted, const char *path,
                                       ckpt_err *err);

/* For a plan that is written: the outline of its graph, and the words of `request` that made it. The threads are in
 * them even where they were the machine's own number, and a time limit only where the plan was ended `early`, by
 * whatever. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_job_record(const ckpt_job *job, const ckpt_request *request, bool early, ckpt_plan *plan,
                                        ckpt_err *err);

/* A plan for each pipeline stage. */
CKPT_MUST_USE ckpt_code ckpt_answer_stages(ckpt_job *job, ckpt_err *err);

/* --check: whether the plan file is what the planner gives. */
CKPT_MUST_USE ckpt_code ckpt_answer_check(ckpt_job *job, ckpt_err *err);

#endif
