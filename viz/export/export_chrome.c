/* Traces as Chrome's trace event JSON ("Trace Event Format", Chromium project): one process per trace, one thread per
 * stream with a slice per run, copy and wait, slices of layers around what they ran, counters of bytes.
 *
 * Viewers want the slices of a thread to nest. Those of a stream come one after the other; one that overlaps the one
 * before goes to another thread of the same stream. A trace without times is drawn with one microsecond a step. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json_write.h"
#include "viz/timeline/view.h"

typedef struct slice {
    const ckpt_event *event;
    const char *stream;
    ckpt_ns start, end;
    int index; /* in the trace */
    int lane;  /* of its stream */
    int thread;
    bool point; /* a free or an allocation: a moment, so that it does not part what a layer ran */
} slice;

typedef struct exporter {
    const ckpt_trace *trace;
    int process;
    bool steps; /* no times: one microsecond a step */
    slice *slice;
    int count;
    int flow; /* number of the last one */
    ckpt_json_writer *json;
} exporter;

enum { PHASES_THREAD = 1 };
#define STEP_NS 1000

static ckpt_ns start_of(const exporter *x, int index)
{
    return x->steps ? (ckpt_ns)index * STEP_NS : x->trace->event[index].start_ns;
}

static bool is_point(const ckpt_event *event)
{
    return event->span == CKPT_SPAN_FREE || event->span == CKPT_SPAN_ALLOCATE;
}

static ckpt_ns end_of(const exporter *x, int index)
{
    const ckpt_event *const event = &x->trace->event[index];
    return is_point(event) ? start_of(x, index) : x->steps ? (ckpt_ns)(index + 1) * STEP_NS : event->end_ns;
}

