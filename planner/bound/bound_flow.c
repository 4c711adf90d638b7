/* A bound for graphs of any size: what is not in memory at some moments is recomputed, and each op is counted once.
 * With multipliers on the bytes at the moments the least cost is a minimum cut, so any flow in its network is a bound
 * (docs/explanation/lower-bound.md, "Flows"). k is the first moment behind the first run of o:
 *
 *     source -- c(o) --> o           what it costs to hold the outputs of o at the moments up to their last first use
 *     o -- time(o) --> sink          o is recomputed after moment k
 *     o -- d(u) --> writer(u)        then u, which o reads, is held at moment k, or recomputed too
 */
#include <string.h>

#include "planner/bound/bound_flow_impl.h"
#include "planner/variants/variants.h"

enum {
    SHIFT_MAX = 36,
    SCALE_MAX = 12,
};

#define WORK ((int64_t)1 << 24) /* at the lowest effort */

/* The multiplier of the only moment at which the cut holds no more than there is room for: there the bound, which is
 * concave but for how well the flow is chosen, is highest. */
static void climb(ckpt_flow *f)
{
    int64_t low = 0, high = CKPT_FLOW_LAMBDA_MAX;
    while (high - low > 1 && high - low > low >> 9 && !f->poll.stopped) {
        f->lambda[0] = low + (high - low) / 2;
        ckpt_flow_evaluate(f);
        *(f->excess[0] > 0 ? &low : &high) = f->lambda[0];
    }
    f->lambda[0] = high;
}

ckpt_bytes *ckpt_flow_find_excess(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    memset(f->change, 0, ((size_t)g->op_count + 2) * sizeof *f->change);
    for (int v = 0; v < g->buffer_count; v++) {
        const int w = g->writer[v];
        if (f->op[w].recompute && !f->again[w]) {
            const int asked = f->asked[v] == 1 ? f->moment[f->until[v]] : 0;
            const int wish = f->moments == 0 || f->asked[v] == 2 ? f->last_wish[v] : f->last[v];
            f->change[w + 1] += g->buffer[v].bytes;
            f->change[(asked > wish ? asked : wish) + 1] -= g->buffer[v].bytes;
        }
    }
    ckpt_bytes bytes = 0;
    for (int o = 0; o < g->op_count; o++) {
        bytes += f->change[o];
        f->change[o] = bytes - f->capacity[o];
        for (int i = 0; i < f->op[o].reads.count; i++) {
            const int u = f->op[o].reads.at[i], w = g->writer[u];
            f->change[o] -= f->op[w].recompute && !f->again[w] ? g->buffer[u].bytes : 0;
        }
    }
    return f->change;
}

/* The op with the largest excess that is no moment yet; -1: none. */
static int find_moment(ckpt_flow *f)
{
    const ckpt_bytes *const more = ckpt_flow_find_excess(f);
    ckpt_bytes most = 0;
    int found = -1;
    for (int o = 0, i = 0; o < f->graph->op_count; o++) {
        i += i < f->moments && f->moment[i] < o;
        if (more[o] > most && !f->graph->op[o].optional && (i == f->moments || f->moment[i] != o)) {
            most = more[o];
            found = o;
        }
    }
    return found;
}

static bool add_moment(ckpt_flow *f, int o)
{
    int at = 0;
    while (at < f->moments && f->moment[at] < o) {
        at++;
    }
    if (f->moments == CKPT_FLOW_MOMENTS || (at < f->moments && f->moment[at] == o)) {
        return false;
    }
    for (int i = f->moments++; i > at; i--) {
        f->moment[i] = f->moment[i - 1];
        f->lambda[i] = f->lambda[i - 1];
    }
    f->moment[at] = o;
    f->lambda[at] = 0;
    const ckpt_graph *const g = f->graph;
    for (int v = 0; v < g->buffer_count; v++) {
        f->until[v] = (unsigned char)(f->until[v] + (f->last[v] >= o));
        f->asked[v] = false;
    }
    return true;
}

