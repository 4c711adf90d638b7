/* A greedy order whose cost hardly grows faster than the number of allocations: from the bottom up along the skyline.
 *
 *     address      |  #######
 *        ^         |  #######  valley ######      The lowest valley is looked at. Of the allocations whose span lies
 *        |         |#########_________######      within it the one that comes first in an order is put on its floor.
 *        +-> step  |########################      When there is none, the valley is filled up to its lower side.
 *
 * Lowest position first, as in strip packing (Burke, Kendall & Whitwell, Operations Research 52(4), 2004); what differs
 * is that here allocations have their position along the steps. Lifetimes of training steps nest, and then most come
 * out at the live bound, where an allocation that is put by order of its size or length alone leaves room under it. */
#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate_impl.h"

enum { VALLEY_WORK = 256 }; /* of one look at a valley, in units of polls */

typedef struct spot {
    int from, to, index, rank;
} spot;

/* A part of the skyline, known by its first step. */
typedef struct segment {
    ckpt_bytes floor;
    int to;           /* last step */
    int before, next; /* first steps of its neighbours; -1: none */
    int at;           /* position in the heap */
} segment;

/* Over the spots in the order of their first steps: of those not put yet the best rank and the first end. */
typedef struct node {
    int rank, to;
} node;

typedef struct skyline {
    const ckpt_allocation *allocation;
    int count, steps, leaves;
    spot *spot;
    int *first; /* first[t]: the first spot that begins at t or later */
    node *tree; /* leaves are tree[leaves ..] */
    segment *segment;
    int *heap; /* segments by floor */
    int heap_count;
    ckpt_bytes *offset, *best_offset;
    int64_t *work;
    ckpt_poll poll;
} skyline;

/* --- The heap of segments --- */

static bool lower(const skyline *s, int a, int b)
{
    const ckpt_bytes x = s->segment[a].floor;
    const ckpt_bytes y = s->segment[b].floor;
    return x != y ? x < y : a < b;
}

static void heap_set(skyline *s, int at, int which)
{
    s->heap[at] = which;
    s->segment[which].at = at;
}

