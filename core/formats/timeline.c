/* A timeline: events in the order they were added, then sorted by start, then swept once. A sort by address gives each allocation or free the one before it at the same address. Programs start the same few hundred kernels many times, so each text is stored once. */
#include "core/formats/timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/names.h"
#include "core/formats/machine.h"

enum { FIRST_ROOM = 256 };

typedef struct entry {
    const char *name, *layer, *stream;
    ckpt_ns start_ns, end_ns;
    ckpt_bytes size_bytes;
    int64_t address;
    ckpt_span span;
    ckpt_category category;
    int order; /* of arrival */
} entry;

struct ckpt_timeline {
    ckpt_arena *out;
    entry *at;
    int count, room;
    ckpt_names texts; /* from a text to its place in `text` */
    const char **text;
    int text_count, text_room;
};

/* What is in memory while the entries are swept. */
typedef struct state {
    ckpt_bytes live[CKPT_CATEGORY_COUNT];
    ckpt_bytes sum; /* of live */
    ckpt_timeline_report report;
} state;

ckpt_code ckpt_timeline_create(ckpt_arena *out, ckpt_timeline **timeline, ckpt_err *err)
{
    ckpt_timeline *const made = CKPT_NEW(out, ckpt_timeline, 1);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a timeline");
    }
    made->out = out;
    *timeline = made;
    return CKPT_OK;
}

static ckpt_code grow(ckpt_timeline *timeline, ckpt_err *err)
{
    if (timeline->count < timeline->room) {
        return CKPT_OK;
    }
    if (timeline->room > INT32_MAX / 2) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a timeline of more than %d events", timeline->count);
    }
    const int room = timeline->room == 0 ? FIRST_ROOM : 2 * timeline->room;
    entry *const at = CKPT_NEW(timeline->out, entry, room);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a timeline of %d events", room);
    }
    if (timeline->count > 0) {
        memcpy(at, timeline->at, (size_t)timeline->count * sizeof *at);
    }
    timeline->at = at;
    timeline->room = room;
    return CKPT_OK;
}

/* A table of twice the texts. There are never more than three texts to an entry, and entries fit an int. */
static ckpt_code grow_texts(ckpt_timeline *timeline, ckpt_err *err)
{
    if (timeline->text_count < timeline->text_room) {
        return CKPT_OK;
    }
    if (timeline->text_room > INT32_MAX / 4) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a timeline of more than %d names", timeline->text_count);
    }
    const int room = timeline->text_room == 0 ? FIRST_ROOM : 2 * timeline->text_room;
    ckpt_names texts;
    CKPT_TRY(ckpt_names_init(&texts, room, timeline->out, err));
    const char **const text = CKPT_NEW(timeline->out, const char *, room);
    if (text == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a timeline of %d names", room);
    }
    for (int i = 0; i < timeline->text_count; i++) {
        text[i] = timeline->text[i];
        ckpt_names_add(&texts, text[i], i);
    }
    timeline->texts = texts;
    timeline->text = text;
    timeline->text_room = room;
    return CKPT_OK;
}

ckpt_code ckpt_timeline_keep(ckpt_timeline *timeline, const char *text, const char **kept, ckpt_err *err)
{
    CKPT_TRY(grow_texts(timeline, err));
    int index = ckpt_names_find(&timeline->texts, text);
    if (index < 0) {
        const char *const copy = ckpt_arena_text(timeline->out, text);
        if (copy == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an event's name");
        }
        index = timeline->text_count++;
        timeline->text[index] = copy;
        ckpt_names_add(&timeline->texts, copy, index);
    }
    *kept = timeline->text[index];
    return CKPT_OK;
}

static ckpt_code check_event(const ckpt_event *event, ckpt_err *err)
{
    if (event->end_ns < event->start_ns) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" ends at %lld ns, before its start at %lld ns", event->name,
                         (long long)event->end_ns, (long long)event->start_ns);
    }
    if (event->size_bytes < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" is of %lld bytes, wanted 0 or more", event->name,
                         (long long)event->size_bytes);
    }
    if (event->address < 0) { /* a ckpt-trace/1 has none */
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" is at address %lld, wanted 0 or more", event->name,
                         (long long)event->address);
    }
    return CKPT_OK;
}

