/* ckpt-plan: makes a plan from a model or a graph and a budget. Or a curve over budgets, the largest model that fits, the cost of each layer, a table of strategies, a check of an older plan. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/formats/machine.h"
#include "ops/import/onnx/onnx.h"
#include "planner/placement/pack.h"
#include "planner/replay/replay.h"
#include "programs/cli/cli.h"
#include "programs/plan/plan_job_impl.h"

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool is_interrupted(void *context)
{
    (void)context;
    return interrupted != 0;
}

static const int stopping[] = {SIGINT, SIGTERM};
static struct sigaction usual[2];

/* The first Ctrl-C stops planning, the second ends the program. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(stopping[i], &action, &usual[i]);
    }
}

/* While large files are read and written there is no plan to wait for, and a file is there whole or not at all. */
static void leave_signals(void)
{
    for (int i = 0; i < 2; i++) {
        sigaction(stopping[i], &usual[i], NULL);
    }
}

static int list_strategies(void)
{
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        const ckpt_strategy *const strategy = ckpt_strategy_table[i];
        printf("%-14s %-9s %s\n", strategy->name, ckpt_strategy_kind(strategy), strategy->help);
    }
    for (int i = 0; ckpt_grouping_help[i] != NULL; i += 2) {
        printf("%-14s %-9s %s\n", ckpt_grouping_help[i], "flags", ckpt_grouping_help[i + 1]);
    }
    return 0;
}

static ckpt_code write_plan(const ckpt_request *r, const ckpt_plan *plan, ckpt_err *err)
{
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(r->output, &text, err));
    ckpt_plan_write(plan, &text);
    return ckpt_file_end_text(&text, CKPT_OK, err);
}

ckpt_code ckpt_job_trace(const ckpt_job *j, const ckpt_trace *predicted, const char *path, ckpt_err *err)
{
    const ckpt_graph_source *const s = &j->planning.source;
    ckpt_trace trace = *predicted;
    CKPT_TRY(ckpt_machine_read(s->threads, "", j->cli->argc, j->cli->argv, j->out, &trace.machine, err));
    trace.machine.gpu = s->gpu;
    trace.capacity_bytes = s->capacity;
    trace.machine.device = s->costs; /* the clock that was used, not the machine that planned */
    ckpt_text text;
    CKPT_TRY(ckpt_file_begin_text(path, &text, err));
    ckpt_trace_write(&trace, &text);
    return ckpt_file_end_text(&text, CKPT_OK, err);
}

static ckpt_code write_trace(const ckpt_job *j, const ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_trace *predicted = NULL;
    CKPT_TRY(ckpt_plan_simulate(plan, j->planning.source.graph, j->out, &predicted, err));
    return ckpt_job_trace(j, predicted, j->request->trace, err);
}

/* Notes on standard error that Ctrl-C or --time-limit ended the search; the result stays valid. */
static void note_end(const ckpt_job *j, bool early)
{
    if (interrupted) {
        ckpt_cli_note(j->cli->program, "interrupted: the best so far");
    } else if (early) {
        ckpt_cli_note(j->cli->program, "time limit: the best so far");
    }
}

/* Writes the plan's file and trace. `made_by`: the request, for --maximize the one with the value it found; `early`: the search was ended early. */
static ckpt_code write_files(ckpt_job *j, const ckpt_request *made_by, bool early, ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_planning_stamp(&j->planning, plan);
    CKPT_TRY(ckpt_job_record(j, made_by, early, plan, err));
    leave_signals();
    if (r->output != NULL) {
        CKPT_TRY(write_plan(r, plan, err));
    }
    if (r->trace != NULL && plan->verdict == CKPT_FITS) {
        CKPT_TRY(write_trace(j, plan, err));
    }
    catch_signals(); /* another stage may be planned */
    return CKPT_OK;
}

static ckpt_code nothing_found(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted before any plan was found");
}

