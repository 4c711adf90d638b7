/* What a change of the peak is made of: what is in memory at the one and at the other, by name. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

enum { REASONS = 100 }; /* more contributors are never read */

/* What may share a name is told apart. */
typedef enum sort { STATIC, WORKSPACE, BUFFER } sort;

/* A live range, or a static block, at one peak. */
typedef struct entry {
    const char *name, *layer, *what;
    sort sort;
    int side;
    ckpt_bytes bytes;
    int range; /* -1: static */
} entry;

typedef struct pile {
    entry *at;
    int count;
} pile;

/* A contributor with the live ranges it was made of, for their reasons; -1: none. */
typedef struct merged {
    ckpt_contributor is;
    int range[2];
} merged;

bool ckpt_compare_ranges(ckpt_comparer *c, const ckpt_trace *trace, const char *source, ckpt_live_ranges *ranges)
{
    if (!ckpt_compare_ok(c, ckpt_live_ranges_make(trace, c->out, ranges, c->err))) {
        ckpt_err_while(c->err, "reading %.120s", source);
        return false;
    }
    return true;
}

static void add_side(pile *all, const ckpt_live_ranges *ranges, int side)
{
    const int at = ranges->trace->peak_event;
    for (int i = 0; i < ranges->count && ranges->range[i].from <= at; i++) {
        const ckpt_live_range *const range = &ranges->range[i];
        if (range->to >= at) {
            all->at[all->count++] = (entry){.name = range->name,
                                            .layer = range->layer,
                                            .what = ckpt_live_range_kind_name(range->kind),
                                            .sort = range->kind == CKPT_LIVE_WORKSPACE ? WORKSPACE : BUFFER,
                                            .side = side,
                                            .bytes = range->bytes,
                                            .range = i};
        }
    }
}

static void add_statics(pile *all, const ckpt_static *statics, int count, int side)
{
    for (int i = 0; i < count; i++) {
        all->at[all->count++] = (entry){statics[i].name, "", "static", STATIC, side, statics[i].bytes, -1};
    }
}

static int by_name(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->sort != y->sort ? (int)x->sort - (int)y->sort : x->side - y->side;
}

static int by_change(const void *a, const void *b)
{
    const ckpt_contributor *const x = &((const merged *)a)->is, *const y = &((const merged *)b)->is;
    const int64_t own = llabs(x->fresh - x->base), other = llabs(y->fresh - y->base);
    const int order = strcmp(x->name, y->name);
    return own != other ? (own < other ? 1 : -1) : order != 0 ? order : strcmp(x->what, y->what);
}

/* Entries of one name become one contributor; kept are those that differ. */
static int merge(const pile *all, merged *out)
{
    int count = 0;
    for (int i = 0, end = 0; i < all->count; i = end) {
        const entry *const first = &all->at[i];
        merged m = {{.name = first->name, .base_reason = "", .reason = ""}, {-1, -1}};
        for (; end < all->count && strcmp(all->at[end].name, first->name) == 0 && all->at[end].sort == first->sort;
             end++) {
            const entry *const e = &all->at[end];
            ckpt_bytes *const sum = e->side == 0 ? &m.is.base : &m.is.fresh;
            *sum = ckpt_plus(*sum, e->bytes);
            m.range[e->side] = e->range;
            m.is.layer = e->layer;
            m.is.what = e->what;
        }
        if (m.is.base != m.is.fresh) {
            out[count++] = m;
        }
    }
    return count;
}

static const char *peak_of(ckpt_comparer *c, const ckpt_trace *trace)
{
    const ckpt_event *const at = &trace->event[trace->peak_event];
    return trace->event_count > 0 ? CKPT_COMPARE_SAY(c, "%s at step %d", ckpt_compare_name(c, at->name), at->step) : "";
}

/* What the live ranges do not explain: in memory, but at no address that the file tells. */
static void add_rest(merged *all, int *count, ckpt_bytes change)
{
    ckpt_bytes told = 0;
    for (int i = 0; i < *count; i++) {
        told = ckpt_plus(told, all[i].is.fresh - all[i].is.base);
    }
    const ckpt_bytes rest = ckpt_plus(change, -told);
    if (rest != 0) {
        all[(*count)++] = (merged){{.name = "at no address that the files tell",
                                    .layer = "",
                                    .what = "",
                                    .base = rest < 0 ? -rest : 0,
                                    .fresh = rest > 0 ? rest : 0,
                                    .base_reason = "",
                                    .reason = ""},
                                   {-1, -1}};
    }
}

void ckpt_compare_peaks(ckpt_comparer *c, const ckpt_live_ranges ranges[2], const ckpt_static *const statics[2],
                        const int static_count[2])
{
    const size_t most =
        (size_t)ranges[0].count + (size_t)ranges[1].count + (size_t)static_count[0] + (size_t)static_count[1];
    pile all = {CKPT_COMPARE_NEW(c, entry, most), 0};
    merged *const found = CKPT_COMPARE_NEW(c, merged, most + 1);
    c->d->base_peak = peak_of(c, ranges[0].trace);
    c->d->peak = peak_of(c, ranges[1].trace);
    if (c->code != CKPT_OK) {
        return;
    }
    for (int side = 0; side < 2; side++) {
        add_statics(&all, statics[side], static_count[side], side);
        add_side(&all, &ranges[side], side);
    }
    qsort(all.at, (size_t)all.count, sizeof *all.at, by_name);
    int count = merge(&all, found);
    add_rest(found, &count, ranges[1].trace->peak_bytes - ranges[0].trace->peak_bytes);
    qsort(found, (size_t)count, sizeof *found, by_change);
    ckpt_contributor *const contributor = CKPT_COMPARE_NEW(c, ckpt_contributor, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        for (int side = 0; side < 2 && i < REASONS; side++) {
            if (found[i].range[side] >= 0) {
                const char *const reason = ckpt_live_range_reason(&ranges[side], found[i].range[side], c->out);
                *(side == 0 ? &found[i].is.base_reason : &found[i].is.reason) = ckpt_compare_keep(c, reason);
            }
        }
        contributor[i] = found[i].is;
    }
    c->d->contributor = contributor;
    c->d->contributor_count = count;
    c->d->contributors_known = true;
}
