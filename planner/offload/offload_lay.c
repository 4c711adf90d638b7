/* What a marked schedule takes: first its live bytes with everything marked away, then, if that fits, where each copy
 * starts and when the device's copy is freed.
 *
 * An offload starts right after its buffer is written: the copy engine works in the order of production. The device's
 * copy is kept while there is room, since what does not leave need not come back. When something else needs the room,
 * the buffer goes whose copy has arrived and that is needed last; if no copy has arrived, compute waits for the first.
 * A fetch starts at its latest start time, counted back from the uses as on one machine, or later when there is no room
 * until its use. */
#include <string.h>

#include "planner/offload/offload_impl.h"

enum { AHEAD, PENDING, OUT, BACK, DONE }; /* states of a gap */

enum { FETCH_LOOK = 16 }; /* gaps that have left and are asked whether they are due, at most, before each run */

static void find_movable(ckpt_offload *o)
{
    const ckpt_graph *const graph = o->graph;
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_bytes bytes = graph->buffer[b].bytes;
        o->movable[b] = o->mode != CKPT_OFFLOAD_RECOMPUTE && graph->has_link && bytes > 0 && bytes <= o->host_limit &&
                        graph->op[graph->writer[b]].offload != CKPT_NO &&
                        ckpt_copy_time(bytes, graph->d2h_bytes_per_s, &o->d2h_ns[b]) &&
                        ckpt_copy_time(bytes, graph->h2d_bytes_per_s, &o->h2d_ns[b]);
    }
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const op = &graph->op[i];
        for (int k = 0; k < op->adds.count; k++) {
            o->movable[op->adds.at[k]] = false; /* the host would have to be told every addition */
        }
        for (int k = op->reads.count; k < op->reads.count + op->writes.count; k++) {
            const int b = ckpt_offload_buffer(op, k);
            o->movable[b] = o->movable[b] && k < CKPT_MARKS;
        }
    }
}

ckpt_code ckpt_offload_start(ckpt_offload *o, int runs, int uses, ckpt_arena *scratch, ckpt_err *err)
{
    const size_t buffers = (size_t)o->graph->buffer_count;
    o->runs_room = runs;
    o->uses_room = uses;
    o->movable = CKPT_NEW(scratch, bool, buffers);
    o->d2h_ns = CKPT_NEW(scratch, ckpt_ns, buffers);
    o->h2d_ns = CKPT_NEW(scratch, ckpt_ns, buffers);
    o->first = CKPT_NEW(scratch, int, runs + 1);
    o->next = CKPT_NEW(scratch, int, uses);
    o->base = CKPT_NEW(scratch, ckpt_bytes, runs + 1);
    o->more = CKPT_NEW(scratch, ckpt_bytes, runs + 1);
    o->prefix = CKPT_NEW(scratch, ckpt_ns, runs + 1);
    o->inplace = CKPT_NEW(scratch, bool, runs);
    o->goes = CKPT_NEW(scratch, uint64_t, runs);
    o->gap = CKPT_NEW(scratch, ckpt_gap, uses);
    o->gap_at = CKPT_NEW(scratch, int, runs + 1);
    o->next_use = CKPT_NEW(scratch, int, buffers);
    o->left = CKPT_NEW(scratch, int, buffers);
    o->later = CKPT_NEW(scratch, bool, buffers);
    o->on_host = CKPT_NEW(scratch, bool, buffers);
    o->pending = CKPT_NEW(scratch, int, uses);
    o->begun = CKPT_NEW(scratch, int, uses);
    if (o->movable == NULL || o->d2h_ns == NULL || o->h2d_ns == NULL || o->first == NULL || o->next == NULL ||
        o->base == NULL || o->more == NULL || o->prefix == NULL || o->inplace == NULL || o->goes == NULL ||
        o->gap == NULL || o->gap_at == NULL || o->next_use == NULL || o->left == NULL || o->later == NULL ||
        o->on_host == NULL || o->pending == NULL || o->begun == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "offload tables of %d runs", runs);
    }
    CKPT_TRY(ckpt_clock_start(&o->clock, o->graph, scratch, err));
    find_movable(o);
    return CKPT_OK;
}

