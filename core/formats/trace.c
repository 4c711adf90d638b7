/* ckpt-trace/1 to and from a file, one event a line; categories of zero bytes are left out. */
#include "core/formats/trace.h"

#include <inttypes.h>
#include <string.h>

#include "core/formats/machine_impl.h"
#include "core/json/json_member.h"

static const char *const categories[CKPT_CATEGORY_COUNT] = {
    "weights", "gradients", "optimizer", "inputs", "activations", "saved", "workspace", "staging", "other", "outside"};

static const char *const spans[] = {"forward", "backward", "recompute", "copy", "update",
                                    "wait",    "free",     "allocate",  "other"};
enum { SPAN_COUNT = sizeof spans / sizeof spans[0] };

const char *ckpt_category_name(ckpt_category category)
{
    return category >= 0 && category < CKPT_CATEGORY_COUNT ? categories[category] : "unknown";
}

const char *ckpt_span_name(ckpt_span span)
{
    return (size_t)span < SPAN_COUNT ? spans[span] : "unknown";
}

ckpt_category ckpt_static_category(const char *name)
{
    for (int c = CKPT_CAT_WEIGHTS; c <= CKPT_CAT_OPTIMIZER; c++) {
        if (strcmp(name, categories[c]) == 0) {
            return (ckpt_category)c;
        }
    }
    return strcmp(name, "weights16") == 0 ? CKPT_CAT_WEIGHTS : CKPT_CAT_INPUTS;
}

ckpt_category ckpt_kind_category(ckpt_kind kind)
{
    switch (kind) {
    case CKPT_ACTIVATION: return CKPT_CAT_ACTIVATIONS;
    case CKPT_SAVED: return CKPT_CAT_SAVED;
    case CKPT_GRADIENT: return CKPT_CAT_GRADIENTS;
    }
    return CKPT_CAT_ACTIVATIONS;
}

typedef struct reader {
    ckpt_arena *out;
    ckpt_trace *trace;
    ckpt_err *err;
} reader;

static ckpt_code read_bytes(const reader *r, const ckpt_item *item, ckpt_event *event)
{
    ckpt_item bytes;
    int64_t sum = 0;
    CKPT_TRY(ckpt_item_need(item, "bytes", &bytes, r->err));
    CKPT_TRY(ckpt_item_object(&bytes, r->err));
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        CKPT_TRY(ckpt_member_int(&bytes, categories[c], 0, INT64_MAX, 0, &event->bytes[c], r->err));
        if (!ckpt_sum(sum, event->bytes[c], &sum)) {
            const ckpt_code code = CKPT_FAIL(r->err, CKPT_OVERFLOW, "the sum of bytes does not fit 63 bits");
            return ckpt_item_blame(&bytes, code, r->err);
        }
    }
    return CKPT_OK;
}

static ckpt_code read_span(const reader *r, const ckpt_item *item, ckpt_span *span)
{
    ckpt_item phase;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(item, "phase", &phase, r->err));
    const ckpt_mark mark = ckpt_arena_mark(r->out);
    CKPT_TRY(ckpt_item_text(&phase, r->out, &text, r->err));
    for (int s = 0; s < SPAN_COUNT; s++) {
        if (strcmp(text, spans[s]) == 0) {
            *span = (ckpt_span)s;
            ckpt_arena_rewind(r->out, mark);
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&phase, r->err,
                          "found phase \"%.40s\", wanted forward, backward, recompute, copy, update, wait, free, "
                          "allocate or other",
                          text);
}

