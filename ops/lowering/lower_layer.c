/* Forward, backward and update of one layer in one micro-batch.
 *
 * Backward is emitted in the order it runs, so "the last reader's backward" is simply the first one met: it writes a
 * gradient, every later one adds. That order is part of the result's bits and does not depend on any plan. */
#include <string.h>

#include "ops/lowering/lower_impl.h"
#include "ops/lowering/network_impl.h"
#include "ops/ops_impl.h"

ckpt_code ckpt_lower_workspace(ckpt_bytes staging, ckpt_bytes bytes, ckpt_bytes *total, ckpt_err *err)
{
    const ckpt_bytes most = INT64_MAX / 2;
    if (bytes > most || !ckpt_sum(staging, ckpt_round_up(bytes, CKPT_ALIGN), total)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a workspace of more than 63 bits of bytes");
    }
    return CKPT_OK;
}

/* Bytes of the gradients that are added to, each rounded up. */
static ckpt_bytes added_bytes(const ckpt_node *node, uint64_t grad_in_adds, uint64_t grad_param_adds)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < node->in_count; k++) {
        if ((grad_in_adds >> k & 1) != 0) {
            bytes = ckpt_plus(bytes, ckpt_round_up(ckpt_tensor_bytes(&node->in[k]), CKPT_ALIGN));
        }
    }
    for (int k = 0; k < node->param_count; k++) {
        if ((grad_param_adds >> k & 1) != 0) {
            bytes = ckpt_plus(bytes, ckpt_round_up(ckpt_param_bytes(&node->param[k]), CKPT_ALIGN));
        }
    }
    return bytes;
}

ckpt_bytes ckpt_staging_bytes(const ckpt_node *node, uint64_t grad_in_adds, uint64_t grad_param_adds)
{
    return ckpt_node_accumulates(node) ? 0 : added_bytes(node, grad_in_adds, grad_param_adds);
}

/* What adding moves beside the op's own traffic: staging reads a piece, and reads and writes its sum; a GPU's kernel
 * that adds reads the sum. Ops that always add count none. */
static ckpt_bytes adding_bytes(const ckpt_node *node, const ckpt_op_role *role)
{
    const ckpt_bytes bytes = added_bytes(node, role->grad_in_adds, role->grad_param_adds);
    return node->op->accumulates ? 0 : ckpt_node_accumulates(node) ? bytes : ckpt_times(3, bytes);
}

/* The layer's next op, with its name; its lists are filled by the caller. */
static ckpt_code layer_op(ckpt_lowering *l, const ckpt_node *node, ckpt_phase phase, ckpt_graph_op **op,
                          ckpt_op_role **role, ckpt_err *err)
{
    CKPT_TRY(ckpt_lower_op(l, l->label, l->label, ckpt_phase_name(phase), phase, op, role, err));
    (*role)->task = CKPT_TASK_LAYER;
    (*role)->node = node->index;
    (*role)->batch = phase == CKPT_UPDATE ? -1 : l->batch;
    return CKPT_OK;
}

/* Model inputs are no buffers. */
static bool is_static(const ckpt_lowering *l, int value)
{
    return l->network->value[l->network->value[value].storage].node < 0;
}

