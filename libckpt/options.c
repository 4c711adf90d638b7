/* The table of options, and what is in it as words again. */
#include "libckpt/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/formats/machine.h"
#include "planner/schedule/options.h"

enum { WORDS_MAX = 2 * (32 + CKPT_SETS_MAX + CKPT_RULES_MAX) + 2 };

typedef struct option_row {
    const char *name;
    const char *argument; /* NULL: a switch */
    ckpt_code (*take)(ckpt_options *options, const struct option_row *option, const char *value, ckpt_err *err);
    size_t offset; /* of its field in ckpt_options */
} option_row;

static void *field_of(ckpt_options *options, const option_row *option)
{
    return (char *)options + option->offset;
}

static ckpt_code take_text(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    (void)err;
    *(const char **)field_of(options, option) = value;
    return CKPT_OK;
}

static ckpt_code take_document(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    (void)err;
    *(ckpt_document *)field_of(options, option) = (ckpt_document){.name = value};
    return CKPT_OK;
}

static ckpt_code take_flag(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    (void)value;
    (void)err;
    *(bool *)field_of(options, option) = true;
    return CKPT_OK;
}

static ckpt_code take_effort(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    return ckpt_int_parse(value, CKPT_EFFORT_LOW, CKPT_EFFORT_MOST, field_of(options, option))
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found --effort '%s', wanted %d to %d", value, CKPT_EFFORT_LOW,
                           CKPT_EFFORT_MOST);
}

static ckpt_code take_threads(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    return ckpt_int_parse(value, 1, CKPT_THREADS_MAX, field_of(options, option))
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found --threads '%s', wanted 1 to %d", value, CKPT_THREADS_MAX);
}

static ckpt_code take_seconds(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    const char *end = NULL;
    const double seconds = ckpt_real_parse(value, &end);
    if (end == value || *end != '\0' || !(seconds > 0 && seconds < 1e9)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found --time-limit '%s', wanted seconds, more than 0", value);
    }
    *(double *)field_of(options, option) = seconds;
    return CKPT_OK;
}

static ckpt_code take_set(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    (void)option;
    if (options->set_count == CKPT_SETS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found more than %d --set", CKPT_SETS_MAX);
    }
    options->set[options->set_count++] = value;
    return CKPT_OK;
}

static const char *const rule_options[] = {"--checkpoint", "--keep", "--offload", "--policy"}; /* by ckpt_rule_kind */

static ckpt_code take_rule(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    int kind = CKPT_RULE_CHECKPOINT;
    while (strcmp(rule_options[kind] + 2, option->name) != 0) {
        kind++;
    }
    if (options->rule_count == CKPT_RULES_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found more than %d --checkpoint, --keep, --offload and --policy",
                         CKPT_RULES_MAX);
    }
    options->rule[options->rule_count++] = (ckpt_rule){(ckpt_rule_kind)kind, value};
    return CKPT_OK;
}

static ckpt_code take_scheme(ckpt_options *options, const option_row *option, const char *value, ckpt_err *err)
{
    bool taken = false;
    options->scheme_option = options->scheme_option == NULL ? option->name : options->scheme_option;
    return ckpt_scheme_take(&options->scheme, option->name, value, &taken, &options->stage_given, err);
}

/* clang-format off */
#define ROW(name, letter, argument, help, take, field) {name, argument, take_##take, offsetof(ckpt_options, field)},
static const option_row table[] = {CKPT_PLAN_OPTIONS(ROW)};
#undef ROW
#define ROW(name, letter, argument, help, take, field) {name, argument, help},
static const ckpt_option_info listed[] = {
    CKPT_PLAN_OPTIONS(ROW)
    {"solver", "glpk|none", "the plug-in that solves linear programs, for effort 2 and 3 and strategy ilp (none)"},
};
#undef ROW
/* clang-format on */

const ckpt_option_info *ckpt_options_list(int32_t *count)
{
    *count = sizeof listed / sizeof *listed;
    return listed;
}

void ckpt_options_init(ckpt_options *options)
{
    *options = (ckpt_options){.effort = CKPT_EFFORT_NORMAL, .scheme = ckpt_scheme_alone};
    ckpt_arena_init(&options->texts);
}

ckpt_code ckpt_options_take(ckpt_options *options, const char *name, const char *value, bool *taken, ckpt_err *err)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) == 0) {
            *taken = true;
            if (value == NULL && table[i].argument != NULL) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT, "found no value for --%s", name);
            }
            return table[i].take(options, &table[i], value, err);
        }
    }
    *taken = false;
    return CKPT_OK;
}

bool ckpt_options_staged(const ckpt_options *options)
{
    return options->scheme.stages > 1 && !options->stage_given;
}

static ckpt_code check_scheme(const ckpt_options *options, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &options->scheme;
    if (options->stage_given && scheme->stages == 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--stage is one of --pipeline-stages N, and there are none");
    }
    CKPT_TRY(ckpt_scheme_check(scheme, err));
    if (scheme->replicas == 1 && scheme->bucket_bytes != ckpt_scheme_alone.bucket_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--bucket is of gradients that data-parallel ranks exchange, and there is one: add "
                         "--replicas N");
    }
    if (ckpt_scheme_ranks(scheme) == 1 && scheme->network_bytes_per_s != ckpt_scheme_alone.network_bytes_per_s) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--network is between ranks, and there is one: add --replicas N or --pipeline-stages N");
    }
    return CKPT_OK;
}

