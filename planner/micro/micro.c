/* Finding micro-batches in a graph, and putting schedules of one together. */
#include <string.h>

#include "planner/micro/micro_impl.h"
#include "planner/schedule/batches.h"

enum { NOBODY = -1, SHARED = -2 };

typedef struct finding {
    const ckpt_graph *graph;
    ckpt_arena *out;
    ckpt_micro *m;
    int *owner;   /* per buffer: the micro-batch that alone touches it, SHARED or NOBODY */
    int *first;   /* per micro-batch: where its ops begin in `own`; [batches + 1] */
    int *own;     /* ops in reference order, micro-batch after micro-batch */
    int *number;  /* per buffer of the first micro-batch: which of `one` it is; -1: none */
    int *twin;    /* per buffer: the one of the first micro-batch that it is a copy of; -1: none */
    bool *output; /* per buffer of the graph */
} finding;

static void touch(finding *f, const ckpt_list *list, int batch)
{
    for (int i = 0; i < list->count; i++) {
        int *const owner = &f->owner[list->at[i]];
        *owner = batch >= 0 && (*owner == NOBODY || *owner == batch) ? batch : SHARED;
    }
}

/* Only waits: reads what is not recomputed, and gives nothing. Where it stands need not be the same in each copy. */
static bool floats(const ckpt_graph *graph, const ckpt_graph_op *op)
{
    bool fixed =
        op->writes.count == 0 && op->adds.count == 0 && !op->recompute && op->time_ns == 0 && op->workspace_bytes == 0;
    for (int i = 0; i < op->reads.count; i++) {
        fixed = fixed && !graph->op[graph->writer[op->reads.at[i]]].recompute;
    }
    return fixed;
}

/* Who owns what, and the ops of each micro-batch. `floating`: those that float are of none. */
static void sort_ops(finding *f, bool floating)
{
    const ckpt_graph *const g = f->graph;
    ckpt_micro *const m = f->m;
    for (int b = 0; b < g->buffer_count; b++) {
        f->owner[b] = NOBODY;
    }
    memset(f->first, 0, ((size_t)m->batches + 1) * sizeof *f->first);
    for (int o = 0; o < g->op_count; o++) {
        const ckpt_graph_op *const op = &g->op[o];
        const int batch = ckpt_batch_of(op->layer, NULL);
        touch(f, &op->reads, batch);
        touch(f, &op->writes, batch);
        touch(f, &op->adds, batch);
        m->batch[o] = floating && floats(g, op) ? NOBODY : batch;
        if (m->batch[o] >= 0) {
            f->first[m->batch[o] + 1]++;
        }
    }
    for (int j = 0; j < m->batches; j++) {
        f->first[j + 1] += f->first[j];
    }
    int *const next = f->number; /* scratch until buffers are numbered: there are no more micro-batches than buffers */
    memcpy(next, f->first, (size_t)m->batches * sizeof *next);
    for (int o = 0; o < g->op_count; o++) {
        if (m->batch[o] >= 0) {
            f->own[next[m->batch[o]]++] = o;
        }
    }
}

/* The same name but for the micro-batch. */
static bool same_name(const ckpt_graph_op *a, const ckpt_graph_op *b)
{
    int length = 0, other = 0;
    (void)ckpt_batch_of(a->layer, &length);
    (void)ckpt_batch_of(b->layer, &other);
    const size_t whole = strlen(a->layer);
    const size_t whole_other = strlen(b->layer);
    return length == other && strncmp(a->name, a->layer, whole) == 0 && strncmp(b->name, b->layer, whole_other) == 0 &&
           strncmp(a->name, b->name, (size_t)length) == 0 && strcmp(a->name + whole, b->name + whole_other) == 0;
}

/* Next own buffer of a list, from *i on; -1: no more. */
static int next_own(const finding *f, const ckpt_list *list, int *i)
{
    while (*i < list->count && f->owner[list->at[*i]] < 0) {
        ++*i;
    }
    return *i < list->count ? list->at[(*i)++] : -1;
}

/* Is list b of micro-batch j what list a of the first is? What is written here is met for the first time. */
static bool same_list(const finding *f, const ckpt_list *a, const ckpt_list *b, int j, bool written)
{
    const ckpt_graph *const g = f->graph;
    for (int i = 0, k = 0;;) {
        const int x = next_own(f, a, &i);
        const int y = next_own(f, b, &k);
        if (x < 0 || y < 0) {
            return x == y;
        }
        if (written) {
            f->twin[y] = x;
        }
        if (f->twin[y] != x || f->owner[y] != j || g->buffer[x].bytes != g->buffer[y].bytes ||
            g->buffer[x].kind != g->buffer[y].kind || f->output[x] != f->output[y]) {
            return false;
        }
    }
}

