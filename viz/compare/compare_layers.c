/* Two plans or traces layer by layer, matched by name: what was added, removed and resized, what was decided, and each
 * layer's share in the peak, the step's time and the other sums. What no layer has a share in stands beside them, so that
 * the changes add up. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

typedef enum what { LAYER, STATIC, SORTS } what;

/* A layer, or a static block, on both sides. */
typedef struct entry {
    const char *name;
    what is;
    bool real; /* a layer, not an op without one */
    bool on[2], decided[2];
    ckpt_decision decision[2];
    ckpt_bytes size[2];
    int64_t by[CKPT_SHARE_COUNT]; /* NEW less BASE */
} entry;

typedef struct layers {
    ckpt_comparer *c;
    ckpt_names names[SORTS];
    entry *at; /* NULL while names are counted */
    int count;
    entry nobody; /* what is told meanwhile */
    bool strip;   /* one has more micro-batches than the other: their layers are one */
    bool outline; /* of plans: both have one */
    bool told;    /* both say what is in memory and what runs when */
} layers;

const char *ckpt_compare_plain(ckpt_comparer *c, const char *name)
{
    const char *const at = strrchr(name, '@');
    const size_t digits = at != NULL ? strspn(at + 1, "0123456789") : 0;
    const char *const end = digits > 0 ? at + 1 + digits : NULL;
    if (end == NULL || (*end != '\0' && *end != '/')) {
        return name;
    }
    return CKPT_COMPARE_SAY(c, "%.*s%s", (int)(at - name), name, end);
}

static const char *key_of(const layers *l, const char *name)
{
    return l->strip ? ckpt_compare_plain(l->c, name) : name;
}

static entry *entry_of(layers *l, what is, const char *name, int side)
{
    const char *const key = key_of(l, name);
    const int before = ckpt_names_add(&l->names[is], key, l->count), at = before < 0 ? l->count++ : before;
    entry *const e = l->at != NULL ? &l->at[at] : &l->nobody;
    e->name = e->name != NULL ? e->name : key; /* workspace of a pass may hold the key */
    e->is = is;
    e->on[side] = true;
    return e;
}

static void add(int64_t *sum, int64_t more)
{
    *sum = ckpt_plus(*sum, more);
}

static void add_share(entry *e, ckpt_share share, int64_t more, int side)
{
    add(&e->by[share], side == 1 ? more : -more);
}

/* Of several micro-batches: recomputed when one of them is, else offloaded when one is. */
static ckpt_decision both_decisions(ckpt_decision a, ckpt_decision b)
{
    return a == CKPT_RECOMPUTE || b == CKPT_RECOMPUTE ? CKPT_RECOMPUTE : a == CKPT_OFFLOADED ? a : b;
}

/* What wrote a live range: a layer, else the op, else the buffer itself. */
static entry *writer_of(layers *l, const ckpt_live_ranges *ranges, const ckpt_live_range *range, int side)
{
    const char *const name = range->layer[0] != '\0' ? range->layer
                             : range->born >= 0      ? ranges->trace->event[range->born].name
                                                     : range->name;
    return entry_of(l, LAYER, name, side);
}

static void take_names(layers *l, const ckpt_live_ranges *ranges, int side)
{
    const ckpt_plan *const plan = l->c->file[side]->plan;
    const ckpt_trace *const trace = l->c->file[side]->trace;
    for (int i = 0; plan != NULL && i < plan->layer_count; i++) {
        entry *const e = entry_of(l, LAYER, plan->layer[i].layer, side);
        e->decision[side] =
            e->decided[side] ? both_decisions(e->decision[side], plan->layer[i].decision) : plan->layer[i].decision;
        e->decided[side] = e->real = true;
    }
    for (int i = 0; plan != NULL && l->outline && i < plan->outline.op_count; i++) {
        const ckpt_outline_op *const op = &plan->outline.op[i];
        entry_of(l, LAYER, op->layer[0] != '\0' ? op->layer : op->name, side)->real |= op->layer[0] != '\0';
    }
    for (int i = 0; trace != NULL && i < trace->event_count; i++) {
        const ckpt_event *const e = &trace->event[i];
        if (e->span != CKPT_SPAN_FREE && e->span != CKPT_SPAN_ALLOCATE) {
            entry_of(l, LAYER, e->layer[0] != '\0' ? e->layer : e->name, side)->real |= e->layer[0] != '\0';
        }
    }
    for (int i = 0; i < ranges->count; i++) {
        (void)writer_of(l, ranges, &ranges->range[i], side);
    }
}

