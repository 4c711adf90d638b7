/* ckpt-graph: lower a model to a graph, or read one; write it as JSON or draw it. Links no kernel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli.h"
#include "core/file.h"
#include "core/json.h"
#include "ops/network.h"
#include "viz/viz.h"

enum { SETS = 64, THREADS_MAX = 4096, FOLD_MAX = 1000000 };

static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE", "write .json, .dot, .svg, .png or .pdf; - (default) is standard output"},
    {"format", 'f', "json|dot|svg|png|pdf|netron",
     "whatever the file is called; netron: an ONNX model as JSON, for Netron (default: json)"},
    {"plan", 'P', "FILE", "show what this plan keeps, recomputes and offloads"},
    {"fold", 0, "N", "draw repeated blocks once when there are more than N layers (default: 300)"},
    {"profile", 'p', "FILE", "times and workspaces as ckpt-profile measured them"},
    {"device", 'd', "NAME", "without a profile: roofline of this device, or of a JSON file's (default: cpu)"},
    {"set", 0, "VAR=N", "override a variable of the model; may be repeated"},
    {"dtype", 0, "TYPE", "of the model's activations: float32 or bfloat16 (default: as the model says)"},
    {"threads", 't', "N",
     "threads that workspaces are counted for (default: the profile's, or all processors; a GPU has none)"},
    {"list-ops", 0, NULL, "print every op and optimizer a model can name, as Markdown, and exit"},
    {NULL, 0, NULL, NULL},
};

static const char *const examples[] = {"ckpt-graph models/gpt2-124m.json -o gpt2.svg",
                                       "draw the network",
                                       "ckpt-graph --plan plan.json models/gpt2-124m.json -o gpt2.pdf",
                                       "and what a plan does to it",
                                       "ckpt-graph --format netron models/gpt2-124m.json -o gpt2.onnx.json",
                                       "the training step, for Netron",
                                       NULL};

static void list_attributes(const ckpt_attr_spec *spec)
{
    printf("%s", spec != NULL && spec->name != NULL ? "\n" : "");
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

/* docs/ops.md is this, and a test compares them. */
static int list_ops(void)
{
    printf("# Ops\n\nWritten by `ckpt-graph --list-ops`. In brackets: the default; of words, the first.\n");
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        printf("\n## %s\n\n`%s`\n\nSource: %s. Inputs: %d", (*op)->name, (*op)->formula, (*op)->source, (*op)->in_min);
        if ((*op)->in_max > (*op)->in_min) {
            printf(" to %d", (*op)->in_max);
        }
        printf(".\n");
        list_attributes((*op)->attrs);
    }
    printf("\n# Optimizers\n");
    for (const ckpt_optimizer *const *optimizer = ckpt_optimizer_table; *optimizer != NULL; optimizer++) {
        printf("\n## %s\n\n`%s`\n\nSource: %s.\n", (*optimizer)->name, (*optimizer)->formula, (*optimizer)->source);
        list_attributes((*optimizer)->attrs);
    }
    return 0;
}

typedef struct request {
    const char *input, *output, *format, *plan, *profile, *device, *dtype;
    const char *set[SETS];
    int set_count, threads, fold;
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

static ckpt_code lower(const char *path, const request *want, ckpt_arena *out, const ckpt_lowered **lowered,
                       ckpt_err *err)
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
    return ckpt_network_lower(network, profile, device, out, lowered, err);
}

/* What the layers compute, and the shapes of what buffers hold. */
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
        const char *const name = network->node[lowered->op_role[i].node].op->name;
        op[i] = graph->op[i].phase == CKPT_FORWARD
                    ? name
                    : ckpt_arena_format(out, "%s/%s", name, ckpt_phase_name(graph->op[i].phase));
        if (op[i] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the type of op %d", i);
        }
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_buffer_role *const role = &lowered->buffer_role[b];
        buffer[b] = role->holds == CKPT_HOLDS_SAVED ? &network->node[role->node].saved[role->saved]
                                                    : &network->value[role->value].tensor;
    }
    *found = (ckpt_graph_types){op, buffer};
    *types = found;
    return CKPT_OK;
}

static ckpt_code read_graph(const char *path, const request *want, ckpt_arena *out, const ckpt_graph **graph,
                            const ckpt_graph_types **types, ckpt_err *err)
{
    bool model = false;
    CKPT_TRY(read_format(path, out, &model, err));
    if (model) {
        const ckpt_lowered *lowered = NULL;
        CKPT_TRY(lower(path, want, out, &lowered, err));
        *graph = lowered->graph;
        return find_types(lowered, out, types, err);
    }
    if (want->profile != NULL || want->device != NULL || want->set_count > 0 || want->dtype != NULL ||
        want->threads > 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph and has its own times: --profile, --device, --set, --dtype and --threads are for "
            "models",
            path);
    }
    return ckpt_graph_read(path, out, graph, err);
}

static ckpt_code work(const request *want, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    ckpt_plan *plan = NULL;
    const ckpt_graph_types *types = NULL;
    CKPT_TRY(read_graph(want->input, want, arena, &graph, &types, err));
    if (want->plan != NULL) {
        CKPT_TRY(ckpt_plan_read(want->plan, arena, &plan, err));
        CKPT_TRY(ckpt_plan_bind(plan, graph, err));
    }
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
    request want = {.input = NULL};
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
