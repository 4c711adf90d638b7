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

enum {
    MOMENTS_MAX = 8,
    LAMBDA_MAX = 1 << 18,
    GUESS = 1 << 11, /* where the search for the first multiplier begins */
    SHIFT_MAX = 40,
    SCALE_MAX = 12,
};

/* What flows is at most this, so that sums of a few stay within 63 bits. */
#define FLOW_MAX ((int64_t)1 << 57)
#define WORK     ((int64_t)1 << 24) /* at the lowest effort */

typedef struct flow {
    ckpt_uses uses;
    ckpt_bytes *capacity; /* per op: what is left at its first run beside what it needs and what is fixed */
    int moment[MOMENTS_MAX], moments;
    int64_t lambda[MOMENTS_MAX]; /* multipliers, in 2^-(scale + shift) ns per byte */
    int scale, shift;
    /* per buffer */
    unsigned char *until; /* moments at or before its last first use */
    unsigned char *asked; /* an op that is recomputed reads it behind that */
    int64_t *read;        /* the part of `lambda` that it does not pay, as the moment's op reads it; else 0 */
    int64_t *d;
    /* per op */
    int64_t *c, *room, *in; /* room: what it may take in */
    ckpt_bytes *change;
    bool *again;                                       /* recomputed in the cut at hand */
    ckpt_bytes held[MOMENTS_MAX], excess[MOMENTS_MAX]; /* what the cut holds at a moment, beyond the capacity */
    int64_t best;
    int64_t work; /* left for more than one moment */
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

/* u is read by an op whose next moment is k. */
static bool passes(const flow *f, int u, int k)
{
    const ckpt_graph *const g = f->uses.graph;
    return f->until[u] <= k && g->op[g->writer[u]].recompute;
}

/* c, d and room, from the first op on. */
static void prepare(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    int64_t sum[MOMENTS_MAX + 1] = {0};
    for (int i = 0; i < f->moments; i++) {
        sum[i + 1] = sum[i] + f->lambda[i];
    }
    for (int o = 0, k = 0; o < f->moment[f->moments - 1]; o++) {
        const ckpt_graph_op *const op = &g->op[o];
        k += o >= f->moment[k];
        f->c[o] = f->room[o] = f->in[o] = 0;
        if (!op->recompute) {
            continue;
        }
        for (int i = 0; i < op->writes.count; i++) {
            const int v = op->writes.at[i], until = f->until[v];
            f->c[o] = least(f->c[o] + price(f, g->buffer[v].bytes, sum[until] - sum[k] - f->read[v]), FLOW_MAX);
            f->d[v] = until < f->moments ? price(f, g->buffer[v].bytes, f->lambda[until]) : 0;
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
    const ckpt_graph *const g = f->uses.graph;
    const ckpt_list *const reads = &g->op[o].reads;
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
    const ckpt_graph *const g = f->uses.graph;
    for (int i = 0; i < g->op[o].writes.count; i++) {
        const int v = g->op[o].writes.at[i], until = f->until[v] + f->asked[v];
        for (int m = k; m < until; m++) {
            f->held[m] += g->buffer[v].bytes;
        }
    }
}

/* What the ops of the moments read is in memory then for nothing. */
static void mark_reads(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    for (int i = 0; i < f->moments; i++) {
        const ckpt_list *const reads = &g->op[f->moment[i]].reads;
        for (int r = 0; r < reads->count; r++) {
            f->read[reads->at[r]] += f->lambda[i];
        }
    }
}

static void unmark_reads(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    for (int i = 0; i < f->moments; i++) {
        const ckpt_list *const reads = &g->op[f->moment[i]].reads;
        f->excess[i] = -f->capacity[f->moment[i]];
        for (int r = 0; r < reads->count; r++) {
            const int w = g->writer[reads->at[r]];
            f->read[reads->at[r]] = 0;
            f->excess[i] -= g->op[w].recompute && !f->again[w] ? g->buffer[reads->at[r]].bytes : 0;
        }
    }
}

/* A flow, from the last op on, each op's surplus pushed where there is room; what reaches the sink, less what the
 * capacities cost, is a bound on the time. */
static void evaluate(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    int64_t value = 0;
    memset(f->held, 0, sizeof f->held);
    mark_reads(f);
    prepare(f);
    for (int o = f->moment[f->moments - 1] - 1, k = f->moments - 1; o >= 0; o--) {
        const ckpt_graph_op *const op = &g->op[o];
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
    }
    unmark_reads(f);
    for (int i = 0; i < f->moments; i++) {
        f->excess[i] += f->held[i];
        value -= price(f, f->capacity[f->moment[i]], f->lambda[i]) + 1;
    }
    f->best = value > f->best ? value : f->best;
    const int64_t work = 8 * (int64_t)f->moment[f->moments - 1];
    f->work = ckpt_poll_stopped(&f->poll, work) ? 0 : f->work - work;
}

/* The multiplier at which the cut holds no more at moment i than there is room for, others as they are: there the
 * bound, which is concave but for how well the flow is chosen, is highest. */
static void climb(flow *f, int i)
{
    int64_t low = 0, high = LAMBDA_MAX;
    while (high - low > 1 && high - low > low >> 9 && !f->poll.stopped && (f->moments == 1 || f->work > 0)) {
        f->lambda[i] = low + (high - low) / 2;
        evaluate(f);
        *(f->excess[i] > 0 ? &low : &high) = f->lambda[i];
    }
    f->lambda[i] = high;
}

/* The op at whose first run the cut at hand (at first: everything held) needs most beyond what there is; -1: none. */
static int find_moment(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    memset(f->change, 0, ((size_t)g->op_count + 2) * sizeof *f->change);
    for (int v = 0; v < g->buffer_count; v++) {
        const int w = g->writer[v];
        if (g->op[w].recompute && !f->again[w]) {
            const int asked = f->asked[v] ? f->moment[f->until[v]] : 0;
            f->change[w + 1] += g->buffer[v].bytes;
            f->change[(asked > f->uses.last[v] ? asked : f->uses.last[v]) + 1] -= g->buffer[v].bytes;
        }
    }
    ckpt_bytes bytes = 0, most = 0;
    int found = -1;
    for (int o = 0; o < g->op_count; o++) {
        bytes += f->change[o];
        ckpt_bytes more = bytes - f->capacity[o];
        for (int i = 0; i < g->op[o].reads.count && more > most; i++) {
            const int u = g->op[o].reads.at[i], w = g->writer[u];
            more -= g->op[w].recompute && !f->again[w] ? g->buffer[u].bytes : 0;
        }
        if (more > most) {
            most = more;
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
    const ckpt_graph *const g = f->uses.graph;
    for (int v = 0; v < g->buffer_count; v++) {
        f->until[v] = (unsigned char)(f->until[v] + (f->uses.last[v] >= o));
        f->asked[v] = false;
    }
    return true;
}

/* The first multiplier: its size is not known yet. */
static void climb_first(flow *f)
{
    const ckpt_graph *const g = f->uses.graph;
    double time = 1, bytes = 1;
    for (int o = 0; o < f->moment[0]; o++) {
        time += g->op[o].recompute ? (double)(g->op[o].time_ns << f->scale) : 0;
    }
    for (int v = 0; v < g->buffer_count; v++) {
        bytes += f->until[v] > 0 && g->op[g->writer[v]].recompute ? (double)g->buffer[v].bytes : 0;
    }
    for (double density = time / bytes; density < GUESS && f->shift < SHIFT_MAX; density *= 2) {
        f->shift++;
    }
    for (double density = time / bytes; density > 2 * GUESS && f->shift > -SHIFT_MAX; density /= 2) {
        f->shift--;
    }
    climb(f, 0);
    for (int round = 0; round < 4 && f->lambda[0] == LAMBDA_MAX && f->shift > 6 - SHIFT_MAX; round++) {
        f->shift -= 6;
        climb(f, 0);
    }
    for (int round = 0; round < 4 && f->lambda[0] < 64 && f->shift < SHIFT_MAX - 6; round++) {
        f->shift += 6;
        climb(f, 0);
    }
}

static ckpt_code flow_init(flow *f, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *scratch, ckpt_err *err)
{
    const size_t buffers = (size_t)graph->buffer_count, ops = (size_t)graph->op_count;
    CKPT_TRY(ckpt_uses_find(graph, scratch, &f->uses, err));
    f->until = CKPT_NEW(scratch, unsigned char, buffers);
    f->asked = CKPT_NEW(scratch, unsigned char, buffers);
    f->read = CKPT_NEW(scratch, int64_t, buffers);
    f->d = CKPT_NEW(scratch, int64_t, buffers);
    f->c = CKPT_NEW(scratch, int64_t, ops);
    f->room = CKPT_NEW(scratch, int64_t, ops);
    f->in = CKPT_NEW(scratch, int64_t, ops);
    f->again = CKPT_NEW(scratch, bool, ops);
    f->capacity = CKPT_NEW(scratch, ckpt_bytes, ops);
    f->change = CKPT_NEW(scratch, ckpt_bytes, ops + 2);
    if (f->until == NULL || f->asked == NULL || f->read == NULL || f->d == NULL || f->c == NULL || f->room == NULL ||
        f->in == NULL || f->again == NULL || f->capacity == NULL || f->change == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a flow over %d ops", graph->op_count);
    }
    ckpt_uses_changes(&f->uses, f->change);
    ckpt_bytes fixed = 0;
    int64_t first_runs = 0;
    for (int o = 0; o < graph->op_count; o++) {
        fixed += f->change[o];
        f->capacity[o] = limit - fixed - ckpt_uses_beside(&f->uses, o);
        first_runs += graph->op[o].time_ns;
    }
    while (f->scale < SCALE_MAX && first_runs < FLOW_MAX >> (f->scale + 1)) {
        f->scale++;
    }
    return CKPT_OK;
}

/* Moments are added where the cut asks for too much, as long as that raises the bound and work is left. */
static void climb_all(flow *f)
{
    int found = find_moment(f);
    if (found < 0) {
        return;
    }
    add_moment(f, found);
    climb_first(f);
    int64_t before = 0;
    while (f->best > before && f->work > 0 && (found = find_moment(f)) >= 0 && add_moment(f, found)) {
        before = f->best;
        for (int i = f->moments - 1; i >= 0; i--) {
            climb(f, i);
        }
        for (int i = 0; i < f->moments; i++) {
            climb(f, i);
        }
    }
}

ckpt_code ckpt_flow_bound(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_ns *time,
                          ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    flow f = {.work = WORK << 2 * ckpt_effort(options), .poll = {.options = options}};
    const ckpt_code code = flow_init(&f, graph, limit, &scratch, err);
    if (code == CKPT_OK) {
        climb_all(&f);
    }
    *time = f.best >> f.scale;
    ckpt_arena_fini(&scratch);
    return code;
}