static void take_peak(layers *l, const ckpt_live_ranges *ranges, int side)
{
    const int at = ranges->trace->peak_event;
    for (int i = 0; i < ranges->count && ranges->range[i].from <= at; i++) {
        if (ranges->range[i].to >= at) {
            add_share(writer_of(l, ranges, &ranges->range[i], side), CKPT_SHARE_PEAK, ranges->range[i].bytes, side);
        }
    }
}

static void take_runs(layers *l, const ckpt_live_ranges *ranges, int side)
{
    const ckpt_plan *const plan = l->c->file[side]->plan;
    const ckpt_outline *const o = &plan->outline;
    const ckpt_mark mark = ckpt_arena_mark(l->c->out); /* below it all is workspace */
    ckpt_names op, buffer, writer;
    if (!ckpt_compare_ok(l->c, ckpt_names_init(&op, o->op_count, l->c->out, l->c->err)) ||
        !ckpt_compare_ok(l->c, ckpt_names_init(&buffer, o->buffer_count, l->c->out, l->c->err)) ||
        !ckpt_compare_ok(l->c, ckpt_names_init(&writer, ranges->count, l->c->out, l->c->err))) {
        return;
    }
    entry **const by_op = CKPT_COMPARE_NEW(l->c, entry *, o->op_count);
    bool *const copied = CKPT_COMPARE_NEW(l->c, bool, o->buffer_count);
    for (int i = 0; i < o->op_count && l->c->code == CKPT_OK; i++) {
        (void)ckpt_names_add(&op, o->op[i].name, i);
        by_op[i] = entry_of(l, LAYER, o->op[i].layer[0] != '\0' ? o->op[i].layer : o->op[i].name, side);
        add_share(by_op[i], CKPT_SHARE_KEEP_ALL, o->op[i].time_ns, side);
    }
    for (int i = 0; i < o->buffer_count; i++) {
        (void)ckpt_names_add(&buffer, o->buffer[i].name, i);
    }
    for (int i = 0; i < ranges->count && l->c->code == CKPT_OK; i++) {
        if (ranges->range[i].kind != CKPT_LIVE_WORKSPACE) {
            (void)ckpt_names_add(&writer, ranges->range[i].name,
                                 (int)(writer_of(l, ranges, &ranges->range[i], side) - l->at));
        }
    }
    for (int i = 0; i < plan->step_count && l->c->code == CKPT_OK; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int at = ckpt_names_find(step->kind == CKPT_RUN ? &op : &buffer, step->name);
        if (at >= 0 && step->kind == CKPT_RUN) {
            entry *const e = by_op[at];
            const ckpt_ns known = ckpt_run_time(&o->op[at], step->variant),
                          time = known >= 0 ? known : o->op[at].time_ns;
            add_share(e, CKPT_SHARE_TIME, time, side);
            add_share(e, CKPT_SHARE_RECOMPUTED, step->recomputed ? time : 0, side);
            add_share(e, CKPT_SHARE_OTHER_WAYS, step->variant != NULL, side);
            add_share(e, CKPT_SHARE_INEXACT, step->inexact, side);
        } else if (at >= 0 && step->kind == CKPT_OFFLOAD && ckpt_names_find(&writer, step->name) >= 0) {
            entry *const e = &l->at[ckpt_names_find(&writer, step->name)];
            add_share(e, CKPT_SHARE_COPIED, o->buffer[at].bytes, side);
            add_share(e, CKPT_SHARE_HOST, copied[at] ? 0 : o->buffer[at].bytes, side);
            copied[at] = true;
        }
    }
    ckpt_arena_rewind(l->c->out, mark);
}

