/* Which step waits for which.
 *
 * Three streams run beside each other: compute, copies to the host, copies back. One rule says where they must wait,
 * and it is applied byte by byte:
 *
 *     a step waits for an earlier step of another stream exactly when both touch the same bytes, of the arena or of the
 *     slab on the host, one of them writes them, and no earlier wait has ordered the two already.
 *
 * The rules of docs/reference/formats.md follow. An offload waits for what wrote its buffer last (a run, an addition, a
 * fetch). Who allocates bytes waits for the copies that still read or write there: the next allocation, or, with
 * poison, the free itself, which fills them. A fetch waits for the former allocations of its bytes and for the arrival
 * of what it brings back. Who uses what was fetched waits for the fetch, once. Additions and in-place runs wait while a
 * copy still reads what they change, and so does a second offload while the first copy is being fetched. A buffer that
 * is offloaded, changed and offloaded a second time, or fetched and freed unused, is no special case.
 *
 * A buffer's bytes in the slab belong to it for the whole step, and a step ends when all streams are empty, so nothing
 * waits for the step before.
 *
 * A signal stands right behind the step that is waited for, so that a copy starts as early as it may. On the CPU every
 * call ends when its work is done, and signals do nothing. */
#include <stdlib.h>
#include <string.h>

#include "executor/setup/wire_impl.h"

enum { STREAMS = CKPT_STREAM_COUNT, NEVER = -1 };

/* Per stream, the latest step of a kind; NEVER: none. A stream runs in order, so the latest stands for all. */
typedef struct latest {
    int step[STREAMS];
} latest;

/* Who wrote and who touched (wrote or read) a range of bytes. */
typedef struct touches {
    latest wrote, touched;
} touches;

/* A segment tree over the arena, cut at the ends of allocations: who touched the bytes of former allocations. `some`
 * counts for part of a node's range, `all` for the whole of it. */
typedef struct past {
    ckpt_bytes *cut; /* ascending, `cuts` of them: leaf i is [cut[i], cut[i + 1]) */
    int cuts, leaves;
    latest *some, *all;
} past;

typedef struct ordering {
    ckpt_program *program;
    const ckpt_allocations *allocations;
    past past;
    const ckpt_allocation **held; /* per buffer: where it lies now */
    touches *buffer;              /* per buffer, while it is held */
    touches *host;                /* per buffer: its bytes in the slab */
    latest known[STREAMS];        /* what is finished before what each stream is given next */
    latest *done;                 /* per step: what is finished when it is */
} ordering;

static const latest never = {{NEVER, NEVER, NEVER}};

static void raise_to(latest *to, const latest *from)
{
    for (int t = 0; t < STREAMS; t++) {
        to->step[t] = from->step[t] > to->step[t] ? from->step[t] : to->step[t];
    }
}

static int compare_bytes(const void *a, const void *b)
{
    const ckpt_bytes x = *(const ckpt_bytes *)a, y = *(const ckpt_bytes *)b;
    return (x > y) - (x < y);
}

static ckpt_code past_init(past *p, const ckpt_plan *plan, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_bytes *const cut = CKPT_NEW(scratch, ckpt_bytes, 2 * (size_t)plan->allocation_count);
    if (cut == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the order of %d allocations", plan->allocation_count);
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        cut[2 * i] = plan->allocation[i].offset;
        cut[2 * i + 1] = plan->allocation[i].offset + plan->allocation[i].bytes;
    }
    qsort(cut, 2 * (size_t)plan->allocation_count, sizeof cut[0], compare_bytes);
    p->cut = cut;
    for (int i = 0; i < 2 * plan->allocation_count; i++) {
        if (i == 0 || cut[i] != p->cut[p->cuts - 1]) {
            p->cut[p->cuts++] = cut[i];
        }
    }
    p->leaves = 1;
    while (p->leaves < p->cuts) {
        p->leaves *= 2;
    }
    p->some = CKPT_NEW(scratch, latest, 2 * (size_t)p->leaves);
    p->all = CKPT_NEW(scratch, latest, 2 * (size_t)p->leaves);
    if (p->some == NULL || p->all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the order of %d allocations", plan->allocation_count);
    }
    for (int i = 0; i < 2 * p->leaves; i++) {
        p->some[i] = p->all[i] = never;
    }
    return CKPT_OK;
}

