/* ckpt-graph: lowers a model to a graph, or reads a graph; writes it as JSON or draws it. Links no kernel. */
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "libckpt/scheme_options.h"
#include "libckpt/source.h"
#include "ops/import/onnx/onnx.h"
#include "ops/lowering/staged.h"
#include "programs/cli/cli.h"
#include "viz/viz.h"

enum { FOLD_MAX = 1000000 };

/* clang-format off */
#define ROW(name, letter, argument, help, take, field) {name, letter, argument, help},
static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE", "file to write: .json, .dot, .svg, .png or .pdf; - (default) is standard output"},
    {"format", 'f', "json|dot|svg|png|pdf|netron",
     "format, whatever the file is called; netron: an ONNX model as JSON, for Netron (default: json)"},
    {"plan", 'P', "FILE", "show what this plan keeps, recomputes and offloads"},
    {"fold", 0, "N",
     "draw repeated blocks once if there are more than N layers (default: if all would be wider than about 2000 points or "
     "taller than 2400; micro-batches always)"},
    {"profile", 'p', "FILE", "times and workspaces that ckpt-profile measured"},
    {"device", 'd', "NAME", "roofline for what no profile covers: a device's name, or its JSON file (default: cpu)"},
    {"set", 0, "VAR=N", "override a variable of the model; repeatable"},
    {"dtype", 0, "TYPE", "dtype of activations: float32 or bfloat16 (default: the model's)"},
    {"optimizer", 0, "NAME[:KEY=X,...]", "another optimizer than the model's"},
    CKPT_SCHEME_OPTIONS(ROW)
    {"checkpoint", 0, "PATTERN",
     "mark layers or blocks of that name to be recomputed as a unit, as in ckpt-plan; repeatable"},
    {"keep", 0, "PATTERN", "mark layers of that name that are never recomputed; repeatable"},
    {"offload", 0, "PATTERN", "mark layers of that name whose results go to the host; repeatable"},
    {"threads", 't', "N",
     "threads of the CPU's kernels, for workspaces (default: the profile's, or all processors; a GPU has none)"},
    {"list-ops", 0, NULL, "print every op and optimizer a model can name, as Markdown, and exit"},
    {NULL, 0, NULL, NULL},
};
#undef ROW
/* clang-format on */

static const char *const examples[] = {"ckpt-graph models/gpt2-124m.json -o gpt2.svg",
                                       "draw the network",
                                       "ckpt-graph --plan plan.json models/gpt2-124m.json -o gpt2.pdf",
                                       "and what a plan does to it",
                                       "ckpt-graph --format netron models/gpt2-124m.json -o gpt2.onnx.json",
                                       "the training step, for Netron",
                                       NULL};

static void list_attributes(const ckpt_attr_spec *spec)
{
    for (; spec != NULL && spec->name != NULL; spec++) {
        printf("- `%s`", spec->name);
        if (spec->required) {
            printf(" (needed)");
        } else if (spec->kind == CKPT_BOOL) {
            printf(" (%s)", spec->integer != 0 ? "true" : "false");
        } else if (spec->kind == CKPT_FLOAT) {
            printf(" (%g)", spec->real);
        } else if (spec->words != NULL) {
            printf(" (%s)", spec->words); /* the first is the default */
        } else if (spec->kind == CKPT_INT || spec->kind == CKPT_INTS) {
            printf(" (%lld)", (long long)spec->integer);
        }
        printf("%s%s\n", spec->help != NULL ? ": " : "", spec->help != NULL ? spec->help : "");
    }
}

/* scripts/pages writes docs/reference/ops.md by this. */
static int list_ops(void)
{
    printf("# Ops\n\nWritten by `ckpt-graph --list-ops`. In brackets: the default; of words, the first.\n");
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        printf("\n## %s\n\n`%s`\n\nSource: %s. Inputs: %d", (*op)->name, (*op)->formula, (*op)->source, (*op)->in_min);
        if ((*op)->in_max > (*op)->in_min) {
            printf(" to %d", (*op)->in_max);
        }
        printf(".\n%s", (*op)->attrs != NULL && (*op)->attrs->name != NULL ? "\n" : "");
        list_attributes((*op)->attrs);
    }
    printf("\n# Optimizers\n");
    for (const ckpt_optimizer *const *optimizer = ckpt_optimizer_table; *optimizer != NULL; optimizer++) {
        printf("\n## %s\n\n`%s`\n\nSource: %s.\n\n", (*optimizer)->name, (*optimizer)->formula, (*optimizer)->source);
        list_attributes((*optimizer)->attrs);
        list_attributes(ckpt_optimizer_common);
    }
    return 0;
}

