/* Copies for the buffers that the user wants offloaded: the input of a unit that is recomputed, the results of any
 * other layer. A buffer leaves memory in the longest pause between two of its uses. Its offload starts after the last
 * use before the pause. Its memory is freed when the copy has ended, by the times of the runs alone. Its fetch starts
 * as late as it can and still arrive in time. Each direction makes one copy at a time. Where the pause is too short for
 * both copies, compute waits. */
#include <stdlib.h>
#include <string.h>

#include "planner/directives/flags.h"
#include "planner/replay/clock.h"

typedef struct pause {
    int buffer, from, to; /* the entries of the two uses */
    int free_at, fetch_at;
} pause;

typedef struct copier {
    const ckpt_graph *graph;
    const ckpt_order *order;
    bool *away;      /* per buffer: it is to be offloaded */
    int *last, *end; /* per buffer: its use before; 1: its first live range is over */
    pause *best;     /* per buffer: to 0: none */
    ckpt_ns *start;  /* per entry, and of the end */
    pause *made;
    int made_count;
} copier;

/* The outermost unit around an op; NULL: none. */
static const char *outermost(const ckpt_graph_op *op, size_t *length)
{
    const bool in_one = op->phase == CKPT_FORWARD && op->checkpoint == CKPT_YES;
    const char *const name = !in_one ? NULL : op->segment != NULL ? op->segment : op->name;
    *length = name == NULL ? 0 : op->segment != NULL ? strcspn(name, "/") : strlen(name);
    return name;
}

static bool same_unit(const ckpt_graph_op *a, const ckpt_graph_op *b)
{
    size_t length[2];
    const char *const x = outermost(a, &length[0]);
    const char *const y = outermost(b, &length[1]);
    return x != NULL && y != NULL && length[0] == length[1] && strncmp(x, y, length[0]) == 0;
}

static void find_away(copier *c)
{
    const ckpt_graph *const graph = c->graph;
    size_t length = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        const bool unit = outermost(op, &length) != NULL;
        for (int i = 0; op->offload == CKPT_YES && unit && i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            c->away[b] = c->away[b] || !same_unit(op, &graph->op[graph->writer[b]]);
        }
        for (int i = 0; op->offload == CKPT_YES && !unit && i < op->writes.count; i++) {
            c->away[op->writes.at[i]] = true;
        }
    }
    for (int o = 0; o < graph->op_count; o++) {
        for (int i = 0; i < graph->op[o].adds.count; i++) {
            c->away[graph->op[o].adds.at[i]] = false; /* the host would have to be told every addition */
        }
    }
    for (int t = 0; t < c->order->count; t++) {
        int buffer = 0;
        if (ckpt_sequence_kind(c->order->op[t], &buffer) != CKPT_RUN) {
            c->away[buffer] = false; /* it is copied already */
        }
    }
}

static void use(copier *c, int buffer, int t)
{
    pause *const best = &c->best[buffer];
    if (c->away[buffer] && c->end[buffer] == 0) {
        const int before = c->last[buffer];
        const bool longer =
            before >= 0 && t > before + 1 &&
            (best->to == 0 || c->start[t] - c->start[before + 1] > c->start[best->to] - c->start[best->from + 1]);
        *best = longer ? (pause){.buffer = buffer, .from = before, .to = t} : *best;
    }
    c->last[buffer] = t;
}

static void find_pauses(copier *c)
{
    for (int b = 0; b < c->graph->buffer_count; b++) {
        c->last[b] = -1;
    }
    for (int t = 0; t < c->order->count; t++) {
        int run = 0;
        c->start[t + 1] = c->start[t];
        if (ckpt_sequence_kind(c->order->op[t], &run) == CKPT_RUN) {
            ckpt_ns next = 0;
            c->start[t + 1] = ckpt_sum(c->start[t], c->graph->op[run].time_ns, &next) ? next : c->start[t];
        }
    }
    for (int t = 0; t < c->order->count; t++) {
        int run = 0;
        if (ckpt_sequence_kind(c->order->op[t], &run) != CKPT_RUN) {
            continue;
        }
        const ckpt_graph_op *const op = &c->graph->op[run];
        for (int i = 0; i < op->reads.count; i++) {
            use(c, op->reads.at[i], t);
        }
        for (int i = 0; i < op->writes.count; i++) {
            c->end[op->writes.at[i]] += c->last[op->writes.at[i]] >= 0;
            use(c, op->writes.at[i], t);
        }
    }
    for (int b = 0; b < c->graph->buffer_count; b++) {
        if (c->best[b].to > 0 && c->graph->buffer[b].bytes > 0) {
            c->made[c->made_count++] = c->best[b];
        }
    }
}

static int by_from(const void *a, const void *b)
{
    const pause *const x = a;
    const pause *const y = b;
    return x->from != y->from ? x->from - y->from : x->buffer - y->buffer;
}

static int by_to(const void *a, const void *b)
{
    const pause *const x = a;
    const pause *const y = b;
    return x->to != y->to ? y->to - x->to : x->buffer - y->buffer;
}

