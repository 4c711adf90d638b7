/* One step of the sweep: what becomes of a label when one more op is decided. */
#include <stdlib.h>
#include <string.h>

#include "planner/hierarchy/hierarchy_impl.h"

enum {
    ALL_SETS = 5, /* moments up to which every set of recomputations is tried */
    PAIRS = 12,   /* up to which all sets of one or two are */
};

static int moment_at(const ckpt_hierarchy *s, ckpt_when when)
{
    return (int)(when >> s->shift);
}

/* The op that runs; op_count and above: none. */
static int op_at(const ckpt_hierarchy *s, ckpt_when when)
{
    return (int)(when & (s->stride - 1));
}

/* `memory` with room for `wanted` elements, NULL when there is none: then `memory` stays as it is. */
static void *with_room(void *memory, int *room, int wanted, size_t size)
{
    if (memory != NULL && wanted <= *room) {
        return memory;
    }
    const int more = wanted < 64 ? 128 : 2 * wanted;
    void *const grown = ckpt_memory_resize(memory, (size_t)more * size);
    *room = grown != NULL ? more : *room;
    return grown;
}

static int compare_demands(const void *a, const void *b)
{
    const ckpt_demand *const x = a, *const y = b;
    if (x->when != y->when) {
        return x->when < y->when ? -1 : 1;
    }
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* What reads the buffers of op v: in first runs, and in the recomputations of this label. */
static bool gather(ckpt_hierarchy *s, int v, const ckpt_label *label)
{
    const ckpt_list *const writes = &s->graph->op[v].writes;
    s->wanted_count = 0;
    for (int i = 0; i < writes->count; i++) {
        const int b = writes->at[i];
        const int readers = s->reader_from[b + 1] - s->reader_from[b];
        ckpt_demand *const wanted =
            with_room(s->wanted, &s->wanted_room, s->wanted_count + readers + label->demand_count, sizeof *s->wanted);
        if (wanted == NULL) {
            return false;
        }
        s->wanted = wanted;
        for (int r = s->reader_from[b]; r < s->reader_from[b + 1]; r++) {
            s->wanted[s->wanted_count++] = (ckpt_demand){b, s->reader[r] * s->stride + s->reader[r]};
        }
        for (int d = 0; d < label->demand_count; d++) {
            if (label->demand[d].buffer == b) {
                s->wanted[s->wanted_count++] = label->demand[d];
            }
        }
    }
    if (s->wanted_count > 1) {
        qsort(s->wanted, (size_t)s->wanted_count, sizeof *s->wanted, compare_demands);
    }
    s->moment_count = 0;
    for (int i = 0; i < s->wanted_count && s->moment_count < CKPT_HIERARCHY_MOMENTS; i++) {
        const int moment = moment_at(s, s->wanted[i].when);
        if (s->moment_count == 0 || s->moment[s->moment_count - 1] != moment) {
            s->moment[s->moment_count++] = moment;
        }
    }
    return true;
}

/* Count `bytes` from the stretch that begins at `start` to `last`, included; `before`: also just before `start`. */
static void occupy(const ckpt_hierarchy *s, ckpt_label *label, ckpt_when start, bool before, ckpt_when last,
                   ckpt_bytes bytes)
{
    for (int i = label->stretch_count - 1; i >= 0 && label->stretch[i].from >= start; i--) {
        ckpt_stretch *const x = &label->stretch[i];
        if (x->from <= last) {
            x->most += bytes;
            x->pass += (before || x->from > start) && op_at(s, x->from) == 0 ? bytes : 0;
        }
    }
}

/* The run at `when` takes the memory of what ends with it. Its stretch is its own. */
static void take_memory(const ckpt_hierarchy *s, ckpt_label *label, int buffer, ckpt_when when)
{
    if (s->taken[op_at(s, when)] != buffer) {
        return;
    }
    int i = label->stretch_count - 1;
    while (label->stretch[i].from > when) {
        i--;
    }
    label->stretch[i].most -= s->graph->buffer[buffer].bytes;
}

/* Where a recomputation of op v in this moment is put: in a stretch of its own before all others of the moment. */
static void insert_run(const ckpt_hierarchy *s, ckpt_label *label, int v, int moment)
{
    const ckpt_when start = moment * s->stride;
    int at = label->stretch_count - 1;
    while (label->stretch[at].from != start) {
        at--;
    }
    memmove(&label->stretch[at + 1], &label->stretch[at], (size_t)(label->stretch_count - at) * sizeof *label->stretch);
    label->stretch_count++;
    label->stretch[at].most = label->stretch[at].pass + s->graph->op[v].workspace_bytes;
    label->stretch[at + 1].from = start + v + 1;
    label->stretch[at + 1].pass = 0;
}

/* A demand on what a recomputation reads. One that is there for the same moment or a first run in it, being later, says
 * it already. */
static void insert_demand(const ckpt_hierarchy *s, ckpt_label *label, int buffer, int moment, int v)
{
    for (int r = s->reader_from[buffer]; r < s->reader_from[buffer + 1]; r++) {
        if (s->reader[r] == moment) {
            return;
        }
    }
    for (int d = 0; d < label->demand_count; d++) {
        if (label->demand[d].buffer == buffer && moment_at(s, label->demand[d].when) == moment) {
            return;
        }
    }
    const ckpt_demand added = {buffer, moment * s->stride + v};
    int at = label->demand_count++;
    for (; at > 0 && compare_demands(&label->demand[at - 1], &added) > 0; at--) {
        label->demand[at] = label->demand[at - 1];
    }
    label->demand[at] = added;
}

/* True when a later decision can tell what is before `when` from what is behind it. */
static bool tells(const ckpt_hierarchy *s, const ckpt_label *label, int v, ckpt_when when)
{
    const int moment = moment_at(s, when);
    const bool starts = op_at(s, when) == 0;
    if (op_at(s, when) == moment && s->split[moment] < v) {
        return true;
    }
    if (starts && (s->needed[moment] < v || (moment > 0 && s->needed[moment - 1] < v))) {
        return true;
    }
    for (int d = 0; d < label->demand_count; d++) {
        const ckpt_when at = label->demand[d].when;
        if (at + 1 == when || (starts && moment_at(s, at) == moment)) {
            return true;
        }
        if (at >= when && moment_at(s, at) == moment && s->taken[op_at(s, at)] == label->demand[d].buffer) {
            return true; /* its run must stay alone */
        }
    }
    return false;
}

/* Join stretches between which nothing can end or begin any more. */
static void join(const ckpt_hierarchy *s, ckpt_label *label, int v)
{
    int kept = 0;
    for (int i = 1; i < label->stretch_count; i++) {
        if (tells(s, label, v, label->stretch[i].from)) {
            label->stretch[++kept] = label->stretch[i];
        } else if (label->stretch[i].most > label->stretch[kept].most) {
            label->stretch[kept].most = label->stretch[i].most;
        }
    }
    label->stretch_count = label->stretch_count > 0 ? kept + 1 : 0;
}

/* True when a demand adds its buffer to the rank: once per buffer. */
static bool counts(const ckpt_hierarchy *s, const ckpt_label *label, int d)
{
    const int b = label->demand[d].buffer;
    const int end = s->reader_from[b + 1];
    if (!s->goal->whole && end > s->reader_from[b] && s->reader[end - 1] * s->stride > label->demand[d].when) {
        return false;
    }
    for (int e = 0; e < d; e++) {
        if (label->demand[e].buffer == b) {
            return false;
        }
    }
    return true;
}

static void sum_up(const ckpt_hierarchy *s, ckpt_label *label)
{
    label->peak = 0;
    for (int i = 0; i < label->stretch_count; i++) {
        label->peak = label->stretch[i].most > label->peak ? label->stretch[i].most : label->peak;
    }
    uint64_t key = 88172645463325252U;
    ckpt_bytes open = 0;
    for (int d = 0; d < label->demand_count; d++) {
        key = (key ^ (uint64_t)label->demand[d].buffer) * 0x9E3779B97F4A7C15U;
        key = (key ^ (key >> 29) ^ (uint64_t)label->demand[d].when) * 0xBF58476D1CE4E5B9U;
        open += counts(s, label, d) ? s->graph->buffer[label->demand[d].buffer].bytes : 0;
    }
    label->key = key ^ (key >> 32);
    label->rank = label->peak + open;
}

/* Runs of op v: its first one, and one before each moment whose bit is in `runs`. Every buffer is kept from each run to
 * its last demand before the next run. */
static void apply_runs(const ckpt_hierarchy *s, ckpt_label *label, int v, uint64_t runs)
{
    const ckpt_graph_op *const op = &s->graph->op[v];
    for (int m = 0; m < s->moment_count; m++) {
        if ((runs >> m & 1) != 0) {
            insert_run(s, label, v, s->moment[m]);
        }
    }
    int moment = v; /* of the run before the one under way */
    for (int m = 0; m <= s->moment_count; m++) {
        if (m < s->moment_count && (runs >> m & 1) == 0) {
            continue;
        }
        const ckpt_when run = moment * s->stride + v;
        const ckpt_when start = moment > v || s->split[v] >= v ? moment * s->stride : run; /* of its stretch */
        const ckpt_when end = m < s->moment_count ? s->moment[m] * s->stride : INT64_MAX;
        for (int i = 0; i < op->writes.count; i++) {
            ckpt_when last = run;
            for (int d = 0; d < s->wanted_count && s->wanted[d].when < end; d++) {
                const bool mine = s->wanted[d].buffer == op->writes.at[i] && s->wanted[d].when > run;
                last = mine ? s->wanted[d].when : last;
            }
            occupy(s, label, start, false, last, s->graph->buffer[op->writes.at[i]].bytes);
            if (last > run) {
                take_memory(s, label, op->writes.at[i], last);
            }
        }
        moment = m < s->moment_count ? s->moment[m] : moment;
    }
}

/* A fixed op: what it writes is in `base` up to its last first-run reader; demands behind that prolong it. */
static void prolong(const ckpt_hierarchy *s, ckpt_label *label, int v)
{
    const ckpt_list *const writes = &s->graph->op[v].writes;
    for (int i = 0; i < writes->count; i++) {
        const int b = writes->at[i];
        const int readers = s->reader_from[b + 1] - s->reader_from[b];
        const int planned = readers > 0 ? s->reader[s->reader_from[b + 1] - 1] : v;
        ckpt_when last = 0;
        for (int d = 0; d < s->wanted_count; d++) {
            last = s->wanted[d].buffer == b ? s->wanted[d].when : last;
        }
        if (last >= (planned + 1) * s->stride) {
            occupy(s, label, (planned + 1) * s->stride, true, last, s->graph->buffer[b].bytes);
        }
    }
}

/* Append the stretches of moment j before any recomputation in it: two when ops up to `undecided` may have their place
 * taken. */
static int add_moment(const ckpt_hierarchy *s, ckpt_stretch *stretch, int count, int j, int undecided)
{
    stretch[count++] = (ckpt_stretch){j * s->stride, s->base[j], s->base_pass[j]};
    if (s->split[j] <= undecided) {
        stretch[count - 1].most = 0;
        stretch[count++] = (ckpt_stretch){j * s->stride + j, s->base[j], 0};
    }
    return count;
}

/* A child of `old` in `next`: the same decisions, and `runs` for op v. */
static ckpt_code make_child(ckpt_hierarchy *s, const ckpt_label *old, int v, uint64_t runs, ckpt_err *err)
{
    const ckpt_graph_op *const op = &s->graph->op[v];
    const ckpt_mark mark = ckpt_arena_mark(&s->next.arena);
    int recomputed = 0;
    for (uint64_t w = runs; w != 0; w &= w - 1) {
        recomputed++;
    }
    ckpt_label child = {
        .time = old->time, .rest = old->rest, .recomputed_count = recomputed, .parent = (int)(old - s->now.at)};
    for (int i = 0; i < recomputed; i++) {
        if (!ckpt_sum(child.time, op->time_ns, &child.time)) {
            return CKPT_OK; /* more than 63 bits hold: no label */
        }
    }
    ckpt_label *const at = with_room(s->next.at, &s->next.room, s->next.count + 1, sizeof *s->next.at);
    s->next.at = at != NULL ? at : s->next.at;
    child.demand = CKPT_NEW(&s->next.arena, ckpt_demand, old->demand_count + recomputed * op->reads.count);
    child.stretch = CKPT_NEW(&s->next.arena, ckpt_stretch, old->stretch_count + s->added_count + recomputed + 2);
    int *const moments = CKPT_NEW(&s->next.arena, int, recomputed);
    if (at == NULL || child.demand == NULL || child.stretch == NULL || moments == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a label of %d demands", old->demand_count);
    }
    for (int d = 0; d < old->demand_count; d++) {
        if (s->graph->writer[old->demand[d].buffer] != v) {
            child.demand[child.demand_count++] = old->demand[d];
        }
    }
    if (s->covered >= v) {
        child.stretch_count = add_moment(s, child.stretch, 0, v, v - 1);
    }
    for (int i = 0; i < old->stretch_count; i++) {
        child.stretch[child.stretch_count++] = old->stretch[i];
    }
    for (int i = 0; i < s->added_count; i++) {
        child.stretch[child.stretch_count++] = s->added[i];
    }
    int chosen = 0;
    for (int m = 0; m < s->moment_count; m++) {
        if ((runs >> m & 1) != 0) {
            moments[chosen++] = s->moment[m];
            for (int i = 0; i < op->reads.count; i++) {
                insert_demand(s, &child, op->reads.at[i], s->moment[m], v);
            }
        }
    }
    child.recomputed = moments;
    if (s->fixed[v]) {
        prolong(s, &child, v);
    } else {
        apply_runs(s, &child, v, runs);
    }
    join(s, &child, v);
    sum_up(s, &child);
    s->work += 20 + 2 * child.stretch_count;
    if (child.peak <= s->goal->limit) {
        child.serial = s->next.count;
        s->next.at[s->next.count++] = child;
    } else {
        ckpt_arena_rewind(&s->next.arena, mark);
    }
    return CKPT_OK;
}

/* Moments before which a recomputation of op v would not fit already: it needs what is live there and what it
 * writes. */
static uint64_t find_full(const ckpt_hierarchy *s, const ckpt_label *old, int v)
{
    const ckpt_graph_op *const op = &s->graph->op[v];
    ckpt_bytes own = op->workspace_bytes;
    for (int i = 0; i < op->writes.count; i++) {
        own += s->graph->buffer[op->writes.at[i]].bytes;
    }
    own -= s->taken[v] >= 0 || op->inplace_count > 1 ? own : 0;
    uint64_t full = 0;
    int at = 0;
    for (int m = 0; m < s->moment_count; m++) {
        const ckpt_when start = s->moment[m] * s->stride;
        while (at < old->stretch_count && old->stretch[at].from < start) {
            at++;
        }
        const bool found = at < old->stretch_count && old->stretch[at].from == start;
        full |= found && old->stretch[at].pass > s->goal->limit - own ? (uint64_t)1 << m : 0;
    }
    return full;
}

/* Sets of moments before which op v is recomputed. Before the very next op it never does. */
static ckpt_code make_children(ckpt_hierarchy *s, const ckpt_label *old, int v, ckpt_err *err)
{
    const int n = s->fixed[v] ? 0 : s->moment_count;
    const uint64_t next = n > 0 && s->moment[0] == v + 1 ? 1 : 0;
    const uint64_t barred = n > 0 ? next | find_full(s, old, v) : 0;
    CKPT_TRY(make_child(s, old, v, 0, err));
    if (n <= ALL_SETS) {
        for (uint64_t runs = 1; runs < (uint64_t)1 << n; runs++) {
            if ((runs & barred) == 0) {
                CKPT_TRY(make_child(s, old, v, runs, err));
            }
        }
        return CKPT_OK;
    }
    for (int a = 0; a < n; a++) {
        const uint64_t one = (uint64_t)1 << a;
        if ((one & barred) == 0) {
            CKPT_TRY(make_child(s, old, v, one, err));
        }
        for (int b = a + 1; b < n && n <= PAIRS && (one & barred) == 0; b++) {
            if (((uint64_t)1 << b & barred) == 0) {
                CKPT_TRY(make_child(s, old, v, one | (uint64_t)1 << b, err));
            }
        }
    }
    return CKPT_OK;
}

/* Let the stretches reach to the last first-run reader of op v. */
static void cover(ckpt_hierarchy *s, int v)
{
    const ckpt_list *const writes = &s->graph->op[v].writes;
    int last = s->covered;
    for (int i = 0; i < writes->count && !s->fixed[v]; i++) {
        const int b = writes->at[i];
        for (int r = s->reader_from[b]; r < s->reader_from[b + 1]; r++) {
            last = s->reader[r] > last ? s->reader[r] : last;
        }
        last = last < v ? v : last;
    }
    const int first = s->covered < 0 ? v + 1 : s->covered + 1;
    s->added_count = 0;
    for (int j = first; j <= last; j++) {
        const bool told = s->added_count == 0 || s->needed[j] <= v || s->needed[j - 1] <= v;
        if (told) {
            s->added_count = add_moment(s, s->added, s->added_count, j, v);
        } else if (s->base[j] > s->added[s->added_count - 1].most) {
            s->added[s->added_count - 1].most = s->base[j];
        }
    }
    s->covered = last;
}

ckpt_code ckpt_hierarchy_decide(ckpt_hierarchy *s, int v, ckpt_err *err)
{
    cover(s, v);
    s->next.count = 0;
    for (int i = 0; i < s->now.count; i++) {
        if (!gather(s, v, &s->now.at[i])) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "demands on op '%s'", s->graph->op[v].name);
        }
        CKPT_TRY(make_children(s, &s->now.at[i], v, err));
    }
    return CKPT_OK;
}