/* --- what is live --- */

static bool number_uses(ckpt_offload *o, const ckpt_marked *m)
{
    int uses = 0;
    if (m->count > o->runs_room) {
        return false;
    }
    for (int t = 0; t < m->count; t++) {
        const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
        const int mine = op->reads.count + op->writes.count + op->adds.count;
        o->first[t] = uses;
        if (mine > o->uses_room - uses) {
            return false;
        }
        uses += mine;
    }
    o->first[m->count] = uses;
    return true;
}

/* A use is marked when its bit is set and the mark means something: another use comes, and not at once. */
static bool marked(const ckpt_offload *o, const ckpt_marked *m, int t, int k, int buffer)
{
    const int next = o->next[o->first[t] + k];
    return k < CKPT_MARKS && (m->run[t].leaves >> k & 1) != 0 && next > t + 1 && next < m->count && o->movable[buffer];
}

/* Backwards, as find_deaths in sequence_steps.c. */
static void find_next(ckpt_offload *o, const ckpt_marked *m)
{
    const ckpt_graph *const graph = o->graph;
    for (int b = 0; b < graph->buffer_count; b++) {
        o->next_use[b] = CKPT_NEXT_NONE;
        o->later[b] = false;
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        o->next_use[graph->outputs.at[i]] = m->count;
    }
    for (int t = m->count - 1; t >= 0; t--) {
        const ckpt_graph_op *const op = &graph->op[m->run[t].op];
        const int reads = op->reads.count;
        int *const next = &o->next[o->first[t]];
        o->goes[t] = 0;
        for (int i = 0; i < op->writes.count; i++) {
            const int b = op->writes.at[i];
            next[reads + i] = o->next_use[b];
            o->next_use[b] = CKPT_NEXT_NONE;
            o->later[b] = o->later[b] || marked(o, m, t, reads + i, b); /* in a later live range too: one copy does */
            if (o->later[b] && next[reads + i] != CKPT_NEXT_NONE && reads + i < CKPT_MARKS) {
                o->goes[t] |= UINT64_C(1) << (reads + i);
            }
        }
        for (int i = 0; i < op->adds.count; i++) {
            const int b = op->adds.at[i];
            next[reads + op->writes.count + i] = o->next_use[b];
            o->next_use[b] = t;
        }
        for (int i = 0; i < reads; i++) {
            const int b = op->reads.at[i];
            next[i] = o->next_use[b] == t ? CKPT_NEXT_SAME : o->next_use[b];
            o->next_use[b] = t;
            o->later[b] = o->later[b] || marked(o, m, t, i, b);
        }
    }
}

/* Run t is done in place; see runs_in_place in sequence_steps.c. `bytes`: what its outputs take over from
 * its inputs. */
static bool in_place(const ckpt_offload *o, const ckpt_marked *m, int t, ckpt_bytes *bytes)
{
    const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
    *bytes = 0;
    for (int p = 0; p < op->inplace_count; p++) {
        int k = 0;
        while (op->reads.at[k] != op->inplace[p].in) {
            k++; /* a pair's input is read */
        }
        if (o->next[o->first[t] + k] != CKPT_NEXT_NONE) {
            return false;
        }
        *bytes += o->graph->buffer[op->inplace[p].in].bytes;
    }
    return op->inplace_count > 0;
}

