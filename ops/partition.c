/* Cutting the list of layers. Layers between which no cut may be form an atom; a dynamic program over atoms finds the
 * least largest cost, a second one the least traffic among the partitions that have it. */
#include "ops/partition.h"

#include <string.h>

#include "ops/ops_impl.h"

/* Sums over the layers before a position, [layers + 1]; and what a cut before a layer sends. */
typedef struct sums {
    ckpt_ns *time;
    ckpt_bytes *state, *stored, *param;
    int *runs; /* layers that run */
    ckpt_bytes *sent;
} sums;

static ckpt_code take_sums(int count, ckpt_arena *out, sums *s, ckpt_err *err)
{
    const size_t room = (size_t)count + 1;
    *s = (sums){
        .time = CKPT_NEW(out, ckpt_ns, room),
        .state = CKPT_NEW(out, ckpt_bytes, room),
        .stored = CKPT_NEW(out, ckpt_bytes, room),
        .param = CKPT_NEW(out, ckpt_bytes, room),
        .runs = CKPT_NEW(out, int, room),
        .sent = CKPT_NEW(out, ckpt_bytes, room),
    };
    return s->time != NULL && s->state != NULL && s->stored != NULL && s->param != NULL && s->runs != NULL &&
                   s->sent != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "partition of %d layers", count);
}

/* Of each layer, one place behind it, so that sums over what lies before follow by adding up. */
static void fill_layers(const ckpt_network *network, const ckpt_lowered *whole, sums *s)
{
    const bool narrow = network->model->dtype == CKPT_BFLOAT16;
    const int slots = network->optimizer->slots(network->hyper);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0) {
                const ckpt_bytes bytes = ckpt_tensor_bytes(&node->param[k].tensor);
                s->param[n + 1] = ckpt_plus(s->param[n + 1], bytes);
                s->state[n + 1] = ckpt_plus(s->state[n + 1], ckpt_times(2 + slots, bytes));
                s->state[n + 1] = ckpt_plus(s->state[n + 1], narrow ? bytes / 2 : 0);
            }
        }
        s->runs[n + 1] = node->alias ? 0 : 1;
    }
    const ckpt_graph *const graph = whole->graph;
    for (int o = 0; o < graph->op_count; o++) {
        const int n = whole->op_role[o].node;
        const ckpt_list writes = graph->op[o].writes;
        s->time[n + 1] = ckpt_plus(s->time[n + 1], graph->op[o].time_ns);
        for (int i = 0; i < writes.count; i++) {
            const ckpt_buffer *const buffer = &graph->buffer[writes.at[i]];
            s->stored[n + 1] = ckpt_plus(s->stored[n + 1], buffer->kind == CKPT_GRADIENT ? 0 : buffer->bytes);
        }
    }
    for (int n = 0; n < network->node_count; n++) {
        s->time[n + 1] = ckpt_plus(s->time[n + 1], s->time[n]);
        s->state[n + 1] = ckpt_plus(s->state[n + 1], s->state[n]);
        s->stored[n + 1] = ckpt_plus(s->stored[n + 1], s->stored[n]);
        s->param[n + 1] = ckpt_plus(s->param[n + 1], s->param[n]);
        s->runs[n + 1] += s->runs[n];
    }
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

static ckpt_code sum_up(const ckpt_network *network, const ckpt_lowered *whole, ckpt_arena *out, sums *s, ckpt_err *err)
{
    CKPT_TRY(take_sums(network->node_count, out, s, err));
    fill_layers(network, whole, s);
    return fill_sent(network, whole, out, s, err);
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
    int atoms, stages;
    double time_weight, byte_weight; /* per ns, per byte */
} cutting;

/* Atoms i .. j - 1 as one part. No less with more atoms, in doubles too: differences of integers, scaled. */
static double cost(const cutting *c, int i, int j)
{
    const int from = c->start[i];
    const int to = c->start[j];
    const ckpt_ns time = c->s->time[to] - c->s->time[from];
    const ckpt_bytes bytes = ckpt_plus(c->s->state[to] - c->s->state[from], c->s->stored[to] - c->s->stored[from]);
    return c->time_weight * (double)time + c->byte_weight * (double)bytes;
}

static bool runs(const cutting *c, int i, int j)
{
    return c->s->runs[c->start[j]] > c->s->runs[c->start[i]];
}

/* The least largest cost. `row`, `next`: [atoms + 1]; beyond every cost where there is no partition. */
static double least_cost(const cutting *c, double *row, double *next)
{
    const double none = 4;
    for (int j = 0; j <= c->atoms; j++) {
        row[j] = runs(c, 0, j) ? cost(c, 0, j) : none;
    }
    for (int s = 1; s < c->stages; s++) {
        for (int j = 0; j <= c->atoms; j++) {
            double best = none;
            for (int i = j - 1; i > 0 && cost(c, i, j) < best; i--) {
                const double part = cost(c, i, j);
                const double most = part > row[i] ? part : row[i];
                best = runs(c, i, j) && most < best ? most : best;
            }
            next[j] = best;
        }
        double *const swap = row;
        row = next;
        next = swap;
    }
    return row[c->atoms];
}