/* Warns if the set checkpoints save nothing, or cannot be obeyed. */
static void note_choice(const ckpt_job *j, const ckpt_plan *plan)
{
    char shown[CKPT_UNITS_TEXT];
    bool recompute = false;
    for (int o = 0; o < j->planning.source.graph->op_count && !recompute; o++) {
        const ckpt_graph_op *const op = &j->planning.source.graph->op[o];
        recompute =
            op->checkpoint == CKPT_YES || op->policy == CKPT_MUST_RECOMPUTE || op->policy == CKPT_PREFER_RECOMPUTE;
    }
    char stage[32] = "";
    if (j->planning.source.scheme.stages > 1) {
        snprintf(stage, sizeof stage, "stage %d: ", j->planning.source.scheme.stage);
    }
    if (plan->verdict == CKPT_INFEASIBLE && strcmp(j->planning.strategy, "flags") == 0 && !j->planning.source.flagged) {
        ckpt_cli_note(j->cli->program, "note: %sno plan that does what is set is within the budget", stage);
    }
    if (recompute && strcmp(j->planning.strategy, "flags") == 0 && plan->verdict == CKPT_FITS &&
        plan->peak_bytes >= plan->keep_all_peak_bytes) {
        ckpt_cli_note(j->cli->program, "warning: %srecomputing what is set saves nothing: the peak stays at %s", stage,
                      ckpt_bytes_show(plan->peak_bytes, shown));
    }
}

ckpt_code ckpt_job_plan(ckpt_job *j, ckpt_plan **plan, ckpt_err *err)
{
    if (j->request->asked.start.name != NULL) {
        CKPT_TRY(ckpt_planning_start(&j->planning, &j->request->asked.start, err));
    }
    CKPT_TRY(ckpt_plan_make(j->planning.source.graph, j->planning.strategy, &j->planning.options, j->out, plan, err));
    j->found = (*plan)->verdict == CKPT_FITS;
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    const bool early = ckpt_plan_stopped(&j->planning.options);
    note_end(j, early);
    note_choice(j, *plan);
    return write_files(j, j->request, early, *plan, err);
}

static ckpt_code answer_plan(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_plan *plan = NULL;
    ckpt_explanation explanation = {0};
    CKPT_TRY(ckpt_job_plan(j, &plan, err));
    const bool explain = r->question == CKPT_ASK_EXPLANATION && j->found;
    if (explain) {
        CKPT_TRY(ckpt_explain(plan, j->planning.source.graph, j->planning.strategy, &j->planning.options, j->out,
                              &explanation, err));
    }
    if (!r->json) {
        ckpt_plan_text(plan, r->asked.budget != NULL, j->planning.source.roofline, &j->text);
        if (explain) {
            ckpt_explanation_text(&explanation, &j->text);
        }
        return CKPT_OK;
    }
    ckpt_json_writer w;
    ckpt_json_begin(&w, &j->text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_plan_members(plan, j->planning.source.roofline, &w);
    if (explain) {
        ckpt_explanation_members(&explanation, &w);
    }
    ckpt_json_end(&w);
    return CKPT_OK;
}

static ckpt_ns report_begin;

static void report_sweep(void *context, int done, int points)
{
    (void)context;
    ckpt_cli_progress("budgets", done, points, ckpt_clock_ns() - report_begin);
}

static void report_baselines(void *context, int done, int count)
{
    (void)context;
    ckpt_cli_progress("baselines", done, count, ckpt_clock_ns() - report_begin);
}

/* Writes the curve to the file, in the format of its name, or to standard output. */
static ckpt_code write_curve(ckpt_job *j, const ckpt_curve *curve, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const bool file = r->output != NULL && !ckpt_on_stdout(r->output);
    if (file ? ckpt_ends_with(r->output, ".json") : r->json) {
        ckpt_curve_write(curve, &j->text);
    } else {
        ckpt_curve_csv(curve, &j->text);
    }
    if (!j->found) {
        char least[CKPT_UNITS_TEXT];
        ckpt_cli_note(j->cli->program, "no plan fits; the minimum budget at which one was found is %s (%lld bytes)",
                      ckpt_bytes_show(curve->min_budget_bytes, least), (long long)curve->min_budget_bytes);
    }
    return file ? ckpt_file_write_text(r->output, &j->text, err) : CKPT_OK;
}

static ckpt_code answer_sweep(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_sweep sweep = {0};
    ckpt_curve curve;
    report_begin = ckpt_clock_ns();
    CKPT_TRY(ckpt_sweep_make(j->planning.source.graph, j->planning.strategy, r->points, &j->planning.options,
                             report_sweep, j->out, &sweep, err));
    j->found = sweep.plan[0]->verdict == CKPT_FITS;
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    for (int i = 0; i < sweep.count; i++) {
        ckpt_planning_stamp(&j->planning, sweep.plan[i]);
    }
    CKPT_TRY(ckpt_sweep_curve(&sweep, j->out, &curve, err));
    if (r->baselines) {
        report_begin = ckpt_clock_ns();
        CKPT_TRY(ckpt_curve_baselines(&curve, j->planning.source.graph, &j->planning.options, report_baselines, j->out,
                                      err));
    }
    if (!curve.complete) {
        note_end(j, true);
    }
    return write_curve(j, &curve, err);
}

static ckpt_code graph_at(void *context, int64_t value, ckpt_arena *out, const ckpt_graph **graph, bool *exists,
                          ckpt_err *err)
{
    ckpt_job *const j = context;
    ckpt_options asked = j->request->asked;
    ckpt_graph_source s;
    asked.set[asked.set_count] = ckpt_arena_format(out, "%s=%lld", j->request->variable, (long long)value);
    if (asked.set[asked.set_count++] == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "value of a variable");
    }
    ckpt_document document = {.name = j->request->input};
    ckpt_code code =
        ckpt_onnx_text(document.name, asked.set, asked.set_count, out, &document.text, &document.length, err);
    code = code == CKPT_OK ? ckpt_source_read(&document, &asked, out, &s, err) : code;
    code = code == CKPT_OK ? ckpt_source_choose(&s, &asked, out, err) : code;
    *exists = code == CKPT_OK;
    if (code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW) { /* the model itself reads: the value is wrong */
        *err = (ckpt_err){0};
        return CKPT_OK;
    }
    *graph = s.graph;
    return code;
}

