/* From plan steps to actions: walk the plan once, keeping for every buffer the place it holds now, and write down
 * each step's addresses. A place belongs to the step `from` that brings its buffer (or workspace) into memory. */
#include "executor/executor_impl.h"

#include <string.h>

typedef struct ckpt_wiring {
    ckpt_executor *executor;
    ckpt_places places;
    const ckpt_place **held; /* per buffer: its place now; NULL: not in memory */
    unsigned char **host;    /* per buffer: its room in the slab; NULL: never offloaded */
} ckpt_wiring;

static ckpt_code no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the plan's addresses");
}

/* Sort places by the step that opens them (counting sort). */
static ckpt_code index_places(ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_plan *const plan = executor->plan;
    int *const first = CKPT_NEW(&executor->arena, int, plan->step_count + 2);
    const ckpt_place **const by_step = CKPT_NEW(&executor->arena, const ckpt_place *, plan->place_count);
    if (first == NULL || by_step == NULL) {
        return no_memory(err);
    }
    for (int p = 0; p < plan->place_count; p++) {
        const ckpt_place *const place = &plan->place[p];
        if (place->from < 0 || place->from >= plan->step_count || place->offset < 0 || place->bytes < 0 ||
            place->bytes > plan->arena_bytes - place->offset) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: place %d (%s) lies outside the plan's steps or arena",
                             plan->source, p, place->name);
        }
        if (place->offset % CKPT_ALIGN != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%s: place %d (%s) lies at offset %lld, wanted a multiple of %d, which kernels count on",
                             plan->source, p, place->name, (long long)place->offset, (int)CKPT_ALIGN);
        }
        first[place->from + 2]++;
    }
    for (int s = 0; s < plan->step_count; s++) {
        first[s + 2] += first[s + 1];
    }
    for (int p = 0; p < plan->place_count; p++) {
        by_step[first[plan->place[p].from + 1]++] = &plan->place[p];
    }
    wiring->places = (ckpt_places){first, by_step};
    return CKPT_OK;
}

/* One slab for everything that is ever offloaded, each buffer with its own room in it. */
static ckpt_code take_slab(ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_plan *const plan = executor->plan;
    const ckpt_graph *const graph = executor->lowered->graph;
    ckpt_bytes *const room = CKPT_NEW(&executor->arena, ckpt_bytes, graph->buffer_count);
    if (room == NULL) {
        return no_memory(err);
    }
    ckpt_bytes total = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const ckpt_step *const step = &plan->step[s];
        if (step->kind == CKPT_OFFLOAD && room[step->target] == 0) {
            room[step->target] = total + 1; /* 0 means none yet */
            if (!ckpt_sum(total, graph->buffer[step->target].bytes, &total)) {
                return CKPT_FAIL(err, CKPT_OVERFLOW, "%s: offloaded bytes do not fit 63 bits", plan->source);
            }
        }
    }
    if (total > 0) {
        void *base = NULL;
        CKPT_TRY_WHILE(err, executor->device->api->reserve_host(executor->device, total, &base, err),
                       "reserving the host's %lld bytes for what is offloaded", (long long)total);
        executor->slab = base;
        executor->slab_bytes = total;
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        wiring->host[b] = room[b] > 0 ? executor->slab + (room[b] - 1) : NULL;
    }
    return CKPT_OK;
}

static void *place_address(const ckpt_executor *executor, const ckpt_place *place)
{
    return place == NULL ? NULL : executor->block + place->offset;
}

/* Where value `v` is at this moment: a model input in the static block, or its storage's buffer in the arena. */
static ckpt_code value_address(const ckpt_wiring *wiring, int v, int step, void **address, ckpt_err *err)
{
    const ckpt_executor *const executor = wiring->executor;
    const ckpt_lowered *const lowered = executor->lowered;
    const ckpt_value *const storage = &lowered->network->value[lowered->network->value[v].storage];
    if (storage->node < 0) {
        *address = executor->statics + executor->layout.inputs + executor->layout.input[storage->output];
        return CKPT_OK;
    }
    const int buffer = lowered->value_buffer[v];
    *address = buffer < 0 ? NULL : place_address(executor, wiring->held[buffer]);
    if (*address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         executor->plan->source, step, storage->name);
    }
    return CKPT_OK;
}

static ckpt_code buffer_address(const ckpt_wiring *wiring, int buffer, int step, void **address, ckpt_err *err)
{
    const ckpt_executor *const executor = wiring->executor;
    *address = buffer < 0 ? NULL : place_address(executor, wiring->held[buffer]);
    if (buffer >= 0 && *address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         executor->plan->source, step, executor->lowered->graph->buffer[buffer].name);
    }
    return CKPT_OK;
}

