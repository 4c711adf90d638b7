/* ckpt-plan: a model or a graph and a budget in, a plan out; or the curve over all budgets, the largest model that
 * fits, what each layer costs, all strategies in a table. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/cli.h"
#include "core/file.h"
#include "core/json.h"
#include "core/machine.h"
#include "ops/network.h"
#include "planner/answers.h"
#include "planner/pack.h"
#include "planner/plan_request_impl.h"
#include "planner/replay.h"
#include "planner/solver.h"

/* A graph, and where its times come from. */
typedef struct source {
    const ckpt_graph *graph;
    const ckpt_graph *planned; /* the same, or without runs again of what the user has flagged as kept */
    const ckpt_model *model;   /* NULL: the file is a graph */
    const char *costs;
    bool roofline;
    int threads; /* CKPT_ON_GPU: for a GPU; 0 too when the file is a graph */
    bool gpu;
    ckpt_bytes reserve;  /* taken off the budget */
    ckpt_bytes capacity; /* of the GPU's memory; 0: unknown, or no GPU */
} source;

/* All that the ways to answer share. */
typedef struct job {
    const ckpt_cli *cli;
    const ckpt_request *request;
    ckpt_arena *out;
    source source;
    ckpt_plan_options options;
    const char *strategy;
    ckpt_text text; /* what goes to standard output */
    bool found;     /* the answer is yes */
} job;

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Once: the second Ctrl-C ends the program where it stands. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int list_strategies(void)
{
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        const ckpt_strategy *const strategy = ckpt_strategy_table[i];
        printf("%-14s %-9s %s\n", strategy->name, ckpt_strategy_kind(strategy), strategy->help);
    }
    return 0;
}

static ckpt_code read_format(const char *path, ckpt_arena *out, const char **format, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_item member;
    ckpt_code code = ckpt_item_need(&root, "format", &member, err);
    code = code == CKPT_OK ? ckpt_item_text(&member, out, format, err) : code;
    if (code == CKPT_OK && strncmp(*format, "ckpt-model/", 11) != 0 && strncmp(*format, "ckpt-graph/", 11) != 0) {
        code = ckpt_item_fail(&member, err, "found \"%s\", wanted \"ckpt-model/1\" or \"ckpt-graph/1\"", *format);
    }
    ckpt_json_close(json);
    return code;
}

/* What the workspaces are for: what the profile measured, or without one the device. */
static ckpt_code choose_target(const ckpt_request *r, const ckpt_profile *profile, const ckpt_device_model *device,
                               source *s, ckpt_err *err)
{
    s->gpu = profile != NULL ? profile->machine.gpu : device->gpu;
    s->capacity = s->gpu && device->gpu ? device->memory_bytes : 0;
    if (s->gpu) {
        s->threads = CKPT_ON_GPU;
        return r->threads == 0 ? CKPT_OK
                               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found --threads %d, but %s is of a GPU: leave it out",
                                           r->threads, profile != NULL ? r->profile : device->name);
    }
    s->threads = r->threads > 0                                    ? r->threads
                 : profile != NULL && profile->machine.threads > 0 ? profile->machine.threads
                                                                   : ckpt_machine_threads();
    if (s->threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: measured with %d threads, wanted at most %d", r->profile, s->threads,
                         CKPT_THREADS_MAX);
    }
    return CKPT_OK;
}

