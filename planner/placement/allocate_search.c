/* Is there a packing within a capacity? Exact search for dynamic storage allocation, with restarts.
 *
 * Time is cut into sections: the largest sets of allocations that are live together. A search state is a set of
 * allocations that are put, all of them below all others they share a section with; every other allocation then has a
 * floor, the highest end under it. An allocation is chosen: either it is put on its floor, below all others that it
 * still meets, or it is blocked: another one comes below it first, so it stays blocked until one that it meets has been
 * put. That covers all packings in which every allocation rests on another or on 0, in any order of choice, each once.
 * From Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023),
 * come sections and their bound, canonical solutions, dominance, preorders and cutting the rest where nothing crosses;
 * blocking in place of its rising offsets gives stronger floors, since what is blocked lies on another one that is not
 * put yet.
 *
 *   section bound   lowest floor of any allocation in it + bytes of all allocations in it <= capacity
 *   dominance       an allocation that fits under the floors of all it meets is put there, no alternative is looked at
 *   symmetry        of two allocations of the same span that lie on each other the one of lower rank is below
 *   restarts        of Luby length (Luby, Sinclair & Zuckerman 1993); allocations in sections where the search failed
 *                   move to the front (weights as in Boussemart et al., ECAI 2004), with fixed random numbers */
#include <stdlib.h>
#include <string.h>

#include "planner/placement/allocate_impl.h"

enum {
    NODES = 500,       /* of the shortest run, and as many as there are allocations */
    WEIGHT_ONE = 1024, /* what a failure adds to the weight of an allocation */
    FORGET = 20,       /* a restart takes this part off all weights */
};

typedef struct item {
    int from, to; /* sections, both included */
    int rank;     /* the lower, the sooner, between equal floors */
    bool put, blocked;
    bool under; /* found to fit under all it meets */
    ckpt_bytes bytes;
    ckpt_bytes floor; /* highest end of what has been put below it; its offset when put */
    ckpt_bytes was;   /* the one below, before the last look */
    ckpt_bytes least; /* no solution has it lower: floor, or when blocked the lowest end of what may come under it */
    int64_t weight;
    ckpt_bytes busy; /* the most live bytes of any of its sections */
    int64_t width;   /* steps */
    int index;
} item;

typedef struct section {
    ckpt_bytes left;        /* bytes of allocations in it that are not put */
    ckpt_bytes low, second; /* lowest and second lowest `least` of those not put */
    int lowest;             /* the one that has the lowest; -1: none left */
    bool stale;             /* those have to be looked for again */
} section;

/* What a step of the search changed: the item as it was. */
typedef struct change {
    ckpt_bytes floor;
    int item;
    bool put, blocked;
} change;

typedef struct searcher {
    item *item; /* by first section */
    int count;
    section *section;
    int sections;
    ckpt_bytes capacity;
    int *list; /* stack of sets of items not put, each by first section */
    size_t list_top, list_room;
    change *trail;
    size_t trail_top, trail_room;
    int64_t nodes; /* left in this run */
    int64_t *work; /* left */
    int64_t polled;
    const ckpt_plan_options *options;
    bool over; /* this run is */
    bool stopped, no_memory;
    uint64_t random;
} searcher;

/* --- Stacks and undoing --- */

static bool grow(void **array, size_t *room, size_t wanted, size_t size)
{
    if (wanted <= *room) {
        return true;
    }
    const size_t more = 2 * wanted;
    void *const grown = more <= SIZE_MAX / size ? ckpt_memory_resize(*array, more * size) : NULL;
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *room = more;
    return true;
}

static void make_stale(searcher *z, const item *it)
{
    for (int s = it->from; s <= it->to; s++) {
        z->section[s].stale = true;
    }
}

/* Remember item i before it changes. */
static void save(searcher *z, int i)
{
    void *trail = z->trail;
    if (!grow(&trail, &z->trail_room, z->trail_top + 1, sizeof *z->trail)) {
        z->no_memory = z->over = true;
        return;
    }
    z->trail = trail;
    const item *const it = &z->item[i];
    z->trail[z->trail_top++] = (change){it->floor, i, it->put, it->blocked};
}

