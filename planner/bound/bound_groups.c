/* Cutting the forward section into groups and the moments behind it into windows. */
#include <string.h>

#include "planner/bound/bound_impl.h"
#include "planner/replay/clock.h"

enum {
    SPAN_MAX = 96, /* ops in a group */
    SMALL = 32,    /* a buffer this many times smaller than what its op reads or writes beside it is always there */
};

static ckpt_bytes largest(const ckpt_grouping *b, const ckpt_list *list)
{
    ckpt_bytes most = 0;
    for (int i = 0; i < list->count; i++) {
        const ckpt_bytes bytes = b->uses.graph->buffer[list->at[i]].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Number the buffers that each forward op brings: what is small beside the others would cost a factor two in every
 * table and say little; left out, it counts as always there, taking nothing. */
static void count_buffers(ckpt_grouping *b)
{
    for (int o = 0; o < b->forward_end; o++) {
        const ckpt_graph_op *const op = &b->uses.graph->op[o];
        const ckpt_bytes reads = largest(b, &op->reads), writes = largest(b, &op->writes);
        const ckpt_bytes most = reads > writes ? reads : writes;
        for (int i = 0; op->recompute && i < op->writes.count && b->count[o] < b->buffers_max; i++) {
            const ckpt_bytes bytes = b->uses.graph->buffer[op->writes.at[i]].bytes;
            if (bytes > 0 && bytes >= most / SMALL) {
                b->bit[op->writes.at[i]] = b->count[o]++;
            }
        }
    }
}

/* Per place before a forward op: bytes written before it that a forward op behind it reads. */
static ckpt_code find_crossings(const ckpt_grouping *b, ckpt_bytes *crossing, ckpt_err *err)
{
    const ckpt_graph *const g = b->uses.graph;
    int *const end = CKPT_NEW(b->out, int, g->buffer_count);
    if (end == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "crossings of %d buffers", g->buffer_count);
    }
    for (int o = 0; o < b->forward_end; o++) {
        for (int i = 0; i < g->op[o].reads.count; i++) {
            end[g->op[o].reads.at[i]] = o;
        }
    }
    for (int i = 0; i < g->buffer_count; i++) {
        if (end[i] > g->writer[i]) {
            crossing[g->writer[i] + 1] += g->buffer[i].bytes;
            crossing[end[i] + 1] -= g->buffer[i].bytes;
        }
    }
    for (int p = 1; p <= b->forward_end; p++) {
        crossing[p] += crossing[p - 1];
    }
    return CKPT_OK;
}

/* Cuts such that little crosses them in sum; a group has at most buffers_max buffers and SPAN_MAX ops. */
static ckpt_code cut(const ckpt_grouping *b, int *groups, ckpt_err *err)
{
    const int n = b->forward_end;
    ckpt_bytes *const crossing = CKPT_NEW(b->out, ckpt_bytes, n + 2), *const least =
                                                                          CKPT_NEW(b->out, ckpt_bytes, n + 1);
    int *const from = CKPT_NEW(b->out, int, n + 1);
    if (crossing == NULL || least == NULL || from == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "groups of %d ops", n);
    }
    CKPT_TRY(find_crossings(b, crossing, err));
    for (int p = 1; p <= n; p++) {
        least[p] = INT64_MAX;
        int buffers = 0;
        for (int q = p - 1; q >= 0 && p - q <= SPAN_MAX; q--) {
            buffers += b->count[q];
            if (buffers > b->buffers_max) {
                break;
            }
            /* every cut costs a little, so that groups grow where nothing crosses */
            ckpt_bytes sum = 0;
            if (ckpt_sum(least[q], crossing[p] + 1, &sum) && sum < least[p]) {
                least[p] = sum;
                from[p] = q;
            }
        }
    }
    *groups = 0;
    for (int p = n; p > 0; p = from[p]) {
        ++*groups;
    }
    for (int p = n, k = *groups - 1; p > 0; p = from[p], k--) {
        for (int o = from[p]; o < p; o++) {
            b->group[o] = k;
        }
    }
    return CKPT_OK;
}

