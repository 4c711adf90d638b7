/* Placement: greedy orders first, then an exact search, first at the live bound.
 *
 * Allocations of the same span are packed as one, unless that fails. How much is searched depends on the effort,
 * counted in comparisons. */
#include <stdlib.h>

#include "planner/placement/allocate_impl.h"

/* Comparisons of the search, a nanosecond or less each. */
#define LOW_WORK    ((int64_t)10000000)
#define NORMAL_WORK ((int64_t)100000000)
enum { SEARCH_MAX = 4000, HALVINGS = 4 };

/* What ends with a step was live in it, so the sum of what has ended is only looked at when it fits, and may wrap
 * before. */
ckpt_code ckpt_allocations_count_live(const ckpt_allocation *allocation, int count, int steps, ckpt_bytes *live,
                                      uint64_t *ended, ckpt_bytes *most, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        if (!ckpt_sum(live[allocation[i].from], allocation[i].bytes, &live[allocation[i].from])) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "allocations of more than 2^63 bytes");
        }
        ended[allocation[i].to] += (uint64_t)allocation[i].bytes;
    }
    ckpt_bytes held = 0; /* from the step before */
    *most = 0;
    for (int t = 0; t < steps; t++) {
        if (!ckpt_sum(held, live[t], &live[t])) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "allocations of more than 2^63 bytes in step %d", t);
        }
        held = live[t] - (ckpt_bytes)ended[t];
        *most = live[t] > *most ? live[t] : *most;
    }
    return CKPT_OK;
}

int ckpt_allocations_steps(const ckpt_allocation *allocation, int count)
{
    int last = -1;
    for (int i = 0; i < count; i++) {
        last = allocation[i].to > last ? allocation[i].to : last;
    }
    return last + 1;
}

ckpt_code ckpt_allocations_live(const ckpt_allocation *allocation, int count, ckpt_arena *scratch, ckpt_bytes *most,
                                ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const int steps = ckpt_allocations_steps(allocation, count);
    ckpt_bytes *const live = CKPT_NEW(scratch, ckpt_bytes, steps);
    uint64_t *const ended = CKPT_NEW(scratch, uint64_t, steps);
    if (live == NULL || ended == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "live bytes of %d steps", steps);
    }
    CKPT_TRY(ckpt_allocations_count_live(allocation, count, steps, live, ended, most, err));
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

int64_t ckpt_allocations_preorder(int order, int k, ckpt_bytes bytes, int64_t width, ckpt_bytes busy)
{
    static const char preorder[CKPT_PREORDERS][4] = {"TWA", "TAW", "WAT", "ZTW", "AWT", "TZW"};
    int64_t area = INT64_MAX;
    switch (preorder[order][k]) {
    case 'T': return busy;
    case 'W': return width;
    case 'Z': return bytes;
    default: return ckpt_product(width, bytes, &area) ? area : INT64_MAX;
    }
}

/* An allocation, and its span counted in steps at which allocations begin: nothing happens between those. */
typedef struct spanned {
    int from, to, index;
} spanned;

