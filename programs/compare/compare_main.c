/* ckpt-compare: compares plans, profiles, traces or sweeps with a base of their kind; limits can fail a build. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "programs/cli/cli.h"
#include "viz/compare/compare.h"

enum { OUTPUTS = 8, LIMITS = 64 };

static const ckpt_cli_option options[] = {
    {"max", 'm', "METRIC=VALUE,...", "limit what NEW may have: peak=6GiB,step_time=500ms; repeatable"},
    {"max-increase", 'i', "METRIC=VALUE,...",
     "limit what NEW may have more than BASE: peak=0,step_time=3%; repeatable"},
    {"exit-code", 0, NULL, "exit with 1 if any metric is worse, or a plan no longer fits"},
    {"warn-only", 0, NULL, "report what exceeds a limit, but exit with 0"},
    {"force", 0, NULL, "compare even what is not comparable, and say why it is not"},
    {"alpha", 0, "P", "significance level of the test of measured times (0.05)"},
    {"output", 'o', "FILE", "write .txt, .md, .csv, .json, .xml (JUnit) or .html too; - is stdout; repeatable"},
    {"format", 'f', "txt|md|csv|json|xml|html",
     "format of every -o, whatever the files are called; without -o, of what is printed"},
    {"json", 0, NULL, "print the result as JSON"},
    {"github", 0, NULL, "in GitHub Actions: add to the step's summary, and annotate the run"},
    {"list-metrics", 0, NULL, "print the metrics that limits may name, and exit"},
    {NULL, 0, NULL, NULL},
};

static const char *const examples[] = {
    "ckpt-compare old.json new.json",
    "what is better and worse, and which layers and buffers made it so",
    "ckpt-compare --max-increase peak=0,step_time=3% base.json plan.json",
    "fail when the plan needs more memory, or takes 3 % more time",
    "ckpt-compare --exit-code -o report.md -o report.xml base.json new.json",
    "fail when anything is worse; write a report for people, and one for the CI server",
    NULL,
};

/* A form of the report. */
typedef struct form {
    const char *name;
    void (*write)(const ckpt_compare_report *report, ckpt_text *text);
} form;

static void write_text(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_compare_text(report, false, text);
}

static void write_markdown(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_compare_markdown(report, 0, text);
}

