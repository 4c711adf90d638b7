/* Dynamic storage allocation with known live ranges (NP-hard: Garey & Johnson SR2), by greedy orders and repair.
 *
 * First as an allocator would do it that sees the steps one by one, forwards and backwards: a list of gaps, fast at any
 * size. Then along the skyline (allocate_skyline.c). Then greedy passes, each of which puts allocations one by one at the first
 * (or tightest) gap between those put before it that share a step with it. What counts is the order. After the usual
 * ones (long-lived first, large first, busiest step first) the best may be repaired, which is for more allocations than
 * can be searched: allocations that end above the live bound move to the front by a random distance and all are put anew
 * (squeaky wheel optimization: Joslin & Clements, JAIR 10, 1999). Passes are quadratic, and stop when the work is
 * spent. */
#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate_impl.h"

/* Elementary comparisons that the first greedy passes may spend together, and how many passes a repair may have. */
#define WORK_MAX ((int64_t)15000000)
/* Nodes that skylines may look at. */
#define SKYLINE_WORK_MAX ((int64_t)100000000)
/* Gaps that a walk may look at, in all. */
#define GAPS_WORK_MAX ((int64_t)200000000)
enum { PASSES_MAX = 2000, LOST = 6 };

typedef struct box {
    ckpt_bytes offset, end;
    int from, to;
} box;

/* One way of sorting allocations: by `key` falling, ties by bytes falling, then by number. */
typedef struct ranked {
    int64_t key, bytes;
    int index;
} ranked;

typedef struct packer {
    ckpt_allocation *allocation;
    int count, steps;
    ckpt_bytes bound;   /* live bound */
    ckpt_bytes enough;  /* at this or less the repair stops */
    ckpt_bytes *peak;   /* per allocation: the most that is live in any of its steps */
    box *box;           /* those put so far, by rising offset */
    ckpt_bytes *offset; /* of the pass under way */
    ckpt_bytes *best_offset;
    int *order, *best_order;
    int *ending; /* allocations in the order in which a walk gives their room back */
    ranked *rank;
    ckpt_bytes best;
    box *gap; /* free room between allocations, in the order of addresses; the last one is open */
    int gaps, gaps_max;
    int64_t work, work_max;
    uint64_t random;
} packer;

/* Where `allocation` goes among the boxes put so far; *at is its position in their order. */
static ckpt_bytes find_gap(packer *p, int boxes, const ckpt_allocation *allocation, bool tightest, int *at)
{
    ckpt_bytes reach = 0;
    ckpt_bytes found = -1;
    ckpt_bytes slack = CKPT_BYTES_MAX;
    int i = 0;
    for (; i < boxes; i++) {
        const box *const b = &p->box[i];
        if (b->to < allocation->from || b->from > allocation->to) {
            continue;
        }
        const ckpt_bytes gap = b->offset - reach;
        if (gap >= allocation->bytes && gap - allocation->bytes < slack) {
            found = reach;
            slack = gap - allocation->bytes;
            if (!tightest || slack == 0) {
                break;
            }
        }
        reach = b->end > reach ? b->end : reach;
    }
    p->work += i;
    found = found < 0 ? reach : found;
    int low = 0;
    int high = boxes;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (p->box[middle].offset <= found) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *at = low;
    return found;
}

/* Put all in `order`. Gives the highest end, or CKPT_BYTES_MAX when a sum overflows or the work is spent. */
static ckpt_bytes pack(packer *p, bool tightest)
{
    ckpt_bytes highest = 0;
    p->work += 16 * (int64_t)p->count; /* sorting */
    for (int i = 0; i < p->count; i++) {
        if (p->work > p->work_max) {
            return CKPT_BYTES_MAX;
        }
        const ckpt_allocation *const allocation = &p->allocation[p->order[i]];
        int at = 0;
        const ckpt_bytes offset = find_gap(p, i, allocation, tightest, &at);
        ckpt_bytes end = 0;
        if (!ckpt_sum(offset, allocation->bytes, &end)) {
            return CKPT_BYTES_MAX;
        }
        p->work += (i - at) / 2;
        memmove(&p->box[at + 1], &p->box[at], (size_t)(i - at) * sizeof *p->box);
        p->box[at] = (box){offset, end, allocation->from, allocation->to};
        p->offset[p->order[i]] = offset;
        highest = end > highest ? end : highest;
    }
    return highest;
}