static void undo(searcher *z, size_t mark)
{
    while (z->trail_top > mark) {
        const change *const was = &z->trail[--z->trail_top];
        item *const it = &z->item[was->item];
        if (it->put && !was->put) {
            for (int s = it->from; s <= it->to; s++) {
                z->section[s].left += it->bytes;
                z->section[s].stale = true;
            }
        }
        it->floor = was->floor;
        it->put = was->put;
        it->blocked = was->blocked;
    }
}

static bool meet(const item *a, const item *b)
{
    return a->from <= b->to && b->from <= a->to;
}

/* Put item i on its floor: everything it meets lies above it from now on, and is no longer blocked. */
static void put(searcher *z, int i, size_t first, size_t end)
{
    item *const it = &z->item[i];
    const ckpt_bytes top = it->floor + it->bytes;
    save(z, i);
    it->put = true;
    for (int s = it->from; s <= it->to; s++) {
        z->section[s].left -= it->bytes;
        z->section[s].stale = true;
    }
    for (size_t k = first; k < end; k++) {
        item *const other = &z->item[z->list[k]];
        if (other->put || !meet(it, other)) {
            continue;
        }
        const bool twin = other->from == it->from && other->to == it->to && other->rank < it->rank;
        if (other->floor < top || other->blocked != twin) {
            save(z, z->list[k]);
            other->floor = other->floor < top ? top : other->floor;
            other->blocked = twin;
        }
    }
    *z->work -= (int64_t)(end - first) + it->to - it->from;
}

/* --- Bounds --- */

/* The lowest end of what may come under a blocked item; CKPT_BYTES_MAX: nothing may. */
static ckpt_bytes lowest_under(searcher *z, const item *it, size_t first, size_t end)
{
    ckpt_bytes under = CKPT_BYTES_MAX;
    for (size_t j = first; j < end; j++) {
        const item *const other = &z->item[z->list[j]];
        if (other->least < under - other->bytes && other != it && meet(it, other)) {
            under = other->least + other->bytes;
        }
    }
    *z->work -= (int64_t)(end - first);
    return under > it->floor ? under : it->floor;
}

/* What `least` is now: shortest paths to blocked items from those that are not. False: one does not fit any more. */
static bool raise_blocked(searcher *z, size_t first, size_t end)
{
    bool changed = false;
    for (size_t k = first; k < end; k++) {
        item *const it = &z->item[z->list[k]];
        it->was = it->least;
        it->least = it->blocked ? CKPT_BYTES_MAX : it->floor;
        changed |= it->blocked;
    }
    while (changed) {
        changed = false;
        for (size_t k = first; k < end; k++) {
            item *const it = &z->item[z->list[k]];
            const ckpt_bytes least = it->blocked ? lowest_under(z, it, first, end) : it->least;
            changed |= least < it->least;
            it->least = least < it->least ? least : it->least;
        }
    }
    bool fits = true;
    for (size_t k = first; k < end; k++) {
        const item *const it = &z->item[z->list[k]];
        if (it->least != it->was) {
            make_stale(z, it);
        }
        fits = fits && it->least <= z->capacity - it->bytes;
    }
    return fits;
}

/* The two lowest floors of stale sections of low .. high. */
static void scan_sections(searcher *z, size_t first, size_t end, int low, int high)
{
    while (low <= high && !z->section[low].stale) {
        low++;
    }
    while (low <= high && !z->section[high].stale) {
        high--;
    }
    for (int s = low; s <= high; s++) {
        z->section[s].low = z->section[s].second = CKPT_BYTES_MAX;
        z->section[s].lowest = -1;
        z->section[s].stale = false;
    }
    for (size_t k = first; k < end; k++) {
        const item *const it = &z->item[z->list[k]];
        const int from = it->from > low ? it->from : low;
        const int to = it->to < high ? it->to : high;
        const ckpt_bytes least = it->least;
        for (int at = from; at <= to; at++) {
            section *const s = &z->section[at];
            if (least < s->low) {
                s->second = s->low;
                s->low = least;
                s->lowest = z->list[k];
            } else if (least < s->second) {
                s->second = least;
            }
        }
        *z->work -= to >= from ? 2 + to - from : 1;
    }
}

