/* Dynamic storage allocation with known lifetimes (NP-hard: Garey & Johnson SR2), by greedy orders and repair.
 *
 * A greedy pass puts places one by one, each at the first (or tightest) gap between those put before it that share a
 * step with it. What counts is the order. After the usual ones (long-lived first, large first, busiest step first,
 * in time, against time) the best is repaired: places that end above the live bound move to the front a random way
 * and all is put again (squeaky wheel optimization: Joslin & Clements, JAIR 10, 1999). */
#include "planner/place.h"

#include <stdlib.h>
#include <string.h>

/* Elementary comparisons and passes the repair may spend. */
#define WORK_MAX ((int64_t)50000000)
enum { PASSES_MAX = 1500 };

typedef struct box {
    ckpt_bytes offset, end;
    int from, to;
} box;

/* One way of sorting places: by `key` falling, ties by bytes falling, then by number. */
typedef struct ranked {
    int64_t key, bytes;
    int index;
} ranked;

typedef struct packer {
    ckpt_place *place;
    int count, steps;
    ckpt_bytes bound;   /* live bound */
    ckpt_bytes enough;  /* at this or less the repair stops */
    ckpt_bytes *peak;   /* per place: the most that is live in any of its steps */
    box *box;           /* those put so far, by rising offset */
    ckpt_bytes *offset; /* of the pass under way */
    ckpt_bytes *best_offset;
    int *order, *best_order;
    ranked *rank;
    ckpt_bytes best;
    int64_t work;
    uint64_t random;
} packer;

static ckpt_code find_live(const ckpt_place *place, int count, int steps, ckpt_bytes *live, ckpt_bytes *most,
                           ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        if (!ckpt_sum(live[place[i].from], place[i].bytes, &live[place[i].from])) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "places of more than 2^63 bytes");
        }
    }
    for (int i = 0; i < count; i++) {
        live[place[i].to + 1] -= place[i].bytes;
    }
    *most = 0;
    for (int t = 0; t < steps; t++) {
        const ckpt_bytes before = t > 0 ? live[t - 1] : 0;
        if (live[t] > 0 && !ckpt_sum(before, live[t], &live[t])) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "places of more than 2^63 bytes in step %d", t);
        }
        if (live[t] <= 0) {
            live[t] += before;
        }
        *most = live[t] > *most ? live[t] : *most;
    }
    return CKPT_OK;
}

static int last_step(const ckpt_place *place, int count)
{
    int last = -1;
    for (int i = 0; i < count; i++) {
        last = place[i].to > last ? place[i].to : last;
    }
    return last;
}

ckpt_code ckpt_places_live(const ckpt_place *place, int count, ckpt_arena *scratch, ckpt_bytes *most, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const int steps = last_step(place, count) + 1;
    ckpt_bytes *const live = CKPT_NEW(scratch, ckpt_bytes, steps + 1);
    if (live == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "live bytes of %d steps", steps);
    }
    CKPT_TRY(find_live(place, count, steps, live, most, err));
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