/* Microseconds, exact to the nanosecond. */
static void put_time(exporter *x, const char *key, ckpt_ns ns)
{
    ckpt_json_put_here(x->json, key);
    ckpt_text_add(x->json->text, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

/* An event, open; what it has beside a phase of the format, a thread and a name follows, then its arguments. */
static void begin(exporter *x, const char *phase, int thread, const char *name)
{
    ckpt_json_begin_object(x->json, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(x->json, "ph", phase);
    ckpt_json_put_int(x->json, "pid", x->process);
    ckpt_json_put_int(x->json, "tid", thread);
    ckpt_json_put_text(x->json, "name", name);
}

static void begin_arguments(exporter *x)
{
    ckpt_json_begin_object(x->json, "args", CKPT_JSON_LINE);
}

static void end(exporter *x)
{
    ckpt_json_end(x->json);
    ckpt_json_end(x->json);
}

/* What a process (thread 0) or a thread is called, and where it stands among the others. */
static void put_name(exporter *x, const char *what, const char *order, int thread, const char *name)
{
    begin(x, "M", thread, what);
    begin_arguments(x);
    ckpt_json_put_text(x->json, "name", name);
    end(x);
    begin(x, "M", thread, order);
    begin_arguments(x);
    ckpt_json_put_int(x->json, "sort_index", thread > 0 ? thread : x->process);
    end(x);
}

/* A slice of `runs` runs. */
static void put_span(exporter *x, int thread, const char *name, const char *category, ckpt_ns from, ckpt_ns to,
                     int runs)
{
    begin(x, "X", thread, name);
    ckpt_json_put_text(x->json, "cat", category);
    put_time(x, "ts", from);
    put_time(x, "dur", to - from);
    begin_arguments(x);
    ckpt_json_put_int(x->json, "runs", runs);
    end(x);
}

static ckpt_code name_process(exporter *x, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_trace *const t = x->trace;
    const bool planned = t->plan != NULL && t->plan[0] != '\0';
    const char *const name = ckpt_arena_format(scratch, "%s: %.500s%s%.500s", t->measured ? "measured" : "predicted",
                                               t->name, planned ? ", plan " : "", planned ? t->plan : "");
    if (name == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a name");
    }
    put_name(x, "process_name", "process_sort_index", 0, name);
    return CKPT_OK;
}

static int by_stream_and_time(const void *a, const void *b)
{
    const slice *const x = a, *const y = b;
    const int streams = strcmp(x->stream, y->stream);
    if (streams != 0) {
        return streams;
    }
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    if (x->point != y->point) {
        return x->point ? 1 : -1;
    }
    if (x->start != y->start) {
        return x->start < y->start ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The first lane of the stream that is free when the slice begins. Lanes are the leaves of a tree of minima, so that
 * many that overlap do not cost the square of their number. `end` has room for 4 * count. */
static void assign_lanes(slice *of, int count, ckpt_ns *end)
{
    int leaves = 1;
    while (leaves < count) {
        leaves *= 2;
    }
    for (int i = 1; i < 2 * leaves; i++) {
        end[i] = 0; /* of a lane where nothing ran */
    }
    for (int i = 0; i < count; i++) {
        of[i].lane = 0;
        if (of[i].point) {
            continue;
        }
        int at = 1;
        while (at < leaves) {
            at = 2 * at + (end[2 * at] > of[i].start);
        }
        of[i].lane = at - leaves;
        end[at] = of[i].end;
        while ((at /= 2) > 0) {
            end[at] = end[2 * at] < end[2 * at + 1] ? end[2 * at] : end[2 * at + 1];
        }
    }
}

/* One slice per event, in the order of threads. */
static ckpt_code make_slices(exporter *x, ckpt_arena *scratch, ckpt_err *err)
{
    x->count = x->trace->event_count;
    x->slice = CKPT_NEW(scratch, slice, x->count);
    ckpt_ns *const end = CKPT_NEW(scratch, ckpt_ns, 4 * (size_t)x->count);
    if (x->slice == NULL || end == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d slices", x->count);
    }
    for (int i = 0; i < x->count; i++) {
        const ckpt_event *const event = &x->trace->event[i];
        x->slice[i] = (slice){.event = event,
                              .stream = event->stream != NULL ? event->stream : "",
                              .start = start_of(x, i),
                              .end = end_of(x, i),
                              .index = i,
                              .point = is_point(event)};
    }
    qsort(x->slice, (size_t)x->count, sizeof *x->slice, by_stream_and_time);
    for (int from = 0, to = 0; from < x->count; from = to) {
        while (to < x->count && strcmp(x->slice[to].stream, x->slice[from].stream) == 0) {
            to++;
        }
        assign_lanes(x->slice + from, to - from, end);
    }
    qsort(x->slice, (size_t)x->count, sizeof *x->slice, by_stream_and_time);
    return CKPT_OK;
}

static void put_slice(exporter *x, const slice *s)
{
    const ckpt_event *const event = s->event;
    begin(x, s->point ? "i" : "X", s->thread, event->name);
    ckpt_json_put_text(x->json, "cat", ckpt_span_name(event->span));
    put_time(x, "ts", s->start);
    if (s->point) {
        ckpt_json_put_text(x->json, "s", "t");
    } else {
        put_time(x, "dur", s->end - s->start);
    }
    begin_arguments(x);
    ckpt_json_put_int(x->json, "step", event->step);
    ckpt_json_put_given(x->json, "layer", event->layer);
    ckpt_json_put_given(x->json, "variant", event->variant);
    if (event->inexact) {
        ckpt_json_put_bool(x->json, "exact", false);
    }
    if (s->point && event->end_ns > event->start_ns) {
        ckpt_json_put_int(x->json, "took_ns", event->end_ns - event->start_ns);
    }
    if (event->size_bytes > 0) {
        ckpt_json_put_int(x->json, "bytes", event->size_bytes);
    }
    if (event->address > 0) {
        char address[24];
        snprintf(address, sizeof address, "0x%" PRIx64, event->address);
        ckpt_json_put_text(x->json, "address", address);
    }
    if (event->launches > 0) {
        CKPT_JSON_INTS(x->json, {"kernel_ns", event->kernel_ns}, {"launches", event->launches});
    }
    end(x);
}

/* A slice around `count` others, called by the first `length` bytes of a name. */
static void put_group(exporter *x, const slice *s, int count, const char *name, size_t length)
{
    char shown[200];
    size_t fits = length < sizeof shown - 1 ? length : sizeof shown - 1;
    while (fits > 0 && fits < length && ((unsigned char)name[fits] & 0xC0) == 0x80) {
        fits--; /* a letter of several bytes stays whole */
    }
    memcpy(shown, name, fits);
    shown[fits] = '\0';
    put_span(x, s->thread, shown, "layer", s->start, s[count - 1].end, count);
}

/* Bytes of "h.3.att" of the first `depth` parts between dots; 0 when it has fewer. */
static size_t prefix(const char *layer, int depth)
{
    const char *at = layer;
    while (layer != NULL && *layer != '\0') {
        at += strcspn(at, ".");
        if (--depth == 0) {
            return (size_t)(at - layer);
        }
        if (*at == '\0') {
            return 0;
        }
        at++;
    }
    return 0;
}

/* How many from the first share with it the phase and the layer's first `depth` parts; 0: it has fewer. */
static int run_of(const slice *s, int count, int depth)
{
    const char *const layer = s->event->layer;
    const size_t length = prefix(layer, depth);
    int run = 0;
    while (length > 0 && run < count && s[run].event->span == s->event->span &&
           prefix(s[run].event->layer, depth) == length && memcmp(s[run].event->layer, layer, length) == 0) {
        run++;
    }
    return run;
}

/* Slices of `count` events of one thread, with one around all that a layer, or layers with one beginning ("h.3"), ran
 * without a break. Depth counts those parts. */
static void put_layers(exporter *x, const slice *s, int count, int depth)
{
    enum { DEEPEST = 12 };
    for (int i = 0; i < count;) {
        int run = depth <= DEEPEST ? run_of(s + i, count - i, depth) : 0;
        int parts = depth;
        if (run < 2) {
            put_slice(x, &s[i++]);
            continue;
        }
        while (parts < DEEPEST && run_of(s + i, run, parts + 1) == run) {
            parts++;
        }
        const char *const layer = s[i].event->layer;
        put_group(x, s + i, run, layer, prefix(layer, parts));
        put_layers(x, s + i, run, parts + 1);
        i += run;
    }
}

/* One thread for each lane of each stream. */
static ckpt_code put_threads(exporter *x, ckpt_arena *scratch, ckpt_err *err)
{
    int thread = PHASES_THREAD;
    for (int from = 0, to = 0; from < x->count; from = to) {
        int runs = 0;
        thread++;
        while (to < x->count && x->slice[to].lane == x->slice[from].lane &&
               strcmp(x->slice[to].stream, x->slice[from].stream) == 0) {
            runs += !x->slice[to].point;
            x->slice[to++].thread = thread;
        }
        const slice *const first = &x->slice[from];
        const char *const name = first->lane == 0
                                     ? ckpt_arena_format(scratch, "%.500s", first->stream)
                                     : ckpt_arena_format(scratch, "%.500s (%d)", first->stream, first->lane + 1);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a name");
        }
        put_name(x, "thread_name", "thread_sort_index", thread, name);
        put_layers(x, first, runs, 1);
        for (int i = from + runs; i < to; i++) {
            put_slice(x, &x->slice[i]);
        }
    }
    return CKPT_OK;
}

static bool has_phase(const slice *s)
{
    return !s->point && s->lane == 0 && s->event->span != CKPT_SPAN_COPY && s->event->span != CKPT_SPAN_WAIT &&
           s->event->span != CKPT_SPAN_OTHER;
}

/* Of a step that follows a plan: forward, backward, recompute, update as they follow each other on the stream that
 * computes, whatever lies between two runs of one phase. */
static void put_phases(exporter *x)
{
    bool named = false;
    for (int i = 0; i < x->count && !ckpt_trace_follows_no_plan(x->trace);) {
        if (!has_phase(&x->slice[i])) {
            i++;
            continue;
        }
        slice first = x->slice[i];
        int last = i, next = i, runs = 0;
        for (; next < x->count && strcmp(x->slice[next].stream, first.stream) == 0 &&
               (!has_phase(&x->slice[next]) || x->slice[next].event->span == first.event->span);
             next++) {
            last = has_phase(&x->slice[next]) ? next : last;
            runs += has_phase(&x->slice[next]);
        }
        if (strcmp(first.stream, "compute") == 0) {
            if (!named) {
                put_name(x, "thread_name", "thread_sort_index", PHASES_THREAD, "phases");
                named = true;
            }
            put_span(x, PHASES_THREAD, ckpt_span_name(first.event->span), "phase", first.start, x->slice[last].end,
                     runs);
        }
        i = next;
    }
}

static void begin_counter(exporter *x, const char *name, ckpt_ns at)
{
    begin(x, "C", 0, name);
    put_time(x, "ts", at);
    begin_arguments(x);
}

static void put_count(exporter *x, const char *name, ckpt_ns at, ckpt_bytes bytes)
{
    begin_counter(x, name, at);
    ckpt_json_put_int(x->json, "bytes", bytes);
    end(x);
}

static void put_memory(exporter *x, ckpt_ns at, const ckpt_event *event, const bool *used)
{
    begin_counter(x, "memory", at);
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        if (used[c]) {
            ckpt_json_put_int(x->json, ckpt_category_name((ckpt_category)c), event->bytes[c]);
        }
    }
    end(x);
}

/* Bytes by category from the moment each event begins, their sum as the budget counts it, and the limits. */
static void put_counters(exporter *x)
{
    const ckpt_trace *const t = x->trace;
    bool used[CKPT_CATEGORY_COUNT] = {false};
    for (int i = 0; i < t->event_count; i++) {
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            used[c] = used[c] || t->event[i].bytes[c] != 0;
        }
    }
    ckpt_ns now = 0, last = 0;
    ckpt_bytes before = -1;
    for (int i = 0; i < t->event_count; i++) {
        ckpt_bands bands;
        ckpt_event_bands(t, &t->event[i], &bands);
        now = start_of(x, i) > now ? start_of(x, i) : now;
        last = end_of(x, i) > last ? end_of(x, i) : last;
        put_memory(x, now, &t->event[i], used);
        if (bands.planned != before) {
            put_count(x, "in use", now, bands.planned);
            before = bands.planned;
        }
        if (i == t->peak_event) {
            begin(x, "i", 0, "peak");
            put_time(x, "ts", now);
            ckpt_json_put_text(x->json, "s", "p");
            begin_arguments(x);
            CKPT_JSON_INTS(x->json, {"bytes", bands.planned}, {"step", t->event[i].step});
            end(x);
        }
    }
    if (t->event_count > 0) { /* so that the last values have a length */
        put_memory(x, last > now ? last : now, &t->event[t->event_count - 1], used);
        put_count(x, "in use", last > now ? last : now, before);
    }
    for (int n = 0; n < 2; n++) {
        const char *const name = n == 0 ? "budget" : "capacity";
        const ckpt_bytes limit = n == 0 ? t->budget_bytes : t->capacity_bytes;
        if (limit > 0) {
            put_count(x, name, 0, limit);
            put_count(x, name, last > now ? last : now, limit);
        }
    }
}

static int by_name_and_time(const void *a, const void *b)
{
    const slice *const x = *(const slice *const *)a, *const y = *(const slice *const *)b;
    const int names = strcmp(x->event->name, y->event->name);
    return names != 0 ? names : x->start != y->start ? (x->start < y->start ? -1 : 1) : x->index < y->index ? -1 : 1;
}

static void put_flow(exporter *x, const char *phase, const slice *s)
{
    begin(x, phase, s->thread, "offloaded");
    ckpt_json_put_text(x->json, "cat", "copy");
    ckpt_json_put_int(x->json, "id", x->flow);
    put_time(x, "ts", s->start);
    if (phase[0] == 'f') {
        ckpt_json_put_text(x->json, "bp", "e");
    }
    ckpt_json_end(x->json);
}

/* An arrow from a copy to the host to the next copy of the same buffer back. */
static ckpt_code put_flows(exporter *x, ckpt_arena *scratch, ckpt_err *err)
{
    const slice **const copy = CKPT_NEW(scratch, const slice *, x->count);
    int count = 0;
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d copies", x->count);
    }
    for (int i = 0; i < x->count; i++) {
        if (x->slice[i].event->span == CKPT_SPAN_COPY) {
            copy[count++] = &x->slice[i];
        }
    }
    qsort(copy, (size_t)count, sizeof *copy, by_name_and_time);
    for (int i = 1; i < count; i++) {
        if (strcmp(copy[i - 1]->stream, "d2h") == 0 && strcmp(copy[i]->stream, "h2d") == 0 &&
            strcmp(copy[i - 1]->event->name, copy[i]->event->name) == 0) {
            x->flow++;
            put_flow(x, "s", copy[i - 1]);
            put_flow(x, "f", copy[i]);
        }
    }
    return CKPT_OK;
}

static ckpt_code put_trace(exporter *x, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_ns last = 0;
    for (int i = 0; i < x->trace->event_count; i++) {
        last = x->trace->event[i].end_ns > last ? x->trace->event[i].end_ns : last;
    }
    x->steps = last == 0;
    CKPT_TRY(name_process(x, scratch, err));
    CKPT_TRY(make_slices(x, scratch, err));
    CKPT_TRY(put_threads(x, scratch, err));
    put_phases(x);
    put_counters(x);
    return put_flows(x, scratch, err);
}

ckpt_code ckpt_view_chrome(const ckpt_trace *const *trace, int trace_count, ckpt_text *text, ckpt_err *err)
{
    ckpt_json_writer json;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_json_begin(&json, text);
    ckpt_json_begin_object(&json, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&json, "displayTimeUnit", "ns");
    ckpt_json_begin_object(&json, "otherData", CKPT_JSON_LINE);
    ckpt_json_put_text(&json, "made by", "ckpt-view");
    ckpt_json_end(&json);
    ckpt_json_begin_array(&json, "traceEvents", CKPT_JSON_LINES);
    ckpt_code code = CKPT_OK;
    exporter x = {.json = &json};
    for (int i = 0; i < trace_count && code == CKPT_OK; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&scratch);
        x.trace = trace[i];
        x.process = i + 1;
        code = put_trace(&x, &scratch, err);
        ckpt_arena_rewind(&scratch, mark);
    }
    ckpt_arena_fini(&scratch);
    ckpt_json_end(&json);
    ckpt_json_end(&json);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
