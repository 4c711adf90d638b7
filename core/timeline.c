/* A timeline: events in the order they were added, then sorted by start, then swept once with the blocks that are
 * allocated in an open-addressing table by address. */
#include "core/timeline.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 256 };

typedef struct entry {
    ckpt_event event;
    ckpt_category category;
    int order; /* of arrival */
} entry;

struct ckpt_timeline {
    ckpt_arena *out;
    entry *at;
    int count, room;
};

/* A block that is allocated; size_bytes < 0 marks one that is gone, so that probing goes on past it. */
typedef struct block {
    int64_t address;
    ckpt_bytes size_bytes;
    ckpt_category category;
    bool used;
} block;

typedef struct block_table {
    block *at;
    uint64_t mask;
} block_table;

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
    const int room = timeline->room == 0 ? FIRST_ROOM : timeline->room;
    if (room > INT32_MAX / 2) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a timeline of more than %d events", timeline->count);
    }
    entry *const at = CKPT_NEW(timeline->out, entry, 2 * room);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a timeline of %d events", 2 * room);
    }
    if (timeline->count > 0) {
        memcpy(at, timeline->at, (size_t)timeline->count * sizeof *at);
    }
    timeline->at = at;
    timeline->room = 2 * room;
    return CKPT_OK;
}

ckpt_code ckpt_timeline_add(ckpt_timeline *timeline, const ckpt_event *event, ckpt_category category, ckpt_err *err)
{
    if (event->end_ns < event->start_ns) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" ends at %lld ns, before its start at %lld ns", event->name,
                         (long long)event->end_ns, (long long)event->start_ns);
    }
    if (event->size_bytes < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%.80s\" is of %lld bytes, wanted 0 or more", event->name,
                         (long long)event->size_bytes);
    }
    CKPT_TRY(grow(timeline, err));
    entry *const added = &timeline->at[timeline->count];
    added->event = (ckpt_event){
        .name = ckpt_arena_text(timeline->out, event->name),
        .layer = ckpt_arena_text(timeline->out, event->layer != NULL ? event->layer : ""),
        .stream = ckpt_arena_text(timeline->out, event->stream != NULL ? event->stream : "compute"),
        .span = event->span,
        .start_ns = event->start_ns,
        .end_ns = event->end_ns,
        .size_bytes = event->size_bytes,
        .address = event->address,
    };
    if (added->event.name == NULL || added->event.layer == NULL || added->event.stream == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an event's name");
    }
    added->category = category;
    added->order = timeline->count++;
    return CKPT_OK;
}

static int by_start(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    if (x->event.start_ns != y->event.start_ns) {
        return x->event.start_ns < y->event.start_ns ? -1 : 1;
    }
    return x->order - y->order;
}

/* The block at that address, or the first free slot for it. The table is at most half full. */
static block *look_up(const block_table *table, int64_t address)
{
    uint64_t slot = (uint64_t)address * UINT64_C(0x9E3779B97F4A7C15) >> 17 & table->mask;
    while (table->at[slot].used && table->at[slot].address != address) {
        slot = (slot + 1) & table->mask;
    }
    return &table->at[slot];
}

static ckpt_code make_table(ckpt_timeline *timeline, block_table *table, ckpt_err *err)
{
    uint64_t slots = 16;
    for (int i = 0; i < timeline->count; i++) {
        slots += timeline->at[i].event.span == CKPT_SPAN_ALLOCATE ? 2 : 0;
    }
    uint64_t size = 16;
    while (size < slots) {
        size *= 2;
    }
    *table = (block_table){CKPT_NEW(timeline->out, block, size), size - 1};
    return table->at != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a timeline's blocks");
}

static ckpt_code allocate(const block_table *table, const entry *from, ckpt_bytes *live, ckpt_timeline_report *report,
                          ckpt_err *err)
{
    block *const at = look_up(table, from->event.address);
    if (at->used && at->size_bytes >= 0) {
        report->double_allocates++;
        live[at->category] -= at->size_bytes;
    }
    *at = (block){from->event.address, from->event.size_bytes, from->category, true};
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        if (!ckpt_sum(sum, live[c], &sum)) {
            sum = INT64_MAX;
        }
    }
    if (!ckpt_sum(sum, from->event.size_bytes, &sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "\"%.80s\": the sum of all bytes allocated does not fit 63 bits",
                         from->event.name);
    }
    live[from->category] += from->event.size_bytes;
    return CKPT_OK;
}

static void release(const block_table *table, ckpt_event *event, ckpt_bytes *live, ckpt_timeline_report *report)
{
    block *const at = look_up(table, event->address);
    if (!at->used || at->size_bytes < 0) {
        report->unknown_frees++;
        event->size_bytes = -1; /* left out */
        return;
    }
    live[at->category] -= at->size_bytes;
    event->size_bytes = at->size_bytes;
    at->size_bytes = -1;
}

/* Event i as the trace has it: numbered, from the first start, with what is in memory. */
static void put_event(ckpt_trace *trace, ckpt_event *to, const ckpt_event *from, const ckpt_bytes *live, ckpt_ns first)
{
    *to = *from;
    to->step = trace->event_count;
    to->start_ns -= first;
    to->end_ns -= first;
    memcpy(to->bytes, live, sizeof to->bytes);
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        sum += live[c];
    }
    if (sum > trace->peak_bytes) {
        trace->peak_bytes = sum;
        trace->peak_event = trace->event_count;
    }
    trace->time_ns = to->end_ns > trace->time_ns ? to->end_ns : trace->time_ns;
    trace->event_count++;
}

static ckpt_code sweep(ckpt_timeline *timeline, ckpt_event *event, ckpt_trace *trace, ckpt_timeline_report *report,
                       ckpt_err *err)
{
    block_table table;
    ckpt_bytes live[CKPT_CATEGORY_COUNT] = {0};
    CKPT_TRY(make_table(timeline, &table, err));
    const ckpt_ns first = timeline->count > 0 ? timeline->at[0].event.start_ns : 0;
    for (int i = 0; i < timeline->count; i++) {
        entry *const from = &timeline->at[i];
        if (from->event.span == CKPT_SPAN_ALLOCATE) {
            CKPT_TRY(allocate(&table, from, live, report, err));
        } else if (from->event.span == CKPT_SPAN_FREE) {
            release(&table, &from->event, live, report);
        }
        if (from->event.size_bytes >= 0) {
            put_event(trace, &event[trace->event_count], &from->event, live, first);
        }
    }
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        report->left_bytes += live[c];
    }
    return CKPT_OK;
}

ckpt_code ckpt_timeline_finish(ckpt_timeline *timeline, const char *name, ckpt_trace **trace,
                               ckpt_timeline_report *report, ckpt_err *err)
{
    ckpt_trace *const made = CKPT_NEW(timeline->out, ckpt_trace, 1);
    ckpt_event *const event = CKPT_NEW(timeline->out, ckpt_event, timeline->count);
    const char *const copy = ckpt_arena_text(timeline->out, name);
    if (made == NULL || event == NULL || copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of %d events", timeline->count);
    }
    *made = (ckpt_trace){.source = "", .name = copy, .plan = "", .measured = true, .recorder = "", .event = event};
    made->machine = (ckpt_machine){.device = "", .driver = "", .clocks = "", .libraries = "", .commit = ""};
    made->machine.command = made->machine.date = "";
    *report = (ckpt_timeline_report){0};
    if (timeline->count > 0) {
        qsort(timeline->at, (size_t)timeline->count, sizeof *timeline->at, by_start);
    }
    CKPT_TRY(sweep(timeline, event, made, report, err));
    *trace = made;
    return CKPT_OK;
}