static void find_base(ckpt_offload *o, const ckpt_marked *m)
{
    const ckpt_graph *const graph = o->graph;
    memset(o->base, 0, ((size_t)m->count + 1) * sizeof *o->base);
    for (int t = 0; t < m->count; t++) {
        const ckpt_graph_op *const op = &graph->op[m->run[t].op];
        const int keys = op->reads.count + op->writes.count;
        for (int k = 0; k < keys + op->adds.count; k++) {
            const int b = k < keys ? ckpt_offload_buffer(op, k) : op->adds.at[k - keys];
            const int next = o->next[o->first[t] + k];
            if (next == CKPT_NEXT_SAME) {
                continue;
            }
            const bool ends = next == CKPT_NEXT_NONE || marked(o, m, t, k, b);
            o->base[t] += graph->buffer[b].bytes;
            o->base[ends ? t + 1 : next] -= graph->buffer[b].bytes;
        }
    }
    o->peak = 0;
    o->peak_run = 0;
    ckpt_bytes live = 0;
    for (int t = 0; t < m->count; t++) {
        const ckpt_graph_op *const op = &graph->op[m->run[t].op];
        live += o->base[t];
        ckpt_bytes taken = 0;
        o->inplace[t] = in_place(o, m, t, &taken);
        o->base[t] = live + op->workspace_bytes - (o->inplace[t] ? taken : 0);
        if (o->base[t] > o->peak) {
            o->peak = o->base[t];
            o->peak_run = t;
        }
    }
}

bool ckpt_offload_look(ckpt_offload *o, const ckpt_marked *m)
{
    if (!number_uses(o, m)) {
        return false;
    }
    find_next(o, m);
    find_base(o, m);
    return true;
}

/* --- when what happens --- */

/* Gaps in the order in which they end, and for each run where its first begins: `begun` lists them by `from`. */
static void find_gaps(ckpt_offload *o, const ckpt_marked *m)
{
    const ckpt_graph *const graph = o->graph;
    o->gap_count = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        o->left[b] = -1;
        o->on_host[b] = false;
    }
    for (int t = 0; t < m->count; t++) {
        const ckpt_graph_op *const op = &graph->op[m->run[t].op];
        const int keys = op->reads.count + op->writes.count;
        o->gap_at[t] = o->gap_count;
        for (int i = 0; i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            if (o->left[b] >= 0) {
                const int use = o->left[b];
                o->begun[use] = o->gap_count;
                o->gap[o->gap_count++] = (ckpt_gap){.buffer = b, .to = t, .use = use, .blocked = -1};
                o->left[b] = -1;
            }
        }
        for (int k = 0; k < keys; k++) {
            const int b = ckpt_offload_buffer(op, k);
            o->begun[o->first[t] + k] = -1;
            if (marked(o, m, t, k, b)) {
                o->left[b] = o->first[t] + k;
            }
        }
    }
    o->gap_at[m->count] = o->gap_count;
}

/* Latest start times of the fetches, were compute never to wait. */
static void find_latest(ckpt_offload *o, const ckpt_marked *m)
{
    o->prefix[0] = 0;
    for (int t = 0; t < m->count; t++) {
        /* a schedule beyond 2^63 ns is refused by the clock */
        o->prefix[t + 1] = o->prefix[t];
        (void)ckpt_sum(o->prefix[t], o->graph->op[m->run[t].op].time_ns, &o->prefix[t + 1]);
    }
    ckpt_ns latest = INT64_MAX;
    for (int g = o->gap_count - 1; g >= 0; g--) {
        const ckpt_ns due = o->prefix[o->gap[g].to] - m->lead_ns;
        latest = (due < latest ? due : latest) - o->h2d_ns[o->gap[g].buffer];
        latest = latest < -((ckpt_ns)1 << 62) ? -((ckpt_ns)1 << 62) : latest;
        o->gap[g].latest_ns = latest;
    }
}

static bool do_step(ckpt_offload *o, ckpt_step_kind kind, int target, bool inplace)
{
    const ckpt_step step = {.kind = kind, .target = target, .inplace = inplace};
    ckpt_moment moment;
    return ckpt_clock_step(&o->clock, &step, &moment);
}

static bool copy_step(ckpt_offload *o, ckpt_step_kind kind, int buffer)
{
    if (o->order != NULL) {
        ckpt_order_add(o->order, ckpt_sequence_copy(kind, buffer));
    }
    return do_step(o, kind, buffer, false);
}