static unsigned members(const ckpt_grouping *b, const ckpt_list *list, int group)
{
    unsigned set = 0;
    for (int i = 0; i < list->count; i++) {
        const int buffer = list->at[i];
        const bool is = b->bit[buffer] >= 0 && b->group[b->uses.graph->writer[buffer]] == group;
        set |= is ? 1U << b->bit[buffer] : 0;
    }
    return set;
}

ckpt_ns ckpt_bound_weigh(ckpt_ns time, int weight)
{
    return time / CKPT_WEIGHTS * weight + time % CKPT_WEIGHTS * weight / CKPT_WEIGHTS;
}

static ckpt_ns fetch_time(const ckpt_grouping *b, int buffer)
{
    ckpt_ns time = 0;
    const ckpt_weight w = b->weight;
    const int64_t rate = w.offload > 0 ? b->uses.graph->d2h_bytes_per_s : b->uses.graph->h2d_bytes_per_s;
    const bool fits = ckpt_copy_time(b->uses.graph->buffer[buffer].bytes, rate, &time);
    return fits && time < CKPT_BOUND_LONG ? ckpt_bound_weigh(time, w.offload + w.fetch) : CKPT_BOUND_LONG;
}

ckpt_ns ckpt_bound_recompute(const ckpt_grouping *b, int buffer)
{
    const ckpt_ns run =
        ckpt_bound_weigh(b->uses.graph->op[b->uses.graph->writer[buffer]].time_ns, CKPT_WEIGHTS - b->weight.fetch);
    const ckpt_ns fetch = b->uses.graph->has_link ? fetch_time(b, buffer) : run;
    return run < fetch ? run : fetch;
}

static void fill_buffers(const ckpt_grouping *b, const ckpt_groups *groups)
{
    for (int o = 0; o < b->forward_end; o++) {
        ckpt_group *const group = &groups->group[b->group[o]];
        const ckpt_list *const writes = &b->uses.graph->op[o].writes;
        for (int i = 0; i < writes->count; i++) {
            if (b->bit[writes->at[i]] >= 0) {
                b->bit[writes->at[i]] = group->buffer_count;
                group->fetches = b->uses.graph->has_link;
                group->fetch[group->buffer_count] = group->fetches ? fetch_time(b, writes->at[i]) : 0;
                group->bytes[group->buffer_count++] = b->uses.graph->buffer[writes->at[i]].bytes;
            }
        }
    }
}

static unsigned imported(const ckpt_group *group, const ckpt_list *reads)
{
    unsigned set = 0;
    for (int i = 0; i < reads->count; i++) {
        for (int j = 0; j < group->import_count; j++) {
            set |= group->import[j].bit == reads->at[i] ? 1U << (group->buffer_count + j) : 0;
        }
    }
    return set;
}

static ckpt_code fill_ops(const ckpt_grouping *b, const ckpt_groups *groups, ckpt_err *err)
{
    int first = 0;
    for (int k = 0; k < groups->count; k++) {
        ckpt_group *const group = &groups->group[k];
        int end = first;
        while (end < b->forward_end && b->group[end] == k) {
            end++;
        }
        group->op = CKPT_NEW(b->out, ckpt_group_op, end - first);
        if (group->op == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "a group of %d ops", end - first);
        }
        for (; first < end; first++) {
            const ckpt_graph_op *const op = &b->uses.graph->op[first];
            if (b->count[first] > 0) {
                const int offload =
                    k == groups->count - 1 ? b->weight.offload : 0; /* its runs may come before the instant */
                group->op[group->op_count++] =
                    (ckpt_group_op){members(b, &op->reads, k) | imported(group, &op->reads), members(b, &op->writes, k),
                                    ckpt_bound_weigh(op->time_ns, CKPT_WEIGHTS - b->weight.fetch - offload),
                                    op->workspace_bytes - ckpt_uses_inplace(&b->uses, first)};
            }
        }
        group->later = members(b, &b->uses.graph->outputs, k);
    }
    return CKPT_OK;
}

/* What the first run of op o needs beside the members of group k that it reads and what is fixed. Other groups that it
 * reads have had their windows, so no later window counts them as held. */