/* Buffers of what a layer gives in any way, `writes` in its own; an alias has none. */
static ckpt_code add_results(ckpt_lowering *l, const ckpt_node *node, ckpt_collected *writes, ckpt_err *err)
{
    for (int k = 0; k < node->out_count; k++) {
        const int value = node->out_value[k];
        if (l->network->value[value].storage == value) {
            ckpt_buffer_role role = ckpt_lower_holds_nothing;
            role.value = value;
            role.batch = l->batch;
            CKPT_TRY(ckpt_lower_buffer(l, ckpt_lower_value_name(l, value), NULL, ckpt_tensor_bytes(&node->out[k]),
                                       CKPT_ACTIVATION, role, ckpt_lower_value(l, value), err));
            ckpt_lower_collect(writes, *ckpt_lower_value(l, value));
        }
    }
    const uint64_t own = ckpt_node_saves(node, NULL);
    for (int k = 0; k < node->saved_count; k++) {
        if ((own >> k & 1) == 0 && !ckpt_lower_has_ways(l, node)) {
            continue;
        }
        ckpt_buffer_role role = ckpt_lower_holds_nothing;
        role.holds = CKPT_HOLDS_SAVED;
        role.node = node->index;
        role.saved = k;
        role.batch = l->batch;
        int *const index = ckpt_lower_saved(l, node, k);
        CKPT_TRY(ckpt_lower_buffer(l, l->label, node->saved[k].name, ckpt_tensor_bytes(&node->saved[k]), CKPT_SAVED,
                                   role, index, err));
        if ((own >> k & 1) != 0) {
            ckpt_lower_collect(writes, *index);
        }
    }
    return CKPT_OK;
}

/* In-place pairs: output 0 may overwrite an input of the same elements that is no model input. The sizes are those before
 * rounding, for a gate and a small image may both fill one line. Whether the input is still needed is for the plan to
 * decide. */
static ckpt_code add_inplace(const ckpt_lowering *l, const ckpt_node *node, ckpt_graph_op *op, ckpt_err *err)
{
    const int out = *ckpt_lower_value(l, node->out_value[0]);
    ckpt_inplace *const pairs = CKPT_NEW(l->out, ckpt_inplace, op->reads.count);
    if (pairs == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "in-place pairs of %s", node->name);
    }
    ckpt_collected seen = {.count = 0};
    for (int k = 0; k < node->in_count; k++) {
        const int in = *ckpt_lower_value(l, node->in_value[k]);
        const bool may = in >= 0 && ckpt_node_inplace(node, k);
        const int before = seen.count;
        if (may) {
            ckpt_lower_collect(&seen, in);
        }
        if (seen.count > before) {
            pairs[before] = (ckpt_inplace){.out = out, .in = in};
        }
    }
    op->inplace = pairs;
    op->inplace_count = seen.count;
    return CKPT_OK;
}

/* "h.0@1/h.0.mlp@1": each unit of each micro-batch is a unit of its own. */
static ckpt_code name_segment(const ckpt_lowering *l, const char *segment, ckpt_graph_op *op, ckpt_err *err)
{
    op->segment = segment;
    if (segment == NULL || l->network->scheme.micro_batches == 1) {
        return CKPT_OK;
    }
    const char *name = NULL;
    for (const char *at = segment; at != NULL;) {
        const size_t length = strcspn(at, "/");
        name = name == NULL ? ckpt_arena_format(l->out, "%.*s@%d", (int)length, at, l->batch)
                            : ckpt_arena_format(l->out, "%s/%.*s@%d", name, (int)length, at, l->batch);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of segment %s", segment);
        }
        at = at[length] == '/' ? at + length + 1 : NULL;
    }
    op->segment = name;
    return CKPT_OK;
}

