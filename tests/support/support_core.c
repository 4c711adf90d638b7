/* The readers of all formats under one type. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/formats/curve.h"
#include "core/formats/model.h"
#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "core/formats/trace.h"

static ckpt_code read_model(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    return ckpt_model_read(path, NULL, 0, arena, &model, err);
}

static ckpt_code rewrite_graph(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    CKPT_TRY(ckpt_graph_read(path, arena, &graph, err));
    ckpt_graph_write(graph, text);
    return ckpt_text_end(text, err);
}

static ckpt_code rewrite_plan(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    CKPT_TRY(ckpt_plan_read(path, arena, &plan, err));
    ckpt_plan_write(plan, text);
    return ckpt_text_end(text, err);
}

static ckpt_code rewrite_profile(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_profile *profile = NULL;
    CKPT_TRY(ckpt_profile_read(path, arena, &profile, err));
    ckpt_profile_write(profile, text);
    return ckpt_text_end(text, err);
}

static ckpt_code rewrite_trace(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_trace *trace = NULL;
    CKPT_TRY(ckpt_trace_read(path, arena, &trace, err));
    ckpt_trace_write(trace, text);
    return ckpt_text_end(text, err);
}

static ckpt_code rewrite_sweep(const char *path, ckpt_arena *arena, ckpt_text *text, ckpt_err *err)
{
    const ckpt_curve *curve = NULL;
    CKPT_TRY(ckpt_curve_read(path, arena, &curve, err));
    ckpt_curve_write(curve, text);
    return ckpt_text_end(text, err);
}

static ckpt_code read_graph(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    return ckpt_graph_read(path, arena, &graph, err);
}

static ckpt_code read_plan(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    return ckpt_plan_read(path, arena, &plan, err);
}

static ckpt_code read_profile(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_profile *profile = NULL;
    return ckpt_profile_read(path, arena, &profile, err);
}

static ckpt_code read_trace(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_trace *trace = NULL;
    return ckpt_trace_read(path, arena, &trace, err);
}

static ckpt_code read_sweep(const char *path, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_curve *curve = NULL;
    return ckpt_curve_read(path, arena, &curve, err);
}

const ckpt_test_format ckpt_test_formats[] = {
    {"model", read_model, NULL},
    {"profile", read_profile, rewrite_profile},
    {"plan", read_plan, rewrite_plan},
    {"graph", read_graph, rewrite_graph},
    {"trace", read_trace, rewrite_trace},
    {"sweep", read_sweep, rewrite_sweep},
    {NULL, NULL, NULL},
};

const ckpt_test_format *ckpt_test_format_of(const char *path)
{
    for (const ckpt_test_format *f = ckpt_test_formats; f->kind != NULL; f++) {
        const size_t length = strlen(f->kind);
        if (strncmp(f->kind, path, length) == 0 && (path[length] == '/' || path[length] == '\0')) {
            return f;
        }
    }
    return NULL;
}

const char *ckpt_test_file(const char *name, const char *bytes, size_t length)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", ckpt_work_dir(), name);
    remove(path); /* some file systems wait for the disk when a file is cut short and written again */
    FILE *const file = fopen(path, "wb");
    CHECK(file != NULL, "cannot write %s", path);
    const size_t written = fwrite(bytes, 1, length, file);
    CHECK(fclose(file) == 0 && written == length, "cannot write %s", path);
    return path;
}

void ckpt_test_refused(const char *kind, const char *text, ckpt_code code, const char *wanted)
{
    const char *const path = ckpt_test_file("refused.json", text, strlen(text));
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_arena_init(&arena);
    const ckpt_code found = ckpt_test_format_of(kind)->read(path, &arena, &err);
    ckpt_arena_fini(&arena);
    CHECK(found == code, "code %d, wanted %d (%s): %s", (int)found, (int)code, wanted != NULL ? wanted : "", err.msg);
    const size_t skip = strlen(path) + 1;
    CHECK(strlen(err.msg) > skip && strncmp(err.msg, path, skip - 1) == 0, "no file name: %s", err.msg);
    CHECK(wanted == NULL || strncmp(err.msg + skip, wanted, strlen(wanted)) == 0, "\"%s\", wanted \"%s\"",
          err.msg + skip, wanted);
    assert_int_equal(ckpt_memory_live(), 0);
}

const char *ckpt_test_replace(const char *text, const char *old, const char *fresh)
{
    static char results[8][8192];
    static int next;
    char *const result = results[next++ % 8];
    const char *const at = strstr(text, old);
    CHECK(at != NULL, "nothing to replace: %s", old);
    snprintf(result, sizeof results[0], "%.*s%s%s", (int)(at - text), text, fresh, at + strlen(old));
    return result;
}

typedef struct starving {
    const ckpt_test_format *format;
    const char *path;
} starving;

static ckpt_code read_and_write(void *context, ckpt_err *err)
{
    const starving *const s = context;
    ckpt_arena arena;
    ckpt_text text;
    ckpt_arena_init(&arena);
    ckpt_text_init(&text);
    const ckpt_code code = s->format->rewrite != NULL ? s->format->rewrite(s->path, &arena, &text, err)
                                                      : s->format->read(s->path, &arena, err);
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
    return code;
}

void ckpt_test_starve_format(const char *kind, const char *text)
{
    starving s = {ckpt_test_format_of(kind), ckpt_test_file("starved.json", text, strlen(text))};
    const int64_t allocations = ckpt_test_starve(read_and_write, &s);
    CHECK(allocations > 6, "only %lld allocations: was anything parsed?", (long long)allocations);
}

void ckpt_test_round_trip(const char *kind, const char *text)
{
    const ckpt_test_format *const format = ckpt_test_format_of(kind);
    CKPT_TEST_ARENA(arena);
    ckpt_text once;
    ckpt_text twice;
    ckpt_err err = {0};
    ckpt_text_init(&once);
    ckpt_text_init(&twice);
    CHECK_OK(format->rewrite(ckpt_test_file("trip.json", text, strlen(text)), &arena, &once, &err), err);
    CHECK_OK(format->rewrite(ckpt_test_file("trip.json", once.bytes, once.length), &arena, &twice, &err), err);
    assert_string_equal(once.bytes, twice.bytes);
    ckpt_text_fini(&twice);
    ckpt_text_fini(&once);
}

char ckpt_test_notes[4096];

void ckpt_test_take_note(const char *line)
{
    CHECK(strpbrk(line, "\n\r") == NULL, "a note of several lines: %s", line);
    const size_t length = strlen(ckpt_test_notes);
    snprintf(ckpt_test_notes + length, sizeof ckpt_test_notes - length, "%s\n", line);
}
