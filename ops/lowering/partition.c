/* Cutting the list of layers. Layers between which no cut may be form an atom. A part's cost never falls when the part
 * grows, so bisection finds the smallest possible largest cost, trying each guess from the first layer on. Then a
 * dynamic program over atoms finds the smallest traffic among the partitions of that cost. Both slide a window over the
 * layers. */
#include "ops/lowering/partition.h"

#include <limits.h>
#include <string.h>

#include "ops/ops_impl.h"

/* Sums over the layers before a position, [layers + 1]; what a cut before a layer sends; and tied parameters. */
typedef struct sums {
    const ckpt_network *network;
    ckpt_ns *time;
    ckpt_bytes *stored;
    int *runs; /* layers that run */
    ckpt_bytes *sent;
    int *before, *behind; /* [node * CKPT_PARAM_MAX + k]: the nearest layer tied to the same parameter; -1 and INT_MAX:
                             there is none */
} sums;

static ckpt_code take_sums(const ckpt_network *network, ckpt_arena *out, sums *s, ckpt_err *err)
{
    const size_t size = (size_t)network->node_count + 1;
    *s = (sums){
        .network = network,
        .time = CKPT_NEW(out, ckpt_ns, size),
        .stored = CKPT_NEW(out, ckpt_bytes, size),
        .runs = CKPT_NEW(out, int, size),
        .sent = CKPT_NEW(out, ckpt_bytes, size),
        .before = CKPT_NEW(out, int, CKPT_PARAM_MAX *size),
        .behind = CKPT_NEW(out, int, CKPT_PARAM_MAX *size),
    };
    return s->time != NULL && s->stored != NULL && s->runs != NULL && s->sent != NULL && s->before != NULL &&
                   s->behind != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "partition of %d layers", network->node_count);
}

/* Each layer's number at index layer + 1, so that adding up gives the sums over the layers before. */
static void fill_layers(const ckpt_lowered *whole, sums *s)
{
    const ckpt_graph *const graph = whole->graph;
    for (int o = 0; o < graph->op_count; o++) {
        const int n = whole->op_role[o].node;
        const ckpt_list writes = graph->op[o].writes;
        if (n < 0) {
            continue; /* the norm of all gradients */
        }
        s->time[n + 1] = ckpt_plus(s->time[n + 1], graph->op[o].time_ns);
        for (int i = 0; i < writes.count; i++) {
            const ckpt_buffer *const buffer = &graph->buffer[writes.at[i]];
            s->stored[n + 1] = ckpt_plus(s->stored[n + 1], buffer->kind == CKPT_GRADIENT ? 0 : buffer->bytes);
        }
    }
    for (int n = 0; n < s->network->node_count; n++) {
        s->time[n + 1] = ckpt_plus(s->time[n + 1], s->time[n]);
        s->stored[n + 1] = ckpt_plus(s->stored[n + 1], s->stored[n]);
        s->runs[n + 1] = s->runs[n] + !s->network->node[n].alias;
    }
}

/* `apart`: every layer has a copy. */
static ckpt_code fill_sharers(bool apart, ckpt_arena *scratch, sums *s, ckpt_err *err)
{
    const size_t size = (size_t)s->network->node_count * CKPT_PARAM_MAX;
    int *const latest = CKPT_NEW(scratch, int, size); /* of the owner's parameter, 1 more than the layer */
    if (latest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "parameters of %d layers", s->network->node_count);
    }
    for (int n = 0; n < s->network->node_count; n++) {
        const ckpt_node *const node = &s->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            const int owner = node->param[k].tied >= 0 && !apart ? node->param[k].tied : n;
            int *const last = &latest[owner * CKPT_PARAM_MAX + k];
            s->before[n * CKPT_PARAM_MAX + k] = *last - 1;
            s->behind[n * CKPT_PARAM_MAX + k] = INT_MAX;
            if (*last > 0) {
                s->behind[(*last - 1) * CKPT_PARAM_MAX + k] = n;
            }
            *last = n + 1;
        }
    }
    return CKPT_OK;
}

static ckpt_bytes buffer_bytes(const ckpt_graph *graph, int buffer)
{
    return buffer >= 0 ? graph->buffer[buffer].bytes : 0;
}