static void take_events(layers *l, int side)
{
    static const ckpt_share shares[] = {[CKPT_SPAN_FORWARD] = CKPT_SHARE_FORWARD,
                                        [CKPT_SPAN_BACKWARD] = CKPT_SHARE_BACKWARD,
                                        [CKPT_SPAN_RECOMPUTE] = CKPT_SHARE_RECOMPUTED,
                                        [CKPT_SPAN_COPY] = CKPT_SHARE_COPY,
                                        [CKPT_SPAN_UPDATE] = CKPT_SHARE_UPDATE,
                                        [CKPT_SPAN_WAIT] = CKPT_SHARE_WAIT,
                                        [CKPT_SPAN_OTHER] = CKPT_SHARE_TIME};
    const ckpt_trace *const trace = l->c->file[side]->trace;
    for (int i = 0; i < trace->event_count && l->c->code == CKPT_OK; i++) {
        const ckpt_event *const e = &trace->event[i];
        if (e->span == CKPT_SPAN_FREE || e->span == CKPT_SPAN_ALLOCATE) {
            continue;
        }
        entry *const on = entry_of(l, LAYER, e->layer[0] != '\0' ? e->layer : e->name, side);
        add_share(on, shares[e->span], e->end_ns - e->start_ns, side);
        if (e->span != CKPT_SPAN_COPY && e->span != CKPT_SPAN_OTHER) { /* copies run beside the rest */
            add_share(on, CKPT_SHARE_TIME, e->end_ns - e->start_ns, side);
        }
        add_share(on, CKPT_SHARE_OTHER_WAYS, e->variant != NULL, side);
        add_share(on, CKPT_SHARE_INEXACT, e->inexact, side);
    }
}

static void take_statics(layers *l, const ckpt_static *statics, int count, int side)
{
    for (int i = 0; i < count && l->c->code == CKPT_OK; i++) {
        entry *const e = entry_of(l, STATIC, statics[i].name, side);
        add(&e->size[side], statics[i].bytes);
        add_share(e, CKPT_SHARE_PEAK, statics[i].bytes, side);
    }
}

/* Calls for each buffer of a side that is no gradient: of an outline, else of the live ranges, each name once. */
typedef void each_buffer(layers *l, const char *name, ckpt_bytes bytes, int side, ckpt_names names[3]);

static void walk_buffers(layers *l, const ckpt_live_ranges *ranges, int side, ckpt_names names[3], each_buffer *each)
{
    const ckpt_plan *const plan = l->c->file[side]->plan;
    for (int i = 0; plan != NULL && l->outline && i < plan->outline.buffer_count; i++) {
        if (plan->outline.buffer[i].kind != CKPT_GRADIENT) {
            each(l, key_of(l, plan->outline.buffer[i].name), plan->outline.buffer[i].bytes, side, names);
        }
    }
    ckpt_names seen;
    if (plan != NULL || !ckpt_compare_ok(l->c, ckpt_names_init(&seen, ranges->count, l->c->out, l->c->err))) {
        return;
    }
    for (int i = 0; i < ranges->count; i++) {
        const ckpt_live_range *const r = &ranges->range[i];
        if (r->kind != CKPT_LIVE_GRADIENT && r->kind != CKPT_LIVE_WORKSPACE && ckpt_names_add(&seen, r->name, i) < 0) {
            each(l, r->name, r->bytes, side, names);
        }
    }
}

static void know_buffer(layers *l, const char *name, ckpt_bytes bytes, int side, ckpt_names names[3])
{
    (void)l, (void)bytes;
    (void)ckpt_names_add(&names[side], name, 0);
}

/* A buffer that only one has says nothing of a layer that both have: an op's way may need it. */
static void size_buffer(layers *l, const char *name, ckpt_bytes bytes, int side, ckpt_names names[3])
{
    const int at = ckpt_names_find(&names[2], name);
    entry *const e = at >= 0 ? &l->at[at] : NULL;
    if (e != NULL && ((e->on[0] != e->on[1]) || ckpt_names_find(&names[1 - side], name) >= 0)) {
        add(&e->size[side], bytes);
    }
}

