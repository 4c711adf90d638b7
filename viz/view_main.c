/* ckpt-view: memory over time of predicted and measured traces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/cli.h"
#include "core/file.h"
#include "viz/viz.h"

enum { TRACES = 8, LARGEST = 16384 };

static const ckpt_cli_option options[] = {
    {"output", 'o', "FILE", "write .svg, .png, .pdf or .txt; - is standard output; default: draw in the terminal"},
    {"format", 'f', "FORMAT", "svg, png, pdf or txt, whatever the file is called"},
    {"axis", 'a', "AXIS",
     "steps: predicted and measured fall together (default with a plan); time: each on its own clock"},
    {"width", 'W', "N", "pixels; columns of a terminal"},
    {"height", 'H', "N", "pixels; rows of a terminal"},
    {NULL, 0, NULL, NULL},
};

typedef struct request {
    const char *trace[TRACES];
    int trace_count;
    const char *output, *format;
    ckpt_view_options view;
} request;

static bool size_of(const char *text, int *size)
{
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > LARGEST) {
        return false;
    }
    *size = (int)value;
    return true;
}

/* Terminals tell their width; POSIX 2008 has only the environment, systems have the call. */
static void measure_terminal(ckpt_view_options *view)
{
    const char *const columns = getenv("COLUMNS");
    if (view->width == 0 && columns != NULL) {
        (void)size_of(columns, &view->width);
    }
#ifdef TIOCGWINSZ
    struct winsize size;
    if (view->width == 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        view->width = size.ws_col;
        view->height = view->height == 0 && size.ws_row > 2 ? size.ws_row - 2 : view->height;
    }
#endif
}

/* -1: go on; else the exit code. */
static int parse(ckpt_cli *cli, request *want)
{
    const char *name = NULL, *value = NULL;
    int more = 0;
    while ((more = ckpt_cli_next(cli, &name, &value)) > 0) {
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
        } else if (name[0] != '\0') {
            int *const size = strcmp(name, "width") == 0 ? &want->view.width : &want->view.height;
            if (!size_of(value, size)) {
                return ckpt_cli_usage(cli, "found --%s %s, wanted a number from 1 to %d", name, value, LARGEST);
            }
        } else if (want->trace_count == TRACES) {
            return ckpt_cli_usage(cli, "found more than %d traces", TRACES);
        } else {
            want->trace[want->trace_count++] = value;
        }
    }
    if (more < 0) {
        return more == -1 ? 0 : 2;
    }
    if (want->trace_count == 0) {
        return ckpt_cli_usage(cli, "no trace given");
    }
    want->output = want->output != NULL ? want->output : "-";
    if (want->format == NULL && strcmp(want->output, "-") == 0) {
        want->format = "txt";
    } else if (want->format == NULL) {
        const char *const slash = strrchr(want->output, '/');
        const char *const dot = strrchr(slash != NULL ? slash : want->output, '.');
        if (dot == NULL) {
            return ckpt_cli_usage(cli, "%s has no extension that names a format: .svg, .png, .pdf or .txt",
                                  want->output);
        }
        want->format = dot + 1;
    }
    return -1;
}

static ckpt_code view(const request *want, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_trace *trace[TRACES];
    for (int i = 0; i < want->trace_count; i++) {
        CKPT_TRY(ckpt_trace_read(want->trace[i], arena, &trace[i], err));
    }
    CKPT_TRY(ckpt_view_draw(trace, want->trace_count, want->format, &want->view, text, err));
    return ckpt_file_write(want->output, text->bytes, text->length, err);
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {.program = "ckpt-view",
                    .usage = "ckpt-view [options] trace.json...",
                    .about =
                        "Draw memory over one training step: 1 to 8 predicted and measured traces under the budget "
                        "line,\nwith what makes the peak; or over the run of a program that follows no plan.\n"
                        "A trace of - is read from standard input.",
                    .option = options,
                    .argc = argc,
                    .argv = argv};
    request want = {.view = {0}};
    const int stop = parse(&cli, &want);
    if (stop >= 0) {
        return stop;
    }
    if (strcmp(want.format, "txt") == 0 && strcmp(want.output, "-") == 0) {
        want.view.color = ckpt_cli_color(&cli, stdout);
        measure_terminal(&want.view);
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_err err = {0};
    const ckpt_code code = view(&want, &arena, &text, &err);
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
    return code == CKPT_OK ? 0 : ckpt_cli_fail(&cli, &err);
}