/* A value crosses every cut between the layer that makes it and the last that reads it, its gradient comes back. */
static ckpt_code fill_sent(const ckpt_network *network, const ckpt_lowered *whole, ckpt_arena *scratch, sums *s,
                           ckpt_err *err)
{
    int *const last = CKPT_NEW(scratch, int, network->value_count);
    ckpt_bytes *const ends = CKPT_NEW(scratch, ckpt_bytes, (size_t)network->node_count + 1);
    if (last == NULL || ends == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "readers of %d values", network->value_count);
    }
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < network->node[n].in_count; k++) {
            last[network->value[network->node[n].in_value[k]].storage] = n;
        }
    }
    for (int v = 0; v < network->value_count; v++) {
        const int maker = network->value[v].node;
        if (network->value[v].storage == v && maker >= 0 && last[v] > maker) {
            const ckpt_bytes both = ckpt_plus(buffer_bytes(whole->graph, whole->value_buffer[v]),
                                              buffer_bytes(whole->graph, whole->grad_buffer[v]));
            s->sent[maker + 1] = ckpt_plus(s->sent[maker + 1], both);
            ends[last[v]] = ckpt_plus(ends[last[v]], both);
        }
    }
    for (int c = 1; c <= network->node_count; c++) {
        s->sent[c] = ckpt_plus(s->sent[c], s->sent[c - 1]) - ends[c - 1];
    }
    return CKPT_OK;
}

static ckpt_code sum_up(const ckpt_network *network, const ckpt_lowered *whole, bool apart, ckpt_arena *out, sums *s,
                        ckpt_err *err)
{
    CKPT_TRY(take_sums(network, out, s, err));
    fill_layers(whole, s);
    CKPT_TRY(fill_sharers(apart, out, s, err));
    return fill_sent(network, whole, out, s, err);
}

/* Consecutive layers, and the bytes of their parameters and of the optimizer's state, each counted once. */
typedef struct window {
    int from, to;
    ckpt_bytes param, state;
} window;

/* `sign` 1: parameter k of a node comes into the window; -1: it leaves. No more than the static block. */
static void count_param(const ckpt_network *network, window *w, int node, int k, int sign)
{
    w->param += sign * ckpt_param_bytes(&network->node[node].param[k]);
    for (int i = 0; i < ckpt_network_slots(network); i++) {
        w->state += sign * ckpt_network_slot_bytes(network, node, k, i);
    }
}

static void grow(const sums *s, window *w, int to)
{
    for (; w->to < to; w->to++) {
        const ckpt_node *const node = &s->network->node[w->to];
        for (int k = 0; k < node->param_count; k++) {
            if (s->before[w->to * CKPT_PARAM_MAX + k] < w->from) {
                count_param(s->network, w, w->to, k, 1);
            }
        }
    }
}

static void shrink(const sums *s, window *w, int from)
{
    for (; w->from < from; w->from++) {
        const ckpt_node *const node = &s->network->node[w->from];
        for (int k = 0; k < node->param_count; k++) {
            if (s->behind[w->from * CKPT_PARAM_MAX + k] >= w->to) {
                count_param(s->network, w, w->from, k, -1);
            }
        }
    }
}

/* With gradients, the optimizer's state and bfloat16 copies. */
static ckpt_bytes state_bytes(const ckpt_network *network, const window *w)
{
    const bool narrow = network->model->dtype == CKPT_BFLOAT16;
    return ckpt_plus(ckpt_plus(ckpt_times(2, w->param), w->state), narrow ? w->param / 2 : 0);
}

/* Two layers that must be in one part, one being another shape of the other; the farthest apart of all. */
typedef struct bond {
    int from, to;
} bond;

/* bound_to[c]: the farthest layer to which layer c is bound, itself or later. */
static bond find_bonds(const ckpt_network *network, int *bound_to)
{
    bond widest = {0};
    for (int n = 0; n < network->node_count; n++) {
        bound_to[n] = n;
    }
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        const int other = node->alias ? network->value[network->value[node->out_value[0]].storage].node : -1;
        if (other >= 0) {
            bound_to[other] = bound_to[other] > n ? bound_to[other] : n;
            widest = n - other > widest.to - widest.from ? (bond){other, n} : widest;
        }
    }
    return widest;
}