static int leaf_at(const past *p, ckpt_bytes offset)
{
    const ckpt_bytes *const found = bsearch(&offset, p->cut, (size_t)p->cuts, sizeof offset, compare_bytes);
    return (int)(found - p->cut);
}

static void past_put(past *p, int node, int low, int high, int from, int to, const latest *step)
{
    if (to < low || high < from) {
        return;
    }
    raise_to(&p->some[node], step);
    if (from <= low && high <= to) {
        raise_to(&p->all[node], step);
        return;
    }
    const int middle = low + (high - low) / 2;
    past_put(p, 2 * node, low, middle, from, to, step);
    past_put(p, 2 * node + 1, middle + 1, high, from, to, step);
}

static void past_get(const past *p, int node, int low, int high, int from, int to, latest *step)
{
    if (to < low || high < from) {
        return;
    }
    if (from <= low && high <= to) {
        raise_to(step, &p->some[node]);
        return;
    }
    raise_to(step, &p->all[node]);
    const int middle = low + (high - low) / 2;
    past_get(p, 2 * node, low, middle, from, to, step);
    past_get(p, 2 * node + 1, middle + 1, high, from, to, step);
}

/* The allocation ends: its bytes remember who touched them. */
static void remember(ordering *o, const ckpt_allocation *allocation, const latest *touched)
{
    if (allocation->bytes > 0) {
        past_put(&o->past, 1, 0, o->past.leaves - 1, leaf_at(&o->past, allocation->offset),
                 leaf_at(&o->past, allocation->offset + allocation->bytes) - 1, touched);
    }
}

static void wait_for_former(const ordering *o, const ckpt_allocation *allocation, latest *need)
{
    if (allocation->bytes > 0) {
        past_get(&o->past, 1, 0, o->past.leaves - 1, leaf_at(&o->past, allocation->offset),
                 leaf_at(&o->past, allocation->offset + allocation->bytes) - 1, need);
    }
}

static int signal_behind(ckpt_program *program, int step)
{
    ckpt_action *const action = &program->action[step];
    if (action->signal < 0) {
        action->signal = program->signal_count++;
    }
    return action->signal;
}

/* Drop from `need` what the stream has waited for, and what another wait implies; list the signals of the rest. */
static int list_waits(ordering *o, ckpt_stream stream, latest need, int wait[])
{
    for (int t = 0; t < STREAMS; t++) {
        if (t == (int)stream || need.step[t] <= o->known[stream].step[t]) {
            need.step[t] = NEVER;
        }
    }
    for (int t = 0; t < STREAMS; t++) {
        for (int u = 0; u < STREAMS && need.step[t] >= 0; u++) {
            if (u != t && o->done[need.step[t]].step[u] >= need.step[u]) {
                need.step[u] = NEVER;
            }
        }
    }
    int count = 0;
    for (int t = 0; t < STREAMS; t++) {
        if (need.step[t] >= 0) {
            raise_to(&o->known[stream], &o->done[need.step[t]]);
            wait[count++] = signal_behind(o->program, need.step[t]);
        }
    }
    return count;
}

/* Step s on `stream` starts when the steps in `need` are finished. */
static void settle(ordering *o, int s, ckpt_stream stream, const latest *need)
{
    ckpt_action *const action = &o->program->action[s];
    action->wait_count = list_waits(o, stream, *need, action->wait);
    o->known[stream].step[stream] = s;
    o->done[s] = o->known[stream];
}

static void note_read(touches *t, ckpt_stream stream, int s)
{
    t->touched.step[stream] = s;
}

static void note_write(touches *t, ckpt_stream stream, int s)
{
    t->wrote.step[stream] = t->touched.step[stream] = s;
}

/* The allocations that begin with this step: it waits for the former ones of their bytes, and writes them. */
static void open_all(ordering *o, int s, ckpt_stream stream, latest *need)
{
    for (int i = o->allocations->first[s]; i < o->allocations->first[s + 1]; i++) {
        const ckpt_allocation *const allocation = o->allocations->by_step[i];
        wait_for_former(o, allocation, need);
        latest mine = never;
        mine.step[stream] = s;
        if (allocation->buffer < 0) {
            remember(o, allocation, &mine);
        } else {
            o->held[allocation->buffer] = allocation;
            o->buffer[allocation->buffer] = (touches){mine, mine};
        }
    }
}