/* The first multiplier: its size is not known yet. */
static void climb_first(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    double time = 1, bytes = 1;
    for (int o = 0; o < f->moment[0]; o++) {
        time += f->op[o].recompute ? (double)(f->op[o].time_ns << f->scale) : 0;
    }
    for (int v = 0; v < g->buffer_count; v++) {
        bytes += f->until[v] > 0 && f->op[g->writer[v]].recompute ? (double)g->buffer[v].bytes : 0;
    }
    for (double density = time / bytes; density < CKPT_FLOW_GUESS && f->shift < SHIFT_MAX; density *= 2) {
        f->shift++;
    }
    for (double density = time / bytes; density > 2 * CKPT_FLOW_GUESS && f->shift > -SHIFT_MAX; density /= 2) {
        f->shift--;
    }
    climb(f);
    for (int round = 0; round < 4 && f->lambda[0] == CKPT_FLOW_LAMBDA_MAX && f->shift > 6 - SHIFT_MAX; round++) {
        f->shift -= 6;
        climb(f);
    }
    for (int round = 0; round < 4 && f->lambda[0] < 64 && f->shift < SHIFT_MAX - 6; round++) {
        f->shift += 6;
        climb(f);
    }
}

/* Beside what is fixed. An input that a run in place may destroy counts once. */
static ckpt_bytes find_need(const ckpt_flow *f, int run)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_graph_op *const op = &g->op[run];
    const int o = ckpt_run_base(g, run);
    ckpt_bytes bytes = op->workspace_bytes;
    for (int i = 0; i < op->writes.count; i++) {
        bytes += g->buffer[op->writes.at[i]].bytes;
    }
    for (int i = 0; i < op->reads.count; i++) {
        const int v = op->reads.at[i];
        bytes += !f->op[g->writer[v]].recompute && f->last[v] >= o ? 0 : g->buffer[v].bytes;
    }
    for (int i = 0; i < op->inplace_count; i++) {
        const int v = op->inplace[i].in;
        bytes -= !f->op[g->writer[v]].recompute && f->last[v] > o ? 0 : g->buffer[v].bytes;
    }
    return bytes;
}

static void find_capacities(ckpt_flow *f, ckpt_bytes limit)
{
    const ckpt_graph *const g = f->graph;
    for (int v = 0; v < g->buffer_count; v++) {
        if (!f->op[g->writer[v]].recompute && f->last[v] > g->writer[v]) {
            f->change[g->writer[v] + 1] += g->buffer[v].bytes;
            f->change[f->last[v] + 1] -= g->buffer[v].bytes;
        }
    }
    ckpt_bytes fixed = 0;
    for (int o = 0; o < g->op_count; o++) {
        fixed += f->change[o];
        f->left[o] = limit - fixed;
        int fastest = -1;
        for (int k = 0; k < ckpt_way_count(g, o); k++) {
            const int run = ckpt_way_run(g, o, k);
            f->need[run] = find_need(f, run);
            const bool faster = fastest < 0 || g->op[run].time_ns < g->op[fastest].time_ns ||
                                (g->op[run].time_ns == g->op[fastest].time_ns && f->need[run] < f->need[fastest]);
            fastest = ckpt_flow_is_possible(f, run) && faster ? run : fastest;
        }
        f->capacity[o] = f->left[o] - f->need[fastest];
    }
}

static ckpt_code flow_init(ckpt_flow *f, ckpt_bytes limit, ckpt_arena *scratch, ckpt_err *err)
{
    const size_t buffers = (size_t)f->graph->buffer_count, ops = (size_t)f->graph->op_count;
    const size_t runs = ops + (size_t)f->graph->variant_count;
    f->until = CKPT_NEW(scratch, unsigned char, buffers);
    f->asked = CKPT_NEW(scratch, unsigned char, buffers);
    f->read = CKPT_NEW(scratch, int64_t, buffers);
    f->maybe = CKPT_NEW(scratch, int64_t, buffers);
    f->d = CKPT_NEW(scratch, int64_t, buffers);
    f->paid = CKPT_NEW(scratch, int64_t, buffers);
    f->given = CKPT_NEW(scratch, int64_t, buffers);
    f->c = CKPT_NEW(scratch, int64_t, ops);
    f->room = CKPT_NEW(scratch, int64_t, ops);
    f->in = CKPT_NEW(scratch, int64_t, ops);
    f->first = CKPT_NEW(scratch, int64_t, ops);
    f->again = CKPT_NEW(scratch, bool, ops);
    f->left = CKPT_NEW(scratch, ckpt_bytes, ops);
    f->need = CKPT_NEW(scratch, ckpt_bytes, runs);
    f->capacity = CKPT_NEW(scratch, ckpt_bytes, ops);
    f->change = CKPT_NEW(scratch, ckpt_bytes, ops + 2);
    if (f->until == NULL || f->asked == NULL || f->read == NULL || f->maybe == NULL || f->d == NULL ||
        f->paid == NULL || f->given == NULL || f->c == NULL || f->room == NULL || f->in == NULL || f->first == NULL ||
        f->again == NULL || f->left == NULL || f->need == NULL || f->capacity == NULL || f->change == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a flow over %d ops", f->graph->op_count);
    }
    find_capacities(f, limit);
    ckpt_ns all = 0;
    for (size_t o = 0; o < runs; o++) {
        all += f->graph->op[o].time_ns; /* ckpt_graph_check has shown that it fits */
    }
    while (f->scale < SCALE_MAX && all < CKPT_FLOW_MAX >> (f->scale + 1)) {
        f->scale++;
    }
    return CKPT_OK;
}