static bool bit(uint64_t mask, int k)
{
    return (mask >> k & 1u) != 0;
}

/* Parameters, their gradients and statistics: the same addresses in every run. */
static ckpt_code wire_statics(ckpt_executor *executor, const ckpt_node *node, ckpt_kernel_args *args, ckpt_err *err)
{
    const float **const param = CKPT_NEW(&executor->arena, const float *, node->param_count);
    const void **const param16 = CKPT_NEW(&executor->arena, const void *, node->param_count);
    float **const grad = CKPT_NEW(&executor->arena, float *, node->param_count);
    float **const stat = CKPT_NEW(&executor->arena, float *, node->stat_count);
    if (param == NULL || param16 == NULL || grad == NULL || stat == NULL) {
        return no_memory(err);
    }
    for (int k = 0; k < node->param_count; k++) {
        param16[k] = ckpt_executor_param16_at(executor, node->index, k);
        param[k] = ckpt_executor_param_at(executor, executor->layout.weights, node->index, k);
        grad[k] = ckpt_executor_param_at(executor, executor->layout.gradients, node->index, k);
    }
    for (int k = 0; k < node->stat_count; k++) {
        stat[k] = (float *)(void *)(executor->statics + executor->layout.statistics +
                                    executor->layout.stat[node->index * CKPT_STAT_MAX + k]);
    }
    args->param = param;
    args->param16 = param16;
    args->grad_param = grad;
    args->stat = stat;
    return CKPT_OK;
}

/* Inputs, outputs and saved tensors, each where its bit is set, else NULL. Backward gets only those the op has
 * declared: a lie about what must be stored shows at once. */