static void leave(ordering *o, int buffer)
{
    if (o->held[buffer] == NULL) {
        return;
    }
    remember(o, o->held[buffer], &o->buffer[buffer].touched);
    o->held[buffer] = NULL;
}

static void order_run(ordering *o, int s)
{
    const ckpt_lowered *const lowered = o->program->lowered;
    const ckpt_step *const step = &o->program->plan->step[s];
    const ckpt_graph_op *const op = ckpt_step_op(lowered->graph, step);
    latest need = never;
    for (int i = 0; i < op->reads.count; i++) {
        raise_to(&need, &o->buffer[op->reads.at[i]].wrote);
        note_read(&o->buffer[op->reads.at[i]], CKPT_STREAM_COMPUTE, s);
    }
    for (int i = 0; i < op->adds.count; i++) {
        raise_to(&need, &o->buffer[op->adds.at[i]].touched);
        note_write(&o->buffer[op->adds.at[i]], CKPT_STREAM_COMPUTE, s);
    }
    for (int i = 0; step->inplace && i < op->inplace_count; i++) {
        leave(o, op->inplace[i].in);
    }
    open_all(o, s, CKPT_STREAM_COMPUTE, &need);
    settle(o, s, CKPT_STREAM_COMPUTE, &need);
}

static void order_free(ordering *o, int s)
{
    touches *const buffer = &o->buffer[o->program->plan->step[s].target];
    latest need = never;
    if (o->program->poison) {
        need = buffer->touched;
        note_write(buffer, CKPT_STREAM_COMPUTE, s);
    }
    leave(o, o->program->plan->step[s].target);
    settle(o, s, CKPT_STREAM_COMPUTE, &need);
}

static void order_offload(ordering *o, int s)
{
    const int b = o->program->plan->step[s].target;
    latest need = o->buffer[b].wrote;
    raise_to(&need, &o->host[b].touched);
    note_read(&o->buffer[b], CKPT_STREAM_D2H, s);
    note_write(&o->host[b], CKPT_STREAM_D2H, s);
    settle(o, s, CKPT_STREAM_D2H, &need);
}

static void order_fetch(ordering *o, int s)
{
    const int b = o->program->plan->step[s].target;
    latest need = o->host[b].wrote;
    note_read(&o->host[b], CKPT_STREAM_H2D, s);
    open_all(o, s, CKPT_STREAM_H2D, &need);
    settle(o, s, CKPT_STREAM_H2D, &need);
}

static ckpt_code begin(ordering *o, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_plan *const plan = o->program->plan;
    const int buffers = o->program->lowered->graph->buffer_count;
    o->held = CKPT_NEW(scratch, const ckpt_allocation *, buffers);
    o->buffer = CKPT_NEW(scratch, touches, buffers);
    o->host = CKPT_NEW(scratch, touches, buffers);
    o->done = CKPT_NEW(scratch, latest, plan->step_count);
    if (o->held == NULL || o->buffer == NULL || o->host == NULL || o->done == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the order of %d steps", plan->step_count);
    }
    for (int b = 0; b < buffers; b++) {
        o->host[b] = (touches){never, never};
    }
    for (int t = 0; t < STREAMS; t++) {
        o->known[t] = never;
    }
    return past_init(&o->past, plan, scratch, err);
}

static void order_all(ordering *o)
{
    ckpt_program *const program = o->program;
    const ckpt_plan *const plan = program->plan;
    latest last = never;
    for (int s = 0; s < plan->step_count; s++) {
        switch (plan->step[s].kind) {
        case CKPT_RUN: order_run(o, s); break;
        case CKPT_FREE: order_free(o, s); break;
        case CKPT_OFFLOAD: order_offload(o, s); break;
        case CKPT_FETCH: order_fetch(o, s); break;
        }
        last.step[program->action[s].stream] = s;
    }
    program->join_count = list_waits(o, CKPT_STREAM_COMPUTE, last, program->join);
}

ckpt_code ckpt_wire_order(ckpt_program *program, const ckpt_allocations *allocations, ckpt_err *err)
{
    if (program->memory.slab.bytes == 0) {
        return CKPT_OK; /* nothing is offloaded: one stream */
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ordering o = {.program = program, .allocations = allocations};
    const ckpt_code code = begin(&o, &scratch, err);
    if (code == CKPT_OK) {
        order_all(&o);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