/* Where `place` goes among the boxes put so far; *at is its position in their order. */
static ckpt_bytes find_gap(packer *p, int boxes, const ckpt_place *place, bool tightest, int *at)
{
    ckpt_bytes reach = 0;
    ckpt_bytes found = -1;
    ckpt_bytes slack = CKPT_BYTES_MAX;
    int i = 0;
    for (; i < boxes; i++) {
        const box *const b = &p->box[i];
        if (b->to < place->from || b->from > place->to) {
            continue;
        }
        const ckpt_bytes gap = b->offset - reach;
        if (gap >= place->bytes && gap - place->bytes < slack) {
            found = reach;
            slack = gap - place->bytes;
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

/* Put all in `order`. Gives the highest end, or CKPT_BYTES_MAX when a sum overflows. */
static ckpt_bytes pack(packer *p, bool tightest)
{
    ckpt_bytes highest = 0;
    for (int i = 0; i < p->count; i++) {
        const ckpt_place *const place = &p->place[p->order[i]];
        int at = 0;
        const ckpt_bytes offset = find_gap(p, i, place, tightest, &at);
        ckpt_bytes end = 0;
        if (!ckpt_sum(offset, place->bytes, &end)) {
            return CKPT_BYTES_MAX;
        }
        memmove(&p->box[at + 1], &p->box[at], (size_t)(i - at) * sizeof *p->box);
        p->box[at] = (box){offset, end, place->from, place->to};
        p->offset[p->order[i]] = offset;
        highest = end > highest ? end : highest;
    }
    return highest;
}

static void keep_best(packer *p, ckpt_bytes highest)
{
    if (highest < p->best) {
        p->best = highest;
        memcpy(p->best_offset, p->offset, (size_t)p->count * sizeof *p->offset);
        memcpy(p->best_order, p->order, (size_t)p->count * sizeof *p->order);
    }
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

enum { ORDER_LONG, ORDER_LARGE, ORDER_BUSY, ORDER_AREA, ORDER_TIME, ORDER_AGAINST, ORDERS };

static int64_t order_key(const packer *p, int i, int order)
{
    const ckpt_place *const place = &p->place[i];
    switch (order) {
    case ORDER_LONG: return (int64_t)place->to - place->from;
    case ORDER_LARGE: return place->bytes;
    case ORDER_BUSY: return p->peak[i];
    case ORDER_AREA: {
        int64_t area = INT64_MAX;
        return ckpt_product((int64_t)place->to - place->from + 1, place->bytes, &area) ? area : INT64_MAX;
    }
    case ORDER_TIME: return -(int64_t)place->from;
    default: return place->to;
    }
}

static void sort_order(packer *p, int order)
{
    for (int i = 0; i < p->count; i++) {
        p->rank[i] = (ranked){order_key(p, i, order), p->place[i].bytes, i};
    }
    qsort(p->rank, (size_t)p->count, sizeof *p->rank, compare_ranks);
    for (int i = 0; i < p->count; i++) {
        p->order[i] = p->rank[i].index;
    }
}

/* xorshift64*: Vigna, ACM TOMS 42(4), 2016. */
static uint32_t draw(packer *p)
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    return (uint32_t)((p->random * UINT64_C(2685821657736338717)) >> 32);
}

/* Move every place that ends above `aim` forward in the order: to the front, or a random part of the way. */
static void promote(packer *p, ckpt_bytes aim)
{
    const bool to_front = draw(p) % 4 == 0;
    int moved = 0;
    for (int i = 0; i < p->count; i++) {
        const int index = p->order[i];
        p->rank[i] = (ranked){-2 * (int64_t)i, 0, index};
        if (p->offset[index] + p->place[index].bytes > aim) {
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
    while (p->best > p->enough && p->work < WORK_MAX && passes++ < PASSES_MAX) {
        const ckpt_bytes before = p->best;
        promote(p, since % 2 == 0 ? p->bound : p->best - 1);
        keep_best(p, pack(p, draw(p) % 2 == 0));
        p->work += 16 * (int64_t)p->count; /* sorting */
        since = p->best < before ? 0 : since + 1;
        if (since >= 20) { /* lost: start again from the best */
            memcpy(p->order, p->best_order, (size_t)p->count * sizeof *p->order);
            memcpy(p->offset, p->best_offset, (size_t)p->count * sizeof *p->offset);
            since = 0;
        }
    }
}

/* The busiest step of every place, by a table of maxima over 2^k steps. */
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
        const ckpt_place *const place = &p->place[i];
        int k = 0;
        while ((2 << k) <= place->to - place->from + 1) {
            k++;
        }
        const ckpt_bytes *const row = &most[(size_t)k * (size_t)p->steps];
        const ckpt_bytes right = row[place->to + 1 - (1 << k)];
        p->peak[i] = row[place->from] > right ? row[place->from] : right;
    }
    return CKPT_OK;
}

ckpt_code ckpt_places_pack(ckpt_place *place, int count, ckpt_bytes enough, ckpt_arena *scratch,
                           ckpt_bytes *arena_bytes, ckpt_err *err)
{
    if (count == 0) {
        *arena_bytes = 0;
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    packer p = {
        .place = place,
        .count = count,
        .steps = last_step(place, count) + 1,
        .peak = CKPT_NEW(scratch, ckpt_bytes, count),
        .box = CKPT_NEW(scratch, box, count + 1),
        .offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .best_offset = CKPT_NEW(scratch, ckpt_bytes, count),
        .order = CKPT_NEW(scratch, int, count),
        .best_order = CKPT_NEW(scratch, int, count),
        .rank = CKPT_NEW(scratch, ranked, count),
        .best = CKPT_BYTES_MAX,
        .random = UINT64_C(0x9E3779B97F4A7C15),
    };
    ckpt_bytes *const live = CKPT_NEW(scratch, ckpt_bytes, p.steps + 1);
    if (p.peak == NULL || p.box == NULL || p.offset == NULL || p.best_offset == NULL || p.order == NULL ||
        p.best_order == NULL || p.rank == NULL || live == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "placing %d buffers", count);
    }
    CKPT_TRY(find_live(place, count, p.steps, live, &p.bound, err));
    CKPT_TRY(find_peaks(&p, live, scratch, err));
    for (int order = 0; order < ORDERS && p.best > p.bound; order++) {
        for (int tightest = 0; tightest < 2 && p.best > p.bound; tightest++) {
            sort_order(&p, order);
            keep_best(&p, pack(&p, tightest == 1));
        }
    }
    if (p.best == CKPT_BYTES_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "places of more than 2^63 bytes");
    }
    p.enough = enough > p.bound ? enough : p.bound;
    improve(&p);
    for (int i = 0; i < count; i++) {
        place[i].offset = p.best_offset[i];
    }
    ckpt_arena_rewind(scratch, mark);
    *arena_bytes = p.best;
    return CKPT_OK;
}
