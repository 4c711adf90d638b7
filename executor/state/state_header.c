/* The first line of a state file: what a run must agree on with it, and where the training was. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/json/json_write.h"
#include "executor/state/sections_impl.h"
#include "executor/state/state_impl.h"

enum { SHOWN_MAX = 120 }; /* characters of a value in a message */

/* What a state must agree on with this training, as "key": value pairs in this order. */
typedef enum ckpt_state_key {
    KEY_FORMAT,
    KEY_MODEL,
    KEY_PARAMETERS,
    KEY_OPTIMIZER,
    KEY_THREADS,
    KEY_GRAPH,
    KEY_COUNT
} ckpt_state_key;

static const struct {
    const char *key;
    const char *about; /* "the state is of <about> <found>, this run has <wanted>" */
} state_key[KEY_COUNT] = {
    [KEY_FORMAT] = {"format", "format"},
    [KEY_MODEL] = {"model", "model"},
    [KEY_PARAMETERS] = {"parameters", "a model with other parameters or attributes, digest"},
    [KEY_OPTIMIZER] = {"optimizer", "optimizer"},
    [KEY_THREADS] = {"threads", "a run with threads ="},
    [KEY_GRAPH] = {"graph", "the same model with another batch, dtype or other layers, graph digest"},
};

/* Attributes are defaults, numbers and words: every field that a kind does not use is 0. */
static void add_attr(const ckpt_attr_spec *spec, const ckpt_attr *attr, ckpt_text *text)
{
    ckpt_text_add(text, " %s=%" PRId64 " %.17g %s", spec->name, attr->integer, attr->real,
                  attr->string != NULL ? attr->string : "");
    for (int i = 0; i < attr->int_count; i++) {
        ckpt_text_add(text, ",%" PRId64, attr->ints[i]);
    }
}

/* Every layer's attributes, and every parameter's and statistic's name and shape, hashed: two models with the same text
 * share their states. */
static ckpt_code parameters_digest(const ckpt_network *network, char digest_text[CKPT_DIGEST_TEXT], ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    char shape[CKPT_SHAPE_TEXT];
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        ckpt_text_add(&text, "%s %s", node->name, node->op->name);
        for (int i = 0; node->op->attrs != NULL && node->op->attrs[i].name != NULL; i++) {
            add_attr(&node->op->attrs[i], &node->attr[i], &text);
        }
        ckpt_text_add(&text, "\n");
        for (int k = 0; k < node->param_count; k++) {
            ckpt_text_add(&text, "%s %s %s %d %s\n", node->name, node->op->name, node->param[k].tensor.name,
                          node->param[k].tied, ckpt_shape_show(&node->param[k].tensor.shape, shape));
        }
        for (int k = 0; k < node->stat_count; k++) {
            ckpt_text_add(&text, "%s %s %s %s\n", node->name, node->op->name, node->stat[k].tensor.name,
                          ckpt_shape_show(&node->stat[k].tensor.shape, shape));
        }
    }
    ckpt_code code = ckpt_text_end(&text, err);
    ckpt_digest *const digest = code == CKPT_OK ? ckpt_digest_create() : NULL;
    if (digest != NULL) {
        ckpt_digest_add(digest, text.bytes, text.length);
        ckpt_digest_end(digest, digest_text);
    } else if (code == CKPT_OK) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    ckpt_text_fini(&text);
    return code;
}

static bool is_plain(const ckpt_schedule *schedule)
{
    return schedule->kind == CKPT_SCHEDULE_CONSTANT && schedule->warmup == 0;
}

static void add_schedule(const char *key, const ckpt_schedule *schedule, ckpt_text *text)
{
    if (!is_plain(schedule)) {
        ckpt_text_add(text, " %s=", key);
        ckpt_schedule_show(schedule, text);
    }
}

static void add_optimizer(const ckpt_network *network, ckpt_text *text)
{
    ckpt_text about;
    ckpt_text_init(&about);
    ckpt_text_add(&about, "%s", network->optimizer->name);
    for (int i = 0; network->optimizer->attrs != NULL && network->optimizer->attrs[i].name != NULL; i++) {
        ckpt_text_add(&about, " %s=%.17g", network->optimizer->attrs[i].name, network->hyper[i]);
    }
    if (network->clip_norm > 0) {
        ckpt_text_add(&about, " clip_norm=%.17g", network->clip_norm);
    }
    if (network->loss_scale != 1) {
        ckpt_text_add(&about, " loss_scale=%.17g", network->loss_scale);
    }
    if (network->ema > 0) {
        ckpt_text_add(&about, " ema=%.17g", network->ema);
    }
    add_schedule("schedule", &network->model->schedule, &about);
    add_schedule("clip_schedule", &network->model->clip_schedule, &about);
    for (int g = 0; g < network->model->group_count; g++) {
        const ckpt_model_group *const group = &network->model->group[g];
        ckpt_text_add(&about, " %s:lr=%.17g", group->match, group->lr);
        if (group->weight_decay >= 0) {
            ckpt_text_add(&about, ":weight_decay=%.17g", group->weight_decay);
        }
        if (group->matrix != CKPT_UNSET) {
            ckpt_text_add(&about, ":matrix=%d", group->matrix == CKPT_YES);
        }
    }
    text->failed = text->failed || about.failed;
    ckpt_text_json(text, about.bytes != NULL ? about.bytes : "");
    ckpt_text_fini(&about);
}