/* Whether all that shares a section with it ends up at its top or above. */
static bool fits_under(const searcher *z, int i)
{
    const item *const it = &z->item[i];
    const ckpt_bytes top = it->floor + it->bytes;
    for (const section *s = &z->section[it->from]; s <= &z->section[it->to]; s++) {
        if ((s->lowest == i ? s->second : s->low) < top) {
            return false;
        }
    }
    return true;
}

/* False when the items of list[first .. end - 1] cannot be put. *forced: some are `under`, and can be put without
 * looking at alternatives. No two of those meet. */
static bool look(searcher *z, size_t first, size_t end, bool *forced)
{
    *forced = false;
    if (!raise_blocked(z, first, end)) {
        return false;
    }
    const int low = z->item[z->list[first]].from;
    int high = low;
    for (size_t k = first; k < end; k++) {
        const int to = z->item[z->list[k]].to;
        high = to > high ? to : high;
    }
    scan_sections(z, first, end, low, high);
    for (int s = low; s <= high; s++) {
        if (z->section[s].lowest < 0 || z->section[s].low <= z->capacity - z->section[s].left) {
            continue;
        }
        for (size_t k = first; k < end; k++) {
            item *const it = &z->item[z->list[k]];
            it->weight += it->from <= s && s <= it->to ? WEIGHT_ONE : 0;
        }
        return false;
    }
    for (size_t k = first; k < end; k++) {
        item *const it = &z->item[z->list[k]];
        it->under = fits_under(z, z->list[k]);
        if (it->under && it->blocked) {
            return false; /* moved down it is a packing that has been looked for already */
        }
        *forced |= it->under;
    }
    return true;
}

/* --- Search --- */

static int choose(const searcher *z, size_t first, size_t end)
{
    int best = -1;
    for (size_t k = first; k < end; k++) {
        const item *const it = &z->item[z->list[k]];
        const item *const than = best < 0 ? NULL : &z->item[best];
        if (!it->blocked &&
            (than == NULL || it->floor < than->floor || (it->floor == than->floor && it->rank < than->rank))) {
            best = z->list[k];
        }
    }
    return best;
}

static bool spent(searcher *z)
{
    z->nodes--;
    if (z->polled - *z->work > 10000000) { /* some milliseconds */
        z->polled = *z->work;
        z->stopped = z->options != NULL && ckpt_plan_stopped(z->options);
    }
    z->over = z->over || z->nodes < 0 || *z->work < 0 || z->stopped;
    return z->over;
}

static bool solve(searcher *z, size_t first, size_t end);

/* Put all of list[first .. end - 1], which hang together. Undone when that cannot be. */
static bool solve_part(searcher *z, size_t first, size_t end)
{
    const size_t whole = z->trail_top;
    while (!spent(z)) {
        bool forced = false;
        if (!look(z, first, end, &forced)) {
            break;
        }
        const int i = forced ? -1 : choose(z, first, end);
        if (!forced && i < 0) {
            break;
        }
        const size_t mark = z->trail_top;
        for (size_t k = first; k < end && forced; k++) {
            if (z->item[z->list[k]].under) {
                put(z, z->list[k], first, end);
            }
        }
        if (!forced) {
            put(z, i, first, end);
        }
        if (!z->over && solve(z, first, end)) {
            return true;
        }
        if (forced || z->over) {
            break;
        }
        undo(z, mark);
        save(z, i);
        z->item[i].blocked = true;
    }
    undo(z, whole);
    return false;
}

