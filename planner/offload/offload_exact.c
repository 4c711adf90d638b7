/* Small graphs exactly: A* (Hart, Nilsson and Raphael, IEEE Trans. SSC 4(2), 1968) over all runs and copies.
 *
 * A node is what is in memory and on the host, the op whose first run is due, and when compute, the two copy engines
 * and each copy are done. Of nodes that differ only in times, one that is nowhere later dominates the others. The time
 * to come is bounded from below by the first runs that are due and the recomputations without which they cannot be.
 *
 * Rules that lose no schedule faster than all others, as what breaks them can be moved so that no copy or run starts
 * later: an offload is issued right after the run that writes its buffer, or behind another offload (the order of the
 * engine stays); a buffer is freed right before the run or fetch that needs its room, and only if it does; a fetch that
 * has room during the run before it is issued before that run; what is no longer wanted goes as soon as no copy
 * touches it; nothing is offloaded twice. */
#include <string.h>

#include "planner/offload/offload_impl.h"

enum {
    BUFFERS = CKPT_EXACT_BUFFERS,
    OPS = CKPT_EXACT_OPS,
    BUCKETS = 1 << 14,
};

typedef struct node {
    uint32_t memory, host;
    uint32_t freed; /* right before the entry */
    uint32_t fresh; /* what may be offloaded now */
    uint32_t late;  /* what should have been fetched before the last run */
    int next;       /* op whose first run is due */
    int entry;      /* how it was reached: an entry of a sequence; an in-place run has its bit in `inplace` */
    int parent;     /* -1: the start */
    int chain;      /* next node of its bucket; -1: none */
    bool inplace, dominated;
    ckpt_ns now, d2h, h2d, total; /* total: no schedule through here is faster */
} node;

typedef struct exact {
    const ckpt_offload *o;
    const ckpt_graph *graph;
    bool recomputed[OPS]; /* may be recomputed */
    uint32_t reads[OPS], uses[OPS], writes[OPS];
    uint32_t taken[OPS];       /* inputs that an in-place run destroys */
    uint32_t due[OPS + 1];     /* buffers that first runs from here on use, or that are outputs */
    uint32_t wanted[OPS + 1];  /* and what is recomputed may use */
    uint32_t written[OPS + 1]; /* by the ops before */
    ckpt_ns rest[OPS + 1];     /* first runs from here on */
    uint32_t sums, movable;    /* buffers that are added to; that may be copied */
    node *node;
    ckpt_ns *ready; /* per node: its buffers' read, then written times */
    int *bucket, *heap;
    int count, room, heap_count, buffers;
    ckpt_ns below; /* only what is faster is looked for */
    node made;     /* the one being made, its times in ready[room] */
} exact;

static ckpt_ns *read_of(const exact *e, int n)
{
    return e->ready + (size_t)n * 2 * (size_t)e->buffers;
}

static ckpt_ns *written_of(const exact *e, int n)
{
    return read_of(e, n) + e->buffers;
}

static ckpt_ns later(ckpt_ns a, ckpt_ns b)
{
    return a > b ? a : b;
}

static bool bit(uint32_t mask, int b)
{
    return (mask >> b & 1) != 0;
}

static uint32_t mask_of(const ckpt_list *list)
{
    uint32_t mask = 0;
    for (int i = 0; i < list->count; i++) {
        mask |= UINT32_C(1) << list->at[i];
    }
    return mask;
}

static ckpt_bytes bytes_of(const exact *e, uint32_t mask)
{
    ckpt_bytes bytes = 0;
    for (int b = 0; b < e->buffers; b++) {
        bytes += bit(mask, b) ? e->graph->buffer[b].bytes : 0;
    }
    return bytes;
}

