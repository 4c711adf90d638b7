/* From a request of ckpt-plan to a graph, options and a budget to plan with. */
#include <stdio.h>
#include <string.h>

#include "ops/import/onnx/onnx.h"
#include "programs/plan/plan_job_impl.h"

/* What was set and left out, obeyed or not read. */
static void print_notes(const ckpt_job *j)
{
    const char *line = j->planning.notes;
    while (line[0] != '\0') {
        const int length = (int)strcspn(line, "\n");
        ckpt_cli_note(j->cli->program, "%.*s", length, line);
        line += length + 1;
    }
}

/* Integer programs are a strategy of their own, and a part of auto. */
static bool wants_solver(const ckpt_request *r)
{
    const char *const strategy = r->asked.strategy != NULL ? r->asked.strategy : "auto";
    return r->question == CKPT_ASK_COMPARISON || strcmp(strategy, "ilp") == 0 ||
           (r->question != CKPT_ASK_PACKING && r->asked.effort >= CKPT_EFFORT_SOLVER && strcmp(strategy, "auto") == 0);
}

static void open_solver(ckpt_job *j)
{
    ckpt_err err = {0};
    if (j->solver_tried || !wants_solver(j->request)) {
        return;
    }
    j->solver_tried = true;
    if (ckpt_solver_open("glpk", &j->solver, &j->solver_library, &err) != CKPT_OK) {
        ckpt_cli_note(j->cli->program, "note: planning without integer programs: %s", err.msg);
    }
}

ckpt_code ckpt_job_options(ckpt_job *j, ckpt_err *err)
{
    CKPT_TRY(ckpt_planning_init(&j->planning, &j->request->asked, j->out, err));
    open_solver(j);
    j->planning.options.solver = j->solver;
    j->planning.options.cancelled = j->cancelled;
    return CKPT_OK;
}

ckpt_code ckpt_job_begin(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_document document = {.name = r->input};
    CKPT_TRY(ckpt_onnx_text(r->input, r->asked.set, r->asked.set_count, j->out, &document.text, &document.length, err));
    CKPT_TRY(ckpt_source_read(&document, &r->asked, j->out, &j->planning.source, err));
    if (j->planning.source.model == NULL && r->variable != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, CKPT_GRAPH_HAS_ITS_OWN, r->input);
    }
    const ckpt_code code =
        ckpt_planning_begin(&j->planning, r->question == CKPT_ASK_COMPARISON, r->question == CKPT_ASK_MAXIMUM, err);
    print_notes(j);
    return code;
}

ckpt_code ckpt_job_begin_stage(ckpt_job *j, const ckpt_graph_source *other, ckpt_err *err)
{
    CKPT_TRY(ckpt_source_stage(other, j->request->asked.scheme.stage, j->out, &j->planning.source, err));
    return ckpt_planning_begin(&j->planning, false, false, err);
}

ckpt_code ckpt_job_record(const ckpt_job *j, const ckpt_request *request, bool early, ckpt_plan *plan, ckpt_err *err)
{
    const char *const input = ckpt_on_stdout(request->input) ? NULL : request->input; /* what a pipe gave is gone */
    const char *const maximize = request->question == CKPT_ASK_MAXIMUM ? request->variable : NULL;
    return ckpt_planning_record(&j->planning, &request->asked, input, maximize, early, plan, err);
}
