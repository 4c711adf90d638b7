/* The flow for given multipliers. Its network is in bound_flow.c. */
#include <string.h>

#include "planner/bound/bound_flow_impl.h"
#include "planner/schedule/ways.h"

/* bytes times a multiplier, rounded down; no more than CKPT_FLOW_MAX. */
static int64_t price(const ckpt_flow *f, ckpt_bytes bytes, int64_t number)
{
    if (f->shift < 0) {
        const bool fits = number == 0 || bytes <= (CKPT_FLOW_MAX >> -f->shift) / number;
        return fits ? (bytes * number) << -f->shift : CKPT_FLOW_MAX;
    }
    const int64_t whole = bytes >> f->shift, part = bytes & (((int64_t)1 << f->shift) - 1);
    const bool fits = number == 0 || whole < CKPT_FLOW_MAX / number;
    const int64_t sum = fits ? whole * number + ((part * number) >> f->shift) : CKPT_FLOW_MAX;
    return sum < CKPT_FLOW_MAX ? sum : CKPT_FLOW_MAX;
}

/* u is read by an op whose next moment is k: then it has no certain use behind that moment. */
static bool passes(const ckpt_flow *f, int u, int k)
{
    return f->until[u] == k && f->op[f->graph->writer[u]].recompute;
}

/* What it costs to hold v at its next moment. */
static int64_t price_next(const ckpt_flow *f, int v)
{
    const int64_t number = f->until[v] < f->moments ? f->lambda[f->until[v]] - f->maybe[v] : 0;
    return number > 0 ? price(f, f->graph->buffer[v].bytes, number) : 0;
}

/* c, d and room, from the first op on. */
static void prepare(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    int64_t *const sum = f->sum;
    for (int i = 0; i < f->moments; i++) {
        sum[i + 1] = sum[i] + f->lambda[i];
    }
    for (int o = 0, k = 0; o < f->moment[f->moments - 1]; o++) {
        const ckpt_graph_op *const op = &f->op[o];
        k += o >= f->moment[k];
        f->c[o] = f->room[o] = f->in[o] = 0;
        if (!op->recompute) {
            continue;
        }
        for (int i = 0; i < op->writes.count; i++) {
            const int v = op->writes.at[i], until = f->until[v];
            f->c[o] = ckpt_flow_least(f->c[o] + price(f, g->buffer[v].bytes, sum[until] - sum[k] - f->read[v]),
                                      CKPT_FLOW_MAX);
            f->d[v] = price_next(f, v);
            f->asked[v] = false;
        }
        const int64_t time = op->time_ns << f->scale;
        f->room[o] = time > f->c[o] ? time - f->c[o] : 0;
        for (int i = 0; i < op->reads.count; i++) {
            const int u = op->reads.at[i];
            const int64_t more = passes(f, u, k) ? ckpt_flow_least(f->d[u], f->room[g->writer[u]]) : 0;
            f->room[o] = ckpt_flow_least(f->room[o] + more, CKPT_FLOW_MAX);
        }
    }
}

/* What o cannot take goes on to the writers of what it reads. */
static void push(ckpt_flow *f, int o, int k, int64_t rest)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_list *const reads = &f->op[o].reads;
    for (int i = 0; i < reads->count; i++) {
        const int u = reads->at[i], w = g->writer[u];
        if (passes(f, u, k)) {
            const int64_t part = ckpt_flow_least(ckpt_flow_least(rest, f->d[u]), f->room[w] - f->in[w]);
            f->asked[u] = true;
            f->d[u] -= part;
            f->in[w] += part;
            rest -= part;
        }
    }
}

static void count_held(ckpt_flow *f, int o, int k)
{
    const ckpt_graph *const g = f->graph;
    for (int i = 0; i < f->op[o].writes.count; i++) {
        const int v = f->op[o].writes.at[i], until = f->until[v] + f->asked[v];
        for (int m = k; m < until; m++) {
            f->held[m] += g->buffer[v].bytes;
        }
    }
}

/* What the ops of the moments read, in any way, is in memory then for nothing. */
static void mark_reads(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    for (int i = 0; i < f->moments; i++) {
        const int ways = ckpt_way_count(g, f->moment[i]);
        for (int k = 0; k < ways; k++) {
            const ckpt_list *const reads = &g->op[ckpt_way_run(g, f->moment[i], k)].reads;
            for (int r = 0; r < reads->count; r++) {
                const int v = reads->at[r];
                bool had = false;
                for (int j = 0; j < k && !had; j++) {
                    had = ckpt_list_has(&g->op[ckpt_way_run(g, f->moment[i], j)].reads, v);
                }
                *(f->until[v] > i ? &f->read[v] : &f->maybe[v]) += had ? 0 : f->lambda[i];
            }
        }
    }
}