static const form forms[] = {
    {"txt", write_text},         {"md", write_markdown},      {"csv", ckpt_compare_csv},
    {"json", ckpt_compare_json}, {"xml", ckpt_compare_junit}, {"html", ckpt_compare_html},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

typedef struct output {
    const char *path;
    const form *form;
} output;

typedef struct request {
    const char **file; /* BASE, then each NEW */
    int file_count;
    output output[OUTPUTS];
    int output_count;
    ckpt_limit limit[LIMITS];
    ckpt_compare_options compare;
    const form *form; /* of --format */
    bool github, list;
} request;

static const form *find_form(const char *name)
{
    for (int i = 0; i < FORMS; i++) {
        if (strcmp(forms[i].name, name) == 0) {
            return &forms[i];
        }
    }
    return NULL;
}

/* -1: go on; else the exit code. */
static int add_output(const ckpt_cli *cli, request *want, const char *path, const form *in)
{
    if (want->output_count == OUTPUTS) {
        return ckpt_cli_usage(cli, "found more than %d outputs", OUTPUTS);
    }
    want->output[want->output_count++] = (output){path, in};
    return -1;
}

/* The form of each output, by its name or --format. */
static int choose_forms(const ckpt_cli *cli, request *want)
{
    for (int i = 0; i < want->output_count; i++) {
        output *const o = &want->output[i];
        const char *const slash = strrchr(o->path, '/');
        const char *const dot = strrchr(slash != NULL ? slash : o->path, '.');
        const form *const by_name = dot != NULL ? find_form(dot + 1) : strcmp(o->path, "-") == 0 ? &forms[0] : NULL;
        o->form = o->form != NULL ? o->form : want->form != NULL ? want->form : by_name;
        if (o->form == NULL) {
            return ckpt_cli_usage(cli, "%s has no extension that names a form: .txt, .md, .csv, .json, .xml or .html",
                                  o->path);
        }
    }
    return -1;
}

static int add_limits(const ckpt_cli *cli, request *want, const char *name, const char *value, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const bool increase = strcmp(name, "max-increase") == 0;
    const ckpt_code code =
        ckpt_limits_parse(value, increase, want->limit, LIMITS, &want->compare.limit_count, arena, &err);
    return code == CKPT_OK ? -1 : ckpt_cli_fail(cli, &err);
}

static int take(const ckpt_cli *cli, request *want, const char *name, const char *value, ckpt_arena *arena)
{
    if (strcmp(name, "max") == 0 || strcmp(name, "max-increase") == 0) {
        return add_limits(cli, want, name, value, arena);
    }
    if (strcmp(name, "output") == 0) {
        return add_output(cli, want, value, NULL);
    }
    if (strcmp(name, "format") == 0) {
        want->form = find_form(value);
        return want->form != NULL
                   ? -1
                   : ckpt_cli_usage(cli, "found format \"%.40s\", wanted txt, md, csv, json, xml or html", value);
    }
    if (strcmp(name, "alpha") == 0) {
        char *end = NULL;
        want->compare.alpha = strtod(value, &end);
        return end != value && *end == '\0' && want->compare.alpha > 0 && want->compare.alpha < 1
                   ? -1
                   : ckpt_cli_usage(cli, "found --alpha %.40s, wanted a number between 0 and 1", value);
    }
    if (name[0] == '\0') {
        want->file[want->file_count++] = value;
        return -1;
    }
    if (strcmp(name, "json") == 0) {
        return add_output(cli, want, "-", find_form("json"));
    }
    bool *const flag = strcmp(name, "exit-code") == 0   ? &want->compare.exit_code
                       : strcmp(name, "warn-only") == 0 ? &want->compare.warn_only
                       : strcmp(name, "force") == 0     ? &want->compare.force
                       : strcmp(name, "github") == 0    ? &want->github
                                                        : &want->list;
    *flag = true;
    return -1;
}

/* -1: go on; else the exit code. */
static int parse(ckpt_cli *cli, request *want, ckpt_arena *arena)
{
    const char *name = NULL, *value = NULL;
    int more = 0, stop = -1;
    while (stop < 0 && (more = ckpt_cli_next(cli, &name, &value)) > 0) {
        stop = take(cli, want, name, value, arena);
    }
    if (stop >= 0 || more < 0) {
        return stop >= 0 ? stop : more == -1 ? 0 : 2;
    }
    if (want->list) {
        return -1;
    }
    if (want->file_count < 2) {
        return ckpt_cli_usage(cli, want->file_count == 0 ? "no files given: wanted BASE and NEW" : "no NEW given");
    }
    stop = want->form != NULL && want->output_count == 0 ? add_output(cli, want, "-", NULL) : -1;
    return stop >= 0 ? stop : choose_forms(cli, want);
}

static bool takes_stdout(const request *want)
{
    for (int i = 0; i < want->output_count; i++) {
        if (strcmp(want->output[i].path, "-") == 0) {
            return true;
        }
    }
    return false;
}

static ckpt_code write_form(const ckpt_compare_report *report, const output *to, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    to->form->write(report, &text);
    return ckpt_file_write_text(to->path, &text, err);
}

/* Text for people, unless another form goes to standard output. */
static ckpt_code print_text(const ckpt_cli *cli, const ckpt_compare_report *report, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_compare_text(report, ckpt_cli_color(cli, stdout), &text);
    return ckpt_file_write_text("-", &text, err);
}

/* The file that GitHub shows; NULL: there is none. */
static const char *summary_path(void)
{
    const char *const path = getenv("GITHUB_STEP_SUMMARY");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* GitHub shows nothing of a summary above 1 MiB. */
static ckpt_code add_summary(const ckpt_compare_report *report, const char *path, ckpt_err *err)
{
    const long most = 1 << 20;
    FILE *const file = fopen(path, "ab");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        const ckpt_code code = CKPT_FAIL(err, CKPT_IO, "%.200s: %s", path, strerror(errno));
        return file == NULL || fclose(file) == 0 ? code : CKPT_IO;
    }
    const long taken = ftell(file), room = taken >= 0 && taken < most ? most - taken : 0;
    ckpt_text text;
    ckpt_text_init(&text);
    if (room > 1) {
        ckpt_compare_markdown(report, (size_t)room, &text);
    }
    ckpt_code code = ckpt_text_end(&text, err);
    if (code == CKPT_OK && (text.length == 0 || text.length > (size_t)room)) {
        ckpt_cli_note("ckpt-compare", "no room in the step's summary: it holds %ld bytes already", taken);
    } else if (code == CKPT_OK && fwrite(text.bytes, 1, text.length, file) != text.length) {
        code = CKPT_FAIL(err, CKPT_IO, "%.200s: %s", path, strerror(errno));
    }
    ckpt_text_fini(&text);
    return fclose(file) == 0 || code != CKPT_OK ? code : CKPT_FAIL(err, CKPT_IO, "%.200s: %s", path, strerror(errno));
}

/* GitHub's runner reads commands from both streams: they go to the one without a report. */
static ckpt_code tell_github(const ckpt_compare_report *report, bool stdout_taken, ckpt_err *err)
{
    const char *const path = summary_path();
    if (path != NULL) {
        CKPT_TRY(add_summary(report, path, err));
    } else {
        ckpt_cli_note("ckpt-compare", "GITHUB_STEP_SUMMARY is not set: no summary is written");
    }
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_compare_annotations(report, &text);
    const ckpt_code code = ckpt_text_end(&text, err);
    if (code == CKPT_OK && text.length > 0) {
        fwrite(text.bytes, 1, text.length, stdout_taken ? stderr : stdout);
    }
    ckpt_text_fini(&text);
    return code;
}

static ckpt_code list_metrics(ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_metrics_text(&text);
    return ckpt_file_write_text("-", &text, err);
}

static ckpt_code check_files(const request *want, ckpt_arena *arena, ckpt_err *err)
{
    int count = 0;
    ckpt_cli_file *const file = CKPT_NEW(arena, ckpt_cli_file, want->file_count + want->output_count + 1);
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d files", want->file_count);
    }
    for (int i = 0; i < want->file_count; i++) {
        file[count++] = (ckpt_cli_file){i == 0 ? "BASE" : "NEW", .path = want->file[i]};
    }
    if (want->github) {
        file[count++] = (ckpt_cli_file){"GITHUB_STEP_SUMMARY", summary_path(), .written = true, .unprobed = true};
    }
    for (int i = 0; i < want->output_count; i++) {
        file[count++] = (ckpt_cli_file){"-o", want->output[i].path, .written = true};
    }
    return ckpt_cli_check_files(file, count, err);
}

