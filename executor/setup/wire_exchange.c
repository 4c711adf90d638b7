/* What steps that are no layer's are given: messages between stages, buckets between replicas, tied groups, the
 * norm. */
#include "executor/setup/wire_impl.h"

/* The message that step's op waits for was started by an op before it. */
static int send_of(const ckpt_lowered *lowered, int op)
{
    const ckpt_op_role *const sent = &lowered->op_role[op];
    for (int o = op - 1; o >= 0; o--) {
        const ckpt_op_role *const role = &lowered->op_role[o];
        if (role->task == CKPT_TASK_SEND && role->value == sent->value && role->gradient == sent->gradient &&
            role->batch == sent->batch) {
            return o;
        }
    }
    return -1;
}

static ckpt_code wire_transfer(const ckpt_wiring *wiring, int s, const ckpt_op_role *role, ckpt_action *action,
                               ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_lowered *const lowered = program->lowered;
    const int target = program->plan->step[s].target;
    const ckpt_graph_op *const op = &lowered->graph->op[target];
    const int source = role->task == CKPT_TASK_SENT ? send_of(lowered, target) : target;
    const int message = role->task == CKPT_TASK_SENT ? op->reads.at[0] : op->writes.at[0];
    if (source < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d waits for a message that was never sent",
                         program->plan->source, s);
    }
    action->transfer = wiring->transfer[source];
    CKPT_TRY(ckpt_wire_buffer(wiring, message, s, &action->transfer.message, err));
    if (role->task == CKPT_TASK_SEND) {
        void *from = NULL;
        CKPT_TRY(ckpt_wire_buffer(wiring, op->reads.at[0], s, &from, err));
        CKPT_TRY(ckpt_wire_touch(wiring, action, op->reads.at[0], from, err));
        action->transfer.from = from;
    }
    return ckpt_wire_touch(wiring, action, message, action->transfer.message, err);
}

/* Gradients lie where they are at this step; weights always at the same address. */
static ckpt_code wire_pieces(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_exchange *const x = action->exchange;
    const int count = x->first[program->lowered->network->scheme.replicas];
    action->piece = CKPT_NEW(wiring->out, float *, count);
    if (action->piece == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_piece *const piece = &x->piece[i];
        float *at = NULL;
        if (action->task == CKPT_TASK_ALL_GATHER) {
            at = ckpt_program_param(program, program->layout.weights, piece->node, piece->param);
        } else {
            int buffer = -1;
            CKPT_TRY(ckpt_wire_gradient(wiring, piece->node, piece->param, s, &buffer, &at, err));
            CKPT_TRY(ckpt_wire_touch(wiring, action, buffer, at, err));
        }
        action->piece[i] = at + piece->first;
    }
    return CKPT_OK;
}

/* The buffer of a list that holds what other replicas send of a bucket; -1: none does. */
static int bucket_buffer(const ckpt_lowered *lowered, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (lowered->buffer_role[list->at[i]].holds == CKPT_HOLDS_BUCKET) {
            return list->at[i];
        }
    }
    return -1;
}

static ckpt_code wire_bucket(const ckpt_wiring *wiring, int s, const ckpt_op_role *role, ckpt_action *action,
                             ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_lowered *const lowered = program->lowered;
    const ckpt_graph_op *const op = ckpt_step_op(lowered->graph, &program->plan->step[s]);
    const bool staged = role->task == CKPT_TASK_REDUCE_START || role->task == CKPT_TASK_REDUCE;
    action->exchange = &wiring->exchange[role->bucket];
    CKPT_TRY(wire_pieces(wiring, s, action, err));
    if (!staged) {
        return CKPT_OK;
    }
    if (lowered->network->scheme.overlap) {
        const int buffer = bucket_buffer(lowered, role->task == CKPT_TASK_REDUCE_START ? &op->writes : &op->reads);
        void *staging = NULL;
        CKPT_TRY(ckpt_wire_buffer(wiring, buffer, s, &staging, err));
        CKPT_TRY(ckpt_wire_touch(wiring, action, buffer, staging, err));
        action->staging = staging;
        return CKPT_OK;
    }
    action->staging = action->args.workspace;
    if (action->args.workspace_bytes < action->exchange->bucket->staging_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d has a workspace of %lld bytes, wanted %lld",
                         program->plan->source, s, (long long)action->args.workspace_bytes,
                         (long long)action->exchange->bucket->staging_bytes);
    }
    return CKPT_OK;
}