static ckpt_code wire_tensors(const ckpt_wiring *wiring, const ckpt_node *node, int step, uint64_t ins, uint64_t outs,
                              uint64_t saveds, ckpt_kernel_args *args, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const int *const saved_buffer = &executor->lowered->saved_buffer[node->index * CKPT_SAVED_MAX];
    void **const in = CKPT_NEW(&executor->arena, void *, node->in_count);
    void **const out = CKPT_NEW(&executor->arena, void *, node->out_count);
    void **const saved = CKPT_NEW(&executor->arena, void *, node->saved_count);
    if (in == NULL || out == NULL || saved == NULL) {
        return no_memory(err);
    }
    for (int k = 0; k < node->in_count; k++) {
        if (bit(ins, k)) {
            CKPT_TRY(value_address(wiring, node->in_value[k], step, &in[k], err));
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        if (bit(outs, k)) {
            CKPT_TRY(value_address(wiring, node->out_value[k], step, &out[k], err));
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if (bit(saveds, k)) {
            CKPT_TRY(buffer_address(wiring, saved_buffer[k], step, &saved[k], err));
        }
    }
    args->in = (const void *const *)in;
    args->out = out;
    args->saved = saved;
    return CKPT_OK;
}

static ckpt_code wire_forward(const ckpt_wiring *wiring, const ckpt_node *node, int step, ckpt_kernel_args *args,
                              ckpt_err *err)
{
    return wire_tensors(wiring, node, step, UINT64_MAX, UINT64_MAX, UINT64_MAX, args, err);
}

static ckpt_code wire_backward(const ckpt_wiring *wiring, const ckpt_node *node, int step, ckpt_kernel_args *args,
                               ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const int *const grad_buffer = executor->lowered->grad_buffer;
    const void **const grad_out = CKPT_NEW(&executor->arena, const void *, node->out_count);
    void **const grad_in = CKPT_NEW(&executor->arena, void *, node->in_count);
    if (grad_out == NULL || grad_in == NULL) {
        return no_memory(err);
    }
    CKPT_TRY(wire_tensors(wiring, node, step, node->backward_in, node->backward_out, node->backward_saved, args, err));
    void *address = NULL;
    for (int k = 0; k < node->in_count; k++) {
        if (bit(node->grad_in, k)) {
            CKPT_TRY(buffer_address(wiring, grad_buffer[node->in_value[k]], step, &address, err));
            grad_in[k] = address;
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        CKPT_TRY(buffer_address(wiring, grad_buffer[node->out_value[k]], step, &address, err));
        grad_out[k] = address;
    }
    args->grad_out = grad_out;
    args->grad_in = grad_in;
    return CKPT_OK;
}

/* A parameter that is tied is updated where it belongs, once. */
static ckpt_code wire_update(ckpt_executor *executor, const ckpt_node *node, ckpt_action *action, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    const int slots = network->optimizer->slots(network->hyper);
    ckpt_update_args *const item = CKPT_NEW(&executor->arena, ckpt_update_args, node->param_count);
    if (item == NULL) {
        return no_memory(err);
    }
    int count = 0;
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied >= 0) {
            continue;
        }
        float **const slot = CKPT_NEW(&executor->arena, float *, slots);
        if (slot == NULL) {
            return no_memory(err);
        }
        for (int i = 0; i < slots; i++) {
            slot[i] = ckpt_executor_param_at(executor, executor->layout.optimizer + i * executor->layout.weight_bytes,
                                             node->index, k);
        }
        item[count++] = (ckpt_update_args){
            .hyper = network->hyper,
            .decay = node->param[k].decay,
            .count = ckpt_shape_count(&node->param[k].tensor.shape),
            .param = ckpt_executor_param_at(executor, executor->layout.weights, node->index, k),
            .param16 = ckpt_executor_param16_at(executor, node->index, k),
            .grad = ckpt_executor_param_at(executor, executor->layout.gradients, node->index, k),
            .slot = slot,
        };
    }
    action->update = item;
    action->update_count = count;
    return CKPT_OK;
}

static ckpt_category buffer_category(const ckpt_executor *executor, int buffer)
{
    return ckpt_kind_category(executor->lowered->graph->buffer[buffer].kind);
}

/* The buffers (and workspace) whose places open at this step. */
static void open_places(const ckpt_wiring *wiring, int step, ckpt_action *action)
{
    const ckpt_executor *const executor = wiring->executor;
    for (int i = wiring->places.first[step]; i < wiring->places.first[step + 1]; i++) {
        const ckpt_place *const place = wiring->places.by_step[i];
        if (place->buffer < 0) {
            action->args.workspace = place->bytes > 0 ? place_address(executor, place) : NULL;
            action->args.workspace_bytes = place->bytes;
        } else {
            wiring->held[place->buffer] = place;
            action->born[buffer_category(executor, place->buffer)] += place->bytes;
        }
    }
}

static void close_place(const ckpt_wiring *wiring, int buffer, ckpt_action *action)
{
    const ckpt_place *const place = wiring->held[buffer];
    if (place != NULL) {
        action->died[buffer_category(wiring->executor, buffer)] += place->bytes;
        wiring->held[buffer] = NULL;
    }
}

static ckpt_span run_span(ckpt_phase phase, bool again)
{
    if (again) {
        return CKPT_SPAN_RECOMPUTE;
    }
    return phase == CKPT_FORWARD ? CKPT_SPAN_FORWARD : phase == CKPT_BACKWARD ? CKPT_SPAN_BACKWARD : CKPT_SPAN_UPDATE;
}

static ckpt_code wire_run(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_step *const step = &executor->plan->step[s];
    const ckpt_graph_op *const op = &executor->lowered->graph->op[step->target];
    const ckpt_op_role *const role = &executor->lowered->op_role[step->target];
    const ckpt_node *const node = &executor->lowered->network->node[role->node];
    action->layer = op->layer;
    action->phase = role->phase;
    action->span = run_span(role->phase, step->again);
    action->bound = &executor->bound[role->node];
    action->args.node = node;
    action->args.again = step->again;
    /* What an in-place run destroys is still read from its old place, which the output's new place equals. */
    open_places(wiring, s, action);
    if (role->phase == CKPT_UPDATE) {
        return wire_update(executor, node, action, err);
    }
    if (role->phase == CKPT_REDUCE) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d reduces across ranks, which one process cannot",
                         executor->plan->source, s);
    }
    CKPT_TRY(wire_statics(executor, node, &action->args, err));
    if (role->phase == CKPT_FORWARD) {
        CKPT_TRY(wire_forward(wiring, node, s, &action->args, err));
    } else {
        action->args.grad_in_adds = role->grad_in_adds;
        action->args.grad_param_adds = role->grad_param_adds;
        CKPT_TRY(wire_backward(wiring, node, s, &action->args, err));
    }
    for (int i = 0; step->inplace && i < op->inplace_count; i++) {
        close_place(wiring, op->inplace[i].in, action);
    }
    return CKPT_OK;
}

static ckpt_code wire_copy(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_step *const step = &executor->plan->step[s];
    open_places(wiring, s, action); /* a fetch brings a new place; offload and free bring none */
    CKPT_TRY(buffer_address(wiring, step->target, s, &action->place, err));
    action->layer = "";
    action->span = step->kind == CKPT_FREE ? CKPT_SPAN_FREE : CKPT_SPAN_COPY;
    action->bytes = wiring->held[step->target]->bytes;
    action->host = wiring->host[step->target];
    if (step->kind != CKPT_FREE && action->host == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d fetches %s, which was never offloaded",
                         executor->plan->source, s, step->name);
    }
    if (step->kind == CKPT_FREE) {
        close_place(wiring, step->target, action);
    }
    return CKPT_OK;
}

