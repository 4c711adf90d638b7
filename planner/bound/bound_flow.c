/* A bound for graphs of any size: what is not in memory at some moments is recomputed, and each op is counted once.
 * With multipliers on the bytes at the moments the least cost is a minimum cut, so any flow in its network is a bound
 * (docs/explanation/lower-bound.md, "Flows"). k is the first moment behind the first run of o:
 *
 *     source -- c(o) --> o           what it costs to hold the outputs of o at the moments up to their last first use
 *     o -- time(o) --> sink          o is recomputed after moment k
 *     o -- d(u) --> writer(u)        then u, which o reads, is held at moment k, or recomputed too
 */
#include <string.h>

#include "planner/bound/bound_impl.h"
#include "planner/variants/variants.h"

enum {
    MOMENTS_MAX = 64,
    LAMBDA_MAX = 1 << 18,
    GUESS = 1 << 11, /* where the search for the first multiplier begins */
    SHIFT_MAX = 36,
    SCALE_MAX = 12,
};

/* What flows is at most this, so that sums of a few stay within 63 bits. */
#define FLOW_MAX ((int64_t)1 << 55)
#define WORK     ((int64_t)1 << 24) /* at the lowest effort */

typedef struct flow {
    const ckpt_graph *graph;
    int *last;               /* per buffer: the last op whose first run uses it in whatever way; op_count: an output */
    const ckpt_graph_op *op; /* as they are recomputed: the least time of all ways, the reads that all have in common */
    const bool *possible;    /* per op and variant; NULL: there are no variants */
    int *last_wish;          /* per buffer: the last op whose own way uses it */
    ckpt_bytes *left;        /* per op: what is left at its first run beside what is fixed */
    ckpt_bytes *need;        /* per op and variant: reads, writes and workspace beside that */
    ckpt_bytes *capacity;    /* per op: left, less the need of its fastest way */
    int moment[MOMENTS_MAX], moments;
    int begin, end;                                    /* only first runs from here to before there are looked at */
    int64_t lambda[MOMENTS_MAX], sum[MOMENTS_MAX + 1]; /* multipliers, in 2^-(scale + shift) ns per byte; sums before */
    int scale, shift;
    /* per buffer */
    unsigned char *until; /* moments at or before its last first use */
    unsigned char *asked; /* an op that is recomputed reads it behind that */
    int64_t *read;        /* the part of `lambda` that it does not pay up to `until`, as the moment's op reads it */
    int64_t *maybe;       /* the part behind that, as some way of the moment's op reads it */
    int64_t *d;
    int64_t *paid, *given; /* by all choices; by the choice at hand */
    /* per op */
    int64_t *c, *room, *in; /* room: what it may take in; behind the flow: what it may still take in */
    int64_t *first;         /* an optional op: what choices may still pay for its first run */
    ckpt_bytes *change;
    bool *again;                                       /* recomputed in the cut at hand */
    ckpt_bytes held[MOMENTS_MAX], excess[MOMENTS_MAX]; /* what the cut holds at a moment, beyond the capacity */
    int64_t value, best;                               /* of these multipliers, of all so far */
    int64_t work;                                      /* left for more than one moment */
    ckpt_poll poll;
} flow;

/* bytes times a multiplier, rounded down; no more than FLOW_MAX. */
static int64_t price(const flow *f, ckpt_bytes bytes, int64_t number)
{
    if (f->shift < 0) {
        const bool fits = number == 0 || bytes <= (FLOW_MAX >> -f->shift) / number;
        return fits ? (bytes * number) << -f->shift : FLOW_MAX;
    }
    const int64_t whole = bytes >> f->shift, part = bytes & (((int64_t)1 << f->shift) - 1);
    const bool fits = number == 0 || whole < FLOW_MAX / number;
    const int64_t sum = fits ? whole * number + ((part * number) >> f->shift) : FLOW_MAX;
    return sum < FLOW_MAX ? sum : FLOW_MAX;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* u is read by an op whose next moment is k: then it has no certain use behind that moment. */
static bool passes(const flow *f, int u, int k)
{
    return f->until[u] == k && f->op[f->graph->writer[u]].recompute;
}

/* What it costs to hold v at its next moment. */
static int64_t price_next(const flow *f, int v)
{
    const int64_t number = f->until[v] < f->moments ? f->lambda[f->until[v]] - f->maybe[v] : 0;
    return number > 0 ? price(f, f->graph->buffer[v].bytes, number) : 0;
}

/* c, d and room, from the first op on. */
static void prepare(flow *f)
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
            f->c[o] = least(f->c[o] + price(f, g->buffer[v].bytes, sum[until] - sum[k] - f->read[v]), FLOW_MAX);
            f->d[v] = price_next(f, v);
            f->asked[v] = false;
        }
        const int64_t time = op->time_ns << f->scale;
        f->room[o] = time > f->c[o] ? time - f->c[o] : 0;
        for (int i = 0; i < op->reads.count; i++) {
            const int u = op->reads.at[i];
            const int64_t more = passes(f, u, k) ? least(f->d[u], f->room[g->writer[u]]) : 0;
            f->room[o] = least(f->room[o] + more, FLOW_MAX);
        }
    }
}

