/* Traces as Chrome's trace event JSON ("Trace Event Format", Chromium project): one process per trace, one thread per
 * stream with a slice per run, copy and wait, slices of layers around what they ran, counters of bytes.
 *
 * Viewers want the slices of a thread to nest. Those of a stream come one after the other; one that overlaps the one
 * before goes to another thread of the same stream. A trace without times is drawn with one microsecond a step. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    ckpt_text *text;
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
static void time_member(exporter *x, const char *key, ckpt_ns ns)
{
    ckpt_text_add(x->text, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void begin(exporter *x, const char *phase, int thread, const char *name)
{
    ckpt_text_add(x->text, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"name\":", phase, x->process, thread);
    ckpt_text_json(x->text, name);
}

static void name_of(exporter *x, const char *what, int thread, const char *name)
{
    begin(x, "M", thread, what);
    ckpt_text_add(x->text, ",\"args\":{\"name\":");
    ckpt_text_json(x->text, name);
    ckpt_text_add(x->text, "}}");
}

static void rank_of(exporter *x, const char *what, int thread, int rank)
{
    begin(x, "M", thread, what);
    ckpt_text_add(x->text, ",\"args\":{\"sort_index\":%d}}", rank);
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
    name_of(x, "process_name", 0, name);
    rank_of(x, "process_sort_index", 0, x->process);
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

static void put_arguments(exporter *x, const slice *s)
{
    const ckpt_event *const event = s->event;
    ckpt_text_add(x->text, ",\"args\":{\"step\":%d", event->step);
    if (event->layer != NULL && event->layer[0] != '\0') {
        ckpt_text_add(x->text, ",\"layer\":");
        ckpt_text_json(x->text, event->layer);
    }
    if (s->point && event->end_ns > event->start_ns) {
        ckpt_text_add(x->text, ",\"took_ns\":%" PRId64, event->end_ns - event->start_ns);
    }
    if (event->size_bytes > 0) {
        ckpt_text_add(x->text, ",\"bytes\":%" PRId64, event->size_bytes);
    }
    if (event->address > 0) {
        ckpt_text_add(x->text, ",\"address\":\"0x%" PRIx64 "\"", event->address);
    }
    if (event->launches > 0) {
        ckpt_text_add(x->text, ",\"kernel_ns\":%" PRId64 ",\"launches\":%d", event->kernel_ns, event->launches);
    }
    ckpt_text_add(x->text, "}}");
}

static void put_slice(exporter *x, const slice *s)
{
    begin(x, s->point ? "i" : "X", s->thread, s->event->name);
    ckpt_text_add(x->text, ",\"cat\":\"%s\"", ckpt_span_name(s->event->span));
    time_member(x, "ts", s->start);
    if (s->point) {
        ckpt_text_add(x->text, ",\"s\":\"t\"");
    } else {
        time_member(x, "dur", s->end - s->start);
    }
    put_arguments(x, s);
}

static void put_group(exporter *x, const slice *s, int count, const char *name, size_t length, const char *category)
{
    char shown[200];
    size_t fits = length < sizeof shown - 1 ? length : sizeof shown - 1;
    while (fits > 0 && fits < length && ((unsigned char)name[fits] & 0xC0) == 0x80) {
        fits--; /* a letter of several bytes stays whole */
    }
    memcpy(shown, name, fits);
    shown[fits] = '\0';
    begin(x, "X", s->thread, shown);
    ckpt_text_add(x->text, ",\"cat\":\"%s\"", category);
    time_member(x, "ts", s->start);
    time_member(x, "dur", s[count - 1].end - s->start);
    ckpt_text_add(x->text, ",\"args\":{\"runs\":%d}}", count);
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
        put_group(x, s + i, run, layer, prefix(layer, parts), "layer");
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
        name_of(x, "thread_name", thread, name);
        rank_of(x, "thread_sort_index", thread, thread);
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
                name_of(x, "thread_name", PHASES_THREAD, "phases");
                rank_of(x, "thread_sort_index", PHASES_THREAD, PHASES_THREAD);
                named = true;
            }
            const char *const phase = ckpt_span_name(first.event->span);
            begin(x, "X", PHASES_THREAD, phase);
            ckpt_text_add(x->text, ",\"cat\":\"phase\"");
            time_member(x, "ts", first.start);
            time_member(x, "dur", x->slice[last].end - first.start);
            ckpt_text_add(x->text, ",\"args\":{\"runs\":%d}}", runs);
        }
        i = next;
    }
}