static int compare_ranks(const void *a, const void *b)
{
    const ranked *const x = a;
    const ranked *const y = b;
    if (x->key != y->key) {
        return x->key < y->key ? 1 : -1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

enum { ORDER_LONG, ORDER_LARGE, ORDER_BUSY, ORDER_AREA, ORDERS, ORDER_FROM, ORDER_TO, ORDER_UPWARDS };

static int64_t order_key(const packer *p, int i, int order)
{
    const ckpt_allocation *const allocation = &p->allocation[i];
    switch (order) {
    case ORDER_LONG: return (int64_t)allocation->to - allocation->from;
    case ORDER_LARGE: return allocation->bytes;
    case ORDER_BUSY: return p->peak[i];
    case ORDER_AREA: {
        int64_t area = INT64_MAX;
        return ckpt_product((int64_t)allocation->to - allocation->from + 1, allocation->bytes, &area) ? area
                                                                                                      : INT64_MAX;
    }
    case ORDER_FROM: return -(int64_t)allocation->from;
    case ORDER_TO: return allocation->to;
    default: return -p->offset[i];
    }
}

static void sort_order(packer *p, int order)
{
    for (int i = 0; i < p->count; i++) {
        p->rank[i] = (ranked){order_key(p, i, order), p->allocation[i].bytes, i};
    }
    qsort(p->rank, (size_t)p->count, sizeof *p->rank, compare_ranks);
    for (int i = 0; i < p->count; i++) {
        p->order[i] = p->rank[i].index;
    }
}

static void keep_best(packer *p, ckpt_bytes highest)
{
    if (highest < p->best) {
        p->best = highest;
        memcpy(p->best_offset, p->offset, (size_t)p->count * sizeof *p->offset);
        memcpy(p->best_order, p->order, (size_t)p->count * sizeof *p->order);
    }
}

/* The first gap that ends behind `offset`. */
static int gap_behind(const packer *p, ckpt_bytes offset)
{
    int low = 0;
    int high = p->gaps - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (p->gap[middle].end > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void remove_gap(packer *p, int at)
{
    memmove(&p->gap[at], &p->gap[at + 1], (size_t)(p->gaps - at - 1) * sizeof *p->gap);
    p->gaps--;
}

/* Room for `bytes` in the first or the tightest gap; -1: beyond 63 bits. */
static ckpt_bytes take_room(packer *p, ckpt_bytes bytes, bool tightest)
{
    int found = p->gaps - 1;
    for (int i = 0; i < p->gaps - 1; i++) {
        const ckpt_bytes size = p->gap[i].end - p->gap[i].offset;
        if (size >= bytes && (found == p->gaps - 1 || size < p->gap[found].end - p->gap[found].offset)) {
            found = i;
            if (!tightest || size == bytes) {
                break;
            }
        }
    }
    box *const gap = &p->gap[found];
    if (bytes > gap->end - gap->offset) {
        return -1;
    }
    const ckpt_bytes offset = gap->offset;
    gap->offset += bytes;
    if (gap->offset == gap->end && found < p->gaps - 1) {
        remove_gap(p, found);
    }
    return offset;
}

static void give_room(packer *p, ckpt_bytes offset, ckpt_bytes bytes)
{
    const int at = gap_behind(p, offset);
    const bool joins_next = p->gap[at].offset == offset + bytes;
    const bool joins_last = at > 0 && p->gap[at - 1].end == offset;
    if (joins_next && joins_last) {
        p->gap[at].offset = p->gap[at - 1].offset;
        remove_gap(p, at - 1);
    } else if (joins_next) {
        p->gap[at].offset = offset;
    } else if (joins_last) {
        p->gap[at - 1].end = offset + bytes;
    } else if (p->gaps < p->gaps_max) { /* else this room is lost: better than to look through too many */
        memmove(&p->gap[at + 1], &p->gap[at], (size_t)(p->gaps - at) * sizeof *p->gap);
        p->gap[at] = (box){.offset = offset, .end = offset + bytes};
        p->gaps++;
    }
}

/* Walk through the steps, forwards or backwards: room is taken where an allocation begins and given where it has
 * ended. */
static ckpt_bytes walk(packer *p, bool backwards, bool tightest)
{
    ckpt_bytes highest = 0;
    int given = 0;
    sort_order(p, backwards ? ORDER_FROM : ORDER_TO);
    for (int i = 0; i < p->count; i++) {
        p->ending[i] = p->order[p->count - 1 - i];
    }
    sort_order(p, backwards ? ORDER_TO : ORDER_FROM);
    p->gap[0] = (box){.offset = 0, .end = CKPT_BYTES_MAX};
    p->gaps = 1;
    for (int i = 0; i < p->count; i++) {
        const int index = p->order[i];
        const ckpt_allocation *const allocation = &p->allocation[index];
        for (; given < i; given++) {
            const ckpt_allocation *const gone = &p->allocation[p->ending[given]];
            if (backwards ? gone->from <= allocation->to : gone->to >= allocation->from) {
                break;
            }
            if (gone->bytes > 0) {
                give_room(p, p->offset[p->ending[given]], gone->bytes);
            }
        }
        p->offset[index] = allocation->bytes > 0 ? take_room(p, allocation->bytes, tightest) : 0;
        if (p->offset[index] < 0) {
            return CKPT_BYTES_MAX;
        }
        const ckpt_bytes top = p->offset[index] + allocation->bytes;
        highest = top > highest ? top : highest;
    }
    return highest;
}

/* xorshift64*: Vigna, ACM TOMS 42(4), 2016. */
static uint32_t draw(packer *p)
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    return (uint32_t)((p->random * UINT64_C(2685821657736338717)) >> 32);
}

/* Move every allocation that ends above `aim` forward in the order: to the front, or a random part of the way. */
static void promote(packer *p, ckpt_bytes aim)
{
    const bool to_front = draw(p) % 4 == 0;
    int moved = 0;
    for (int i = 0; i < p->count; i++) {
        const int index = p->order[i];
        p->rank[i] = (ranked){-2 * (int64_t)i, 0, index};
        if (p->offset[index] + p->allocation[index].bytes > aim) {
            p->rank[i].key = to_front ? 1 : -2 * (int64_t)(draw(p) % ((uint32_t)i + 1)) + 1;
            moved++;
        }
    }
    if (draw(p) % 3 == 0 || moved == 0) { /* and one at random, against going round in circles */
        const int any = (int)(draw(p) % (uint32_t)p->count);
        p->rank[any].key = -2 * (int64_t)(draw(p) % (uint32_t)p->count) + 1;
    }
    qsort(p->rank, (size_t)p->count, sizeof *p->rank, compare_ranks);
    for (int i = 0; i < p->count; i++) {
        p->order[i] = p->rank[i].index;
    }
}

static void improve(packer *p)
{
    int since = 0;
    int passes = 0;
    memcpy(p->order, p->best_order, (size_t)p->count * sizeof *p->order);
    memcpy(p->offset, p->best_offset, (size_t)p->count * sizeof *p->offset);
    while (p->best > p->enough && p->work < p->work_max && passes++ < PASSES_MAX) {
        const ckpt_bytes before = p->best;
        promote(p, since % 2 == 0 ? p->bound : p->best - 1);
        keep_best(p, pack(p, draw(p) % 2 == 0));
        since = p->best < before ? 0 : since + 1;
        if (since >= LOST) { /* lost: start again from the best */
            memcpy(p->order, p->best_order, (size_t)p->count * sizeof *p->order);
            memcpy(p->offset, p->best_offset, (size_t)p->count * sizeof *p->offset);
            since = 0;
        }
    }
}

/* The busiest step of every allocation, by a table of maxima over 2^k steps. */
static ckpt_code find_peaks(packer *p, const ckpt_bytes *live, ckpt_arena *scratch, ckpt_err *err)
{
    int levels = 1;
    while ((1 << levels) <= p->steps) {
        levels++;
    }
    ckpt_bytes *const most = CKPT_NEW(scratch, ckpt_bytes, (size_t)levels * (size_t)p->steps);
    if (most == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "busiest steps of %d", p->steps);
    }
    memcpy(most, live, (size_t)p->steps * sizeof *most);
    for (int k = 1; k < levels; k++) {
        const ckpt_bytes *const half = &most[(size_t)(k - 1) * (size_t)p->steps];
        ckpt_bytes *const whole = &most[(size_t)k * (size_t)p->steps];
        for (int t = 0; t + (1 << k) <= p->steps; t++) {
            const ckpt_bytes right = half[t + (1 << (k - 1))];
            whole[t] = half[t] > right ? half[t] : right;
        }
    }
    for (int i = 0; i < p->count; i++) {
        const ckpt_allocation *const allocation = &p->allocation[i];
        int k = 0;
        while ((2 << k) <= allocation->to - allocation->from + 1) {
            k++;
        }
        const ckpt_bytes *const row = &most[(size_t)k * (size_t)p->steps];
        const ckpt_bytes right = row[allocation->to + 1 - (1 << k)];
        p->peak[i] = row[allocation->from] > right ? row[allocation->from] : right;
    }
    return CKPT_OK;
}

ckpt_code ckpt_allocations_greedy(ckpt_allocation *allocation, int count, ckpt_bytes enough, int64_t repair,
                                  ckpt_arena *scratch, ckpt_bytes *arena_bytes, ckpt_err *err)
{
    packer p = {
        .allocation = allocation,
        .count = count,
        .steps = ckpt_allocations_steps(allocation, count),
        .peak = CKPT_NEW(scratch, ckpt_bytes, count),
        .box = CKPT_NEW(scratch, box, count + 1),
        .gap = CKPT_NEW(scratch, box, count + 2),
        .gaps_max = count + 1 < GAPS_WORK_MAX / count ? count + 1 : (int)(GAPS_WORK_MAX / count),
        .offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .best_offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .order = CKPT_NEW(scratch, int, count),
        .best_order = CKPT_NEW(scratch, int, count),
        .ending = CKPT_NEW(scratch, int, count),
        .rank = CKPT_NEW(scratch, ranked, count),
        .best = CKPT_BYTES_MAX,
        .work_max = WORK_MAX,
        .random = UINT64_C(0x9E3779B97F4A7C15),
    };
    ckpt_bytes *const live = CKPT_NEW(scratch, ckpt_bytes, p.steps);
    uint64_t *const ended = CKPT_NEW(scratch, uint64_t, p.steps);
    if (p.peak == NULL || p.box == NULL || p.gap == NULL || p.offset == NULL || p.best_offset == NULL ||
        p.order == NULL || p.best_order == NULL || p.ending == NULL || p.rank == NULL || live == NULL ||
        ended == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    CKPT_TRY(ckpt_allocations_count_live(allocation, count, p.steps, live, ended, &p.bound, err));
    CKPT_TRY(find_peaks(&p, live, scratch, err));
    p.enough = enough > p.bound ? enough : p.bound;
    for (int way = 0; way < 4 && p.best > p.bound; way++) {
        const ckpt_bytes highest = walk(&p, way % 2 == 1, way >= 2);
        sort_order(&p, ORDER_UPWARDS); /* put at the first gap in this order, no allocation ends higher */
        keep_best(&p, highest);
    }
    if (p.best > p.bound) {
        ckpt_bytes highest = p.best;
        CKPT_TRY(
            ckpt_allocations_skyline(allocation, count, p.bound, p.peak, SKYLINE_WORK_MAX, scratch, &highest, err));
        for (int i = 0; i < count; i++) {
            p.offset[i] = allocation[i].offset; /* of the best of them when there is a better one */
        }
        sort_order(&p, ORDER_UPWARDS);
        keep_best(&p, highest);
    }
    for (int order = 0; order < ORDERS && p.best > p.bound; order++) {
        for (int tightest = 0; tightest < 2 && p.best > p.bound; tightest++) {
            sort_order(&p, order);
            keep_best(&p, pack(&p, tightest == 1));
        }
    }
    if (p.best == CKPT_BYTES_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "allocations of more than 2^63 bytes");
    }
    p.work_max = p.work + repair;
    improve(&p);
    for (int i = 0; i < count; i++) {
        allocation[i].offset = p.best_offset[i];
    }
    *arena_bytes = p.best;
    return CKPT_OK;
}