static bool reads_own(const finding *f, const ckpt_graph_op *op)
{
    bool own = true;
    for (int i = 0; i < op->reads.count; i++) {
        own = own && f->owner[op->reads.at[i]] >= 0;
    }
    for (int i = 0; i < op->writes.count && op->recompute; i++) {
        own = own && f->owner[op->writes.at[i]] >= 0;
    }
    return own;
}

static bool same_pairs(const finding *f, const ckpt_graph_op *a, const ckpt_graph_op *b)
{
    bool same = a->inplace_count == b->inplace_count;
    for (int p = 0; same && p < a->inplace_count; p++) {
        same = f->owner[a->inplace[p].out] >= 0 && f->owner[a->inplace[p].in] >= 0 &&
               f->twin[b->inplace[p].out] == a->inplace[p].out && f->twin[b->inplace[p].in] == a->inplace[p].in;
    }
    return same;
}

/* Is every micro-batch a copy of the first? */
static bool are_alike(const finding *f)
{
    const ckpt_graph *const g = f->graph;
    const int count = f->first[1];
    memset(f->twin, -1, (size_t)g->buffer_count * sizeof *f->twin);
    bool alike = count > 0;
    for (int j = 0; alike && j < f->m->batches; j++) {
        alike = f->first[j + 1] - f->first[j] == count;
        for (int k = 0; alike && k < count; k++) {
            const ckpt_graph_op *const a = &g->op[f->own[k]];
            const ckpt_graph_op *const b = &g->op[f->own[f->first[j] + k]];
            alike = a->phase == b->phase && a->recompute == b->recompute && same_name(a, b) && reads_own(f, b) &&
                    same_list(f, &a->writes, &b->writes, j, true) && same_list(f, &a->reads, &b->reads, j, false) &&
                    same_list(f, &a->adds, &b->adds, j, false) && same_pairs(f, a, b);
        }
    }
    return alike;
}

/* Where others come in between: gap[k] in front of the k-th op. Gives how many there are, and fills `in_flight`. */
static int find_gaps(const finding *f, bool *gap, int *done)
{
    const ckpt_graph *const g = f->graph;
    const int count = f->first[1];
    int gaps = 0;
    int before = -1; /* micro-batch of the op before */
    int begun = 0;
    for (int o = 0; o < g->op_count; o++) {
        const int j = f->m->batch[o];
        if (j >= 0) {
            const int k = done[j]++;
            begun += (k == 0) - (done[j] == count);
            const int others = begun - (done[j] < count);
            f->m->in_flight = others > f->m->in_flight ? others : f->m->in_flight;
            if (k > 0 && before != j && !gap[k]) {
                gap[k] = true;
                gaps++;
            }
            before = j;
        }
    }
    return gaps;
}

static ckpt_code map_list(const finding *f, const ckpt_list *from, ckpt_list *to, ckpt_err *err)
{
    int *const at = CKPT_NEW(f->out, int, from->count);
    int count = 0;
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "buffers of an op");
    }
    for (int i = 0; i < from->count; i++) {
        if (f->owner[from->at[i]] == 0) {
            at[count++] = f->number[from->at[i]];
        }
    }
    *to = (ckpt_list){at, count};
    return CKPT_OK;
}

static ckpt_code map_op(const finding *f, const ckpt_graph_op *from, ckpt_graph_op *to, ckpt_err *err)
{
    ckpt_inplace *const pair = CKPT_NEW(f->out, ckpt_inplace, from->inplace_count);
    if (pair == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "in-place pairs of an op");
    }
    *to = *from;
    for (int p = 0; p < from->inplace_count; p++) {
        pair[p] = (ckpt_inplace){f->number[from->inplace[p].out], f->number[from->inplace[p].in]};
    }
    to->inplace = pair;
    to->layer = ""; /* so that this is not a graph of micro-batches */
    CKPT_TRY(map_list(f, &from->reads, &to->reads, err));
    CKPT_TRY(map_list(f, &from->writes, &to->writes, err));
    return map_list(f, &from->adds, &to->adds, err);
}