static ckpt_code read_model(const ckpt_request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_profile *profile = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_network *network = NULL;
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(ckpt_model_read(r->input, r->set, r->set_count, out, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, r->dtype, out, &model, err));
    if (r->profile != NULL) {
        CKPT_TRY(ckpt_profile_read(r->profile, out, &profile, err));
    }
    CKPT_TRY(ckpt_device_model_find(r->device != NULL ? r->device : "cpu", out, &device, err));
    CKPT_TRY(choose_target(r, profile, device, s, err));
    CKPT_TRY(ckpt_network_infer(model, s->threads, out, &network, err));
    CKPT_TRY(ckpt_network_lower(network, profile, device, out, &lowered, err));
    s->graph = lowered->graph;
    s->model = model;
    s->roofline = profile == NULL;
    const int measured = profile != NULL ? profile->machine.threads : 0;
    s->costs = profile == NULL ? ckpt_arena_format(out, "roofline of %s", device->name)
               : measured > 0 && s->threads > 0 && measured != s->threads
                   ? ckpt_arena_format(out, "profile %s, with times of %d thread%s", r->profile, measured,
                                       measured == 1 ? "" : "s")
                   : ckpt_arena_format(out, "profile %s", r->profile);
    return s->costs != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

static ckpt_code read_source(const ckpt_request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    const char *format = NULL;
    CKPT_TRY(read_format(r->input, out, &format, err));
    if (strncmp(format, "ckpt-model/", 11) == 0) {
        return read_model(r, out, s, err);
    }
    if (r->profile != NULL || r->device != NULL || r->set_count > 0 || r->variable != NULL || r->dtype != NULL ||
        r->threads > 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph and has its own sizes and times: --profile, --device, --set, --dtype, --threads "
            "and --maximize are for models",
            r->input);
    }
    s->costs = ckpt_arena_format(out, "times in %s", r->input);
    return s->costs != NULL ? ckpt_graph_read(r->input, out, &s->graph, err)
                            : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

/* The same graph with the link of --link. */
static ckpt_code set_link(const ckpt_request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    if (r->link == NULL) {
        return CKPT_OK;
    }
    ckpt_graph *const linked = CKPT_NEW(out, ckpt_graph, 1);
    if (linked == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph with another link");
    }
    *linked = *s->graph;
    linked->has_link = true;
    s->graph = linked;
    return ckpt_link_parse(r->link, &linked->d2h_bytes_per_s, &linked->h2d_bytes_per_s, err);
}

static ckpt_code write_plan(const ckpt_request *r, const ckpt_plan *plan, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_plan_write(plan, &text);
    return ckpt_file_write_text(r->output, &text, err);
}

static ckpt_code write_trace(const ckpt_cli *cli, const ckpt_request *r, const ckpt_plan *plan, const source *s,
                             ckpt_arena *out, ckpt_err *err)
{
    const ckpt_trace *predicted = NULL;
    CKPT_TRY(ckpt_plan_simulate(plan, s->graph, out, &predicted, err));
    ckpt_trace trace = *predicted;
    CKPT_TRY(ckpt_machine_read(s->threads, "", cli->argc, cli->argv, out, &trace.machine, err));
    trace.machine.gpu = s->gpu;
    trace.capacity_bytes = s->capacity;
    trace.machine.device = plan->costs; /* the clock that was used, not the machine that planned */
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_trace_write(&trace, &text);
    return ckpt_file_write_text(r->trace, &text, err);
}

/* What the user has flagged decides, unless a strategy was asked for by name or --ignore-flags was given: with
 * something flagged true, strategy flags plans; else what is flagged false never runs again. */
static ckpt_code obey_flags(job *j, ckpt_arena *out, source *s, ckpt_err *err)
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
static void note_flags(const job *j)
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
static ckpt_code check_use(const job *j, ckpt_err *err)
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

/* Everything but the budget, which may be a share of something not known yet. */
static ckpt_code set_options(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_plan_options *const options = &j->options;
    options->effort = r->effort;
    options->solver = &ckpt_solver_glpk;
    options->stop = &interrupted;
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
static ckpt_code set_budget(job *j, ckpt_bytes whole, ckpt_err *err)
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

/* The schedule of --start. */
static ckpt_code read_start(job *j, ckpt_candidate *start, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    CKPT_TRY(ckpt_plan_read(j->request->start, j->out, &plan, err));
    CKPT_TRY(ckpt_plan_bind(plan, j->source.graph, err));
    if (plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found a plan that does not fit its own budget, wanted a start",
                         j->request->start);
    }
    CKPT_TRY_WHILE(err, ckpt_plan_check_run(plan, j->source.graph, err), "checking %s", j->request->start);
    CKPT_TRY(ckpt_plan_candidate(plan, j->source.graph, j->out, start, err));
    j->options.incumbent = start;
    j->options.incumbent_count = 1;
    return CKPT_OK;
}

/* Ended early, by Ctrl-C or --time-limit: said on standard error, the answer stays what it is. */
static void note_end(const job *j, bool early)
{
    if (interrupted) {
        fprintf(stderr, "%s: interrupted: the best so far\n", j->cli->program);
    } else if (early) {
        fprintf(stderr, "%s: time limit: the best so far\n", j->cli->program);
    }
}

/* What the plan was made for and from. */
static void stamp(ckpt_plan *plan, const source *s)
{
    plan->costs = s->costs;
    plan->gpu = s->gpu;
    plan->threads = s->threads;
    plan->reserve_bytes = s->reserve;
}

/* What is written for a plan: its file, its trace. */
static ckpt_code write_files(job *j, ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    stamp(plan, &j->source);
    if (j->source.planned != j->source.graph) {
        CKPT_TRY(ckpt_flags_unpin(plan, j->source.graph, err));
    }
    CKPT_TRY(ckpt_plan_outline(j->source.graph, j->out, &plan->outline, err));
    if (r->output != NULL) {
        CKPT_TRY(write_plan(r, plan, err));
    }
    return r->trace != NULL && plan->verdict == CKPT_FITS ? write_trace(j->cli, r, plan, &j->source, j->out, err)
                                                          : CKPT_OK;
}

static ckpt_code nothing_found(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_INTERRUPTED, "interrupted before any plan was found");
}