static ckpt_code read_event(const reader *r, const ckpt_item *item, ckpt_event *event)
{
    int64_t step = 0;
    CKPT_TRY(ckpt_need_int(item, "step", 0, INT32_MAX, &step, r->err));
    event->step = (int)step;
    CKPT_TRY(ckpt_need_text(item, "name", r->out, &event->name, r->err));
    CKPT_TRY(ckpt_member_text(item, "layer", "", r->out, &event->layer, r->err));
    CKPT_TRY(ckpt_member_text(item, "stream", "compute", r->out, &event->stream, r->err));
    bool exact = true;
    CKPT_TRY(ckpt_member_text(item, "variant", NULL, r->out, &event->variant, r->err));
    CKPT_TRY(ckpt_member_bool(item, "exact", true, &exact, r->err));
    event->inexact = !exact;
    CKPT_TRY(read_span(r, item, &event->span));
    CKPT_TRY(ckpt_need_int(item, "start_ns", 0, INT64_MAX, &event->start_ns, r->err));
    CKPT_TRY(ckpt_need_int(item, "end_ns", event->start_ns, INT64_MAX, &event->end_ns, r->err));
    int64_t launches = 0;
    CKPT_TRY(ckpt_member_int(item, "size_bytes", 0, INT64_MAX, 0, &event->size_bytes, r->err));
    CKPT_TRY(ckpt_member_int(item, "address", 0, INT64_MAX, 0, &event->address, r->err));
    CKPT_TRY(ckpt_member_int(item, "kernel_ns", 0, INT64_MAX, 0, &event->kernel_ns, r->err));
    CKPT_TRY(ckpt_member_int(item, "launches", 0, INT32_MAX, 0, &launches, r->err));
    event->launches = (int)launches;
    return read_bytes(r, item, event);
}

/* peak_bytes and peak_event are what the events say. */
static ckpt_code check_peak(const reader *r, const ckpt_item *root)
{
    const ckpt_trace *const trace = r->trace;
    ckpt_bytes peak = 0;
    ckpt_bytes at_peak_event = 0;
    for (int i = 0; i < trace->event_count; i++) {
        ckpt_bytes sum = 0;
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            sum += c == CKPT_CAT_OUTSIDE ? 0 : trace->event[i].bytes[c];
        }
        peak = sum > peak ? sum : peak;
        at_peak_event = i == trace->peak_event ? sum : at_peak_event;
    }
    ckpt_item item;
    if (trace->event_count > 0 && trace->peak_bytes != peak) {
        CKPT_TRY(ckpt_item_need(root, "peak_bytes", &item, r->err));
        return ckpt_item_fail(&item, r->err, "found peak_bytes %" PRId64 ", but the events' most is %" PRId64,
                              trace->peak_bytes, peak);
    }
    if (trace->event_count > 0 && at_peak_event != peak) {
        CKPT_TRY(ckpt_item_need(root, "peak_event", &item, r->err));
        return ckpt_item_fail(&item, r->err, "event %d holds %" PRId64 " bytes, but the peak is %" PRId64,
                              trace->peak_event, at_peak_event, peak);
    }
    return CKPT_OK;
}

static ckpt_code read_events(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    int64_t peak_event = 0;
    CKPT_TRY(ckpt_need_array(root, "events", &array, &count, r->err));
    ckpt_event *const event = CKPT_NEW(r->out, ckpt_event, count);
    if (event == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d events", r->trace->source, count);
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_event(r, &item, &event[i]));
    }
    CKPT_TRY(ckpt_need_int(root, "peak_event", 0, count > 0 ? count - 1 : 0, &peak_event, r->err));
    r->trace->event = event;
    r->trace->event_count = count;
    r->trace->peak_event = (int)peak_event;
    return check_peak(r, root);
}

/* Categories of what lies in the arena. */
static ckpt_code read_place_category(const reader *r, const ckpt_item *allocation, ckpt_category *category)
{
    static const ckpt_category lies[] = {CKPT_CAT_ACTIVATIONS, CKPT_CAT_SAVED, CKPT_CAT_GRADIENTS, CKPT_CAT_WORKSPACE};
    ckpt_item item;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(allocation, "category", &item, r->err));
    const ckpt_mark mark = ckpt_arena_mark(r->out);
    CKPT_TRY(ckpt_item_text(&item, r->out, &text, r->err));
    for (size_t k = 0; k < sizeof lies / sizeof lies[0]; k++) {
        if (strcmp(text, categories[lies[k]]) == 0) {
            *category = lies[k];
            ckpt_arena_rewind(r->out, mark);
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&item, r->err, "found category \"%.40s\", wanted activations, saved, gradients or workspace",
                          text);
}

