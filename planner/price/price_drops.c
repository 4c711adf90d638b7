/* Dropping ops one by one, and the schedule that comes of it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "planner/price/price_impl.h"

enum {
    TRIAL_MAX = 1 << 14, /* changes for one op */
    TRIES = 8,           /* times an op goes back into the heap */
};

/* A price is as thought when it is less than so many times that. */
#define NEAR 1.02

/* What a trial changed, to undo it. */
struct ckpt_price_change {
    enum { DROPPED, HOLD, EXTENDED, LIVE, EXTRA } what;
    int index;    /* op or buffer */
    int from, to; /* of HOLD and EXTENDED: as they were; of LIVE and EXTRA: where bytes were added */
    ckpt_bytes bytes;
};

ckpt_code ckpt_price_drops_take(ckpt_price_drops *d, const ckpt_price_facts *facts, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = facts->graph;
    *d = (ckpt_price_drops){
        .facts = facts,
        .dropped = CKPT_NEW(scratch, bool, graph->op_count),
        .checkpoint = CKPT_NEW(scratch, bool, graph->op_count),
        .heap = CKPT_NEW(scratch, ckpt_priced, graph->op_count),
        .tries = CKPT_NEW(scratch, unsigned char, graph->op_count),
        .crossing = CKPT_NEW(scratch, ckpt_bytes, graph->op_count + 1),
        .from = CKPT_NEW(scratch, int, graph->op_count),
        .to = CKPT_NEW(scratch, int, graph->op_count),
        .extended = CKPT_NEW(scratch, int, graph->buffer_count),
        .log = CKPT_NEW(scratch, struct ckpt_price_change, TRIAL_MAX),
        .stack = CKPT_NEW(scratch, int, TRIAL_MAX),
    };
    if (d->dropped == NULL || d->checkpoint == NULL || d->crossing == NULL || d->heap == NULL || d->tries == NULL ||
        d->from == NULL || d->to == NULL || d->extended == NULL || d->log == NULL || d->stack == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "choices for %d ops", graph->op_count);
    }
    CKPT_TRY(ckpt_price_tree_take(&d->live, graph->op_count, scratch, err));
    return ckpt_price_tree_take(&d->extra, graph->op_count, scratch, err);
}

/* False: too much for one trial. */
static bool note(ckpt_price_drops *d, struct ckpt_price_change change)
{
    if (d->log_count >= TRIAL_MAX - 4) {
        return false;
    }
    d->log[d->log_count++] = change;
    return true;
}

static void add_live(ckpt_price_drops *d, int from, int to, ckpt_bytes bytes)
{
    const int last = d->facts->graph->op_count - 1;
    to = to < last ? to : last;
    if (from <= to && note(d, (struct ckpt_price_change){LIVE, 0, from, to, bytes})) {
        ckpt_price_tree_add(&d->live, from, to, bytes);
    }
}

static void add_extra(ckpt_price_drops *d, int from, int to, ckpt_bytes bytes)
{
    const int last = d->facts->graph->op_count - 1;
    to = to < last ? to : last;
    if (from <= to && note(d, (struct ckpt_price_change){EXTRA, 0, from, to, bytes})) {
        ckpt_price_tree_add(&d->extra, from, to, bytes);
        ckpt_price_tree_add(&d->live, from, to, bytes);
        d->low = from < d->low ? from : d->low;
        d->high = to > d->high ? to : d->high;
    }
}

static void undo(ckpt_price_drops *d)
{
    while (d->log_count > 0) {
        const struct ckpt_price_change *const c = &d->log[--d->log_count];
        switch (c->what) {
        case DROPPED: d->dropped[c->index] = false; break;
        case HOLD:
            d->from[c->index] = c->from;
            d->to[c->index] = c->to;
            break;
        case EXTENDED: d->extended[c->index] = c->to; break;
        case EXTRA: ckpt_price_tree_add(&d->extra, c->from, c->to, -c->bytes); /* fall through */
        case LIVE: ckpt_price_tree_add(&d->live, c->from, c->to, -c->bytes); break;
        }
    }
}

