/* Threshold accepting over orders: move one op between its last predecessor and its first successor, measure the whole
 * order again, keep the move unless it costs much. Starts from the reference order or from a greedy one that always
 * runs what leaves least in memory.
 * Source: Dueck, Scheuer: Threshold accepting, Journal of Computational Physics 90, 1990. */
#include "planner/schedule/reorder.h"

#include <string.h>

#include "planner/schedule/ways.h"

enum { TRIES_MIN = 1000, TRIES_AN_OP = 5000, POLL = 64, ROUNDS = 12 };

/* Neighbours of ops: at[from[o]] .. at[from[o + 1] - 1]. */
typedef struct edges {
    int *from, *at;
} edges;

typedef struct sorter {
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    int count;
    size_t uses;
    edges before, after;
    int *order, *place; /* place[order[i]] = i */
    int *last;          /* per buffer: scratch of measure */
    ckpt_bytes *gone;   /* per place: likewise */
    int *movable;
    int movable_count;
    ckpt_bytes floor; /* no order gets below it */
    uint64_t dice;
} sorter;

static int roll(sorter *s, int sides)
{
    s->dice ^= s->dice << 13; /* Marsaglia's xorshift */
    s->dice ^= s->dice >> 7;
    s->dice ^= s->dice << 17;
    return (int)((s->dice >> 33) % (uint64_t)sides);
}

/* ---- what must stand before what ---- */

/* Pairs (first, second), written when `pair` is there, counted always. */
typedef struct pairs {
    int (*pair)[2];
    size_t count;
} pairs;

static void add_pair(pairs *p, int first, int second)
{
    if (first >= 0 && first != second) {
        if (p->pair != NULL) {
            p->pair[p->count][0] = first;
            p->pair[p->count][1] = second;
        }
        p->count++;
    }
}

typedef struct flow {
    int *added;  /* per buffer: the op that last added to it; -1: none */
    int *read;   /* per buffer: the last of the reads since then, an index into `rest`; -1: none */
    int *rest;   /* per read: the one before it */
    int *reader; /* per read */
    int read_count;
    int fixed; /* the last op that may not move */
} flow;

static void add_op(const sorter *s, flow *f, int o, pairs *p)
{
    for (int k = 0; k < ckpt_way_count(s->graph, o); k++) {
        const ckpt_graph_op *const op = &s->graph->op[ckpt_way_run(s->graph, o, k)];
        for (int i = 0; i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            add_pair(p, s->graph->writer[b], o);
            add_pair(p, f->added[b], o);
            f->reader[f->read_count] = o;
            f->rest[f->read_count] = f->read[b];
            f->read[b] = f->read_count++;
        }
        for (int i = 0; i < op->adds.count; i++) {
            const int b = op->adds.at[i];
            add_pair(p, s->graph->writer[b], o);
            add_pair(p, f->added[b], o);
            for (int r = f->read[b]; r >= 0; r = f->rest[r]) {
                add_pair(p, f->reader[r], o);
            }
            f->read[b] = -1;
            f->added[b] = o;
        }
    }
    if (!ckpt_op_may_move(s->graph, o)) {
        add_pair(p, f->fixed, o);
        f->fixed = o;
    }
}

static void add_ops(const sorter *s, flow *f, pairs *p)
{
    p->count = 0;
    f->read_count = 0;
    f->fixed = -1;
    for (int b = 0; b < s->graph->buffer_count; b++) {
        f->added[b] = f->read[b] = -1;
    }
    for (int o = 0; o < s->count; o++) {
        add_op(s, f, o, p);
    }
}

static bool make_edges(const sorter *s, const pairs *p, int side, ckpt_arena *arena, edges *made)
{
    *made = (edges){CKPT_NEW(arena, int, s->count + 2), CKPT_NEW(arena, int, p->count + 1)};
    if (made->from == NULL || made->at == NULL) {
        return false;
    }
    for (size_t i = 0; i < p->count; i++) {
        made->from[p->pair[i][side] + 2]++;
    }
    for (int o = 0; o < s->count; o++) {
        made->from[o + 2] += made->from[o + 1];
    }
    for (size_t i = 0; i < p->count; i++) {
        made->at[made->from[p->pair[i][side] + 1]++] = p->pair[i][1 - side];
    }
    return true;
}