static void unmark_reads(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    for (int i = 0; i < f->moments; i++) {
        const ckpt_list *const certain = &f->op[f->moment[i]].reads;
        for (int r = 0; r < certain->count; r++) {
            const int w = g->writer[certain->at[r]];
            f->held[i] -= f->op[w].recompute && !f->again[w] ? g->buffer[certain->at[r]].bytes : 0;
        }
        for (int k = 0; k < ckpt_way_count(g, f->moment[i]); k++) {
            const ckpt_list *const reads = &g->op[ckpt_way_run(g, f->moment[i], k)].reads;
            for (int r = 0; r < reads->count; r++) {
                f->read[reads->at[r]] = f->maybe[reads->at[r]] = 0;
            }
        }
    }
}

bool ckpt_flow_is_possible(const ckpt_flow *f, int run)
{
    return f->possible == NULL || f->possible[run];
}

/* The first run of its op can be done in this way. */
static bool may_be_first(const ckpt_flow *f, int run)
{
    return ckpt_flow_is_possible(f, run) && f->need[run] <= f->left[ckpt_run_base(f->graph, run)];
}

/* Time of a run, and what its need costs if its op is at moment i; i < 0: at none. */
static int64_t way_cost(const ckpt_flow *f, int run, int i)
{
    const int64_t time = f->graph->op[run].time_ns << f->scale;
    return i < 0 ? time : time + price(f, f->need[run], f->lambda[i]);
}

/* The least cost of the ways of an op. */
static int64_t least_way(const ckpt_flow *f, int o, int i, int *run)
{
    int64_t cost = INT64_MAX;
    for (int k = 0; k < ckpt_way_count(f->graph, o); k++) {
        const int way = ckpt_way_run(f->graph, o, k);
        if (may_be_first(f, way) && way_cost(f, way, i) < cost) {
            cost = way_cost(f, way, i);
            *run = way;
        }
    }
    return cost < INT64_MAX ? cost : f->op[o].time_ns << f->scale;
}

/* What may still be paid so that v is there at the first run behind `level` moments. */
static int64_t may_pay(const ckpt_flow *f, int v, int level)
{
    const int w = f->graph->writer[v];
    const int until = f->until[v];
    const int64_t number = until < level ? f->sum[level] - f->sum[until] - f->maybe[v] : 0;
    if (number <= 0) {
        return 0;
    }
    const int64_t passed = f->op[w].recompute ? price_next(f, v) - f->d[v] : 0;
    const int64_t hold = price(f, f->graph->buffer[v].bytes, number) - f->paid[v] - passed;
    return hold <= 0 ? 0 : f->op[w].recompute ? ckpt_flow_least(hold, f->room[w]) : hold;
}

/* What a way of op o adds to its cost, at most, when it pays all it may for what it reads. */
static int64_t way_support(const ckpt_flow *f, int run, int level)
{
    const ckpt_list *const reads = &f->graph->op[run].reads;
    int64_t sum = 0;
    for (int r = 0; r < reads->count; r++) {
        const int v = reads->at[r];
        sum = ckpt_flow_least(sum + may_pay(f, v, level) + f->first[f->graph->writer[v]], CKPT_FLOW_MAX);
    }
    return sum;
}

/* Pay `rest` for what a way reads; what another way of the same choice has paid counts. What is left of `rest`. */
static int64_t pay(ckpt_flow *f, int run, int level, int64_t rest)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_list *const reads = &g->op[run].reads;
    for (int r = 0; r < reads->count && rest > 0; r++) {
        const int v = reads->at[r];
        const int w = g->writer[v];
        rest -= ckpt_flow_least(rest, f->given[v]);
        const int64_t held = ckpt_flow_least(rest, may_pay(f, v, level));
        f->paid[v] += held;
        f->room[w] -= f->op[w].recompute ? held : 0;
        const int64_t first = ckpt_flow_least(rest - held, f->first[w]);
        f->first[w] -= first;
        f->given[v] += held + first;
        rest -= held + first;
    }
    return rest;
}

