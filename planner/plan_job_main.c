/* From a request of ckpt-plan to a graph, options and a budget to plan with; and what is written into a plan about
 * them. */
#include <stdio.h>
#include <string.h>

#include "planner/plan_job_impl.h"
#include "planner/replay.h"
#include "planner/solver.h"

/* What the user has flagged decides, unless a strategy was asked for by name or --ignore-flags was given: with
 * something flagged true, strategy flags plans; else what is flagged false never runs again. */
ckpt_code ckpt_job_obey_flags(ckpt_job *j, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const bool automatic = r->strategy == NULL || strcmp(r->strategy, "auto") == 0;
    s->planned = s->graph;
    if (r->ignore_flags || !automatic || r->question == CKPT_ASK_COMPARISON) {
        return CKPT_OK;
    }
    if (ckpt_flags_any(s->graph, CKPT_YES)) {
        j->strategy = "flags";
    } else if (ckpt_flags_any(s->graph, CKPT_NO)) {
        return ckpt_flags_pin(s->graph, out, &s->planned, err);
    }
    return CKPT_OK;
}

/* One note on flags in the model: that they were obeyed, or that they were not. */
static void note_flags(const ckpt_job *j)
{
    const ckpt_graph *const graph = j->source.graph;
    const ckpt_request *const r = j->request;
    const ckpt_strategy *const asked = r->strategy != NULL ? ckpt_strategy_find(r->strategy) : NULL;
    const bool yes = ckpt_flags_any(graph, CKPT_YES);
    if (r->ignore_flags || r->question == CKPT_ASK_COMPARISON || (!yes && !ckpt_flags_any(graph, CKPT_NO)) ||
        (asked != NULL && asked->flags)) {
        return;
    }
    if (asked != NULL && strcmp(asked->name, "auto") != 0) {
        fprintf(stderr, "%s: note: the model has checkpoint flags, which strategy %s does not read\n", j->cli->program,
                asked->name);
    } else {
        fprintf(stderr, "%s: note: the model's checkpoint flags decide what is %s; --ignore-flags plans freely\n",
                j->cli->program, yes ? "recomputed" : "kept");
    }
}

/* Options that would do nothing on this graph. */
static ckpt_code check_use(const ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const ckpt_graph *const graph = j->source.graph;
    const ckpt_strategy *const asked = r->strategy != NULL ? ckpt_strategy_find(r->strategy) : NULL;
    if (r->strategy != NULL && asked == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", r->strategy);
    }
    if (r->host_memory != NULL && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--host-memory is for offload, and no link is known: add --link RATE");
    }
    if (asked != NULL && asked->link && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "strategy %s offloads, and no link is known: add --link RATE",
                         asked->name);
    }
    if (asked != NULL && asked->flags && !ckpt_flags_any(graph, CKPT_YES) && !ckpt_flags_any(graph, CKPT_NO)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found no \"checkpoint\" flags for strategy %s", r->input,
                         asked->name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_job_options(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_plan_options *const options = &j->options;
    options->effort = r->effort;
    options->solver = &ckpt_solver_glpk;
    options->deadline_ns = r->time_limit > 0 ? ckpt_clock_ns() + (ckpt_ns)(r->time_limit * 1e9) : 0;
    if (r->host_memory != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(r->host_memory, 0, &options->host_bytes, err), "reading --host-memory");
        if (options->host_bytes <= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "found host memory '%s', wanted more than 0 bytes", r->host_memory);
        }
    }
    return CKPT_OK;
}

/* `whole`: what a percentage is of; 0: none is allowed. */
static ckpt_code set_budget(ckpt_job *j, ckpt_bytes whole, ckpt_err *err)
{
    if (j->request->budget == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_bytes_parse(j->request->budget, whole, &j->options.budget_bytes, err));
    if (j->options.budget_bytes <= 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found budget '%s', wanted more than 0 bytes", j->request->budget);
    }
    if (j->request->reserve != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(j->request->reserve, 0, &j->source.reserve, err), "reading --reserve");
        j->options.budget_bytes -= j->source.reserve;
    }
    return j->options.budget_bytes > 0
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found budget '%s' and reserve '%s', which leaves nothing to plan with",
                           j->request->budget, j->request->reserve);
}

ckpt_code ckpt_job_begin(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_source_read(r, j->out, &j->source, err));
    CKPT_TRY(check_use(j, err));
    CKPT_TRY(ckpt_job_obey_flags(j, j->out, &j->source, err));
    note_flags(j);
    CKPT_TRY(ckpt_keep_all_measure(j->source.graph, j->out, &whole, &time, err));
    return set_budget(j, r->question == CKPT_ASK_MAXIMUM ? 0 : whole, err);
}

ckpt_code ckpt_job_stamp(const ckpt_job *j, ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_source *const s = &j->source;
    plan->costs = s->costs;
    plan->gpu = s->gpu;
    plan->threads = s->threads;
    plan->reserve_bytes = s->reserve;
    return s->planned != s->graph ? ckpt_flags_unpin(plan, s->graph, err) : CKPT_OK;
}

ckpt_code ckpt_job_record(const ckpt_job *j, const ckpt_request *request, bool early, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_request r = *request;
    r.threads = j->source.model != NULL && !j->source.gpu ? j->source.threads : 0;
    const double seconds = (double)(ckpt_clock_ns() - j->begin_ns) / 1e9;
    r.time_limit = !early ? 0 : r.time_limit > 0 ? r.time_limit : seconds;
    CKPT_TRY(ckpt_plan_outline(j->source.graph, j->out, &plan->outline, err));
    return ckpt_request_words(&r, j->out, &plan->option, &plan->option_count, err);
}