typedef struct request {
    ckpt_options asked; /* what a model is lowered by, and the layers that are marked */
    const char *input, *output, *format, *plan;
    int fold;
} request;

static const char *extension(const char *path)
{
    const char *const slash = strrchr(path, '/');
    const char *const dot = strrchr(slash != NULL ? slash : path, '.');
    return dot != NULL ? dot + 1 : NULL;
}

static int check_scheme(ckpt_cli *cli, const request *want)
{
    ckpt_err err = {0};
    if (want->asked.stage_given && want->asked.scheme.stages == 1) {
        return ckpt_cli_usage(cli, "--stage is one of --pipeline-stages N, and there are none");
    }
    if (ckpt_scheme_check(&want->asked.scheme, &err) != CKPT_OK) {
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    return want->asked.scheme.stages == 1 || want->asked.stage_given
               ? -1
               : ckpt_cli_usage(cli, "a graph is of one of the %d stages: name it by --stage K",
                                want->asked.scheme.stages);
}

/* -1: go on; else the exit code. */
static int take(ckpt_cli *cli, request *want, const char *name, const char *value)
{
    const ckpt_cli_field field[] = {
        {"output", .text = &want->output},
        {"format", .text = &want->format},
        {"plan", .text = &want->plan},
        {"fold", .count = &want->fold, .low = 1, .high = FOLD_MAX},
    };
    ckpt_err err = {0};
    bool taken = false;
    const int kept = ckpt_cli_keep(cli, field, sizeof field / sizeof *field, name, value);
    if (kept >= 0) {
        return kept > 0 ? kept : -1;
    }
    if (ckpt_options_take(&want->asked, name, value, &taken, &err) != CKPT_OK) {
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    if (taken) {
        return -1;
    }
    if (strcmp(name, "list-ops") == 0) {
        return list_ops();
    }
    if (want->input != NULL) {
        return ckpt_cli_usage(cli, "found two files, '%s' and '%s', wanted one", want->input, value);
    }
    want->input = value;
    return -1;
}

static int parse(ckpt_cli *cli, request *want)
{
    const char *name = NULL;
    const char *value = NULL;
    int more = 0;
    while ((more = ckpt_cli_next(cli, &name, &value)) > 0) {
        const int stop = take(cli, want, name, value);
        if (stop >= 0) {
            return stop;
        }
    }
    if (more < 0) {
        return more == -1 ? 0 : 2;
    }
    if (want->input == NULL) {
        return ckpt_cli_usage(cli, "wanted a model or graph file");
    }
    const int scheme = check_scheme(cli, want);
    if (scheme >= 0) {
        return scheme;
    }
    want->output = want->output != NULL ? want->output : "-";
    if (want->format == NULL) {
        want->format = strcmp(want->output, "-") == 0 ? "json" : extension(want->output);
    }
    static const char *const formats[] = {"json", "dot", "svg", "png", "pdf", "netron"};
    for (size_t i = 0; want->format != NULL && i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(want->format, formats[i]) == 0) {
            const bool graph = i == 0, netron = i == 5;
            if (graph && want->plan != NULL) {
                return ckpt_cli_usage(cli, "--plan colours a drawing: .svg, .png, .pdf or .dot, or --format netron");
            }
            return want->fold > 0 && (graph || netron) ? ckpt_cli_usage(cli, "--fold is for drawings") : -1;
        }
    }
    return ckpt_cli_usage(cli, "found format '%s', wanted json, dot, svg, png, pdf or netron",
                          want->format != NULL ? want->format : want->output);
}

/* For the picture: what layers compute, and the shapes of buffers. */
static ckpt_code find_types(const ckpt_lowered *lowered, ckpt_arena *out, const ckpt_graph_types **types, ckpt_err *err)
{
    const ckpt_graph *const graph = lowered->graph;
    const ckpt_network *const network = lowered->network;
    const char **const op = CKPT_NEW(out, const char *, graph->op_count);
    const ckpt_tensor **const buffer = CKPT_NEW(out, const ckpt_tensor *, graph->buffer_count);
    ckpt_graph_types *const found = CKPT_NEW(out, ckpt_graph_types, 1);
    if (op == NULL || buffer == NULL || found == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the types of %d ops", graph->op_count);
    }
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_op_role *const role = &lowered->op_role[i];
        const char *const slash = strrchr(graph->op[i].name, '/');
        if (role->task != CKPT_TASK_LAYER) { /* "send", "reduce" */
            op[i] = slash != NULL ? slash + 1 : graph->op[i].name;
            continue;
        }
        const char *const name = network->node[role->node].op->name;
        op[i] = graph->op[i].phase == CKPT_FORWARD
                    ? name
                    : ckpt_arena_format(out, "%s/%s", name, ckpt_phase_name(graph->op[i].phase));
        if (op[i] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the type of op %d", i);
        }
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_buffer_role *const role = &lowered->buffer_role[b];
        buffer[b] = role->holds == CKPT_HOLDS_SAVED            ? &network->node[role->node].saved[role->saved]
                    : role->holds == CKPT_HOLDS_PARAM_GRADIENT ? &network->node[role->node].param[role->saved].tensor
                    : role->holds == CKPT_HOLDS_BUCKET         ? NULL
                                                               : &network->value[role->value].tensor;
    }
    *found = (ckpt_graph_types){op, buffer};
    *types = found;
    return CKPT_OK;
}

