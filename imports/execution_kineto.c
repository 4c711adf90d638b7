/* Times, workspaces and modules of ops from a Kineto trace of the same run.
 *
 * Both files hold the number of each recorded function: "rf_id" in the ExecutionTrace, "Record function id" in the
 * Kineto trace. Without a GPU, an op takes the time of its own event. With one, it takes the sum of its kernels, copies
 * and fills: they carry the "External id" of the op that launched them, or the "correlation" of a runtime call that
 * carries it.
 *
 * An op's workspace is the most that was allocated during its event, less what it leaves. Layers are calls of nn.Module
 * (with_stack=True) or annotations, whichever is the innermost. */
#include <stdlib.h>
#include <string.h>

#include "imports/chrome_impl.h"
#include "imports/execution_impl.h"

typedef struct reader {
    const ckpt_et_trace *trace;
    ckpt_et_step *step;
    ckpt_chrome chrome;
    ckpt_import_index node_of_function; /* "Record function id" -> node */
    ckpt_import_index node_of_external; /* "External id" -> node */
    ckpt_import_index external_of_call; /* "correlation" -> "External id" */
    ckpt_bytes *peak;                   /* per op: the most that was allocated during it; -1: no event */
    bool modules;                       /* it has calls of nn.Module */
    ckpt_err *err;
} reader;

