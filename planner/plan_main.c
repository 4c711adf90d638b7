/* ckpt-plan: a model or a graph and a budget in, a plan out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli.h"
#include "core/file.h"
#include "core/json.h"
#include "core/machine.h"
#include "ops/network.h"
#include "planner/planner.h"
#include "planner/replay.h"

enum { SETS_MAX = 64 };

static const ckpt_cli_option option_table[] = {
    {"budget", 'b', "SIZE",
     "everything the step holds on the device: 6GB, 5.5GiB, 80% of keep-all's peak; none: no limit"},
    {"output", 'o', "FILE", "write the plan as JSON; - is standard output"},
    {"strategy", 's', "NAME", "auto (the fastest that fits) or a name of --list-strategies"},
    {"profile", 'p', "FILE", "measured times and workspaces (ckpt-profile)"},
    {"device", 'd', "NAME", "without a profile: device of the roofline, or its JSON file (default: cpu)"},
    {"set", 0, "VAR=N", "override a variable of the model; may be repeated"},
    {"threads", 't', "N", "threads of the CPU kernels (default: as the profile, else all processors)"},
    {"trace", 0, "FILE", "write the predicted trace"},
    {"json", 0, NULL, "print the summary as JSON"},
    {"list-strategies", 0, NULL, "print the strategies and exit"},
    {NULL, 0, NULL, NULL},
};

typedef struct request {
    const char *input, *budget, *output, *strategy, *profile, *device, *trace;
    const char *set[SETS_MAX];
    int set_count;
    long threads; /* 0: default */
    bool json;
} request;

/* A graph, and where its times come from. */
typedef struct source {
    const ckpt_graph *graph;
    const char *costs;
    bool roofline;
    int threads;
} source;

static int list_strategies(void)
{
    printf("%-14s %s\n", "auto", "the fastest of all that fit");
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        printf("%-14s %s\n", ckpt_strategy_table[i]->name, ckpt_strategy_table[i]->help);
    }
    return 0;
}

/* -1: go on; else the exit code. */
static int read_arguments(ckpt_cli *cli, request *r)
{
    const char *name = NULL;
    const char *value = NULL;
    int more = 0;
    while ((more = ckpt_cli_next(cli, &name, &value)) == 1) {
        const struct {
            const char *name;
            const char **to;
        } text[] = {{"budget", &r->budget},   {"output", &r->output}, {"strategy", &r->strategy},
                    {"profile", &r->profile}, {"device", &r->device}, {"trace", &r->trace}};
        bool taken = false;
        for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
            if (strcmp(name, text[i].name) == 0) {
                *text[i].to = value;
                taken = true;
            }
        }
        if (taken) {
            continue;
        }
        if (strcmp(name, "json") == 0) {
            r->json = true;
        } else if (strcmp(name, "list-strategies") == 0) {
            return list_strategies();
        } else if (strcmp(name, "threads") == 0) {
            char *end = NULL;
            r->threads = strtol(value, &end, 10);
            if (end == value || *end != '\0' || r->threads < 1 || r->threads > CKPT_THREADS_MAX) {
                return ckpt_cli_usage(cli, "found --threads '%s', wanted 1 to %d", value, CKPT_THREADS_MAX);
            }
        } else if (strcmp(name, "set") == 0) {
            if (r->set_count == SETS_MAX) {
                return ckpt_cli_usage(cli, "found more than %d --set", SETS_MAX);
            }
            r->set[r->set_count++] = value;
        } else if (r->input != NULL) {
            return ckpt_cli_usage(cli, "found two files, '%s' and '%s', wanted one", r->input, value);
        } else {
            r->input = value;
        }
    }
    if (more < 0) {
        return more == -1 ? 0 : 2;
    }
    if (r->input == NULL) {
        return ckpt_cli_usage(cli, "wanted a model or graph file");
    }
    const bool plan_on_stdout = r->output != NULL && strcmp(r->output, "-") == 0;
    const bool trace_on_stdout = r->trace != NULL && strcmp(r->trace, "-") == 0;
    if (plan_on_stdout + trace_on_stdout + r->json > 1) {
        return ckpt_cli_usage(cli, "only one of -o -, --trace - and --json can have standard output");
    }
    return -1;
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