/* The least time of all possible ways of an op, the reads they have in common, and all that they write. `seen` is zero
 * for every buffer. */
static ckpt_code join_ways(const ckpt_flow *f, int o, int *seen, ckpt_graph_op *joined, ckpt_arena *scratch,
                           ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    int ways = 0, writes = 0;
    for (int k = 0; k < ckpt_way_count(g, o); k++) {
        const ckpt_graph_op *const way = &g->op[ckpt_way_run(g, o, k)];
        if (!f->possible[ckpt_way_run(g, o, k)]) {
            continue;
        }
        joined->time_ns = ways == 0 || way->time_ns < joined->time_ns ? way->time_ns : joined->time_ns;
        writes += way->writes.count;
        ways++;
    }
    int *const read = CKPT_NEW(scratch, int, joined->reads.count + 1), *const written = CKPT_NEW(scratch, int, writes);
    if (read == NULL || written == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ways of an op");
    }
    int reads = 0;
    writes = 0;
    for (int k = 0, way = 0; k < ckpt_way_count(g, o); k++) {
        const ckpt_graph_op *const it = &g->op[ckpt_way_run(g, o, k)];
        if (!f->possible[ckpt_way_run(g, o, k)]) {
            continue;
        }
        way++;
        for (int i = 0; i < it->reads.count; i++) {
            seen[it->reads.at[i]]++;
            if (way == ways && seen[it->reads.at[i]] == ways) {
                read[reads++] = it->reads.at[i];
            }
        }
        for (int i = 0; i < it->writes.count; i++) {
            if (!ckpt_list_has(&(ckpt_list){written, writes}, it->writes.at[i])) {
                written[writes++] = it->writes.at[i];
            }
        }
    }
    for (int k = 0; k < ckpt_way_count(g, o); k++) {
        const ckpt_graph_op *const it = &g->op[ckpt_way_run(g, o, k)];
        for (int i = 0; i < it->reads.count; i++) {
            seen[it->reads.at[i]] = 0;
        }
    }
    joined->reads = (ckpt_list){read, reads};
    joined->writes = (ckpt_list){written, writes};
    joined->adds.count = ways > 1 ? 0 : joined->adds.count;
    return CKPT_OK;
}

static ckpt_code join_all(ckpt_flow *f, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *scratch,
                          ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    bool *const possible = CKPT_NEW(scratch, bool, g->op_count + g->variant_count);
    ckpt_graph_op *const op = CKPT_NEW(scratch, ckpt_graph_op, g->op_count);
    int *const seen = CKPT_NEW(scratch, int, g->buffer_count);
    if (possible == NULL || op == NULL || seen == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ways of %d ops", g->op_count);
    }
    f->possible = possible;
    f->op = op;
    for (int o = 0; o < g->op_count; o++) {
        const int ways = ckpt_way_count(g, o);
        bool any = false;
        for (int k = 0; k < ways; k++) {
            const int run = ckpt_way_run(g, o, k);
            possible[run] = ckpt_way_possible(g, run, limit, options);
            any = any || possible[run];
        }
        possible[o] = possible[o] || !any;
        op[o] = g->op[o];
        if (ways > 1) {
            CKPT_TRY(join_ways(f, o, seen, &op[o], scratch, err));
        }
    }
    return CKPT_OK;
}

static void note_last(int *last, const ckpt_list *list, int o)
{
    for (int i = 0; i < list->count; i++) {
        last[list->at[i]] = o > last[list->at[i]] ? o : last[list->at[i]];
    }
}

static ckpt_code find_last(ckpt_flow *f, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    f->last = CKPT_NEW(scratch, int, g->buffer_count);
    f->last_wish = CKPT_NEW(scratch, int, g->buffer_count);
    if (f->last == NULL || f->last_wish == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a flow over %d ops", g->op_count);
    }
    for (int v = 0; v < g->buffer_count; v++) {
        f->last[v] = f->last_wish[v] = g->writer[v];
    }
    for (int o = 0; o < g->op_count; o++) {
        if (!g->op[o].optional) {
            note_last(f->last, &f->op[o].reads, o);
            note_last(f->last, &f->op[o].adds, o);
            note_last(f->last_wish, &g->op[o].reads, o);
            note_last(f->last_wish, &g->op[o].adds, o);
        }
    }
    note_last(f->last, &g->outputs, g->op_count);
    note_last(f->last_wish, &g->outputs, g->op_count);
    return CKPT_OK;
}

