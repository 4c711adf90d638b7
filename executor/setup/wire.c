/* From plan steps to actions: walk the plan once, keeping for every buffer the place it holds now, and write down
 * each step's addresses. A place belongs to the step `from` that brings its buffer (or workspace) into memory.
 * What a layer is given is in wire_layer.c, what goes to other ranks in wire_exchange.c. */
#include "executor/setup/wire_impl.h"

#include <string.h>

ckpt_code ckpt_wire_no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the plan's addresses");
}

/* Sort places by the step that opens them (counting sort). */
static ckpt_code index_places(ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_plan *const plan = executor->plan;
    int *const first = CKPT_NEW(&executor->arena, int, plan->step_count + 2);
    const ckpt_allocation **const by_step = CKPT_NEW(&executor->arena, const ckpt_allocation *, plan->allocation_count);
    if (first == NULL || by_step == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int p = 0; p < plan->allocation_count; p++) {
        const ckpt_allocation *const allocation = &plan->allocation[p];
        if (allocation->from < 0 || allocation->from >= plan->step_count || allocation->offset < 0 ||
            allocation->bytes < 0 || allocation->bytes > plan->arena_bytes - allocation->offset) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: place %d (%s) lies outside the plan's steps or arena",
                             plan->source, p, allocation->name);
        }
        if (allocation->offset % CKPT_ALIGN != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "%s: place %d (%s) lies at offset %lld, wanted a multiple of %d, which kernels count on",
                             plan->source, p, allocation->name, (long long)allocation->offset, (int)CKPT_ALIGN);
        }
        first[allocation->from + 2]++;
    }
    for (int s = 0; s < plan->step_count; s++) {
        first[s + 2] += first[s + 1];
    }
    for (int p = 0; p < plan->allocation_count; p++) {
        by_step[first[plan->allocation[p].from + 1]++] = &plan->allocation[p];
    }
    wiring->allocations = (ckpt_allocations){first, by_step};
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
        return ckpt_wire_no_memory(err);
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

static void *place_address(const ckpt_executor *executor, const ckpt_allocation *allocation)
{
    return allocation == NULL ? NULL : executor->block + allocation->offset;
}