/* Positions where parts may begin, the first 0, and the end behind them. */
static int find_starts(const ckpt_network *network, const int *bound_to, int *start)
{
    int count = 0;
    int reach = -1; /* layers up to here belong together */
    for (int n = 0; n < network->node_count; n++) {
        if (n > reach) {
            start[count++] = n;
        }
        reach = bound_to[n] > reach ? bound_to[n] : reach;
    }
    start[count] = network->node_count;
    return count;
}

typedef struct cutting {
    const sums *s;
    const int *start; /* [atoms + 1] */
    int *running;     /* [atoms + 1]: atoms before that have a layer that runs */
    int atoms, stages, micro_batches;
    double time_weight, byte_weight; /* per ns, per byte */
} cutting;

/* Micro-batches that are between their forward and their backward at once (1F1B). */
static int under_way(const cutting *c, int stage)
{
    const int most = c->stages - stage;
    return most < c->micro_batches ? most : c->micro_batches;
}

/* The layers as stage `stage`. No less for more layers, in doubles too: integers, scaled. */
static double cost(const cutting *c, const window *w, int stage)
{
    const ckpt_ns time = c->s->time[w->to] - c->s->time[w->from];
    const ckpt_bytes stored = ckpt_times(under_way(c, stage), c->s->stored[w->to] - c->s->stored[w->from]);
    const ckpt_bytes bytes = ckpt_plus(state_bytes(c->s->network, w), stored);
    return c->time_weight * (double)time + c->byte_weight * (double)bytes;
}

/* Is there a partition with no part above `most`? Each stage takes as many atoms as it may. That is optimal although
 * every part needs a layer that runs: with enough atoms parts can be divided, and the layers behind move to later
 * stages, where fewer micro-batches are under way and nothing costs more. */
static bool is_enough(const cutting *c, double most)
{
    int j = 0;
    for (int stage = 0; stage < c->stages; stage++) {
        window w = {.from = c->start[j], .to = c->start[j]};
        while (j < c->atoms) {
            grow(c->s, &w, c->start[j + 1]);
            if (cost(c, &w, stage) > most) {
                break;
            }
            j++;
        }
        if (c->running[j] <= stage) {
            return false;
        }
    }
    return j == c->atoms;
}