static ckpt_bytes beside(const ckpt_grouping *b, int o, int k)
{
    const ckpt_graph *const g = b->uses.graph;
    ckpt_bytes bytes = ckpt_uses_beside(&b->uses, o);
    for (int i = 0; i < g->op[o].reads.count; i++) {
        const int buffer = g->op[o].reads.at[i];
        const bool counted = b->bit[buffer] >= 0 && b->group[g->writer[buffer]] == k;
        bytes -= counted && !ckpt_uses_fixed(&b->uses, buffer) ? g->buffer[buffer].bytes : 0;
    }
    return bytes;
}

/* The last group that still has its window open when the first runs from o on are to come. */
static int window_of(const ckpt_grouping *b, int o, int open)
{
    const ckpt_list *const reads = &b->uses.graph->op[o].reads;
    for (int i = 0; i < reads->count; i++) {
        const int writer = b->uses.graph->writer[reads->at[i]];
        if (b->bit[reads->at[i]] >= 0 && b->group[writer] < open) {
            open = b->group[writer];
        }
    }
    return open;
}

/* A moment that reads nothing of the group and has none behind it that does, joined with the one before: less is asked,
 * which keeps the bound a bound. */
static void join(ckpt_group_moment *into, const ckpt_group_moment *m)
{
    into->during = m->during > into->during ? m->during : into->during;
    into->between = m->between < into->between ? m->between : into->between;
}

static void end_window(ckpt_group *group)
{
    int end = group->moment_count;
    while (end > 0 && group->moment[end - 1].reads == 0) {
        end--;
    }
    for (int i = end + 1; i < group->moment_count; i++) {
        join(&group->moment[end], &group->moment[i]);
    }
    group->moment_count = end < group->moment_count ? end + 1 : end;
}

static ckpt_code fill_moments(const ckpt_grouping *b, ckpt_groups *groups, ckpt_err *err)
{
    const ckpt_graph *const g = b->uses.graph;
    const int moments = g->op_count - b->start;
    ckpt_group_moment *const all = CKPT_NEW(b->out, ckpt_group_moment, moments);
    ckpt_bytes *const change = CKPT_NEW(b->out, ckpt_bytes, g->op_count + 2);
    if (all == NULL || change == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d moments", moments);
    }
    ckpt_uses_changes(&b->uses, change);
    ckpt_bytes fixed = 0;
    int open = groups->count - 1;
    for (int o = 0; o < g->op_count; o++) {
        fixed += change[o];
        if (o < b->start) {
            continue;
        }
        const int k = window_of(b, o, open);
        for (; open > k; open--) {
            end_window(&groups->group[open]);
        }
        ckpt_group *const group = &groups->group[k];
        ckpt_group_moment *const m = &all[o - b->start];
        group->moment = group->moment_count == 0 ? m : group->moment;
        group->moment_count++;
        *m = (ckpt_group_moment){members(b, &g->op[o].reads, k), fixed + beside(b, o, k), fixed};
        for (int i = 0; i < g->op[o].writes.count; i++) {
            m->between -= ckpt_uses_fixed(&b->uses, g->op[o].writes.at[i]) ? g->buffer[g->op[o].writes.at[i]].bytes : 0;
        }
        for (int i = 0; i < g->op[o].reads.count; i++) {
            const int buffer = g->op[o].reads.at[i], writer = g->writer[buffer];
            if (b->bit[buffer] >= 0 && b->group[writer] > k) {
                groups->group[b->group[writer]].later |= 1U << b->bit[buffer];
            }
        }
    }
    for (; open >= 0; open--) {
        end_window(&groups->group[open]);
    }
    return CKPT_OK;
}

/* For bounds of offloads: the instant is the start of the moment of the last group, whose window is the first, that
 * needs most. Windows behind it have no limits, and what they read is read later; the last
 * group's copies cost nothing. */