static ckpt_code read_model(const char *path, const request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_profile *profile = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_network *network = NULL;
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(ckpt_model_read(path, r->set, r->set_count, out, &model, err));
    if (r->profile != NULL) {
        CKPT_TRY(ckpt_profile_read(r->profile, out, &profile, err));
    }
    CKPT_TRY(ckpt_device_model_find(r->device != NULL ? r->device : "cpu", out, &device, err));
    s->threads = r->threads > 0                                    ? (int)r->threads
                 : profile != NULL && profile->machine.threads > 0 ? profile->machine.threads
                                                                   : ckpt_machine_threads();
    if (s->threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: measured with %d threads, wanted at most %d", r->profile, s->threads,
                         CKPT_THREADS_MAX);
    }
    CKPT_TRY(ckpt_network_infer(model, s->threads, out, &network, err));
    CKPT_TRY(ckpt_network_lower(network, profile, device, out, &lowered, err));
    s->graph = lowered->graph;
    s->roofline = profile == NULL;
    s->costs = profile != NULL ? ckpt_arena_format(out, "profile %s", r->profile)
                               : ckpt_arena_format(out, "roofline of %s", device->name);
    return s->costs != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

static ckpt_code read_source(const char *path, const request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    const char *format = NULL;
    CKPT_TRY(read_format(path, out, &format, err));
    if (strncmp(format, "ckpt-model/", 11) == 0) {
        return read_model(path, r, out, s, err);
    }
    if (r->profile != NULL || r->device != NULL || r->set_count > 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s is a graph and has its own times: --profile, --device and --set are for "
                         "models",
                         path);
    }
    s->costs = ckpt_arena_format(out, "times in %s", r->input);
    return s->costs != NULL ? ckpt_graph_read(path, out, &s->graph, err)
                            : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

/* Standard input can be read once, and is needed twice: for its kind and for itself. */
static ckpt_code read_stdin(const request *r, ckpt_arena *out, source *s, ckpt_err *err)
{
    const char *bytes = NULL;
    size_t length = 0;
    CKPT_TRY(ckpt_file_read("-", out, &bytes, &length, err));
    const char *const folder = getenv("TMPDIR");
    char path[512];
    const int written = snprintf(path, sizeof path, "%s/ckpt-plan-XXXXXX", folder != NULL ? folder : "/tmp");
    const int file = written > 0 && (size_t)written < sizeof path ? mkstemp(path) : -1;
    if (file < 0) {
        return CKPT_FAIL(err, CKPT_IO, "no temporary file for standard input");
    }
    close(file);
    ckpt_code code = ckpt_file_write(path, bytes, length, err);
    code = code == CKPT_OK ? read_source(path, r, out, s, err) : code;
    unlink(path);
    return code;
}

