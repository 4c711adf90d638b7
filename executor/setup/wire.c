/* From plan steps to actions: walk the plan once, keeping for every buffer the allocation it has now, and write down
 * each step's addresses. An allocation belongs to the step `from` that makes it, for a buffer or for a workspace. What
 * a layer is given is in wire_layer.c, what goes to other ranks in wire_exchange.c. */
#include "executor/setup/wire_impl.h"

#include <string.h>

/* Sort allocations by the step that makes them (counting sort). */
static ckpt_code index_allocations(ckpt_wiring *wiring, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_plan *const plan = program->plan;
    int *const first = CKPT_NEW(wiring->out, int, plan->step_count + 2);
    const ckpt_allocation **const by_step = CKPT_NEW(wiring->out, const ckpt_allocation *, plan->allocation_count);
    if (first == NULL || by_step == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int p = 0; p < plan->allocation_count; p++) {
        const ckpt_allocation *const allocation = &plan->allocation[p];
        if (allocation->from < 0 || allocation->from >= plan->step_count || allocation->offset < 0 ||
            allocation->bytes < 0 || allocation->bytes > plan->arena_bytes - allocation->offset) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: allocation %d (%s) lies outside the plan's steps or arena",
                             plan->source, p, allocation->name);
        }
        if (allocation->offset % CKPT_ALIGN != 0) {
            return CKPT_FAIL(
                err, CKPT_BAD_INPUT,
                "%s: allocation %d (%s) lies at offset %lld, wanted a multiple of %d, which kernels count on",
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

/* One slab for everything that is ever offloaded, each buffer with its own bytes in it. */
static ckpt_code reserve_slab(ckpt_wiring *wiring, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_plan *const plan = program->plan;
    const ckpt_graph *const graph = program->lowered->graph;
    ckpt_bytes *const at = CKPT_NEW(wiring->out, ckpt_bytes, graph->buffer_count);
    if (at == NULL) {
        return ckpt_wire_no_memory(err);
    }
    ckpt_bytes total = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const ckpt_step *const step = &plan->step[s];
        if (step->kind == CKPT_OFFLOAD && at[step->target] == 0) {
            at[step->target] = total + 1; /* 0: none yet */
            if (!ckpt_sum(total, graph->buffer[step->target].bytes, &total)) {
                return CKPT_FAIL(err, CKPT_OVERFLOW, "%s: offloaded bytes do not fit 63 bits", plan->source);
            }
        }
    }
    CKPT_TRY(
        ckpt_reserve_host(wiring->program->device, total, "what is offloaded", &wiring->program->memory.slab, err));
    for (int b = 0; b < graph->buffer_count; b++) {
        wiring->host[b] = at[b] > 0 ? program->memory.slab.at + (at[b] - 1) : NULL;
    }
    return CKPT_OK;
}

static ckpt_category buffer_category(const ckpt_program *program, int buffer)
{
    return ckpt_kind_category(program->lowered->graph->buffer[buffer].kind);
}

/* The buffers and the workspace that this step allocates. */
static void open_allocations(const ckpt_wiring *wiring, int step, ckpt_action *action)
{
    const ckpt_program *const program = wiring->program;
    for (int i = wiring->allocations.first[step]; i < wiring->allocations.first[step + 1]; i++) {
        const ckpt_allocation *const allocation = wiring->allocations.by_step[i];
        if (allocation->buffer < 0) {
            action->args.workspace = allocation->bytes > 0 ? ckpt_wire_allocation(program, allocation) : NULL;
            action->args.workspace_bytes = allocation->bytes;
        } else {
            wiring->held[allocation->buffer] = allocation;
            action->allocated[buffer_category(program, allocation->buffer)] += allocation->bytes;
        }
    }
}

static void close_allocation(const ckpt_wiring *wiring, int buffer, ckpt_action *action)
{
    const ckpt_allocation *const allocation = wiring->held[buffer];
    if (allocation != NULL) {
        action->freed[buffer_category(wiring->program, buffer)] += allocation->bytes;
        wiring->held[buffer] = NULL;
    }
}

static ckpt_span run_span(const ckpt_op_role *role, bool recomputed)
{
    switch (role->task) {
    case CKPT_TASK_LAYER: break;
    case CKPT_TASK_SEND:
    case CKPT_TASK_REDUCE_START: return CKPT_SPAN_COPY;
    case CKPT_TASK_SENT:
    case CKPT_TASK_RECEIVE:
    case CKPT_TASK_REDUCE:
    case CKPT_TASK_REDUCE_END:
    case CKPT_TASK_ALL_GATHER:
    case CKPT_TASK_REDUCE_TIED: return CKPT_SPAN_WAIT;
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
    const ckpt_node *const node = &wiring->program->lowered->network->node[role->node];
    for (int k = 0; k < node->param_count; k++) {
        if (wiring->updated[node->param[k].tied >= 0 ? node->param[k].tied : node->index]) {
            return true;
        }
    }
    return false;
}

/* A run that is recomputed after its weights have changed gives other values than its first run. Only runs that are
 * themselves recomputed for nothing may read them: a plan may be wasteful, and may not be wrong. */
static ckpt_code refuse_stale(const ckpt_wiring *wiring, int s, const ckpt_graph_op *op, const ckpt_op_role *role,
                              bool recomputed, ckpt_err *err)
{
    int stale = has_new_weights(wiring, role) ? s + 1 : 0;
    for (int i = 0; i < op->reads.count; i++) {
        stale = stale == 0 ? wiring->stale[op->reads.at[i]] : stale;
    }
    if (stale != 0 && !recomputed) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: step %d recomputes %s after its weights are updated, and step %d uses it",
                         wiring->program->plan->source, stale - 1, wiring->program->plan->step[stale - 1].name, s);
    }
    for (int i = 0; i < op->writes.count; i++) {
        wiring->stale[op->writes.at[i]] = stale;
    }
    return CKPT_OK;
}