/* What o cannot take goes on to the writers of what it reads. */
static void push(flow *f, int o, int k, int64_t rest)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_list *const reads = &f->op[o].reads;
    for (int i = 0; i < reads->count; i++) {
        const int u = reads->at[i], w = g->writer[u];
        if (passes(f, u, k)) {
            const int64_t part = least(least(rest, f->d[u]), f->room[w] - f->in[w]);
            f->asked[u] = true;
            f->d[u] -= part;
            f->in[w] += part;
            rest -= part;
        }
    }
}

static void count_held(flow *f, int o, int k)
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
static void mark_reads(flow *f)
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

static void unmark_reads(flow *f)
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

static bool is_possible(const flow *f, int run)
{
    return f->possible == NULL || f->possible[run];
}

/* The first run of its op can be done in this way. */
static bool may_be_first(const flow *f, int run)
{
    return is_possible(f, run) && f->need[run] <= f->left[ckpt_run_base(f->graph, run)];
}

/* Time of a run, and what its need costs if its op is at moment i; i < 0: at none. */
static int64_t way_cost(const flow *f, int run, int i)
{
    const int64_t time = f->graph->op[run].time_ns << f->scale;
    return i < 0 ? time : time + price(f, f->need[run], f->lambda[i]);
}

/* The least cost of the ways of an op. */
static int64_t least_way(const flow *f, int o, int i, int *run)
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
static int64_t may_pay(const flow *f, int v, int level)
{
    const int w = f->graph->writer[v];
    const int until = f->until[v];
    const int64_t number = until < level ? f->sum[level] - f->sum[until] - f->maybe[v] : 0;
    if (number <= 0) {
        return 0;
    }
    const int64_t passed = f->op[w].recompute ? price_next(f, v) - f->d[v] : 0;
    const int64_t hold = price(f, f->graph->buffer[v].bytes, number) - f->paid[v] - passed;
    return hold <= 0 ? 0 : f->op[w].recompute ? least(hold, f->room[w]) : hold;
}

/* What a way of op o adds to its cost, at most, when it pays all it may for what it reads. */
static int64_t way_support(const flow *f, int run, int level)
{
    const ckpt_list *const reads = &f->graph->op[run].reads;
    int64_t sum = 0;
    for (int r = 0; r < reads->count; r++) {
        const int v = reads->at[r];
        sum = least(sum + may_pay(f, v, level) + f->first[f->graph->writer[v]], FLOW_MAX);
    }
    return sum;
}

/* Pay `rest` for what a way reads; what another way of the same choice has paid counts. What is left of `rest`. */
static int64_t pay(flow *f, int run, int level, int64_t rest)
{
    const ckpt_graph *const g = f->graph;
    const ckpt_list *const reads = &g->op[run].reads;
    for (int r = 0; r < reads->count && rest > 0; r++) {
        const int v = reads->at[r];
        const int w = g->writer[v];
        rest -= least(rest, f->given[v]);
        const int64_t held = least(rest, may_pay(f, v, level));
        f->paid[v] += held;
        f->room[w] -= f->op[w].recompute ? held : 0;
        const int64_t first = least(rest - held, f->first[w]);
        f->first[w] -= first;
        f->given[v] += held + first;
        rest -= held + first;
    }
    return rest;
}

static void hold_for_choice(flow *f, int run, int level)
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
static int64_t choose(flow *f, int o, int level)
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
        raised = least(raised, cost);
    }
    int64_t sure = raised < INT64_MAX ? raised : 0;
    for (int k = 0; k < ways && sure > 0; k++) {
        const int run = ckpt_way_run(g, o, k);
        const int64_t own = may_be_first(f, run) ? way_cost(f, run, i) - base : INT64_MAX;
        sure = own < raised ? least(sure, raised - pay(f, run, level, raised - own)) : sure;
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

static int64_t choose_all(flow *f)
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
            value = least(value + choose(f, o, level), FLOW_MAX);
        }
    }
    return value;
}

/* A flow, from the last op on, each op's surplus pushed where there is room; what reaches the sink, less what the
 * capacities cost, is a bound on the time. */
static void evaluate(flow *f)
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
        value += least(time, comes);
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

/* The multiplier of the only moment at which the cut holds no more than there is room for: there the bound, which is
 * concave but for how well the flow is chosen, is highest. */