static int last_reader(const ckpt_price_facts *f, int b)
{
    const int end = f->reader_from[b + 1];
    return end > f->reader_from[b] ? f->reader[end - 1] : f->graph->writer[b];
}

/* Hold op v at moments from .. to, as far as first runs do not do that anyway. */
static void add_hold(ckpt_price_drops *d, int v, int from, int to)
{
    const ckpt_price_facts *const f = d->facts;
    if (d->dropped[v] && from < f->gap_to[v]) {
        add_extra(d, from, to < f->gap_to[v] ? to : f->gap_to[v] - 1, f->held[v]);
    }
    add_extra(d, from > f->last[v] ? from : f->last[v] + 1, to, f->bytes[v]);
}

/* Op v is to be in memory, recomputed, at moment `at`. False: too much. */
static bool hold(ckpt_price_drops *d, int v, int at)
{
    const int from = d->from[v], to = d->to[v];
    if (from <= at && at <= to) {
        return true;
    }
    if (!note(d, (struct ckpt_price_change){HOLD, v, from, to, 0}) || d->stack_count == TRIAL_MAX) {
        return false;
    }
    if (from == INT_MAX) {
        d->trial_ns += d->facts->graph->op[v].time_ns;
        const int end = d->dropped[v] && d->facts->gap_to[v] > at ? d->facts->gap_to[v] : at;
        d->from[v] = at;
        d->to[v] = end;
        add_hold(d, v, at, end);
    } else if (at > to) {
        d->to[v] = at;
        add_hold(d, v, to + 1, at);
        return true; /* it has its inputs */
    } else {
        d->from[v] = at;
        add_hold(d, v, at, from - 1);
    }
    d->stack[d->stack_count++] = v;
    return true;
}

/* A run at moment `at` reads buffer b. */
static bool need(ckpt_price_drops *d, int b, int at)
{
    const ckpt_price_facts *const f = d->facts;
    const int u = f->graph->writer[b];
    const bool in_gap = d->dropped[u] && at > f->gap_from[u] && at < f->gap_to[u];
    if (!in_gap && at <= last_reader(f, b)) {
        return true;
    }
    if (!f->fixed[u] && (d->dropped[u] || !d->checkpoint[u])) {
        return hold(d, u, at);
    }
    const int last = last_reader(f, b) > d->extended[b] ? last_reader(f, b) : d->extended[b];
    if (at > last) {
        if (!note(d, (struct ckpt_price_change){EXTENDED, b, 0, d->extended[b], 0})) {
            return false;
        }
        d->extended[b] = at;
        d->trial_bytes -= f->graph->buffer[b].bytes;
        add_live(d, last + 1, at, f->graph->buffer[b].bytes);
    }
    return true;
}

/* Drop op v over its gap. False: that takes too much. */
static bool drop(ckpt_price_drops *d, int v, ckpt_bytes cap)
{
    const ckpt_price_facts *const f = d->facts;
    const ckpt_list *const writes = &f->graph->op[v].writes;
    int at = f->gap_to[v];
    for (int i = 0; i < writes->count; i++) { /* what is recomputed within the gap needs it before */
        for (int r = f->reader_from[writes->at[i]]; r < f->reader_from[writes->at[i] + 1]; r++) {
            const int x = f->reader[r];
            if (x < f->graph->op_count && d->from[x] < at && d->from[x] > f->gap_from[v]) {
                at = d->from[x];
            }
        }
    }
    d->log_count = d->stack_count = 0;
    d->low = INT_MAX;
    d->high = -1;
    d->trial_ns = 0;
    d->trial_bytes = f->held[v];
    (void)note(d, (struct ckpt_price_change){DROPPED, v, 0, 0, 0});
    d->dropped[v] = true;
    add_live(d, f->gap_from[v] + 1, f->gap_to[v] - 1, -f->held[v]);
    bool fine = hold(d, v, at);
    while (d->stack_count > 0 && fine) {
        const int u = d->stack[--d->stack_count];
        const ckpt_list *const reads = &f->graph->op[u].reads;
        for (int i = 0; i < reads->count && fine; i++) {
            fine = need(d, reads->at[i], d->from[u]);
        }
    }
    return fine && d->log_count < TRIAL_MAX - 4 &&
           (d->high < d->low || ckpt_price_tree_most(&d->extra, d->low, d->high) <= cap);
}