static void describe(exact *e)
{
    const ckpt_graph *const graph = e->graph;
    const int ops = graph->op_count;
    for (int i = 0; i < ops; i++) {
        e->sums |= mask_of(&graph->op[i].adds);
    }
    for (int i = 0; i < ops; i++) {
        const ckpt_graph_op *const op = &graph->op[i];
        e->reads[i] = mask_of(&op->reads);
        e->uses[i] = e->reads[i] | mask_of(&op->adds);
        e->writes[i] = mask_of(&op->writes);
        e->recomputed[i] = op->recompute && ((e->uses[i] | e->writes[i]) & e->sums) == 0 && /* nothing is added twice */
                           e->o->mode != CKPT_OFFLOAD_COPIES;
        e->written[i + 1] = e->written[i] | e->writes[i];
        for (int p = 0; p < op->inplace_count; p++) {
            e->taken[i] |= UINT32_C(1) << op->inplace[p].in;
        }
    }
    e->due[ops] = mask_of(&graph->outputs);
    for (int i = ops - 1; i >= 0; i--) {
        e->due[i] = e->due[i + 1] | e->uses[i];
        e->rest[i] = e->rest[i + 1] + graph->op[i].time_ns; /* sums were checked with the graph */
    }
    for (int next = 0; next <= ops; next++) {
        uint32_t wanted = e->due[next];
        for (int i = ops - 1; i >= 0; i--) { /* readers come after writers */
            wanted |= e->recomputed[i] && (wanted & e->writes[i]) != 0 ? e->reads[i] : 0;
        }
        e->wanted[next] = wanted;
    }
    for (int b = 0; b < e->buffers; b++) {
        e->movable |= e->o->movable[b] ? UINT32_C(1) << b : 0;
    }
}

/* Least time still to come for compute; false when there is no way on. */
static bool bound_rest(const exact *e, const node *n, ckpt_ns *rest)
{
    const uint32_t there = n->memory | n->host;
    uint32_t missing = e->due[n->next] & e->written[n->next] & ~there;
    *rest = e->rest[n->next];
    for (int i = n->next - 1; i >= 0 && missing != 0; i--) {
        if ((e->writes[i] & missing) != 0) {
            if (!e->recomputed[i] || !ckpt_sum(*rest, e->graph->op[i].time_ns, rest)) {
                return false;
            }
            missing |= e->reads[i] & ~there;
        }
    }
    return true;
}

/* --- nodes --- */

static void heap_push(exact *e, int n)
{
    int at = e->heap_count++;
    for (; at > 0; at = (at - 1) / 2) {
        const node *const above = &e->node[e->heap[(at - 1) / 2]];
        if (above->total < e->node[n].total || (above->total == e->node[n].total && above->now >= e->node[n].now)) {
            break;
        }
        e->heap[at] = e->heap[(at - 1) / 2];
    }
    e->heap[at] = n;
}

static bool comes_first(const exact *e, int a, int b)
{
    const node *const x = &e->node[a];
    const node *const y = &e->node[b];
    return x->total < y->total || (x->total == y->total && x->now > y->now);
}