/* What each layer writes. Who writes a buffer the live ranges of either side say. */
static void take_sizes(layers *l, const ckpt_live_ranges ranges[2])
{
    const ckpt_mark mark = ckpt_arena_mark(l->c->out); /* below it all is workspace */
    ckpt_names names[3];                               /* buffers of BASE, of NEW; writers */
    int most = ranges[0].count + ranges[1].count;
    for (int side = 0; side < 2; side++) {
        const ckpt_plan *const plan = l->c->file[side]->plan;
        const int own = plan != NULL ? plan->outline.buffer_count : ranges[side].count;
        (void)ckpt_compare_ok(l->c, ckpt_names_init(&names[side], own, l->c->out, l->c->err));
    }
    if (l->c->code != CKPT_OK || !ckpt_compare_ok(l->c, ckpt_names_init(&names[2], most, l->c->out, l->c->err))) {
        return;
    }
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < ranges[side].count && l->c->code == CKPT_OK; i++) {
            const ckpt_live_range *const r = &ranges[side].range[i];
            if (r->kind != CKPT_LIVE_WORKSPACE && r->kind != CKPT_LIVE_GRADIENT) {
                (void)ckpt_names_add(&names[2], key_of(l, r->name),
                                     (int)(writer_of(l, &ranges[side], r, side) - l->at));
            }
        }
        walk_buffers(l, &ranges[side], side, names, know_buffer);
    }
    for (int side = 0; side < 2; side++) {
        walk_buffers(l, &ranges[side], side, names, size_buffer);
    }
    ckpt_arena_rewind(l->c->out, mark);
}

static ckpt_compare_fate fate_of(const entry *e)
{
    return e->is == STATIC            ? CKPT_LAYER_STATIC
           : !e->on[0]                ? CKPT_LAYER_ADDED
           : !e->on[1]                ? CKPT_LAYER_REMOVED
           : e->size[0] != e->size[1] ? CKPT_LAYER_RESIZED
                                      : CKPT_LAYER_SAME;
}

/* Of a layer of the same size and decision: what else is other, the first that explains the most. */
static const char *other_words(const ckpt_compare_layer *l, bool same_graph)
{
    const ckpt_ns own = l->by[CKPT_SHARE_KEEP_ALL];
    return own != 0 && same_graph             ? "planned with other times"
           : own > 0                          ? "takes longer"
           : own < 0                          ? "takes less time"
           : l->by[CKPT_SHARE_RECOMPUTED] > 0 ? "recomputed more often"
           : l->by[CKPT_SHARE_RECOMPUTED] < 0 ? "recomputed less often"
           : l->by[CKPT_SHARE_TIME] != 0      ? "in another way"
           : l->by[CKPT_SHARE_COPIED] > 0     ? "copied more"
           : l->by[CKPT_SHARE_COPIED] < 0     ? "copied less"
           : l->by[CKPT_SHARE_PEAK] > 0       ? "more of it at the peak"
           : l->by[CKPT_SHARE_PEAK] < 0       ? "less of it at the peak"
                                              : "in another way";
}

static const char *words_of(ckpt_comparer *c, const ckpt_compare_layer *l)
{
    const bool decided = l->decided && l->base != l->fresh;
    const char *const decision =
        decided ? CKPT_COMPARE_SAY(c, "%s → %s", ckpt_decision_name(l->base), ckpt_decision_name(l->fresh)) : "";
    char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT];
    switch (l->fate) {
    case CKPT_LAYER_ADDED:
        return l->fresh != CKPT_KEEP ? CKPT_COMPARE_SAY(c, "added, %s", ckpt_decision_name(l->fresh)) : "added";
    case CKPT_LAYER_REMOVED: return "removed";
    case CKPT_LAYER_RESIZED:
    case CKPT_LAYER_STATIC:
        return CKPT_COMPARE_SAY(c, "%s %s → %s%s%s", l->fate == CKPT_LAYER_STATIC ? "static" : "outputs",
                                ckpt_bytes_show(l->base_bytes, was), ckpt_bytes_show(l->fresh_bytes, is),
                                decided ? ", " : "", decision);
    case CKPT_LAYER_SAME:
    case CKPT_LAYER_REST: break;
    }
    const ckpt_plan *const a = c->file[0]->plan, *const b = c->file[1]->plan;
    return decided ? decision : other_words(l, a != NULL && strcmp(a->graph_sha256, b->graph_sha256) == 0);
}

