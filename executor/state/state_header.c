/* The first line of a state file: what a run must agree on with it, and where the training was. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/json/json.h"
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
    ckpt_json_put_text(&w, "data", progress->data.about);
    if (progress->data.digest[0] != '\0') {
        ckpt_json_put_text(&w, "data_sha256", progress->data.digest);
        ckpt_json_put_text(&w, "data_stamp", progress->data.stamp);
    }
    ckpt_json_end(&w);
    return ckpt_text_end(text, err);
}

/* A header line that is being read. */
typedef struct reading {
    const ckpt_program *program;
    const char *path;
    ckpt_item root;
    ckpt_arena scratch;
} reading;

static ckpt_code read_count(const reading *r, const char *key, uint64_t *count, ckpt_err *err)
{
    ckpt_item item;
    int64_t found = 0;
    CKPT_TRY(ckpt_item_need(&r->root, key, &item, err));
    CKPT_TRY(ckpt_item_int(&item, 0, INT64_MAX, &found, err));
    *count = (uint64_t)found;
    return CKPT_OK;
}

/* `size` bytes for the text and its end; absent: "", if it is not `needed`. */
static ckpt_code read_text(reading *r, const char *key, bool needed, char *text, size_t size, ckpt_err *err)
{
    ckpt_item item;
    const char *found = "";
    text[0] = '\0';
    if (!needed && !ckpt_item_find(&r->root, key, &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_need(&r->root, key, &item, err));
    CKPT_TRY(ckpt_item_text(&item, &r->scratch, &found, err));
    if (strlen(found) >= size) {
        return ckpt_item_fail(&item, err, "found %zu bytes of \"%s\", wanted at most %zu", strlen(found), key,
                              size - 1);
    }
    memcpy(text, found, strlen(found) + 1);
    return CKPT_OK;
}

/* A loss is a hexadecimal float in a text; one that has diverged is inf or nan. */
static ckpt_code read_loss(reading *r, const char *key, float *loss, ckpt_err *err)
{
    ckpt_item item;
    const char *text = "", *end = NULL;
    CKPT_TRY(ckpt_item_need(&r->root, key, &item, err));
    CKPT_TRY(ckpt_item_text(&item, &r->scratch, &text, err));
    const double found = ckpt_real_parse(text, &end);
    if (end == text || *end != '\0') {
        return ckpt_item_fail(&item, err, "found \"%.40s\", wanted a number such as \"0x1.4da942p+2\"", text);
    }
    *loss = (float)found;
    return CKPT_OK;
}

/* From the CPU to a GPU or back: the values go on, the bits of what follows are the other device's. */
static bool goes_over(const ckpt_program *program, const ckpt_item *threads)
{
    int64_t found = 0;
    return ckpt_item_int(threads, 0, INT_MAX, &found, NULL) == CKPT_OK &&
           (program->lowered->network->threads == CKPT_ON_GPU) != (found == CKPT_ON_GPU);
}

/* Where the first word begins that both do not have; an optimizer's text is longer than a message. */
static size_t common_words(const char *found, const char *wanted)
{
    size_t from = 0;
    for (size_t i = 0; found[i] != '\0' && found[i] == wanted[i]; i++) {
        from = found[i] == ' ' ? i + 1 : from;
    }
    return from;
}

/* A value as this program writes it: a text or a number. */
static ckpt_code add_found(reading *r, const ckpt_item *item, ckpt_text *text, ckpt_err *err)
{
    const char *words = "";
    int64_t number = 0;
    if (ckpt_item_type(item) == CKPT_JSON_INT) {
        CKPT_TRY(ckpt_item_int(item, INT64_MIN, INT64_MAX, &number, err));
        ckpt_text_int(text, number);
    } else {
        CKPT_TRY(ckpt_item_text(item, &r->scratch, &words, err));
        ckpt_text_json(text, words);
    }
    return CKPT_OK;
}

static ckpt_code compare_value(reading *r, ckpt_state_key key, ckpt_text *found, ckpt_text *wanted, ckpt_err *err)
{
    ckpt_item item;
    CKPT_TRY(ckpt_item_need(&r->root, state_key[key].key, &item, err));
    CKPT_TRY(add_found(r, &item, found, err));
    CKPT_TRY(add_value(r->program, key, wanted, err));
    CKPT_TRY(ckpt_text_end(found, err));
    CKPT_TRY(ckpt_text_end(wanted, err));
    if (strcmp(found->bytes, wanted->bytes) == 0 || (key == KEY_THREADS && goes_over(r->program, &item))) {
        return CKPT_OK;
    }
    const size_t from = common_words(found->bytes, wanted->bytes);
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.160s: the state is of %s %s%.*s; this run has %s%.*s", r->path,
                     state_key[key].about, from > 0 ? "..." : "", SHOWN_MAX, found->bytes + from, from > 0 ? "..." : "",
                     SHOWN_MAX, wanted->bytes + from);
}