ckpt_code ckpt_lower_forward(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    ckpt_collected reads = {.count = 0};
    ckpt_collected writes = {.count = 0};
    for (int k = 0; k < node->in_count; k++) {
        if (!is_static(l, node->in_value[k])) {
            ckpt_lower_collect(&reads, *ckpt_lower_value(l, node->in_value[k]));
        }
    }
    CKPT_TRY(add_results(l, node, &writes, err));
    if (node->alias) {
        return CKPT_OK;
    }
    const ckpt_profile_row *const row = l->row[node->index];
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(layer_op(l, node, CKPT_FORWARD, &op, &role, err));
    CKPT_TRY(ckpt_lower_keep(l, &reads, &op->reads, err));
    CKPT_TRY(ckpt_lower_keep(l, &writes, &op->writes, err));
    CKPT_TRY(add_inplace(l, node, op, err));
    role->flop = node->forward_flop;
    role->moved_bytes = node->forward_moved_bytes;
    op->time_ns =
        ckpt_lower_time(l, node, CKPT_DIRECTION_FORWARD, row != NULL ? &row->forward : NULL, node->forward_ns, role);
    /* The loss is an output: recomputed after the updates, it would be that of the next step's weights. */
    op->recompute = node->index != l->network->loss_node;
    op->checkpoint = node->layer->checkpoint;
    CKPT_TRY(name_segment(l, node->layer->checkpoint != CKPT_UNSET ? node->layer->segment : NULL, op, err));
    op->kind = node->layer->op;
    op->offload = node->layer->offload;
    op->stage = (l->network->scheme.stages > 1 ? l->network->scheme.stage : node->layer->stage) + 1;
    const ckpt_bytes wanted = row != NULL ? row->forward_workspace_bytes : node->forward_workspace_bytes;
    CKPT_TRY(ckpt_lower_workspace(0, wanted, &op->workspace_bytes, err));
    return ckpt_lower_ways(l, node, row, op, role, err);
}

/* Gradients of inputs: the first backward that reaches one writes it, the others add. One that another stage sends is
 * written already. */
static ckpt_code give_to_inputs(ckpt_lowering *l, const ckpt_node *node, uint64_t wanted, ckpt_op_role *role,
                                ckpt_collected *writes, ckpt_collected *adds, ckpt_err *err)
{
    for (int k = 0; k < node->in_count; k++) {
        if ((wanted >> k & 1) == 0) {
            continue;
        }
        const int storage = l->network->value[node->in_value[k]].storage;
        int *const known = ckpt_lower_grad(l, storage);
        if (*known < 0) {
            ckpt_buffer_role held = ckpt_lower_holds_nothing;
            held.holds = CKPT_HOLDS_GRADIENT;
            held.value = storage;
            held.batch = l->batch;
            CKPT_TRY(ckpt_lower_buffer(l, ckpt_lower_value_name(l, storage), "grad",
                                       ckpt_tensor_bytes(&l->network->value[storage].tensor), CKPT_GRADIENT, held,
                                       known, err));
            ckpt_lower_collect(writes, *known);
            continue;
        }
        role->grad_in_adds |= (uint64_t)1 << k;
        bool own = false; /* written by this very op, for an earlier input */
        for (int i = 0; i < writes->count; i++) {
            own = own || writes->at[i] == *known;
        }
        if (!own) {
            ckpt_lower_collect(adds, *known);
        }
    }
    return CKPT_OK;
}

/* Gradients of parameters likewise, over all micro-batches; in a fused scheme they are buffers. */
static ckpt_code give_to_params(ckpt_lowering *l, const ckpt_node *node, ckpt_op_role *role, ckpt_collected *writes,
                                ckpt_collected *adds, ckpt_err *err)
{
    for (int k = 0; k < node->param_count; k++) {
        const int owner = node->param[k].tied >= 0 ? node->param[k].tied : node->index;
        const size_t at = (size_t)owner * CKPT_PARAM_MAX + (size_t)k;
        const bool fused = l->network->scheme.fused;
        if (fused && !l->param_written[at]) {
            const ckpt_node *const from = &l->network->node[owner];
            const char *const name = ckpt_arena_format(l->out, "%s/%s", from->name, from->param[k].tensor.name);
            ckpt_buffer_role held = ckpt_lower_holds_nothing;
            held.holds = CKPT_HOLDS_PARAM_GRADIENT;
            held.node = owner;
            held.saved = k;
            CKPT_TRY(ckpt_lower_buffer(l, name, "grad", ckpt_param_bytes(&from->param[k]), CKPT_GRADIENT, held,
                                       &l->param_grad_buffer[at], err));
        }
        if (fused) {
            ckpt_lower_collect(l->param_written[at] ? adds : writes, l->param_grad_buffer[at]);
        }
        if (l->param_written[at]) {
            role->grad_param_adds |= (uint64_t)1 << k;
        }
        l->param_written[at] = true;
    }
    return CKPT_OK;
}

