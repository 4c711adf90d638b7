/* ckpt-graph: lowers a model to a graph, or reads a graph; writes it as JSON or draws it. Links no kernel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "libckpt/scheme_options.h"
#include "ops/lowering/staged.h"
#include "planner/directives/choose.h"
#include "programs/cli/cli.h"
#include "viz/viz.h"

enum { SETS = 64, RULES = 64, THREADS_MAX = 4096, FOLD_MAX = 1000000 };

/* clang-format off */
#define ROW(name, letter, argument, help, take, field) {name, letter, argument, help},
static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE", "file to write: .json, .dot, .svg, .png or .pdf; - (default) is standard output"},
    {"format", 'f', "json|dot|svg|png|pdf|netron",
     "format, whatever the file is called; netron: an ONNX model as JSON, for Netron (default: json)"},
    {"plan", 'P', "FILE", "show what this plan keeps, recomputes and offloads"},
    {"fold", 0, "N", "draw repeated blocks once if there are more than N layers (default: 300; micro-batches always)"},
    {"profile", 'p', "FILE", "times and workspaces that ckpt-profile measured"},
    {"device", 'd', "NAME", "roofline for what no profile covers: a device's name, or its JSON file (default: cpu)"},
    {"set", 0, "VAR=N", "override a variable of the model; repeatable"},
    {"dtype", 0, "TYPE", "dtype of activations: float32 or bfloat16 (default: the model's)"},
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
    const char *input, *output, *format, *plan, *profile, *device, *dtype;
    const char *set[SETS];
    int set_count, threads, fold;
    ckpt_rule rule[RULES];
    int rule_count;
    ckpt_scheme scheme;
    bool stage_given;
    const char *scheme_option; /* the first of its options that was given; NULL: none */
} request;

static const char *extension(const char *path)
{
    const char *const slash = strrchr(path, '/');
    const char *const dot = strrchr(slash != NULL ? slash : path, '.');
    return dot != NULL ? dot + 1 : NULL;
}

/* A number from 1 to `most`; 0: something else. */
static int read_count(const char *value, int most)
{
    char *end = NULL;
    errno = 0;
    const long count = strtol(value, &end, 10);
    return end == value || *end != '\0' || errno != 0 || count < 1 || count > most ? 0 : (int)count;
}

/* -1: another option; 0: it is one of these; else the exit code. */
static int take_rule(ckpt_cli *cli, request *want, const char *name, const char *value)
{
    static const char *const rules[] = {"checkpoint", "keep", "offload"}; /* by ckpt_rule_kind */
    for (int kind = CKPT_RULE_CHECKPOINT; kind <= CKPT_RULE_OFFLOAD; kind++) {
        if (strcmp(name, rules[kind]) == 0) {
            if (want->rule_count == RULES) {
                return ckpt_cli_usage(cli, "found more than %d --checkpoint, --keep and --offload", RULES);
            }
            want->rule[want->rule_count++] = (ckpt_rule){(ckpt_rule_kind)kind, value};
            return 0;
        }
    }
    return -1;
}