static ckpt_code sorter_init(sorter *s, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *const graph = s->graph;
    const size_t runs = (size_t)graph->op_count + (size_t)graph->variant_count;
    s->count = graph->op_count;
    for (size_t run = 0; run < runs; run++) {
        s->uses += (size_t)graph->op[run].reads.count + (size_t)graph->op[run].adds.count;
    }
    flow f = {.added = CKPT_NEW(arena, int, graph->buffer_count),
              .read = CKPT_NEW(arena, int, graph->buffer_count),
              .rest = CKPT_NEW(arena, int, s->uses),
              .reader = CKPT_NEW(arena, int, s->uses)};
    s->order = CKPT_NEW(arena, int, s->count);
    s->place = CKPT_NEW(arena, int, s->count);
    s->last = CKPT_NEW(arena, int, graph->buffer_count);
    s->gone = CKPT_NEW(arena, ckpt_bytes, s->count + 1);
    s->movable = CKPT_NEW(arena, int, s->count);
    bool enough = f.added != NULL && f.read != NULL && f.rest != NULL && f.reader != NULL && s->order != NULL &&
                  s->place != NULL && s->last != NULL && s->gone != NULL && s->movable != NULL;
    pairs p = {.pair = NULL};
    if (enough) {
        add_ops(s, &f, &p);
        p.pair = ckpt_arena_take(arena, p.count + 1, sizeof *p.pair);
        enough = p.pair != NULL;
    }
    if (enough) {
        add_ops(s, &f, &p);
        enough = make_edges(s, &p, 1, arena, &s->before) && make_edges(s, &p, 0, arena, &s->after);
    }
    for (int o = 0; enough && o < s->count; o++) {
        s->order[o] = s->place[o] = o;
        if (ckpt_op_may_move(graph, o)) {
            s->movable[s->movable_count++] = o;
        }
    }
    return enough ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "orders of %d ops", s->count);
}

/* ---- what an order costs ---- */

/* The peak, and what every op is above the floor: where the peak alone were to count, a move that relieves all ops but
 * one would seem to be worth nothing. */
static double measure(sorter *s, ckpt_bytes *peak)
{
    const ckpt_graph *const graph = s->graph;
    for (int i = 0; i < s->count; i++) {
        const ckpt_graph_op *const op = &graph->op[s->order[i]];
        const ckpt_list *const list[] = {&op->writes, &op->reads, &op->adds};
        for (int l = 0; l < 3; l++) {
            for (int u = 0; u < list[l]->count; u++) {
                s->last[list[l]->at[u]] = i;
            }
        }
        s->gone[i] = 0;
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        s->last[graph->outputs.at[i]] = s->count;
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        s->gone[s->last[b]] += graph->buffer[b].bytes;
    }
    ckpt_bytes live = 0;
    ckpt_bytes most = 0;
    double sum = 0;
    for (int i = 0; i < s->count; i++) {
        const ckpt_graph_op *const op = &graph->op[s->order[i]];
        for (int w = 0; w < op->writes.count; w++) {
            live += graph->buffer[op->writes.at[w]].bytes;
        }
        most = live + op->workspace_bytes > most ? live + op->workspace_bytes : most;
        const ckpt_bytes over = live + op->workspace_bytes - s->floor;
        sum += over > 0 ? (double)over : 0;
        live -= s->gone[i];
    }
    *peak = most;
    return (double)most + sum;
}

/* ---- orders ---- */

/* Move the op at place `from` to place `to`. */
static void shift(sorter *s, int from, int to)
{
    const int step = to > from ? 1 : -1;
    const int o = s->order[from];
    for (int i = from; i != to; i += step) {
        s->order[i] = s->order[i + step];
        s->place[s->order[i]] = i;
    }
    s->order[to] = o;
    s->place[o] = to;
}

/* Bytes that are more in memory behind op o than before it; `wanted`: per buffer, uses still to come. */
static ckpt_bytes growth(const sorter *s, int o, const int *wanted)
{
    const ckpt_graph_op *const op = &s->graph->op[o];
    ckpt_bytes bytes = 0;
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        bytes += wanted[b] > 0 ? s->graph->buffer[b].bytes : 0;
    }
    for (int i = 0; i < op->reads.count; i++) {
        const int b = op->reads.at[i];
        bytes -= wanted[b] == 1 ? s->graph->buffer[b].bytes : 0;
    }
    return bytes;
}