static double double_of(int64_t bits)
{
    double number = 0;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* The smallest possible largest cost, by bisection on the bits: doubles of one sign have the order of their bits. */
static double least_cost(const cutting *c)
{
    window all = {0};
    grow(c->s, &all, c->start[c->atoms]);
    const double highest = cost(c, &all, 0);
    int64_t low = 0, high = 0;
    memcpy(&high, &highest, sizeof high);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (is_enough(c, double_of(middle))) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return double_of(high);
}

/* Where a part may begin, those with less traffic than all behind them. */
typedef struct queue {
    int *at; /* [atoms + 1] */
    int head, tail;
} queue;

static void put(queue *q, const ckpt_bytes *sent, int i)
{
    while (q->tail > q->head && sent[q->at[q->tail - 1]] >= sent[i]) {
        q->tail--;
    }
    q->at[q->tail++] = i;
}

/* The least traffic of stages 0 .. `stage` that hold exactly the layers before each atom; -1: impossible. On entry
 * `row` has that of the stage before. from[j]: where the stage begins when it ends at j. sent: scratch. */
static void least_sent(const cutting *c, int stage, double most, const ckpt_bytes *row, ckpt_bytes *next, int *from,
                       queue q, ckpt_bytes *sent)
{
    window w = {0};
    int lowest = 0, seen = 0; /* the lowest start that is possible; starts that were looked at */
    next[0] = -1;
    for (int j = 1; j <= c->atoms; j++) {
        grow(c->s, &w, c->start[j]);
        for (; lowest < j && cost(c, &w, stage) > most; lowest++) {
            shrink(c->s, &w, c->start[lowest + 1]);
        }
        for (; seen < j && c->running[seen] < c->running[j]; seen++) {
            sent[seen] = row[seen] < 0 ? -1 : ckpt_plus(row[seen], c->s->sent[c->start[seen]]);
            if (sent[seen] >= 0) {
                put(&q, sent, seen);
            }
        }
        while (q.head < q.tail && q.at[q.head] < lowest) {
            q.head++;
        }
        next[j] = q.head < q.tail ? sent[q.at[q.head]] : -1;
        from[j] = q.head < q.tail ? q.at[q.head] : 0;
    }
}

static ckpt_code cut(const cutting *c, ckpt_arena *scratch, const char **first, ckpt_err *err)
{
    const size_t size = (size_t)c->atoms + 1;
    ckpt_bytes *row = CKPT_NEW(scratch, ckpt_bytes, size);
    ckpt_bytes *next = CKPT_NEW(scratch, ckpt_bytes, size);
    ckpt_bytes *const sent = CKPT_NEW(scratch, ckpt_bytes, size);
    int *const from = CKPT_NEW(scratch, int, (size_t)c->stages *size);
    const queue q = {.at = CKPT_NEW(scratch, int, size)};
    if (row == NULL || next == NULL || sent == NULL || from == NULL || q.at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d stages of %d layers", c->stages, c->s->network->node_count);
    }
    const double most = least_cost(c);
    for (size_t j = 1; j < size; j++) {
        row[j] = -1; /* before the first stage there is nothing */
    }
    for (int stage = 0; stage < c->stages; stage++) {
        least_sent(c, stage, most, row, next, &from[(size_t)stage * size], q, sent);
        ckpt_bytes *const swap = row;
        row = next;
        next = swap;
    }
    int j = c->atoms;
    for (int stage = c->stages - 1; stage >= 0; stage--) {
        j = from[(size_t)stage * size + (size_t)j];
        first[stage] = c->s->network->node[c->start[j]].name;
    }
    return CKPT_OK;
}

/* "model.json:41:9: layer h.0.qkv" */
static ckpt_code at_layer(const ckpt_network *network, int node, ckpt_code code, ckpt_err *err)
{
    const ckpt_layer *const layer = network->node[node].layer;
    if (layer->at.line > 0) {
        ckpt_err_at(err, "%s:%d:%d: layer %s", network->model->source, layer->at.line, layer->at.column, layer->name);
    } else {
        ckpt_err_at(err, "%s: layer %s", network->model->source, layer->name);
    }
    return code;
}

static ckpt_code too_many(const ckpt_network *network, int stages, int possible, bond widest, ckpt_err *err)
{
    if (widest.to == widest.from) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d stages, wanted 1 to %d: so many layers run",
                         network->model->source, stages, possible);
    }
    const ckpt_code code = CKPT_FAIL(
        err, CKPT_BAD_INPUT, "is another shape of layer %s, so both are in one stage: %d stages, wanted 1 to %d",
        network->node[widest.from].name, stages, possible);
    return at_layer(network, widest.to, code, err);
}

/* One for all of `whole`. */
static double share(double weight, double whole)
{
    return whole > 0 ? weight / whole : 0;
}

/* All bytes, with as many micro-batches under way as in the mean of all stages. */
static double all_bytes(const cutting *c)
{
    const int count = c->s->network->node_count;
    window all = {0};
    double held = 0;
    grow(c->s, &all, count);
    for (int stage = 0; stage < c->stages; stage++) {
        held += under_way(c, stage);
    }
    return (double)state_bytes(c->s->network, &all) + (double)c->s->stored[count] * held / c->stages;
}

static void count_running(const cutting *c)
{
    for (int i = 0; i < c->atoms; i++) {
        c->running[i + 1] = c->running[i] + (c->s->runs[c->start[i + 1]] > c->s->runs[c->start[i]]);
    }
}

ckpt_code ckpt_partition_choose(const ckpt_network *network, const ckpt_lowered *whole, const ckpt_scheme *scheme,
                                double memory_weight, ckpt_arena *out, const char *const **first_layer, ckpt_err *err)
{
    if (!(memory_weight >= 0 && memory_weight <= 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "memory weight %g, wanted 0 to 1", memory_weight);
    }
    const int count = network->node_count;
    const int stages = scheme->stages;
    const char **const first = CKPT_NEW(out, const char *, stages > 0 && stages <= count ? stages : 1);
    int *const bound_to = CKPT_NEW(out, int, count);
    int *const start = CKPT_NEW(out, int, (size_t)count + 1);
    int *const running = CKPT_NEW(out, int, (size_t)count + 1);
    sums s;
    if (first == NULL || bound_to == NULL || start == NULL || running == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "partition of %d layers", count);
    }
    CKPT_TRY(sum_up(network, whole, scheme->apart, out, &s, err));
    const bond widest = find_bonds(network, bound_to);
    cutting c = {.s = &s,
                 .start = start,
                 .running = running,
                 .atoms = find_starts(network, bound_to, start),
                 .stages = stages,
                 .micro_batches = scheme->micro_batches};
    count_running(&c);
    if (stages < 1 || stages > running[c.atoms]) {
        return too_many(network, stages, running[c.atoms], widest, err);
    }
    c.time_weight = share(1 - memory_weight, (double)s.time[count]);
    c.byte_weight = share(memory_weight, all_bytes(&c));
    CKPT_TRY(cut(&c, out, first, err));
    *first_layer = first;
    return CKPT_OK;
}