static ckpt_code compare(const ckpt_cli *cli, request *want, ckpt_arena *arena, int *status, ckpt_err *err)
{
    if (want->list) {
        return list_metrics(err);
    }
    CKPT_TRY(check_files(want, arena, err));
    ckpt_compare_file *const file = CKPT_NEW(arena, ckpt_compare_file, want->file_count);
    const ckpt_compare_report *report = NULL;
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d files", want->file_count);
    }
    for (int i = 0; i < want->file_count; i++) {
        CKPT_TRY(ckpt_compare_read(want->file[i], arena, &file[i], err));
    }
    want->compare.limit = want->limit;
    CKPT_TRY(ckpt_compare_make(&file[0], &file[1], want->file_count - 1, &want->compare, arena, &report, err));
    for (int i = 0; i < want->output_count; i++) {
        CKPT_TRY(write_form(report, &want->output[i], err));
    }
    if (!takes_stdout(want)) {
        CKPT_TRY(print_text(cli, report, err));
    }
    if (want->github) {
        CKPT_TRY(tell_github(report, takes_stdout(want), err));
    }
    *status = report->status;
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    ckpt_cli cli = {
        .program = "ckpt-compare",
        .usage = "ckpt-compare [options] BASE.json NEW.json...",
        .about = "Show what is better and worse in NEW than in BASE, and why: two plans, profiles, traces or sweeps, "
                 "told apart\n"
                 "by their \"format\". Each of several NEW is compared with BASE. Planned bytes and times are exact: "
                 "one byte\n"
                 "more is worse. Measured times differ only where a statistical test says so.",
        .option = options,
        .example = examples,
        .status = "0 within limits, 1 a limit exceeded (with --exit-code: anything worse), 2 bad usage or input,\n"
                  "3 no memory, 4 not comparable: another network, device, number of threads or source of costs; see "
                  "--force. A changed\n"
                  "model is compared layer by layer",
        .argc = argc,
        .argv = argv};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    int status = 0;
    request want = {.file = CKPT_NEW(&arena, const char *, argc)};
    int code =
        want.file != NULL ? parse(&cli, &want, &arena) : ckpt_cli_usage(&cli, "no memory for %d arguments", argc);
    if (code < 0) {
        ckpt_cli_outlive_limits();
        code = compare(&cli, &want, &arena, &status, &err) == CKPT_OK ? status : ckpt_cli_fail(&cli, &err);
    }
    ckpt_arena_fini(&arena);
    return ckpt_cli_end(&cli, code);
}