/* The multiplier of moment i is the best of a few beside it; true: another than before. */
static bool improve(ckpt_flow *f, int i)
{
    static const int parts[] = {0, 8, 12, 14, 15, 17, 18, 20, 24, 32, 64}; /* sixteenths */
    const int64_t was = f->lambda[i], from = was > 0 ? was : CKPT_FLOW_GUESS / 4;
    int64_t best = was, value = f->value;
    for (size_t k = 0; k < sizeof parts / sizeof *parts && f->work > 0; k++) {
        f->lambda[i] = ckpt_flow_least(from * parts[k] / 16, CKPT_FLOW_LAMBDA_MAX);
        ckpt_flow_evaluate(f);
        if (f->value > value) {
            value = f->value;
            best = f->lambda[i];
        }
    }
    f->lambda[i] = best;
    f->value = value;
    return best != was;
}

/* The best of widely spaced multipliers for a single moment, at op o. */
static int64_t scan(ckpt_flow *f, int o)
{
    f->moments = 0;
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    add_moment(f, o);
    int64_t best = 0, value = -1;
    for (int64_t number = CKPT_FLOW_GUESS / 64; number <= CKPT_FLOW_LAMBDA_MAX / 2 && f->work > 0;
         number += number / 2) {
        f->lambda[0] = number;
        ckpt_flow_evaluate(f);
        if (f->value > value) {
            value = f->value;
            best = number;
        }
    }
    f->lambda[0] = best;
    f->value = value;
    return value;
}

/* On graphs where that costs little, a first moment elsewhere may prove more than the one that needs most. */
static int scan_all(ckpt_flow *f, int first)
{
    enum { FIRSTS = 24 };
    const int n = f->graph->op_count;
    int64_t value = f->best;
    int found = first;
    const int64_t before = f->work;
    for (int i = 1; i < FIRSTS && f->work > before / 2; i++) {
        const int o = (int)((int64_t)n * i / FIRSTS);
        if (!f->graph->op[o].optional && scan(f, o) > value) {
            value = f->value;
            found = o;
        }
    }
    return found;
}

/* Moments are added where the cut asks for too much, as long as that raises the bound and work is left. */
static void climb_all(ckpt_flow *f)
{
    enum { IDLE = 4, SWEEPS = 3 };
    int found = find_moment(f);
    if (found < 0) {
        return;
    }
    add_moment(f, found);
    climb_first(f);
    if (f->work > 0) {
        scan(f, scan_all(f, found));
        improve(f, 0);
    }
    for (int idle = 0; idle < IDLE && f->work > 0; idle++) {
        ckpt_flow_evaluate(f);
        found = find_moment(f);
        if (found < 0 || !add_moment(f, found)) {
            break;
        }
        const int64_t before = f->best;
        ckpt_flow_evaluate(f);
        bool changed = true;
        for (int sweep = 0; sweep < SWEEPS && changed; sweep++) {
            changed = false;
            for (int i = 0; i < f->moments; i++) {
                changed = improve(f, i) || changed;
            }
        }
        idle = f->best > before + before / 1000 ? -1 : idle;
    }
}

ckpt_code ckpt_flow_bound(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                          ckpt_flow_proof *proof, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_flow f = {.graph = graph,
                   .op = graph->op,
                   .end = graph->op_count,
                   .work = WORK << 2 * ckpt_effort(options),
                   .poll = {.options = options}};
    *proof = (ckpt_flow_proof){0};
    ckpt_code code = ckpt_graph_has_variants(graph) ? join_all(&f, limit, options, &scratch, err) : CKPT_OK;
    code = code == CKPT_OK ? find_last(&f, &scratch, err) : code;
    code = code == CKPT_OK ? flow_init(&f, limit, &scratch, err) : code;
    if (code == CKPT_OK) {
        climb_all(&f);
        proof->time = f.best;
        f.work = f.moments > 0 ? WORK << 2 * ckpt_effort(options) : 0;
        if (f.work / graph->op_count > CKPT_FLOW_PLACES * CKPT_FLOW_PLACES) {
            ckpt_flow_chain_intervals(&f, proof);
        }
        proof->time >>= f.scale;
        proof->before >>= f.scale;
    }
    ckpt_arena_fini(&scratch);
    return code;
}