static ckpt_code answer_plan(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_plan *plan = NULL;
    ckpt_candidate start;
    ckpt_explanation explanation = {0};
    if (r->start != NULL) {
        CKPT_TRY(read_start(j, &start, err));
    }
    CKPT_TRY(ckpt_plan_make(j->source.planned, j->strategy, &j->options, j->out, &plan, err));
    j->found = plan->verdict == CKPT_FITS;
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    note_end(j, ckpt_plan_stopped(&j->options));
    CKPT_TRY(write_files(j, plan, err));
    const bool explain = r->question == CKPT_ASK_EXPLANATION && j->found;
    if (explain) {
        CKPT_TRY(ckpt_explain(plan, j->source.planned, j->strategy, &j->options, j->out, &explanation, err));
    }
    if (!r->json) {
        ckpt_plan_text(plan, r->budget != NULL, j->source.roofline, &j->text);
        if (explain) {
            ckpt_explanation_text(&explanation, &j->text);
        }
        return CKPT_OK;
    }
    ckpt_text_add(&j->text, "{");
    ckpt_plan_members(plan, j->source.roofline, &j->text);
    if (explain) {
        ckpt_text_add(&j->text, ", ");
        ckpt_explanation_members(&explanation, &j->text);
    }
    ckpt_text_add(&j->text, "}\n");
    return CKPT_OK;
}

static void report_sweep(int done, int points)
{
    ckpt_cli_progress("budgets", done, points, 0);
}

static ckpt_code answer_sweep(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_sweep sweep = {0};
    CKPT_TRY(
        ckpt_sweep_make(j->source.planned, j->strategy, r->points, &j->options, report_sweep, j->out, &sweep, err));
    j->found = sweep.plan[0]->verdict == CKPT_FITS;
    if (!j->found && interrupted) {
        return nothing_found(err);
    }
    if (sweep.stopped) {
        note_end(j, true);
    }
    for (int i = 0; i < sweep.count; i++) {
        stamp(sweep.plan[i], &j->source);
        if (j->source.planned != j->source.graph) {
            CKPT_TRY(ckpt_flags_unpin(sweep.plan[i], j->source.graph, err));
        }
    }
    const bool file = r->output != NULL && !ckpt_on_stdout(r->output);
    if (file ? ckpt_ends_with(r->output, ".svg") : false) {
        ckpt_sweep_svg(&sweep, &j->text);
    } else if (file ? ckpt_ends_with(r->output, ".json") : r->json) {
        ckpt_sweep_json(&sweep, &j->text);
    } else {
        ckpt_sweep_csv(&sweep, &j->text);
    }
    if (!j->found) {
        char least[CKPT_UNITS_TEXT];
        fprintf(stderr, "%s: no plan fits; the least budget at which one was found is %s (%lld bytes)\n",
                j->cli->program, ckpt_bytes_show(sweep.plan[0]->least_budget_bytes, least),
                (long long)sweep.plan[0]->least_budget_bytes);
    }
    return file ? ckpt_file_write_text(r->output, &j->text, err) : CKPT_OK;
}

/* The model at another value of the variable of --maximize. */
static ckpt_code read_at(const job *j, int64_t value, ckpt_arena *out, source *s, ckpt_err *err)
{
    ckpt_request r = *j->request;
    r.set[r.set_count] = ckpt_arena_format(out, "%s=%lld", r.variable, (long long)value);
    if (r.set[r.set_count++] == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "value of a variable");
    }
    CKPT_TRY(read_model(&r, out, s, err));
    return set_link(&r, out, s, err);
}

static ckpt_code graph_at(void *context, int64_t value, ckpt_arena *out, const ckpt_graph **graph, bool *exists,
                          ckpt_err *err)
{
    job *const j = context;
    source s = {0};
    const ckpt_code code = read_at(j, value, out, &s, err);
    *exists = code == CKPT_OK;
    if (code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW) { /* the model has read well: it is the value */
        *err = (ckpt_err){0};
        return CKPT_OK;
    }
    CKPT_TRY(code);
    CKPT_TRY(obey_flags(j, out, &s, err));
    *graph = s.planned;
    return CKPT_OK;
}

/* The answer's graph, and where it has been pinned by flags the one without. */
static ckpt_code read_whole(job *j, const ckpt_maximum *maximum, ckpt_err *err)
{
    const bool pinned = j->source.planned != j->source.graph;
    j->source.graph = j->source.planned = maximum->graph;
    return pinned ? read_at(j, maximum->value, j->out, &j->source, err) : CKPT_OK;
}