/* Op t of `one` is the k-th of every micro-batch: the largest workspace and time of all are planned with. */
static void join_copies(const finding *f, int t, int k)
{
    ckpt_micro *const m = f->m;
    ckpt_graph_op *const op = &m->op[t];
    m->least_ns[t] = op->time_ns;
    m->least_workspace[t] = op->workspace_bytes;
    for (int j = 0; j < m->batches; j++) {
        const int o = f->own[f->first[j] + k];
        const ckpt_graph_op *const copy = &f->graph->op[o];
        m->copy[(size_t)j * (size_t)m->one.op_count + (size_t)t] = o;
        op->time_ns = copy->time_ns > op->time_ns ? copy->time_ns : op->time_ns;
        op->workspace_bytes = copy->workspace_bytes > op->workspace_bytes ? copy->workspace_bytes : op->workspace_bytes;
        m->least_ns[t] = copy->time_ns < m->least_ns[t] ? copy->time_ns : m->least_ns[t];
        m->least_workspace[t] =
            copy->workspace_bytes < m->least_workspace[t] ? copy->workspace_bytes : m->least_workspace[t];
    }
}

static ckpt_code make_ops(const finding *f, const bool *gap, ckpt_err *err)
{
    ckpt_micro *const m = f->m;
    const int count = f->first[1];
    int t = 0;
    for (int k = 0; k < count; k++) {
        if (gap[k]) {
            m->op[t] =
                (ckpt_graph_op){.phase = f->graph->op[f->own[k]].phase == CKPT_FORWARD ? CKPT_FORWARD : CKPT_BACKWARD,
                                .layer = "",
                                .name = ckpt_arena_format(f->out, "hold.%d", k)};
            for (int j = 0; j < m->batches; j++) {
                m->copy[(size_t)j * (size_t)m->one.op_count + (size_t)t] = -1;
            }
            if (m->op[t++].name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of an op");
            }
        }
        CKPT_TRY(map_op(f, &f->graph->op[f->own[k]], &m->op[t], err));
        join_copies(f, t, k);
        m->op[t].name = ckpt_arena_format(f->out, "%d", k); /* not the whole graph's: those might be equal here */
        if (m->op[t++].name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of an op");
        }
    }
    return CKPT_OK;
}

/* Buffers of the first micro-batch that ops of `one` write. */
static ckpt_code make_buffers(finding *f, ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    ckpt_micro *const m = f->m;
    ckpt_buffer *const buffer = CKPT_NEW(f->out, ckpt_buffer, g->buffer_count);
    int count = 0;
    if (buffer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "buffers of a micro-batch");
    }
    for (int b = 0; b < g->buffer_count; b++) {
        f->number[b] = -1;
        if (f->owner[b] == 0 && m->batch[g->writer[b]] == 0) {
            f->number[b] = count;
            buffer[count] = g->buffer[b];
            buffer[count].name = ckpt_arena_format(f->out, "%d", b); /* a graph of recomputations has names twice */
            if (buffer[count++].name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a buffer");
            }
        } else if (f->owner[b] == 0) {
            f->owner[b] = SHARED; /* what only floating ops touch */
        }
    }
    m->one.buffer = buffer;
    m->one.buffer_count = count;
    m->copy_buffer = CKPT_NEW(f->out, int, (size_t)m->batches *(size_t)count);
    if (m->copy_buffer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "buffers of %d micro-batches", m->batches);
    }
    for (int b = 0; b < g->buffer_count; b++) {
        if (f->twin[b] >= 0 && f->number[f->twin[b]] >= 0) {
            m->copy_buffer[(size_t)f->owner[b] * (size_t)count + (size_t)f->number[f->twin[b]]] = b;
        }
    }
    return CKPT_OK;
}

static ckpt_code make_one(finding *f, ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    ckpt_micro *const m = f->m;
    const int count = f->first[1];
    bool *const gap = CKPT_NEW(f->out, bool, count);
    int *const done = CKPT_NEW(f->out, int, m->batches);
    if (gap == NULL || done == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a micro-batch of %d ops", count);
    }
    m->holds = find_gaps(f, gap, done);
    m->one = *g;
    m->one.op_count = count + m->holds;
    const size_t ops = (size_t)m->one.op_count;
    m->one.op = m->op = CKPT_NEW(f->out, ckpt_graph_op, ops);
    m->copy = CKPT_NEW(f->out, int, (size_t)m->batches *ops);
    m->least_ns = CKPT_NEW(f->out, ckpt_ns, ops);
    m->least_workspace = CKPT_NEW(f->out, ckpt_bytes, ops);
    if (m->op == NULL || m->copy == NULL || m->least_ns == NULL || m->least_workspace == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a micro-batch of %d ops", count);
    }
    CKPT_TRY(make_buffers(f, err));
    CKPT_TRY(make_ops(f, gap, err));
    CKPT_TRY(map_list(f, &g->outputs, &m->one.outputs, err));
    for (int o = 0; o < g->op_count; o++) {
        m->rest_ns += m->batch[o] < 0 ? g->op[o].time_ns : 0;
    }
    return ckpt_graph_check(&m->one, f->out, err);
}