/* The least sent with no part above `most`; came_from[s * (atoms + 1) + j]: where part s begins that ends at j. */
static void least_sent(const cutting *c, double most, ckpt_bytes *row, ckpt_bytes *next, int *came_from)
{
    for (int j = 0; j <= c->atoms; j++) {
        row[j] = runs(c, 0, j) && cost(c, 0, j) <= most ? 0 : -1;
    }
    for (int s = 1; s < c->stages; s++) {
        int *const from = &came_from[(size_t)s * ((size_t)c->atoms + 1)];
        for (int j = 0; j <= c->atoms; j++) {
            next[j] = -1;
            for (int i = j - 1; i > 0 && cost(c, i, j) <= most; i--) {
                const ckpt_bytes sent = ckpt_plus(row[i], c->s->sent[c->start[i]]);
                if (row[i] >= 0 && runs(c, i, j) && (next[j] < 0 || sent < next[j])) {
                    next[j] = sent;
                    from[j] = i;
                }
            }
        }
        ckpt_bytes *const swap = row;
        row = next;
        next = swap;
    }
}

static ckpt_code cut(const cutting *c, const ckpt_network *network, ckpt_arena *scratch, const char **first,
                     ckpt_err *err)
{
    const size_t room = (size_t)c->atoms + 1;
    double *const row = CKPT_NEW(scratch, double, 2 * room);
    ckpt_bytes *const sent = CKPT_NEW(scratch, ckpt_bytes, 2 * room);
    int *const came_from = CKPT_NEW(scratch, int, (size_t)c->stages *room);
    if (row == NULL || sent == NULL || came_from == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d stages of %d layers", c->stages, network->node_count);
    }
    const double most = least_cost(c, row, row + room);
    least_sent(c, most, sent, sent + room, came_from);
    int j = c->atoms;
    for (int s = c->stages - 1; s > 0; s--) {
        j = came_from[(size_t)s * room + (size_t)j];
        first[s] = network->node[c->start[j]].name;
    }
    first[0] = network->node[0].name;
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

static double share(double weight, int64_t whole)
{
    return whole > 0 ? weight / (double)whole : 0;
}

ckpt_code ckpt_partition_choose(const ckpt_network *network, const ckpt_lowered *whole, int stages,
                                double memory_weight, ckpt_arena *out, const char *const **first_layer, ckpt_err *err)
{
    if (!(memory_weight >= 0 && memory_weight <= 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "memory weight %g, wanted 0 to 1", memory_weight);
    }
    const int count = network->node_count;
    const char **const first = CKPT_NEW(out, const char *, stages > 0 && stages <= count ? stages : 1);
    int *const bound_to = CKPT_NEW(out, int, count);
    int *const start = CKPT_NEW(out, int, (size_t)count + 1);
    sums s;
    if (first == NULL || bound_to == NULL || start == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "partition of %d layers", count);
    }
    CKPT_TRY(sum_up(network, whole, out, &s, err));
    const bond widest = find_bonds(network, bound_to);
    const int64_t bytes = ckpt_plus(s.state[count], s.stored[count]);
    const cutting c = {.s = &s,
                       .start = start,
                       .atoms = find_starts(network, bound_to, start),
                       .stages = stages,
                       .time_weight = share(1 - memory_weight, s.time[count]),
                       .byte_weight = share(memory_weight, bytes)};
    int possible = 0;
    for (int i = 0; i < c.atoms; i++) {
        possible += runs(&c, i, i + 1);
    }
    if (stages < 1 || stages > possible) {
        return too_many(network, stages, possible, widest, err);
    }
    CKPT_TRY(cut(&c, network, out, first, err));
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

static void describe_part(const ckpt_network *network, const sums *s, int from, int to, ckpt_part *part)
{
    *part = (ckpt_part){
        .first = network->node[from].name,
        .last = network->node[to - 1].name,
        .layers = to - from,
        .time_ns = s->time[to] - s->time[from],
        .param_bytes = s->param[to] - s->param[from],
        .state_bytes = s->state[to] - s->state[from],
        .stored_bytes = s->stored[to] - s->stored[from],
        .sent_bytes = to < network->node_count ? s->sent[to] : 0,
    };
}

ckpt_code ckpt_partition_describe(const ckpt_network *network, const ckpt_lowered *whole, int stages,
                                  const char *const *first_layer, ckpt_arena *out, const ckpt_part **part,
                                  ckpt_err *err)
{
    ckpt_part *const made = CKPT_NEW(out, ckpt_part, stages);
    sums s;
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "description of %d stages", stages);
    }
    CKPT_TRY(sum_up(network, whole, out, &s, err));
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
        describe_part(network, &s, from, to, &made[i]);
        from = to;
    }
    *part = made;
    return CKPT_OK;
}
