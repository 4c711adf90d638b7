/* What the kernels of a layer are given. */
#include "executor/setup/wire_impl.h"

static bool bit(uint64_t mask, int k)
{
    return (mask >> k & 1u) != 0;
}

/* Parameters and statistics: the same addresses in every run. */
static ckpt_code wire_statics(const ckpt_wiring *wiring, const ckpt_node *node, ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const float **const param = CKPT_NEW(wiring->out, const float *, node->param_count);
    const void **const param16 = CKPT_NEW(wiring->out, const void *, node->param_count);
    float **const stat = CKPT_NEW(wiring->out, float *, node->stat_count);
    if (param == NULL || param16 == NULL || stat == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int k = 0; k < node->param_count; k++) {
        param16[k] = ckpt_program_param16(program, node->index, k);
        param[k] = ckpt_program_param(program, program->layout.weights, node->index, k);
    }
    for (int k = 0; k < node->stat_count; k++) {
        stat[k] = ckpt_program_statistic(program, node->index, k);
    }
    args->param = param;
    args->param16 = param16;
    args->stat = stat;
    return CKPT_OK;
}

/* Inputs, outputs and saved tensors, each where its bit is set, else NULL. Backward gets only those the op has
 * declared: a lie about what must be stored shows at once. */
static ckpt_code wire_tensors(const ckpt_wiring *wiring, const ckpt_node *node, int batch, int step, uint64_t ins,
                              uint64_t outs, uint64_t saveds, ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const size_t nodes = (size_t)program->lowered->network->node_count;
    const int *const saved_buffer =
        &program->lowered->saved_buffer[((size_t)batch * nodes + (size_t)node->index) * CKPT_SAVED_MAX];
    void **const in = CKPT_NEW(wiring->out, void *, node->in_count);
    void **const out = CKPT_NEW(wiring->out, void *, node->out_count);
    void **const saved = CKPT_NEW(wiring->out, void *, node->saved_count);
    if (in == NULL || out == NULL || saved == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int k = 0; k < node->in_count; k++) {
        if (bit(ins, k)) {
            CKPT_TRY(ckpt_wire_value(wiring, batch, node->in_value[k], step, &in[k], err));
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        if (bit(outs, k)) {
            CKPT_TRY(ckpt_wire_value(wiring, batch, node->out_value[k], step, &out[k], err));
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if (bit(saveds, k)) {
            CKPT_TRY(ckpt_wire_buffer(wiring, saved_buffer[k], step, &saved[k], err));
        }
    }
    args->in = (const void *const *)in;
    args->out = out;
    args->saved = saved;
    return CKPT_OK;
}

/* The gradients of parameters, which may be buffers. */
static ckpt_code wire_param_gradients(const ckpt_wiring *wiring, const ckpt_node *node, int step, ckpt_action *action,
                                      ckpt_err *err)
{
    float **const grad = CKPT_NEW(wiring->out, float *, node->param_count);
    if (grad == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int k = 0; k < node->param_count; k++) {
        int buffer = -1;
        CKPT_TRY(ckpt_wire_gradient(wiring, node->index, k, step, &buffer, &grad[k], err));
        CKPT_TRY(ckpt_wire_touch(wiring, action, buffer, grad[k], err));
    }
    action->args.grad_param = grad;
    return CKPT_OK;
}

/* The loss's gradient is 1, or what scales it. */
static const void *loss_gradient(const ckpt_program *program, const ckpt_node *node, int k)
{
    const ckpt_network *const network = program->lowered->network;
    const bool scaled = node->index == network->loss_node && k == 0 && network->loss_scale != 1;
    return scaled ? ckpt_program_scale(program, 1) : NULL;
}

static ckpt_code wire_backward(const ckpt_wiring *wiring, const ckpt_node *node, int batch, int step,
                               ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_way *const way = args->way;
    const int *const grad_buffer =
        &program->lowered->grad_buffer[(size_t)batch * (size_t)program->lowered->network->value_count];
    const void **const grad_out = CKPT_NEW(wiring->out, const void *, node->out_count);
    void **const grad_in = CKPT_NEW(wiring->out, void *, node->in_count);
    if (grad_out == NULL || grad_in == NULL) {
        return ckpt_wire_no_memory(err);
    }
    CKPT_TRY(way != NULL ? wire_tensors(wiring, node, batch, step, way->in, way->out, way->saved, args, err)
                         : wire_tensors(wiring, node, batch, step, node->backward_in, node->backward_out,
                                        node->backward_saved, args, err));
    void *address = NULL;
    for (int k = 0; k < node->in_count; k++) {
        if (bit(node->grad_in, k)) {
            CKPT_TRY(ckpt_wire_buffer(wiring, grad_buffer[node->in_value[k]], step, &address, err));
            grad_in[k] = address;
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        CKPT_TRY(ckpt_wire_buffer(wiring, grad_buffer[node->out_value[k]], step, &address, err));
        grad_out[k] = address != NULL ? address : loss_gradient(program, node, k);
    }
    args->grad_out = grad_out;
    args->grad_in = grad_in;
    return CKPT_OK;
}

/* Elements first .. first + count - 1 of a parameter; `state` is where they start in each slot of a sharded optimizer,
 * -1: the parameter is whole. */
static ckpt_code wire_piece(const ckpt_wiring *wiring, const ckpt_piece *piece, ckpt_bytes state, int step,
                            ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    const size_t which = (size_t)(piece->node * CKPT_PARAM_MAX + piece->param);
    const int slots = ckpt_network_slots(network);
    float **const slot = CKPT_NEW(wiring->out, float *, slots);
    if (slot == NULL) {
        return ckpt_wire_no_memory(err);
    }
    for (int i = 0; i < slots; i++) {
        const ckpt_bytes at =
            state >= 0 ? i * program->layout.slot_bytes + state
                       : program->layout.slot[(size_t)i * (size_t)network->node_count * CKPT_PARAM_MAX + which];
        slot[i] = (float *)(void *)(program->memory.statics.at + program->layout.optimizer + at);
    }
    int buffer = -1;
    float *grad = NULL;
    CKPT_TRY(ckpt_wire_gradient(wiring, piece->node, piece->param, step, &buffer, &grad, err));
    if (grad == NULL) {
        return CKPT_OK; /* fused, and no gradient comes to it */
    }
    CKPT_TRY(ckpt_wire_touch(wiring, action, buffer, grad, err));
    unsigned char *const param16 = ckpt_program_param16(program, piece->node, piece->param);
    const ckpt_param *const param = &network->node[piece->node].param[piece->param];
    action->update[action->update_count++] = (ckpt_update_args){
        .hyper = network->hyper,
        .group = param->group,
        .decay = param->decay,
        .count = piece->count,
        .matrix = ckpt_matrix_of(param),
        .param = ckpt_program_param(program, program->layout.weights, piece->node, piece->param) + piece->first,
        .param16 = param16 != NULL ? param16 + 2 * piece->first : NULL,
        .grad = grad + piece->first,
        .scale = ckpt_program_scale(program, 0),
        .slot = slot,
        .average = network->ema > 0 ? slot[slots - 1] : NULL,
        .workspace = action->args.workspace,
    };
    return CKPT_OK;
}

/* Of a sharded optimizer only the pieces of the own chunk. */
static ckpt_code wire_shard(const ckpt_wiring *wiring, const ckpt_node *node, int bucket, int step, ckpt_action *action,
                            ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_exchange *const exchange = &wiring->exchange[bucket];
    const int64_t start = program->replica * exchange->bucket->chunk;
    for (int i = exchange->first[program->replica]; i < exchange->first[program->replica + 1]; i++) {
        const ckpt_piece *const piece = &exchange->piece[i];
        if (piece->node == node->index) {
            const ckpt_bytes state = exchange->bucket->shard + (piece->at - start) * (ckpt_bytes)sizeof(float);
            CKPT_TRY(wire_piece(wiring, piece, state, step, action, err));
        }
    }
    return CKPT_OK;
}

/* A parameter that is tied is updated where it belongs, once. */
static ckpt_code wire_update(const ckpt_wiring *wiring, const ckpt_node *node, int bucket, int step,
                             ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_bytes wanted = ckpt_network_update_bytes(program->lowered->network, node);
    if (action->args.workspace_bytes < wanted) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d has a workspace of %lld bytes, wanted %lld",
                         program->plan->source, step, (long long)action->args.workspace_bytes, (long long)wanted);
    }
    wiring->updated[node->index] = true;
    action->update = CKPT_NEW(wiring->out, ckpt_update_args, node->param_count);
    if (action->update == NULL) {
        return ckpt_wire_no_memory(err);
    }
    if (program->lowered->network->scheme.shard_optimizer) {
        return wire_shard(wiring, node, bucket, step, action, err);
    }
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied < 0) {
            const ckpt_piece whole = {
                .node = node->index, .param = k, .count = ckpt_shape_count(&node->param[k].tensor.shape)};
            CKPT_TRY(wire_piece(wiring, &whole, -1, step, action, err));
        }
    }
    return CKPT_OK;
}