/* The last use of op v before its gap, or of all. */
static int first_end(const ckpt_price_facts *f, int v)
{
    return f->gap_to[v] > 0 ? f->gap_from[v] : f->last[v];
}

/* What is recomputed takes its inputs along, and theirs, back to something that is in memory. So in every stretch of
 * `bytes` that ops write there is one position, that which the fewest bytes cross, where all that crosses is held. */
static void find_checkpoints(ckpt_price_drops *d, ckpt_bytes bytes)
{
    const ckpt_price_facts *const f = d->facts;
    const int n = f->graph->op_count;
    memset(d->checkpoint, 0, (size_t)n * sizeof *d->checkpoint);
    memset(d->crossing, 0, (size_t)(n + 1) * sizeof *d->crossing);
    for (int v = 0; v < n; v++) {
        if (!f->fixed[v]) {
            d->crossing[v] += f->bytes[v];
            d->crossing[first_end(f, v)] -= f->bytes[v];
        }
    }
    for (int v = 1; v < n; v++) {
        d->crossing[v] += d->crossing[v - 1];
    }
    int from = 0;
    ckpt_bytes written = 0, least = CKPT_BYTES_MAX;
    int cut = -1;
    for (int o = 0; o < n; o++) {
        written += f->fixed[o] ? 0 : f->bytes[o];
        if (written > bytes / 2 && d->crossing[o] <= least) {
            least = d->crossing[o];
            cut = o;
        }
        if (written > bytes) {
            for (int v = from; v <= cut; v++) {
                d->checkpoint[v] = !f->fixed[v] && first_end(f, v) > cut;
            }
            from = cut + 1;
            o = cut;
            written = 0;
            least = CKPT_BYTES_MAX;
        }
    }
}

/* ---- the order of prices ---- */

static bool cheaper(const ckpt_priced *a, const ckpt_priced *b)
{
    return a->price != b->price ? a->price < b->price : a->op > b->op;
}