static void hold_for_choice(ckpt_flow *f, int run, int level)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_list *const reads = &g->op[run].reads;
    for (int r = 0; r < reads->count; r++) {
        const int v = reads->at[r];
        const bool again = f->op[g->writer[v]].recompute && f->room[g->writer[v]] <= 0;
        for (int i = f->until[v]; i < level && !again && f->asked[v] < 2; i++) {
            f->held[i] += g->buffer[v].bytes;
        }
        f->asked[v] = 2;
    }
}

/* The choice between the ways of op o costs what each of them costs at least: a price that every way supports. */
static int64_t choose(ckpt_flow *f, int o, int level)
{
    const ckpt_graph *const g = f->graph;
    const int i = level < f->moments && f->moment[level] == o ? level : -1;
    int at = o;
    const int64_t base = least_way(f, o, i, &at);
    int64_t raised = INT64_MAX;
    const int ways = ckpt_way_count(g, o);
    for (int k = 0; k < ways; k++) {
        const int run = ckpt_way_run(g, o, k);
        const int64_t cost = may_be_first(f, run) ? way_cost(f, run, i) - base + way_support(f, run, level) : INT64_MAX;
        at = cost < raised ? run : at;
        raised = ckpt_flow_least(raised, cost);
    }
    int64_t sure = raised < INT64_MAX ? raised : 0;
    for (int k = 0; k < ways && sure > 0; k++) {
        const int run = ckpt_way_run(g, o, k);
        const int64_t own = may_be_first(f, run) ? way_cost(f, run, i) - base : INT64_MAX;
        sure = own < raised ? ckpt_flow_least(sure, raised - pay(f, run, level, raised - own)) : sure;
    }
    for (int k = 0; k < ways; k++) {
        const ckpt_list *const reads = &g->op[ckpt_way_run(g, o, k)].reads;
        for (int r = 0; r < reads->count; r++) {
            f->given[reads->at[r]] = 0;
        }
    }
    hold_for_choice(f, at, level);
    return i >= 0 ? sure : sure + base - (f->op[o].time_ns << f->scale);
}

static int64_t choose_all(ckpt_flow *f)
{
    const ckpt_graph *const g = f->graph;
    int64_t value = 0;
    memset(f->paid, 0, (size_t)g->buffer_count * sizeof *f->paid);
    for (int o = 0; o < g->op_count; o++) {
        f->first[o] = g->op[o].optional && o >= f->begin ? f->op[o].time_ns << f->scale : 0;
    }
    for (int o = f->begin, level = 0; o < f->end; o++) {
        level += level < f->moments && f->moment[level] < o;
        if (g->op[o].variant_count > 0 && !g->op[o].optional) {
            value = ckpt_flow_least(value + choose(f, o, level), CKPT_FLOW_MAX);
        }
    }
    return value;
}

/* A flow, from the last op on, each op's surplus pushed where there is room; what reaches the sink, less what the
 * capacities cost, is a bound on the time. */
void ckpt_flow_evaluate(ckpt_flow *f)
{
    int64_t value = 0;
    memset(f->held, 0, sizeof f->held);
    mark_reads(f);
    prepare(f);
    for (int o = f->moment[f->moments - 1] - 1, k = f->moments - 1; o >= 0; o--) {
        const ckpt_graph_op *const op = &f->op[o];
        k -= k > 0 && o < f->moment[k - 1];
        if (!op->recompute) {
            continue;
        }
        const int64_t time = op->time_ns << f->scale, comes = f->in[o] + f->c[o];
        value += ckpt_flow_least(time, comes);
        f->again[o] = comes > 0 && comes >= time;
        if (f->again[o]) {
            push(f, o, k, comes - time);
        } else {
            count_held(f, o, k);
        }
        f->room[o] = comes < time ? time - comes : 0;
    }
    value += f->possible != NULL ? choose_all(f) : 0;
    unmark_reads(f);
    for (int i = 0; i < f->moments; i++) {
        const int m = f->moment[i];
        int run = m;
        value += least_way(f, m, i, &run) - (f->op[m].time_ns << f->scale);
        value -= price(f, f->left[m], f->lambda[i]) + 1;
        f->excess[i] = f->held[i] + f->need[run] - f->left[m];
    }
    f->value = value;
    f->best = value > f->best ? value : f->best;
    const int64_t work =
        f->possible == NULL ? 8 * (int64_t)f->moment[f->moments - 1] : 32 * (int64_t)f->graph->op_count;
    f->work = ckpt_poll_stopped(&f->poll, work) ? 0 : f->work - work;
}
