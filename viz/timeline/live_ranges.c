/* Live ranges, from where a plan allocates buffers or from a program's allocations and frees.
 *
 * An allocation of a plan says from which step to which; what happened at its ends says the rest: a run or a fetch put it there, a free
 * or a run in place ended it. Planners free a buffer right after its last use, so the last run before that is what it
 * was kept for. */
#include "viz/timeline/live_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "core/formats/timeline.h"

static const char *const kinds[CKPT_LIVE_KIND_COUNT] = {
    "activation", "saved", "gradient", "workspace", "recomputed", "offloaded", "other",
};

const char *ckpt_live_range_kind_name(ckpt_live_range_kind kind)
{
    return (size_t)kind < CKPT_LIVE_KIND_COUNT ? kinds[kind] : "unknown";
}

static bool copies(const ckpt_event *event, const char *stream)
{
    return event->span == CKPT_SPAN_COPY && strcmp(event->stream, stream) == 0;
}

bool ckpt_event_runs(const ckpt_event *event)
{
    switch (event->span) {
    case CKPT_SPAN_FORWARD:
    case CKPT_SPAN_BACKWARD:
    case CKPT_SPAN_RECOMPUTE:
    case CKPT_SPAN_UPDATE:
    case CKPT_SPAN_OTHER: return true;
    case CKPT_SPAN_COPY: return copies(event, "compute");
    case CKPT_SPAN_WAIT:
    case CKPT_SPAN_FREE:
    case CKPT_SPAN_ALLOCATE: break;
    }
    return false;
}

/* A free that had to wait for a copy is a wait. */
static bool frees(const ckpt_event *event, const char *name)
{
    return (event->span == CKPT_SPAN_FREE || event->span == CKPT_SPAN_WAIT) && strcmp(event->name, name) == 0;
}

static int by_birth(const void *a, const void *b)
{
    const ckpt_live_range *const x = a, *const y = b;
    if (x->from != y->from) {
        return x->from - y->from;
    }
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return x->to != y->to ? x->to - y->to : strcmp(x->name, y->name);
}

/* Put into order, with `top`. */
static void finish(ckpt_live_ranges *ranges, ckpt_live_range *range)
{
    if (ranges->count > 0) {
        qsort(range, (size_t)ranges->count, sizeof *range, by_birth);
    }
    for (int i = 0; i < ranges->count; i++) {
        ckpt_bytes end = CKPT_BYTES_MAX;
        (void)ckpt_sum(range[i].offset, range[i].bytes, &end);
        ranges->top = end > ranges->top ? end : ranges->top;
    }
    ranges->range = range;
}