static void drop_pending(ckpt_offload *o, int at)
{
    o->pending_bytes -= o->graph->buffer[o->gap[o->pending[at]].buffer].bytes;
    o->pending[at] = o->pending[--o->pending_count];
}

static void forget_pending(ckpt_offload *o, int gap)
{
    for (int i = 0; i < o->pending_count; i++) {
        if (o->pending[i] == gap) {
            drop_pending(o, i);
            return;
        }
    }
}

/* Free one of what may leave. */
static bool evict(ckpt_offload *o)
{
    int best = 0;
    for (int i = 1; i < o->pending_count; i++) {
        const ckpt_gap *const a = &o->gap[o->pending[i]];
        const ckpt_gap *const b = &o->gap[o->pending[best]];
        const ckpt_ns a_ns = o->clock.read_ns[a->buffer] > o->clock.now ? o->clock.read_ns[a->buffer] : 0;
        const ckpt_ns b_ns = o->clock.read_ns[b->buffer] > o->clock.now ? o->clock.read_ns[b->buffer] : 0;
        if (a_ns != b_ns ? a_ns < b_ns : a->to > b->to) {
            best = i;
        }
    }
    ckpt_gap *const gone = &o->gap[o->pending[best]];
    gone->state = OUT;
    gone->freed = true;
    drop_pending(o, best);
    return copy_step(o, CKPT_FREE, gone->buffer);
}

/* Room for `bytes` more before run t. */
static bool make_room(ckpt_offload *o, int t, ckpt_bytes bytes)
{
    while (o->pending_count > 0 && o->base[t] + o->more[t] + o->pending_bytes + bytes > o->limit) {
        if (!evict(o)) {
            return false;
        }
    }
    return true;
}

static ckpt_bytes waiting_bytes(const ckpt_offload *o)
{
    ckpt_bytes bytes = 0;
    for (int i = 0; i < o->pending_count; i++) {
        const int b = o->gap[o->pending[i]].buffer;
        bytes += o->clock.read_ns[b] > o->clock.now ? o->graph->buffer[b].bytes : 0;
    }
    return bytes;
}

/* Back into memory before run t, ahead of its use, when there is room until then without waiting for anything. */
static bool bring_early(ckpt_offload *o, int t, int g)
{
    ckpt_gap *const gap = &o->gap[g];
    const ckpt_bytes bytes = o->graph->buffer[gap->buffer].bytes;
    if (gap->blocked >= t) { /* what is full stays full */
        return true;
    }
    for (int u = gap->to - 1; u >= t; u--) {
        if (o->base[u] + o->more[u] > o->limit - bytes) {
            gap->blocked = u;
            return true;
        }
    }
    if (gap->state == PENDING) {
        forget_pending(o, g);
    } else if (o->base[t] + o->more[t] + waiting_bytes(o) > o->limit - bytes) {
        return true;
    } else if (!make_room(o, t, bytes) || !copy_step(o, CKPT_FETCH, gap->buffer)) {
        return false;
    }
    gap->state = BACK;
    for (int u = t; u < gap->to; u++) {
        o->more[u] += bytes;
    }
    return true;
}

/* What happens between the runs before and run t. */
static bool before_run(ckpt_offload *o, int t, int *head)
{
    for (int g = o->gap_at[t]; g < o->gap_at[t + 1]; g++) {
        if (o->gap[g].state == PENDING) { /* it never left */
            forget_pending(o, g);
            o->gap[g].state = DONE;
        }
    }
    if (!make_room(o, t, 0)) {
        return false;
    }
    while (*head < o->gap_count && o->gap[*head].state >= BACK) {
        (*head)++;
    }
    int looked = 0;
    for (int g = *head; g < o->gap_count && looked < FETCH_LOOK && o->gap[g].latest_ns < o->prefix[t + 1]; g++) {
        const int state = o->gap[g].state;
        if ((state == OUT || state == PENDING) && o->gap[g].to > t) {
            looked++;
            if (!bring_early(o, t, g)) {
                return false;
            }
        }
    }
    for (int g = o->gap_at[t]; g < o->gap_at[t + 1]; g++) {
        if (o->gap[g].state == OUT && !copy_step(o, CKPT_FETCH, o->gap[g].buffer)) {
            return false;
        }
        o->gap[g].state = DONE;
    }
    return true;
}