static void count_uses(const sorter *s, int o, int change, int *wanted)
{
    const ckpt_graph_op *const op = &s->graph->op[o];
    for (int i = 0; i < op->reads.count; i++) {
        wanted[op->reads.at[i]] += change;
    }
    for (int i = 0; i < op->adds.count; i++) {
        wanted[op->adds.at[i]] += change;
    }
}

/* Of the ops that may come next, always the one that leaves least in memory; the first of equals. */
static ckpt_code greedy(sorter *s, ckpt_arena *arena, ckpt_err *err)
{
    int *const missing = CKPT_NEW(arena, int, s->count); /* predecessors that have not run */
    int *const ready = CKPT_NEW(arena, int, s->count);
    int *const wanted = CKPT_NEW(arena, int, s->graph->buffer_count);
    int ready_count = 0;
    if (missing == NULL || ready == NULL || wanted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "order of %d ops", s->count);
    }
    for (int i = 0; i < s->graph->outputs.count; i++) {
        wanted[s->graph->outputs.at[i]]++;
    }
    for (int o = 0; o < s->count; o++) {
        count_uses(s, o, 1, wanted);
        missing[o] = s->before.from[o + 1] - s->before.from[o];
        if (missing[o] == 0) {
            ready[ready_count++] = o;
        }
    }
    for (int i = 0; i < s->count; i++) {
        int best = 0;
        ckpt_bytes least = growth(s, ready[0], wanted);
        for (int r = 1; r < ready_count; r++) {
            const ckpt_bytes bytes = growth(s, ready[r], wanted);
            if (bytes < least || (bytes == least && ready[r] < ready[best])) {
                best = r;
                least = bytes;
            }
        }
        const int o = ready[best];
        ready[best] = ready[--ready_count];
        s->order[i] = o;
        s->place[o] = i;
        count_uses(s, o, -1, wanted);
        for (int a = s->after.from[o]; a < s->after.from[o + 1]; a++) {
            if (--missing[s->after.at[a]] == 0) {
                ready[ready_count++] = s->after.at[a];
            }
        }
    }
    return CKPT_OK;
}

static int other_place(sorter *s, int o)
{
    int low = 0;
    int high = s->count - 1;
    for (int i = s->before.from[o]; i < s->before.from[o + 1]; i++) {
        const int place = s->place[s->before.at[i]] + 1;
        low = place > low ? place : low;
    }
    for (int i = s->after.from[o]; i < s->after.from[o + 1]; i++) {
        const int place = s->place[s->after.at[i]] - 1;
        high = place < high ? place : high;
    }
    if (roll(s, 2) == 0) { /* near */
        low = s->place[o] - 8 > low ? s->place[o] - 8 : low;
        high = s->place[o] + 8 < high ? s->place[o] + 8 : high;
    }
    return low + roll(s, high - low + 1);
}

static void go_to(sorter *s, const int *order)
{
    memcpy(s->order, order, (size_t)s->count * sizeof *order);
    for (int i = 0; i < s->count; i++) {
        s->place[order[i]] = i;
    }
}

/* From the best order, which is replaced by what costs less. */
static void accept_thresholds(sorter *s, int64_t tries, double hot, int *best)
{
    ckpt_bytes peak = 0;
    go_to(s, best);
    double now = measure(s, &peak);
    double least = now;
    hot *= now;
    for (int64_t i = 0; i < tries; i++) {
        const int o = s->movable[roll(s, s->movable_count)];
        const int from = s->place[o];
        const int to = other_place(s, o);
        if (to != from) {
            shift(s, from, to);
            const double next = measure(s, &peak);
            const double heat = hot * (double)(tries - i) / (double)tries;
            if (next <= now + heat * roll(s, 1 << 20) / (1 << 20)) {
                now = next;
            } else {
                shift(s, to, from);
            }
        }
        if (now < least) {
            least = now;
            memcpy(best, s->order, (size_t)s->count * sizeof *best);
        }
        if (i % POLL == 0 && ckpt_plan_stopped(s->options)) {
            break;
        }
    }
}