static void sift(ckpt_priced *heap, int count, int at)
{
    const ckpt_priced moved = heap[at];
    for (int child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && cheaper(&heap[child + 1], &heap[child]);
        if (!cheaper(&heap[child], &moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* What op v costs at the least: recomputing it alone. */
static ckpt_priced lowest_price(const ckpt_price_facts *f, int v)
{
    return (ckpt_priced){(double)f->graph->op[v].time_ns / (double)f->held[v], v};
}

static int fill_heap(ckpt_price_drops *d, bool forced)
{
    const ckpt_price_facts *const f = d->facts;
    int count = 0;
    for (int v = 0; v < f->graph->op_count; v++) {
        if (f->gap_to[v] > 0 && !(forced && d->checkpoint[v])) {
            d->heap[count++] = lowest_price(f, v);
            d->tries[v] = 0;
        }
    }
    for (int i = count / 2 - 1; i >= 0; i--) {
        sift(d->heap, count, i);
    }
    return count;
}

static void clear(ckpt_price_drops *d, const ckpt_bytes *live)
{
    const ckpt_graph *const graph = d->facts->graph;
    memset(d->dropped, 0, (size_t)graph->op_count * sizeof *d->dropped);
    memset(d->extended, 0xFF, (size_t)graph->buffer_count * sizeof *d->extended); /* -1 */
    for (int o = 0; o < graph->op_count; o++) {
        d->from[o] = INT_MAX;
        d->to[o] = -1;
    }
    ckpt_price_tree_fill(&d->live, live, graph->op_count);
    ckpt_price_tree_fill(&d->extra, NULL, graph->op_count);
}

/* Drop op v if that costs its key in the heap, or not much more. `*price`: what it costs; the key where that is too
 * much or nothing is gained. */
static bool try_op(ckpt_price_drops *d, int v, ckpt_bytes cap, double *price)
{
    const double key = *price;
    const bool fine = drop(d, v, cap);
    const bool gains = d->trial_bytes > 0;
    *price = gains ? (double)d->trial_ns / (double)d->trial_bytes : 2 * key;
    const bool dearer = *price - key * NEAR > 0;
    const bool again = dearer && d->tries[v] < TRIES;
    *price = fine ? *price : key;
    if (!fine || !gains || again) {
        undo(d);
        return false;
    }
    return true;
}

/* Prices rise as inputs are dropped and fall as several ops share what they take: what comes out dearer than thought is
 * put back into the heap. */
void ckpt_price_drops_choose(ckpt_price_drops *d, const ckpt_bytes *live, ckpt_bytes limit, ckpt_price_room room,
                             ckpt_poll *poll)
{
    const ckpt_price_facts *const f = d->facts;
    clear(d, live);
    find_checkpoints(d, room.stretch);
    int count = fill_heap(d, room.forced);
    while (count > 0 && d->live.most[1] > limit) {
        const int v = d->heap[0].op;
        double price = d->heap[0].price;
        bool again = false;
        d->log_count = 0;
        if (ckpt_price_tree_most(&d->live, f->gap_from[v] + 1, f->gap_to[v] - 1) > limit) {
            const double key = price;
            again = !try_op(d, v, room.cap, &price) && price > key && d->tries[v]++ < TRIES;
        }
        d->heap[0] = again ? (ckpt_priced){price, v} : d->heap[--count];
        sift(d->heap, count, 0);
        if (ckpt_poll_stopped(poll, 100 + 50 * (int64_t)d->log_count)) {
            return;
        }
    }
}

/* ---- the schedule ---- */

typedef struct writer {
    const ckpt_price_drops *d;
    bool *restored;
    int *stack, *run;
    bool *taken;
} writer;

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a;
    const int y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Push the writers of what is read at moment `at` and gone. Gives the new top. */
static int want(writer *w, const ckpt_list *reads, int at, int top)
{
    const ckpt_price_facts *const f = w->d->facts;
    for (int i = 0; i < reads->count; i++) {
        const int b = reads->at[i];
        const int u = f->graph->writer[b];
        const bool gone = at > (w->d->dropped[u] ? f->gap_from[u] : last_reader(f, b));
        if (gone && !f->fixed[u] && (w->d->dropped[u] || !w->d->checkpoint[u]) && !w->restored[u] && !w->taken[u]) {
            w->taken[u] = true;
            w->stack[top++] = u;
        }
    }
    return top;
}

static void restore(writer *w, const ckpt_list *reads, int at, ckpt_order *order)
{
    int top = want(w, reads, at, 0);
    int count = 0;
    while (top > 0) {
        const int u = w->stack[--top];
        w->run[count++] = u;
        top = want(w, &w->d->facts->graph->op[u].reads, at, top);
    }
    if (count > 1) {
        qsort(w->run, (size_t)count, sizeof *w->run, compare_ints);
    }
    for (int i = 0; i < count; i++) {
        ckpt_order_add(order, w->run[i]);
        w->restored[w->run[i]] = true;
    }
}

ckpt_code ckpt_price_drops_write(const ckpt_price_drops *drops, ckpt_arena *scratch, ckpt_order *order, ckpt_err *err)
{
    const ckpt_graph *const graph = drops->facts->graph;
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    writer w = {
        .d = drops,
        .restored = CKPT_NEW(scratch, bool, graph->op_count),
        .stack = CKPT_NEW(scratch, int, graph->op_count),
        .run = CKPT_NEW(scratch, int, graph->op_count),
        .taken = CKPT_NEW(scratch, bool, graph->op_count),
    };
    if (w.restored == NULL || w.stack == NULL || w.run == NULL || w.taken == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "recomputations of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        restore(&w, &graph->op[o].reads, o, order);
        ckpt_order_add(order, o);
    }
    restore(&w, &graph->outputs, graph->op_count, order);
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}