static bool has_variable(const ckpt_model *model, const char *name)
{
    bool has = false;
    for (int i = 0; i < model->var_count && !has; i++) {
        has = strcmp(model->var[i].name, name) == 0;
    }
    return has;
}

/* Adds the value found as a --set. Its plan was searched from those of smaller values, so --start is none of its options. */
static ckpt_code write_largest(ckpt_job *j, const ckpt_maximum *maximum, ckpt_err *err)
{
    ckpt_request r = *j->request;
    r.asked.set[r.asked.set_count++] = ckpt_arena_format(j->out, "%s=%lld", r.variable, (long long)maximum->value);
    return r.asked.set[r.asked.set_count - 1] != NULL ? write_files(j, &r, maximum->stopped, maximum->plan, err)
                                                      : CKPT_FAIL(err, CKPT_NO_MEMORY, "value of a variable");
}

static ckpt_code answer_maximum(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_maximum *const maximum = CKPT_NEW(j->out, ckpt_maximum, 1);
    ckpt_family family = {.graph = graph_at, .context = j, .variable = r->variable};
    if (maximum == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "probes");
    }
    if (!has_variable(j->planning.source.model, r->variable)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found no variable '%s' to maximize", r->input, r->variable);
    }
    CKPT_TRY_WHILE(err, ckpt_model_eval(j->planning.source.model, r->variable, &family.start, err),
                   "reading --maximize %s", r->variable);
    if (family.start < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found %s = %lld, wanted at least 1 to begin with", r->input,
                         r->variable, (long long)family.start);
    }
    CKPT_TRY(ckpt_maximize(&family, r->throughput, r->max_overhead, j->planning.strategy, &j->planning.options, j->out,
                           maximum, err));
    j->found = maximum->found;
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    if (maximum->unbounded) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s = %lld still fits: the budget does not limit it", r->variable,
                         (long long)maximum->value);
    }
    note_end(j, maximum->stopped);
    if (maximum->found) {
        j->planning.source.graph = maximum->graph;
        CKPT_TRY(write_largest(j, maximum, err));
    }
    if (!r->json) {
        ckpt_maximum_text(maximum, &j->text);
        if (maximum->found) {
            ckpt_plan_text(maximum->plan, true, j->planning.source.roofline, &j->text);
        }
        return CKPT_OK;
    }
    ckpt_json_writer w;
    ckpt_json_begin(&w, &j->text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_maximum_members(maximum, &w);
    if (maximum->found) {
        ckpt_json_begin_object(&w, "plan", CKPT_JSON_TIGHT);
        ckpt_plan_members(maximum->plan, j->planning.source.roofline, &w);
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
    return CKPT_OK;
}

static ckpt_code answer_comparison(ckpt_job *j, ckpt_err *err)
{
    ckpt_comparison *const comparison = CKPT_NEW(j->out, ckpt_comparison, 1);
    if (comparison == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "comparison");
    }
    CKPT_TRY(ckpt_compare(j->planning.source.graph, &j->planning.options, j->out, comparison, err));
    for (int i = 0; i < comparison->count; i++) {
        j->found = j->found || comparison->plan[i]->verdict == CKPT_FITS;
    }
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    note_end(j, comparison->stopped);
    if (j->request->json) {
        ckpt_comparison_json(comparison, &j->text);
    } else {
        ckpt_comparison_text(comparison, &j->text);
    }
    return CKPT_OK;
}