static ckpt_code wire_tied(const ckpt_wiring *wiring, int s, const ckpt_op_role *role, ckpt_action *action,
                           ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    const ckpt_tied_group *const group = &network->tied_group[role->tied_group];
    const ckpt_tensor *const tensor = &network->node[group->owner].param[group->param].tensor;
    const ckpt_bytes each = ckpt_round_up(ckpt_tensor_bytes(tensor), CKPT_ALIGN);
    int *const stage = CKPT_NEW(wiring->out, int, group->holder_count);
    float **const at = CKPT_NEW(wiring->out, float *, group->holder_count);
    if (stage == NULL || at == NULL) {
        return ckpt_wire_no_memory(err);
    }
    ckpt_bytes used = 0;
    for (int h = 0; h < group->holder_count; h++) {
        stage[h] = network->stage_of[group->holder[h]];
        if (stage[h] == network->scheme.stage) {
            int buffer = -1;
            CKPT_TRY(ckpt_wire_gradient(wiring, group->holder[h], group->param, s, &buffer, &at[h], err));
            CKPT_TRY(ckpt_wire_touch(wiring, action, buffer, at[h], err));
        } else {
            at[h] = (float *)(void *)((unsigned char *)action->args.workspace + used);
            used += each;
        }
    }
    if (used > action->args.workspace_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d has a workspace of %lld bytes, wanted %lld",
                         program->plan->source, s, (long long)action->args.workspace_bytes, (long long)used);
    }
    action->tied = (ckpt_tied_gradients){.count = ckpt_shape_count(&tensor->shape),
                                         .holders = group->holder_count,
                                         .stage = stage,
                                         .at = at,
                                         .slot = wiring->tied_slot,
                                         .staging = wiring->tied_staging};
    return CKPT_OK;
}

static int most_squares(const ckpt_wiring *wiring)
{
    const ckpt_lowered *const lowered = wiring->program->lowered;
    int count = lowered->network->node_count;
    for (int k = 0; k < lowered->bucket_count; k++) {
        count += wiring->exchange[k].first[lowered->network->scheme.replicas];
    }
    return count;
}

/* A node's own parameters lie one behind the other, with zeros between them. Copies of another stage's parameters,
 * which count there, come before them. */
static void add_node(const ckpt_program *program, int n, ckpt_square *to, int *count)
{
    const ckpt_node *const node = &program->lowered->network->node[n];
    ckpt_bytes start = -1, end = 0;
    for (int k = 0; k < node->param_count; k++) {
        const ckpt_bytes at = program->layout.param[n * CKPT_PARAM_MAX + k];
        if (node->param[k].tied < 0 && node->param[k].copy_of < 0 && at >= 0) {
            start = start < 0 ? at : start;
            end = at + ckpt_tensor_bytes(&node->param[k].tensor);
        }
    }
    if (start >= 0) {
        unsigned char *const from = program->memory.statics.at + program->layout.gradients + start;
        to[(*count)++] = (ckpt_square){n, 0, (const float *)(void *)from, (end - start) / (ckpt_bytes)sizeof(float)};
    }
}

static void add_pieces(const ckpt_wiring *wiring, int replica, ckpt_square *to, int *count)
{
    const ckpt_program *const program = wiring->program;
    for (int k = 0; k < program->lowered->bucket_count; k++) {
        const ckpt_exchange *const x = &wiring->exchange[k];
        for (int i = x->first[replica]; i < x->first[replica + 1]; i++) {
            const ckpt_piece *const piece = &x->piece[i];
            float *const at = ckpt_program_param(program, program->layout.gradients, piece->node, piece->param);
            if (program->lowered->network->node[piece->node].param[piece->param].copy_of < 0) {
                to[(*count)++] = (ckpt_square){piece->node, replica, at + piece->first, piece->count};
            }
        }
    }
}

static ckpt_code wire_norm(const ckpt_wiring *wiring, int s, ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    ckpt_square *const square = CKPT_NEW(wiring->out, ckpt_square, most_squares(wiring));
    if (square == NULL) {
        return ckpt_wire_no_memory(err);
    }
    int count = 0;
    for (int n = 0; network->scheme.replicas == 1 && n < network->node_count; n++) {
        add_node(program, n, square, &count);
    }
    for (int r = 0; network->scheme.replicas > 1 && r < network->scheme.replicas; r++) {
        if (!network->scheme.shard_optimizer || r == program->replica) {
            add_pieces(wiring, r, square, &count);
        }
    }
    action->square = square;
    action->square_count = count;
    for (int i = 0; i < count; i++) {
        const ckpt_bytes wanted = program->device->api->square_workspace(square[i].count);
        if (wanted > action->args.workspace_bytes) {
            return CKPT_FAIL(err, CKPT_DEVICE, "%s: step %d has a workspace of %lld bytes, wanted %lld",
                             program->plan->source, s, (long long)action->args.workspace_bytes, (long long)wanted);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire_exchange(const ckpt_wiring *wiring, int step, const ckpt_op_role *role, ckpt_action *action,
                             ckpt_err *err)
{
    switch (role->task) {
    case CKPT_TASK_SEND:
    case CKPT_TASK_SENT:
    case CKPT_TASK_RECEIVE: return wire_transfer(wiring, step, role, action, err);
    case CKPT_TASK_REDUCE_START:
    case CKPT_TASK_REDUCE:
    case CKPT_TASK_REDUCE_END:
    case CKPT_TASK_ALL_GATHER: return wire_bucket(wiring, step, role, action, err);
    case CKPT_TASK_REDUCE_TIED: return wire_tied(wiring, step, role, action, err);
    case CKPT_TASK_NORM: return wire_norm(wiring, step, action, err);
    case CKPT_TASK_LAYER: break;
    }
    return CKPT_OK;
}