/* Put what is not put of list[first .. end - 1], part by part where no item crosses. */
static bool solve(searcher *z, size_t first, size_t end)
{
    const size_t start = z->list_top;
    void *list = z->list;
    if (!grow(&list, &z->list_room, start + (end - first), sizeof *z->list)) {
        z->no_memory = z->over = true;
        return false;
    }
    z->list = list;
    for (size_t k = first; k < end; k++) {
        if (!z->item[z->list[k]].put) {
            z->list[z->list_top++] = z->list[k];
        }
    }
    const size_t last = z->list_top;
    bool found = true;
    for (size_t at = start; at < last && found;) {
        size_t next = at;
        int reach = z->item[z->list[at]].to;
        while (next < last && z->item[z->list[next]].from <= reach) {
            const int to = z->item[z->list[next++]].to;
            reach = to > reach ? to : reach;
        }
        found = solve_part(z, at, next);
        at = next;
    }
    z->list_top = start;
    return found;
}

/* --- Preorders and restarts --- */

typedef struct keyed {
    int64_t key[3]; /* falling */
    int item;
} keyed;

static int compare_keys(const void *a, const void *b)
{
    const keyed *const x = a;
    const keyed *const y = b;
    for (int k = 0; k < 3; k++) {
        if (x->key[k] != y->key[k]) {
            return x->key[k] > y->key[k] ? -1 : 1;
        }
    }
    return (x->item > y->item) - (x->item < y->item);
}

/* xorshift64*: Vigna, ACM TOMS 42(4), 2016. */
static uint32_t draw(searcher *z)
{
    z->random ^= z->random >> 12;
    z->random ^= z->random << 25;
    z->random ^= z->random >> 27;
    return (uint32_t)((z->random * UINT64_C(2685821657736338717)) >> 32);
}

static void rank_items(searcher *z, int run, keyed *key)
{
    for (int i = 0; i < z->count; i++) {
        item *const it = &z->item[i];
        key[i] = (keyed){.item = i};
        if (run < CKPT_PREORDERS) {
            for (int k = 0; k < 3; k++) {
                key[i].key[k] = ckpt_allocations_preorder(run, k, it->bytes, it->width, it->busy);
            }
        } else { /* up to a tenth less or more than the weight */
            key[i].key[0] = it->weight / 640 * (576 + draw(z) % 128);
            it->weight -= it->weight / FORGET;
        }
    }
    qsort(key, (size_t)z->count, sizeof *key, compare_keys);
    for (int i = 0; i < z->count; i++) {
        z->item[key[i].item].rank = i;
    }
}

/* 1 1 2 1 1 2 4 ... for n = 1, 2, ... */
static int64_t luby(int n)
{
    for (;;) {
        int k = 1;
        while ((1 << k) - 1 < n) {
            k++;
        }
        if ((1 << k) - 1 == n) {
            return (int64_t)1 << (k - 1);
        }
        n -= (1 << (k - 1)) - 1;
    }
}

static ckpt_pack_outcome search_runs(searcher *z, keyed *key)
{
    for (int run = 0; *z->work > 0 && !z->stopped && !z->no_memory; run++) {
        rank_items(z, run, key);
        z->nodes = luby(run / CKPT_PREORDERS + 1) * (NODES + z->count);
        z->over = false;
        z->list_top = (size_t)z->count;
        for (int i = 0; i < z->count; i++) {
            z->list[i] = i;
        }
        for (int k = 0; k < z->sections; k++) {
            z->section[k].stale = true;
        }
        if (solve(z, 0, (size_t)z->count)) {
            return CKPT_PACK_FOUND;
        }
        if (!z->over) {
            return CKPT_PACK_NONE;
        }
    }
    return CKPT_PACK_SPENT;
}

/* --- From allocations to items --- */