static bool has_variable(const ckpt_model *model, const char *name)
{
    bool has = false;
    for (int i = 0; i < model->var_count && !has; i++) {
        has = strcmp(model->var[i].name, name) == 0;
    }
    return has;
}

static ckpt_code answer_maximum(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_maximum *const maximum = CKPT_NEW(j->out, ckpt_maximum, 1);
    ckpt_family family = {.graph = graph_at, .context = j, .variable = r->variable};
    if (maximum == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "probes");
    }
    if (!has_variable(j->source.model, r->variable)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found no variable '%s' to maximize", r->input, r->variable);
    }
    CKPT_TRY_WHILE(err, ckpt_model_eval(j->source.model, r->variable, &family.start, err), "reading --maximize %s",
                   r->variable);
    if (family.start < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found %s = %lld, wanted at least 1 to begin with", r->input,
                         r->variable, (long long)family.start);
    }
    CKPT_TRY(ckpt_maximize(&family, r->throughput, r->max_overhead, j->strategy, &j->options, j->out, maximum, err));
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
        CKPT_TRY(read_whole(j, maximum, err));
        CKPT_TRY(write_files(j, maximum->plan, err));
    }
    if (!r->json) {
        ckpt_maximum_text(maximum, &j->text);
        if (maximum->found) {
            ckpt_plan_text(maximum->plan, true, j->source.roofline, &j->text);
        }
        return CKPT_OK;
    }
    ckpt_text_add(&j->text, "{");
    ckpt_maximum_members(maximum, &j->text);
    if (maximum->found) {
        ckpt_text_add(&j->text, ", \"plan\": {");
        ckpt_plan_members(maximum->plan, j->source.roofline, &j->text);
        ckpt_text_add(&j->text, "}");
    }
    ckpt_text_add(&j->text, "}\n");
    return CKPT_OK;
}

static ckpt_code answer_comparison(job *j, ckpt_err *err)
{
    ckpt_comparison *const comparison = CKPT_NEW(j->out, ckpt_comparison, 1);
    if (comparison == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "comparison");
    }
    CKPT_TRY(ckpt_compare(j->source.graph, &j->options, j->out, comparison, err));
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

static ckpt_code answer_packing(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    const char *const output = r->output != NULL ? r->output : "-";
    CKPT_TRY(ckpt_pack_file(r->pack, output, r->capacity, &j->options, &j->text, &j->found, err));
    CKPT_TRY(ckpt_text_end(&j->text, err));
    fprintf(stderr, "%s: %s", j->cli->program, j->text.bytes);
    return CKPT_OK;
}

static ckpt_code answer(job *j, ckpt_err *err)
{
    const ckpt_request *const r = j->request;
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(set_options(j, err));
    if (r->question == CKPT_ASK_PACKING) {
        return answer_packing(j, err);
    }
    CKPT_TRY(read_source(r, j->out, &j->source, err));
    CKPT_TRY(set_link(r, j->out, &j->source, err));
    CKPT_TRY(check_use(j, err));
    CKPT_TRY(obey_flags(j, j->out, &j->source, err));
    note_flags(j);
    CKPT_TRY(ckpt_keep_all_measure(j->source.graph, j->out, &whole, &time, err));
    CKPT_TRY(set_budget(j, r->question == CKPT_ASK_MAXIMUM ? 0 : whole, err));
    switch (r->question) {
    case CKPT_ASK_SWEEP: CKPT_TRY(answer_sweep(j, err)); break;
    case CKPT_ASK_MAXIMUM: CKPT_TRY(answer_maximum(j, err)); break;
    case CKPT_ASK_COMPARISON: CKPT_TRY(answer_comparison(j, err)); break;
    default: CKPT_TRY(answer_plan(j, err));
    }
    const bool elsewhere = r->question == CKPT_ASK_SWEEP ? r->output != NULL && !ckpt_on_stdout(r->output)
                                                         : ckpt_on_stdout(r->output) || ckpt_on_stdout(r->trace);
    return elsewhere ? CKPT_OK : ckpt_file_write_text("-", &j->text, err);
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {
        .program = "ckpt-plan",
        .usage = "ckpt-plan --budget SIZE [options] model.json",
        .about =
            "Plan one training step of a ckpt-model or ckpt-graph file so that it fits the budget in the least time.",
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
        return list_strategies();
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    job j = {.cli = &cli, .request = &r, .out = &arena, .strategy = r.strategy != NULL ? r.strategy : "auto"};
    ckpt_text_init(&j.text);
    catch_signals();
    const ckpt_code code = answer(&j, &err);
    ckpt_text_fini(&j.text);
    ckpt_arena_fini(&arena);
    return code != CKPT_OK ? ckpt_cli_fail(&cli, &err) : j.found ? 0 : 1;
}
