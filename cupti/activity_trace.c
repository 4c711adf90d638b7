/* Calls and ranges are sorted by thread and time and swept once: each call gets the ranges that are open on its thread.
 * A hash table by correlation then gives the call of a kernel, and with it the ranges. */
#include "cupti/activity_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti/demangle.h"

enum { OPEN_MAX = 64, STREAM_TEXT = 64 };

/* A call or a range. Of those with equal start the range is first, and of two ranges the longer. */
typedef struct host_item {
    const ckpt_activity *activity;
    int index; /* in the activities; decides the order if nothing else does */
} host_item;

typedef struct call {
    const ckpt_activity *activity; /* NULL: a free slot */
    const char *layer;
} call;

typedef struct call_table {
    call *at;
    uint32_t mask; /* slots - 1; at most half of the slots are used */
} call_table;

static ckpt_code no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a trace of what was recorded");
}

static bool on_host(const ckpt_activity *activity)
{
    return activity->kind == CKPT_ACTIVITY_CALL || activity->kind == CKPT_ACTIVITY_RANGE;
}

static int by_thread_and_start(const void *a, const void *b)
{
    const host_item *const x = a, *const y = b;
    const ckpt_activity *const p = x->activity, *const q = y->activity;
    if (p->thread != q->thread) {
        return p->thread < q->thread ? -1 : 1;
    }
    if (p->start_ns != q->start_ns) {
        return p->start_ns < q->start_ns ? -1 : 1;
    }
    if (p->kind != q->kind) {
        return p->kind == CKPT_ACTIVITY_RANGE ? -1 : 1;
    }
    if (p->kind == CKPT_ACTIVITY_RANGE && p->end_ns != q->end_ns) {
        return p->end_ns > q->end_ns ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

static call *look_up(const call_table *table, uint32_t correlation)
{
    uint32_t slot = correlation * UINT32_C(2654435769) & table->mask; /* 2^32 / golden ratio */
    while (table->at[slot].activity != NULL && table->at[slot].activity->correlation != correlation) {
        slot = (slot + 1) & table->mask;
    }
    return &table->at[slot];
}

/* Ranges open on one thread, outermost first, and their names as one text, made when a call needs it. */
typedef struct open_ranges {
    const ckpt_activity *at[OPEN_MAX];
    int count;
    uint32_t thread;
    const char *text; /* NULL: not made since a range opened or closed */
} open_ranges;

static void close_ranges(open_ranges *open, const ckpt_activity *now)
{
    int left = 0;
    for (int i = 0; i < open->count; i++) {
        if (now->thread == open->thread && open->at[i]->end_ns > now->start_ns) {
            open->at[left++] = open->at[i];
        }
    }
    open->text = left == open->count ? open->text : NULL;
    open->count = left;
    open->thread = now->thread;
}

static ckpt_code join_names(open_ranges *open, ckpt_arena *out, ckpt_err *err)
{
    size_t length = 0;
    for (int i = 0; i < open->count; i++) {
        length += strlen(open->at[i]->name) + 1;
    }
    char *const text = ckpt_arena_take(out, length + 1, 1);
    if (text == NULL) {
        return no_memory(err);
    }
    char *to = text;
    for (int i = 0; i < open->count; i++) {
        const size_t part = strlen(open->at[i]->name);
        memcpy(to, open->at[i]->name, part);
        to += part;
        *to++ = i + 1 < open->count ? '/' : '\0';
    }
    open->text = text;
    return CKPT_OK;
}

static ckpt_code sweep_host(const host_item *item, int count, const call_table *table, ckpt_arena *out, ckpt_err *err)
{
    open_ranges open = {.text = NULL};
    for (int i = 0; i < count; i++) {
        const ckpt_activity *const now = item[i].activity;
        close_ranges(&open, now);
        if (now->kind == CKPT_ACTIVITY_RANGE) {
            if (open.count < OPEN_MAX && now->end_ns > now->start_ns) {
                open.at[open.count++] = now;
                open.text = NULL;
            }
            continue;
        }
        call *const slot = look_up(table, now->correlation);
        if (slot->activity == NULL) {
            if (open.text == NULL) {
                CKPT_TRY(join_names(&open, out, err));
            }
            *slot = (call){now, open.text};
        }
    }
    return CKPT_OK;
}

/* The calls by correlation, each with the ranges around it. */
static ckpt_code find_calls(const ckpt_activity *activity, int count, ckpt_arena *out, call_table *table, ckpt_err *err)
{
    int items = 0;
    for (int i = 0; i < count; i++) {
        items += on_host(&activity[i]);
    }
    uint32_t slots = 16;
    while (slots / 2 < (uint32_t)items) {
        slots *= 2;
    }
    host_item *const item = CKPT_NEW(out, host_item, items);
    *table = (call_table){CKPT_NEW(out, call, slots), slots - 1};
    if (item == NULL || table->at == NULL) {
        return no_memory(err);
    }
    items = 0;
    for (int i = 0; i < count; i++) {
        if (on_host(&activity[i])) {
            item[items++] = (host_item){&activity[i], i};
        }
    }
    qsort(item, (size_t)items, sizeof *item, by_thread_and_start);
    return sweep_host(item, items, table, out, err);
}

static const char *stream_name(const ckpt_activity *activity, bool many_devices, char text[STREAM_TEXT])
{
    char gpu[STREAM_TEXT / 2] = "";
    if (many_devices) {
        snprintf(gpu, sizeof gpu, "gpu %u ", activity->device);
    }
    if (activity->kind == CKPT_ACTIVITY_COPY && activity->way == CKPT_COPY_TO_HOST) {
        snprintf(text, STREAM_TEXT, "%sd2h", gpu);
    } else if (activity->kind == CKPT_ACTIVITY_COPY && activity->way == CKPT_COPY_TO_DEVICE) {
        snprintf(text, STREAM_TEXT, "%sh2d", gpu);
    } else {
        snprintf(text, STREAM_TEXT, "%sstream %u", gpu, activity->stream);
    }
    return text;
}

static const char *copy_name(ckpt_copy_way way)
{
    return way == CKPT_COPY_TO_HOST     ? "copy to host"
           : way == CKPT_COPY_TO_DEVICE ? "copy to device"
           : way == CKPT_COPY_ON_DEVICE ? "copy on device"
                                        : "copy";
}

/* Makes the event of an activity; false: the activity is not an event of the trace. */
static bool make_event(const ckpt_activity *activity, const call *from, ckpt_event *event,
                       ckpt_activity_summary *summary)
{
    const char *const caller = from->activity != NULL ? from->activity->name : "";
    *event = (ckpt_event){
        .name = activity->name,
        .layer = from->activity != NULL ? from->layer : "",
        .start_ns = activity->start_ns,
        .end_ns = activity->end_ns,
        .span = CKPT_SPAN_OTHER,
    };
    switch (activity->kind) {
    case CKPT_ACTIVITY_KERNEL: summary->kernels++; break;
    case CKPT_ACTIVITY_COPY:
        summary->copies++;
        event->name = copy_name(activity->way);
        event->span = CKPT_SPAN_COPY;
        event->size_bytes = activity->bytes;
        break;
    case CKPT_ACTIVITY_FILL:
        summary->fills++;
        event->name = "fill";
        event->size_bytes = activity->bytes;
        break;
    case CKPT_ACTIVITY_ALLOCATE:
    case CKPT_ACTIVITY_RELEASE:
        summary->allocations += activity->kind == CKPT_ACTIVITY_ALLOCATE;
        summary->releases += activity->kind == CKPT_ACTIVITY_RELEASE;
        event->span = activity->kind == CKPT_ACTIVITY_ALLOCATE ? CKPT_SPAN_ALLOCATE : CKPT_SPAN_FREE;
        event->name = caller[0] != '\0' ? caller : activity->kind == CKPT_ACTIVITY_ALLOCATE ? "allocate" : "free";
        event->end_ns = event->start_ns; /* an instant */
        event->size_bytes = activity->bytes;
        event->address = (int64_t)(activity->address & INT64_MAX);
        break;
    case CKPT_ACTIVITY_OVERHEAD:
        summary->overhead_ns += activity->end_ns - activity->start_ns;
        summary->other++;
        return false;
    default: summary->other++; return false;
    }
    return true;
}

/* Demangled names by the address of the original: a spool has each name at few addresses. */
typedef struct name_cache {
    const char *from, *to;
} name_cache;
enum { NAMES_KEPT = 1024 };

static ckpt_code plain_name(name_cache *cache, const char **name, ckpt_arena *out, ckpt_err *err)
{
    name_cache *const kept = &cache[((uintptr_t)*name >> 4) % NAMES_KEPT];
    if (kept->from != *name) {
        const char *const plain = ckpt_demangle(*name, out);
        if (plain == NULL) {
            return no_memory(err);
        }
        *kept = (name_cache){*name, plain};
    }
    *name = kept->to;
    return CKPT_OK;
}

static int count_devices(const ckpt_activity *activity, int count)
{
    enum { DEVICES = 64 };
    bool seen[DEVICES] = {false};
    int devices = 0;
    for (int i = 0; i < count; i++) {
        const bool there = activity[i].kind <= CKPT_ACTIVITY_RELEASE && activity[i].device < DEVICES;
        devices += there && !seen[activity[i].device];
        seen[activity[i].device % DEVICES] |= there;
    }
    return devices;
}

ckpt_code ckpt_activity_trace(const ckpt_activity *activity, int count, const char *name, ckpt_arena *out,
                              ckpt_trace **trace, ckpt_activity_summary *summary, ckpt_err *err)
{
    call_table table;
    ckpt_timeline *timeline = NULL;
    ckpt_activity_summary made = {.devices = count_devices(activity, count)};
    CKPT_TRY(find_calls(activity, count, out, &table, err));
    CKPT_TRY(ckpt_timeline_create(out, &timeline, err));
    name_cache *const cache = CKPT_NEW(out, name_cache, NAMES_KEPT);
    if (cache == NULL) {
        return no_memory(err);
    }
    for (int i = 0; i < count; i++) {
        static const call none = {NULL, ""};
        ckpt_event event;
        char stream[STREAM_TEXT];
        const call *const from = activity[i].correlation != 0 ? look_up(&table, activity[i].correlation) : &none;
        if (make_event(&activity[i], from, &event, &made)) {
            CKPT_TRY(activity[i].kind == CKPT_ACTIVITY_KERNEL ? plain_name(cache, &event.name, out, err) : CKPT_OK);
            event.stream = stream_name(&activity[i], made.devices > 1, stream);
            CKPT_TRY(ckpt_timeline_add(timeline, &event, CKPT_CAT_OTHER, err));
        }
    }
    CKPT_TRY(ckpt_timeline_finish(timeline, name, trace, &made.timeline, err));
    *summary = made;
    return CKPT_OK;
}