static int compare_spans(const void *a, const void *b)
{
    const spanned *const x = a;
    const spanned *const y = b;
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    if (x->to != y->to) {
        return x->to < y->to ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* Allocations of the same span as one: there are fewer then, and it is rarely worth while to keep them apart. */
typedef struct groups {
    ckpt_allocation *group;
    int count;
    spanned *span; /* allocations in the order of their groups */
} groups;

/* Allocations get their offsets within their group. */
static ckpt_code group_allocations(ckpt_allocation *allocation, int count, ckpt_arena *scratch, groups *g,
                                   ckpt_err *err)
{
    const int steps = ckpt_allocations_steps(allocation, count);
    int *const begun = CKPT_NEW(scratch, int, steps);
    g->span = CKPT_NEW(scratch, spanned, count);
    g->group = CKPT_NEW(scratch, ckpt_allocation, count);
    if (begun == NULL || g->span == NULL || g->group == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    for (int i = 0; i < count; i++) {
        begun[allocation[i].from] = 1;
    }
    for (int t = 1; t < steps; t++) {
        begun[t] += begun[t - 1];
    }
    for (int i = 0; i < count; i++) {
        g->span[i] = (spanned){begun[allocation[i].from] - 1, begun[allocation[i].to] - 1, i};
    }
    qsort(g->span, (size_t)count, sizeof *g->span, compare_spans);
    g->count = 0;
    for (int i = 0; i < count; i++) {
        const spanned *const span = &g->span[i];
        if (i == 0 || span->from != span[-1].from || span->to != span[-1].to) {
            g->group[g->count++] = (ckpt_allocation){.from = span->from, .to = span->to};
        }
        ckpt_allocation *const mine = &g->group[g->count - 1];
        allocation[span->index].offset = mine->bytes;
        if (!ckpt_sum(mine->bytes, allocation[span->index].bytes, &mine->bytes)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "allocations of more than 2^63 bytes");
        }
    }
    return CKPT_OK;
}

static void ungroup(ckpt_allocation *allocation, int count, const groups *g)
{
    ckpt_bytes inside = 0;
    int group = -1;
    for (int i = 0; i < count; i++) {
        const spanned *const span = &g->span[i];
        if (i == 0 || span->from != span[-1].from || span->to != span[-1].to) {
            inside = 0;
            group++;
        }
        allocation[span->index].offset = g->group[group].offset + inside;
        inside += allocation[span->index].bytes;
    }
}

static ckpt_bytes highest_end(const ckpt_allocation *allocation, int count)
{
    ckpt_bytes highest = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_bytes end = allocation[i].offset + allocation[i].bytes;
        highest = end > highest ? end : highest;
    }
    return highest;
}

/* One call. */
typedef struct packing {
    ckpt_allocation *allocation;
    int count;
    groups g;
    ckpt_bytes bound, enough;
    ckpt_bytes best; /* offsets of `allocation` are those of the best packing so far */
    const ckpt_plan_options *options;
    ckpt_arena *scratch;
} packing;

/* Search within `capacity` with so much work, on groups or on single allocations. */
static ckpt_code search(packing *p, ckpt_bytes capacity, int64_t work, bool grouped, ckpt_err *err)
{
    ckpt_pack_outcome outcome = CKPT_PACK_SPENT;
    ckpt_allocation *const allocation = grouped ? p->g.group : p->allocation;
    const int count = grouped ? p->g.count : p->count;
    if (count > SEARCH_MAX || (p->options != NULL && ckpt_plan_stopped(p->options))) {
        return CKPT_OK;
    }
    int64_t left = work;
    CKPT_TRY(ckpt_allocations_search(allocation, count, capacity, &left, p->options, p->scratch, &outcome, err));
    if (p->options != NULL && p->options->placing_work != NULL) {
        *p->options->placing_work += work - left;
    }
    if (outcome == CKPT_PACK_FOUND) {
        if (grouped) {
            ungroup(p->allocation, p->count, &p->g);
        }
        p->best = highest_end(p->allocation, p->count);
    }
    return CKPT_OK;
}

/* The bound first; then what would be enough; then allocations of a group apart from each other; then halfway there. */
static ckpt_code search_all(packing *p, ckpt_err *err)
{
    const int effort = p->options == NULL ? CKPT_EFFORT_NORMAL : p->options->effort;
    const int64_t work = effort <= CKPT_EFFORT_LOW      ? LOW_WORK
                         : effort == CKPT_EFFORT_NORMAL ? NORMAL_WORK
                         : effort == CKPT_EFFORT_MORE   ? 10 * NORMAL_WORK
                                                        : 100 * NORMAL_WORK;
    const bool apart = p->g.count < p->count;
    CKPT_TRY(search(p, p->bound, work / 8 * 3, true, err));
    if (p->best > p->enough && p->enough > p->bound) {
        CKPT_TRY(search(p, p->enough, work / 4, true, err));
    }
    if (p->best > p->bound && apart) {
        CKPT_TRY(search(p, p->bound, work / 8, false, err));
    }
    ckpt_bytes low = p->enough;
    for (int i = 0; i < HALVINGS && p->best > p->enough; i++) {
        const ckpt_bytes middle = low + (p->best - low) / 2;
        CKPT_TRY(search(p, middle, work / 4 / HALVINGS, true, err));
        low = p->best > middle ? middle : low;
    }
    return CKPT_OK;
}

static ckpt_code pack(packing *p, ckpt_err *err)
{
    CKPT_TRY(group_allocations(p->allocation, p->count, p->scratch, &p->g, err));
    CKPT_TRY(ckpt_allocations_live(p->g.group, p->g.count, p->scratch, &p->bound, err));
    p->enough = p->enough > p->bound ? p->enough : p->bound;
    CKPT_TRY(ckpt_allocations_greedy(p->g.group, p->g.count, p->bound, p->options, p->scratch, &p->best, err));
    ungroup(p->allocation, p->count, &p->g);
    return p->best > p->bound ? search_all(p, err) : CKPT_OK;
}

ckpt_code ckpt_allocations_pack(ckpt_allocation *allocation, int count, ckpt_bytes enough,
                                const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_bytes *arena_bytes,
                                ckpt_err *err)
{
    *arena_bytes = 0;
    if (count == 0) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    packing p = {.allocation = allocation, .count = count, .enough = enough, .options = options, .scratch = scratch};
    CKPT_TRY(pack(&p, err));
    *arena_bytes = p.best;
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

void ckpt_allocations_overflow(const ckpt_allocation *allocation, int count, ckpt_bytes capacity, int *from, int *to,
                               ckpt_bytes *bytes)
{
    *bytes = 0;
    *from = *to = -1;
    for (int i = 0; i < count; i++) {
        const ckpt_bytes over = allocation[i].offset + allocation[i].bytes - capacity;
        if (over > 0) {
            *from = *bytes == 0 || allocation[i].from < *from ? allocation[i].from : *from;
            *to = allocation[i].to > *to ? allocation[i].to : *to;
            *bytes = over > *bytes ? over : *bytes;
        }
    }
}