static ckpt_code place_copies(copier *c, ckpt_err *err)
{
    const size_t count = (size_t)c->made_count;
    ckpt_ns copy = 0;
    ckpt_ns engine = 0;
    qsort(c->made, count, sizeof *c->made, by_from);
    for (int i = 0; i < c->made_count; i++) {
        pause *const p = &c->made[i];
        const ckpt_ns ready = c->start[p->from + 1];
        if (!ckpt_copy_time(c->graph->buffer[p->buffer].bytes, c->graph->d2h_bytes_per_s, &copy) ||
            !ckpt_sum(engine > ready ? engine : ready, copy, &engine)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "copies of more than 2^63 ns");
        }
        p->free_at = p->from + 1;
        while (p->free_at < p->to && c->start[p->free_at] < engine) {
            p->free_at++;
        }
    }
    qsort(c->made, count, sizeof *c->made, by_to);
    engine = c->start[c->order->count];
    for (int i = 0; i < c->made_count; i++) {
        pause *const p = &c->made[i];
        if (!ckpt_copy_time(c->graph->buffer[p->buffer].bytes, c->graph->h2d_bytes_per_s, &copy)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "copies of more than 2^63 ns");
        }
        engine = (c->start[p->to] < engine ? c->start[p->to] : engine) - copy;
        p->fetch_at = p->to;
        while (p->fetch_at > p->from + 1 && c->start[p->fetch_at] > engine) {
            p->fetch_at--;
        }
        if (p->free_at >= p->fetch_at) { /* too short: compute waits for both */
            p->free_at = p->from + 1;
            p->fetch_at = p->to;
            engine = engine > c->start[p->from] ? engine : c->start[p->from];
        }
    }
    return CKPT_OK;
}

/* What stands before an entry. */
typedef struct inserted {
    int at, kind, buffer;
} inserted;

static int compare_inserted(const void *a, const void *b)
{
    const inserted *const x = a;
    const inserted *const y = b;
    static const int rank[] = {[CKPT_OFFLOAD] = 0, [CKPT_FREE] = 1, [CKPT_FETCH] = 2};
    return x->at != y->at ? x->at - y->at : x->kind != y->kind ? rank[x->kind] - rank[y->kind] : x->buffer - y->buffer;
}

static ckpt_code insert(const copier *c, ckpt_arena *scratch, ckpt_order *made, ckpt_err *err)
{
    inserted *const list = CKPT_NEW(scratch, inserted, 3 * (size_t)c->made_count);
    int count = 0;
    if (list == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d copies", c->made_count);
    }
    for (int i = 0; i < c->made_count; i++) {
        const pause *const p = &c->made[i];
        list[count++] = (inserted){p->from + 1, CKPT_OFFLOAD, p->buffer};
        list[count++] = (inserted){p->free_at, CKPT_FREE, p->buffer};
        list[count++] = (inserted){p->fetch_at, CKPT_FETCH, p->buffer};
    }
    qsort(list, (size_t)count, sizeof *list, compare_inserted);
    for (int t = 0, i = 0; t < c->order->count; t++) {
        for (; i < count && list[i].at == t; i++) {
            ckpt_order_add(made, ckpt_sequence_copy((ckpt_step_kind)list[i].kind, list[i].buffer));
        }
        ckpt_order_add(made, c->order->op[t]);
    }
    return made->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", made->count) : CKPT_OK;
}

static ckpt_code add(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes host_bytes, ckpt_arena *scratch,
                     ckpt_order *made, ckpt_err *err)
{
    const size_t buffers = (size_t)graph->buffer_count;
    copier c = {.graph = graph,
                .order = order,
                .away = CKPT_NEW(scratch, bool, buffers),
                .last = CKPT_NEW(scratch, int, buffers),
                .end = CKPT_NEW(scratch, int, buffers),
                .best = CKPT_NEW(scratch, pause, buffers),
                .made = CKPT_NEW(scratch, pause, buffers),
                .start = CKPT_NEW(scratch, ckpt_ns, (size_t)order->count + 1)};
    if (c.away == NULL || c.last == NULL || c.end == NULL || c.best == NULL || c.made == NULL || c.start == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "copies of %d buffers", graph->buffer_count);
    }
    find_away(&c);
    find_pauses(&c);
    ckpt_bytes taken = 0;
    for (int i = 0; i < c.made_count; i++) {
        taken = ckpt_sum(taken, graph->buffer[c.made[i].buffer].bytes, &taken) ? taken : CKPT_BYTES_MAX;
    }
    if (host_bytes > 0 && taken > host_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "what is set to be offloaded takes %lld bytes on the host, and there are %lld",
                         (long long)taken, (long long)host_bytes);
    }
    CKPT_TRY(place_copies(&c, err));
    return insert(&c, scratch, made, err);
}

ckpt_code ckpt_flags_copies(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes host_bytes, ckpt_err *err)
{
    bool any = false;
    for (int o = 0; o < graph->op_count && !any; o++) {
        any = graph->op[o].offload == CKPT_YES;
    }
    if (!any || !graph->has_link || order->failed) {
        return CKPT_OK;
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_order made;
    ckpt_order_init(&made);
    const ckpt_code code = add(order, graph, host_bytes, &scratch, &made, err);
    if (code == CKPT_OK) {
        const ckpt_order before = *order;
        *order = made;
        made = before;
    }
    ckpt_order_fini(&made);
    ckpt_arena_fini(&scratch);
    return code;
}