ckpt_code ckpt_partition_given(const ckpt_network *network, ckpt_arena *out, int *stages,
                               const char *const **first_layer, ckpt_err *err)
{
    bool said = false;
    int running = 0;
    int stage = 0;
    const char **const first = CKPT_NEW(out, const char *, network->node_count);
    if (first == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stages of %d layers", network->node_count);
    }
    first[0] = network->node[0].name;
    for (int n = 0; n < network->node_count; n++) {
        const int wanted = network->node[n].layer->stage;
        said = said || wanted >= 0;
        if (wanted >= 0 && wanted != stage && (wanted != stage + 1 || n == 0)) {
            const ckpt_code code =
                n == 0 ? CKPT_FAIL(err, CKPT_BAD_INPUT, "stage %d, wanted 0 in the first layer", wanted)
                       : CKPT_FAIL(err, CKPT_BAD_INPUT, "stage %d behind a layer of stage %d, wanted %d or %d", wanted,
                                   stage, stage, stage + 1);
            return at_layer(network, n, code, err);
        }
        if (wanted > stage && running == 0) {
            return at_layer(network, n,
                            CKPT_FAIL(err, CKPT_BAD_INPUT, "stage %d, but nothing runs in stage %d", wanted, stage),
                            err);
        }
        if (wanted > stage) {
            first[++stage] = network->node[n].name;
            running = 0;
        }
        running += !network->node[n].alias;
    }
    if (said && running == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: nothing runs in stage %d, which begins with layer %s",
                         network->model->source, stage, first[stage]);
    }
    *stages = said ? stage + 1 : 0;
    *first_layer = said ? first : NULL;
    return CKPT_OK;
}

static void describe_part(const sums *s, int from, int to, ckpt_part *part)
{
    const ckpt_network *const network = s->network;
    window w = {.from = from, .to = from};
    grow(s, &w, to);
    *part = (ckpt_part){
        .first = network->node[from].name,
        .last = network->node[to - 1].name,
        .layers = to - from,
        .time_ns = s->time[to] - s->time[from],
        .param_bytes = w.param,
        .state_bytes = state_bytes(network, &w),
        .stored_bytes = s->stored[to] - s->stored[from],
        .sent_bytes = to < network->node_count ? s->sent[to] : 0,
    };
}

ckpt_code ckpt_partition_describe(const ckpt_network *network, const ckpt_lowered *whole, const ckpt_scheme *scheme,
                                  ckpt_arena *out, const ckpt_part **part, ckpt_err *err)
{
    const int stages = scheme->stages;
    const char *const *const first_layer = scheme->first_layer;
    ckpt_part *const made = CKPT_NEW(out, ckpt_part, stages);
    sums s;
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "description of %d stages", stages);
    }
    CKPT_TRY(sum_up(network, whole, scheme->apart, out, &s, err));
    int from = 0;
    for (int i = 0; i < stages; i++) {
        const bool last = i + 1 == stages;
        int to = from + 1;
        while (to < network->node_count && (last || strcmp(network->node[to].name, first_layer[i + 1]) != 0)) {
            to++;
        }
        const bool found = strcmp(network->node[from].name, first_layer[i]) == 0;
        if (!found || (!last && to == network->node_count)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: stage %d begins with layer %s, wanted a layer behind stage %d",
                             network->model->source, found ? i + 1 : i, first_layer[found ? i + 1 : i],
                             found ? i : i - 1);
        }
        describe_part(&s, from, to, &made[i]);
        from = to;
    }
    *part = made;
    return CKPT_OK;
}
