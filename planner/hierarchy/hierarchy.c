/* The sweep: what is common to all labels, the loop over ops, and the sequences that labels stand for. */
#include <stdlib.h>
#include <string.h>

#include "planner/hierarchy/hierarchy_impl.h"
#include "planner/schedule/readers.h"

enum { FEW = 10 }; /* labels that a sweep behind its pace goes on with */

static ckpt_code take_memory(ckpt_hierarchy *s, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = s->graph;
    s->fixed = CKPT_NEW(scratch, bool, graph->op_count);
    s->needed = CKPT_NEW(scratch, int, graph->op_count + 1);
    s->base = CKPT_NEW(scratch, ckpt_bytes, graph->op_count + 2);
    s->base_pass = CKPT_NEW(scratch, ckpt_bytes, graph->op_count + 2);
    s->moment = CKPT_NEW(scratch, int, CKPT_HIERARCHY_MOMENTS);
    s->added = CKPT_NEW(scratch, ckpt_stretch, 2 * ((size_t)graph->op_count + 2));
    s->taken = CKPT_NEW(scratch, int, graph->op_count + 1);
    s->split = CKPT_NEW(scratch, int, graph->op_count + 1);
    if (s->fixed == NULL || s->needed == NULL || s->base == NULL || s->base_pass == NULL || s->moment == NULL ||
        s->added == NULL || s->taken == NULL || s->split == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a sweep of %d ops", graph->op_count);
    }
    return ckpt_readers_find(graph, scratch, &s->reader_from, &s->reader, err);
}

/* Places that ops may take. Of several pairs in one op nothing is believed: all would have to end together. */
static void find_taken(ckpt_hierarchy *s, const bool *reread)
{
    const ckpt_graph *const graph = s->graph;
    for (int o = 0; o <= graph->op_count; o++) {
        s->taken[o] = -1;
        s->split[o] = graph->op_count;
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        bool added = false;
        for (int i = 0; i < op->adds.count && op->inplace_count == 1; i++) {
            added = added || op->adds.at[i] == op->inplace[0].in;
        }
        if (op->inplace_count != 1 || added) {
            continue;
        }
        const int b = op->inplace[0].in;
        const int writer = graph->writer[b];
        if (!s->fixed[writer]) {
            s->taken[o] = b;
            s->split[o] = writer;
        } else if (!reread[b] && s->reader[s->reader_from[b + 1] - 1] == o) {
            s->base[o] -= graph->buffer[b].bytes;
        }
    }
}

/* Which ops are never recomputed, what they hold, and which moments have to be told apart for whom. */
static ckpt_code find_base(ckpt_hierarchy *s, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = s->graph;
    const int n = graph->op_count;
    bool *const reread = CKPT_NEW(scratch, bool, graph->buffer_count); /* by an op that may be recomputed */
    if (reread == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a sweep of %d ops", n);
    }
    for (int o = 0; o < n; o++) {
        s->fixed[o] = s->fixed[o] || !graph->op[o].recompute;
        for (int i = 0; i < graph->op[o].adds.count; i++) {
            s->fixed[graph->writer[graph->op[o].adds.at[i]]] = true;
        }
    }
    int *const added = CKPT_NEW(scratch, int, graph->buffer_count); /* last op that adds to it, +1 */
    if (added == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a sweep of %d ops", n);
    }
    for (int o = 0; o < n; o++) {
        for (int i = 0; i < graph->op[o].adds.count; i++) {
            added[graph->op[o].adds.at[i]] = o + 1;
        }
    }
    for (int o = 0; o < n; o++) {
        const ckpt_list *const reads = &graph->op[o].reads;
        for (int i = 0; i < reads->count; i++) { /* what it read would no longer be the same */
            s->fixed[o] = s->fixed[o] || added[reads->at[i]] > o;
        }
        for (int i = 0; i < reads->count && !s->fixed[o]; i++) {
            reread[reads->at[i]] = true;
        }
    }
    for (int j = 0; j <= n; j++) {
        s->needed[j] = n;
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const int from = graph->writer[b];
        const int readers = s->reader_from[b + 1] - s->reader_from[b];
        const int to = readers > 0 ? s->reader[s->reader_from[b + 1] - 1] : from;
        const ckpt_bytes bytes = graph->buffer[b].bytes;
        for (int r = s->reader_from[b]; r < s->reader_from[b + 1] && (!s->fixed[from] || reread[b]); r++) {
            s->needed[s->reader[r]] = from < s->needed[s->reader[r]] ? from : s->needed[s->reader[r]];
        }
        if (s->fixed[from]) { /* what comes and goes at each moment; added up below */
            s->base[from] += bytes;
            s->base[to + 1] -= bytes;
            s->base_pass[from + 1] += bytes;
            s->base_pass[to + 1] -= bytes;
        }
    }
    for (int j = 1; j <= n; j++) {
        s->base[j] += s->base[j - 1];
        s->base_pass[j] += s->base_pass[j - 1];
    }
    for (int j = 0; j < n; j++) {
        s->base[j] += graph->op[j].workspace_bytes;
    }
    find_taken(s, reread);
    return CKPT_OK;
}

