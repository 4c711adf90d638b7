/* A network as one training step: for each micro-batch forward ops in layer order and backward ops in reverse, in the
 * 1F1B order of its stage, then updates.
 *
 * A recomputation after an update of the weights it reads would give other bits. No plan needs one, so nothing guards
 * against it: the update stands behind the last backward op of this stage that contributes to its gradients, in the
 * last micro-batch. What a layer and those after it computed, received or saved is read by their own forward and
 * backward ops alone, in this and earlier micro-batches, and all of those stand before the update:
 *   - static gradients: all updates stand behind all backwards;
 *   - replicas: the update comes later still, when its bucket is reduced;
 *   - fused gradients: once backward has passed layer n, nothing above n is run any more, and 1F1B ends with the
 *     backward of the last micro-batch, behind all forwards and other backwards;
 *   - tied parameters: the update waits for the lowest tied layer that has a backward. A layer without one contributes
 *     nothing that a backward reads, or a gradient would reach it;
 *   - stages: other stages read a copy, in the message, and what they sent is no result of a run. Each stage has its
 *     copy of a tied parameter, and all copies are updated behind the last backward;
 *   - the loss, which is an output, may not be recomputed. */
#include <assert.h>
#include <string.h>

#include "ops/lowering/lower_impl.h"
#include "ops/lowering/network_impl.h"
#include "ops/ops_impl.h"

/* With which layer's backward the gradients of a layer's parameters are complete. */
static ckpt_code find_gradients(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    CKPT_TRY(ckpt_network_reach(network, l->out, &l->has_backward, err));
    l->completes = CKPT_NEW(l->out, int, network->node_count);
    if (l->completes == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gradients of %d layers", network->node_count);
    }
    ckpt_network_completes(network, l->has_backward, l->completes);
    return CKPT_OK;
}

/* Upper bounds of ops and buffers over all micro-batches. A message is two ops at one end and one at the other. */
static ckpt_code count_capacities(ckpt_lowering *l, ckpt_err *err)
{
    enum { MESSAGE_OPS = 3, MESSAGES = 2, ROUTE_BUFFERS = 4, BUCKET_OPS = 4 };
    const ckpt_network *const network = l->network;
    const int64_t batches = network->scheme.micro_batches;
    int64_t nodes = 0, buffers = 0, params = 0, ways = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        if (ckpt_lower_here(l, n)) {
            nodes++;
            buffers += 2 * node->out_count + node->saved_count;
            params += node->param_count;
            ways += ckpt_lower_has_ways(l, node) ? node->way_count : 0;
        }
    }
    const int64_t messages = (int64_t)l->route_count * MESSAGES * MESSAGE_OPS;
    const int64_t ops = batches * (2 * nodes + messages) + nodes + BUCKET_OPS * (int64_t)l->bucket_count +
                        l->network->tied_group_count + 1;
    buffers = batches * (buffers + ROUTE_BUFFERS * (int64_t)l->route_count) + params + l->bucket_count;
    const int64_t tables = batches * (network->value_count + (int64_t)network->node_count * CKPT_SAVED_MAX);
    ways *= batches;
    if (ops + ways > INT32_MAX || buffers > INT32_MAX || tables > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%s: %lld operations and %lld buffers in %lld micro-batches",
                         network->model->source, (long long)ops, (long long)buffers, (long long)batches);
    }
    l->op_capacity = (int)ops;
    l->variant_capacity = (int)ways;
    l->buffer_capacity = (int)buffers;
    return CKPT_OK;
}

static int *new_table(const ckpt_lowering *l, size_t count)
{
    int *const table = CKPT_NEW(l->out, int, count);
    for (size_t i = 0; table != NULL && i < count; i++) {
        table[i] = -1;
    }
    return table;
}

static ckpt_code take_tables(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    const size_t nodes = (size_t)network->node_count;
    const size_t batches = (size_t)network->scheme.micro_batches;
    CKPT_TRY(count_capacities(l, err));
    l->row = CKPT_NEW(l->out, const ckpt_profile_row *, nodes);
    l->op = CKPT_NEW(l->out, ckpt_graph_op, (size_t)l->op_capacity + (size_t)l->variant_capacity);
    l->variant = l->op != NULL ? l->op + l->op_capacity : NULL; /* ckpt_lower_join_ways closes the gap */
    l->way = CKPT_NEW(l->out, const ckpt_way *, l->variant_capacity);
    l->op_role = CKPT_NEW(l->out, ckpt_op_role, l->op_capacity);
    l->buffer = CKPT_NEW(l->out, ckpt_buffer, l->buffer_capacity);
    l->buffer_role = CKPT_NEW(l->out, ckpt_buffer_role, l->buffer_capacity);
    l->value_buffer = new_table(l, batches * (size_t)network->value_count);
    l->grad_buffer = new_table(l, batches * (size_t)network->value_count);
    l->saved_buffer = new_table(l, batches * nodes * CKPT_SAVED_MAX);
    l->param_grad_buffer = new_table(l, nodes * CKPT_PARAM_MAX);
    l->pass_end = new_table(l, (size_t)l->buffer_capacity);
    l->param_written = CKPT_NEW(l->out, bool, CKPT_PARAM_MAX *nodes);
    if (l->row == NULL || l->op == NULL || l->op_role == NULL || l->buffer == NULL || l->buffer_role == NULL ||
        l->value_buffer == NULL || l->grad_buffer == NULL || l->saved_buffer == NULL || l->param_grad_buffer == NULL ||
        l->pass_end == NULL || l->param_written == NULL || l->way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of %d layers", network->node_count);
    }
    return CKPT_OK;
}