static void count_layers(const ckpt_plan *plan, int *keep, int *recompute)
{
    *keep = *recompute = 0;
    for (int i = 0; i < plan->layer_count; i++) {
        *keep += plan->layer[i].decision == CKPT_KEEP;
        *recompute += plan->layer[i].decision == CKPT_RECOMPUTE;
    }
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static void add_bytes(ckpt_text *text, const char *what, ckpt_bytes bytes, const char *more)
{
    char shown[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%-14s %s (%lld bytes)%s\n", what, ckpt_bytes_show(bytes, shown), (long long)bytes, more);
}

static void add_costs(ckpt_text *text, const ckpt_plan *plan, const source *s)
{
    ckpt_text_add(text, "%-14s %s%s\n", "costs", plan->costs,
                  s->roofline ? " (an estimate: no layer was measured; see ckpt-profile)" : "");
}

static void show_fit(ckpt_text *text, const ckpt_plan *plan, const source *s)
{
    char a[CKPT_UNITS_TEXT];
    char more[160];
    int keep = 0;
    int recompute = 0;
    count_layers(plan, &keep, &recompute);
    add_bytes(text, "static block", plan->static_bytes, ": weights, gradients, optimizer, inputs");
    const double fragments = percent(plan->arena_bytes - (plan->peak_bytes - plan->static_bytes), plan->arena_bytes);
    snprintf(more, sizeof more, ": activations and workspaces, %.1f %% lost to fragmentation", fragments);
    add_bytes(text, "arena", plan->arena_bytes, more);
    snprintf(more, sizeof more, ": %.1f %% of keep-all", percent(plan->peak_bytes, plan->keep_all_peak_bytes));
    add_bytes(text, "peak", plan->peak_bytes, more);
    snprintf(more, sizeof more, ", %s", ckpt_ns_show(plan->keep_all_time_ns, a));
    add_bytes(text, "keep-all", plan->keep_all_peak_bytes, more);
    ckpt_text_add(text, "%-14s %s: %+.2f %% over keep-all\n", "step time", ckpt_ns_show(plan->time_ns, a),
                  percent(plan->time_ns - plan->keep_all_time_ns, plan->keep_all_time_ns));
    ckpt_text_add(text, "%-14s %d kept, %d recomputed\n", "layers", keep, recompute);
    if (plan->has_bound) {
        ckpt_text_add(text, "%-14s %s, gap %.2f %% (%s; scope: %s)\n", "bound", ckpt_ns_show(plan->bound_ns, a),
                      percent(plan->time_ns - plan->bound_ns, plan->bound_ns), plan->bound_how, plan->bound_scope);
    }
    add_costs(text, plan, s);
    ckpt_text_add(text, "%-14s %s, planned in %.3f s\n", "strategy", plan->solver, plan->solver_seconds);
}

static void show_summary(ckpt_text *text, const ckpt_plan *plan, const source *s, const request *r)
{
    ckpt_text_add(text, "%-14s %s: %s\n", "plan", plan->graph_name,
                  plan->verdict == CKPT_FITS ? "fits" : "does not fit");
    if (r->budget != NULL) {
        char more[64];
        snprintf(more, sizeof more, ": %.1f %% of keep-all", percent(plan->budget_bytes, plan->keep_all_peak_bytes));
        add_bytes(text, "budget", plan->budget_bytes, more);
    } else {
        ckpt_text_add(text, "%-14s none given: no limit\n", "budget");
    }
    if (plan->verdict == CKPT_FITS) {
        show_fit(text, plan, s);
        return;
    }
    add_bytes(text, "static block", plan->static_bytes, "");
    add_bytes(text, "keep-all", plan->keep_all_peak_bytes, "");
    add_bytes(text, "least budget", plan->least_budget_bytes, ": a budget at which a plan was found");
    add_costs(text, plan, s);
    ckpt_text_add(text, "%-14s %s, searched for %.3f s\n", "strategy", plan->solver, plan->solver_seconds);
}

static void show_json(ckpt_text *text, const ckpt_plan *plan, const source *s)
{
    int keep = 0;
    int recompute = 0;
    count_layers(plan, &keep, &recompute);
    ckpt_text_add(text, "{\"graph\": ");
    ckpt_text_json(text, plan->graph_name);
    ckpt_text_add(text, ", \"verdict\": \"%s\", \"budget_bytes\": %lld",
                  plan->verdict == CKPT_FITS ? "fits" : "infeasible", (long long)plan->budget_bytes);
    if (plan->verdict == CKPT_INFEASIBLE) {
        ckpt_text_add(text, ", \"least_budget_bytes\": %lld", (long long)plan->least_budget_bytes);
    } else {
        ckpt_text_add(text,
                      ", \"peak_bytes\": %lld, \"arena_bytes\": %lld, \"time_ns\": %lld, \"recompute_ns\": %lld, "
                      "\"kept_layers\": %d, \"recomputed_layers\": %d",
                      (long long)plan->peak_bytes, (long long)plan->arena_bytes, (long long)plan->time_ns,
                      (long long)plan->recompute_ns, keep, recompute);
    }
    if (plan->has_bound) {
        ckpt_text_add(text, ", \"bound\": {\"time_ns\": %lld, \"gap\": %.6f, \"how\": ", (long long)plan->bound_ns,
                      percent(plan->time_ns - plan->bound_ns, plan->bound_ns) / 100);
        ckpt_text_json(text, plan->bound_how);
        ckpt_text_add(text, ", \"scope\": ");
        ckpt_text_json(text, plan->bound_scope);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(
        text, ", \"static_bytes\": %lld, \"keep_all\": {\"peak_bytes\": %lld, \"time_ns\": %lld}, \"strategy\": ",
        (long long)plan->static_bytes, (long long)plan->keep_all_peak_bytes, (long long)plan->keep_all_time_ns);
    ckpt_text_json(text, plan->solver);
    ckpt_text_add(text, ", \"seconds\": %.6f, \"costs\": ", plan->solver_seconds);
    ckpt_text_json(text, plan->costs);
    ckpt_text_add(text, ", \"estimated\": %s}\n", s->roofline ? "true" : "false");
}

static ckpt_code write_text(const char *path, ckpt_text *text, ckpt_err *err)
{
    const ckpt_code code = ckpt_text_end(text, err);
    const char *const bytes = text->bytes != NULL ? text->bytes : "";
    return code == CKPT_OK ? ckpt_file_write(path, bytes, text->length, err) : code;
}

static ckpt_code write_plan(const request *r, const ckpt_plan *plan, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_plan_write(plan, &text);
    const ckpt_code code = write_text(r->output, &text, err);
    ckpt_text_fini(&text);
    return code;
}

static ckpt_code write_trace(const ckpt_cli *cli, const request *r, const ckpt_plan *plan, const source *s,
                             ckpt_arena *out, ckpt_err *err)
{
    const ckpt_trace *predicted = NULL;
    CKPT_TRY(ckpt_plan_simulate(plan, s->graph, out, &predicted, err));
    ckpt_trace trace = *predicted;
    CKPT_TRY(ckpt_machine_read(s->threads, "", cli->argc, cli->argv, out, &trace.machine, err));
    trace.machine.device = plan->costs; /* the clock that was used, not the machine that planned */
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_trace_write(&trace, &text);
    const ckpt_code code = write_text(r->trace, &text, err);
    ckpt_text_fini(&text);
    return code;
}

/* One note when the user's flags are in the model and the strategy does not look at them. */
static void note_flags(const ckpt_cli *cli, const ckpt_graph *graph, const char *strategy)
{
    const ckpt_strategy *const found = ckpt_strategy_find(strategy);
    if (found != NULL && found->flags) {
        return;
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].checkpoint != CKPT_UNSET) {
            fprintf(stderr,
                    "%s: note: the model has checkpoint flags, which strategy %s does not read; see --strategy "
                    "flags\n",
                    cli->program, strategy);
            return;
        }
    }
}

static ckpt_code answer(const ckpt_cli *cli, const request *r, ckpt_arena *out, bool *fits, ckpt_err *err)
{
    source s = {0};
    CKPT_TRY(strcmp(r->input, "-") == 0 ? read_stdin(r, out, &s, err) : read_source(r->input, r, out, &s, err));
    ckpt_bytes whole = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_keep_all_measure(s.graph, out, &whole, &time, err));
    ckpt_plan_options options = {0};
    if (r->budget != NULL) {
        CKPT_TRY(ckpt_bytes_parse(r->budget, whole, &options.budget_bytes, err));
        if (options.budget_bytes <= 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "found budget '%s', wanted more than 0 bytes", r->budget);
        }
    }
    const char *const strategy = r->strategy != NULL ? r->strategy : "auto";
    ckpt_plan *plan = NULL;
    CKPT_TRY(ckpt_plan_make(s.graph, strategy, &options, out, &plan, err));
    plan->costs = s.costs;
    plan->threads = s.threads;
    note_flags(cli, s.graph, plan->verdict == CKPT_FITS ? plan->solver : strategy);
    if (r->output != NULL) {
        CKPT_TRY(write_plan(r, plan, err));
    }
    if (r->trace != NULL && plan->verdict == CKPT_FITS) {
        CKPT_TRY(write_trace(cli, r, plan, &s, out, err));
    }
    *fits = plan->verdict == CKPT_FITS;
    if ((r->output != NULL && strcmp(r->output, "-") == 0) || (r->trace != NULL && strcmp(r->trace, "-") == 0)) {
        return CKPT_OK;
    }
    ckpt_text text;
    ckpt_text_init(&text);
    if (r->json) {
        show_json(&text, plan, &s);
    } else {
        show_summary(&text, plan, &s, r);
    }
    const ckpt_code code = write_text("-", &text, err);
    ckpt_text_fini(&text);
    return code;
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {
        .program = "ckpt-plan",
        .usage = "ckpt-plan --budget SIZE [options] model.json",
        .about =
            "Plan one training step of a ckpt-model or ckpt-graph file so that it fits the budget in the least time.",
        .option = option_table,
        .argc = argc,
        .argv = argv,
    };
    request r = {0};
    const int usage = read_arguments(&cli, &r);
    if (usage >= 0) {
        return usage;
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    bool fits = false;
    const ckpt_code code = answer(&cli, &r, &arena, &fits, &err);
    ckpt_arena_fini(&arena);
    return code != CKPT_OK ? ckpt_cli_fail(&cli, &err) : fits ? 0 : 1;
}