static void put_count(exporter *x, const char *name, ckpt_ns at, ckpt_bytes bytes)
{
    begin(x, "C", 0, name);
    time_member(x, "ts", at);
    ckpt_text_add(x->text, ",\"args\":{\"bytes\":%" PRId64 "}}", bytes);
}

static void put_memory(exporter *x, ckpt_ns at, const ckpt_event *event, const bool *used)
{
    begin(x, "C", 0, "memory");
    time_member(x, "ts", at);
    const char *between = "";
    ckpt_text_add(x->text, ",\"args\":{");
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        if (used[c]) {
            ckpt_text_add(x->text, "%s\"%s\":%" PRId64, between, ckpt_category_name((ckpt_category)c), event->bytes[c]);
            between = ",";
        }
    }
    ckpt_text_add(x->text, "}}");
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
    ckpt_ns now = 0, end = 0;
    ckpt_bytes before = -1;
    for (int i = 0; i < t->event_count; i++) {
        ckpt_bands bands;
        ckpt_event_bands(t, &t->event[i], &bands);
        now = start_of(x, i) > now ? start_of(x, i) : now;
        end = end_of(x, i) > end ? end_of(x, i) : end;
        put_memory(x, now, &t->event[i], used);
        if (bands.planned != before) {
            put_count(x, "in use", now, bands.planned);
            before = bands.planned;
        }
        if (i == t->peak_event) {
            begin(x, "i", 0, "peak");
            time_member(x, "ts", now);
            ckpt_text_add(x->text, ",\"s\":\"p\",\"args\":{\"bytes\":%" PRId64 ",\"step\":%d}}", bands.planned,
                          t->event[i].step);
        }
    }
    if (t->event_count > 0) { /* so that the last values have a length */
        put_memory(x, end > now ? end : now, &t->event[t->event_count - 1], used);
        put_count(x, "in use", end > now ? end : now, before);
    }
    for (int n = 0; n < 2; n++) {
        const char *const name = n == 0 ? "budget" : "capacity";
        const ckpt_bytes limit = n == 0 ? t->budget_bytes : t->capacity_bytes;
        if (limit > 0) {
            put_count(x, name, 0, limit);
            put_count(x, name, end > now ? end : now, limit);
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
    ckpt_text_add(x->text, ",\"cat\":\"copy\",\"id\":%d", x->flow);
    time_member(x, "ts", s->start);
    ckpt_text_add(x->text, "%s}", phase[0] == 'f' ? ",\"bp\":\"e\"" : "");
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

static void put_about(const ckpt_trace *t, ckpt_text *text)
{
    ckpt_text_add(text, "{\"name\":");
    ckpt_text_json(text, t->name);
    ckpt_text_add(text, ",\"plan\":");
    ckpt_text_json(text, t->plan != NULL ? t->plan : "");
    ckpt_text_add(text,
                  ",\"measured\":%s,\"budget_bytes\":%" PRId64 ",\"static_bytes\":%" PRId64 ",\"arena_bytes\":%" PRId64
                  ",\"peak_bytes\":%" PRId64 ",\"time_ns\":%" PRId64 ",\"machine\":",
                  t->measured ? "true" : "false", t->budget_bytes, t->static_bytes, t->arena_bytes, t->peak_bytes,
                  t->time_ns);
    ckpt_text_json(text, t->machine.device != NULL ? t->machine.device : "");
    ckpt_text_add(text, "}");
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
    ckpt_text_add(text, "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"made by\":\"ckpt-view\",\"traces\":[");
    for (int i = 0; i < trace_count; i++) {
        ckpt_text_add(text, "%s", i > 0 ? ",\n" : "");
        put_about(trace[i], text);
    }
    /* The comma before every event needs one that comes first. */
    ckpt_text_add(text, "]},\n\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_labels\","
                        "\"args\":{\"labels\":\"ckpt\"}}");
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = CKPT_OK;
    int flow = 0;
    for (int i = 0; i < trace_count && code == CKPT_OK; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&scratch);
        exporter x = {.trace = trace[i], .process = i + 1, .flow = flow, .text = text};
        code = put_trace(&x, &scratch, err);
        flow = x.flow;
        ckpt_arena_rewind(&scratch, mark);
    }
    ckpt_arena_fini(&scratch);
    ckpt_text_add(text, "\n]}\n");
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
