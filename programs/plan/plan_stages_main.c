/* ckpt-plan --pipeline-stages N: the stages are planned one after the other, each with its own graph,
 * budget and files. */
#include <stdio.h>
#include <string.h>

#include "ops/lowering/staged.h"
#include "planner/replay/pipeline.h"
#include "programs/plan/plan_job_impl.h"

typedef struct stage {
    ckpt_request request;
    ckpt_job job;
    ckpt_plan *plan;
} stage;

/* The budget of one stage: its part of "6GB,5GB,50%", or all of "6GB". */
static ckpt_code find_budget(const ckpt_request *r, int number, ckpt_arena *out, const char **budget, ckpt_err *err)
{
    const char *at = r->asked.budget;
    int count = 1;
    for (const char *c = at; c != NULL && *c != '\0'; c++) {
        count += *c == ',';
    }
    *budget = at;
    if (count == 1) {
        return CKPT_OK;
    }
    if (count != r->asked.scheme.stages) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "found budget '%.80s' of %d stages, wanted one for each of %d, or one for all",
                         r->asked.budget, count, r->asked.scheme.stages);
    }
    for (int i = 0; i < number; i++) {
        at = strchr(at, ',') + 1;
    }
    *budget = ckpt_arena_format(out, "%.*s", (int)strcspn(at, ","), at);
    return *budget != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "budget of a stage");
}

static ckpt_code plan_stage(ckpt_job *j, stage *all, int number, ckpt_err *err)
{
    stage *const s = &all[number];
    s->request = *j->request;
    s->request.asked.scheme.stage = number;
    s->request.asked.stage_given = true;
    CKPT_TRY(find_budget(j->request, number, j->out, &s->request.asked.budget, err));
    CKPT_TRY(ckpt_cli_stage_file(j->request->output, number, j->out, &s->request.output, err));
    s->request.trace = NULL; /* on the clock of all stages, if they are planned */
    s->job = *j;
    s->job.request = &s->request;
    CKPT_TRY(ckpt_job_options(&s->job, err)); /* every stage has the whole time limit */
    CKPT_TRY(number == 0 ? ckpt_job_begin(&s->job, err)
                         : ckpt_job_begin_stage(&s->job, &all[0].job.planning.source, err));
    return ckpt_job_plan(&s->job, &s->plan, err);
}

static void add_assignments(const ckpt_part *part, int count, ckpt_text *text)
{
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    int width = 1;
    ckpt_text_add(text, "Partition assignments:\n");
    for (int s = 0; s < count; s++) {
        const int length = (int)(strlen(part[s].first) + strlen(part[s].last)) + 4;
        width = length > width ? length : width;
    }
    for (int s = 0; s < count; s++) {
        const int length = (int)strlen(part[s].first);
        ckpt_text_add(text, "  %2d  %s .. %-*s %4d layers  %10s of parameters  %10s\n", s, part[s].first,
                      width - length - 4, part[s].last, part[s].layers, ckpt_bytes_show(part[s].param_bytes, a),
                      ckpt_ns_show(part[s].time_ns, b));
    }
}

static void add_row(const stage *s, int number, ckpt_text *text)
{
    char shown[5][CKPT_UNITS_TEXT];
    const ckpt_plan *const plan = s->plan;
    ckpt_text_add(text, "%5d  %10s", number,
                  s->request.asked.budget != NULL ? ckpt_bytes_show(plan->budget_bytes, shown[0]) : "no limit");
    if (plan->verdict != CKPT_FITS) {
        ckpt_text_add(text, "  does not fit: minimum budget %s (%lld bytes)\n",
                      ckpt_bytes_show(plan->min_budget_bytes, shown[1]), (long long)plan->min_budget_bytes);
        return;
    }
    ckpt_text_add(text, "  %10s  %10s  %10s  %+8.2f %%\n", ckpt_bytes_show(plan->peak_bytes, shown[2]),
                  ckpt_bytes_show(plan->keep_all_peak_bytes, shown[3]), ckpt_ns_show(plan->time_ns, shown[4]),
                  100 * ckpt_excess(plan->time_ns, plan->keep_all_time_ns));
}

static void add_step(const ckpt_pipeline *pipeline, int micro_batches, ckpt_text *text)
{
    char shown[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%-14s %s, 1F1B with %d micro-batch%s: %.1f %% of the stages' time is bubbles (",
                  "predicted step", ckpt_ns_show(pipeline->time_ns, shown), micro_batches,
                  micro_batches > 1 ? "es" : "", 100 * pipeline->bubble);
    for (int s = 0; s < pipeline->stages; s++) {
        ckpt_text_add(text, "%s%.1f %%", s > 0 ? ", " : "", 100 * pipeline->stage[s].bubble);
    }
    ckpt_text_add(text, ")\n");
}