/* The number of the first event of `step` or a later one. Steps never decrease. */
static int first_event(const ckpt_trace *trace, int64_t step)
{
    int low = 0, high = trace->event_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (trace->event[middle].step < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static ckpt_code check_steps(const ckpt_trace *trace, ckpt_err *err)
{
    for (int i = 1; i < trace->event_count; i++) {
        if (trace->event[i].step < trace->event[i - 1].step) {
            return CKPT_FAIL(
                err, CKPT_BAD_INPUT,
                "%.200s: event %d is of step %d, behind one of step %d; a trace with allocations is in the "
                "order of steps",
                trace->source, i, trace->event[i].step, trace->event[i - 1].step);
        }
    }
    return CKPT_OK;
}

static ckpt_live_range_kind kind_of(const ckpt_trace *trace, ckpt_category category, int born)
{
    switch (category) {
    case CKPT_CAT_WORKSPACE: return CKPT_LIVE_WORKSPACE;
    case CKPT_CAT_GRADIENTS: return CKPT_LIVE_GRADIENT;
    case CKPT_CAT_ACTIVATIONS:
    case CKPT_CAT_SAVED: break;
    default: return CKPT_LIVE_OTHER;
    }
    if (trace->event[born].span == CKPT_SPAN_RECOMPUTE) {
        return CKPT_LIVE_RECOMPUTED;
    }
    return category == CKPT_CAT_SAVED ? CKPT_LIVE_SAVED : CKPT_LIVE_ACTIVATION;
}

/* What it was kept for: the run that wrote over it, or the last one before it was freed; -1 when nothing ended it.
 *   run_before   per event the last run up to it */
static int last_of(const ckpt_trace *trace, const ckpt_live_range *range, const int *run_before)
{
    if (range->kind == CKPT_LIVE_WORKSPACE) {
        return range->from;
    }
    const bool freed = frees(&trace->event[range->to], range->name);
    const int behind = range->to + 1;
    if (!freed && behind == trace->event_count) {
        return -1;
    }
    const int last = !freed && ckpt_event_runs(&trace->event[behind]) ? behind : run_before[range->to];
    return last >= range->from ? last : -1;
}

static ckpt_code range_of_allocation(const ckpt_trace *trace, int nth, const int *run_before, ckpt_live_range *range,
                                     ckpt_err *err)
{
    const ckpt_trace_allocation *const allocation = &trace->allocation[nth];
    const int from = first_event(trace, allocation->from), to = first_event(trace, (int64_t)allocation->to + 1) - 1;
    if (from >= trace->event_count || trace->event[from].step != allocation->from || to < from ||
        trace->event[to].step != allocation->to) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%.200s: allocation %d (\"%.60s\") is from step %d to step %d, and the trace has no such steps",
            trace->source, nth, allocation->name, allocation->from, allocation->to);
    }
    const ckpt_event *const born = &trace->event[from];
    *range = (ckpt_live_range){
        .name = allocation->category == CKPT_CAT_WORKSPACE ? born->name : allocation->name,
        .layer = born->layer != NULL ? born->layer : "",
        .kind = kind_of(trace, allocation->category, from),
        .category = allocation->category,
        .offset = allocation->offset,
        .bytes = allocation->bytes,
        .from = from,
        .to = to,
        .born = from,
        .copied = -1,
    };
    if (copies(born, "h2d")) {
        range->kind = CKPT_LIVE_OFFLOADED;
    }
    range->last = last_of(trace, range, run_before);
    if (range->kind == CKPT_LIVE_GRADIENT && range->last > from && trace->event[range->last].layer != NULL) {
        range->layer = trace->event[range->last].layer; /* which the op that wrote it is behind */
    }
    return CKPT_OK;
}

typedef struct named {
    const char *name;
    int at, from; /* at: among the ranges */
} named;

static int by_name(const void *a, const void *b)
{
    const named *const x = a, *const y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->from - y->from;
}

/* The live range of that buffer that holds `event`; -1: none. */
static int find_range(const named *sorted, const ckpt_live_range *range, int count, const char *name, int event)
{
    int low = 0, high = count; /* the first that is of a later name or birth */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(sorted[middle].name, name);
        if (order < 0 || (order == 0 && sorted[middle].from <= event)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low > 0 && strcmp(sorted[low - 1].name, name) == 0 && range[sorted[low - 1].at].to >= event;
    return found ? sorted[low - 1].at : -1;
}

/* Copies to the host, each to the live range that is copied. */
static ckpt_code find_copies(const ckpt_trace *trace, ckpt_live_range *range, int count, ckpt_arena *scratch,
                             ckpt_err *err)
{
    named *sorted = NULL;
    for (int i = 0; i < trace->event_count; i++) {
        if (!copies(&trace->event[i], "d2h")) {
            continue;
        }
        if (sorted == NULL) {
            sorted = CKPT_NEW(scratch, named, count);
            if (sorted == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to sort %d allocations", count);
            }
            for (int k = 0; k < count; k++) {
                sorted[k] = (named){range[k].kind == CKPT_LIVE_WORKSPACE ? "" : range[k].name, k, range[k].from};
            }
            qsort(sorted, (size_t)count, sizeof *sorted, by_name);
        }
        const int at = find_range(sorted, range, count, trace->event[i].name, i);
        if (at >= 0 && range[at].copied < 0) {
            range[at].copied = i;
            range[at].kind = range[at].kind == CKPT_LIVE_RECOMPUTED ? range[at].kind : CKPT_LIVE_OFFLOADED;
        }
    }
    return CKPT_OK;
}

static ckpt_code from_allocation_list(const ckpt_trace *trace, ckpt_arena *out, ckpt_live_ranges *ranges, ckpt_err *err)
{
    CKPT_TRY(check_steps(trace, err));
    ckpt_live_range *const range = CKPT_NEW(out, ckpt_live_range, trace->allocation_count);
    const ckpt_mark mark = ckpt_arena_mark(out);
    int *const run_before = CKPT_NEW(out, int, trace->event_count);
    if (range == NULL || run_before == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d allocations", trace->allocation_count);
    }
    for (int i = 0; i < trace->event_count; i++) {
        run_before[i] = ckpt_event_runs(&trace->event[i]) ? i : i > 0 ? run_before[i - 1] : -1;
    }
    for (int i = 0; i < trace->allocation_count; i++) {
        CKPT_TRY(range_of_allocation(trace, i, run_before, &range[i], err));
    }
    CKPT_TRY(find_copies(trace, range, trace->allocation_count, out, err));
    ckpt_arena_rewind(out, mark);
    ranges->count = trace->allocation_count;
    finish(ranges, range);
    return CKPT_OK;
}

static int by_address(const void *a, const void *b)
{
    const ckpt_live_range *const x = a, *const y = b;
    return x->address != y->address ? (x->address < y->address ? -1 : 1) : x->from - y->from;
}

/* Offsets: addresses without the ranges in which there never is a block. */
static void close_gaps(ckpt_live_range *range, int count)
{
    int64_t end = 0, closed = 0; /* of what has been used so far; of what lies between, the sum */
    if (count > 0) {
        qsort(range, (size_t)count, sizeof *range, by_address);
    }
    for (int i = 0; i < count; i++) {
        if (range[i].address > end) {
            closed += range[i].address - end;
        }
        int64_t own_end = INT64_MAX;
        (void)ckpt_sum(range[i].address, range[i].bytes, &own_end);
        end = own_end > end ? own_end : end;
        range[i].offset = range[i].address - closed;
    }
}

static bool moves(const ckpt_event *event)
{
    return (event->span == CKPT_SPAN_ALLOCATE || event->span == CKPT_SPAN_FREE) && event->address > 0;
}

/* A program that follows no plan may still say what for: the category that grew with the allocation. */
static ckpt_live_range_kind kind_of_allocation(const ckpt_trace *trace, int born)
{
    static const ckpt_live_range_kind kind[CKPT_CATEGORY_COUNT] = {
        [CKPT_CAT_WEIGHTS] = CKPT_LIVE_OTHER,
        [CKPT_CAT_GRADIENTS] = CKPT_LIVE_GRADIENT,
        [CKPT_CAT_OPTIMIZER] = CKPT_LIVE_OTHER,
        [CKPT_CAT_INPUTS] = CKPT_LIVE_OTHER,
        [CKPT_CAT_ACTIVATIONS] = CKPT_LIVE_ACTIVATION,
        [CKPT_CAT_SAVED] = CKPT_LIVE_SAVED,
        [CKPT_CAT_WORKSPACE] = CKPT_LIVE_WORKSPACE,
        [CKPT_CAT_STAGING] = CKPT_LIVE_OTHER,
        [CKPT_CAT_OTHER] = CKPT_LIVE_OTHER,
        [CKPT_CAT_OUTSIDE] = CKPT_LIVE_OTHER,
    };
    const ckpt_event *const event = &trace->event[born];
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        const ckpt_bytes before = born > 0 ? trace->event[born - 1].bytes[c] : 0;
        if (event->size_bytes > 0 && before >= 0 && event->bytes[c] - before == event->size_bytes) {
            return kind[c];
        }
    }
    return CKPT_LIVE_OTHER;
}

static ckpt_code from_allocations(const ckpt_trace *trace, ckpt_arena *out, ckpt_live_ranges *ranges, ckpt_err *err)
{
    int allocations = 0;
    for (int i = 0; i < trace->event_count; i++) {
        allocations += moves(&trace->event[i]) && trace->event[i].span == CKPT_SPAN_ALLOCATE;
    }
    ckpt_live_range *const range = CKPT_NEW(out, ckpt_live_range, allocations);
    const ckpt_mark mark = ckpt_arena_mark(out);
    int64_t *const address = CKPT_NEW(out, int64_t, trace->event_count);
    int *const range_of = CKPT_NEW(out, int, trace->event_count);
    int *previous = NULL;
    if (range == NULL || address == NULL || range_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d allocations", allocations);
    }
    for (int i = 0; i < trace->event_count; i++) {
        address[i] = moves(&trace->event[i]) ? trace->event[i].address : -1;
    }
    CKPT_TRY(ckpt_timeline_previous(address, trace->event_count, out, &previous, err));
    int count = 0;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        if (address[i] < 0) {
            continue;
        }
        if (previous[i] >= 0 && trace->event[previous[i]].span == CKPT_SPAN_ALLOCATE) {
            range[range_of[previous[i]]].to =
                event->span == CKPT_SPAN_FREE ? i : i - 1; /* or its free was not recorded */
        }
        if (event->span == CKPT_SPAN_ALLOCATE) {
            range_of[i] = count;
            range[count++] = (ckpt_live_range){
                .name = event->name,
                .layer = event->layer != NULL ? event->layer : "",
                .kind = kind_of_allocation(trace, i),
                .bytes = event->size_bytes,
                .address = event->address,
                .from = i,
                .to = trace->event_count - 1,
                .born = i,
                .last = -1,
                .copied = -1,
            };
        }
    }
    ckpt_arena_rewind(out, mark);
    close_gaps(range, count);
    ranges->count = count;
    finish(ranges, range);
    return CKPT_OK;
}

