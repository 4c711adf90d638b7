/* ckpt-view: draws memory over time of plans and traces, and overhead over budget of sweeps. Inputs are told apart by their "format", outputs by their extension. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/file.h"
#include "programs/cli/cli.h"
#include "viz/draw/draw.h"
#include "viz/pipeline/pipeline.h"
#include "viz/timeline/live_ranges.h"
#include "viz/viz.h"

enum { INPUTS = CKPT_VIEW_STAGES, LARGEST = 16384 };

static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE",
     "file to write, its extension is the format; - is standard output (default: draw in the terminal)"},
    {"format", 'f', "svg|png|pdf|txt|html|json|csv",
     "format, whatever the file is called; json: trace events for Perfetto"},
    {"axis", 'a', "steps|time",
     "steps: predicted and measured line up (default with a plan); time: each on its own clock"},
    {"capacity", 'c', "SIZE", "memory of the device, drawn as a line (default: the trace's)"},
    {"width", 'W', "N", "in pixels, or columns of a terminal"},
    {"height", 'H', "N", "in pixels, or rows of a terminal"},
    {NULL, 0, NULL, NULL},
};

static const char *const examples[] = {
    "ckpt-view plan.json",
    "draw a plan in the terminal",
    "ckpt-view predicted.json measured.json -o memory.svg",
    "what the plan promised and what training did, one over the other",
    "ckpt-view plan.json -o plan.html",
    "a page to search and zoom in",
    "ckpt-view measured.json -o trace.json",
    "for ui.perfetto.dev",
    "ckpt-view trace.stage-*.json -o pipeline.svg",
    "the stages of a pipeline on one clock, with their bubbles",
    "ckpt-view sweep.json plan.json -o curve.pdf",
    "overhead over budget, with the plan marked",
    NULL,
};

typedef struct request {
    const char *path[INPUTS];
    int count;
    const char *output, *format;
    ckpt_view_options view;
} request;

/* What was read, in the order it was given. */
typedef struct inputs {
    const ckpt_trace *trace[INPUTS]; /* NULL: a plan whose trace is not yet predicted */
    const ckpt_plan *plan[INPUTS];   /* NULL: a trace */
    int count;
    const ckpt_curve *curve; /* NULL: none */
} inputs;

/* The terminal's width. POSIX 2008 has only an environment variable, but systems have the call. */
static void measure_terminal(ckpt_view_options *view)
{
    const char *const columns = getenv("COLUMNS");
    if (view->width == 0 && columns != NULL) {
        (void)ckpt_int_parse(columns, 1, LARGEST, &view->width);
    }
#ifdef TIOCGWINSZ
    struct winsize size;
    if (view->width == 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        view->width = size.ws_col;
        view->height = view->height == 0 && size.ws_row > 2 ? size.ws_row - 2 : view->height;
    }
#endif
}

/* May characters beyond ASCII be printed? The first of three variables that is set decides. The C library is not asked: it knows only installed locales. */
static bool locale_is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *const value = getenv(variables[i]);
        if (value != NULL && value[0] != '\0') {
            const char *const dot = strchr(value, '.');
            return dot != NULL && (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
        }
    }
    return false;
}

/* -1: go on; else the exit code. */
static int take(ckpt_cli *cli, request *want, const char *name, const char *value)
{
    if (strcmp(name, "output") == 0) {
        want->output = value;
    } else if (strcmp(name, "format") == 0) {
        want->format = value;
    } else if (strcmp(name, "axis") == 0) {
        if (strcmp(value, "steps") != 0 && strcmp(value, "time") != 0) {
            return ckpt_cli_usage(cli, "found axis \"%s\", wanted steps or time", value);
        }
        want->view.time_axis = strcmp(value, "time") == 0;
        want->view.step_axis = !want->view.time_axis;
    } else if (strcmp(name, "capacity") == 0) {
        ckpt_err err = {0};
        if (ckpt_bytes_parse(value, 0, &want->view.capacity_bytes, &err) != CKPT_OK) {
            return ckpt_cli_usage(cli, "--capacity: %s", err.msg);
        }
    } else if (name[0] != '\0') {
        int *const size = strcmp(name, "width") == 0 ? &want->view.width : &want->view.height;
        if (!ckpt_int_parse(value, 1, LARGEST, size)) {
            return ckpt_cli_usage(cli, "found --%s %s, wanted a number from 1 to %d", name, value, LARGEST);
        }
    } else if (want->count == INPUTS) {
        return ckpt_cli_usage(cli, "found more than %d files", INPUTS);
    } else {
        want->path[want->count++] = value;
    }
    return -1;
}