/* The buffers whose live range ends with run t go. */
static bool free_dead(ckpt_offload *o, const ckpt_graph_op *op, int t)
{
    const int keys = op->reads.count + op->writes.count;
    for (int k = 0; k < keys + op->adds.count; k++) {
        const int b = k < keys ? ckpt_offload_buffer(op, k) : op->adds.at[k - keys];
        bool taken = false;
        for (int p = 0; o->inplace[t] && p < op->inplace_count; p++) {
            taken = taken || op->inplace[p].in == b;
        }
        if (o->next[o->first[t] + k] == CKPT_NEXT_NONE && !taken && !do_step(o, CKPT_FREE, b, false)) {
            return false;
        }
    }
    return true;
}

static bool offload(ckpt_offload *o, int b)
{
    if (o->on_host[b]) {
        return true;
    }
    o->on_host[b] = true;
    o->host_bytes += o->graph->buffer[b].bytes;
    return o->host_bytes <= o->host_limit && copy_step(o, CKPT_OFFLOAD, b);
}

/* What run t wrote and will leave memory goes on its way, first what leaves at once; then gaps that t begins. */
static bool after_run(ckpt_offload *o, const ckpt_marked *m, int t)
{
    const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
    const uint64_t early = o->goes[t] & ~m->run[t].late;
    const int keys = op->reads.count + op->writes.count;
    for (int pass = 0; pass < 2 && early != 0; pass++) {
        for (int k = op->reads.count; k < keys && k < CKPT_MARKS; k++) {
            const bool at_once = o->begun[o->first[t] + k] >= 0;
            if ((early >> k & 1) != 0 && at_once == (pass == 0) && !offload(o, ckpt_offload_buffer(op, k))) {
                return false;
            }
        }
    }
    for (int k = 0; k < keys; k++) {
        const int g = o->begun[o->first[t] + k];
        if (g >= 0) {
            if (!offload(o, o->gap[g].buffer)) {
                return false;
            }
            o->gap[g].state = PENDING;
            o->pending[o->pending_count++] = g;
            o->pending_bytes += o->graph->buffer[o->gap[g].buffer].bytes;
        }
    }
    return true;
}

static void reset(ckpt_offload *o, const ckpt_marked *m)
{
    const size_t buffers = (size_t)o->graph->buffer_count;
    o->clock.now = o->clock.d2h = o->clock.h2d = 0;
    memset(o->clock.written_ns, 0, buffers * sizeof *o->clock.written_ns);
    memset(o->clock.read_ns, 0, buffers * sizeof *o->clock.read_ns);
    memset(o->more, 0, ((size_t)m->count + 1) * sizeof *o->more);
    o->pending_count = 0;
    o->pending_bytes = o->host_bytes = 0;
}

bool ckpt_offload_lay(ckpt_offload *o, const ckpt_marked *m)
{
    find_gaps(o, m);
    find_latest(o, m);
    reset(o, m);
    int head = 0;
    for (int t = 0; t < m->count; t++) {
        const int run = m->run[t].op;
        const ckpt_graph_op *const op = &o->graph->op[run];
        if (!before_run(o, t, &head)) {
            return false;
        }
        if (o->order != NULL) {
            ckpt_order_add(o->order, run);
        }
        if (!do_step(o, CKPT_RUN, run, o->inplace[t]) || !free_dead(o, op, t) || !after_run(o, m, t)) {
            return false;
        }
    }
    o->time = ckpt_clock_end(&o->clock);
    return true;
}