/* The layer in the micro-batch that is lowered. */
static ckpt_code begin_layer(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    l->label = ckpt_lower_label(l, node->name);
    return l->label != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "label of %s", node->name);
}

static ckpt_code lower_node_forward(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    CKPT_TRY(begin_layer(l, node, err));
    CKPT_TRY(ckpt_lower_forward(l, node, err));
    return ckpt_lower_send_results(l, node, err);
}

static ckpt_code lower_batch_forward(ckpt_lowering *l, int batch, ckpt_err *err)
{
    l->batch = batch;
    CKPT_TRY(ckpt_lower_receive_values(l, err));
    for (int n = 0; n < l->network->node_count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        if (ckpt_lower_here(l, n)) {
            CKPT_TRY_WHILE(err, lower_node_forward(l, node, err), "lowering layer %s of %s", node->name,
                           l->network->model->source);
        }
    }
    return CKPT_OK;
}

static ckpt_code lower_node_backward(ckpt_lowering *l, const ckpt_node *node, bool last, ckpt_err *err)
{
    CKPT_TRY(begin_layer(l, node, err));
    CKPT_TRY(ckpt_lower_backward(l, node, err));
    CKPT_TRY(ckpt_lower_send_gradients(l, node, err));
    return last ? ckpt_lower_completed(l, node, err) : CKPT_OK;
}

static ckpt_code lower_batch_backward(ckpt_lowering *l, int batch, ckpt_err *err)
{
    const bool last = batch == l->network->scheme.micro_batches - 1;
    l->batch = batch;
    CKPT_TRY(ckpt_lower_receive_gradients(l, err));
    for (int n = l->network->node_count - 1; n >= 0; n--) {
        const ckpt_node *const node = &l->network->node[n];
        if (ckpt_lower_here(l, n) && l->has_backward[n]) {
            CKPT_TRY_WHILE(err, lower_node_backward(l, node, last, err), "lowering layer %s of %s", node->name,
                           l->network->model->source);
        }
    }
    return CKPT_OK;
}

/* 1F1B: some forwards ahead, so that the later stages have work; then as few micro-batches as possible are under
 * way. */
static ckpt_code lower_ops(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &l->network->scheme;
    const int batches = scheme->micro_batches;
    const int behind = scheme->stages - 1 - scheme->stage;
    const int ahead = behind < batches ? behind : batches;
    for (int j = 0; j < ahead; j++) {
        CKPT_TRY(lower_batch_forward(l, j, err));
    }
    for (int j = 0; j < batches; j++) {
        if (ahead + j < batches) {
            CKPT_TRY(lower_batch_forward(l, ahead + j, err));
        }
        CKPT_TRY(lower_batch_backward(l, j, err));
    }
    CKPT_TRY(ckpt_lower_sent_all(l, err));
    return ckpt_lower_updates(l, err);
}

/* A value seen under another shape has the buffers of what it shows. */
static void fill_aliases(ckpt_lowering *l)
{
    for (l->batch = 0; l->batch < l->network->scheme.micro_batches; l->batch++) {
        const size_t first = (size_t)l->batch * (size_t)l->network->value_count;
        for (int v = 0; v < l->network->value_count; v++) {
            l->value_buffer[first + (size_t)v] = *ckpt_lower_value(l, v);
            l->grad_buffer[first + (size_t)v] = *ckpt_lower_grad(l, v);
        }
    }
}

/* A plan can only say "in place", not which: of several inputs, take the first that nothing reads afterwards, or else
 * the first. */
static ckpt_code choose_inplace(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(l->out);
    int *const last_reader = CKPT_NEW(l->out, int, l->buffer_count);
    if (last_reader == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "readers of %d buffers", l->buffer_count);
    }
    for (int i = 0; i < l->op_count; i++) {
        for (int r = 0; r < l->op[i].reads.count; r++) {
            last_reader[l->op[i].reads.at[r]] = i;
        }
    }
    for (int i = 0; i < l->op_count; i++) {
        ckpt_graph_op *const op = &l->op[i];
        for (int k = 0; k < op->inplace_count; k++) {
            if (last_reader[op->inplace[k].in] == i) {
                op->inplace += k;
                op->inplace_count = 1;
                break;
            }
        }
        op->inplace_count = op->inplace_count > 1 ? 1 : op->inplace_count;
    }
    ckpt_arena_rewind(l->out, mark);
    return CKPT_OK;
}

