/* What the files of ckpt-plan share (plan_main.c and its neighbours plan_..._main.c): where a graph comes from, and a
 * request with all that it takes to answer it. */
#ifndef CKPT_PROGRAMS_PLAN_PLAN_JOB_IMPL_H
#define CKPT_PROGRAMS_PLAN_PLAN_JOB_IMPL_H

#include "core/formats/model.h"
#include "planner/analysis/analysis.h"
#include "programs/plan/plan_request_impl.h"

struct ckpt_staged; /* ops/lowering/staged.h */

/* A graph, and where its times come from. */
typedef struct ckpt_source {
    const ckpt_graph *graph; /* with what the request sets */
    bool flagged;            /* the model itself sets something, and that is not ignored */
    const ckpt_model *model; /* NULL: the file is a graph */
    const char *costs;
    const ckpt_layer_algorithms *algorithms; /* that the profile measured, by layer */
    int algorithms_count;
    bool roofline;
    int threads; /* CKPT_ON_GPU: for a GPU; 0 too when the file is a graph */
    bool gpu;
    ckpt_bytes reserve;               /* taken off the budget */
    ckpt_bytes capacity;              /* of the GPU's memory; 0: unknown, or no GPU */
    const char *notes;                /* lines on what was set and is left out */
    bool chosen;                      /* something is set, here or in another pipeline stage */
    const struct ckpt_staged *staged; /* of a model; NULL: the file is a graph */
    ckpt_scheme scheme;               /* of the graph; a graph file's is plain */
} ckpt_source;

/* All that the ways to answer share. */
typedef struct ckpt_job {
    const ckpt_cli *cli;
    const ckpt_request *request;
    ckpt_arena *out;
    ckpt_source source;
    ckpt_plan_options options; /* `stop` is set from the beginning */
    const char *strategy;
    ckpt_ns begin_ns; /* on ckpt_clock_ns */
    ckpt_text text;   /* what goes to standard output */
    bool found;       /* the answer is yes */
    int usage;        /* -1; else what to end with: the usage is wrong, and that has been said */
} ckpt_job;

/* The graph of the request's file, or of its model, with the link of --link. Errors: of the readers, of lowering. */
CKPT_MUST_USE ckpt_code ckpt_source_read(const ckpt_request *request, ckpt_arena *out, ckpt_source *source,
                                         ckpt_err *err);

/* The same for the model with another value of its variable. */
CKPT_MUST_USE ckpt_code ckpt_source_read_at(const ckpt_request *request, int64_t value, ckpt_arena *out,
                                            ckpt_source *source, ckpt_err *err);

/* The graph of another pipeline stage of the same source. Errors: of lowering. */
CKPT_MUST_USE ckpt_code ckpt_source_stage(const ckpt_request *request, const ckpt_source *other, int stage,
                                          ckpt_arena *out, ckpt_source *source, ckpt_err *err);

/* Everything in `options` but the budget, which may be a share of something not known yet. */
CKPT_MUST_USE ckpt_code ckpt_job_options(ckpt_job *job, ckpt_err *err);

/* Source, what is set, and budget; what would do nothing is refused. Says on standard error whether flags
 * were obeyed. */
CKPT_MUST_USE ckpt_code ckpt_job_begin(ckpt_job *job, ckpt_err *err);

/* The same for another pipeline stage of the same source: nothing is said again. */
CKPT_MUST_USE ckpt_code ckpt_job_begin_stage(ckpt_job *job, const ckpt_source *other, ckpt_err *err);

/* One plan, with what is to be said of it on standard error, and its files. `job->found`: it fits. Errors:
 * CKPT_INTERRUPTED (before any was found), of planning and writing. */
CKPT_MUST_USE ckpt_code ckpt_job_plan(ckpt_job *job, ckpt_plan **plan, ckpt_err *err);

/* Write a predicted trace, with what it was predicted for. */
CKPT_MUST_USE ckpt_code ckpt_job_trace(const ckpt_job *job, const ckpt_trace *predicted, const char *path,
                                       ckpt_err *err);

/* What the plan was made for and from. */
void ckpt_job_stamp(const ckpt_job *job, ckpt_plan *plan);

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
