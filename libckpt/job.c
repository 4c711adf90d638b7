#include "libckpt/job.h"

#include <string.h>

#include "core/base/clock.h"
#include "planner/analysis/analysis.h"
#include "planner/replay/replay.h"

static bool is_cancelled(void *context)
{
    const ckpt_options *const asked = ((const ckpt_planning *)context)->asked;
    return asked->cancel(asked->cancel_context) != 0;
}

static void tell_progress(void *context, const ckpt_plan_progress *progress)
{
    const ckpt_planning *const p = context;
    const ckpt_progress told = {progress->part, progress->best_ns, progress->bound_ns, p->done, p->total};
    p->asked->progress(p->asked->progress_context, &told);
}

ckpt_code ckpt_planning_init(ckpt_planning *p, const ckpt_options *asked, ckpt_arena *out, ckpt_err *err)
{
    *p = (ckpt_planning){.asked = asked, .out = out, .notes = "", .begin_ns = ckpt_clock_ns()};
    p->strategy = asked->strategy != NULL ? asked->strategy : "auto";
    ckpt_plan_options_init(&p->options);
    p->options.effort = asked->effort;
    p->options.solver = asked->solver;
    p->options.allow_inexact = asked->allow_inexact;
    p->options.cancelled = asked->cancel != NULL ? is_cancelled : NULL;
    p->options.progress = asked->progress != NULL ? tell_progress : NULL;
    p->options.context = p;
    p->options.deadline_ns = asked->time_limit > 0 ? p->begin_ns + (ckpt_ns)(asked->time_limit * 1e9) : 0;
    if (asked->host_memory != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(asked->host_memory, 0, &p->options.host_bytes, err),
                       "reading --host-memory");
        if (p->options.host_bytes <= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "found host memory '%s', wanted more than 0 bytes",
                             asked->host_memory);
        }
    }
    return CKPT_OK;
}

/* The first op that is to be copied, and no link is known. */
static ckpt_code check_link(const ckpt_graph *graph, ckpt_err *err)
{
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
static ckpt_code check_use(const ckpt_planning *p, ckpt_err *err)
{
    const char *const name = p->asked->strategy;
    const ckpt_graph *const graph = p->source.graph;
    const ckpt_strategy *const strategy = name != NULL ? ckpt_strategy_find(name) : NULL;
    if (name != NULL && strategy == NULL && !ckpt_grouping_known(name)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", name);
    }
    if (p->asked->host_memory != NULL && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--host-memory is for offload, and no link is known: add --link RATE");
    }
    if (strategy != NULL && strategy->link && !graph->has_link) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "strategy %s offloads, and no link is known: add --link RATE",
                         strategy->name);
    }
    if (strategy != NULL && strategy->flags && !p->source.chosen) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found no \"checkpoint\" flags for strategy %s", p->source.name,
                         strategy->name);
    }
    return check_link(graph, err);
}

/* What is set decides, unless a strategy was asked for by name. */
static void obey(ckpt_planning *p, bool compare)
{
    const char *const name = p->asked->strategy;
    const bool automatic = name == NULL || strcmp(name, "auto") == 0;
    const bool grouped = name != NULL && ckpt_grouping_known(name);
    if (grouped || (automatic && !compare && ckpt_chosen_any(p->source.graph))) {
        p->strategy = "flags";
    }
}

/* What was left out of what is set; one note on flags in the model: that they were obeyed, or that they were not. */
static ckpt_code note(ckpt_planning *p, bool compare, ckpt_err *err)
{
    const char *const name = p->asked->strategy;
    const ckpt_strategy *const used = ckpt_strategy_find(p->strategy);
    const bool named = name != NULL && strcmp(name, "auto") != 0;
    p->notes = p->source.notes;
    if (compare || (name != NULL && strcmp(name, "flags") == 0)) {
        return CKPT_OK;
    }
    if (named && !used->flags && p->source.chosen) {
        p->notes = ckpt_arena_format(p->out, "%snote: checkpoint flags are set, which strategy %s does not read\n",
                                     p->notes, used->name);
    } else if (p->source.flagged) {
        p->notes = ckpt_arena_format(
            p->out, "%snote: the model's checkpoint flags decide what they say; --ignore-flags plans freely\n",
            p->notes);
    }
    return p->notes != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "notes on what is set");
}

