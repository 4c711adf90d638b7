/* Dynamic tensor rematerialization: the reference order is run once, and whenever memory is full the buffer with the
 * lowest h = cost / (bytes * staleness) goes; what is read and gone is recomputed on the spot.
 *
 *   cost       of a buffer: its op's time and that of the evicted buffers next to it, transitively. Their sums are kept
 *              in a union-find; a buffer that comes back leaves its sum, but the set is not split ("h_DTR^eq").
 *   staleness  time since a run last read or wrote it
 *
 * What the step has read for the last time goes at once and counts as evicted: recomputing others may need it.
 * What is needed for nothing any more is forgotten. Departure: the paper sees references being dropped, here the last
 * use is known, which comes to the same. A buffer counts from its run until it is evicted;
 * the true peak may be lower. */
#include "planner/baselines/retain_impl.h"

enum {
    BISECTIONS = 10,    /* replays that look for the least memory */
    THRASH = 16,        /* a replay gives up when that many runs per op are recomputations */
    COMPARED_MAX = 256, /* buffers compared for one eviction; of more a sample, as the paper does */
};

typedef struct dtr {
    const ckpt_graph *graph;
    ckpt_order *order;
    /* per buffer: readers of b are reader[first_reader[b]] .. reader[first_reader[b + 1] - 1] */
    int *first_reader, *reader;
    int *last_use;  /* last op in reference order that uses it; op_count: an output of the step */
    int *last_need; /* the same, and counting recomputations of others until then */
    int *ending;    /* per op: buffers that are needed for the last time, by_need[ending[o]] .. */
    int *by_need;

    ckpt_bytes limit, live;
    ckpt_ns clock;
    int64_t runs_left;
    bool *in;  /* per buffer: in memory */
    int *pins; /* per buffer: more than 0: must not go */
    ckpt_ns *used_at;
    int *resident, *resident_at; /* what is in memory and may be recomputed; where each stands; -1 */
    int resident_count, offset;

    int *set;     /* per buffer: the set of its last eviction; -1: none */
    int *parent;  /* per set: union-find */
    double *cost; /* per root: time of its evicted buffers */
    int *seen_at; /* per root: the count it was last added up in */
    int set_count, set_max, seen;

    int *stack, *next; /* ops being recomputed, and which of its reads each has come to */
} dtr;

static int find_root(const dtr *d, int set)
{
    while (d->parent[set] != set) {
        d->parent[set] = d->parent[d->parent[set]];
        set = d->parent[set];
    }
    return set;
}

static double own_cost(const dtr *d, int b)
{
    return (double)d->graph->op[d->graph->writer[b]].time_ns;
}

static bool is_evicted(const dtr *d, int b)
{
    return !d->in[b] && d->set[b] >= 0;
}

/* Of an evicted neighbour: the sum of its set, once per count; or its set becomes part of `into`. */
static double visit(dtr *d, int neighbour, int into)
{
    if (!is_evicted(d, neighbour)) {
        return 0;
    }
    const int root = find_root(d, d->set[neighbour]);
    const int target = into >= 0 ? find_root(d, into) : root;
    if (target != root) {
        d->parent[root] = target;
        d->cost[target] += d->cost[root];
    }
    if (into >= 0 || d->seen_at[root] == d->seen) {
        return 0;
    }
    d->seen_at[root] = d->seen;
    return d->cost[root];
}

/* The sums of the sets next to b; or, into >= 0, those sets joined with that one. */
static double visit_neighbours(dtr *d, int b, int into)
{
    const ckpt_list *const reads = &d->graph->op[d->graph->writer[b]].reads;
    double sum = 0;
    d->seen++;
    for (int i = 0; i < reads->count; i++) {
        sum += visit(d, reads->at[i], into);
    }
    for (int r = d->first_reader[b]; r < d->first_reader[b + 1]; r++) {
        const ckpt_list *const writes = &d->graph->op[d->reader[r]].writes;
        for (int i = 0; i < writes->count; i++) {
            sum += visit(d, writes->at[i], into);
        }
    }
    return sum;
}