static void climb(flow *f)
{
    int64_t low = 0, high = LAMBDA_MAX;
    while (high - low > 1 && high - low > low >> 9 && !f->poll.stopped) {
        f->lambda[0] = low + (high - low) / 2;
        evaluate(f);
        *(f->excess[0] > 0 ? &low : &high) = f->lambda[0];
    }
    f->lambda[0] = high;
}

/* Per op: what the cut at hand (at first: everything held) needs at its first run beyond what there is. */
static ckpt_bytes *find_excess(flow *f)
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
static int find_moment(flow *f)
{
    const ckpt_bytes *const more = find_excess(f);
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

static bool add_moment(flow *f, int o)
{
    int at = 0;
    while (at < f->moments && f->moment[at] < o) {
        at++;
    }
    if (f->moments == MOMENTS_MAX || (at < f->moments && f->moment[at] == o)) {
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
static void climb_first(flow *f)
{
    const ckpt_graph *const g = f->graph;
    double time = 1, bytes = 1;
    for (int o = 0; o < f->moment[0]; o++) {
        time += f->op[o].recompute ? (double)(f->op[o].time_ns << f->scale) : 0;
    }
    for (int v = 0; v < g->buffer_count; v++) {
        bytes += f->until[v] > 0 && f->op[g->writer[v]].recompute ? (double)g->buffer[v].bytes : 0;
    }
    for (double density = time / bytes; density < GUESS && f->shift < SHIFT_MAX; density *= 2) {
        f->shift++;
    }
    for (double density = time / bytes; density > 2 * GUESS && f->shift > -SHIFT_MAX; density /= 2) {
        f->shift--;
    }
    climb(f);
    for (int round = 0; round < 4 && f->lambda[0] == LAMBDA_MAX && f->shift > 6 - SHIFT_MAX; round++) {
        f->shift -= 6;
        climb(f);
    }
    for (int round = 0; round < 4 && f->lambda[0] < 64 && f->shift < SHIFT_MAX - 6; round++) {
        f->shift += 6;
        climb(f);
    }
}

/* Beside what is fixed. An input that a run in place may destroy counts once. */
static ckpt_bytes find_need(const flow *f, int run)
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

static void find_capacities(flow *f, ckpt_bytes limit)
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
            fastest = is_possible(f, run) && faster ? run : fastest;
        }
        f->capacity[o] = f->left[o] - f->need[fastest];
    }
}

static ckpt_code flow_init(flow *f, ckpt_bytes limit, ckpt_arena *scratch, ckpt_err *err)
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
    while (f->scale < SCALE_MAX && all < FLOW_MAX >> (f->scale + 1)) {
        f->scale++;
    }
    return CKPT_OK;
}

/* The least time of all possible ways of an op, the reads they have in common, and all that they write. `seen` is zero
 * for every buffer. */
static ckpt_code join_ways(const flow *f, int o, int *seen, ckpt_graph_op *joined, ckpt_arena *scratch, ckpt_err *err)
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