static ckpt_code lower_statics(const ckpt_lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    ckpt_static_layout layout;
    CKPT_TRY(ckpt_network_statics(l->network, l->out, &layout, err));
    enum { ALWAYS = 5 };
    const ckpt_static statics[] = {
        {.name = "weights", .bytes = layout.gradients - layout.weights},
        {.name = "gradients", .bytes = layout.optimizer - layout.gradients},
        {.name = "optimizer", .bytes = layout.statistics - layout.optimizer},
        {.name = "statistics", .bytes = layout.inputs - layout.statistics},
        {.name = "inputs", .bytes = layout.weights16 - layout.inputs},
        {.name = "weights16", .bytes = layout.scales - layout.weights16}, /* only where there are any */
        {.name = "scales", .bytes = layout.total - layout.scales},        /* likewise */
    };
    const int most = (int)(sizeof statics / sizeof statics[0]);
    ckpt_static *const kept = CKPT_NEW(l->out, ckpt_static, most);
    if (kept == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "static sizes");
    }
    int count = 0;
    for (int i = 0; i < most; i++) {
        if (i < ALWAYS || statics[i].bytes > 0) {
            kept[count++] = statics[i];
        }
    }
    graph->statics = kept;
    graph->static_count = count;
    return CKPT_OK;
}

/* The planner runs copies beside compute and in both directions at once, each at its full rate. So where a profile has
 * rates that were measured under that load, they are taken: a copy alone is faster than any in a step. */
static void choose_link(const ckpt_lowering *l, ckpt_graph *graph)
{
    const ckpt_profile *const p = l->profile;
    const bool measured = p != NULL && p->d2h_bytes_per_s > 0 && p->h2d_bytes_per_s > 0;
    const bool busy = measured && p->d2h_busy_bytes_per_s > 0 && p->h2d_busy_bytes_per_s > 0;
    graph->has_link = measured || l->device->link_bytes_per_s > 0;
    graph->d2h_bytes_per_s = busy       ? p->d2h_busy_bytes_per_s
                             : measured ? p->d2h_bytes_per_s
                                        : l->device->link_bytes_per_s;
    graph->h2d_bytes_per_s = busy       ? p->h2d_busy_bytes_per_s
                             : measured ? p->h2d_bytes_per_s
                                        : l->device->link_bytes_per_s;
}

/* The losses of all micro-batches, where this stage has the loss. */
static ckpt_code list_outputs(ckpt_lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    const int loss = l->network->loss_node;
    const int batches = loss >= 0 && ckpt_lower_here(l, loss) ? l->network->scheme.micro_batches : 0;
    int *const at = CKPT_NEW(l->out, int, batches);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "list of %d losses", batches);
    }
    for (l->batch = 0; l->batch < batches; l->batch++) {
        at[l->batch] = *ckpt_lower_value(l, l->network->node[loss].out_value[0]);
    }
    graph->outputs = (ckpt_list){.at = at, .count = batches};
    return CKPT_OK;
}

static ckpt_code make_graph(ckpt_lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    graph->source = network->model->source;
    graph->name = network->model->name;
    graph->buffer = l->buffer;
    graph->buffer_count = l->buffer_count;
    CKPT_TRY(ckpt_lower_join_ways(l, graph, err));
    CKPT_TRY(lower_statics(l, graph, err));
    choose_link(l, graph);
    CKPT_TRY(list_outputs(l, graph, err));
    return ckpt_graph_check(graph, l->out, err);
}

static ckpt_code look_ahead(ckpt_lowering *l, ckpt_err *err)
{
    CKPT_TRY(find_gradients(l, err));
    CKPT_TRY(ckpt_lower_routes(l, err));
    CKPT_TRY(ckpt_lower_buckets(l, err));
    CKPT_TRY(take_tables(l, err));
    return ckpt_lower_match_profile(l, err);
}

ckpt_code ckpt_network_lower(const ckpt_network *network, const ckpt_profile *profile, const ckpt_device_model *device,
                             ckpt_arena *out, const ckpt_lowered **lowered, ckpt_err *err)
{
    ckpt_lowering l = {
        .network = network, .profile = profile, .device = device != NULL ? device : &ckpt_device_models[0], .out = out};
    ckpt_lowered *const made = CKPT_NEW(out, ckpt_lowered, 1);
    ckpt_graph *const graph = CKPT_NEW(out, ckpt_graph, 1);
    if (made == NULL || graph == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of %d layers", network->node_count);
    }
    CKPT_TRY(look_ahead(&l, err));
    CKPT_TRY(lower_ops(&l, err));
    CKPT_TRY(ckpt_lower_settle_times(&l, err));
    fill_aliases(&l);
    CKPT_TRY(choose_inplace(&l, err));
    CKPT_TRY_WHILE(err, make_graph(&l, graph, err), "lowering %s", network->model->source);
    *made = (ckpt_lowered){
        .network = network,
        .graph = graph,
        .op_role = l.op_role,
        .buffer_role = l.buffer_role,
        .value_buffer = l.value_buffer,
        .grad_buffer = l.grad_buffer,
        .saved_buffer = l.saved_buffer,
        .param_grad_buffer = l.param_grad_buffer,
        .way = l.way,
        .bucket = l.bucket,
        .bucket_count = l.bucket_count,
    };
    *lowered = made;
    return CKPT_OK;
}