static int take_scheme(ckpt_cli *cli, request *want, const char *name, const char *value)
{
    ckpt_err err = {0};
    bool taken = false;
    if (ckpt_scheme_take(&want->scheme, name, value, &taken, &want->stage_given, &err) != CKPT_OK) {
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    want->scheme_option = taken && want->scheme_option == NULL ? name : want->scheme_option;
    return taken ? 0 : -1;
}

static int check_scheme(ckpt_cli *cli, const request *want)
{
    ckpt_err err = {0};
    if (want->stage_given && want->scheme.stages == 1) {
        return ckpt_cli_usage(cli, "--stage is one of --pipeline-stages N, and there are none");
    }
    if (ckpt_scheme_check(&want->scheme, &err) != CKPT_OK) {
        return ckpt_cli_usage(cli, "%s", err.msg);
    }
    return want->scheme.stages == 1 || want->stage_given
               ? -1
               : ckpt_cli_usage(cli, "a graph is of one of the %d stages: name it by --stage K", want->scheme.stages);
}

/* -1: go on; else the exit code. */
static int take(ckpt_cli *cli, request *want, const char *name, const char *value)
{
    if (strcmp(name, "output") == 0) {
        want->output = value;
    } else if (strcmp(name, "format") == 0) {
        want->format = value;
    } else if (strcmp(name, "plan") == 0) {
        want->plan = value;
    } else if (strcmp(name, "profile") == 0) {
        want->profile = value;
    } else if (strcmp(name, "device") == 0) {
        want->device = value;
    } else if (strcmp(name, "dtype") == 0) {
        want->dtype = value;
    } else if (strcmp(name, "set") == 0) {
        if (want->set_count == SETS) {
            return ckpt_cli_usage(cli, "found more than %d times --set", SETS);
        }
        want->set[want->set_count++] = value;
    } else if (strcmp(name, "threads") == 0) {
        want->threads = read_count(value, THREADS_MAX);
        if (want->threads == 0) {
            return ckpt_cli_usage(cli, "found --threads %s, wanted a number from 1 to %d", value, THREADS_MAX);
        }
    } else if (strcmp(name, "fold") == 0) {
        want->fold = read_count(value, FOLD_MAX);
        if (want->fold == 0) {
            return ckpt_cli_usage(cli, "found --fold %s, wanted a number from 1 to %d", value, FOLD_MAX);
        }
    } else if (strcmp(name, "list-ops") == 0) {
        return list_ops();
    } else if (want->input != NULL) {
        return ckpt_cli_usage(cli, "found two files, '%s' and '%s', wanted one", want->input, value);
    } else {
        want->input = value;
    }
    return -1;
}

static int parse(ckpt_cli *cli, request *want)
{
    const char *name = NULL;
    const char *value = NULL;
    int more = 0;
    while ((more = ckpt_cli_next(cli, &name, &value)) > 0) {
        const int rule = take_rule(cli, want, name, value);
        const int scheme = rule < 0 ? take_scheme(cli, want, name, value) : rule;
        const int stop = scheme < 0 ? take(cli, want, name, value) : scheme > 0 ? scheme : -1;
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

static ckpt_code read_format(const char *path, ckpt_arena *out, bool *model, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    ckpt_item member;
    const char *format = NULL;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_code code = ckpt_item_need(&root, "format", &member, err);
    code = code == CKPT_OK ? ckpt_item_text(&member, out, &format, err) : code;
    if (code == CKPT_OK) {
        *model = strncmp(format, "ckpt-model/", 11) == 0;
        if (!*model && strncmp(format, "ckpt-graph/", 11) != 0) {
            code = ckpt_item_fail(&member, err, "found \"%s\", wanted \"ckpt-model/1\" or \"ckpt-graph/1\"", format);
        }
    }
    ckpt_json_close(json);
    return code;
}

/* Lowers the model by the scheme of the command line, or else the plan's. */
static ckpt_code lower(const char *path, const request *want, const ckpt_plan *plan, ckpt_arena *out,
                       ckpt_staged *staged, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_profile *profile = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_network *network = NULL;
    CKPT_TRY(ckpt_model_read(path, want->set, want->set_count, out, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, want->dtype, out, &model, err));
    if (want->profile != NULL) {
        CKPT_TRY(ckpt_profile_read(want->profile, out, &profile, err));
    }
    CKPT_TRY(ckpt_device_model_find(want->device != NULL ? want->device : "cpu", out, &device, err));
    const bool gpu = profile != NULL ? profile->machine.gpu : device->gpu;
    if (gpu && want->threads > 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found --threads %d, but %s is of a GPU: leave it out", want->threads,
                         profile != NULL ? want->profile : device->name);
    }
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int threads = gpu                                               ? CKPT_ON_GPU
                        : want->threads > 0                               ? want->threads
                        : profile != NULL && profile->machine.threads > 0 ? profile->machine.threads
                        : processors > 0 && processors <= THREADS_MAX     ? (int)processors
                                                                          : 1;
    CKPT_TRY(ckpt_network_infer(model, threads, out, &network, err));
    const bool planned = want->scheme_option == NULL && plan != NULL && !ckpt_scheme_is_plain(&plan->scheme);
    return ckpt_staged_lower(network, profile, device, planned ? &plan->scheme : &want->scheme, out, staged, err);
}

/* The marked layers. */
static ckpt_code choose(const request *want, const ckpt_graph *whole, ckpt_arena *out, const ckpt_graph **graph,
                        ckpt_err *err)
{
    ckpt_text notes; /* on units that stages split: they concern planning */
    ckpt_text_init(&notes);
    const ckpt_code code = want->rule_count == 0 ? CKPT_OK
                           : whole == NULL
                               ? ckpt_choose(*graph, want->rule, want->rule_count, false, NULL, out, graph, &notes, err)
                               : ckpt_choose_spread(whole, *graph, want->rule, want->rule_count, false, NULL, out,
                                                    &whole, graph, &notes, err);
    ckpt_text_fini(&notes);
    return code;
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

static ckpt_code read_graph(const char *path, const request *want, const ckpt_plan *plan, ckpt_arena *out,
                            const ckpt_graph **graph, const ckpt_graph_types **types, ckpt_err *err)
{
    bool model = false;
    CKPT_TRY(read_format(path, out, &model, err));
    if (model) {
        ckpt_staged staged;
        CKPT_TRY(lower(path, want, plan, out, &staged, err));
        *graph = staged.lowered->graph;
        CKPT_TRY(find_types(staged.lowered, out, types, err));
        return choose(want, staged.whole, out, graph, err);
    }
    if (want->scheme_option != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s is a graph, whose step is what it is: --%s is for models", path,
                         want->scheme_option);
    }
    if (want->profile != NULL || want->device != NULL || want->set_count > 0 || want->dtype != NULL ||
        want->threads > 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph and has its own times: --profile, --device, --set, --dtype and --threads are for "
            "models",
            path);
    }
    CKPT_TRY(ckpt_graph_read(path, out, graph, err));
    return choose(want, NULL, out, graph, err);
}

static ckpt_code work(const request *want, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    ckpt_plan *plan = NULL;
    const ckpt_graph_types *types = NULL;
    CKPT_TRY(want->plan != NULL ? ckpt_plan_read(want->plan, arena, &plan, err) : CKPT_OK);
    CKPT_TRY(read_graph(want->input, want, plan, arena, &graph, &types, err));
    CKPT_TRY(plan != NULL ? ckpt_plan_bind(plan, graph, err) : CKPT_OK);
    if (strcmp(want->format, "json") == 0) {
        ckpt_graph_write(graph, text);
        CKPT_TRY(ckpt_text_end(text, err));
    } else if (strcmp(want->format, "netron") == 0) {
        CKPT_TRY(ckpt_graph_netron(graph, plan, types, text, err));
    } else {
        CKPT_TRY(ckpt_graph_draw(graph, plan, want->format, want->fold, text, err));
    }
    return ckpt_file_write(want->output, text->bytes, text->length, err);
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
    request want = {.scheme = ckpt_scheme_alone};
    const int stop = parse(&cli, &want);
    if (stop >= 0) {
        return stop;
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_err err = {0};
    const ckpt_code code = work(&want, &arena, &text, &err);
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
    return code == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
}