static ckpt_code answer_packing(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const char *const output = r->output != NULL ? r->output : "-";
    CKPT_TRY(ckpt_pack_file(r->pack, output, r->capacity, &j->planning.options, &j->text, &j->found, err));
    CKPT_TRY(ckpt_text_end(&j->text, err));
    fprintf(stderr, "%s: %s", j->cli->program, j->text.bytes);
    return CKPT_OK;
}

/* Plan and trace; of pipeline stages those of each. */
static ckpt_code check_files(const ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const ckpt_cli_file read[] = {{"the model", .path = r->input},
                                  {"--profile", .path = r->asked.profile.name},
                                  {"--device", .path = r->asked.device.name},
                                  {"--start", .path = r->asked.start.name},
                                  {"--pack", .path = r->pack}};
    enum { READ = sizeof read / sizeof *read };
    const bool staged = ckpt_options_staged(&r->asked);
    const int stages = staged ? r->asked.scheme.stages : 1;
    ckpt_cli_file *const file = CKPT_NEW(j->out, ckpt_cli_file, READ + 2 * stages);
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the names of %d stages", stages);
    }
    memcpy(file, read, sizeof read);
    for (int s = 0; s < stages; s++) {
        ckpt_cli_file *const output = &file[READ + 2 * s], *const trace = output + 1;
        *output = (ckpt_cli_file){"-o", r->output, .written = true};
        *trace = (ckpt_cli_file){"--trace", r->trace, .written = true};
        if (staged) {
            CKPT_TRY(ckpt_cli_stage_file(r->output, s, j->out, &output->path, err));
            CKPT_TRY(ckpt_cli_stage_file(r->trace, s, j->out, &trace->path, err));
        }
    }
    return ckpt_cli_check_files(file, READ + 2 * stages, err);
}

static ckpt_code candidates(ckpt_job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    CKPT_TRY(check_files(j, err));
    CKPT_TRY(ckpt_job_options(j, err));
    if (r->question == CKPT_ASK_PACKING) {
        catch_signals();
        return answer_packing(j, err);
    }
    if (r->question != CKPT_ASK_CHECK && !ckpt_options_staged(&r->asked)) {
        CKPT_TRY(ckpt_job_begin(j, err));
    }
    catch_signals();
    switch (r->question) {
    case CKPT_ASK_CHECK: CKPT_TRY(ckpt_answer_check(j, err)); break;
    case CKPT_ASK_SWEEP: CKPT_TRY(answer_sweep(j, err)); break;
    case CKPT_ASK_MAXIMUM: CKPT_TRY(answer_maximum(j, err)); break;
    case CKPT_ASK_COMPARISON: CKPT_TRY(answer_comparison(j, err)); break;
    default: CKPT_TRY(ckpt_options_staged(&r->asked) ? ckpt_answer_stages(j, err) : answer_plan(j, err));
    }
    const bool elsewhere = r->question == CKPT_ASK_SWEEP ? r->output != NULL && !ckpt_on_stdout(r->output)
                                                         : ckpt_on_stdout(r->output) || ckpt_on_stdout(r->trace);
    return elsewhere || j->usage >= 0 ? CKPT_OK : ckpt_file_write_text("-", &j->text, err);
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {
        .program = "ckpt-plan",
        .usage = "ckpt-plan --budget SIZE [options] model.json",
        .about = "Plan one training step of a ckpt-model or ckpt-graph file: the fastest step that fits the budget.",
        .option = ckpt_request_options,
        .argc = argc,
        .argv = argv,
    };
    ckpt_request r;
    const int usage = ckpt_request_read(&cli, &r);
    if (usage >= 0) {
        return usage;
    }
    if (r.question == CKPT_ASK_STRATEGIES) {
        return ckpt_cli_end(&cli, list_strategies());
    }
    ckpt_cli_outlive_limits();
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    ckpt_job j = {.cli = &cli, .request = &r, .out = &arena, .cancelled = is_interrupted, .usage = -1};
    ckpt_text_init(&j.text);
    const ckpt_code code = candidates(&j, &err);
    ckpt_text_fini(&j.text);
    ckpt_arena_fini(&arena);
    ckpt_solver_close(j.solver_library);
    return code != CKPT_OK ? ckpt_cli_fail(&cli, &err) : j.usage >= 0 ? j.usage : j.found ? 0 : 1;
}