static ckpt_code find(sorter *s, ckpt_arena *arena, int *best, bool *better, ckpt_err *err)
{
    /* Uses of buffers that are looked at: about 0.01, 0.5, 5 and 25 s. */
    static const int64_t work[] = {2000000, 150000000, 1500000000, INT64_C(7500000000)};
    static const double heats[] = {0.4, 0.1, 0.025}; /* thresholds at first, as parts of the cost */
    ckpt_bytes reference = 0;
    ckpt_bytes peak = 0;
    CKPT_TRY(sorter_init(s, arena, err));
    double least = measure(s, &reference);
    memcpy(best, s->order, (size_t)s->count * sizeof *best);
    const int64_t paid = work[ckpt_effort(s->options)];
    if (s->movable_count == 0) {
        return CKPT_OK;
    }
    if ((int64_t)s->count * s->count < paid) {
        CKPT_TRY(greedy(s, arena, err));
        const double cost = measure(s, &peak);
        if (cost < least) {
            least = cost;
            memcpy(best, s->order, (size_t)s->count * sizeof *best);
        }
    }
    const int64_t most = (int64_t)s->movable_count * TRIES_AN_OP;
    int64_t tries = paid / (int64_t)(s->uses + 2 * (size_t)s->count);
    tries = tries < most ? tries : most;
    for (int round = 0; round < ROUNDS && tries >= TRIES_MIN; round++) {
        accept_thresholds(s, tries / ROUNDS, heats[round % 3], best);
    }
    go_to(s, best);
    (void)measure(s, &peak);
    *better = peak < reference;
    return CKPT_OK;
}

ckpt_code ckpt_reorder_find(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                            const int **order, bool *better, ckpt_err *err)
{
    int *const best = CKPT_NEW(out, int, graph->op_count);
    *better = false;
    if (best == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "order of %d ops", graph->op_count);
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    sorter s = {
        .graph = graph, .options = options, .dice = UINT64_C(0x9e3779b97f4a7c15), .floor = ckpt_reorder_floor(graph)};
    const ckpt_code code = graph->op_count > 0 ? find(&s, &arena, best, better, err) : CKPT_OK;
    ckpt_arena_fini(&arena);
    *order = best;
    return code;
}

ckpt_code ckpt_reorder_graph(const ckpt_graph *graph, const int *order, ckpt_arena *out, const ckpt_graph **made,
                             ckpt_err *err)
{
    ckpt_graph *const copy = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, out);
    int *const place = CKPT_NEW(out, int, graph->op_count);
    int *const writer = CKPT_NEW(out, int, graph->buffer_count);
    if (copy == NULL || op == NULL || place == NULL || writer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "another order of %d ops", graph->op_count);
    }
    for (int i = 0; i < graph->op_count; i++) {
        op[i] = graph->op[order[i]];
        place[order[i]] = i;
    }
    for (int v = 0; v < graph->variant_count; v++) {
        op[graph->op_count + v].base = place[graph->op[graph->op_count + v].base];
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        writer[b] = place[graph->writer[b]];
    }
    *copy = *graph;
    copy->op = op;
    copy->writer = writer;
    *made = copy;
    return CKPT_OK;
}

ckpt_bytes ckpt_reorder_floor(const ckpt_graph *graph)
{
    ckpt_bytes floor = 0;
    for (int o = 0; o < graph->op_count; o++) {
        ckpt_bytes need = graph->op[o].optional ? 0 : CKPT_BYTES_MAX;
        for (int k = 0; k < ckpt_way_count(graph, o); k++) {
            const ckpt_graph_op *const op = &graph->op[ckpt_way_run(graph, o, k)];
            ckpt_bytes bytes = op->workspace_bytes;
            for (int i = 0; i < op->reads.count; i++) {
                bytes += graph->buffer[op->reads.at[i]].bytes;
            }
            for (int i = 0; i < op->writes.count; i++) {
                bytes += graph->buffer[op->writes.at[i]].bytes;
            }
            for (int i = 0; i < op->inplace_count; i++) {
                bytes -= graph->buffer[op->inplace[i].in].bytes;
            }
            need = bytes < need ? bytes : need;
        }
        floor = need > floor ? need : floor;
    }
    return floor;
}
