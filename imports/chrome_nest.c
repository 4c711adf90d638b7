/* Where each event of a trace stands. On one thread, what starts later and within another is inside it; so one walk
 * over the spans of a thread in order of their start, with a stack, tells for each the outermost operation and the
 * innermost module around it. A kernel stands where the call that started it does. A node of autograd stands where the
 * operation of the same sequence number did that made it. */
#include <stdlib.h>
#include <string.h>

#include "imports/chrome_impl.h"

static const char backward_node[] = "autograd::engine::evaluate_function: ";

static int compare_times(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_thread_and_start(const void *a, const void *b)
{
    const ckpt_chrome_mark *const x = a, *const y = b;
    if (x->span.thread != y->span.thread) {
        return x->span.thread < y->span.thread ? -1 : 1;
    }
    const int order = compare_times(x->span.start_ns, y->span.start_ns);
    return order != 0 ? order : compare_times(x->span.order, y->span.order);
}

/* What is around comes first: of spans that start together the longest, and instants last. */
static int by_nesting(const void *a, const void *b)
{
    const ckpt_chrome_span *const x = a, *const y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    if (x->start_ns != y->start_ns) {
        return compare_times(x->start_ns, y->start_ns);
    }
    if ((x->kind == CKPT_CHROME_MEMORY) != (y->kind == CKPT_CHROME_MEMORY)) {
        return x->kind == CKPT_CHROME_MEMORY ? 1 : -1;
    }
    return x->end_ns != y->end_ns ? compare_times(y->end_ns, x->end_ns) : compare_times(x->order, y->order);
}

static int by_thread(const void *a, const void *b)
{
    const ckpt_chrome_thread *const x = a, *const y = b;
    return x->thread < y->thread ? -1 : x->thread > y->thread;
}

ckpt_slice ckpt_chrome_thread_name(const ckpt_chrome *chrome, uint64_t thread)
{
    const ckpt_chrome_thread key = {.thread = thread};
    const ckpt_chrome_thread *const found =
        chrome->threads.count == 0
            ? NULL
            : bsearch(&key, chrome->threads.at, (size_t)chrome->threads.count, sizeof key, by_thread);
    return found != NULL ? found->name : (ckpt_slice){NULL, 0};
}

/* The last moment of the trace, where what never ended ends. */
static ckpt_ns last_moment(const ckpt_chrome *chrome)
{
    const ckpt_chrome_span *const span = chrome->spans.at;
    const ckpt_chrome_mark *const mark = chrome->marks.at;
    ckpt_ns last = INT64_MIN;
    for (int i = 0; i < chrome->spans.count; i++) {
        last = span[i].end_ns > last ? span[i].end_ns : last;
    }
    for (int i = 0; i < chrome->marks.count; i++) {
        last = mark[i].span.start_ns > last ? mark[i].span.start_ns : last;
    }
    return last;
}

static ckpt_code close_mark(ckpt_chrome *chrome, const ckpt_chrome_span *begun, ckpt_ns end, ckpt_err *err)
{
    void *added = NULL;
    CKPT_TRY(ckpt_chrome_add(&chrome->spans, sizeof *begun, &added, err));
    ckpt_chrome_span *const span = added;
    *span = *begun;
    span->end_ns = end;
    return CKPT_OK;
}

/* Begins and ends that stand alone become spans: an end closes the last begin of its thread that is open. */
static ckpt_code pair_marks(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_chrome_mark *const mark = chrome->marks.at;
    const int count = chrome->marks.count;
    if (count == 0) {
        return CKPT_OK;
    }
    const ckpt_ns last = last_moment(chrome);
    qsort(mark, (size_t)count, sizeof *mark, by_thread_and_start);
    int depth = 0; /* the open begins are moved to the front of the array: what was there has been seen */
    for (int i = 0; i <= count; i++) {
        while (depth > 0 && (i == count || mark[depth - 1].span.thread != mark[i].span.thread)) {
            chrome->unfinished++;
            CKPT_TRY(close_mark(chrome, &mark[--depth].span, last, err));
        }
        if (i == count) {
            break;
        }
        if (mark[i].begin) {
            mark[depth++] = mark[i];
        } else if (depth > 0) {
            CKPT_TRY(close_mark(chrome, &mark[--depth].span, mark[i].span.start_ns, err));
        } else {
            chrome->unbegun++;
        }
    }
    return CKPT_OK;
}

typedef struct open_span {
    ckpt_ns end_ns;
    ckpt_chrome_place allocation; /* of what is inside */
} open_span;

/* Annotations that say what part of training runs, or nothing, and not which layer. */
static bool names_a_layer(const ckpt_chrome_span *span)
{
    return !ckpt_slice_begins(span->name, "ProfilerStep#") && !ckpt_slice_begins(span->name, "Optimizer.") &&
           !ckpt_slice_begins(span->name, "enumerate(DataLoader)") && !ckpt_slice_begins(span->name, "[");
}

/* The place of what is inside `span`, which itself stands at `place`. */
static ckpt_chrome_place inside_of(const ckpt_chrome_span *span, ckpt_chrome_place allocation, bool generic)
{
    if (span->kind == CKPT_CHROME_OP || (span->kind == CKPT_CHROME_ANY && generic)) {
        allocation.op = allocation.op == NULL ? span : allocation.op;
        allocation.sequence = span->sequence >= 0 ? span->sequence : allocation.sequence;
        allocation.backward = allocation.backward || ckpt_slice_begins(span->name, backward_node);
    } else if (span->kind == CKPT_CHROME_ANNOTATION) {
        allocation.update = allocation.update || ckpt_slice_begins(span->name, "Optimizer.");
        allocation.layer = names_a_layer(span) ? span : allocation.layer;
    } else if (span->kind == CKPT_CHROME_MODULE) {
        allocation.layer = span;
    }
    return allocation;
}

/* A thread of autograd's engine; PyTorch calls them pt_autograd_0 and so on. */
static bool is_autograd(const ckpt_chrome *chrome, uint64_t thread)
{
    static const char name[] = "pt_autograd";
    const ckpt_slice found = ckpt_chrome_thread_name(chrome, thread);
    for (size_t i = 0; found.at != NULL && i + sizeof name - 1 <= found.length; i++) {
        if (memcmp(found.at + i, name, sizeof name - 1) == 0) {
            return true;
        }
    }
    return false;
}

/* `stack` has room for all spans. */
static void walk_threads(ckpt_chrome *chrome, open_span *stack, bool generic)
{
    ckpt_chrome_span *const span = chrome->spans.at;
    ckpt_chrome_place outside = {.sequence = -1};
    int depth = 0;
    for (int i = 0; i < chrome->spans.count; i++) {
        ckpt_chrome_span *const s = &span[i];
        const bool instant = s->kind == CKPT_CHROME_MEMORY;
        if (i == 0 || span[i - 1].thread != s->thread) {
            depth = 0;
            outside.backward = is_autograd(chrome, s->thread);
        }
        while (depth > 0 &&
               (instant ? stack[depth - 1].end_ns < s->start_ns : stack[depth - 1].end_ns <= s->start_ns)) {
            depth--;
        }
        const ckpt_chrome_place allocation = depth > 0 ? stack[depth - 1].allocation : outside;
        const ckpt_chrome_place inner = inside_of(s, allocation, generic);
        s->allocation = inner;
        if (!instant && s->kind != CKPT_CHROME_LAUNCH) {
            /* what ends after what it began in counts as ended with it: clocks are not perfect, lanes do not overlap */
            s->end_ns = depth > 0 && stack[depth - 1].end_ns < s->end_ns ? stack[depth - 1].end_ns : s->end_ns;
            stack[depth++] = (open_span){s->end_ns, inner};
        }
    }
}

/* Spans under a number, to be found by it. */
typedef struct numbered {
    int64_t number;
    const ckpt_chrome_span *span;
} numbered;

typedef struct number_index {
    numbered *at;
    int count;
} number_index;

static int by_number(const void *a, const void *b)
{
    const numbered *const x = a, *const y = b;
    if (x->number != y->number) {
        return compare_times(x->number, y->number);
    }
    return x->span->start_ns != y->span->start_ns ? compare_times(x->span->start_ns, y->span->start_ns)
                                                  : compare_times(x->span->order, y->span->order);
}

/* The last of that number; NULL: none. */
static const ckpt_chrome_span *find_number(const number_index *index, int64_t number)
{
    int low = 0;
    int high = index->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (index->at[middle].number <= number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && index->at[low - 1].number == number ? index->at[low - 1].span : NULL;
}

static void add_number(number_index *index, int64_t number, const ckpt_chrome_span *span)
{
    if (number >= 0) {
        index->at[index->count++] = (numbered){number, span};
    }
}

static void sort_numbers(number_index *index)
{
    if (index->count > 0) {
        qsort(index->at, (size_t)index->count, sizeof *index->at, by_number);
    }
}

/* `room` for all spans. The layer of a node is that of the operation before it with its number. */
static void place_backward(ckpt_chrome *chrome, numbered *room)
{
    ckpt_chrome_span *const span = chrome->spans.at;
    number_index forward = {room, 0};
    for (int i = 0; i < chrome->spans.count; i++) {
        if (span[i].kind == CKPT_CHROME_OP && !span[i].allocation.backward && span[i].allocation.layer != NULL) {
            add_number(&forward, span[i].sequence, &span[i]);
        }
    }
    sort_numbers(&forward);
    for (int i = 0; i < chrome->spans.count; i++) {
        ckpt_chrome_place *const allocation = &span[i].allocation;
        const bool lost = allocation->backward && allocation->layer == NULL && allocation->sequence >= 0;
        const ckpt_chrome_span *const made = lost ? find_number(&forward, allocation->sequence) : NULL;
        allocation->layer = made != NULL ? made->allocation.layer : allocation->layer;
    }
}

/* By the call that started it; else by the operation around that. */
static void place_works(ckpt_chrome *chrome, numbered *room)
{
    ckpt_chrome_span *const span = chrome->spans.at;
    ckpt_chrome_work *const work = chrome->works.at;
    for (int pass = 0; pass < 2; pass++) {
        number_index index = {room, 0};
        for (int i = 0; i < chrome->spans.count; i++) {
            if (span[i].kind == (pass == 0 ? CKPT_CHROME_LAUNCH : CKPT_CHROME_OP)) {
                add_number(&index, pass == 0 ? span[i].correlation : span[i].external, &span[i]);
            }
        }
        sort_numbers(&index);
        for (int i = 0; i < chrome->works.count; i++) {
            const ckpt_chrome_span *const found =
                work[i].allocation != NULL ? NULL
                                           : find_number(&index, pass == 0 ? work[i].correlation : work[i].external);
            work[i].allocation = found != NULL ? &found->allocation : work[i].allocation;
        }
    }
}

ckpt_code ckpt_chrome_nest(ckpt_chrome *chrome, ckpt_err *err)
{
    CKPT_TRY(pair_marks(chrome, err));
    ckpt_chrome_span *const span = chrome->spans.at;
    ckpt_chrome_memory *const memory = chrome->memories.at;
    const int count = chrome->spans.count;
    bool generic = chrome->works.count == 0;
    for (int i = 0; i < count; i++) {
        generic = generic && span[i].kind != CKPT_CHROME_OP;
    }
    if (chrome->threads.count > 0) {
        qsort(chrome->threads.at, (size_t)chrome->threads.count, sizeof(ckpt_chrome_thread), by_thread);
    }
    if (count == 0) {
        return CKPT_OK;
    }
    void *const room = ckpt_memory_get((size_t)count * sizeof(open_span)); /* more than a numbered */
    if (room == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to sort %d events", count);
    }
    qsort(span, (size_t)count, sizeof *span, by_nesting);
    walk_threads(chrome, room, generic);
    place_backward(chrome, room);
    place_works(chrome, room);
    for (int i = 0; i < count; i++) {
        if (span[i].kind == CKPT_CHROME_MEMORY) {
            memory[span[i].memory].span = &span[i];
        }
    }
    ckpt_memory_put(room);
    return CKPT_OK;
}