/* A segment that stands at `at` goes where it belongs. */
static void heap_settle(skyline *s, int at)
{
    const int moved = s->heap[at];
    while (at > 0 && lower(s, moved, s->heap[(at - 1) / 2])) {
        heap_set(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int child = 2 * at + 1; child < s->heap_count; child = 2 * at + 1) {
        child += child + 1 < s->heap_count && lower(s, s->heap[child + 1], s->heap[child]);
        if (!lower(s, s->heap[child], moved)) {
            break;
        }
        heap_set(s, at, s->heap[child]);
        at = child;
    }
    heap_set(s, at, moved);
}

static void heap_remove(skyline *s, int which)
{
    const int at = s->segment[which].at;
    const int last = s->heap[--s->heap_count];
    if (last != which) {
        heap_set(s, at, last);
        heap_settle(s, at);
    }
}

static void heap_add(skyline *s, int which)
{
    heap_set(s, s->heap_count++, which);
    heap_settle(s, s->heap_count - 1);
}

/* --- The skyline --- */

/* Join segment `at` with its neighbours of the same floor. */
static void join(skyline *s, int at)
{
    for (int side = 0; side < 2; side++) {
        const int left = side == 0 ? at : s->segment[at].before;
        const int right = side == 0 ? s->segment[at].next : at;
        if (left < 0 || right < 0 || s->segment[left].floor != s->segment[right].floor) {
            continue;
        }
        heap_remove(s, right);
        s->segment[left].to = s->segment[right].to;
        s->segment[left].next = s->segment[right].next;
        if (s->segment[left].next >= 0) {
            s->segment[s->segment[left].next].before = left;
        }
        at = left;
    }
}

/* A segment begins at `step` within segment `at`, with the same floor. */
static void split(skyline *s, int at, int step)
{
    segment *const left = &s->segment[at];
    s->segment[step] = (segment){.floor = left->floor, .to = left->to, .before = at, .next = left->next};
    if (left->next >= 0) {
        s->segment[left->next].before = step;
    }
    left->next = step;
    left->to = step - 1;
    heap_add(s, step);
}

/* Raise steps from .. to, which lie within segment `at`. */
static void fill(skyline *s, int at, int from, int to, ckpt_bytes floor)
{
    if (s->segment[at].to > to) {
        split(s, at, to + 1);
    }
    if (at < from) {
        split(s, at, from);
    }
    s->segment[from].floor = floor;
    heap_settle(s, s->segment[from].at);
    join(s, from);
}

/* --- Finding allocations --- */

static void tree_fill(skyline *s)
{
    for (int i = 0; i < s->leaves; i++) {
        s->tree[s->leaves + i] = i < s->count ? (node){s->spot[i].rank, s->spot[i].to} : (node){INT32_MAX, INT32_MAX};
    }
    for (int n = s->leaves - 1; n > 0; n--) {
        const node *const child = &s->tree[2 * n];
        s->tree[n] = (node){child[0].rank < child[1].rank ? child[0].rank : child[1].rank,
                            child[0].to < child[1].to ? child[0].to : child[1].to};
    }
}

static void tree_remove(skyline *s, int i)
{
    int n = s->leaves + i;
    s->tree[n] = (node){INT32_MAX, INT32_MAX};
    for (n /= 2; n > 0; n /= 2) {
        const node *const child = &s->tree[2 * n];
        s->tree[n] = (node){child[0].rank < child[1].rank ? child[0].rank : child[1].rank,
                            child[0].to < child[1].to ? child[0].to : child[1].to};
    }
}

/* Of spots low .. high - 1 that end by `to` the one of best rank, in *best; those of node n are start .. start + size
 * - 1. */
static void tree_find(skyline *s, int n, int start, int size, int low, int high, int to, int *best)
{
    (*s->work)--;
    if (s->tree[n].to > to || start >= high || start + size <= low ||
        (*best >= 0 && s->tree[n].rank >= s->spot[*best].rank)) {
        return;
    }
    if (size == 1) {
        *best = start;
        return;
    }
    const int half = size / 2;
    const int first = s->tree[2 * n].rank < s->tree[2 * n + 1].rank ? 0 : 1;
    tree_find(s, 2 * n + first, start + first * half, half, low, high, to, best);
    tree_find(s, 2 * n + 1 - first, start + (1 - first) * half, half, low, high, to, best);
}

/* --- Orders --- */

typedef struct ranked {
    int64_t key[3];
    int spot;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *const x = a;
    const ranked *const y = b;
    for (int k = 0; k < 3; k++) {
        if (x->key[k] != y->key[k]) {
            return x->key[k] > y->key[k] ? -1 : 1;
        }
    }
    return (x->spot > y->spot) - (x->spot < y->spot);
}

static void rank_spots(skyline *s, int order, const ckpt_bytes *busy, ranked *rank)
{
    for (int i = 0; i < s->count; i++) {
        const ckpt_allocation *const allocation = &s->allocation[s->spot[i].index];
        rank[i].spot = i;
        for (int k = 0; k < 3; k++) {
            rank[i].key[k] = ckpt_allocations_preorder(
                order, k, allocation->bytes, (int64_t)allocation->to - allocation->from + 1, busy[s->spot[i].index]);
        }
    }
    qsort(rank, (size_t)s->count, sizeof *rank, compare_ranked);
    for (int i = 0; i < s->count; i++) {
        s->spot[rank[i].spot].rank = i;
    }
}

/* The highest end; CKPT_BYTES_MAX when the work is spent or a sum overflows. */
static ckpt_bytes build(skyline *s)
{
    tree_fill(s);
    s->segment[0] = (segment){.to = s->steps - 1, .before = -1, .next = -1};
    s->heap_count = 0;
    heap_add(s, 0);
    ckpt_bytes highest = 0;
    for (int put = 0; put < s->count;) {
        const int at = s->heap[0];
        const segment valley = s->segment[at];
        int found = -1;
        tree_find(s, 1, 0, s->leaves, s->first[at], s->first[valley.to + 1], valley.to, &found);
        if (*s->work < 0 || ckpt_poll_stopped(&s->poll, VALLEY_WORK)) {
            return CKPT_BYTES_MAX;
        }
        if (found < 0) {
            const ckpt_bytes left = valley.before >= 0 ? s->segment[valley.before].floor : CKPT_BYTES_MAX;
            const ckpt_bytes right = valley.next >= 0 ? s->segment[valley.next].floor : CKPT_BYTES_MAX;
            fill(s, at, at, valley.to, left < right ? left : right);
            continue;
        }
        const spot *const next = &s->spot[found];
        ckpt_bytes end = 0;
        if (!ckpt_sum(valley.floor, s->allocation[next->index].bytes, &end) || end == CKPT_BYTES_MAX) {
            return CKPT_BYTES_MAX;
        }
        s->offset[next->index] = valley.floor;
        highest = end > highest ? end : highest;
        tree_remove(s, found);
        fill(s, at, next->from, next->to, end);
        put++;
    }
    return highest;
}

static int compare_spots(const void *a, const void *b)
{
    const spot *const x = a;
    const spot *const y = b;
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static void sort_spots(skyline *s)
{
    for (int i = 0; i < s->count; i++) {
        s->spot[i] = (spot){.from = s->allocation[i].from, .to = s->allocation[i].to, .index = i};
    }
    qsort(s->spot, (size_t)s->count, sizeof *s->spot, compare_spots);
    int i = 0;
    for (int t = 0; t <= s->steps; t++) {
        while (i < s->count && s->spot[i].from < t) {
            i++;
        }
        s->first[t] = i;
    }
}

ckpt_code ckpt_allocations_skyline(ckpt_allocation *allocation, int count, ckpt_bytes enough, const ckpt_bytes *busy,
                                   int64_t work, const ckpt_plan_options *options, ckpt_arena *scratch,
                                   ckpt_bytes *arena_bytes, ckpt_err *err)
{
    skyline s = {.allocation = allocation,
                 .count = count,
                 .steps = ckpt_allocations_steps(allocation, count),
                 .leaves = 1,
                 .work = &work,
                 .poll = {.options = options, .left = 2 * CKPT_QUICK_ALLOCATIONS * (int64_t)VALLEY_WORK}};
    while (s.leaves < count) {
        s.leaves *= 2;
    }
    s.spot = CKPT_NEW(scratch, spot, count);
    s.first = CKPT_NEW(scratch, int, s.steps + 2);
    s.tree = CKPT_NEW(scratch, node, 2 * (size_t)s.leaves);
    s.segment = CKPT_NEW(scratch, segment, s.steps + 1);
    s.heap = CKPT_NEW(scratch, int, s.steps + 1);
    s.offset = CKPT_NEW(scratch, ckpt_bytes, count);
    ranked *const rank = CKPT_NEW(scratch, ranked, count);
    if (s.spot == NULL || s.first == NULL || s.tree == NULL || s.segment == NULL || s.heap == NULL ||
        s.offset == NULL || rank == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    sort_spots(&s);
    int64_t taken = 0; /* by the order before: no order is begun that cannot be ended */
    for (int order = 0; order < CKPT_PREORDERS && enough < *arena_bytes && work > taken && !s.poll.stopped; order++) {
        const int64_t left = work;
        rank_spots(&s, order, busy, rank);
        const ckpt_bytes highest = build(&s);
        for (int i = 0; i < count && highest < *arena_bytes; i++) {
            allocation[i].offset = s.offset[i];
        }
        *arena_bytes = highest < *arena_bytes ? highest : *arena_bytes;
        taken = left - work;
    }
    return CKPT_OK;
}