const ckpt_way *ckpt_wire_way(const ckpt_program *program, const ckpt_step *step)
{
    const ckpt_graph *const graph = program->lowered->graph;
    const int first = graph->op[step->target].first_variant - graph->op_count;
    return step->way == 0 ? NULL : program->lowered->way[first + step->way - 1];
}

ckpt_code ckpt_wire_layer(const ckpt_wiring *wiring, int step, const ckpt_op_role *role, ckpt_action *action,
                          ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_node *const node = &program->lowered->network->node[role->node];
    action->bound = &program->bound[role->node];
    action->args.node = node;
    action->args.state = action->bound->state;
    if (role->phase == CKPT_UPDATE) {
        return wire_update(wiring, node, role->bucket, step, action, err);
    }
    action->args.way = ckpt_wire_way(program, &program->plan->step[step]);
    CKPT_TRY(wire_statics(wiring, node, &action->args, err));
    if (role->phase == CKPT_FORWARD) {
        return wire_tensors(wiring, node, role->batch, step, UINT64_MAX, UINT64_MAX,
                            ckpt_node_saves(node, action->args.way), &action->args, err);
    }
    action->args.grad_in_adds = role->grad_in_adds;
    action->args.grad_param_adds = role->grad_param_adds;
    CKPT_TRY(wire_param_gradients(wiring, node, step, action, err));
    return wire_backward(wiring, node, role->batch, step, &action->args, err);
}