static const char *const formats[] = {"svg", "png", "pdf", "txt", "html", "json", "csv", NULL};

/* The output format: --format, or the file's extension. */
static int choose_format(ckpt_cli *cli, request *want)
{
    want->output = want->output != NULL ? want->output : "-";
    const bool standard = strcmp(want->output, "-") == 0;
    if (want->format == NULL && standard) {
        want->format = "txt";
    } else if (want->format == NULL) {
        const char *const slash = strrchr(want->output, '/');
        const char *const dot = strrchr(slash != NULL ? slash : want->output, '.');
        if (dot == NULL) {
            return ckpt_cli_usage(cli,
                                  "%s has no extension that names a format: .svg, .png, .pdf, .txt, .html, .json "
                                  "(Chrome's trace format) or .csv",
                                  want->output);
        }
        want->format = strcmp(dot, ".htm") == 0 ? "html" : dot + 1;
    }
    bool known = false;
    for (int i = 0; formats[i] != NULL; i++) {
        known = known || strcmp(formats[i], want->format) == 0;
    }
    if (!known) {
        return ckpt_cli_usage(cli, "found format \"%s\", wanted svg, png, pdf, txt, html, json or csv", want->format);
    }
    const bool binary = strcmp(want->format, "png") == 0 || strcmp(want->format, "pdf") == 0;
    if (binary && standard && isatty(STDOUT_FILENO) == 1) {
        return ckpt_cli_usage(cli, "a terminal does not show %s: -o FILE", want->format);
    }
    return -1;
}

static int parse(ckpt_cli *cli, request *want)
{
    const char *name = NULL, *value = NULL;
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
    if (want->count == 0) {
        return ckpt_cli_usage(cli, "no plan, trace or sweep given");
    }
    return choose_format(cli, want);
}

/* The kind named by the first "format" in the file, such as "ckpt-plan"; "" if there is none. Only a hint which reader to call: the reader checks it. */
static ckpt_code kind_of(const char *path, ckpt_arena *arena, char kind[20], ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(arena);
    const char *bytes = NULL;
    size_t length = 0;
    kind[0] = '\0';
    CKPT_TRY(ckpt_file_read(path, arena, &bytes, &length, err));
    const char *at = strstr(bytes, "\"format\"");
    if (at != NULL) {
        at += strlen("\"format\"");
        at += strspn(at, " \t\r\n:");
        const size_t letters = *at == '"' ? strcspn(at + 1, "/\"\n") : 0;
        if (letters < 20) {
            memcpy(kind, at + 1, letters);
            kind[letters] = '\0';
        }
    }
    ckpt_arena_rewind(arena, mark);
    return CKPT_OK;
}

static ckpt_code read_one(const char *path, ckpt_arena *arena, inputs *in, ckpt_err *err)
{
    char kind[20];
    CKPT_TRY(kind_of(path, arena, kind, err));
    if (strcmp(kind, "ckpt-plan") == 0) {
        ckpt_plan *plan = NULL;
        CKPT_TRY(ckpt_plan_read(path, arena, &plan, err));
        in->plan[in->count++] = plan;
        return CKPT_OK;
    }
    if (strcmp(kind, "ckpt-sweep") == 0) {
        if (in->curve != NULL) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: found a second sweep, one is drawn at a time", path);
        }
        return ckpt_curve_read(path, arena, &in->curve, err);
    }
    if (strcmp(kind, "ckpt-graph") == 0 || strcmp(kind, "ckpt-model") == 0 || strcmp(kind, "ckpt-profile") == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: found a %s, wanted a plan, a trace or a sweep%s", path,
                         kind + strlen("ckpt-"), strcmp(kind, "ckpt-profile") == 0 ? "" : "; ckpt-graph draws it");
    }
    return ckpt_trace_read(path, arena, &in->trace[in->count++], err);
}

/* The device's memory, from --capacity. */
static ckpt_code set_capacity(const request *want, ckpt_arena *arena, const ckpt_trace **trace, ckpt_err *err)
{
    ckpt_trace *const copy = CKPT_NEW(arena, ckpt_trace, 1);
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace");
    }
    *copy = **trace;
    copy->capacity_bytes = want->view.capacity_bytes;
    *trace = copy;
    return CKPT_OK;
}