ckpt_code ckpt_timeline_add(ckpt_timeline *timeline, const ckpt_event *event, ckpt_category category, ckpt_err *err)
{
    assert(event->span != CKPT_SPAN_ALLOCATE || (category >= 0 && category < CKPT_CATEGORY_COUNT));
    entry added = {
        .start_ns = event->start_ns,
        .end_ns = event->end_ns,
        .size_bytes = event->size_bytes,
        .address = event->address,
        .span = event->span,
        .category = category,
        .order = timeline->count,
    };
    CKPT_TRY(check_event(event, err));
    CKPT_TRY(grow(timeline, err));
    CKPT_TRY(ckpt_timeline_keep(timeline, event->name, &added.name, err));
    CKPT_TRY(ckpt_timeline_keep(timeline, event->layer != NULL ? event->layer : "", &added.layer, err));
    CKPT_TRY(ckpt_timeline_keep(timeline, event->stream != NULL ? event->stream : "compute", &added.stream, err));
    timeline->at[timeline->count++] = added;
    return CKPT_OK;
}

static int by_start(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return x->order - y->order;
}

typedef struct allocation {
    int64_t address;
    int at;
} allocation;

static int by_address(const void *a, const void *b)
{
    const allocation *const x = a, *const y = b;
    return x->address != y->address ? (x->address > y->address) - (x->address < y->address) : x->at - y->at;
}

ckpt_code ckpt_timeline_previous(const int64_t *address, int count, ckpt_arena *arena, int **previous, ckpt_err *err)
{
    int *const made = CKPT_NEW(arena, int, count);
    const ckpt_mark mark = ckpt_arena_mark(arena);
    allocation *const sorted = CKPT_NEW(arena, allocation, count);
    if (made == NULL || sorted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to sort %d addresses", count);
    }
    for (int i = 0; i < count; i++) {
        sorted[i] = (allocation){address[i], i};
    }
    if (count > 0) {
        qsort(sorted, (size_t)count, sizeof *sorted, by_address);
    }
    for (int i = 0; i < count; i++) {
        const bool same = i > 0 && sorted[i].address >= 0 && sorted[i - 1].address == sorted[i].address;
        made[sorted[i].at] = same ? sorted[i - 1].at : -1;
    }
    ckpt_arena_rewind(arena, mark);
    *previous = made;
    return CKPT_OK;
}

/* For each entry what was last done at its address; -1: nothing, or it is no allocation and no free. */
static ckpt_code link_entries(const ckpt_timeline *timeline, int **previous, ckpt_err *err)
{
    int64_t *const address = CKPT_NEW(timeline->out, int64_t, timeline->count);
    if (address == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d events", timeline->count);
    }
    for (int i = 0; i < timeline->count; i++) {
        const entry *const from = &timeline->at[i];
        address[i] = from->span == CKPT_SPAN_ALLOCATE || from->span == CKPT_SPAN_FREE ? from->address : -1;
    }
    return ckpt_timeline_previous(address, timeline->count, timeline->out, previous, err);
}

static void drop(state *s, const entry *gone)
{
    s->live[gone->category] -= gone->size_bytes;
    s->sum -= gone->size_bytes;
}

/* `before`: what was last done at the address; NULL: nothing. */
static ckpt_code allocate(state *s, const entry *from, const entry *before, ckpt_err *err)
{
    if (before != NULL && before->span == CKPT_SPAN_ALLOCATE) {
        s->report.double_allocates++;
        drop(s, before);
    }
    if (!ckpt_sum(s->sum, from->size_bytes, &s->sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW,
                         "\"%.80s\" of %lld bytes: the sum of all that is allocated does not fit 63 bits", from->name,
                         (long long)from->size_bytes);
    }
    s->live[from->category] += from->size_bytes;
    return CKPT_OK;
}