/* `whole`: what a percentage is of; 0: none is allowed. */
static ckpt_code set_budget(ckpt_planning *p, ckpt_bytes whole, ckpt_err *err)
{
    const ckpt_options *const asked = p->asked;
    if (asked->budget == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_bytes_parse(asked->budget, whole, &p->options.budget_bytes, err));
    if (p->options.budget_bytes <= 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found budget '%s', wanted more than 0 bytes", asked->budget);
    }
    if (asked->reserve != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(asked->reserve, 0, &p->reserve, err), "reading --reserve");
        p->options.budget_bytes -= p->reserve;
    }
    return p->options.budget_bytes > 0
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found budget '%s' and reserve '%s', which leaves nothing to plan with",
                           asked->budget, asked->reserve);
}

ckpt_code ckpt_planning_begin(ckpt_planning *p, bool compare, bool absolute, ckpt_err *err)
{
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_source_choose(&p->source, p->asked, p->out, err));
    CKPT_TRY(check_use(p, err));
    obey(p, compare);
    /* flagged units are of neighbours: they keep their order */
    p->options.reorder = (p->asked->reorder || p->source.graph->order_free) && strcmp(p->strategy, "flags") != 0;
    CKPT_TRY(note(p, compare, err));
    CKPT_TRY(ckpt_keep_all_measure(p->source.graph, p->out, &whole, &time, err));
    return set_budget(p, absolute ? 0 : whole, err);
}

static ckpt_code read_plan(const ckpt_document *document, ckpt_arena *out, ckpt_plan **plan, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_document_open(document, "ckpt-plan", &json, &root, err));
    const ckpt_code code = ckpt_plan_item(&root, out, plan, err);
    ckpt_json_close(json);
    return code;
}

ckpt_code ckpt_planning_start(ckpt_planning *p, const ckpt_document *document, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    ckpt_candidate *const start = CKPT_NEW(p->out, ckpt_candidate, 1);
    if (start == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "start");
    }
    CKPT_TRY(read_plan(document, p->out, &plan, err));
    CKPT_TRY(ckpt_plan_bind(plan, p->source.graph, err));
    if (plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found a plan that does not fit its own budget, wanted a start",
                         document->name);
    }
    CKPT_TRY_WHILE(err, ckpt_plan_check_run(plan, p->source.graph, err), "checking %s", document->name);
    CKPT_TRY(ckpt_plan_candidate(plan, p->source.graph, p->out, start, err));
    p->options.incumbent = start;
    p->options.incumbent_count = 1;
    return CKPT_OK;
}

void ckpt_planning_stamp(const ckpt_planning *p, ckpt_plan *plan)
{
    const char *const asked = p->asked->strategy;
    const ckpt_graph_source *const s = &p->source;
    plan->costs = s->costs;
    plan->gpu = s->gpu;
    plan->threads = s->threads;
    plan->scheme = s->scheme;
    plan->algorithms = s->algorithms;
    plan->algorithms_count = s->algorithms_count;
    plan->reserve_bytes = p->reserve;
    plan->solver = asked != NULL && ckpt_grouping_known(asked) ? asked : plan->solver;
}

ckpt_code ckpt_planning_record(const ckpt_planning *p, const ckpt_options *asked, const char *input,
                               const char *maximize, bool early, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_options o = *asked;
    const double seconds = (double)(ckpt_clock_ns() - p->begin_ns) / 1e9;
    o.threads = p->source.model != NULL && !p->source.gpu ? p->source.threads : 0;
    o.time_limit = !early ? 0 : o.time_limit > 0 ? o.time_limit : seconds;
    CKPT_TRY(ckpt_plan_outline(p->source.graph, p->out, &plan->outline, err));
    return ckpt_options_words(&o, input, maximize, p->out, &plan->option, &plan->option_count, err);
}