static ckpt_code wire_run(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_step *const step = &program->plan->step[s];
    const ckpt_graph_op *const op = ckpt_step_op(program->lowered->graph, step);
    const ckpt_op_role *const role = &program->lowered->op_role[step->target];
    action->layer = op->layer;
    action->task = role->task;
    action->phase = role->phase;
    action->batch = role->batch;
    action->span = run_span(role, step->recomputed);
    action->args.recomputed = step->recomputed;
    action->forward =
        role->task == CKPT_TASK_LAYER ? role->phase == CKPT_FORWARD : is_transfer(role->task) && !role->gradient;
    CKPT_TRY(refuse_stale(wiring, s, op, role, step->recomputed, err));
    /* An in-place run still reads its input, at the address that is the output's too. */
    open_allocations(wiring, s, action);
    CKPT_TRY(role->task == CKPT_TASK_LAYER ? ckpt_wire_layer(wiring, s, role, action, err)
                                           : ckpt_wire_exchange(wiring, s, role, action, err));
    for (int i = 0; step->inplace && i < op->inplace_count; i++) {
        close_allocation(wiring, op->inplace[i].in, action);
    }
    return CKPT_OK;
}

static ckpt_code wire_copy(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_step *const step = &program->plan->step[s];
    open_allocations(wiring, s, action); /* a fetch allocates; offload and free do not */
    CKPT_TRY(ckpt_wire_buffer(wiring, step->target, s, &action->allocation, err));
    action->layer = "";
    action->span = step->kind == CKPT_FREE ? CKPT_SPAN_FREE : CKPT_SPAN_COPY;
    action->bytes = wiring->held[step->target]->bytes;
    action->host = wiring->host[step->target];
    if (step->kind != CKPT_FREE && action->host == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d fetches %s, which was never offloaded",
                         program->plan->source, s, step->name);
    }
    if (step->kind == CKPT_FREE) {
        close_allocation(wiring, step->target, action);
    }
    return CKPT_OK;
}

enum { ONLY_OTHER_WAYS = -1, NEVER_RUNS = -2 };