static ckpt_code check_header(reading *r, bool to_train, ckpt_err *err)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        if (!to_train && (key == KEY_THREADS || key == KEY_GRAPH)) {
            continue; /* weights are good for any batch and any threads */
        }
        ckpt_text found, wanted;
        ckpt_text_init(&found);
        ckpt_text_init(&wanted);
        const ckpt_code code = compare_value(r, (ckpt_state_key)key, &found, &wanted, err);
        ckpt_text_fini(&found);
        ckpt_text_fini(&wanted);
        CKPT_TRY(code);
    }
    return CKPT_OK;
}

/* The sum of gradients over a step is of so many batches, and the data go on behind them. */
static ckpt_code check_batches(const reading *r, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &r->program->lowered->network->scheme;
    uint64_t found = 1;
    ckpt_item item;
    if (ckpt_item_find(&r->root, "batches", &item)) {
        CKPT_TRY(read_count(r, "batches", &found, err));
    }
    if (found == batches_per_step(r->program)) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT,
                     "%s: the state is of a training with %" PRIu64 " batch%s in a step; this one has %" PRIu64
                     " (%d micro-batch%s of %d replica%s): plan with --micro-batches and --replicas of that product",
                     r->path, found, found == 1 ? "" : "es", batches_per_step(r->program), scheme->micro_batches,
                     scheme->micro_batches == 1 ? "" : "es", scheme->replicas, scheme->replicas == 1 ? "" : "s");
}

/* The best validation, which only a training that had one writes. */
static ckpt_code read_best(reading *r, ckpt_validated *validated, ckpt_err *err)
{
    uint64_t stale = 0;
    ckpt_item item;
    *validated = (ckpt_validated){.best = INFINITY};
    if (ckpt_item_find(&r->root, "due", &item)) {
        CKPT_TRY(ckpt_item_bool(&item, &validated->due, err));
    }
    if (!ckpt_item_find(&r->root, "best", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(read_loss(r, "best", &validated->best, err));
    if (!isfinite(validated->best)) {
        return ckpt_item_fail(&item, err, "a lowest loss that is not finite");
    }
    CKPT_TRY(read_count(r, "stale", &stale, err));
    validated->stale = stale < INT_MAX ? (int)stale : INT_MAX;
    return CKPT_OK;
}

static ckpt_code read_header(reading *r, bool to_train, ckpt_progress *progress, ckpt_err *err)
{
    ckpt_data_identity *const data = &progress->data;
    CKPT_TRY(check_header(r, to_train, err));
    CKPT_TRY(to_train ? check_batches(r, err) : CKPT_OK);
    CKPT_TRY(read_count(r, "seed", &progress->seed, err));
    CKPT_TRY(read_count(r, "step", &progress->steps, err));
    CKPT_TRY(read_loss(r, "loss", &progress->last_loss, err));
    CKPT_TRY(read_best(r, &progress->validated, err));
    CKPT_TRY(read_text(r, "data", true, data->about, sizeof data->about, err));
    CKPT_TRY(read_text(r, "data_sha256", false, data->digest, sizeof data->digest, err));
    return read_text(r, "data_stamp", false, data->stamp, sizeof data->stamp, err);
}

ckpt_code ckpt_state_header_read(const ckpt_program *program, const char *header, bool to_train, const char *path,
                                 ckpt_progress *progress, ckpt_err *err)
{
    reading r = {.program = program, .path = path};
    ckpt_json *json = NULL;
    CKPT_TRY(ckpt_json_open_text(path, header, strlen(header), NULL, &json, &r.root, err));
    ckpt_arena_init(&r.scratch);
    const ckpt_code code = read_header(&r, to_train, progress, err);
    ckpt_arena_fini(&r.scratch);
    ckpt_json_close(json);
    return code;
}