static int heap_pop(exact *e)
{
    const int top = e->heap[0];
    const int moved = e->heap[--e->heap_count];
    int at = 0;
    for (int child = 1; child < e->heap_count; child = 2 * at + 1) {
        child += child + 1 < e->heap_count && comes_first(e, e->heap[child + 1], e->heap[child]);
        if (!comes_first(e, e->heap[child], moved)) {
            break;
        }
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = moved;
    return top;
}

/* Node a is nowhere later than b, and what b may do, a may. */
static bool dominates(const exact *e, const node *a, int a_times, const node *b, int b_times)
{
    if (a->now > b->now || a->d2h > later(b->d2h, b->now) || a->h2d > later(b->h2d, b->now) ||
        (b->fresh & ~a->fresh) != 0 || (a->late & ~b->late) != 0) {
        return false;
    }
    const ckpt_ns *const x = read_of(e, a_times);
    const ckpt_ns *const y = read_of(e, b_times);
    for (int i = 0; i < 2 * e->buffers; i++) {
        if (x[i] > later(y[i], b->now)) {
            return false;
        }
    }
    return true;
}

/* Keep e->made, unless it is too slow or another is at least as good. */
static void keep(exact *e)
{
    node *const made = &e->made;
    ckpt_ns *const read = read_of(e, e->room);
    ckpt_ns *const written = written_of(e, e->room);
    for (int b = 0; b < e->buffers; b++) {
        read[b] = read[b] > made->now ? read[b] : 0;
        written[b] = written[b] > made->now ? written[b] : 0;
        if (!bit(e->wanted[made->next], b) && read[b] == 0 && written[b] == 0) {
            made->memory &= ~(UINT32_C(1) << b);
        }
    }
    made->host &= e->o->host_limit < CKPT_BYTES_MAX ? UINT32_MAX : e->wanted[made->next];
    made->late &= made->host & ~made->memory;
    made->fresh &= made->memory & ~made->host & e->movable & e->wanted[made->next];
    ckpt_ns rest = 0;
    if (!bound_rest(e, made, &rest) || !ckpt_sum(made->now, rest, &made->total)) {
        return;
    }
    made->total = later(made->total, later(made->d2h, made->h2d));
    if (made->total >= e->below) {
        return;
    }
    uint64_t hash = ((uint64_t)made->memory << 32 | made->host) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 29 ^ (uint64_t)made->next) * UINT64_C(0xBF58476D1CE4E5B9);
    int *const bucket = &e->bucket[hash >> 50];
    for (int n = *bucket; n >= 0; n = e->node[n].chain) {
        node *const other = &e->node[n];
        if (other->memory != made->memory || other->host != made->host || other->next != made->next ||
            other->dominated) {
            continue;
        }
        if (dominates(e, other, n, made, e->room)) {
            return;
        }
        other->dominated = dominates(e, made, e->room, other, n);
    }
    if (e->count >= e->room) {
        e->count = e->room + 1; /* more than there may be */
        return;
    }
    made->chain = *bucket;
    *bucket = e->count;
    e->node[e->count] = *made;
    memcpy(read_of(e, e->count), read, (size_t)(2 * e->buffers) * sizeof *read);
    heap_push(e, e->count++);
}

/* A copy of node n in e->made, reached from it by `entry`. */
static node *start_from(exact *e, int n, int entry)
{
    e->made = e->node[n];
    e->made.parent = n;
    e->made.entry = entry;
    e->made.inplace = e->made.dominated = false;
    e->made.freed = 0;
    memcpy(read_of(e, e->room), read_of(e, n), (size_t)(2 * e->buffers) * sizeof(ckpt_ns));
    return &e->made;
}

/* --- what may come next --- */

/* Node n with `freed` gone, in e->made, if a run or fetch that then takes `bytes` beside what is in memory needs all of
 * `freed` to go but for what is in `must`. */
static bool start_freed(exact *e, int n, int entry, uint32_t freed, uint32_t must, ckpt_bytes bytes)
{
    const uint32_t left = e->node[n].memory & ~freed;
    const ckpt_bytes room = e->o->limit - bytes_of(e, left) - bytes;
    if (room < 0) {
        return false;
    }
    for (int b = 0; b < e->buffers; b++) {
        if (bit(freed & ~must, b) && e->graph->buffer[b].bytes <= room) {
            return false;
        }
    }
    node *const made = start_from(e, n, entry);
    const ckpt_ns *const read = read_of(e, n);
    for (int b = 0; b < e->buffers; b++) {
        made->now = bit(freed, b) ? later(made->now, read[b]) : made->now;
    }
    made->memory = left;
    made->freed = freed;
    return true;
}

/* What may be freed at node n. What is fetched to be freed again is no use. */
static uint32_t find_freeable(const exact *e, int n)
{
    uint32_t freeable = e->node[n].memory & ~(e->sums & e->wanted[e->node[n].next]);
    for (int b = 0; b < e->buffers; b++) {
        freeable &= written_of(e, n)[b] > e->node[n].now ? ~(UINT32_C(1) << b) : UINT32_MAX;
    }
    return freeable;
}