static bool differs(const ckpt_compare_layer *l)
{
    bool any = l->fate == CKPT_LAYER_ADDED || l->fate == CKPT_LAYER_REMOVED || l->base_bytes != l->fresh_bytes ||
               (l->decided && l->base != l->fresh);
    for (int s = 0; s < CKPT_SHARE_COUNT; s++) {
        any = any || l->by[s] != 0;
    }
    return any;
}

static ckpt_compare_layer change_of(const layers *l, const entry *e)
{
    ckpt_compare_layer one = {.layer = e->name,
                              .fate = fate_of(e),
                              .decided = e->decided[0] && e->decided[1],
                              .base = e->decision[0],
                              .fresh = e->decision[1],
                              .base_bytes = e->size[0],
                              .fresh_bytes = e->size[1]};
    for (int s = 0; s < CKPT_SHARE_COUNT && (l->told || l->c->file[0]->trace != NULL); s++) {
        one.by[s] = e->by[s];
    }
    return one;
}

/* All that differ, with room for two more; NULL: a failure. */
static ckpt_compare_layer *take_changes(layers *l, int *count)
{
    int differing = 0;
    for (int i = 0; i < l->count; i++) {
        const ckpt_compare_layer one = change_of(l, &l->at[i]);
        differing += differs(&one);
    }
    ckpt_compare_layer *const change = CKPT_COMPARE_NEW(l->c, ckpt_compare_layer, differing + 2);
    *count = 0;
    for (int i = 0; i < l->count && l->c->code == CKPT_OK; i++) {
        ckpt_compare_layer one = change_of(l, &l->at[i]);
        if (differs(&one)) {
            one.what = words_of(l->c, &one);
            change[(*count)++] = one;
        }
    }
    return change;
}

/* What the plans say, less what their layers add up to: waits for copies and messages, all of an older file. */
static void add_rest(layers *l, ckpt_compare_layer *change, int *count)
{
    const ckpt_plan *const a = l->c->file[0]->plan, *const b = l->c->file[1]->plan;
    if (a == NULL || a->verdict != CKPT_FITS || b->verdict != CKPT_FITS) {
        return;
    }
    const int64_t all[] = {[CKPT_SHARE_PEAK] = b->peak_bytes - a->peak_bytes,
                           [CKPT_SHARE_TIME] = b->time_ns - a->time_ns,
                           [CKPT_SHARE_RECOMPUTED] = b->recompute_ns - a->recompute_ns,
                           [CKPT_SHARE_COPIED] = b->offload_bytes - a->offload_bytes,
                           [CKPT_SHARE_HOST] = b->host_bytes - a->host_bytes};
    const bool waits = a->offload_bytes > 0 || b->offload_bytes > 0 || a->scheme.replicas > 1 ||
                       b->scheme.replicas > 1 || a->scheme.stages > 1 || b->scheme.stages > 1;
    ckpt_compare_layer rest[] = {{.layer = "waits for copies and messages", .what = "", .fate = CKPT_LAYER_REST},
                                 {.layer = "what the files do not tell", .what = "", .fate = CKPT_LAYER_REST}};
    for (int s = 0; s <= CKPT_SHARE_HOST; s++) {
        int64_t told = 0;
        for (int i = 0; i < *count; i++) {
            add(&told, change[i].by[s]);
        }
        if (s != CKPT_SHARE_KEEP_ALL) { /* which ops keep-all leaves out no outline tells */
            rest[s == CKPT_SHARE_TIME && waits && l->told ? 0 : 1].by[s] = ckpt_plus(all[s], -told);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (differs(&rest[i])) {
            change[(*count)++] = rest[i];
        }
    }
}

typedef struct ordered {
    ckpt_compare_group group;
    double weight;
    int first, nth;
} ordered;

static int by_weight(const void *a, const void *b)
{
    const ordered *const x = a, *const y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : x->first - y->first;
}

/* How much of all that changes is a group's: of the time, and of the peak. */
static void weigh(ordered *found, int count)
{
    static const ckpt_share shares[] = {CKPT_SHARE_TIME, CKPT_SHARE_PEAK, CKPT_SHARE_COPIED};
    for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++) {
        double all = 0;
        for (int i = 0; i < count; i++) {
            all += (double)llabs(found[i].group.by[shares[s]]);
        }
        for (int i = 0; i < count && all > 0; i++) {
            found[i].weight += (double)llabs(found[i].group.by[shares[s]]) / all;
        }
    }
}

