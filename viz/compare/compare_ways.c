/* Ops that two plans run in different ways: variants of theirs, or not at all where they are optional. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

/* A way in which a plan runs an op, and the next one; -1: none. */
typedef struct way {
    const char *variant; /* NULL: its own */
    bool inexact;
    int next;
} way;

/* What a plan does with one op, all its runs together. */
typedef struct done {
    int first, last; /* ways, in order of their first runs; -1: it is not run */
    bool timed;      /* the times of all of them are known */
    ckpt_ns time_ns;
    ckpt_bytes workspace_bytes; /* the largest */
} done;

typedef struct side {
    const ckpt_plan *plan;
    ckpt_names op; /* of the outline */
    way *way;
    int way_count;
    done *done; /* per op */
} side;

static bool same_variant(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

void ckpt_ways_count(ckpt_comparer *c, int nth, int of, ckpt_number *number)
{
    const ckpt_plan *const plan = c->file[nth]->plan;
    const ckpt_trace *const trace = c->file[nth]->trace;
    for (int i = 0; plan != NULL && i < plan->step_count; i++) {
        number->value += of == CKPT_INEXACT_RUNS ? plan->step[i].inexact : plan->step[i].variant != NULL;
    }
    for (int i = 0; trace != NULL && i < trace->event_count; i++) {
        number->value += of == CKPT_INEXACT_RUNS ? trace->event[i].inexact : trace->event[i].variant != NULL;
    }
    number->has = true;
}

/* -1: the outline does not tell. */
ckpt_ns ckpt_run_time(const ckpt_outline_op *op, const char *variant)
{
    if (variant == NULL) {
        return op->time_ns;
    }
    for (int i = 0; i < op->way_count; i++) {
        if (strcmp(op->way[i].name, variant) == 0) {
            return op->way[i].time_ns;
        }
    }
    return -1;
}

static void add_run(side *s, const ckpt_step *step, ckpt_bytes workspace)
{
    const int op = ckpt_names_find(&s->op, step->name);
    if (op < 0) {
        return;
    }
    done *const d = &s->done[op];
    const ckpt_ns time = ckpt_run_time(&s->plan->outline.op[op], step->variant);
    int known = d->first;
    while (known >= 0 && !same_variant(s->way[known].variant, step->variant)) {
        known = s->way[known].next;
    }
    if (known < 0) {
        s->way[s->way_count] = (way){step->variant, step->inexact, -1};
        *(d->first < 0 ? &d->first : &s->way[d->last].next) = s->way_count;
        d->last = s->way_count++;
    }
    d->timed = d->timed && time >= 0;
    d->time_ns = ckpt_plus(d->time_ns, time >= 0 ? time : 0);
    d->workspace_bytes = workspace > d->workspace_bytes ? workspace : d->workspace_bytes;
}

static bool take_side(ckpt_comparer *c, int nth, side *s)
{
    const ckpt_plan *const plan = c->file[nth]->plan;
    const ckpt_outline *const o = &plan->outline;
    *s = (side){.plan = plan,
                .way = CKPT_COMPARE_NEW(c, way, plan->step_count),
                .done = CKPT_COMPARE_NEW(c, done, o->op_count)};
    ckpt_bytes *const workspace = CKPT_COMPARE_NEW(c, ckpt_bytes, plan->step_count);
    if (c->code != CKPT_OK || !ckpt_compare_ok(c, ckpt_names_init(&s->op, o->op_count, c->out, c->err))) {
        return false;
    }
    for (int i = 0; i < o->op_count; i++) {
        (void)ckpt_names_add(&s->op, o->op[i].name, i);
        s->done[i] = (done){.first = -1, .last = -1, .timed = true};
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const a = &plan->allocation[i];
        if (strcmp(a->name, "workspace") == 0 && a->from >= 0 && a->from < plan->step_count) {
            workspace[a->from] = a->bytes;
        }
    }
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == CKPT_RUN) {
            add_run(s, &plan->step[i], workspace[i]);
        }
    }
    return true;
}

/* Whether two plans run an op in the same ways. */
static bool same_ways(const side *a, int i, const side *b, int k)
{
    int x = a->done[i].first, y = b->done[k].first;
    while (x >= 0 && y >= 0 && same_variant(a->way[x].variant, b->way[y].variant)) {
        x = a->way[x].next;
        y = b->way[y].next;
    }
    return x < 0 && y < 0;
}

/* An op has one inexact way in a plan, if any: its runs have the same bits. */
static const char *inexact_way(const side *s, int op)
{
    const int first = s->done[op].first;
    return first >= 0 && s->way[first].inexact ? s->way[first].variant : NULL;
}