static ckpt_code join_all(flow *f, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *scratch,
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

static ckpt_code find_last(flow *f, ckpt_arena *scratch, ckpt_err *err)
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
static bool improve(flow *f, int i)
{
    static const int parts[] = {0, 8, 12, 14, 15, 17, 18, 20, 24, 32, 64}; /* sixteenths */
    const int64_t was = f->lambda[i], from = was > 0 ? was : GUESS / 4;
    int64_t best = was, value = f->value;
    for (size_t k = 0; k < sizeof parts / sizeof *parts && f->work > 0; k++) {
        f->lambda[i] = least(from * parts[k] / 16, LAMBDA_MAX);
        evaluate(f);
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
static int64_t scan(flow *f, int o)
{
    f->moments = 0;
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    add_moment(f, o);
    int64_t best = 0, value = -1;
    for (int64_t number = GUESS / 64; number <= LAMBDA_MAX / 2 && f->work > 0; number += number / 2) {
        f->lambda[0] = number;
        evaluate(f);
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
static int scan_all(flow *f, int first)
{
    enum { PLACES = 24 };
    const int n = f->graph->op_count;
    int64_t value = f->best;
    int found = first;
    const int64_t before = f->work;
    for (int i = 1; i < PLACES && f->work > before / 2; i++) {
        const int o = (int)((int64_t)n * i / PLACES);
        if (!f->graph->op[o].optional && scan(f, o) > value) {
            value = f->value;
            found = o;
        }
    }
    return found;
}

/* Moments are added where the cut asks for too much, as long as that raises the bound and work is left. */
static void climb_all(flow *f)
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
        evaluate(f);
        found = find_moment(f);
        if (found < 0 || !add_moment(f, found)) {
            break;
        }
        const int64_t before = f->best;
        evaluate(f);
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

/* ---- intervals ---- */

static void need_in(flow *f, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        f->until[list->at[i]] = 1;
    }
}

/* The most that a flow at the first run of op o proves of recomputations between there and the first run of op `end`. */
static int64_t prove_interval(flow *f, int o, int end)
{
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    for (int p = o; p < end; p++) {
        if (!f->op[p].optional) {
            need_in(f, &f->op[p].reads);
            need_in(f, &f->op[p].adds);
        }
        need_in(f, &f->op[p].writes); /* not there yet: nothing can be paid for holding it */
    }
    if (end == f->graph->op_count) {
        need_in(f, &f->graph->outputs);
    }
    f->moments = 1;
    f->moment[0] = o;
    f->begin = o;
    f->end = end;
    int64_t best = 0, value = 0;
    for (int64_t number = GUESS / 128; number < LAMBDA_MAX && f->work > 0; number *= 2) {
        f->lambda[0] = number;
        evaluate(f);
        best = f->value > value ? number : best;
        value = f->value > value ? f->value : value;
    }
    for (int64_t step = best / 4; best > 0 && step > best / 64 && f->work > 0; step /= 2) {
        const int64_t centre = best;
        for (int side = -1; side <= 1; side += 2) {
            f->lambda[0] = least(centre + side * step, LAMBDA_MAX);
            evaluate(f);
            best = f->value > value ? f->lambda[0] : best;
            value = f->value > value ? f->value : value;
        }
    }
    f->begin = 0;
    f->end = f->graph->op_count;
    return value;
}

enum { PLACES = 40 };

typedef struct place {
    int op;
    ckpt_bytes capacity, excess;
} place;

static void keep_place(place *kept, int *count, int room, place added, bool (*before)(const place *a, const place *b))
{
    int at = *count < room ? (*count)++ : room;
    if (at == room) {
        at--;
        if (!before(&added, &kept[at])) {
            return;
        }
    }
    for (; at > 0 && before(&added, &kept[at - 1]); at--) {
        kept[at] = kept[at - 1];
    }
    kept[at] = added;
}

static bool tighter(const place *a, const place *b)
{
    return a->capacity < b->capacity;
}

static bool fuller(const place *a, const place *b)
{
    return a->excess > b->excess;
}

/* Ops at whose first runs least can be held, those behind them, ops that want most, and some in between: in order. */
static int find_places(flow *f, int *op)
{
    enum { TIGHT = 8, FULL = 8, EVEN = 16 };
    place tight[TIGHT], full[FULL];
    int tights = 0, fulls = 0, count = 0;
    const int n = f->graph->op_count;
    f->moments = 0;
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    memset(f->asked, 0, (size_t)f->graph->buffer_count);
    for (int o = 0; o < n; o++) {
        f->again[o] = false;
    }
    ckpt_bytes *const more = find_excess(f);
    for (int o = 0; o < n; o++) {
        const place p = {o, f->capacity[o], more[o]};
        if (more[o] > 0 && !f->graph->op[o].optional) {
            keep_place(tight, &tights, TIGHT, p, tighter);
            keep_place(full, &fulls, FULL, p, fuller);
        }
    }
    bool *const chosen = f->again; /* scratch until the next evaluation */
    for (int i = 0; i < tights; i++) {
        chosen[tight[i].op] = true;
        chosen[tight[i].op + (tight[i].op + 1 < n)] = true;
    }
    for (int i = 0; i < fulls; i++) {
        chosen[full[i].op] = true;
    }
    for (int i = 1; i < EVEN; i++) {
        chosen[(int64_t)n * i / EVEN] = true;
    }
    for (int o = 0; o < n && count < PLACES; o++) {
        if (chosen[o] && !f->graph->op[o].optional) {
            op[count++] = o;
        }
    }
    return count;
}

/* What is recomputed between two moments and what is recomputed behind the second are different runs: what flows prove
 * of both adds up. The best sequence of moments is a longest path. */
static void chain_intervals(flow *f, ckpt_flow_proof *proof)
{
    int op[PLACES];
    int64_t best[PLACES] = {0};
    const int count = find_places(f, op);
    for (int k = 0; k < count && f->work > 0; k++) {
        for (int i = 0; i < k; i++) {
            const int64_t value = best[i] + prove_interval(f, op[i], op[k]);
            best[k] = value > best[k] ? value : best[k];
        }
        const int64_t whole = best[k] + prove_interval(f, op[k], f->graph->op_count);
        if (best[k] > 0 && whole > proof->time) {
            proof->time = whole;
            proof->split = op[k];
            proof->before = best[k];
        }
    }
}

ckpt_code ckpt_flow_bound(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                          ckpt_flow_proof *proof, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    flow f = {.graph = graph,
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
        if (f.work / graph->op_count > PLACES * PLACES) {
            chain_intervals(&f, proof);
        }
        proof->time >>= f.scale;
        proof->before >>= f.scale;
    }
    ckpt_arena_fini(&scratch);
    return code;
}