static ckpt_code read_place(const reader *r, const ckpt_item *item, int last, ckpt_trace_allocation *allocation)
{
    const ckpt_bytes arena = r->trace->arena_bytes;
    int64_t from = 0;
    int64_t to = 0;
    ckpt_bytes end = 0;
    CKPT_TRY(ckpt_need_text(item, "what", r->out, &allocation->name, r->err));
    CKPT_TRY(read_place_category(r, item, &allocation->category));
    CKPT_TRY(ckpt_need_int(item, "from", 0, last, &from, r->err));
    CKPT_TRY(ckpt_need_int(item, "to", from, last, &to, r->err));
    CKPT_TRY(ckpt_need_int(item, "offset", 0, INT64_MAX, &allocation->offset, r->err));
    CKPT_TRY(ckpt_need_int(item, "bytes", 0, INT64_MAX, &allocation->bytes, r->err));
    if (!ckpt_sum(allocation->offset, allocation->bytes, &end)) {
        const ckpt_code code = CKPT_FAIL(r->err, CKPT_OVERFLOW,
                                         "place of \"%.60s\": offset and bytes do not fit 63 bits", allocation->name);
        return ckpt_item_blame(item, code, r->err);
    }
    if (arena > 0 && end > arena) {
        return ckpt_item_fail(item, r->err,
                              "place of \"%.60s\": offset %" PRId64 " and %" PRId64
                              " bytes end beyond the arena of %" PRId64 " bytes",
                              allocation->name, allocation->offset, allocation->bytes, arena);
    }
    allocation->from = (int)from;
    allocation->to = (int)to;
    return CKPT_OK;
}

static ckpt_code read_places(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(root, "places", &array, &count, r->err));
    ckpt_trace_allocation *const allocation = CKPT_NEW(r->out, ckpt_trace_allocation, count);
    if (allocation == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d places", r->trace->source, count);
    }
    int last = 0;
    for (int i = 0; i < r->trace->event_count; i++) {
        last = r->trace->event[i].step > last ? r->trace->event[i].step : last;
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_place(r, &item, last, &allocation[i]));
    }
    r->trace->allocation = allocation;
    r->trace->allocation_count = count;
    return CKPT_OK;
}

static ckpt_code read_step_times(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(root, "step_times_ns", &array, &count, r->err));
    if (count == 0) {
        return CKPT_OK;
    }
    ckpt_ns *const time = CKPT_NEW(r->out, ckpt_ns, count);
    if (time == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d times", r->trace->source, count);
    }
    CKPT_TRY(ckpt_ns_list_read(&array, time, r->err));
    r->trace->step_ns = time;
    r->trace->step_ns_count = count;
    return CKPT_OK;
}

static ckpt_code read_trace(const reader *r, const ckpt_item *root)
{
    ckpt_trace *const trace = r->trace;
    ckpt_item measured;
    trace->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (trace->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_need_text(root, "name", r->out, &trace->name, r->err));
    CKPT_TRY(ckpt_member_text(root, "plan", "", r->out, &trace->plan, r->err));
    CKPT_TRY(ckpt_item_need(root, "measured", &measured, r->err));
    CKPT_TRY(ckpt_item_bool(&measured, &trace->measured, r->err));
    CKPT_TRY(ckpt_need_int(root, "budget_bytes", 0, INT64_MAX, &trace->budget_bytes, r->err));
    CKPT_TRY(ckpt_need_int(root, "static_bytes", 0, INT64_MAX, &trace->static_bytes, r->err));
    CKPT_TRY(ckpt_need_int(root, "arena_bytes", 0, INT64_MAX, &trace->arena_bytes, r->err));
    CKPT_TRY(ckpt_need_int(root, "peak_bytes", 0, INT64_MAX, &trace->peak_bytes, r->err));
    CKPT_TRY(ckpt_need_int(root, "time_ns", 0, INT64_MAX, &trace->time_ns, r->err));
    CKPT_TRY(ckpt_member_int(root, "process_peak_bytes", 0, INT64_MAX, 0, &trace->process_peak_bytes, r->err));
    CKPT_TRY(ckpt_member_text(root, "recorder", "", r->out, &trace->recorder, r->err));
    CKPT_TRY(ckpt_member_int(root, "capacity_bytes", 0, INT64_MAX, 0, &trace->capacity_bytes, r->err));
    CKPT_TRY(ckpt_machine_item(root, r->out, &trace->machine, r->err));
    CKPT_TRY(read_step_times(r, root));
    CKPT_TRY(read_events(r, root));
    return read_places(r, root);
}

