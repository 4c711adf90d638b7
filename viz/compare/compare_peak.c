/* What a change of the peak is made of: what is in memory at the one and at the other, by name. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

enum { REASONS = 100 }; /* more contributors are never read */

/* A stay, or a static block, at one peak. */
typedef struct entry {
    const char *name, *layer, *what;
    bool workspace, fresh;
    ckpt_bytes bytes;
    int range; /* -1: static */
} entry;

typedef struct pile {
    entry *at;
    int count;
} pile;

/* A contributor with the stays it was made of, for their reasons. */
typedef struct merged {
    ckpt_contributor is;
    int base_life, fresh_life; /* -1: none */
} merged;

static void add_side(pile *all, const ckpt_live_ranges *ranges, bool fresh)
{
    const int at = ranges->trace->peak_event;
    for (int i = 0; i < ranges->count && ranges->range[i].from <= at; i++) {
        const ckpt_live_range *const range = &ranges->range[i];
        if (range->to >= at) {
            all->at[all->count++] = (entry){.name = range->name,
                                            .layer = range->layer,
                                            .what = ckpt_live_range_kind_name(range->kind),
                                            .workspace = range->kind == CKPT_LIFE_WORKSPACE,
                                            .fresh = fresh,
                                            .bytes = range->bytes,
                                            .range = i};
        }
    }
}

static void add_statics(pile *all, const ckpt_static *statics, int count, bool fresh)
{
    for (int i = 0; i < count; i++) {
        all->at[all->count++] = (entry){.name = statics[i].name,
                                        .layer = "",
                                        .what = "static",
                                        .fresh = fresh,
                                        .bytes = statics[i].bytes,
                                        .range = -1};
    }
}

/* What may share a name is told apart: a static block, a workspace, anything else. */
static int sort_of(const entry *e)
{
    return e->range < 0 ? 0 : e->workspace ? 1 : 2;
}

static int by_name(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : sort_of(x) != sort_of(y) ? sort_of(x) - sort_of(y) : x->fresh - y->fresh;
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
        merged m = {{.name = first->name, .layer = "", .what = first->what, .base_reason = "", .reason = ""}, -1, -1};
        for (; end < all->count && strcmp(all->at[end].name, first->name) == 0 &&
               sort_of(&all->at[end]) == sort_of(first);
             end++) {
            const entry *const e = &all->at[end];
            ckpt_bytes *const side = e->fresh ? &m.is.fresh : &m.is.base;
            *side = ckpt_plus(*side, e->bytes);
            *(e->fresh ? &m.fresh_life : &m.base_life) = e->range;
            m.is.layer = e->layer;
            m.is.what = e->what;
        }
        if (m.is.base != m.is.fresh) {
            out[count++] = m;
        }
    }
    return count;
}

static ckpt_code reason_of(ckpt_comparer *c, const ckpt_live_ranges *ranges, int range, const char **reason)
{
    if (range >= 0) {
        *reason = ckpt_live_range_reason(ranges, range, c->out);
    }
    return *reason != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a reason");
}

static const char *peak_of(ckpt_comparer *c, const ckpt_live_ranges *ranges)
{
    const ckpt_trace *const trace = ranges->trace;
    const char *const name =
        trace->event_count > 0 ? ckpt_compare_name(c->out, trace->event[trace->peak_event].name) : "";
    return trace->event_count > 0 && name != NULL
               ? ckpt_arena_format(c->out, "%s at step %d", name, trace->event[trace->peak_event].step)
               : name;
}

/* What the stays do not explain: in memory, but in no place that the file tells. */
static void add_rest(merged *all, int *count, ckpt_bytes change)
{
    ckpt_bytes told = 0;
    for (int i = 0; i < *count; i++) {
        told = ckpt_plus(told, all[i].is.fresh - all[i].is.base);
    }
    const ckpt_bytes rest = ckpt_plus(change, -told);
    if (rest != 0) {
        all[(*count)++] = (merged){{.name = "in no place that the files tell",
                                    .layer = "",
                                    .what = "",
                                    .base = rest < 0 ? -rest : 0,
                                    .fresh = rest > 0 ? rest : 0,
                                    .base_reason = "",
                                    .reason = ""},
                                   -1,
                                   -1};
    }
}

ckpt_code ckpt_compare_peaks(ckpt_comparer *c, const ckpt_live_ranges *base, const ckpt_live_ranges *fresh,
                             const ckpt_static *base_static, int base_static_count, const ckpt_static *fresh_static,
                             int fresh_static_count)
{
    const size_t most =
        (size_t)base->count + (size_t)fresh->count + (size_t)base_static_count + (size_t)fresh_static_count;
    pile all = {CKPT_NEW(c->out, entry, most), 0};
    merged *const found = CKPT_NEW(c->out, merged, most + 1);
    c->d->base_peak = peak_of(c, base);
    c->d->peak = peak_of(c, fresh);
    if (all.at == NULL || found == NULL || c->d->base_peak == NULL || c->d->peak == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %zu stays", most);
    }
    add_statics(&all, base_static, base_static_count, false);
    add_statics(&all, fresh_static, fresh_static_count, true);
    add_side(&all, base, false);
    add_side(&all, fresh, true);
    qsort(all.at, (size_t)all.count, sizeof *all.at, by_name);
    int count = merge(&all, found);
    add_rest(found, &count, fresh->trace->peak_bytes - base->trace->peak_bytes);
    qsort(found, (size_t)count, sizeof *found, by_change);
    ckpt_contributor *const contributor = CKPT_NEW(c->out, ckpt_contributor, count);
    if (contributor == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d buffers", count);
    }
    for (int i = 0; i < count; i++) {
        if (i < REASONS) {
            CKPT_TRY(reason_of(c, base, found[i].base_life, &found[i].is.base_reason));
            CKPT_TRY(reason_of(c, fresh, found[i].fresh_life, &found[i].is.reason));
        }
        contributor[i] = found[i].is;
    }
    c->d->contributor = contributor;
    c->d->contributor_count = count;
    c->d->contributors_known = true;
    return CKPT_OK;
}