/* The digests are those of the model for one rank with one micro-batch on a CPU: all schemes and devices have them. */
static ckpt_code model_digest(const ckpt_program *program, ckpt_state_key key, char digest[CKPT_DIGEST_TEXT],
                              ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_network plain;
    const ckpt_lowered *lowered = NULL;
    ckpt_code code = ckpt_whole_network(program, &scratch, &plain, err);
    plain.threads = 1;
    if (code == CKPT_OK && key == KEY_PARAMETERS) {
        code = parameters_digest(&plain, digest, err);
    } else if (code == CKPT_OK) {
        code = ckpt_network_lower(&plain, NULL, NULL, &scratch, &lowered, err);
        code = code == CKPT_OK ? ckpt_graph_digest(lowered->graph, digest, err) : code;
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* The value of `key` as this training would write it. */
static ckpt_code add_value(const ckpt_program *program, ckpt_state_key key, ckpt_text *text, ckpt_err *err)
{
    const ckpt_network *const network = program->lowered->network;
    char digest[CKPT_DIGEST_TEXT];
    switch (key) {
    case KEY_FORMAT: ckpt_text_json(text, "ckpt-state/1"); break;
    case KEY_MODEL: ckpt_text_json(text, network->model->name); break;
    case KEY_OPTIMIZER: add_optimizer(network, text); break;
    case KEY_THREADS: ckpt_text_add(text, "%d", network->threads); break;
    case KEY_PARAMETERS:
    case KEY_GRAPH:
        CKPT_TRY(model_digest(program, key, digest, err));
        ckpt_text_json(text, digest);
        break;
    case KEY_COUNT: break;
    }
    return CKPT_OK;
}

static uint64_t batches_per_step(const ckpt_program *program)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    return (uint64_t)scheme->micro_batches * (uint64_t)scheme->replicas;
}

ckpt_code ckpt_state_header_add(const ckpt_program *program, const ckpt_progress *progress, ckpt_text *text,
                                ckpt_err *err)
{
    char loss[32];
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    for (int key = 0; key < KEY_COUNT; key++) {
        ckpt_json_put_here(&w, state_key[key].key);
        CKPT_TRY(add_value(program, (ckpt_state_key)key, text, err));
    }
    if (batches_per_step(program) != 1) {
        ckpt_json_put_int(&w, "batches", (int64_t)batches_per_step(program));
    }
    ckpt_json_put_here(&w, "seed");
    ckpt_text_add(text, "%" PRIu64, progress->seed);
    ckpt_json_put_int(&w, "step", (int64_t)progress->steps);
    snprintf(loss, sizeof loss, "%a", (double)progress->last_loss);
    ckpt_json_put_text(&w, "loss", loss);
    if (isfinite(progress->validated.best)) {
        snprintf(loss, sizeof loss, "%a", (double)progress->validated.best);
        ckpt_json_put_text(&w, "best", loss);
        ckpt_json_put_int(&w, "stale", progress->validated.stale);
    }
    if (progress->validated.due) {
        ckpt_json_put_bool(&w, "due", true);
    }
    ckpt_json_put_text(&w, "data", progress->data);
    ckpt_json_end(&w);
    return ckpt_text_end(text, err);
}

/* The text of a member's value in the header line, which ends at ", \"" or "}"; NULL when it is not there. */
static const char *find_member(const char *header, const char *key, size_t *length)
{
    const size_t key_length = strlen(key);
    for (const char *at = strchr(header, '"'); at != NULL; at = strchr(at + 1, '"')) {
        if (strncmp(at + 1, key, key_length) == 0 && strncmp(at + 1 + key_length, "\": ", 3) == 0) {
            const char *const value = at + 1 + key_length + 3;
            const char *const next = strstr(value, ", \"");
            const char *const end = next != NULL ? next : strrchr(value, '}');
            *length = end != NULL ? (size_t)(end - value) : strlen(value);
            return value;
        }
    }
    return NULL;
}

static ckpt_code read_count(const char *header, const char *key, const char *path, uint64_t *count, ckpt_err *err)
{
    size_t length = 0;
    const char *const value = find_member(header, key, &length);
    char *end = NULL;
    errno = 0;
    const unsigned long long found = value != NULL ? strtoull(value, &end, 10) : 0;
    if (value == NULL || errno != 0 || end != value + length || value[0] == '-') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line has no \"%s\" that is a count", path, key);
    }
    *count = found;
    return CKPT_OK;
}

/* Is the next quote behind so many characters that need no escapes? */
static bool ends_plain(const char *words, size_t length)
{
    size_t i = 0;
    while (words[i] >= ' ' && words[i] <= '~' && words[i] != '"' && words[i] != '\\') {
        i++;
    }
    return i == length && words[i] == '"';
}