/* What became of the labels after op v. */
static ckpt_code remember(ckpt_hierarchy *s, int v, ckpt_err *err)
{
    ckpt_past *const past = CKPT_NEW(&s->choices, ckpt_past, s->next.count);
    if (past == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d labels", s->next.count);
    }
    for (int i = 0; i < s->next.count; i++) {
        const ckpt_label *const x = &s->next.at[i];
        past[i] = (ckpt_past){x->parent, x->rank, x->time};
    }
    s->past[v] = past;
    return CKPT_OK;
}

static int compare_prospects(const void *a, const void *b)
{
    const ckpt_prospect *const x = a, *const y = b;
    if (x->need != y->need) {
        return x->need < y->need ? -1 : 1;
    }
    return (x->time > y->time) - (x->time < y->time);
}

/* The outlook from every op: what the labels that are left at the end added to what they were there. */
static ckpt_code find_outlooks(const ckpt_hierarchy *s, const ckpt_hierarchy_goal *goal, ckpt_arena *scratch,
                               ckpt_err *err)
{
    const int count = s->now.count;
    ckpt_prospect *const all = CKPT_NEW(scratch, ckpt_prospect, count);
    int *const at = CKPT_NEW(scratch, int, count);
    if (all == NULL || at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d labels", count);
    }
    for (int i = 0; i < count; i++) {
        at[i] = i;
    }
    for (int v = 0; v < s->graph->op_count; v++) {
        for (int i = 0; i < count; i++) {
            const ckpt_past *const past = &s->past[v][at[i]];
            all[i] = (ckpt_prospect){s->now.at[i].peak - past->rank, s->now.at[i].time - past->time};
            at[i] = past->parent;
        }
        qsort(all, (size_t)count, sizeof *all, compare_prospects);
        int kept = 0;
        for (int i = 0; i < count; i++) {
            if (kept == 0 || all[i].time < all[kept - 1].time) {
                all[kept++] = all[i];
            }
        }
        ckpt_prospect *const list = CKPT_NEW(goal->keep, ckpt_prospect, kept);
        if (list == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d labels", count);
        }
        if (kept > 0) {
            memcpy(list, all, (size_t)kept * sizeof *list);
        }
        goal->seen[v] = (ckpt_outlook){list, kept};
    }
    return CKPT_OK;
}

/* Survivors hand their choices on; the rest goes. */
static ckpt_code settle(ckpt_hierarchy *s, int v, ckpt_err *err)
{
    for (int i = 0; i < s->next.count; i++) {
        ckpt_label *const label = &s->next.at[i];
        if (label->recomputed_count > 0) {
            ckpt_choices *const choices = ckpt_arena_take(
                &s->choices, 1, sizeof *choices + (size_t)label->recomputed_count * sizeof *label->recomputed);
            if (choices == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "choices for op '%s'", s->graph->op[v].name);
            }
            choices->rest = label->rest;
            choices->op = v;
            choices->count = label->recomputed_count;
            memcpy(choices->moment, label->recomputed, (size_t)label->recomputed_count * sizeof *label->recomputed);
            label->rest = choices;
        }
    }
    const ckpt_labels old = s->now;
    s->now = s->next;
    s->next = old;
    s->next.count = 0;
    ckpt_arena_fini(&s->next.arena);
    return CKPT_OK;
}

static int compare_whens(const void *a, const void *b)
{
    const ckpt_when x = *(const ckpt_when *)a, y = *(const ckpt_when *)b;
    return (x > y) - (x < y);
}