ckpt_code ckpt_wire_buffer(const ckpt_wiring *wiring, int buffer, int step, void **address, ckpt_err *err)
{
    const ckpt_executor *const executor = wiring->executor;
    *address = buffer < 0 ? NULL : place_address(executor, wiring->held[buffer]);
    if (buffer >= 0 && *address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         executor->plan->source, step, executor->lowered->graph->buffer[buffer].name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire_value(const ckpt_wiring *wiring, int batch, int v, int step, void **address, ckpt_err *err)
{
    const ckpt_executor *const executor = wiring->executor;
    const ckpt_network *const network = executor->lowered->network;
    const ckpt_value *const storage = &network->value[network->value[v].storage];
    if (storage->node < 0) {
        const ckpt_bytes offset = executor->layout.input[batch * network->model->input_count + storage->output];
        *address = offset < 0 ? NULL : executor->statics + executor->layout.inputs + offset;
    } else {
        const int buffer = executor->lowered->value_buffer[batch * network->value_count + v];
        *address = buffer < 0 ? NULL : place_address(executor, wiring->held[buffer]);
    }
    if (*address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         executor->plan->source, step, storage->name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire_touch(const ckpt_wiring *wiring, ckpt_action *action, int buffer, const void *address,
                          ckpt_err *err)
{
    if (buffer < 0 || address == NULL) {
        return CKPT_OK;
    }
    if (action->touch_count == action->touch_room) {
        const int room = 2 * action->touch_room + 4;
        ckpt_touch *const wider = CKPT_NEW(&wiring->executor->arena, ckpt_touch, room);
        if (wider == NULL) {
            return ckpt_wire_no_memory(err);
        }
        if (action->touch_count > 0) {
            memcpy(wider, action->touch, (size_t)action->touch_count * sizeof *wider);
        }
        action->touch = wider;
        action->touch_room = room;
    }
    action->touch[action->touch_count++] = (ckpt_touch){buffer, address};
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
    for (int i = wiring->allocations.first[step]; i < wiring->allocations.first[step + 1]; i++) {
        const ckpt_allocation *const allocation = wiring->allocations.by_step[i];
        if (allocation->buffer < 0) {
            action->args.workspace = allocation->bytes > 0 ? place_address(executor, allocation) : NULL;
            action->args.workspace_bytes = allocation->bytes;
        } else {
            wiring->held[allocation->buffer] = allocation;
            action->born[buffer_category(executor, allocation->buffer)] += allocation->bytes;
        }
    }
}

static void close_place(const ckpt_wiring *wiring, int buffer, ckpt_action *action)
{
    const ckpt_allocation *const allocation = wiring->held[buffer];
    if (allocation != NULL) {
        action->died[buffer_category(wiring->executor, buffer)] += allocation->bytes;
        wiring->held[buffer] = NULL;
    }
}

static ckpt_span run_span(const ckpt_op_role *role, bool recomputed)
{
    switch (role->task) {
    case CKPT_TASK_LAYER: break;
    case CKPT_TASK_SEND:
    case CKPT_TASK_BUCKET: return CKPT_SPAN_COPY;
    case CKPT_TASK_SENT:
    case CKPT_TASK_RECEIVE:
    case CKPT_TASK_REDUCE:
    case CKPT_TASK_SUMMED:
    case CKPT_TASK_GATHER:
    case CKPT_TASK_SHARED: return CKPT_SPAN_WAIT;
    case CKPT_TASK_NORM: return CKPT_SPAN_UPDATE;
    }
    return recomputed                     ? CKPT_SPAN_RECOMPUTE
           : role->phase == CKPT_FORWARD  ? CKPT_SPAN_FORWARD
           : role->phase == CKPT_BACKWARD ? CKPT_SPAN_BACKWARD
                                          : CKPT_SPAN_UPDATE;
}

static bool is_transfer(ckpt_task task)
{
    return task == CKPT_TASK_SEND || task == CKPT_TASK_SENT || task == CKPT_TASK_RECEIVE;
}

static bool has_new_weights(const ckpt_wiring *wiring, const ckpt_op_role *role)
{
    if (role->task != CKPT_TASK_LAYER || role->phase != CKPT_FORWARD) {
        return false;
    }
    const ckpt_node *const node = &wiring->executor->lowered->network->node[role->node];
    for (int k = 0; k < node->param_count; k++) {
        if (wiring->updated[node->param[k].tied >= 0 ? node->param[k].tied : node->index]) {
            return true;
        }
    }
    return false;
}

/* What runs again after its weights have changed gives other values than its first run did. Nobody may read them but
 * what runs again for nothing, too: a plan may be as wasteful as it likes. */
static ckpt_code refuse_stale(const ckpt_wiring *wiring, int s, const ckpt_graph_op *op, const ckpt_op_role *role,
                              bool recomputed, ckpt_err *err)
{
    int stale = has_new_weights(wiring, role) ? s + 1 : 0;
    for (int i = 0; i < op->reads.count; i++) {
        stale = stale == 0 ? wiring->stale[op->reads.at[i]] : stale;
    }
    if (stale != 0 && !recomputed) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: step %d runs %s again after its weights are updated, and step %d uses it",
                         wiring->executor->plan->source, stale - 1, wiring->executor->plan->step[stale - 1].name, s);
    }
    for (int i = 0; i < op->writes.count; i++) {
        wiring->stale[op->writes.at[i]] = stale;
    }
    return CKPT_OK;
}

static ckpt_code wire_run(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_step *const step = &executor->plan->step[s];
    const ckpt_graph_op *const op = &executor->lowered->graph->op[step->target];
    const ckpt_op_role *const role = &executor->lowered->op_role[step->target];
    action->layer = op->layer;
    action->task = role->task;
    action->phase = role->phase;
    action->batch = role->batch;
    action->span = run_span(role, step->recomputed);
    action->args.recomputed = step->recomputed;
    action->forward =
        role->task == CKPT_TASK_LAYER ? role->phase == CKPT_FORWARD : is_transfer(role->task) && !role->gradient;
    CKPT_TRY(refuse_stale(wiring, s, op, role, step->recomputed, err));
    /* What an in-place run destroys is still read from its old place, which the output's new place equals. */
    open_places(wiring, s, action);
    CKPT_TRY(role->task == CKPT_TASK_LAYER ? ckpt_wire_layer(wiring, s, role, action, err)
                                           : ckpt_wire_exchange(wiring, s, role, action, err));
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
    CKPT_TRY(ckpt_wire_buffer(wiring, step->target, s, &action->allocation, err));
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
        if (step->kind != CKPT_RUN || lowered->op_role[step->target].task != CKPT_TASK_LAYER) {
            continue;
        }
        ckpt_bytes bytes = 0;
        for (int i = wiring->allocations.first[s]; i < wiring->allocations.first[s + 1]; i++) {
            bytes += wiring->allocations.by_step[i]->buffer < 0 ? wiring->allocations.by_step[i]->bytes : 0;
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

/* The algorithms that the plan names for a layer; NULL: none, the device chooses. */
static const char *algorithms_of(const ckpt_plan *plan, const char *layer)
{
    for (int i = 0; i < plan->algorithms_count; i++) {
        if (strcmp(plan->algorithms[i].layer, layer) == 0) {
            return plan->algorithms[i].algorithms;
        }
    }
    return NULL;
}

static ckpt_code bind_nodes(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_network *const network = executor->lowered->network;
    ckpt_bytes *const forward = CKPT_NEW(&executor->arena, ckpt_bytes, network->node_count);
    ckpt_bytes *const backward = CKPT_NEW(&executor->arena, ckpt_bytes, network->node_count);
    ckpt_bound_kernel *const bound = CKPT_NEW(&executor->arena, ckpt_bound_kernel, network->node_count);
    if (forward == NULL || backward == NULL || bound == NULL) {
        return ckpt_wire_no_memory(err);
    }
    executor->bound = bound;
    given_workspaces(wiring, forward, backward);
    for (int n = 0; n < network->node_count; n++) {
        if (forward[n] < 0 && backward[n] < 0) {
            continue; /* an alias */
        }
        CKPT_TRY_WHILE(err,
                       ckpt_device_bind(executor->device, &network->node[n], forward[n], backward[n],
                                        algorithms_of(executor->plan, network->node[n].name), &bound[n], err),
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
        return ckpt_wire_no_memory(err);
    }
    executor->action = action;
    for (int s = 0; s < plan->step_count; s++) {
        action[s].kind = plan->step[s].kind;
        action[s].stream = stream_of(plan->step[s].kind);
        action[s].name = plan->step[s].name;
        action[s].signal = -1;
        if (action[s].kind == CKPT_RUN) {
            CKPT_TRY(wire_run(wiring, s, &action[s], err));
        } else {
            CKPT_TRY(wire_copy(wiring, s, &action[s], err));
        }
    }
    return CKPT_OK;
}

/* *last: the last step whose update can run together with that of step s. From s on up to it there are only updates,
 * and frees, of nothing that later updates read, and none of them waits for a copy: what waits behind a step may count
 * on that step's own wait (a free waits where it is poisoned). Gives the number of their parameters. */
static int find_joined(const ckpt_executor *executor, int s, int *last)
{
    int count = 0;
    for (int i = s; i < executor->plan->step_count; i++) {
        const ckpt_action *const action = &executor->action[i];
        const bool update = action->kind == CKPT_RUN && action->task == CKPT_TASK_LAYER &&
                            action->phase == CKPT_UPDATE && (i == s || action->wait_count == 0);
        if (!update && (action->kind != CKPT_FREE || action->wait_count > 0)) {
            break;
        }
        *last = update ? i : *last;
        count += update ? action->update_count : 0;
    }
    return count;
}

/* Hundreds of small launches would cost more than what they do. */
static ckpt_code join_updates(const ckpt_wiring *wiring, ckpt_err *err)
{
    const ckpt_executor *const executor = wiring->executor;
    for (int s = 0; s < executor->plan->step_count && executor->device->api->gpu; s++) {
        ckpt_action *const first = &executor->action[s];
        if (first->update_count == 0) {
            continue;
        }
        int last = s;
        const int count = find_joined(executor, s, &last);
        first->joined = CKPT_NEW(&wiring->executor->arena, ckpt_update_args, count);
        if (first->joined == NULL) {
            return ckpt_wire_no_memory(err);
        }
        for (int i = s; i <= last; i++) {
            const ckpt_action *const action = &executor->action[i];
            for (int k = 0; k < action->update_count; k++) {
                first->joined[first->joined_count++] = action->update[k];
            }
        }
        s = last;
    }
    return CKPT_OK;
}

/* Where the losses are when the plan has ended, on the stage that has them. */
static ckpt_code wire_losses(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_network *const network = executor->lowered->network;
    if (network->stage_of[network->loss_node] != network->scheme.stage) {
        return CKPT_OK;
    }
    const int count = network->scheme.micro_batches;
    executor->loss = CKPT_NEW(&executor->arena, const void *, count);
    if (executor->loss == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int j = 0; j < count; j++) {
        void *loss = NULL;
        CKPT_TRY(ckpt_wire_value(wiring, j, network->node[network->loss_node].out_value[0], executor->plan->step_count,
                                 &loss, err));
        executor->loss[j] = loss;
    }
    return CKPT_OK;
}

static void need_all(bool *need, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        need[list->at[i]] = true;
    }
}

/* Does it bring into memory what is needed? Then not it, but what it is made from is needed before. */
static bool brings(bool *need, const ckpt_list *list)
{
    bool brought = false;
    for (int i = 0; i < list->count; i++) {
        brought = brought || need[list->at[i]];
        need[list->at[i]] = false;
    }
    return brought;
}

/* What an evaluation runs: backwards from the end of the plan, every step that makes, moves or sends what a loss needs;
 * of a layer that runs several times in a row for several backward steps, only those runs. */
static ckpt_code choose_needed(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_executor *const executor = wiring->executor;
    const ckpt_graph *const graph = executor->lowered->graph;
    bool *const need = CKPT_NEW(&executor->arena, bool, graph->buffer_count);
    bool *const room = CKPT_NEW(&executor->arena, bool, graph->buffer_count); /* likewise of those on the host */
    if (need == NULL || room == NULL) {
        return ckpt_wire_no_memory(err);
    }
    need_all(need, &graph->outputs);
    for (int s = executor->plan->step_count - 1; s >= 0; s--) {
        ckpt_action *const action = &executor->action[s];
        const int target = executor->plan->step[s].target;
        switch (action->kind) {
        case CKPT_RUN: {
            const bool brought = brings(need, &graph->op[target].writes);
            action->needed = action->forward && (brought || action->task != CKPT_TASK_LAYER);
            if (action->needed) {
                need_all(need, &graph->op[target].reads);
            }
            break;
        }
        case CKPT_FREE: action->needed = true; break;
        case CKPT_OFFLOAD:
            action->needed = room[target];
            need[target] = need[target] || room[target];
            room[target] = false;
            break;
        case CKPT_FETCH:
            action->needed = need[target];
            room[target] = room[target] || need[target];
            need[target] = false;
            break;
        }
        if (action->needed && action->kind != CKPT_FREE && executor->forward_count == 0) {
            executor->forward_count = s + 1;
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_executor_wire(ckpt_executor *executor, ckpt_err *err)
{
    const int buffers = executor->lowered->graph->buffer_count;
    ckpt_wiring wiring = {.executor = executor};
    wiring.held = CKPT_NEW(&executor->arena, const ckpt_allocation *, buffers);
    wiring.host = CKPT_NEW(&executor->arena, unsigned char *, buffers);
    wiring.updated = CKPT_NEW(&executor->arena, bool, executor->lowered->network->node_count);
    wiring.stale = CKPT_NEW(&executor->arena, int, buffers);
    if (wiring.held == NULL || wiring.host == NULL || wiring.updated == NULL || wiring.stale == NULL) {
        return ckpt_wire_no_memory(err);
    }
    CKPT_TRY(index_places(&wiring, err));
    CKPT_TRY(take_slab(&wiring, err));
    CKPT_TRY(bind_nodes(&wiring, err));
    CKPT_TRY(wire_steps(&wiring, err));
    CKPT_TRY(wire_losses(&wiring, err));
    CKPT_TRY(choose_needed(&wiring, err));
    CKPT_TRY(ckpt_executor_order(executor, &wiring.allocations, err));
    return join_updates(&wiring, err);
}