/* "gemm", "winograd (inexact)", "output, bits", "not run". */
static const char *ways_of(ckpt_comparer *c, const side *s, int op)
{
    const char *words = NULL;
    for (int w = s->done[op].first; w >= 0; w = s->way[w].next) {
        const char *const own = s->plan->outline.op[op].variant;
        const char *const name = s->way[w].variant != NULL ? s->way[w].variant : own != NULL ? own : "its own way";
        words = CKPT_COMPARE_SAY(c, "%s%s%s%s", words != NULL ? words : "", words != NULL ? ", " : "",
                                 ckpt_compare_name(c, name), s->way[w].inexact ? " (inexact)" : "");
    }
    return words != NULL ? words : "not run";
}

typedef struct ordered {
    ckpt_way_group group;
    int first;
} ordered;

static int by_change(const void *a, const void *b)
{
    const ordered *const x = a, *const y = b;
    const int64_t times[] = {llabs(x->group.time_ns), llabs(y->group.time_ns)};
    const int64_t bytes[] = {llabs(x->group.workspace_bytes), llabs(y->group.workspace_bytes)};
    return times[0] != times[1]   ? (times[0] < times[1] ? 1 : -1)
           : bytes[0] != bytes[1] ? (bytes[0] < bytes[1] ? 1 : -1)
                                  : x->first - y->first;
}

static void group_ways(ckpt_comparer *c)
{
    const int count = c->d->way_count;
    const char **const name = CKPT_COMPARE_NEW(c, const char *, count),
                       **const key = CKPT_COMPARE_NEW(c, const char *, count);
    ckpt_name_group *const group = CKPT_COMPARE_NEW(c, ckpt_name_group, count);
    int *const group_of = CKPT_COMPARE_NEW(c, int, count);
    ordered *const found = CKPT_COMPARE_NEW(c, ordered, count);
    ckpt_way_group *const made = CKPT_COMPARE_NEW(c, ckpt_way_group, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        name[i] = c->d->way[i].op;
        key[i] = CKPT_COMPARE_SAY(c, "%s → %s", c->d->way[i].base, c->d->way[i].fresh);
    }
    const int groups = c->code == CKPT_OK ? ckpt_name_groups(c, name, key, count, group, group_of) : 0;
    if (c->code != CKPT_OK) {
        return;
    }
    for (int g = 0; g < groups; g++) {
        const ckpt_way_change *const w = &c->d->way[group[g].first];
        found[g] = (ordered){.group = {.name = group[g].name,
                                       .count = group[g].count,
                                       .of = group[g].of,
                                       .base = w->base,
                                       .fresh = w->fresh,
                                       .timed = true},
                             .first = group[g].first};
    }
    for (int i = 0; i < count; i++) {
        const ckpt_way_change *const w = &c->d->way[i];
        ckpt_way_group *const g = &found[group_of[i]].group;
        g->timed = g->timed && w->timed;
        g->time_ns = ckpt_plus(g->time_ns, w->time_ns);
        g->workspace_bytes =
            llabs(w->workspace_bytes) > llabs(g->workspace_bytes) ? w->workspace_bytes : g->workspace_bytes;
    }
    qsort(found, (size_t)groups, sizeof *found, by_change);
    for (int g = 0; g < groups; g++) {
        made[g] = found[g].group;
    }
    c->d->way_group = made;
    c->d->way_group_count = groups;
}

static bool has_variants(const ckpt_plan *plan)
{
    bool any = false;
    for (int i = 0; i < plan->step_count && !any; i++) {
        any = plan->step[i].variant != NULL;
    }
    return any;
}

void ckpt_compare_ways(ckpt_comparer *c)
{
    const ckpt_plan *const base = c->file[0]->plan, *const fresh = c->file[1]->plan;
    side s[2];
    if ((!has_variants(base) && !has_variants(fresh)) || base->step_count == 0 || fresh->step_count == 0 ||
        !take_side(c, 0, &s[0]) || !take_side(c, 1, &s[1])) {
        return;
    }
    ckpt_way_change *const change = CKPT_COMPARE_NEW(c, ckpt_way_change, fresh->outline.op_count);
    int bits = 0;
    for (int i = 0; i < fresh->outline.op_count && c->code == CKPT_OK; i++) {
        const int at = ckpt_names_find(&s[0].op, fresh->outline.op[i].name);
        if (at < 0) {
            continue;
        }
        const done *const was = &s[0].done[at], *const is = &s[1].done[i];
        bits += !same_variant(inexact_way(&s[0], at), inexact_way(&s[1], i));
        if (!same_ways(&s[0], at, &s[1], i)) {
            change[c->d->way_count++] =
                (ckpt_way_change){.op = fresh->outline.op[i].name,
                                  .base = ways_of(c, &s[0], at),
                                  .fresh = ways_of(c, &s[1], i),
                                  .timed = was->timed && is->timed,
                                  .time_ns = is->time_ns - was->time_ns,
                                  .workspace_bytes = is->workspace_bytes - was->workspace_bytes};
        }
    }
    c->d->way = change;
    if (bits > 0) {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c,
                                              "the plans give other bits: %d op%s by an inexact variant in one of them "
                                              "that the other does not use",
                                              bits, bits == 1 ? " is run" : "s are run"));
    }
    group_ways(c);
}