ckpt_code ckpt_options_check(const ckpt_options *options, ckpt_err *err)
{
    CKPT_TRY(check_scheme(options, err));
    if (options->ignore_flags && options->rule_count == 0 && options->strategy != NULL &&
        strcmp(options->strategy, "flags") == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found --strategy flags and --ignore-flags, wanted one of them");
    }
    return options->reserve == NULL || options->budget != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "--reserve is kept of a --budget, and none is given");
}

typedef struct words {
    const char **word;
    int count;
    ckpt_arena *out;
    bool failed; /* no memory for one of them */
} words;

static void add_word(words *w, const char *word)
{
    w->word[w->count] = ckpt_arena_text(w->out, word);
    w->failed = w->failed || w->word[w->count++] == NULL;
}

/* "--name value"; `value` NULL: not given. */
static void add_words(words *w, const char *name, const char *value)
{
    if (value != NULL) {
        add_word(w, name);
        add_word(w, value);
    }
}

static void add_count(words *w, const char *name, int64_t count, int64_t usual)
{
    if (count != usual) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)count);
        add_words(w, name, text);
    }
}

static void add_scheme(words *w, const ckpt_scheme *scheme)
{
    const ckpt_scheme *const usual = &ckpt_scheme_alone;
    add_count(w, "--micro-batches", scheme->micro_batches, usual->micro_batches);
    add_count(w, "--replicas", scheme->replicas, usual->replicas);
    add_count(w, "--pipeline-stages", scheme->stages, usual->stages);
    add_count(w, "--stage", scheme->stages > 1 ? scheme->stage : -1, -1);
    add_words(w, "--gradients", scheme->fused ? "fused" : NULL);
    add_words(w, "--tied", scheme->apart ? "apart" : NULL);
    add_words(w, "--shard", scheme->shard_optimizer ? "optimizer" : NULL);
    if (scheme->overlap) {
        add_word(w, "--overlap");
    }
    add_count(w, "--bucket", scheme->bucket_bytes, usual->bucket_bytes);
    if (scheme->network_bytes_per_s != usual->network_bytes_per_s) {
        char text[32];
        snprintf(text, sizeof text, "%lldB/s", (long long)scheme->network_bytes_per_s);
        add_words(w, "--network", text);
    }
}

/* Before the model's options; and those. `maximize` stands among them, as it ever did. */
static void add_planning(words *w, const ckpt_options *o)
{
    add_words(w, "--budget", o->budget);
    add_words(w, "--reserve", o->reserve);
    add_words(w, "--strategy", o->strategy);
    add_count(w, "--effort", o->effort, CKPT_EFFORT_NORMAL);
    if (o->time_limit > 0) {
        char text[CKPT_REAL_TEXT];
        add_words(w, "--time-limit", ckpt_real_general(o->time_limit, 6, text));
    }
    for (int i = 0; i < o->rule_count; i++) {
        add_words(w, rule_options[o->rule[i].kind], o->rule[i].text);
    }
    if (o->ignore_flags) {
        add_word(w, "--ignore-flags");
    }
    if (o->allow_inexact) {
        add_word(w, "--allow-inexact");
    }
    if (o->reorder) {
        add_word(w, "--reorder");
    }
    add_words(w, "--start", o->start.name);
}

static void add_model(words *w, const ckpt_options *o, const char *maximize)
{
    add_words(w, "--profile", o->profile.name);
    add_words(w, "--device", o->device.name);
    add_words(w, "--maximize", maximize);
    for (int i = 0; i < o->set_count; i++) {
        add_words(w, "--set", o->set[i]);
    }
    add_words(w, "--dtype", o->dtype);
    add_words(w, "--optimizer", o->optimizer);
    add_count(w, "--threads", o->threads, 0);
    add_scheme(w, &o->scheme);
}

static ckpt_code begin_words(words *w, ckpt_arena *out, ckpt_err *err)
{
    *w = (words){.word = CKPT_NEW(out, const char *, WORDS_MAX), .out = out};
    return w->word != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "options of a plan");
}

static ckpt_code end_words(const words *w, const char *const **list, int *count, ckpt_err *err)
{
    *list = w->word;
    *count = w->count;
    return !w->failed ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "options of a plan");
}

ckpt_code ckpt_options_words(const ckpt_options *options, const char *input, const char *maximize, ckpt_arena *out,
                             const char *const **list, int *count, ckpt_err *err)
{
    words w;
    CKPT_TRY(begin_words(&w, out, err));
    add_planning(&w, options);
    add_model(&w, options, maximize);
    add_words(&w, "--link", options->link);
    add_words(&w, "--host-memory", options->host_memory);
    if (input != NULL) {
        w.word[w.count] = ckpt_arena_format(out, "%s%s", input[0] == '-' ? "./" : "", input);
        w.failed = w.failed || w.word[w.count++] == NULL;
    }
    return end_words(&w, list, count, err);
}

ckpt_code ckpt_options_model_words(const ckpt_options *options, ckpt_arena *out, const char *const **list, int *count,
                                   ckpt_err *err)
{
    words w;
    CKPT_TRY(begin_words(&w, out, err));
    add_model(&w, options, NULL);
    return end_words(&w, list, count, err);
}