/* `pipeline` NULL: some stage does not fit. */
static void write_text(const ckpt_job *j, const stage *all, const ckpt_pipeline *pipeline, ckpt_text *text)
{
    const int count = j->request->asked.scheme.stages;
    const ckpt_graph_source *const source = &all[0].job.planning.source;
    add_assignments(source->staged->part, count, text);
    ckpt_text_add(text, "\n%5s  %10s  %10s  %10s  %10s  %10s\n", "stage", "budget", "peak", "keep-all", "time",
                  "extra");
    for (int s = 0; s < count; s++) {
        add_row(&all[s], s, text);
    }
    if (pipeline != NULL) {
        add_step(pipeline, source->scheme.micro_batches, text);
    }
    ckpt_text_add(text, "%-14s %s%s\n", "costs", source->costs,
                  source->roofline ? " (an estimate: no layer was measured; see ckpt-profile)" : "");
}

static void write_json(const ckpt_job *j, const stage *all, const ckpt_pipeline *pipeline, ckpt_text *text)
{
    const ckpt_graph_source *const source = &all[0].job.planning.source;
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_json_put_text(&w, "graph", all[0].plan->graph_name);
    ckpt_json_put_text(&w, "verdict", j->found ? "fits" : "infeasible");
    if (pipeline != NULL) {
        ckpt_json_put_int(&w, "step_ns", pipeline->time_ns);
        ckpt_json_put_fixed(&w, "bubble", pipeline->bubble, 6);
    }
    ckpt_json_begin_array(&w, "stages", CKPT_JSON_ROWS);
    for (int s = 0; s < j->request->asked.scheme.stages; s++) {
        const ckpt_part *const part = &source->staged->part[s];
        ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_int(&w, "stage", s);
        ckpt_json_put_text(&w, "first_layer", part->first);
        ckpt_json_put_text(&w, "last_layer", part->last);
        CKPT_JSON_INTS(&w, {"layers", part->layers}, {"parameter_bytes", part->param_bytes},
                       {"micro_batch_ns", part->time_ns});
        if (pipeline != NULL) {
            CKPT_JSON_INTS(&w, {"busy_ns", pipeline->stage[s].busy_ns}, {"idle_ns", pipeline->stage[s].idle_ns});
        }
        ckpt_plan_members(all[s].plan, source->roofline, &w);
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
    ckpt_json_end(&w);
}

/* All stages at once, and their traces. */
static ckpt_code simulate(const ckpt_job *j, const stage *all, ckpt_pipeline *pipeline, ckpt_err *err)
{
    const int count = j->request->asked.scheme.stages;
    const ckpt_plan **const plan = CKPT_NEW(j->out, const ckpt_plan *, count);
    const ckpt_graph **const graph = CKPT_NEW(j->out, const ckpt_graph *, count);
    if (plan == NULL || graph == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d stages", count);
    }
    for (int s = 0; s < count; s++) {
        plan[s] = all[s].plan;
        graph[s] = all[s].job.planning.source.graph;
    }
    CKPT_TRY_WHILE(err, ckpt_pipeline_simulate(plan, graph, count, j->out, pipeline, err), "simulating %d stages",
                   count);
    for (int s = 0; s < count && j->request->trace != NULL; s++) {
        const char *name = NULL;
        CKPT_TRY(ckpt_cli_stage_file(j->request->trace, s, j->out, &name, err));
        CKPT_TRY(ckpt_job_trace(&all[s].job, pipeline->stage[s].trace, name, err));
    }
    return CKPT_OK;
}

ckpt_code ckpt_answer_stages(ckpt_job *j, ckpt_err *err)
{
    const int count = j->request->asked.scheme.stages;
    ckpt_pipeline pipeline;
    stage *const all = CKPT_NEW(j->out, stage, count);
    if (all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "plans of %d stages", count);
    }
    j->found = true;
    for (int s = 0; s < count; s++) {
        CKPT_TRY_WHILE(err, plan_stage(j, all, s, err), "planning stage %d", s);
        j->found = j->found && all[s].job.found;
    }
    CKPT_TRY(j->found ? simulate(j, all, &pipeline, err) : CKPT_OK);
    (j->request->json ? write_json : write_text)(j, all, j->found ? &pipeline : NULL, &j->text);
    return CKPT_OK;
}