/* Fails if an event has another name than the node with its function number: the trace is of another run. */
static ckpt_code check_name(reader *r, const ckpt_chrome_span *span, const ckpt_et_node *node)
{
    const ckpt_mark mark = ckpt_arena_mark(r->trace->work);
    if (span->name.at == NULL) {
        return CKPT_FAIL(r->err, CKPT_BAD_INPUT,
                         "%.160s: found function %lld without a name, which is \"%.60s\" in %.100s: wanted the Kineto "
                         "trace of the same run",
                         r->chrome.scan.source, (long long)span->function, node->name, r->trace->path);
    }
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

static ckpt_code name_module(const reader *r, const ckpt_chrome_span *span, ckpt_et_op *op)
{
    const char *const name = ckpt_chrome_layer_name(&span->place, r->trace->work);
    if (name == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for a name", r->chrome.scan.source);
    }
    op->layer = name[0] != '\0' ? name : op->layer;
    return CKPT_OK;
}

/* Learns from the event: its numbers; if it is of an op, its module and, without a GPU, its duration. *op becomes that
 * op. */
static ckpt_code learn(reader *r, const ckpt_chrome_span *span, bool kernels, int *op)
{
    if (span->kind == CKPT_CHROME_LAUNCH && span->correlation >= 0 && span->external >= 0) {
        ckpt_import_index_add(&r->external_of_call,
                              (ckpt_import_entry){.number = span->correlation, .value = span->external});
    }
    const int node =
        span->kind == CKPT_CHROME_OP ? (int)ckpt_import_index_find(&r->node_of_function, span->function) : -1;
    if (node < 0) {
        return CKPT_OK;
    }
    CKPT_TRY(check_name(r, span, &r->trace->node[node]));
    ckpt_import_index_add(&r->node_of_external, (ckpt_import_entry){.number = span->external, .value = node});
    if (r->step->op[r->step->top[node]].node != node) {
        return CKPT_OK;
    }
    *op = r->step->top[node];
    ckpt_et_op *const learned = &r->step->op[*op];
    if (r->modules && learned->phase == CKPT_FORWARD) {
        CKPT_TRY(name_module(r, span, learned));
    }
    return kernels ? CKPT_OK : add_time(r, *op, span->end_ns - span->start_ns);
}

/* True for memory of the device that the trace is of: "cpu", or "cuda:0" with its number. */
static bool is_of_device(const ckpt_et_trace *trace, const ckpt_chrome_memory *memory)
{
    const char *const name = trace->device_count > 0 ? trace->device[trace->main_device] : "cpu";
    const char *const number = strchr(name, ':');
    const bool cpu = strcmp(name, "cpu") == 0;
    return cpu == (memory->device_type == CKPT_CHROME_CPU) &&
           (cpu || memory->device == (number != NULL ? strtoll(number + 1, NULL, 10) : 0));
}

/* Learns from all events, which are sorted by thread and start. */
static ckpt_code learn_all(reader *r, ckpt_et_timing *timing)
{
    const ckpt_chrome_span *const span = r->chrome.spans.at;
    const ckpt_chrome_memory *const memory = r->chrome.memories.at;
    const ckpt_chrome_span *own = NULL; /* the last op's event */
    uint64_t level = 0;                 /* beside what was there before the op: wraps where that is freed */
    int op = -1;
    for (int i = 0; i < r->chrome.spans.count; i++) {
        const ckpt_chrome_span *const s = &span[i];
        int found = -1;
        CKPT_TRY(learn(r, s, timing->kernels, &found));
        if (found >= 0) {
            own = s;
            op = found;
            level = 0;
            r->peak[op] = 0;
        } else if (s->kind == CKPT_CHROME_MEMORY && is_of_device(r->trace, &memory[s->memory])) {
            timing->memory = true;
            if (own != NULL && own->thread == s->thread && s->start_ns <= own->end_ns) {
                level += (uint64_t)memory[s->memory].bytes;
                r->peak[op] = level <= INT64_MAX && (ckpt_bytes)level > r->peak[op] ? (ckpt_bytes)level : r->peak[op];
            }
        }
    }
    for (int i = 0; i < r->step->op_count && timing->memory; i++) {
        ckpt_et_op *const o = &r->step->op[i];
        if (r->peak[i] >= 0) {
            o->workspace = r->peak[i] > o->made ? r->peak[i] - o->made : 0;
        }
    }
    return CKPT_OK;
}

static ckpt_code add_kernel(const reader *r, const ckpt_chrome_work *work)
{
    int64_t node = ckpt_import_index_find(&r->node_of_external, work->external);
    if (node < 0) {
        const int64_t external = ckpt_import_index_find(&r->external_of_call, work->correlation);
        node = ckpt_import_index_find(&r->node_of_external, external);
    }
    return node >= 0 ? add_time(r, r->step->top[node], work->end_ns - work->start_ns) : CKPT_OK;
}

static void list_functions(reader *r)
{
    for (int i = 0; i < r->trace->node_count; i++) {
        if (r->step->top[i] >= 0 && r->trace->node[i].rf_id > 0) {
            ckpt_import_index_add(&r->node_of_function,
                                  (ckpt_import_entry){.number = r->trace->node[i].rf_id, .value = i});
        }
    }
    ckpt_import_index_sort(&r->node_of_function);
}

static ckpt_code take_times(reader *r, ckpt_et_timing *timing)
{
    ckpt_arena *const work = r->trace->work;
    const ckpt_chrome_work *const kernel = r->chrome.works.at;
    const int spans = r->chrome.spans.count;
    r->node_of_function.at = CKPT_NEW(work, ckpt_import_entry, r->trace->node_count);
    r->node_of_external.at = CKPT_NEW(work, ckpt_import_entry, spans);
    r->external_of_call.at = CKPT_NEW(work, ckpt_import_entry, spans);
    r->peak = CKPT_NEW(work, ckpt_bytes, r->step->op_count);
    if (r->node_of_function.at == NULL || r->node_of_external.at == NULL || r->external_of_call.at == NULL ||
        r->peak == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d events", r->chrome.scan.source, spans);
    }
    list_functions(r);
    *timing = (ckpt_et_timing){.kernels = r->chrome.works.count > 0};
    for (int i = 0; i < r->step->op_count; i++) {
        r->peak[i] = -1;
    }
    CKPT_TRY(learn_all(r, timing));
    ckpt_import_index_sort(&r->node_of_external);
    ckpt_import_index_sort(&r->external_of_call);
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

ckpt_code ckpt_et_kineto(const char *path, const ckpt_et_trace *trace, ckpt_et_step *step, ckpt_et_timing *timing,
                         ckpt_err *err)
{
    reader r = {.trace = trace, .step = step, .err = err};
    ckpt_code code = ckpt_chrome_read(&r.chrome, path, err);
    for (int i = 0; i < r.chrome.spans.count && !r.modules; i++) {
        r.modules = ((const ckpt_chrome_span *)r.chrome.spans.at)[i].kind == CKPT_CHROME_MODULE;
    }
    code = code != CKPT_OK ? code : ckpt_chrome_nest(&r.chrome, err);
    code = code != CKPT_OK ? code : take_times(&r, timing);
    ckpt_chrome_fini(&r.chrome);
    return code;
}