void ckpt_lower_needs(const ckpt_lowering *l, const ckpt_node *node, uint64_t ins, uint64_t outs, uint64_t saveds,
                      ckpt_collected *reads)
{
    for (int k = 0; k < node->out_count; k++) {
        const int grad = *ckpt_lower_grad(l, node->out_value[k]);
        if (grad >= 0) {
            ckpt_lower_collect(reads, grad);
        }
    }
    for (int k = 0; k < node->in_count; k++) {
        if ((ins >> k & 1) != 0 && !is_static(l, node->in_value[k])) {
            ckpt_lower_collect(reads, *ckpt_lower_value(l, node->in_value[k]));
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        if ((outs >> k & 1) != 0) {
            ckpt_lower_collect(reads, *ckpt_lower_value(l, node->out_value[k]));
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((saveds >> k & 1) != 0) {
            ckpt_lower_collect(reads, *ckpt_lower_saved(l, node, k));
        }
    }
}

/* In-place pair of a backward op: where it writes one gradient of an input only and the op allows it, the gradient may
 * overwrite that input: "logits/grad" for "logits". `given`: how many gradients of inputs the op writes. */
static ckpt_code add_backward_inplace(const ckpt_lowering *l, const ckpt_node *node, const ckpt_collected *writes,
                                      int given, ckpt_graph_op *op, ckpt_err *err)
{
    for (int k = 0; k < node->in_count; k++) {
        const uint64_t mine = (uint64_t)1 << k;
        const int in = *ckpt_lower_value(l, node->in_value[k]);
        const bool may = (node->op->backward_inplace & mine) != 0 && node->grad_in == mine &&
                         (node->backward_in & mine) != 0 && in >= 0 && given == 1;
        if (may) {
            ckpt_inplace *const pair = CKPT_NEW(l->out, ckpt_inplace, 1);
            if (pair == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "in-place pair of %s", node->name);
            }
            *pair = (ckpt_inplace){.out = writes->at[0], .in = in};
            op->inplace = pair;
            op->inplace_count = 1;
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_lower_backward(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    const ckpt_profile_row *const row = l->row[node->index];
    const uint64_t left = node->grad_in & ~ckpt_lower_pass(l, node);
    if (left == 0 && node->param_count == 0) {
        return CKPT_OK; /* every gradient is in the buffer of the output's */
    }
    ckpt_collected reads = {.count = 0};
    ckpt_collected writes = {.count = 0};
    ckpt_collected adds = {.count = 0};
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(layer_op(l, node, CKPT_BACKWARD, &op, &role, err));
    ckpt_lower_needs(l, node, node->backward_in, node->backward_out, node->backward_saved, &reads);
    CKPT_TRY(give_to_inputs(l, node, left, role, &writes, &adds, err));
    const int given = writes.count;
    CKPT_TRY(give_to_params(l, node, role, &writes, &adds, err));
    CKPT_TRY(ckpt_lower_keep(l, &reads, &op->reads, err));
    CKPT_TRY(ckpt_lower_keep(l, &writes, &op->writes, err));
    CKPT_TRY(ckpt_lower_keep(l, &adds, &op->adds, err));
    CKPT_TRY(add_backward_inplace(l, node, &writes, given, op, err));
    const ckpt_bytes staging = ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds);
    role->flop = node->backward_flop;
    role->moved_bytes = ckpt_plus(node->backward_moved_bytes, adding_bytes(node, role));
    op->time_ns =
        ckpt_lower_time(l, node, CKPT_DIRECTION_BACKWARD, row != NULL ? &row->backward : NULL, node->backward_ns, role);
    const ckpt_bytes wanted = row != NULL ? row->backward_workspace_bytes : node->backward_workspace_bytes;
    CKPT_TRY(ckpt_lower_workspace(staging, wanted, &op->workspace_bytes, err));
    return ckpt_lower_ways(l, node, row, op, role, err);
}

/* Buffers of gradients that the update of a node's own parameters reads; *bytes: of the parameters that a gradient
 * reaches. false: none is reached. */
static bool reached_params(const ckpt_lowering *l, const ckpt_node *node, ckpt_collected *reads, ckpt_bytes *bytes)
{
    bool reached = false;
    *bytes = 0;
    for (int k = 0; k < node->param_count; k++) {
        const size_t at = (size_t)node->index * CKPT_PARAM_MAX + (size_t)k;
        if (node->param[k].tied < 0) {
            *bytes = ckpt_plus(*bytes, ckpt_tensor_bytes(&node->param[k].tensor));
            reached = reached || l->param_written[at];
            if (l->param_grad_buffer[at] >= 0) {
                ckpt_lower_collect(reads, l->param_grad_buffer[at]);
            }
        }
    }
    return reached;
}

/* Beside a handful per value. */
static ckpt_flop update_flop(const ckpt_network *network, const ckpt_node *node)
{
    ckpt_flop flop = 0;
    for (int k = 0; k < node->param_count && network->optimizer->flop != NULL; k++) {
        const ckpt_matrix matrix = ckpt_matrix_of(&node->param[k]);
        flop = node->param[k].tied < 0 ? ckpt_plus(flop, network->optimizer->flop(&matrix)) : flop;
    }
    return flop;
}

/* A GPU launches an update together with the one before it. */
static bool is_joined(const ckpt_lowering *l)
{
    const int before = l->op_count - 2;
    return l->network->threads == CKPT_ON_GPU && before >= 0 && l->op[before].phase == CKPT_UPDATE;
}

ckpt_code ckpt_lower_update(ckpt_lowering *l, const ckpt_node *node, int bucket, ckpt_err *err)
{
    const int slots = ckpt_network_slots(l->network);
    const int sharers = l->network->scheme.shard_optimizer ? l->network->scheme.replicas : 1;
    ckpt_collected reads = {.count = 0};
    ckpt_bytes bytes = 0;
    if (!reached_params(l, node, &reads, &bytes)) {
        return CKPT_OK;
    }
    const ckpt_profile_row *const row = l->row[node->index];
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    l->label = node->name; /* of no micro-batch */
    CKPT_TRY(layer_op(l, node, CKPT_UPDATE, &op, &role, err));
    CKPT_TRY(ckpt_lower_keep(l, &reads, &op->reads, err));
    role->bucket = bucket;
    /* Weight read and written, gradient read, state read and written, a bfloat16 copy written; a handful of operations
     * per value. */
    bytes /= sharers;
    const ckpt_bytes copy = l->network->model->dtype == CKPT_BFLOAT16 ? bytes / 2 : 0;
    role->flop = ckpt_plus(ckpt_times(4 + 4 * slots, bytes / 4), update_flop(l->network, node));
    CKPT_TRY(ckpt_lower_workspace(0, ckpt_network_update_bytes(l->network, node), &op->workspace_bytes, err));
    role->moved_bytes = ckpt_plus(ckpt_times(3 + 2 * slots, bytes), copy);
    op->time_ns = ckpt_lower_time(l, node, CKPT_DIRECTION_UPDATE, row != NULL ? &row->update : NULL, -1, role);
    if (row != NULL && (row->update.repeats > 0 || row->update.median_ns > 0)) {
        op->time_ns /= sharers; /* measured of the whole layer */
    } else if (op->workspace_bytes == 0 && is_joined(l)) {
        const ckpt_ns launch = l->device->launch_ns;
        op->time_ns -= launch < op->time_ns ? launch : op->time_ns;
    }
    return CKPT_OK;
}