/* False: nothing is allocated there. */
static bool release(state *s, const entry *before, ckpt_bytes *size_bytes)
{
    if (before == NULL || before->span != CKPT_SPAN_ALLOCATE) {
        s->report.unknown_frees++;
        return false;
    }
    *size_bytes = before->size_bytes;
    drop(s, before);
    return true;
}

/* An entry as the trace has it: numbered, from the first start, with what is in memory. */
static void put_event(ckpt_trace *trace, ckpt_event *to, const entry *from, const state *s, ckpt_ns first)
{
    *to = (ckpt_event){
        .step = trace->event_count,
        .name = from->name,
        .layer = from->layer,
        .stream = from->stream,
        .span = from->span,
        .start_ns = from->start_ns - first,
        .end_ns = from->end_ns - first,
        .size_bytes = from->size_bytes,
        .address = from->address,
    };
    memcpy(to->bytes, s->live, sizeof to->bytes);
    const ckpt_bytes sum = s->sum - s->live[CKPT_CAT_OUTSIDE];
    if (sum > trace->peak_bytes) {
        trace->peak_bytes = sum;
        trace->peak_event = trace->event_count;
    }
    trace->time_ns = to->end_ns > trace->time_ns ? to->end_ns : trace->time_ns;
    trace->event_count++;
}

static ckpt_code sweep(const ckpt_timeline *timeline, const int *previous, state *s, ckpt_event *event,
                       ckpt_trace *trace, ckpt_err *err)
{
    const ckpt_ns first = timeline->count > 0 ? timeline->at[0].start_ns : 0;
    for (int i = 0; i < timeline->count; i++) {
        const entry *const from = &timeline->at[i];
        const entry *const before = previous[i] >= 0 ? &timeline->at[previous[i]] : NULL;
        if ((uint64_t)from->end_ns - (uint64_t)first > INT64_MAX) { /* end >= start >= first */
            return CKPT_FAIL(err, CKPT_OVERFLOW,
                             "\"%.80s\" ends at %lld ns and the first event starts at %lld ns: the time between does "
                             "not fit 63 bits",
                             from->name, (long long)from->end_ns, (long long)first);
        }
        ckpt_bytes size_bytes = from->size_bytes;
        if (from->span == CKPT_SPAN_ALLOCATE) {
            CKPT_TRY(allocate(s, from, before, err));
        } else if (from->span == CKPT_SPAN_FREE && !release(s, before, &size_bytes)) {
            continue;
        }
        ckpt_event *const to = &event[trace->event_count];
        put_event(trace, to, from, s, first);
        to->size_bytes = size_bytes;
    }
    s->report.left_bytes = s->sum;
    return CKPT_OK;
}

ckpt_code ckpt_timeline_finish(ckpt_timeline *timeline, const char *name, ckpt_trace **trace,
                               ckpt_timeline_report *report, ckpt_err *err)
{
    state s = {.sum = 0};
    ckpt_trace *const made = CKPT_NEW(timeline->out, ckpt_trace, 1);
    ckpt_event *const event = CKPT_NEW(timeline->out, ckpt_event, timeline->count);
    const char *const copy = ckpt_arena_text(timeline->out, name);
    if (made == NULL || event == NULL || copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d events", timeline->count);
    }
    *made = (ckpt_trace){.source = "", .name = copy, .plan = "", .measured = true, .recorder = "", .event = event};
    made->machine = (ckpt_machine){.device = "", .driver = "", .clocks = "", .libraries = "", .commit = ""};
    made->machine.command = made->machine.date = "";
    if (timeline->count > 0) {
        qsort(timeline->at, (size_t)timeline->count, sizeof *timeline->at, by_start);
    }
    int *previous = NULL;
    CKPT_TRY(link_entries(timeline, &previous, err));
    CKPT_TRY(sweep(timeline, previous, &s, event, made, err));
    *trace = made;
    *report = s.report;
    return CKPT_OK;
}
