/* Finds what encloses each event of a trace. On one thread, a span that starts later and within another is inside it.
 * One walk over the spans of a thread in order of their start, with a stack, finds the outermost operation and the
 * innermost module around each. A kernel belongs where the call that launched it is. An autograd node belongs to the
 * layer of the forward operation with the same sequence number. */
#include <stdlib.h>
#include <string.h>

#include "imports/chrome_impl.h"

static const char backward_node[] = "autograd::engine::evaluate_function: ";

static int by_thread_and_start(const void *a, const void *b)
{
    const ckpt_chrome_mark *const x = a, *const y = b;
    if (x->span.thread != y->span.thread) {
        return x->span.thread < y->span.thread ? -1 : 1;
    }
    const int order = ckpt_import_compare(x->span.start_ns, y->span.start_ns);
    return order != 0 ? order : ckpt_import_compare(x->span.order, y->span.order);
}

/* The enclosing span first: of spans that start together the longest, and instants last. */
static int by_nesting(const void *a, const void *b)
{
    const ckpt_chrome_span *const x = a, *const y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    if (x->start_ns != y->start_ns) {
        return ckpt_import_compare(x->start_ns, y->start_ns);
    }
    if ((x->kind == CKPT_CHROME_MEMORY) != (y->kind == CKPT_CHROME_MEMORY)) {
        return x->kind == CKPT_CHROME_MEMORY ? 1 : -1;
    }
    return x->end_ns != y->end_ns ? ckpt_import_compare(y->end_ns, x->end_ns) : ckpt_import_compare(x->order, y->order);
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

/* The last moment of the trace: spans that never end are taken to end here. */
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

/* Makes spans of separate begin and end events: an end closes the last open begin of its thread. */
static ckpt_code pair_marks(ckpt_chrome *chrome, ckpt_err *err)
{
    ckpt_chrome_mark *const mark = chrome->marks.at;
    const int count = chrome->marks.count;
    if (count == 0) {
        return CKPT_OK;
    }
    const ckpt_ns last = last_moment(chrome);
    qsort(mark, (size_t)count, sizeof *mark, by_thread_and_start);
    int depth = 0; /* open begins are moved to the front of the array, over events that are done with */
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
    ckpt_chrome_place place; /* of what is inside */
} open_span;

/* False for annotations that name a part of training, or nothing, instead of a layer. */
static bool names_a_layer(const ckpt_chrome_span *span)
{
    return !ckpt_slice_begins(span->name, "ProfilerStep#") && !ckpt_slice_begins(span->name, "Optimizer.") &&
           !ckpt_slice_begins(span->name, "enumerate(DataLoader)") && !ckpt_slice_begins(span->name, "[");
}

/* The place of events inside `span`, which itself is at `place`. */
static ckpt_chrome_place inside_of(const ckpt_chrome_span *span, ckpt_chrome_place place, bool generic)
{
    if (span->kind == CKPT_CHROME_OP || (span->kind == CKPT_CHROME_ANY && generic)) {
        place.op = place.op == NULL ? span : place.op;
        place.sequence = span->sequence >= 0 ? span->sequence : place.sequence;
        place.backward = place.backward || ckpt_slice_begins(span->name, backward_node);
    } else if (span->kind == CKPT_CHROME_ANNOTATION) {
        place.update = place.update || ckpt_slice_begins(span->name, "Optimizer.");
        place.layer = names_a_layer(span) ? span : place.layer;
    } else if (span->kind == CKPT_CHROME_MODULE) {
        place.layer = span;
    }
    return place;
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
        const ckpt_chrome_place place = depth > 0 ? stack[depth - 1].place : outside;
        const ckpt_chrome_place inner = inside_of(s, place, generic);
        s->place = inner;
        if (!instant && s->kind != CKPT_CHROME_LAUNCH) {
            /* clocks are not perfect: a span that ends after its enclosing span is cut, so that lanes do not overlap */
            s->end_ns = depth > 0 && stack[depth - 1].end_ns < s->end_ns ? stack[depth - 1].end_ns : s->end_ns;
            stack[depth++] = (open_span){s->end_ns, inner};
        }
    }
}

static void add_span(ckpt_import_index *index, int64_t number, const ckpt_chrome *chrome, int i)
{
    const ckpt_chrome_span *const span = (const ckpt_chrome_span *)chrome->spans.at + i;
    ckpt_import_index_add(index, (ckpt_import_entry){number, span->start_ns, span->order, i});
}

/* Gives each autograd node without a layer that of the last forward operation with its sequence number. `room`: for all
 * spans. */
static void place_backward(ckpt_chrome *chrome, ckpt_import_entry *room)
{
    ckpt_chrome_span *const span = chrome->spans.at;
    ckpt_import_index forward = {room, 0};
    for (int i = 0; i < chrome->spans.count; i++) {
        if (span[i].kind == CKPT_CHROME_OP && !span[i].place.backward && span[i].place.layer != NULL) {
            add_span(&forward, span[i].sequence, chrome, i);
        }
    }
    ckpt_import_index_sort(&forward);
    for (int i = 0; i < chrome->spans.count; i++) {
        ckpt_chrome_place *const place = &span[i].place;
        const bool lost = place->backward && place->layer == NULL && place->sequence >= 0;
        const int64_t made = lost ? ckpt_import_index_find(&forward, place->sequence) : -1;
        place->layer = made >= 0 ? span[made].place.layer : place->layer;
    }
}

/* By the call that launched it, else by the operation around that call. */
static void place_works(ckpt_chrome *chrome, ckpt_import_entry *room)
{
    ckpt_chrome_span *const span = chrome->spans.at;
    ckpt_chrome_work *const work = chrome->works.at;
    for (int pass = 0; pass < 2; pass++) {
        ckpt_import_index index = {room, 0};
        for (int i = 0; i < chrome->spans.count; i++) {
            if (span[i].kind == (pass == 0 ? CKPT_CHROME_LAUNCH : CKPT_CHROME_OP)) {
                add_span(&index, pass == 0 ? span[i].correlation : span[i].external, chrome, i);
            }
        }
        ckpt_import_index_sort(&index);
        for (int i = 0; i < chrome->works.count; i++) {
            const int64_t found = ckpt_import_index_find(&index, pass == 0 ? work[i].correlation : work[i].external);
            if (work[i].place == NULL && found >= 0) {
                work[i].place = &span[found].place;
            }
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
    _Static_assert(sizeof(open_span) >= sizeof(ckpt_import_entry), "one array serves for both");
    void *const room = ckpt_memory_get((size_t)count * sizeof(open_span));
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