/* What the plan's places leave a node: the smallest workspace of its runs, less what staging takes; -1 where it
 * never runs. */
static void given_workspaces(const ckpt_wiring *wiring, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_executor *const executor = wiring->executor;
    const ckpt_lowered *const lowered = executor->lowered;
    for (int n = 0; n < lowered->network->node_count; n++) {
        forward[n] = backward[n] = -1;
    }
    for (int s = 0; s < executor->plan->step_count; s++) {
        const ckpt_step *const step = &executor->plan->step[s];
        if (step->kind != CKPT_RUN) {
            continue;
        }
        ckpt_bytes bytes = 0;
        for (int i = wiring->places.first[s]; i < wiring->places.first[s + 1]; i++) {
            bytes += wiring->places.by_step[i]->buffer < 0 ? wiring->places.by_step[i]->bytes : 0;
        }
        const ckpt_op_role *const role = &lowered->op_role[step->target];
        if (role->phase == CKPT_FORWARD && (forward[role->node] < 0 || bytes < forward[role->node])) {
            forward[role->node] = bytes;
        } else if (role->phase == CKPT_BACKWARD) {
            bytes -= ckpt_staging_bytes(&lowered->network->node[role->node], role->grad_in_adds, role->grad_param_adds);
            bytes = bytes < 0 ? 0 : bytes;
            if (backward[role->node] < 0 || bytes < backward[role->node]) {
                backward[role->node] = bytes;
            }
        }
    }
}

static ckpt_code bind_nodes(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_network *const network = executor->lowered->network;
    ckpt_bytes *const forward = CKPT_NEW(&executor->arena, ckpt_bytes, network->node_count);
    ckpt_bytes *const backward = CKPT_NEW(&executor->arena, ckpt_bytes, network->node_count);
    ckpt_bound *const bound = CKPT_NEW(&executor->arena, ckpt_bound, network->node_count);
    if (forward == NULL || backward == NULL || bound == NULL) {
        return no_memory(err);
    }
    executor->bound = bound;
    given_workspaces(wiring, forward, backward);
    for (int n = 0; n < network->node_count; n++) {
        if (forward[n] < 0 && backward[n] < 0) {
            continue; /* an alias */
        }
        CKPT_TRY_WHILE(err,
                       ckpt_device_bind(executor->device, &network->node[n], forward[n], backward[n], &bound[n], err),
                       "fitting layer %s into its place (a plan must be made with the same --threads; or profile the "
                       "model and plan with --profile)",
                       network->node[n].name);
    }
    return CKPT_OK;
}

static ckpt_stream stream_of(ckpt_step_kind kind)
{
    return kind == CKPT_OFFLOAD ? CKPT_STREAM_D2H : kind == CKPT_FETCH ? CKPT_STREAM_H2D : CKPT_STREAM_COMPUTE;
}

static ckpt_code wire_steps(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_plan *const plan = executor->plan;
    ckpt_action *const action = CKPT_NEW(&executor->arena, ckpt_action, plan->step_count);
    if (action == NULL) {
        return no_memory(err);
    }
    executor->action = action;
    for (int s = 0; s < plan->step_count; s++) {
        action[s].kind = plan->step[s].kind;
        action[s].stream = stream_of(plan->step[s].kind);
        action[s].name = plan->step[s].name;
        action[s].signal = -1;
        if (action[s].kind == CKPT_RUN) {
            CKPT_TRY(wire_run(wiring, s, &action[s], err));
            action[s].args.state = action[s].bound->state;
        } else {
            CKPT_TRY(wire_copy(wiring, s, &action[s], err));
        }
    }
    const ckpt_network *const network = executor->lowered->network;
    void *loss = NULL;
    CKPT_TRY(value_address(wiring, network->node[network->loss_node].out_value[0], plan->step_count, &loss, err));
    executor->loss = loss;
    return CKPT_OK;
}

ckpt_code ckpt_executor_wire(ckpt_executor *executor, ckpt_err *err)
{
    const int buffers = executor->lowered->graph->buffer_count;
    ckpt_wiring wiring = {.executor = executor};
    wiring.held = CKPT_NEW(&executor->arena, const ckpt_place *, buffers);
    wiring.host = CKPT_NEW(&executor->arena, unsigned char *, buffers);
    if (wiring.held == NULL || wiring.host == NULL) {
        return no_memory(err);
    }
    CKPT_TRY(index_places(&wiring, err));
    CKPT_TRY(take_slab(&wiring, err));
    CKPT_TRY(bind_nodes(&wiring, err));
    CKPT_TRY(wire_steps(&wiring, err));
    return ckpt_executor_order(executor, &wiring.places, err);
}
