/* Times of ops from a Kineto trace of the same run.
 *
 * Both files carry the number of each recorded function: "rf_id" here, "Record function id" there. Without a GPU an
 * op's time is that of its own event. With one it is the sum of its kernels, copies and fills: those carry the
 * "External id" of the op that launched them, or the "correlation" of a runtime call that does. */
#include <stdlib.h>
#include <string.h>

#include "imports/chrome_impl.h"
#include "imports/execution_impl.h"

typedef struct pair {
    int64_t key, value;
} pair;

typedef struct table {
    pair *at;
    int count;
} table;

typedef struct reader {
    const ckpt_et_trace *trace;
    ckpt_et_step *step;
    ckpt_chrome chrome;
    table node_of_function; /* "Record function id" -> node */
    table node_of_external; /* "External id" -> node */
    table external_of_call; /* "correlation" -> "External id" */
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
    return key < 0 ? NULL : bsearch(&wanted, t->at, (size_t)t->count, sizeof wanted, by_key);
}

/* The event of a function of the step must have its name, or the run is another one. */
static ckpt_code check_name(reader *r, const ckpt_chrome_span *span, const ckpt_et_node *node)
{
    const ckpt_mark mark = ckpt_arena_mark(r->trace->work);
    const char *const name = ckpt_slice_text(span->name, r->trace->work);
    if (name == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for a name", r->chrome.scan.source);
    }
    if (strcmp(name, node->name) != 0) {
        return ckpt_scan_fail(&r->chrome.scan, span->name.at, r->err,
                              "found function %lld to be \"%.60s\", which is \"%.60s\" in %.100s: wanted the Kineto "
                              "trace of the same run",
                              (long long)span->function, name, node->name, r->trace->path);
    }
    ckpt_arena_rewind(r->trace->work, mark);
    return CKPT_OK;
}

static ckpt_code add_time(const reader *r, int op, ckpt_ns ns)
{
    ckpt_et_op *const o = &r->step->op[op];
    o->timed = true;
    return ckpt_sum(o->time_ns, ns, &o->time_ns)
               ? CKPT_OK
               : CKPT_FAIL(r->err, CKPT_OVERFLOW, "%.200s: times do not fit 63 bits", r->chrome.scan.source);
}

/* Who is who, and without a GPU how long the op took. */
static ckpt_code learn(reader *r, const ckpt_chrome_span *span, bool kernels)
{
    if (span->kind == CKPT_CHROME_LAUNCH && span->correlation >= 0 && span->external >= 0) {
        r->external_of_call.at[r->external_of_call.count++] = (pair){span->correlation, span->external};
    }
    const pair *const found = span->kind == CKPT_CHROME_OP ? find(&r->node_of_function, span->function) : NULL;
    if (found == NULL) {
        return CKPT_OK;
    }
    const int node = (int)found->value;
    CKPT_TRY(check_name(r, span, &r->trace->node[node]));
    if (span->external >= 0) {
        r->node_of_external.at[r->node_of_external.count++] = (pair){span->external, node};
    }
    const int op = r->step->top[node];
    return kernels || r->step->op[op].node != node ? CKPT_OK : add_time(r, op, span->end_ns - span->start_ns);
}

static ckpt_code add_kernel(const reader *r, const ckpt_chrome_work *work)
{
    const pair *found = find(&r->node_of_external, work->external);
    if (found == NULL) {
        const pair *const call = find(&r->external_of_call, work->correlation);
        found = call != NULL ? find(&r->node_of_external, call->value) : NULL;
    }
    return found != NULL ? add_time(r, r->step->top[found->value], work->end_ns - work->start_ns) : CKPT_OK;
}

static void list_functions(reader *r)
{
    for (int i = 0; i < r->trace->node_count; i++) {
        if (r->step->top[i] >= 0 && r->trace->node[i].rf_id > 0) {
            r->node_of_function.at[r->node_of_function.count++] = (pair){r->trace->node[i].rf_id, i};
        }
    }
    sort(&r->node_of_function);
}

static ckpt_code take_times(reader *r, ckpt_et_timing *timing)
{
    ckpt_arena *const work = r->trace->work;
    const ckpt_chrome_span *const span = r->chrome.spans.at;
    const ckpt_chrome_work *const kernel = r->chrome.works.at;
    const int spans = r->chrome.spans.count;
    r->node_of_function.at = CKPT_NEW(work, pair, r->trace->node_count);
    r->node_of_external.at = CKPT_NEW(work, pair, spans);
    r->external_of_call.at = CKPT_NEW(work, pair, spans);
    if (r->node_of_function.at == NULL || r->node_of_external.at == NULL || r->external_of_call.at == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d events", r->chrome.scan.source, spans);
    }
    list_functions(r);
    *timing = (ckpt_et_timing){.kernels = r->chrome.works.count > 0};
    for (int i = 0; i < spans; i++) {
        CKPT_TRY(learn(r, &span[i], timing->kernels));
    }
    sort(&r->node_of_external);
    sort(&r->external_of_call);
    for (int i = 0; i < r->chrome.works.count; i++) {
        CKPT_TRY(add_kernel(r, &kernel[i]));
    }
    for (int i = 0; i < r->step->op_count; i++) {
        timing->wanted += !r->step->op[i].left_out;
        timing->timed += !r->step->op[i].left_out && r->step->op[i].timed;
    }
    return timing->timed > 0 ? CKPT_OK
                             : CKPT_FAIL(r->err, CKPT_BAD_INPUT,
                                         "%.160s: found none of the %d ops of %.160s, wanted the Kineto trace of the "
                                         "same run",
                                         r->chrome.scan.source, timing->wanted, r->trace->path);
}

ckpt_code ckpt_et_times(const char *path, const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_et_timing *timing,
                        ckpt_err *err)
{
    reader r = {.trace = trace, .step = step, .err = err};
    ckpt_code code = ckpt_chrome_read(&r.chrome, path, err);
    code = code != CKPT_OK ? code : take_times(&r, timing);
    ckpt_chrome_fini(&r.chrome);
    return code;
}
