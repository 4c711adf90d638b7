/* What people write on a command line: a line NAME=VALUE each. What is taken can be written as words, which are taken too. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/units.h"
#include "core/formats/expression_impl.h"
#include "core/formats/schedule.h"
#include "libckpt/options.h"

static ckpt_code take_schedule(const char *value, ckpt_err *err)
{
    ckpt_schedule schedule, again;
    ckpt_text text;
    CKPT_TRY(ckpt_schedule_parse(value, &schedule, err));
    ckpt_text_init(&text);
    ckpt_schedule_show(&schedule, &text);
    FUZZ_CHECK(ckpt_schedule_parse(text.bytes, &again, err) == CKPT_OK, "schedule %s: %s", text.bytes, err->msg);
    FUZZ_CHECK(again.kind == schedule.kind && again.warmup == schedule.warmup && again.steps == schedule.steps &&
                   again.every == schedule.every && again.min == schedule.min && again.factor == schedule.factor,
               "another schedule: %s", text.bytes);
    ckpt_text_fini(&text);
    return CKPT_OK;
}

/* Numbers with units. *taken false: NAME is none of them. */
static ckpt_code take_number(const char *name, const char *value, bool *taken, ckpt_err *err)
{
    int64_t a = 0, b = 0;
    ckpt_number number;
    const ckpt_var var[] = {{.name = "n", .value = 3}};
    ckpt_code code = CKPT_OK;
    *taken = true;
    if (strcmp(name, "bytes") == 0) {
        code = ckpt_bytes_parse(value, 1000, &a, err);
    } else if (strcmp(name, "ns") == 0) {
        code = ckpt_ns_parse(value, &a, err);
    } else if (strcmp(name, "percent") == 0) {
        code = ckpt_percent_parse(value, &a, err);
    } else if (strcmp(name, "rates") == 0) {
        code = ckpt_link_parse(value, &a, &b, err);
    } else if (strcmp(name, "schedule") == 0) {
        code = take_schedule(value, err);
    } else if (strcmp(name, "expression") == 0) {
        code = ckpt_expression_eval(value, var, 1, 2, &number, err);
    } else {
        *taken = false;
    }
    FUZZ_CHECK(code != CKPT_OK || (a >= 0 && b >= 0) || strcmp(name, "percent") == 0, "%s=%s: below 0", name, value);
    return code;
}

static ckpt_code take_line(ckpt_options *options, char *line, ckpt_err *err)
{
    char *const equals = strchr(line, '=');
    bool taken = false;
    if (equals == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "no line of ours");
    }
    *equals = '\0';
    CKPT_TRY(take_number(line, equals + 1, &taken, err));
    if (!taken) {
        CKPT_TRY(ckpt_options_take(options, line, equals + 1, &taken, err));
    }
    return taken ? CKPT_OK : CKPT_FAIL(err, CKPT_BAD_INPUT, "no option of ours");
}

static bool is_switch(const char *name)
{
    int32_t count = 0;
    const ckpt_option_info *const info = ckpt_options_list(&count);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(info[i].name, name) == 0) {
            return info[i].argument == NULL;
        }
    }
    return false;
}

static void take_words(const ckpt_options *options, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_options again;
    const char *const *word = NULL, *const *second = NULL;
    int count = 0, second_count = 0;
    FUZZ_CHECK(ckpt_options_words(options, NULL, NULL, arena, &word, &count, err) == CKPT_OK, "%s", err->msg);
    ckpt_options_init(&again);
    for (int i = 0; i < count; i++) {
        bool taken = false;
        const char *const value = i + 1 < count && !is_switch(word[i] + 2) ? word[i + 1] : NULL;
        const ckpt_code code = ckpt_options_take(&again, word[i] + 2, value, &taken, err);
        FUZZ_CHECK(code == CKPT_OK && taken, "%s %s: %s", word[i], value != NULL ? value : "", err->msg);
        i += value != NULL;
    }
    FUZZ_CHECK(ckpt_options_words(&again, NULL, NULL, arena, &second, &second_count, err) == CKPT_OK, "%s", err->msg);
    FUZZ_CHECK(second_count == count, "%d words, then %d", count, second_count);
    for (int i = 0; i < count; i++) {
        FUZZ_CHECK(strcmp(word[i], second[i]) == 0, "\"%s\", then \"%s\"", word[i], second[i]);
    }
}

static ckpt_code read_options(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_options options;
    CKPT_TRY(ckpt_file_read(path, arena, &bytes, &length, err));
    ckpt_options_init(&options);
    for (char *line = (char *)bytes, *next = line; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        CKPT_TRY(take_line(&options, line, err));
    }
    CKPT_TRY(ckpt_options_check(&options, err));
    take_words(&options, arena, err);
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {.name = "options", .split = fuzz_split_text, .read = read_options};