/* The text of a member between its quotes, into `size` bytes; what we write there needs no escapes. */
static ckpt_code read_words(const char *header, const char *key, const char *path, char *words, size_t size,
                            ckpt_err *err)
{
    size_t length = 0;
    const char *const value = find_member(header, key, &length);
    if (value == NULL || length < 2 || length - 2 >= size || value[0] != '"' || !ends_plain(value + 1, length - 2)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the first line has no \"%s\" of at most %zu characters", path, key,
                         size - 1);
    }
    memcpy(words, value + 1, length - 2);
    words[length - 2] = '\0';
    return CKPT_OK;
}

/* From the CPU to a GPU or back: the values go on, the bits of what follows are the other device's. */
static bool goes_over(const ckpt_program *program, const char *found)
{
    const bool counted = found != NULL && found[0] >= '0' && found[0] <= '9';
    return counted && (program->lowered->network->threads == CKPT_ON_GPU) != (strtol(found, NULL, 10) == CKPT_ON_GPU);
}

/* Where the first word begins that both do not have; an optimizer's text is longer than a message. */
static size_t common_words(const char *found, size_t length, const char *wanted)
{
    size_t from = 0;
    for (size_t i = 0; i < length && found[i] == wanted[i]; i++) {
        from = found[i] == ' ' ? i + 1 : from;
    }
    return from;
}

static ckpt_code check_header(const ckpt_program *program, const char *header, bool to_train, const char *path,
                              ckpt_err *err)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        if (!to_train && (key == KEY_THREADS || key == KEY_GRAPH)) {
            continue; /* weights are good for any batch and any threads */
        }
        ckpt_text wanted;
        ckpt_text_init(&wanted);
        ckpt_code code = add_value(program, (ckpt_state_key)key, &wanted, err);
        if (code == CKPT_OK) {
            code = ckpt_text_end(&wanted, err);
        }
        size_t length = 0;
        const char *const found = find_member(header, state_key[key].key, &length);
        const bool same = code == CKPT_OK && found != NULL && strncmp(found, wanted.bytes, wanted.length) == 0 &&
                          (found[wanted.length] == ',' || found[wanted.length] == '}');
        if (code == CKPT_OK && !same && key == KEY_THREADS && goes_over(program, found)) {
            ckpt_text_fini(&wanted);
            continue;
        }
        if (code == CKPT_OK && !same) {
            const size_t from = found != NULL ? common_words(found, length, wanted.bytes) : 0;
            const size_t left = length - from < SHOWN_MAX ? length - from : SHOWN_MAX;
            code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%.160s: the state is of %s %s%.*s; this run has %s%.*s", path,
                             state_key[key].about, from > 0 ? "..." : "", (int)left, found != NULL ? found + from : "",
                             from > 0 ? "..." : "", SHOWN_MAX, wanted.bytes + from);
        }
        ckpt_text_fini(&wanted);
        CKPT_TRY(code);
    }
    return CKPT_OK;
}

/* The sum of gradients over a step is of so many batches, and the data go on behind them. */
static ckpt_code check_batches(const ckpt_program *program, const char *header, const char *path, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    uint64_t found = 1;
    size_t length = 0;
    if (find_member(header, "batches", &length) != NULL) {
        CKPT_TRY(read_count(header, "batches", path, &found, err));
    }
    if (found == batches_per_step(program)) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT,
                     "%s: the state is of a training with %" PRIu64 " batch%s in a step; this one has %" PRIu64
                     " (%d micro-batch%s of %d replica%s), whose steps are others",
                     path, found, found == 1 ? "" : "es", batches_per_step(program), scheme->micro_batches,
                     scheme->micro_batches == 1 ? "" : "es", scheme->replicas, scheme->replicas == 1 ? "" : "s");
}

/* The best validation, which only a training that had one writes. */
static ckpt_code read_best(const char *header, const char *path, ckpt_progress *progress, ckpt_err *err)
{
    char loss[40];
    uint64_t stale = 0;
    size_t length = 0;
    progress->validated = (ckpt_validated){.best = INFINITY, .due = find_member(header, "due", &length) != NULL};
    if (find_member(header, "best", &length) == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(read_words(header, "best", path, loss, sizeof loss, err));
    CKPT_TRY(read_count(header, "stale", path, &stale, err));
    progress->validated.best = strtof(loss, NULL);
    progress->validated.stale = stale < INT_MAX ? (int)stale : INT_MAX;
    return CKPT_OK;
}

ckpt_code ckpt_state_header_read(const ckpt_program *program, const char *header, bool to_train, const char *path,
                                 ckpt_progress *progress, ckpt_err *err)
{
    char loss[40];
    CKPT_TRY(check_header(program, header, to_train, path, err));
    CKPT_TRY(to_train ? check_batches(program, header, path, err) : CKPT_OK);
    CKPT_TRY(read_count(header, "seed", path, &progress->seed, err));
    CKPT_TRY(read_count(header, "step", path, &progress->steps, err));
    CKPT_TRY(read_words(header, "loss", path, loss, sizeof loss, err));
    progress->last_loss = strtof(loss, NULL);
    CKPT_TRY(read_best(header, path, progress, err));
    return read_words(header, "data", path, progress->data, sizeof progress->data, err);
}