static ckpt_code take(finding *f, ckpt_err *err)
{
    const ckpt_graph *const g = f->graph;
    ckpt_micro *const m = f->m;
    const int numbers = g->buffer_count > m->batches ? g->buffer_count : m->batches;
    m->batch = CKPT_NEW(f->out, int, g->op_count);
    f->twin = CKPT_NEW(f->out, int, g->buffer_count);
    f->owner = CKPT_NEW(f->out, int, g->buffer_count);
    f->first = CKPT_NEW(f->out, int, m->batches + 1);
    f->own = CKPT_NEW(f->out, int, g->op_count);
    f->number = CKPT_NEW(f->out, int, numbers);
    f->output = CKPT_NEW(f->out, bool, g->buffer_count);
    if (m->batch == NULL || f->twin == NULL || f->owner == NULL || f->first == NULL || f->own == NULL ||
        f->number == NULL || f->output == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d micro-batches", m->batches);
    }
    for (int i = 0; i < g->outputs.count; i++) {
        f->output[g->outputs.at[i]] = true;
    }
    return CKPT_OK;
}

ckpt_code ckpt_micro_find(const ckpt_graph *graph, ckpt_arena *out, ckpt_micro **micro, ckpt_err *err)
{
    *micro = NULL;
    const int batches = ckpt_batch_count(graph);
    if (batches < 2) {
        return CKPT_OK;
    }
    ckpt_micro *const made = CKPT_NEW(out, ckpt_micro, 1);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "micro-batches");
    }
    made->whole = graph;
    made->batches = batches;
    for (int o = 0; o < graph->op_count; o++) { /* a backward op may name one that no forward op does */
        if (ckpt_batch_of(graph->op[o].layer, NULL) >= batches) {
            return CKPT_OK;
        }
    }
    finding f = {.graph = graph, .out = out, .m = made};
    CKPT_TRY(take(&f, err));
    sort_ops(&f, true);
    bool alike = are_alike(&f);
    if (!alike) {
        sort_ops(&f, false);
        alike = are_alike(&f);
    }
    if (alike) {
        CKPT_TRY(make_one(&f, err));
        *micro = made;
    }
    return CKPT_OK;
}

void ckpt_micro_hold(ckpt_micro *micro, ckpt_bytes bytes)
{
    for (int t = 0; t < micro->one.op_count; t++) {
        micro->op[t].workspace_bytes = micro->copy[t] < 0 ? bytes : micro->op[t].workspace_bytes;
    }
}

/* Append entries of schedule j from *at on, up to the first run of op `until` of `one`; -1: all. */
static void append(const ckpt_micro *m, const ckpt_sequence *schedule, int j, int until, int *at, ckpt_order *order)
{
    const size_t ops = (size_t)m->one.op_count;
    const size_t buffers = (size_t)m->one.buffer_count;
    for (bool found = false; *at < schedule->count && !found; ++*at) {
        int target = 0;
        const int entry = schedule->op[*at];
        const ckpt_step_kind kind = ckpt_sequence_kind(entry, &target);
        found = entry == until; /* first runs are in reference order: it is the first one that is met */
        if (kind != CKPT_RUN) {
            ckpt_order_add(order, ckpt_sequence_copy(kind, m->copy_buffer[(size_t)j * buffers + (size_t)target]));
        } else if (m->copy[(size_t)j * ops + (size_t)target] >= 0) {
            ckpt_order_add(order, m->copy[(size_t)j * ops + (size_t)target]);
        }
    }
}

void ckpt_micro_compose(const ckpt_micro *micro, const ckpt_sequence *const *schedule, int *at, ckpt_order *order)
{
    const int ops = micro->one.op_count;
    int *const next = at + micro->batches; /* per micro-batch: its next op of `one` */
    order->count = 0;
    memset(at, 0, 2 * (size_t)micro->batches * sizeof *at);
    for (int o = 0; o < micro->whole->op_count; o++) {
        const int j = micro->batch[o];
        if (j < 0) {
            ckpt_order_add(order, o);
            continue;
        }
        while (micro->copy[(size_t)j * (size_t)ops + (size_t)next[j]] < 0) {
            next[j]++;
        }
        const int t = next[j]++;
        append(micro, schedule[j], j, next[j] < ops ? t : -1, &at[j], order);
    }
}
