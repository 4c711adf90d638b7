/* From a request of ckpt-plan to a graph, options and a budget to plan with; and what is written into a plan about
 * them. */
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "planner/ilp/solver.h"
#include "planner/replay/replay.h"
#include "programs/plan/plan_job_impl.h"

/* What is set decides, unless a strategy was asked for by name. */
static void obey(ckpt_job *j)
{
    const ckpt_request *const r = j->request;
    const bool automatic = r->strategy == NULL || strcmp(r->strategy, "auto") == 0;
    const bool grouped = r->strategy != NULL && ckpt_grouping_known(r->strategy);
    if (grouped || (automatic && r->question != CKPT_ASK_COMPARISON && ckpt_chosen_any(j->source.graph))) {
        j->strategy = "flags";
    }
}

/* What was left out of what is set; one note on flags in the model: that they were obeyed, or that they were not. */
static void note_flags(const ckpt_job *j)
{
    const ckpt_request *const r = j->request;
    const ckpt_strategy *const used = ckpt_strategy_find(j->strategy);
    const char *line = j->source.notes;
    while (line[0] != '\0') {
        const int length = (int)strcspn(line, "\n");
        fprintf(stderr, "%s: %.*s\n", j->cli->program, length, line);
        line += length + 1;
    }
    if (r->question == CKPT_ASK_COMPARISON || (r->strategy != NULL && strcmp(r->strategy, "flags") == 0)) {
        return;
    }
    const bool named = r->strategy != NULL && strcmp(r->strategy, "auto") != 0;
    if (named && !used->flags && j->source.chosen) {
        fprintf(stderr, "%s: note: checkpoint flags are set, which strategy %s does not read\n", j->cli->program,
                used->name);
    } else if (j->source.flagged) {
        fprintf(stderr, "%s: note: the model's checkpoint flags decide what they say; --ignore-flags plans freely\n",
                j->cli->program);
    }
}

/* The first op that is to be copied, and no link is known. */
static ckpt_code check_link(const ckpt_job *j, ckpt_err *err)
{
    const ckpt_graph *const graph = j->source.graph;
    for (int o = 0; o < graph->op_count && !graph->has_link; o++) {
        if (graph->op[o].offload == CKPT_YES) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.80s is to be offloaded, and no link is known: add --link RATE",
                             graph->op[o].layer != NULL && graph->op[o].layer[0] != '\0' ? graph->op[o].layer
                                                                                         : graph->op[o].name);
        }
    }
    return CKPT_OK;
}

/* Options that would do nothing on this graph. */
static ckpt_code check_use(const ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const ckpt_graph *const graph = j->source.graph;
    const ckpt_strategy *const asked = r->strategy != NULL ? ckpt_strategy_find(r->strategy) : NULL;
    if (r->strategy != NULL && asked == NULL && !ckpt_grouping_known(r->strategy)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", r->strategy);
    }
    if (r->host_memory != NULL && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--host-memory is for offload, and no link is known: add --link RATE");
    }
    if (asked != NULL && asked->link && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "strategy %s offloads, and no link is known: add --link RATE",
                         asked->name);
    }
    if (asked != NULL && asked->flags && !j->source.chosen) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found no \"checkpoint\" flags for strategy %s", r->input,
                         asked->name);
    }
    return check_link(j, err);
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
    obey(j);
    note_flags(j);
    CKPT_TRY(ckpt_keep_all_measure(j->source.graph, j->out, &whole, &time, err));
    return set_budget(j, r->question == CKPT_ASK_MAXIMUM ? 0 : whole, err);
}

ckpt_code ckpt_job_begin_stage(ckpt_job *j, const ckpt_source *other, ckpt_err *err)
{
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_source_stage(j->request, other, j->request->scheme.stage, j->out, &j->source, err));
    CKPT_TRY(check_use(j, err));
    obey(j);
    CKPT_TRY(ckpt_keep_all_measure(j->source.graph, j->out, &whole, &time, err));
    return set_budget(j, whole, err);
}

void ckpt_job_stamp(const ckpt_job *j, ckpt_plan *plan)
{
    const char *const asked = j->request->strategy;
    const ckpt_source *const s = &j->source;
    plan->costs = s->costs;
    plan->gpu = s->gpu;
    plan->threads = s->threads;
    plan->scheme = s->scheme;
    plan->algorithms = s->algorithms;
    plan->algorithms_count = s->algorithms_count;
    plan->reserve_bytes = s->reserve;
    plan->solver = asked != NULL && ckpt_grouping_known(asked) ? asked : plan->solver;
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