/* Nothing that a table shows. */
static bool minor(const ckpt_compare_layer *first, const ckpt_compare_group *g)
{
    return first->fate == CKPT_LAYER_SAME && (!first->decided || first->base == first->fresh) &&
           g->by[CKPT_SHARE_TIME] == 0 && g->by[CKPT_SHARE_RECOMPUTED] == 0 && g->by[CKPT_SHARE_PEAK] == 0 &&
           g->by[CKPT_SHARE_COPIED] == 0;
}

static void group_layers(ckpt_comparer *c, ckpt_compare_layer *change, int count)
{
    const char **const name = CKPT_COMPARE_NEW(c, const char *, count),
                       **const key = CKPT_COMPARE_NEW(c, const char *, count);
    ckpt_name_group *const group = CKPT_COMPARE_NEW(c, ckpt_name_group, count);
    int *const group_of = CKPT_COMPARE_NEW(c, int, count), *const rank = CKPT_COMPARE_NEW(c, int, count);
    ordered *const found = CKPT_COMPARE_NEW(c, ordered, count);
    ckpt_compare_group *const made = CKPT_COMPARE_NEW(c, ckpt_compare_group, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        name[i] = change[i].layer;
        key[i] = CKPT_COMPARE_SAY(c, "%d %s", (int)change[i].fate, change[i].what);
    }
    const int groups = c->code == CKPT_OK ? ckpt_name_groups(c, name, key, count, group, group_of) : 0;
    if (c->code != CKPT_OK) {
        return;
    }
    for (int g = 0; g < groups; g++) {
        const ckpt_compare_layer *const one = &change[group[g].first];
        found[g] = (ordered){.group = {.name = group[g].name,
                                       .count = group[g].count,
                                       .of = group[g].of,
                                       .fate = one->fate,
                                       .what = one->what},
                             .first = group[g].first,
                             .nth = g};
    }
    for (int i = 0; i < count; i++) {
        for (int s = 0; s < CKPT_SHARE_COUNT; s++) {
            add(&found[group_of[i]].group.by[s], change[i].by[s]);
        }
    }
    weigh(found, groups);
    qsort(found, (size_t)groups, sizeof *found, by_weight);
    for (int g = 0; g < groups; g++) {
        made[g] = found[g].group;
        made[g].minor = minor(&change[group[found[g].nth].first], &made[g]);
        rank[found[g].nth] = g;
    }
    for (int i = 0; i < count; i++) {
        change[i].group = rank[group_of[i]];
    }
    c->d->layer = change;
    c->d->layer_count = count;
    c->d->layer_group = made;
    c->d->layer_group_count = groups;
}

void ckpt_compare_set_model(ckpt_comparer *c, int base_layers, int fresh_layers, int added, int removed, int resized)
{
    const struct {
        int count;
        const char *word;
    } parts[] = {{added, "added"}, {removed, "removed"}, {resized, "resized"}};
    const char *words = "";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 0) {
            words =
                CKPT_COMPARE_SAY(c, "%s%s%d %s", words, words[0] != '\0' ? ", " : "", parts[i].count, parts[i].word);
        }
    }
    if (words[0] != '\0') {
        ckpt_compare_set(c, "model", CKPT_COMPARE_SAY(c, "%d layers", base_layers),
                         base_layers == fresh_layers ? words
                                                     : CKPT_COMPARE_SAY(c, "%d layers: %s", fresh_layers, words));
    }
}

