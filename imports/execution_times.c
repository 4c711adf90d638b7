/* Times of ops from a Kineto trace of the same run.
 *
 * Both files carry the number of each recorded function: "rf_id" here, "Record function id" there. Without a GPU an
 * op's time is that of its own event. With one it is the sum of its kernels, copies and fills: those carry the
 * "External id" of the op that launched them, or the "correlation" of a runtime call that does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "imports/execution_impl.h"

typedef struct pair {
    int64_t key;
    int64_t value;
} pair;

typedef struct table {
    pair *at;
    int count;
} table;

typedef struct reader {
    const char *path;
    const ckpt_et_trace *trace;
    ckpt_et_step *step;
    ckpt_arena scratch;
    table node_of_function; /* "rf_id" -> node */
    table node_of_external; /* "External id" -> node */
    table external_of_call; /* "correlation" -> "External id" */
    bool kernels;
    ckpt_err *err;
} reader;

static int by_key(const void *a, const void *b)
{
    const int64_t x = ((const pair *)a)->key;
    const int64_t y = ((const pair *)b)->key;
    return (x > y) - (x < y);
}

static void sort(table *t)
{
    qsort(t->at, (size_t)t->count, sizeof *t->at, by_key);
}

static const pair *find(const table *t, int64_t key)
{
    const pair wanted = {key, 0};
    return bsearch(&wanted, t->at, (size_t)t->count, sizeof wanted, by_key);
}

/* A text member without a copy that stays; "" when there is none. It lives until the scratch is rewound. */
static ckpt_code text_member(reader *r, const ckpt_item *object, const char *key, const char **text)
{
    ckpt_item item;
    *text = "";
    if (ckpt_item_find(object, key, &item) && ckpt_item_type(&item) == CKPT_JSON_TEXT) {
        return ckpt_item_text(&item, &r->scratch, text, r->err);
    }
    return CKPT_OK;
}

static bool int_member(const ckpt_item *object, const char *key, int64_t *value)
{
    ckpt_item item;
    return ckpt_item_find(object, key, &item) && ckpt_item_type(&item) == CKPT_JSON_INT &&
           ckpt_item_int(&item, 1, INT64_MAX, value, NULL) == CKPT_OK;
}

static ckpt_code duration(const reader *r, const ckpt_item *event, ckpt_ns *ns)
{
    ckpt_item item;
    double us = 0.0;
    CKPT_TRY(ckpt_item_need(event, "dur", &item, r->err));
    CKPT_TRY(ckpt_item_real(&item, &us, r->err));
    if (!(us >= 0.0 && us < 1e13)) {
        return ckpt_item_fail(&item, r->err, "found a duration of %.9g us, wanted 0 to 1e13", us);
    }
    *ns = (ckpt_ns)llround(us * 1000.0);
    return CKPT_OK;
}

static ckpt_code add_time(const reader *r, int op, ckpt_ns ns)
{
    ckpt_et_op *const o = &r->step->op[op];
    o->timed = true;
    return ckpt_sum(o->time_ns, ns, &o->time_ns)
               ? CKPT_OK
               : CKPT_FAIL(r->err, CKPT_OVERFLOW, "%.200s: times do not fit 63 bits", r->path);
}

static bool is_kernel(const char *category)
{
    return strcmp(category, "kernel") == 0 || strcmp(category, "gpu_memcpy") == 0 ||
           strcmp(category, "gpu_memset") == 0;
}