static void run(exact *e, int n, int o, bool inplace, uint32_t freed, ckpt_bytes bytes)
{
    const ckpt_graph_op *const op = &e->graph->op[o];
    const bool first = o == e->node[n].next;
    const uint32_t gone = inplace ? e->taken[o] : 0;
    if (!start_freed(e, n, o, freed, e->writes[o], bytes)) {
        return;
    }
    node *const made = &e->made;
    const ckpt_ns *const read = read_of(e, n);
    const ckpt_ns *const written = written_of(e, n);
    const uint32_t before = made->memory;
    ckpt_ns start = made->now;
    for (int b = 0; b < e->buffers; b++) {
        start = bit(e->uses[o], b) ? later(start, written[b]) : start;
        start = bit(gone | (e->uses[o] & e->sums), b) ? later(start, read[b]) : start;
    }
    if (!ckpt_sum(start, op->time_ns, &made->now)) {
        return;
    }
    made->inplace = inplace;
    made->memory = (before & ~gone) | e->writes[o];
    made->next += first;
    made->fresh = e->writes[o];
    made->late = 0;
    const ckpt_bytes room = e->o->limit - bytes_of(e, before) - bytes;
    for (int b = 0; b < e->buffers; b++) {
        const bool could = bit(made->host & ~before & ~freed, b) && e->graph->buffer[b].bytes <= room;
        made->late |= could ? UINT32_C(1) << b : 0;
    }
    keep(e);
}

/* With every set of buffers freed before. */
static void try_run(exact *e, int n, int o, bool inplace)
{
    const node from = e->node[n];
    const bool first = o == from.next;
    const uint32_t gone = inplace ? e->taken[o] : 0;
    const uint32_t added = e->uses[o] & ~e->reads[o];
    const uint32_t must = e->writes[o] & from.memory;
    const uint32_t freeable = find_freeable(e, n) & ~e->uses[o];
    if ((e->uses[o] & ~from.memory) != 0 || (must & ~freeable) != 0 ||
        (!first && (e->writes[o] & e->wanted[from.next] & ~from.memory) == 0) ||
        (inplace && (gone == 0 || (gone & (added | (e->sums & e->wanted[from.next + first]))) != 0))) {
        return;
    }
    const ckpt_bytes bytes = bytes_of(e, e->writes[o]) + e->graph->op[o].workspace_bytes - bytes_of(e, gone);
    const uint32_t choice = freeable & ~must;
    for (uint32_t freed = choice;; freed = (freed - 1) & choice) {
        run(e, n, o, inplace, freed | must, bytes);
        if (freed == 0) {
            break;
        }
    }
}

static void offload(exact *e, int n, int b)
{
    const node *const from = &e->node[n];
    const uint32_t host = from->host | UINT32_C(1) << b;
    if (!bit(from->fresh, b) || bytes_of(e, host) > e->o->host_limit) {
        return;
    }
    node *const made = start_from(e, n, ckpt_sequence_copy(CKPT_OFFLOAD, b));
    if (ckpt_sum(later(from->now, from->d2h), e->o->d2h_ns[b], &made->d2h)) {
        read_of(e, e->room)[b] = made->d2h;
        made->host = host;
        made->fresh = UINT32_MAX;
        keep(e);
    }
}

static void fetch(exact *e, int n, int b, uint32_t freed)
{
    if (!start_freed(e, n, ckpt_sequence_copy(CKPT_FETCH, b), freed, 0, e->graph->buffer[b].bytes)) {
        return;
    }
    node *const made = &e->made;
    if (ckpt_sum(later(later(made->now, made->h2d), read_of(e, n)[b]), e->o->h2d_ns[b], &made->h2d)) {
        written_of(e, e->room)[b] = made->h2d;
        made->memory |= UINT32_C(1) << b;
        made->fresh = made->late = 0;
        keep(e);
    }
}