static void leave(dtr *d, int b)
{
    d->in[b] = false;
    d->live -= d->graph->buffer[b].bytes;
    if (d->resident_at[b] >= 0) {
        const int last = d->resident[--d->resident_count];
        d->resident[d->resident_at[b]] = last;
        d->resident_at[last] = d->resident_at[b];
        d->resident_at[b] = -1;
    }
}

static bool evict(dtr *d, int b)
{
    if (d->set_count == d->set_max) {
        return false;
    }
    leave(d, b);
    const int set = d->set_count++;
    d->parent[set] = set;
    d->cost[set] = own_cost(d, b);
    d->seen_at[set] = 0;
    visit_neighbours(d, b, set);
    d->set[b] = set;
    return true;
}

/* Out of the sum of the set it was evicted into. */
static void leave_set(dtr *d, int b)
{
    if (is_evicted(d, b)) {
        d->cost[find_root(d, d->set[b])] -= own_cost(d, b);
    }
    d->set[b] = -1;
}

static void enter(dtr *d, int b)
{
    leave_set(d, b);
    d->in[b] = true;
    d->live += d->graph->buffer[b].bytes;
    if (d->graph->op[d->graph->writer[b]].recompute && d->graph->buffer[b].bytes > 0) {
        d->resident_at[b] = d->resident_count;
        d->resident[d->resident_count++] = b;
    }
}

static double rate(dtr *d, int b)
{
    const double staleness = (double)(d->clock - d->used_at[b]) + 1;
    return (own_cost(d, b) + visit_neighbours(d, b, -1)) / ((double)d->graph->buffer[b].bytes * staleness);
}

/* The buffer to evict among every `stride`-th; -1: all of them are pinned. */
static int choose(dtr *d, int from, int stride)
{
    int best = -1;
    double best_rate = 0;
    for (int i = from; i < d->resident_count; i += stride) {
        const int b = d->resident[i];
        const double h = d->pins[b] == 0 ? rate(d, b) : 0;
        if (d->pins[b] == 0 && (best < 0 || h < best_rate || (h == best_rate && b < best))) {
            best = b;
            best_rate = h;
        }
    }
    return best;
}

/* Evict until `bytes` more fit. */
static bool make_room(dtr *d, ckpt_bytes bytes)
{
    while (d->live > d->limit - bytes) {
        const int stride = 1 + d->resident_count / COMPARED_MAX;
        d->offset = (d->offset + 1) % stride;
        int b = choose(d, d->offset, stride);
        b = b < 0 && stride > 1 ? choose(d, 0, 1) : b;
        if (b < 0 || !evict(d, b)) {
            return false;
        }
    }
    return true;
}

static void pin(dtr *d, const ckpt_list *list, int change)
{
    for (int i = 0; i < list->count; i++) {
        d->pins[list->at[i]] += change;
    }
}

/* Run an op whose reads are in memory and pinned. What it writes and is still there is written in its place. */
static bool run(dtr *d, int o)
{
    const ckpt_graph_op *const op = &d->graph->op[o];
    ckpt_bytes bytes = op->workspace_bytes;
    for (int i = 0; i < op->writes.count; i++) {
        bytes += d->in[op->writes.at[i]] ? 0 : d->graph->buffer[op->writes.at[i]].bytes;
    }
    pin(d, &op->writes, 1);
    const bool room = bytes <= d->limit && make_room(d, bytes);
    pin(d, &op->writes, -1);
    if (!room || d->runs_left-- <= 0 || !ckpt_sum(d->clock, op->time_ns, &d->clock)) {
        return false;
    }
    ckpt_order_add(d->order, o);
    for (int i = 0; i < op->writes.count; i++) {
        if (!d->in[op->writes.at[i]]) {
            enter(d, op->writes.at[i]);
        }
        d->used_at[op->writes.at[i]] = d->clock;
    }
    for (int i = 0; i < op->reads.count; i++) {
        d->used_at[op->reads.at[i]] = d->clock;
    }
    return true;
}