ckpt_code ckpt_trace_item(const ckpt_item *root, ckpt_arena *out, const ckpt_trace **trace, ckpt_err *err)
{
    const reader r = {out, CKPT_NEW(out, ckpt_trace, 1), err};
    if (r.trace == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    }
    CKPT_TRY(read_trace(&r, root));
    *trace = r.trace;
    return CKPT_OK;
}

ckpt_code ckpt_trace_read(const char *path, ckpt_arena *out, const ckpt_trace **trace, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-trace", &json, &root, err));
    const ckpt_code code = ckpt_trace_item(&root, out, trace, err);
    ckpt_json_close(json);
    return code;
}

static void write_event(const ckpt_event *event, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
    ckpt_json_put_int(w, "step", event->step);
    ckpt_json_put_text(w, "name", event->name);
    ckpt_json_put_given(w, "layer", event->layer);
    ckpt_json_put_given(w, "variant", event->variant);
    if (event->inexact) {
        ckpt_json_put_bool(w, "exact", false);
    }
    ckpt_json_put_text(w, "stream", event->stream != NULL ? event->stream : "compute");
    ckpt_json_put_text(w, "phase", ckpt_span_name(event->span));
    CKPT_JSON_INTS(w, {"start_ns", event->start_ns}, {"end_ns", event->end_ns});
    ckpt_json_begin_object(w, "bytes", CKPT_JSON_LINE);
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        if (event->bytes[c] != 0) {
            ckpt_json_put_int(w, categories[c], event->bytes[c]);
        }
    }
    ckpt_json_end(w);
    if (event->size_bytes != 0) {
        ckpt_json_put_int(w, "size_bytes", event->size_bytes);
    }
    if (event->address != 0) {
        ckpt_json_put_int(w, "address", event->address);
    }
    if (event->launches != 0) {
        CKPT_JSON_INTS(w, {"kernel_ns", event->kernel_ns}, {"launches", event->launches});
    }
    ckpt_json_end(w);
}

static void write_allocations(const ckpt_trace *trace, ckpt_json_writer *w)
{
    ckpt_json_begin_array(w, "places", CKPT_JSON_LINES);
    for (int i = 0; i < trace->allocation_count; i++) {
        const ckpt_trace_allocation *const a = &trace->allocation[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "what", a->name);
        ckpt_json_put_text(w, "category", ckpt_category_name(a->category));
        CKPT_JSON_INTS(w, {"from", a->from}, {"to", a->to}, {"offset", a->offset}, {"bytes", a->bytes});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void write_head(const ckpt_trace *trace, ckpt_json_writer *w)
{
    ckpt_json_put_text(w, "format", "ckpt-trace/1");
    ckpt_json_put_text(w, "name", trace->name);
    ckpt_json_put_or_empty(w, "plan", trace->plan);
    ckpt_json_put_bool(w, "measured", trace->measured);
    ckpt_json_put_int(w, "budget_bytes", trace->budget_bytes);
    ckpt_json_join(w);
    ckpt_json_put_int(w, "static_bytes", trace->static_bytes);
    ckpt_json_join(w);
    ckpt_json_put_int(w, "arena_bytes", trace->arena_bytes);
    ckpt_json_put_int(w, "peak_bytes", trace->peak_bytes);
    ckpt_json_join(w);
    ckpt_json_put_int(w, "peak_event", trace->peak_event);
    ckpt_json_join(w);
    ckpt_json_put_int(w, "time_ns", trace->time_ns);
    ckpt_json_join(w);
    ckpt_json_put_int(w, "process_peak_bytes", trace->process_peak_bytes);
    ckpt_machine_write(&trace->machine, w);
    ckpt_json_put_given(w, "recorder", trace->recorder);
    if (trace->capacity_bytes > 0) {
        ckpt_json_put_int(w, "capacity_bytes", trace->capacity_bytes);
    }
    if (trace->step_ns_count > 0) {
        ckpt_json_put_int_list(w, "step_times_ns", trace->step_ns, trace->step_ns_count);
    }
}

void ckpt_trace_write(const ckpt_trace *trace, ckpt_text *text)
{
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    write_head(trace, &w);
    ckpt_json_begin_array(&w, "events", CKPT_JSON_LINES);
    for (int i = 0; i < trace->event_count; i++) {
        write_event(&trace->event[i], &w);
    }
    ckpt_json_end(&w);
    if (trace->allocation_count > 0) {
        write_allocations(trace, &w);
    }
    ckpt_json_end(&w);
}
