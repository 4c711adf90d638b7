/* Dynamic storage allocation with known live ranges (NP-hard: Garey & Johnson SR2), by greedy orders.
 *
 * First step by step, forwards and backwards, with a list of gaps as an allocator has it; fast at any size. Then along
 * the skyline (allocate_skyline.c). */
#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate_impl.h"

/* Nodes that skylines may look at. */
#define SKYLINE_WORK_MAX ((int64_t)100000000)
/* Gaps that a walk may look at, in all. */
#define GAPS_WORK_MAX ((int64_t)200000000)

typedef struct room {
    ckpt_bytes offset, end;
} room;

/* One allocation to be sorted: by `key` falling, ties by bytes falling, then by number. */
typedef struct ranked {
    int64_t key, bytes;
    int index;
} ranked;

typedef struct packer {
    ckpt_allocation *allocation;
    int count, steps;
    ckpt_bytes bound;   /* live bound */
    ckpt_bytes *peak;   /* per allocation: the most that is live in any of its steps */
    ckpt_bytes *offset; /* of the last walk */
    ckpt_bytes *best_offset;
    int *order;
    int *ending; /* allocations in the order in which a walk gives their room back */
    ranked *rank;
    ckpt_bytes best;
    room *gap; /* free room between allocations, in the order of addresses; the last one is open */
    int gaps, gaps_max;
} packer;

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

/* Latest end first, or earliest start first. */
static void sort_order(packer *p, bool by_end)
{
    for (int i = 0; i < p->count; i++) {
        const ckpt_allocation *const allocation = &p->allocation[i];
        p->rank[i] = (ranked){by_end ? allocation->to : -(int64_t)allocation->from, allocation->bytes, i};
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
    room *const gap = &p->gap[found];
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
        p->gap[at] = (room){.offset = offset, .end = offset + bytes};
        p->gaps++;
    }
}

/* Walk through the steps, forwards or backwards: room is taken where an allocation begins and given where it has
 * ended. */
static ckpt_bytes walk(packer *p, bool backwards, bool tightest)
{
    ckpt_bytes highest = 0;
    int given = 0;
    sort_order(p, !backwards);
    for (int i = 0; i < p->count; i++) {
        p->ending[i] = p->order[p->count - 1 - i];
    }
    sort_order(p, backwards);
    p->gap[0] = (room){.offset = 0, .end = CKPT_BYTES_MAX};
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

ckpt_code ckpt_allocations_greedy(ckpt_allocation *allocation, int count, const ckpt_plan_options *options,
                                  ckpt_arena *scratch, ckpt_bytes *arena_bytes, ckpt_err *err)
{
    ckpt_poll poll = {.options = options, .left = CKPT_POLL_WORK}; /* few allocations are placed under any time limit */
    packer p = {
        .allocation = allocation,
        .count = count,
        .steps = ckpt_allocations_steps(allocation, count),
        .peak = CKPT_NEW(scratch, ckpt_bytes, count),
        .gap = CKPT_NEW(scratch, room, count + 2),
        .gaps_max = count + 1 < GAPS_WORK_MAX / count ? count + 1 : (int)(GAPS_WORK_MAX / count),
        .offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .best_offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .order = CKPT_NEW(scratch, int, count),
        .ending = CKPT_NEW(scratch, int, count),
        .rank = CKPT_NEW(scratch, ranked, count),
        .best = CKPT_BYTES_MAX,
    };
    ckpt_bytes *const live = CKPT_NEW(scratch, ckpt_bytes, p.steps);
    uint64_t *const ended = CKPT_NEW(scratch, uint64_t, p.steps);
    if (p.peak == NULL || p.gap == NULL || p.offset == NULL || p.best_offset == NULL || p.order == NULL ||
        p.ending == NULL || p.rank == NULL || live == NULL || ended == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    CKPT_TRY(ckpt_allocations_count_live(allocation, count, p.steps, live, ended, &p.bound, err));
    CKPT_TRY(find_peaks(&p, live, scratch, err));
    for (int walks = 0; walks < 4 && p.best > p.bound && !(walks > 0 && ckpt_poll_stopped(&poll, count)); walks++) {
        keep_best(&p, walk(&p, walks % 2 == 1, walks >= 2));
    }
    if (p.best > p.bound && !ckpt_poll_stopped(&poll, count)) {
        ckpt_bytes highest = p.best;
        CKPT_TRY(ckpt_allocations_skyline(allocation, count, p.bound, p.peak, SKYLINE_WORK_MAX, options, scratch,
                                          &highest, err));
        for (int i = 0; i < count; i++) {
            p.offset[i] = allocation[i].offset; /* of the best of them when there is a better one */
        }
        keep_best(&p, highest);
    }
    if (p.best == CKPT_BYTES_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "allocations of more than 2^63 bytes");
    }
    for (int i = 0; i < count; i++) {
        allocation[i].offset = p.best_offset[i];
    }
    *arena_bytes = p.best;
    return CKPT_OK;
}