/* Of `list` what reference op `now` was the last to use goes, when it can be recomputed. */
static bool drop_unread(dtr *d, int now, const ckpt_list *list)
{
    bool done = true;
    for (int i = 0; i < list->count; i++) {
        const int b = list->at[i];
        if (d->in[b] && d->last_use[b] <= now && d->graph->op[d->graph->writer[b]].recompute) {
            done = evict(d, b) && done;
        }
    }
    return done;
}

static bool let_go(dtr *d, int now)
{
    const ckpt_graph_op *const op = &d->graph->op[now];
    for (int i = d->ending[now]; i < d->ending[now + 1]; i++) {
        const int b = d->by_need[i];
        leave_set(d, b);
        if (d->in[b]) {
            leave(d, b);
        }
    }
    return drop_unread(d, now, &op->reads) && drop_unread(d, now, &op->writes);
}

/* Run reference op `o`, after recomputing what it reads and is gone. */
static bool step(dtr *d, int o)
{
    int depth = 0;
    d->stack[0] = o;
    d->next[0] = 0;
    while (depth >= 0) {
        const int top = d->stack[depth];
        const ckpt_list *const reads = &d->graph->op[top].reads;
        if (d->next[depth] == reads->count) {
            if (!run(d, top)) {
                return false;
            }
            pin(d, reads, -1);
            depth--;
        } else if (d->in[reads->at[d->next[depth]]]) {
            d->pins[reads->at[d->next[depth]++]]++;
        } else {
            d->stack[depth + 1] = d->graph->writer[reads->at[d->next[depth]]];
            d->next[++depth] = 0;
        }
    }
    return let_go(d, o);
}

/* The reference order under `limit`. Gives whether it came to its end; d->order is empty when not. */
static bool replay(dtr *d, ckpt_bytes limit)
{
    const ckpt_graph *const graph = d->graph;
    d->limit = limit;
    d->live = 0;
    d->clock = 0;
    d->resident_count = d->offset = d->set_count = d->seen = 0;
    d->runs_left = (int64_t)(THRASH + 1) * graph->op_count;
    for (int b = 0; b < graph->buffer_count; b++) {
        d->in[b] = false;
        d->pins[b] = d->last_use[b] == graph->op_count; /* what must be there at the end stays */
        d->resident_at[b] = d->set[b] = -1;
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (!step(d, o)) {
            d->order->count = 0;
            return false;
        }
    }
    return true;
}

static void find_needs(dtr *d)
{
    const ckpt_graph *const graph = d->graph;
    for (int i = 0; i < graph->outputs.count; i++) {
        d->last_use[graph->outputs.at[i]] = d->last_need[graph->outputs.at[i]] = graph->op_count;
    }
    for (int o = graph->op_count - 1; o >= 0; o--) {
        const ckpt_graph_op *const op = &graph->op[o];
        const ckpt_list *const used[] = {&op->writes, &op->adds, &op->reads};
        int need = o;
        for (int l = 0; l < 3; l++) {
            for (int i = 0; i < used[l]->count; i++) {
                const int b = used[l]->at[i];
                d->last_use[b] = d->last_use[b] > o ? d->last_use[b] : o;
                d->last_need[b] = d->last_need[b] > need ? d->last_need[b] : need;
                need = l == 0 && op->recompute && d->last_need[b] > need ? d->last_need[b] : need;
            }
        }
    }
}

/* Counting sorts: buffers by last need, uses by buffer. */
static void sort_uses(dtr *d)
{
    const ckpt_graph *const graph = d->graph;
    for (int b = 0; b < graph->buffer_count; b++) {
        d->ending[d->last_need[b]]++;
    }
    for (int o = 1; o <= graph->op_count; o++) {
        d->ending[o] += d->ending[o - 1];
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        d->by_need[--d->ending[d->last_need[b]]] = b;
    }
    for (int round = 0; round < 2; round++) {
        for (int o = 0; o < graph->op_count; o++) {
            for (int i = 0; i < graph->op[o].reads.count; i++) {
                const int b = graph->op[o].reads.at[i];
                if (round == 0) {
                    d->first_reader[b]++;
                } else {
                    d->reader[--d->first_reader[b]] = o;
                }
            }
        }
        for (int b = 0; round == 0 && b < graph->buffer_count; b++) {
            d->first_reader[b + 1] += d->first_reader[b];
        }
    }
}