/* First walk: who is who. An event of a function of the step must have its name, or the run is another one. */
static ckpt_code learn(reader *r, const ckpt_item *event, const ckpt_item *args, const char *category)
{
    int64_t function = 0;
    int64_t external = 0;
    int64_t correlation = 0;
    const bool has_external = int_member(args, "External id", &external);
    r->kernels = r->kernels || is_kernel(category);
    if (has_external && int_member(args, "correlation", &correlation) && !is_kernel(category)) {
        r->external_of_call.at[r->external_of_call.count++] = (pair){correlation, external};
        return CKPT_OK;
    }
    const pair *const node =
        int_member(args, "Record function id", &function) ? find(&r->node_of_function, function) : NULL;
    const char *name = "";
    if (node == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(text_member(r, event, "name", &name));
    if (strcmp(name, r->trace->node[node->value].name) != 0) {
        return ckpt_item_fail(event, r->err,
                              "found function %lld to be \"%.60s\", which is \"%.60s\" in %.120s: wanted the Kineto "
                              "trace of the same run",
                              (long long)function, name, r->trace->node[node->value].name, r->trace->path);
    }
    if (has_external) {
        r->node_of_external.at[r->node_of_external.count++] = (pair){external, node->value};
    }
    return CKPT_OK;
}

/* Second walk: times. */
static ckpt_code take_time(reader *r, const ckpt_item *event, const ckpt_item *args, const char *category)
{
    int64_t number = 0;
    ckpt_ns ns = 0;
    if (is_kernel(category) != r->kernels) {
        return CKPT_OK;
    }
    const pair *found = NULL;
    if (!r->kernels) {
        found = int_member(args, "Record function id", &number) ? find(&r->node_of_function, number) : NULL;
    } else if (int_member(args, "External id", &number)) {
        found = find(&r->node_of_external, number);
    } else if (int_member(args, "correlation", &number)) {
        found = find(&r->external_of_call, number);
        found = found != NULL ? find(&r->node_of_external, found->value) : NULL;
    }
    const int op = found != NULL ? r->step->top[found->value] : -1;
    if (op < 0 || (!r->kernels && r->step->op[op].node != found->value)) {
        return CKPT_OK;
    }
    CKPT_TRY(duration(r, event, &ns));
    return add_time(r, op, ns);
}

typedef ckpt_code (*visitor)(reader *r, const ckpt_item *event, const ckpt_item *args, const char *category);

/* Complete events that have arguments. */
static ckpt_code walk(reader *r, const ckpt_item *events, int count, visitor visit)
{
    for (int i = 0; i < count; i++) {
        ckpt_item event;
        ckpt_item args;
        const char *phase = "";
        const char *category = "";
        ckpt_item_at(events, i, &event);
        CKPT_TRY(ckpt_item_object(&event, r->err));
        const ckpt_mark mark = ckpt_arena_mark(&r->scratch);
        CKPT_TRY(text_member(r, &event, "ph", &phase));
        if (strcmp(phase, "X") == 0 && ckpt_item_find(&event, "args", &args)) {
            CKPT_TRY(text_member(r, &event, "cat", &category));
            CKPT_TRY(visit(r, &event, &args, category));
        }
        ckpt_arena_rewind(&r->scratch, mark);
    }
    return CKPT_OK;
}

static ckpt_code list_functions(reader *r)
{
    for (int i = 0; i < r->trace->node_count; i++) {
        if (r->step->top[i] >= 0 && r->trace->node[i].rf_id > 0) {
            r->node_of_function.at[r->node_of_function.count++] = (pair){r->trace->node[i].rf_id, i};
        }
    }
    sort(&r->node_of_function);
    return CKPT_OK;
}

static ckpt_code read_times(reader *r, const ckpt_item *root, ckpt_et_timing *timing)
{
    ckpt_arena *const work = r->trace->work;
    ckpt_item events;
    int count = 0;
    CKPT_TRY(ckpt_item_need(root, "traceEvents", &events, r->err));
    CKPT_TRY(ckpt_item_array(&events, &count, r->err));
    r->node_of_function.at = CKPT_NEW(work, pair, r->trace->node_count);
    r->node_of_external.at = CKPT_NEW(work, pair, count);
    r->external_of_call.at = CKPT_NEW(work, pair, count);
    if (r->node_of_function.at == NULL || r->node_of_external.at == NULL || r->external_of_call.at == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d events", r->path, count);
    }
    CKPT_TRY(list_functions(r));
    CKPT_TRY(walk(r, &events, count, learn));
    sort(&r->node_of_external);
    sort(&r->external_of_call);
    CKPT_TRY(walk(r, &events, count, take_time));
    *timing = (ckpt_et_timing){.kernels = r->kernels};
    for (int i = 0; i < r->step->op_count; i++) {
        timing->wanted += !r->step->op[i].left_out;
        timing->timed += !r->step->op[i].left_out && r->step->op[i].timed;
    }
    if (timing->timed == 0) {
        return CKPT_FAIL(r->err, CKPT_BAD_INPUT,
                         "%.160s: found none of the %d ops of %.160s, wanted the Kineto trace of the same run", r->path,
                         timing->wanted, r->trace->path);
    }
    return CKPT_OK;
}

ckpt_code ckpt_et_times(const char *path, const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_et_timing *timing,
                        ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    reader r = {.path = path, .trace = trace, .step = step, .err = err};
    ckpt_arena_init(&r.scratch);
    const ckpt_code code = read_times(&r, &root, timing);
    ckpt_arena_fini(&r.scratch);
    ckpt_json_close(json);
    return code;
}