/* Per node the smallest workspace of its runs in ways without a workspace of their own, less what staging takes. */
static void given_workspaces(const ckpt_wiring *wiring, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_lowered *const lowered = program->lowered;
    for (int n = 0; n < lowered->network->node_count; n++) {
        forward[n] = backward[n] = NEVER_RUNS;
    }
    for (int s = 0; s < program->plan->step_count; s++) {
        const ckpt_step *const step = &program->plan->step[s];
        if (step->kind != CKPT_RUN || lowered->op_role[step->target].task != CKPT_TASK_LAYER) {
            continue;
        }
        const ckpt_op_role *const role = &lowered->op_role[step->target];
        if (role->phase != CKPT_FORWARD && role->phase != CKPT_BACKWARD) {
            continue;
        }
        ckpt_bytes *const least = role->phase == CKPT_FORWARD ? &forward[role->node] : &backward[role->node];
        const ckpt_way *const way = ckpt_wire_way(program, step);
        if (way != NULL && (way->workspace_bytes >= 0 || way->measured)) {
            *least = *least == NEVER_RUNS ? ONLY_OTHER_WAYS : *least;
            continue;
        }
        ckpt_bytes bytes = 0;
        for (int i = wiring->allocations.first[s]; i < wiring->allocations.first[s + 1]; i++) {
            bytes += wiring->allocations.by_step[i]->buffer < 0 ? wiring->allocations.by_step[i]->bytes : 0;
        }
        if (role->phase == CKPT_BACKWARD) {
            bytes -= ckpt_staging_bytes(&lowered->network->node[role->node], role->grad_in_adds, role->grad_param_adds);
            bytes = bytes < 0 ? 0 : bytes;
        }
        *least = *least < 0 || bytes < *least ? bytes : *least;
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
    ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    ckpt_bytes *const forward = CKPT_NEW(wiring->out, ckpt_bytes, network->node_count);
    ckpt_bytes *const backward = CKPT_NEW(wiring->out, ckpt_bytes, network->node_count);
    ckpt_bound_kernel *const bound = CKPT_NEW(wiring->out, ckpt_bound_kernel, network->node_count);
    if (forward == NULL || backward == NULL || bound == NULL) {
        return ckpt_wire_no_memory(err);
    }
    program->bound = bound;
    given_workspaces(wiring, forward, backward);
    for (int n = 0; n < network->node_count; n++) {
        if (forward[n] == NEVER_RUNS && backward[n] == NEVER_RUNS) {
            continue; /* an alias */
        }
        const ckpt_bytes given[] = {forward[n] < 0 ? -1 : forward[n], backward[n] < 0 ? -1 : backward[n]};
        CKPT_TRY_WHILE(
            err,
            ckpt_device_bind(program->device, &network->node[n], given[0], given[1],
                             algorithms_of(program->plan, network->node[n].name), &bound[n], err),
            "fitting layer %s into its workspace (a plan must be made with the same --threads; or profile the "
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
    ckpt_program *const program = wiring->program;
    const ckpt_plan *const plan = program->plan;
    ckpt_action *const action = CKPT_NEW(wiring->out, ckpt_action, plan->step_count);
    if (action == NULL) {
        return ckpt_wire_no_memory(err);
    }
    program->action = action;
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

/* *last: the last step whose update can be started together with that of step s. From s to it there are only updates
 * and frees of nothing that later updates read, none of them has a workspace, and none waits for a copy: what comes after a step may count on
 * that step's own wait (a poisoned free waits, too). Gives the number of their parameters. */
static int find_joined(const ckpt_program *program, int s, int *last)
{
    const bool alone = program->action[s].args.workspace_bytes > 0;
    int count = 0;
    for (int i = s; i < program->plan->step_count; i++) {
        const ckpt_action *const action = &program->action[i];
        const bool update = action->kind == CKPT_RUN && action->task == CKPT_TASK_LAYER &&
                            action->phase == CKPT_UPDATE && (i == s || action->wait_count == 0) && (i == s || !alone) &&
                            (i == s || action->args.workspace_bytes == 0);
        if (!update && (action->kind != CKPT_FREE || action->wait_count > 0)) {
            break;
        }
        *last = update ? i : *last;
        count += update ? action->update_count : 0;
    }
    return count;
}

/* On a GPU, hundreds of small launches would cost more than their work. */
static ckpt_code join_updates(const ckpt_wiring *wiring, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    for (int s = 0; s < program->plan->step_count && program->device->api->gpu; s++) {
        ckpt_action *const first = &program->action[s];
        if (first->update_count == 0) {
            continue;
        }
        int last = s;
        const int count = find_joined(program, s, &last);
        first->joined = CKPT_NEW(wiring->out, ckpt_update_args, count);
        if (first->joined == NULL) {
            return ckpt_wire_no_memory(err);
        }
        for (int i = s; i <= last; i++) {
            const ckpt_action *const action = &program->action[i];
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
    ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    if (network->stage_of[network->loss_node] != network->scheme.stage) {
        return CKPT_OK;
    }
    const int count = network->scheme.micro_batches;
    program->loss = CKPT_NEW(wiring->out, const void *, count);
    if (program->loss == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int j = 0; j < count; j++) {
        void *loss = NULL;
        CKPT_TRY(ckpt_wire_value(wiring, j, network->node[network->loss_node].out_value[0], program->plan->step_count,
                                 &loss, err));
        program->loss[j] = loss;
    }
    return CKPT_OK;
}

static void need_all(bool *need, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        need[list->at[i]] = true;
    }
}

/* Does a run write something that is needed? Before the run its results are needed no longer. */
static bool writes_needed(bool *need, const ckpt_list *list)
{
    bool wanted = false;
    for (int i = 0; i < list->count; i++) {
        wanted = wanted || need[list->at[i]];
        need[list->at[i]] = false;
    }
    return wanted;
}

/* What an evaluation runs: backwards from the end of the plan, every step that computes, moves or sends what a loss
 * needs. */
static ckpt_code choose_needed(const ckpt_wiring *wiring, ckpt_err *err)
{
    ckpt_program *const program = wiring->program;
    const ckpt_graph *const graph = program->lowered->graph;
    bool *const need = CKPT_NEW(wiring->out, bool, graph->buffer_count);
    bool *const on_host = CKPT_NEW(wiring->out, bool, graph->buffer_count); /* likewise in the slab */
    if (need == NULL || on_host == NULL) {
        return ckpt_wire_no_memory(err);
    }
    need_all(need, &graph->outputs);
    for (int s = program->plan->step_count - 1; s >= 0; s--) {
        ckpt_action *const action = &program->action[s];
        const int target = program->plan->step[s].target;
        switch (action->kind) {
        case CKPT_RUN: {
            const bool wanted = writes_needed(need, &graph->op[target].writes);
            action->needed = action->forward && (wanted || action->task != CKPT_TASK_LAYER);
            if (action->needed) {
                need_all(need, &graph->op[target].reads);
            }
            break;
        }
        case CKPT_FREE: action->needed = true; break;
        case CKPT_OFFLOAD:
            action->needed = on_host[target];
            need[target] = need[target] || on_host[target];
            on_host[target] = false;
            break;
        case CKPT_FETCH:
            action->needed = need[target];
            on_host[target] = on_host[target] || need[target];
            need[target] = false;
            break;
        }
        if (action->needed && action->kind != CKPT_FREE && program->forward_count == 0) {
            program->forward_count = s + 1;
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire(ckpt_program *program, ckpt_err *err)
{
    ckpt_arena *const out = &program->arena;
    const int buffers = program->lowered->graph->buffer_count;
    ckpt_wiring wiring = {.program = program, .out = out};
    wiring.held = CKPT_NEW(out, const ckpt_allocation *, buffers);
    wiring.host = CKPT_NEW(out, unsigned char *, buffers);
    wiring.updated = CKPT_NEW(out, bool, program->lowered->network->node_count);
    wiring.stale = CKPT_NEW(out, int, buffers);
    if (wiring.held == NULL || wiring.host == NULL || wiring.updated == NULL || wiring.stale == NULL) {
        return ckpt_wire_no_memory(err);
    }
    CKPT_TRY(ckpt_wire_messages(&wiring, err));
    CKPT_TRY(index_allocations(&wiring, err));
    CKPT_TRY(reserve_slab(&wiring, err));
    CKPT_TRY(bind_nodes(&wiring, err));
    CKPT_TRY(wire_steps(&wiring, err));
    CKPT_TRY(wire_losses(&wiring, err));
    CKPT_TRY(choose_needed(&wiring, err));
    CKPT_TRY(ckpt_wire_order(program, &wiring.allocations, err));
    return join_updates(&wiring, err);
}
