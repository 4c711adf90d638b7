/* Dynamic storage allocation with known live ranges (NP-hard: Garey & Johnson SR2), by greedy orders.
 *
 * First step by step, forwards and backwards, into gaps as an allocator has them
 * (allocate_gaps.c); fast at any size. Then along the skyline (allocate_skyline.c). */
#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate_impl.h"

/* Nodes that skylines may look at, or so many for each allocation where that is more: one skyline is always built. */
#define SKYLINE_WORK ((int64_t)100000000)
enum { SKYLINE_EACH = 256 };

/* One allocation to be sorted: by `key` falling, ties by bytes falling, then by number. */
typedef struct ranked {
    int64_t key, bytes;
    int index;
} ranked;

typedef struct packer {
    ckpt_allocation *allocation;
    int count;
    ckpt_bytes bound;   /* live bound */
    ckpt_bytes *offset; /* of the last walk */
    ckpt_bytes *best_offset;
    int *by_start, *by_end; /* allocations in the orders of sort_order */
    ckpt_bytes best;
    ckpt_gaps *gaps;
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
static void sort_order(const packer *p, bool by_end, ranked *rank, int *order)
{
    for (int i = 0; i < p->count; i++) {
        const ckpt_allocation *const allocation = &p->allocation[i];
        rank[i] = (ranked){by_end ? allocation->to : -(int64_t)allocation->from, allocation->bytes, i};
    }
    qsort(rank, (size_t)p->count, sizeof *rank, compare_ranks);
    for (int i = 0; i < p->count; i++) {
        order[i] = rank[i].index;
    }
}

static void keep_best(packer *p, ckpt_bytes highest)
{
    if (highest < p->best) {
        p->best = highest;
        memcpy(p->best_offset, p->offset, (size_t)p->count * sizeof *p->offset);
    }
}

/* Walk through the steps, forwards or backwards: room is taken where an allocation begins and given where it has
 * ended. The highest end; CKPT_BYTES_MAX when a sum overflows or the poll (NULL: none) says so. */
static ckpt_bytes walk(packer *p, bool backwards, bool tightest, ckpt_poll *poll)
{
    const int *const beginning = backwards ? p->by_end : p->by_start;
    const int *const ending = backwards ? p->by_start : p->by_end; /* from its last entry on */
    ckpt_bytes highest = 0;
    int given = 0;
    ckpt_gaps_clear(p->gaps, tightest);
    for (int i = 0; i < p->count; i++) {
        const int index = beginning[i];
        const ckpt_allocation *const allocation = &p->allocation[index];
        for (; given < i; given++) {
            const int last = ending[p->count - 1 - given];
            const ckpt_allocation *const gone = &p->allocation[last];
            if (backwards ? gone->from <= allocation->to : gone->to >= allocation->from) {
                break;
            }
            if (gone->bytes > 0) {
                ckpt_gaps_remove(p->gaps, last, gone->bytes);
            }
        }
        p->offset[index] = allocation->bytes > 0 ? ckpt_gaps_put(p->gaps, index, allocation->bytes) : 0;
        if (p->offset[index] < 0 || (poll != NULL && ckpt_poll_stopped(poll, 64))) {
            return CKPT_BYTES_MAX;
        }
        const ckpt_bytes top = p->offset[index] + allocation->bytes;
        highest = top > highest ? top : highest;
    }
    return highest;
}

/* Of every allocation the most that is live in any of its steps, by a tree of maxima over the steps. */
static ckpt_code find_peaks(const packer *p, ckpt_arena *scratch, const ckpt_bytes **peaks, ckpt_err *err)
{
    const int steps = ckpt_allocations_steps(p->allocation, p->count);
    ckpt_bytes *const peak = CKPT_NEW(scratch, ckpt_bytes, p->count);
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_bytes *const most = CKPT_NEW(scratch, ckpt_bytes, 2 * (size_t)steps); /* leaves are most[steps ..] */
    uint64_t *const ended = CKPT_NEW(scratch, uint64_t, steps);
    ckpt_bytes bound = 0;
    if (peak == NULL || most == NULL || ended == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "busiest steps of %d", steps);
    }
    CKPT_TRY(ckpt_allocations_count_live(p->allocation, p->count, steps, &most[steps], ended, &bound, err));
    for (int n = steps - 1; n > 0; n--) {
        most[n] = most[2 * n] > most[2 * n + 1] ? most[2 * n] : most[2 * n + 1];
    }
    for (int i = 0; i < p->count; i++) {
        int left = steps + p->allocation[i].from;
        int end = steps + p->allocation[i].to + 1;
        for (; left < end; left /= 2, end /= 2) {
            if (left % 2 == 1) {
                peak[i] = most[left] > peak[i] ? most[left] : peak[i];
                left++;
            }
            if (end % 2 == 1) {
                end--;
                peak[i] = most[end] > peak[i] ? most[end] : peak[i];
            }
        }
    }
    ckpt_arena_rewind(scratch, mark);
    *peaks = peak;
    return CKPT_OK;
}

/* Forwards and backwards, into the first and into the tightest gap; the first of these walks whatever the poll says. */
static ckpt_code walk_all(packer *p, ckpt_poll *poll, ckpt_arena *scratch, ckpt_err *err)
{
    p->gaps = ckpt_gaps_take(p->count, scratch);
    p->by_start = CKPT_NEW(scratch, int, p->count);
    p->by_end = CKPT_NEW(scratch, int, p->count);
    ranked *const rank = CKPT_NEW(scratch, ranked, p->count);
    if (p->gaps == NULL || p->by_start == NULL || p->by_end == NULL || rank == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", p->count);
    }
    sort_order(p, false, rank, p->by_start);
    sort_order(p, true, rank, p->by_end);
    for (int walks = 0; walks < 4 && p->best > p->bound && !poll->stopped; walks++) {
        keep_best(p, walk(p, walks % 2 == 1, walks >= 2, walks > 0 ? poll : NULL));
        (void)ckpt_poll_stopped(poll, p->count);
    }
    return CKPT_OK;
}

static ckpt_code walk_skylines(packer *p, const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_bytes *peak = NULL;
    ckpt_bytes highest = p->best;
    const int64_t each = (int64_t)p->count * SKYLINE_EACH;
    CKPT_TRY(find_peaks(p, scratch, &peak, err));
    CKPT_TRY(ckpt_allocations_skyline(p->allocation, p->count, p->bound, peak,
                                      each > SKYLINE_WORK ? each : SKYLINE_WORK, options, scratch, &highest, err));
    for (int i = 0; i < p->count; i++) {
        p->offset[i] = p->allocation[i].offset; /* of the best of them when there is a better one */
    }
    keep_best(p, highest);
    return CKPT_OK;
}

ckpt_code ckpt_allocations_greedy(ckpt_allocation *allocation, int count, ckpt_bytes bound,
                                  const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_bytes *arena_bytes,
                                  ckpt_err *err)
{
    ckpt_poll poll = {.options = options, .left = CKPT_POLL_WORK}; /* few allocations are placed under any time limit */
    packer p = {
        .allocation = allocation,
        .count = count,
        .bound = bound,
        .offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .best_offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .best = CKPT_BYTES_MAX,
    };
    if (p.offset == NULL || p.best_offset == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    CKPT_TRY(walk_all(&p, &poll, scratch, err));
    ckpt_arena_rewind(scratch, mark);
    if (p.best > p.bound && (count <= CKPT_QUICK_ALLOCATIONS || !poll.stopped)) {
        CKPT_TRY(walk_skylines(&p, options, scratch, err));
        ckpt_arena_rewind(scratch, mark);
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
