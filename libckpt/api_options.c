/* The options of the API. */
#include <stdio.h>
#include <string.h>

#include "libckpt/handles_impl.h"
#include "libckpt/solver_plugin.h"
#include "planner/schedule/options.h"

ckpt_options *ckpt_options_create(void)
{
    ckpt_options *const options = ckpt_handle_create(sizeof *options, offsetof(ckpt_options, texts));
    if (options != NULL) {
        ckpt_options_init(options);
    }
    return options;
}

void ckpt_options_destroy(ckpt_options *options)
{
    if (options != NULL) {
        ckpt_solver_close(options->solver_library);
        ckpt_arena_fini(&options->texts);
        ckpt_memory_put(options);
    }
}

static ckpt_code set_solver(ckpt_options *options, const char *name, ckpt_err *err)
{
    const ckpt_solver *solver = NULL;
    void *library = NULL;
    if (strcmp(name, "none") != 0) {
        CKPT_TRY(ckpt_solver_open(name, &solver, &library, err));
    }
    ckpt_solver_close(options->solver_library);
    options->solver = solver;
    options->solver_library = library;
    return CKPT_OK;
}

static ckpt_code set_option(ckpt_options *options, const char *name, const char *value, ckpt_err *err)
{
    bool taken = false;
    if (name == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found no name of an option");
    }
    if (strcmp(name, "solver") == 0) {
        return set_solver(options, value != NULL ? value : "", err);
    }
    const char *const kept_name = ckpt_arena_text(&options->texts, name);
    const char *const kept = value != NULL ? ckpt_arena_text(&options->texts, value) : NULL;
    if (kept_name == NULL || (value != NULL && kept == NULL)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for option %.80s", name);
    }
    CKPT_TRY(ckpt_options_take(options, kept_name, kept, &taken, err));
    return taken ? CKPT_OK : CKPT_FAIL(err, CKPT_BAD_INPUT, "found no option '%.80s'", name);
}

int ckpt_options_set(ckpt_options *options, const char *name, const char *value, ckpt_error *error)
{
    ckpt_err err = {0};
    return ckpt_status_of(set_option(options, name, value, &err), &err, error);
}

static ckpt_code set_json(ckpt_options *options, const char *option, const char *name, const char *json, size_t length,
                          ckpt_err *err)
{
    const struct {
        const char *name;
        ckpt_document *document;
    } documents[] = {{"profile", &options->profile}, {"device", &options->device}, {"start", &options->start}};
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        if (option != NULL && strcmp(documents[i].name, option) == 0) {
            char *const text = ckpt_arena_take(&options->texts, length + 1, 1);
            const char *const kept = ckpt_arena_text(&options->texts, name != NULL ? name : option);
            if (text == NULL || kept == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %zu bytes of option %s", length, option);
            }
            if (length > 0) {
                memcpy(text, json, length);
            }
            *documents[i].document = (ckpt_document){kept, text, length};
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "found option '%.80s', wanted profile, device or start",
                     option != NULL ? option : "");
}

int ckpt_options_set_json(ckpt_options *options, const char *option, const char *name, const char *json, size_t length,
                          ckpt_error *error)
{
    ckpt_err err = {0};
    return ckpt_status_of(set_json(options, option, name, json, length, &err), &err, error);
}

void ckpt_options_set_budget(ckpt_options *options, int64_t bytes)
{
    snprintf(options->budget_bytes, sizeof options->budget_bytes, "%lld", (long long)bytes);
    options->budget = bytes != 0 ? options->budget_bytes : NULL;
}

void ckpt_options_set_effort(ckpt_options *options, int32_t effort)
{
    options->effort = effort < CKPT_EFFORT_LOW    ? CKPT_EFFORT_LOW
                      : effort > CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST
                                                  : effort;
}

void ckpt_options_set_progress(ckpt_options *options, void (*progress)(void *context, const ckpt_progress *progress),
                               void *context)
{
    options->progress = progress;
    options->progress_context = context;
}

void ckpt_options_set_cancel(ckpt_options *options, int32_t (*cancel)(void *context), void *context)
{
    options->cancel = cancel;
    options->cancel_context = context;
}