static void choose_instant(const ckpt_grouping *b, ckpt_groups *groups)
{
    ckpt_group *const last = &groups->group[groups->count - 1];
    ckpt_bytes most = -1;
    for (int i = 0; i < last->moment_count; i++) {
        const ckpt_group_moment *const m = &last->moment[i];
        ckpt_bytes bytes = m->during;
        for (int k = 0; k < last->buffer_count; k++) {
            bytes += (m->reads >> k & 1) != 0 ? last->bytes[k] : 0;
        }
        if (m->reads != 0 && bytes > most) {
            most = bytes;
            groups->instant = b->forward_end + i;
        }
    }
    const int at = groups->instant - b->forward_end;
    for (int k = 0; k < groups->count; k++) {
        ckpt_group *const group = &groups->group[k];
        for (int i = group == last ? at + 1 : 0; i < group->moment_count; i++) {
            group->later |= group->moment[i].reads;
        }
        group->moment_count = 0;
    }
    memset(last->fetch, 0, sizeof last->fetch);
    if (most >= 0) {
        last->moment += at;
        last->moment[0].between = 0;
        last->moment_count = 1;
    }
}

static bool equal(const ckpt_group *a, const ckpt_group *b)
{
    if (a->buffer_count != b->buffer_count || a->op_count != b->op_count || a->moment_count != b->moment_count ||
        a->later != b->later || a->import_count != b->import_count || a->export_count != b->export_count) {
        return false;
    }
    for (int i = 0; i < a->export_count; i++) {
        if (a->export[i].bit != b->export[i].bit || a->export[i].time != b->export[i].time) {
            return false;
        }
    }
    for (int i = 0; i < a->buffer_count + a->import_count; i++) {
        if (a->bytes[i] != b->bytes[i]) {
            return false;
        }
    }
    for (int i = 0; i < a->op_count; i++) {
        const ckpt_group_op *const x = &a->op[i], *const y = &b->op[i];
        if (x->reads != y->reads || x->writes != y->writes || x->time != y->time || x->extra != y->extra) {
            return false;
        }
    }
    for (int i = 0; i < a->moment_count; i++) {
        const ckpt_group_moment *const x = &a->moment[i], *const y = &b->moment[i];
        if (x->reads != y->reads || x->during != y->during || x->between != y->between) {
            return false;
        }
    }
    return true;
}

/* Equal layers make equal groups: among the few before it, as repeated blocks make them. */
static void find_same(const ckpt_groups *groups)
{
    enum { BACK = 64 };
    for (int k = 0; k < groups->count; k++) {
        ckpt_group *const group = &groups->group[k];
        group->same = group;
        for (int i = k - 1; i >= 0 && i >= k - BACK && group->same == group; i--) {
            group->same = equal(group, &groups->group[i]) ? groups->group[i].same : group;
        }
    }
}

ckpt_code ckpt_groups_build(const ckpt_graph *graph, int forward_end, int start, int buffers_max, int open_max,
                            ckpt_weight weight, ckpt_arena *out, ckpt_groups *groups, ckpt_err *err)
{
    ckpt_grouping b = {.forward_end = forward_end,
                       .start = start,
                       .buffers_max = buffers_max,
                       .open_max = open_max,
                       .weight = weight,
                       .out = out};
    CKPT_TRY(ckpt_uses_find(graph, out, &b.uses, err));
    b.bit = CKPT_NEW(out, int, graph->buffer_count);
    b.group = CKPT_NEW(out, int, forward_end);
    b.count = CKPT_NEW(out, int, forward_end);
    if (b.bit == NULL || b.group == NULL || b.count == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a bound over %d ops", graph->op_count);
    }
    memset(b.bit, -1, (size_t)graph->buffer_count * sizeof *b.bit);
    count_buffers(&b);
    *groups = (ckpt_groups){0};
    CKPT_TRY(cut(&b, &groups->count, err));
    groups->group = CKPT_NEW(out, ckpt_group, groups->count);
    if (groups->group == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d groups", groups->count);
    }
    groups->instant = forward_end;
    fill_buffers(&b, groups);
    CKPT_TRY(ckpt_groups_cross(&b, groups, err));
    CKPT_TRY(fill_ops(&b, groups, err));
    CKPT_TRY(fill_moments(&b, groups, err));
    if (weight.offload > 0) {
        choose_instant(&b, groups);
    }
    find_same(groups);
    return CKPT_OK;
}