/* A model is lowered by the scheme of the command line, or else the plan's. */
static ckpt_code read_graph(const request *want, const ckpt_plan *plan, ckpt_arena *out, const ckpt_graph **graph,
                            const ckpt_graph_types **types, ckpt_err *err)
{
    ckpt_document document = {.name = want->input};
    ckpt_options asked = want->asked;
    ckpt_graph_source source;
    if (asked.scheme_option == NULL && plan != NULL && !ckpt_scheme_is_plain(&plan->scheme)) {
        asked.scheme = plan->scheme;
    }
    CKPT_TRY(ckpt_onnx_text(document.name, asked.set, asked.set_count, out, &document.text, &document.length, err));
    CKPT_TRY(ckpt_source_read(&document, &asked, out, &source, err));
    if (source.model != NULL) {
        CKPT_TRY(find_types(source.staged->lowered, out, types, err));
    }
    CKPT_TRY(asked.rule_count > 0 ? ckpt_source_choose(&source, &asked, out, err) : CKPT_OK);
    *graph = source.graph;
    return CKPT_OK;
}

typedef struct drawing {
    const request *want;
    const ckpt_graph *graph;
    const ckpt_plan *plan;
} drawing;

static ckpt_code draw(const void *what, ckpt_text *text, ckpt_err *err)
{
    const drawing *const d = what;
    return ckpt_graph_draw(d->graph, d->plan, d->want->format, d->want->fold, text, err);
}

static ckpt_code show(const request *want, const ckpt_graph *graph, const ckpt_plan *plan,
                      const ckpt_graph_types *types, ckpt_text *text, ckpt_err *err)
{
    const drawing d = {want, graph, plan};
    char doing[80];
    if (strcmp(want->format, "json") == 0) {
        ckpt_graph_write(graph, text);
        return CKPT_OK;
    }
    if (strcmp(want->format, "netron") == 0) {
        return ckpt_graph_netron(graph, plan, types, text, err);
    }
    if (strcmp(want->format, "dot") == 0) {
        return draw(&d, text, err);
    }
    snprintf(doing, sizeof doing, "drawing %d ops as %s", graph->op_count, want->format);
    return ckpt_cli_apart(doing, draw, &d, text, err);
}

static ckpt_code check_files(const request *want, ckpt_err *err)
{
    const ckpt_cli_file file[] = {{"the model", .path = want->input},
                                  {"--plan", .path = want->plan},
                                  {"--profile", .path = want->asked.profile.name},
                                  {"--device", .path = want->asked.device.name},
                                  {"-o", want->output, .written = true}};
    return ckpt_cli_check_files(file, sizeof file / sizeof *file, err);
}

static ckpt_code work(const request *want, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    ckpt_plan *plan = NULL;
    const ckpt_graph_types *types = NULL;
    ckpt_text text;
    CKPT_TRY(check_files(want, err));
    CKPT_TRY(want->plan != NULL ? ckpt_plan_read(want->plan, arena, &plan, err) : CKPT_OK);
    CKPT_TRY(read_graph(want, plan, arena, &graph, &types, err));
    CKPT_TRY(plan != NULL ? ckpt_plan_bind(plan, graph, err) : CKPT_OK);
    CKPT_TRY(ckpt_file_begin_text(want->output, &text, err));
    const ckpt_code code = show(want, graph, plan, types, &text, err);
    return ckpt_file_end_text(&text, code, err);
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {.program = "ckpt-graph",
                    .usage = "ckpt-graph [options] model.json|graph.json",
                    .about = "Lower a model to the graph of one training step, or read such a graph, and write it as "
                             "JSON or draw it.\nA file of - is standard input.",
                    .example = examples,
                    .option = options,
                    .argc = argc,
                    .argv = argv};
    request want = {0};
    ckpt_options_init(&want.asked);
    const int stop = parse(&cli, &want);
    if (stop >= 0) {
        return ckpt_cli_end(&cli, stop);
    }
    ckpt_cli_outlive_limits();
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_code code = work(&want, &arena, &err);
    ckpt_arena_fini(&arena);
    return code == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
}