static int compare_items(const void *a, const void *b)
{
    const item *const x = a;
    const item *const y = b;
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* A section for every step at which something ends, when something has begun since the section before: no other step
 * has more allocations in it. Allocations that meet, meet in a section. */
static ckpt_code cut_sections(searcher *z, const ckpt_allocation *allocation, int count, ckpt_arena *scratch,
                              ckpt_err *err)
{
    enum { BEGINS = 1, ENDS = 2 };
    const int steps = ckpt_allocations_steps(allocation, count);
    unsigned char *const event = CKPT_NEW(scratch, unsigned char, steps);
    int *const before = CKPT_NEW(scratch, int, steps + 1); /* sections before a step */
    z->item = CKPT_NEW(scratch, item, count);
    if (event == NULL || before == NULL || z->item == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sections of %d steps", steps);
    }
    for (int i = 0; i < count; i++) {
        if (allocation[i].bytes > 0) {
            event[allocation[i].from] |= BEGINS;
            event[allocation[i].to] |= ENDS;
        }
    }
    bool begun = false;
    for (int t = 0; t < steps; t++) {
        begun = begun || (event[t] & BEGINS) != 0;
        const bool closes = begun && (event[t] & ENDS) != 0;
        before[t + 1] = before[t] + closes;
        begun = begun && !closes;
    }
    z->sections = before[steps];
    for (int i = 0; i < count; i++) {
        if (allocation[i].bytes > 0) {
            z->item[z->count++] = (item){.from = before[allocation[i].from],
                                         .to = before[allocation[i].to + 1] - 1,
                                         .bytes = allocation[i].bytes,
                                         .width = (int64_t)allocation[i].to - allocation[i].from + 1,
                                         .index = i};
        }
    }
    qsort(z->item, (size_t)z->count, sizeof *z->item, compare_items);
    return CKPT_OK;
}

/* Bytes of every section. False: one has more than the capacity. */
static bool fill_sections(searcher *z)
{
    for (int i = 0; i < z->count; i++) {
        for (int s = z->item[i].from; s <= z->item[i].to; s++) {
            if (!ckpt_sum(z->section[s].left, z->item[i].bytes, &z->section[s].left) ||
                z->section[s].left > z->capacity) {
                return false;
            }
        }
    }
    for (int i = 0; i < z->count; i++) {
        for (int s = z->item[i].from; s <= z->item[i].to; s++) {
            const ckpt_bytes total = z->section[s].left;
            z->item[i].busy = total > z->item[i].busy ? total : z->item[i].busy;
        }
    }
    return true;
}

static ckpt_code search_all(searcher *z, ckpt_allocation *allocation, ckpt_arena *scratch, ckpt_pack_outcome *outcome,
                            ckpt_err *err)
{
    z->section = CKPT_NEW(scratch, section, z->sections);
    keyed *const key = CKPT_NEW(scratch, keyed, z->count);
    if (z->section == NULL || key == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "searching allocations of %d buffers", z->count);
    }
    if (!fill_sections(z)) {
        *outcome = CKPT_PACK_NONE;
        return CKPT_OK;
    }
    void *list = NULL;
    z->no_memory = !grow(&list, &z->list_room, (size_t)z->count + 1, sizeof *z->list);
    z->list = list;
    *outcome = search_runs(z, key);
    if (z->no_memory) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "searching allocations of %d buffers", z->count);
    }
    for (int i = 0; i < z->count && *outcome == CKPT_PACK_FOUND; i++) {
        allocation[z->item[i].index].offset = z->item[i].floor;
    }
    return CKPT_OK;
}

ckpt_code ckpt_allocations_search(ckpt_allocation *allocation, int count, ckpt_bytes capacity, int64_t *work,
                                  const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_pack_outcome *outcome,
                                  ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    searcher z = {.capacity = capacity,
                  .work = work,
                  .polled = *work,
                  .options = options,
                  .random = UINT64_C(0x9E3779B97F4A7C15)};
    CKPT_TRY(cut_sections(&z, allocation, count, scratch, err));
    const ckpt_code code = search_all(&z, allocation, scratch, outcome, err);
    ckpt_memory_put(z.list);
    ckpt_memory_put(z.trail);
    ckpt_arena_rewind(scratch, mark);
    for (int i = 0; i < count && code == CKPT_OK && *outcome == CKPT_PACK_FOUND; i++) {
        allocation[i].offset = allocation[i].bytes > 0 ? allocation[i].offset : 0;
    }
    return code;
}