static ckpt_code prepare(dtr *d, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = d->graph;
    const size_t buffers = (size_t)graph->buffer_count;
    const size_t ops = (size_t)graph->op_count;
    size_t reads = 0;
    for (int o = 0; o < graph->op_count; o++) {
        reads += (size_t)graph->op[o].reads.count;
    }
    const size_t sets = (THRASH + 2) * buffers;
    d->first_reader = CKPT_NEW(scratch, int, buffers + 1);
    d->reader = CKPT_NEW(scratch, int, reads);
    d->last_use = CKPT_NEW(scratch, int, buffers);
    d->last_need = CKPT_NEW(scratch, int, buffers);
    d->ending = CKPT_NEW(scratch, int, ops + 2);
    d->by_need = CKPT_NEW(scratch, int, buffers);
    d->in = CKPT_NEW(scratch, bool, buffers);
    d->pins = CKPT_NEW(scratch, int, buffers);
    d->used_at = CKPT_NEW(scratch, ckpt_ns, buffers);
    d->resident = CKPT_NEW(scratch, int, buffers);
    d->resident_at = CKPT_NEW(scratch, int, buffers);
    d->set = CKPT_NEW(scratch, int, buffers);
    d->parent = CKPT_NEW(scratch, int, sets);
    d->cost = CKPT_NEW(scratch, double, sets);
    d->seen_at = CKPT_NEW(scratch, int, sets);
    d->stack = CKPT_NEW(scratch, int, ops);
    d->next = CKPT_NEW(scratch, int, ops);
    if (reads > (size_t)1 << 30 || sets > (size_t)1 << 30) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%d ops use more than 2^30 buffers", graph->op_count);
    }
    if (d->first_reader == NULL || d->reader == NULL || d->last_use == NULL || d->last_need == NULL ||
        d->ending == NULL || d->by_need == NULL || d->in == NULL || d->pins == NULL || d->used_at == NULL ||
        d->resident == NULL || d->resident_at == NULL || d->set == NULL || d->parent == NULL || d->cost == NULL ||
        d->seen_at == NULL || d->stack == NULL || d->next == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "evictions among %d buffers", graph->buffer_count);
    }
    d->set_max = (int)sets;
    find_needs(d);
    sort_uses(d);
    return CKPT_OK;
}

/* Under the limit, and under less and less memory for the least that will do. */
static ckpt_code plan_evictions(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                ckpt_order *order, ckpt_arena *scratch, ckpt_arena *out, ckpt_candidates *candidates,
                                ckpt_err *err)
{
    dtr d = {.graph = graph, .order = order};
    const ckpt_bytes whole = candidates->min_peak.peak;
    CKPT_TRY(prepare(&d, scratch, err));
    if (replay(&d, limit)) {
        CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
    }
    ckpt_bytes low = 0;
    ckpt_bytes high = whole;
    for (int i = 0; i < BISECTIONS && low < high && !ckpt_plan_stopped(options); i++) {
        const ckpt_bytes middle = low + (high - low) / 2;
        if (replay(&d, middle)) {
            CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
            high = middle;
        } else {
            low = middle;
        }
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    return ckpt_keep_or_drop(graph, limit, options, plan_evictions, out, candidates, err);
}

const ckpt_strategy ckpt_strategy_dtr = {
    .name = "dtr",
    .help = "run the step once and evict whatever is stale, large and cheap whenever memory is full, as DTR does",
    .source = "Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock: Dynamic tensor rematerialization, "
              "ICLR 2021, heuristic h_DTR^eq",
    .budgeted = true,
    .baseline = true,
    .plan = plan,
};