ckpt_code ckpt_live_ranges_make(const ckpt_trace *trace, ckpt_arena *out, ckpt_live_ranges *ranges, ckpt_err *err)
{
    ckpt_live_ranges made = {.trace = trace};
    CKPT_TRY(trace->allocation_count > 0 ? from_allocation_list(trace, out, &made, err)
                                         : from_allocations(trace, out, &made, err));
    *ranges = made;
    return CKPT_OK;
}

/* Whether a is to stand behind b. */
static bool smaller(const ckpt_live_range *range, int a, int b)
{
    return range[a].bytes != range[b].bytes ? range[a].bytes < range[b].bytes : a > b;
}

/* `heap` has its smallest first, but for the element at `hole`, which may be too large for its place. */
static void sink(const ckpt_live_range *range, int *heap, int count, int hole)
{
    const int own = heap[hole];
    for (int child = 2 * hole + 1; child < count; child = 2 * hole + 1) {
        child += child + 1 < count && smaller(range, heap[child + 1], heap[child]);
        if (!smaller(range, heap[child], own)) {
            break;
        }
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = own;
}

void ckpt_live_ranges_at(const ckpt_live_ranges *ranges, int at, int *which, int room, int *count, ckpt_bytes *bytes)
{
    const ckpt_live_range *const range = ranges->range;
    int all = 0, kept = 0;
    *bytes = 0;
    for (int i = 0; i < ranges->count && range[i].from <= at; i++) {
        if (range[i].to < at) {
            continue;
        }
        all++;
        if (!ckpt_sum(*bytes, range[i].bytes, bytes)) {
            *bytes = CKPT_BYTES_MAX;
        }
        if (kept < room) {
            which[kept++] = i;
            for (int k = kept / 2 - 1; kept == room && k >= 0; k--) {
                sink(range, which, kept, k);
            }
        } else if (room > 0 && smaller(range, which[0], i)) {
            which[0] = i;
            sink(range, which, kept, 0);
        }
    }
    for (int k = kept / 2 - 1; kept < room && k >= 0; k--) {
        sink(range, which, kept, k);
    }
    for (int k = kept - 1; k > 0; k--) { /* the smallest goes last */
        const int minimum = which[0];
        which[0] = which[k];
        which[k] = minimum;
        sink(range, which, k, 0);
    }
    *count = all;
}