static ckpt_code read_all(const request *want, ckpt_arena *arena, inputs *in, ckpt_err *err)
{
    for (int i = 0; i < want->count; i++) {
        CKPT_TRY(read_one(want->path[i], arena, in, err));
    }
    for (int i = 0; i < in->count; i++) {
        if (in->curve == NULL && in->plan[i] != NULL) {
            CKPT_TRY(ckpt_plan_as_trace(in->plan[i], arena, &in->trace[i], err));
        } else if (in->curve != NULL && in->plan[i] == NULL) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%.100s: found a trace beside the sweep %.100s, wanted only plans of its graph to mark",
                             in->trace[i]->source, in->curve->source);
        }
        if (in->trace[i] != NULL && want->view.capacity_bytes > 0) {
            CKPT_TRY(set_capacity(want, arena, &in->trace[i], err));
        }
    }
    return CKPT_OK;
}

static ckpt_code draw_curve(const request *want, const inputs *in, ckpt_text *text, ckpt_err *err)
{
    if (ckpt_renderer_find(want->format) == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: found a sweep, which cannot be drawn as %s, only as %s",
                         in->curve->source, want->format, ckpt_renderer_names());
    }
    return ckpt_curve_draw(in->curve, in->plan, in->count, want->format, &want->view, text, err);
}

typedef struct drawing {
    const request *want;
    const inputs *in;
} drawing;

static ckpt_code draw(const void *what, ckpt_text *text, ckpt_err *err)
{
    const request *const want = ((const drawing *)what)->want;
    const inputs *const in = ((const drawing *)what)->in;
    if (in->curve != NULL) {
        return draw_curve(want, in, text, err);
    }
    bool traces = !want->view.step_axis && ckpt_renderer_find(want->format) != NULL;
    for (int i = 0; i < in->count; i++) {
        traces = traces && in->plan[i] == NULL; /* each plan is on a clock of its own */
    }
    if (traces && ckpt_pipeline_traces(in->trace, in->count)) {
        return ckpt_pipeline_draw(in->trace, in->count, want->format, &want->view, text, err);
    }
    if (strcmp(want->format, "json") == 0) {
        return ckpt_view_chrome(in->trace, in->count, text, err);
    }
    if (strcmp(want->format, "html") == 0) {
        return ckpt_view_html(in->trace, in->count, &want->view, text, err);
    }
    if (strcmp(want->format, "csv") == 0) {
        return ckpt_view_csv(in->trace, in->count, text, err);
    }
    return ckpt_view_draw(in->trace, in->count, want->format, &want->view, text, err);
}

static ckpt_code check_files(const request *want, ckpt_err *err)
{
    ckpt_cli_file file[INPUTS + 1];
    for (int i = 0; i < want->count; i++) {
        file[i] = (ckpt_cli_file){"what is drawn", .path = want->path[i]};
    }
    file[want->count] = (ckpt_cli_file){"-o", want->output, .written = true};
    return ckpt_cli_check_files(file, want->count + 1, err);
}

static ckpt_code view(const request *want, ckpt_arena *arena, ckpt_err *err)
{
    inputs in = {.curve = NULL};
    ckpt_text text;
    CKPT_TRY(check_files(want, err));
    CKPT_TRY(read_all(want, arena, &in, err));
    CKPT_TRY(ckpt_file_begin_text(want->output, &text, err));
    const drawing d = {want, &in};
    const bool paint = strcmp(want->format, "png") == 0 || strcmp(want->format, "pdf") == 0; /* by Cairo */
    const ckpt_code code = paint
                               ? ckpt_cli_apart(strcmp(want->format, "png") == 0 ? "drawing as png" : "drawing as pdf",
                                                draw, &d, &text, err)
                               : draw(&d, &text, err);
    return ckpt_file_end_text(&text, code, err);
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {
        .program = "ckpt-view",
        .usage = "ckpt-view [options] FILE...",
        .about =
            "Draw memory over one training step: 1 to 8 plans, predicted and measured traces, the budget, and what "
            "makes\n"
            "the peak. Or draw the run of a program that follows no plan; the traces of up to 64 pipeline stages and\n"
            "their bubbles; a sweep, overhead over budget, with plans marked. A file of - is read from standard input.",
        .option = options,
        .example = examples,
        .argc = argc,
        .argv = argv};
    request want = {.view = {0}};
    const int stop = parse(&cli, &want);
    if (stop >= 0) {
        return stop;
    }
    ckpt_cli_outlive_limits();
    if (strcmp(want.format, "txt") == 0 && strcmp(want.output, "-") == 0) {
        want.view.color = ckpt_cli_color(&cli, stdout);
        want.view.ascii = !locale_is_utf8();
        measure_terminal(&want.view);
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_code code = view(&want, &arena, &err);
    ckpt_arena_fini(&arena);
    return code == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
}