/* All runs of a label, in their order. */
static ckpt_code write_order(const ckpt_hierarchy *s, const ckpt_label *label, ckpt_arena *scratch, ckpt_order *order,
                             ckpt_err *err)
{
    const int n = s->graph->op_count;
    size_t count = (size_t)n;
    for (const ckpt_choices *c = label->rest; c != NULL; c = c->rest) {
        count += (size_t)c->count;
    }
    ckpt_when *const run = CKPT_NEW(scratch, ckpt_when, count);
    if (run == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a sequence of %zu runs", count);
    }
    size_t at = 0;
    for (int o = 0; o < n; o++) {
        run[at++] = o * s->stride + o;
    }
    for (const ckpt_choices *c = label->rest; c != NULL; c = c->rest) {
        for (int i = 0; i < c->count; i++) {
            run[at++] = c->moment[i] * s->stride + c->op;
        }
    }
    qsort(run, count, sizeof *run, compare_whens);
    for (size_t i = 0; i < count; i++) {
        ckpt_order_add(order, (int)((run[i] & (s->stride - 1))));
    }
    return CKPT_OK;
}

static ckpt_code hand_over(ckpt_hierarchy *s, const ckpt_hierarchy_goal *goal, ckpt_arena *out,
                           ckpt_candidates *candidates, ckpt_err *err)
{
    const ckpt_hierarchy_goal few = {.limit = goal->limit, .width = CKPT_CANDIDATES_MAX};
    CKPT_TRY(ckpt_labels_thin(&s->now, &few, NULL, err));
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_code code = CKPT_OK;
    for (int i = 0; i < s->now.count && code == CKPT_OK; i++) {
        code = write_order(s, &s->now.at[i], &s->next.arena, &order, err);
        if (code == CKPT_OK) {
            code = goal->min_peak ? ckpt_order_end(&order, s->graph, goal->offer, out, candidates, err)
                                  : ckpt_order_offer(&order, s->graph, goal->offer, out, candidates, err);
        }
    }
    ckpt_order_fini(&order);
    return code;
}

static ckpt_code sweep(ckpt_hierarchy *s, const ckpt_hierarchy_goal *goal, const ckpt_plan_options *options,
                       ckpt_arena *scratch, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(take_memory(s, scratch, err));
    CKPT_TRY(find_base(s, scratch, err));
    s->now.at = ckpt_memory_get(sizeof *s->now.at);
    if (s->now.at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a label");
    }
    s->now.room = s->now.count = 1;
    s->past = CKPT_NEW(scratch, const ckpt_past *, s->graph->op_count);
    if (s->past == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a sweep of %d ops", s->graph->op_count);
    }
    const int n = s->graph->op_count;
    for (int v = n - 1; v >= 0 && s->now.count > 0; v--) {
        if (ckpt_plan_stopped(options) || (goal->most_work > 0 && s->work > 2 * goal->most_work)) {
            return CKPT_OK;
        }
        CKPT_TRY(ckpt_hierarchy_decide(s, v, err));
        ckpt_hierarchy_goal now = *goal;
        if (goal->most_work > 0 && s->work / (n - v) > goal->most_work / n) {
            now.width = goal->width < FEW ? goal->width : FEW;
        }
        CKPT_TRY(ckpt_labels_thin(&s->next, &now, s->goal->outlook != NULL ? &s->goal->outlook[v] : NULL, err));
        if (goal->seen != NULL) {
            CKPT_TRY(remember(s, v, err));
        }
        CKPT_TRY(settle(s, v, err));
    }
    if (goal->seen != NULL) {
        CKPT_TRY(find_outlooks(s, goal, scratch, err));
    }
    return hand_over(s, goal, out, candidates, err);
}

ckpt_code ckpt_hierarchy_run(const ckpt_graph *graph, const ckpt_hierarchy_goal *goal, const ckpt_plan_options *options,
                             ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_hierarchy s = {.graph = graph, .goal = goal, .shift = 1, .covered = -1};
    while (((ckpt_when)1 << s.shift) <= graph->op_count) {
        s.shift++;
    }
    s.stride = (ckpt_when)1 << s.shift;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_arena_init(&s.now.arena);
    ckpt_arena_init(&s.next.arena);
    ckpt_arena_init(&s.choices);
    const ckpt_code code = sweep(&s, goal, options, &scratch, out, candidates, err);
    if (goal->work != NULL) {
        *goal->work += s.work;
    }
    ckpt_memory_put(s.now.at);
    ckpt_memory_put(s.next.at);
    ckpt_memory_put(s.wanted);
    ckpt_arena_fini(&s.choices);
    ckpt_arena_fini(&s.next.arena);
    ckpt_arena_fini(&s.now.arena);
    ckpt_arena_fini(&scratch);
    return code;
}