static void set_model(const layers *l, const ckpt_compare_layer *change, int count)
{
    int of[CKPT_LAYER_REST + 1] = {0}, layer_count[2] = {0, 0};
    for (int i = 0; i < l->count; i++) {
        for (int side = 0; side < 2; side++) {
            layer_count[side] += l->at[i].real && l->at[i].on[side];
        }
    }
    for (int i = 0; i < count; i++) {
        const int at = ckpt_names_find(&l->names[LAYER], change[i].layer);
        of[change[i].fate] += at >= 0 && l->at[at].real;
    }
    ckpt_compare_set_model(l->c, layer_count[0], layer_count[1], of[CKPT_LAYER_ADDED], of[CKPT_LAYER_REMOVED],
                           of[CKPT_LAYER_RESIZED]);
}

/* No more names of layers than this. A live range is named by its layer or the op that wrote it, if it has one. */
static int most_of(const ckpt_compare_file *file, const ckpt_live_ranges *ranges)
{
    int count = file->plan != NULL ? file->plan->layer_count + file->plan->outline.op_count : file->trace->event_count;
    for (int i = 0; i < ranges->count; i++) {
        count += ranges->range[i].layer[0] == '\0' && ranges->range[i].born < 0;
    }
    return count;
}

void ckpt_compare_layers(ckpt_comparer *c, const ckpt_live_ranges ranges[2], const ckpt_static *const statics[2],
                         const int static_count[2])
{
    const ckpt_plan *const a = c->file[0]->plan, *const b = c->file[1]->plan;
    const int most = most_of(c->file[0], &ranges[0]) + most_of(c->file[1], &ranges[1]);
    const int blocks = static_count[0] + static_count[1];
    layers l = {.c = c,
                .strip = a != NULL && a->scheme.micro_batches != b->scheme.micro_batches,
                .outline = a != NULL && a->outline.op_count > 0 && b->outline.op_count > 0,
                .told = ranges[0].count > 0 && ranges[1].count > 0};
    if (!ckpt_compare_ok(c, ckpt_names_init(&l.names[LAYER], most, c->out, c->err)) ||
        !ckpt_compare_ok(c, ckpt_names_init(&l.names[STATIC], blocks, c->out, c->err))) {
        return;
    }
    for (int pass = 0; pass < 2 && c->code == CKPT_OK; pass++) { /* how many names there are; what they are on */
        for (int side = 1; side >= 0; side--) {
            take_names(&l, &ranges[side], side);
            for (int i = 0; i < static_count[side]; i++) {
                (void)entry_of(&l, STATIC, statics[side][i].name, side);
            }
        }
        l.at = pass == 0 ? CKPT_COMPARE_NEW(c, entry, l.count) : l.at;
    }
    for (int side = 0; side < 2 && c->code == CKPT_OK; side++) {
        take_statics(&l, statics[side], static_count[side], side);
        if (l.told) {
            take_peak(&l, &ranges[side], side);
        }
        if (a == NULL) {
            take_events(&l, side);
        } else if (l.told) {
            take_runs(&l, &ranges[side], side);
        }
    }
    if (c->code == CKPT_OK) {
        take_sizes(&l, ranges);
    }
    int count = 0;
    ckpt_compare_layer *const change = c->code == CKPT_OK ? take_changes(&l, &count) : NULL;
    if (c->code != CKPT_OK) {
        return;
    }
    add_rest(&l, change, &count);
    c->d->layers_known = l.told;
    if (a != NULL || (c->file[0]->trace->plan[0] != '\0' && c->file[1]->trace->plan[0] != '\0')) {
        set_model(&l, change, count);
    }
    group_layers(c, change, count);
}