static void try_fetch(exact *e, int n, int b)
{
    const node from = e->node[n];
    const uint32_t choice = find_freeable(e, n);
    if (bit(from.memory, b) || !bit(from.host & e->wanted[from.next], b)) {
        return;
    }
    for (uint32_t freed = choice;; freed = (freed - 1) & choice) {
        if (freed != 0 || !bit(from.late, b)) {
            fetch(e, n, b, freed);
        }
        if (freed == 0) {
            break;
        }
    }
}

static void expand(exact *e, int n)
{
    const int next = e->node[n].next;
    for (int o = 0; o <= next && o < e->graph->op_count; o++) {
        if (o == next || e->recomputed[o]) {
            try_run(e, n, o, false);
            try_run(e, n, o, true);
        }
    }
    for (int b = 0; b < e->buffers; b++) {
        offload(e, n, b);
        try_fetch(e, n, b);
    }
}

/* --- the whole --- */

/* Frees are written where copies make them matter; all others follow from the sequence. */
static void write_frees(const exact *e, uint32_t freed, ckpt_order *order)
{
    for (int b = 0; b < e->buffers; b++) {
        if (bit(freed, b)) {
            ckpt_order_add(order, ckpt_sequence_copy(CKPT_FREE, b));
        }
    }
}

static void write_order(const exact *e, int goal, int *path, ckpt_order *order)
{
    int length = 0;
    for (int n = goal; e->node[n].parent >= 0; n = e->node[n].parent) {
        path[length++] = n;
    }
    uint32_t memory = 0;
    uint32_t host = 0;
    while (length > 0) {
        const node *const n = &e->node[path[--length]];
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(n->entry, &target);
        const uint32_t one = kind == CKPT_RUN ? 0 : UINT32_C(1) << target;
        write_frees(e, n->freed & host, order);
        memory &= ~n->freed;
        ckpt_order_add(order, n->entry);
        memory &= ~(n->inplace ? e->taken[target] : 0);
        memory |= kind == CKPT_RUN ? e->writes[target] : kind == CKPT_FETCH ? one : 0;
        host |= kind == CKPT_OFFLOAD ? one : 0;
        write_frees(e, memory & host & ~n->memory, order); /* no longer wanted */
        memory &= n->memory;
    }
    write_frees(e, memory & host & ~e->due[e->graph->op_count], order); /* at the end nobody waits */
}

static ckpt_code take(exact *e, ckpt_arena *scratch, ckpt_err *err)
{
    e->node = CKPT_NEW(scratch, node, e->room);
    e->ready = CKPT_NEW(scratch, ckpt_ns, (size_t)(e->room + 1) * 2 * (size_t)e->buffers);
    e->heap = CKPT_NEW(scratch, int, e->room + 1);
    e->bucket = CKPT_NEW(scratch, int, BUCKETS);
    if (e->node == NULL || e->ready == NULL || e->heap == NULL || e->bucket == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "exact search of %d nodes", e->room);
    }
    memset(e->bucket, 0xFF, BUCKETS * sizeof *e->bucket); /* -1 */
    return CKPT_OK;
}

ckpt_code ckpt_offload_exact(const ckpt_offload *o, ckpt_ns below, int nodes, ckpt_arena *scratch, ckpt_order *order,
                             ckpt_err *err)
{
    order->count = 0;
    if (o->graph->buffer_count > BUFFERS || o->graph->op_count > OPS) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    exact *const e = CKPT_NEW(scratch, exact, 1);
    if (e == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "exact search of %d nodes", nodes);
    }
    e->o = o;
    e->graph = o->graph;
    e->room = nodes;
    e->buffers = o->graph->buffer_count;
    e->below = below;
    CKPT_TRY(take(e, scratch, err));
    describe(e);
    e->made.parent = -1;
    keep(e);
    while (e->heap_count > 0 && e->count <= e->room) {
        const int n = heap_pop(e);
        const node *const at = &e->node[n];
        if (at->dominated) {
            continue;
        }
        if (at->next == o->graph->op_count && (e->due[at->next] & ~at->memory) == 0) {
            write_order(e, n, e->heap, order); /* no longer needed */
            break;
        }
        expand(e, n);
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}
