/* A network as one training step: forward ops in layer order, backward ops in reverse, then updates.
 *
 * Backward is emitted in the order it runs, so "the last reader's backward" is simply the first one met: it writes a
 * gradient, every later one adds. That order is part of the result's bits and does not depend on any plan. */
#include <assert.h>
#include <string.h>

#include "ops/network.h"
#include "ops/network_impl.h"
#include "ops/ops_impl.h"

enum {
    LIST_MAX = 2 * CKPT_OUT_MAX + CKPT_IN_MAX + CKPT_SAVED_MAX, /* what one op can read */
    OPS_PER_NODE = 3,
};

typedef struct lowering {
    const ckpt_network *network;
    const ckpt_profile *profile;
    const ckpt_device_model *device;
    ckpt_arena *out;
    const ckpt_profile_row **row; /* per node; NULL: none */
    ckpt_graph_op *op;
    ckpt_op_role *op_role;
    int op_count;
    ckpt_buffer *buffer;
    ckpt_buffer_role *buffer_role;
    int buffer_count;
    int *value_buffer, *grad_buffer, *saved_buffer;
    bool *param_written; /* [node * CKPT_PARAM_MAX + k] of owners: a gradient has reached it */
} lowering;

/* A list of buffers that holds each once. */
typedef struct collected {
    int at[LIST_MAX];
    int count;
} collected;

static void collect(collected *list, int buffer)
{
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] == buffer) {
            return;
        }
    }
    assert(list->count < LIST_MAX);
    list->at[list->count++] = buffer;
}

static ckpt_code keep_list(const lowering *l, const collected *from, ckpt_list *list, ckpt_err *err)
{
    int *const at = CKPT_NEW(l->out, int, from->count);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "list of %d buffers", from->count);
    }
    memcpy(at, from->at, (size_t)from->count * sizeof *at);
    *list = (ckpt_list){.at = at, .count = from->count};
    return CKPT_OK;
}

/* `bytes` rounded up to CKPT_ALIGN, with what comes before it added. */
static ckpt_code workspace_bytes(ckpt_bytes staging, ckpt_bytes bytes, ckpt_bytes *total, ckpt_err *err)
{
    const ckpt_bytes most = INT64_MAX / 2;
    if (bytes > most || !ckpt_sum(staging, ckpt_round_up(bytes, CKPT_ALIGN), total)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a workspace of more than 63 bits of bytes");
    }
    return CKPT_OK;
}

ckpt_bytes ckpt_staging_bytes(const ckpt_node *node, uint64_t grad_in_adds, uint64_t grad_param_adds)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < node->in_count && !node->op->accumulates; k++) {
        if ((grad_in_adds >> k & 1) != 0) {
            bytes = ckpt_plus(bytes, ckpt_round_up(ckpt_tensor_bytes(&node->in[k]), CKPT_ALIGN));
        }
    }
    for (int k = 0; k < node->param_count && !node->op->accumulates; k++) {
        if ((grad_param_adds >> k & 1) != 0) {
            bytes = ckpt_plus(bytes, ckpt_round_up(ckpt_tensor_bytes(&node->param[k].tensor), CKPT_ALIGN));
        }
    }
    return bytes;
}

static ckpt_code add_buffer(lowering *l, const char *name, const char *suffix, const ckpt_tensor *tensor,
                            ckpt_kind kind, ckpt_buffer_role role, int *index, ckpt_err *err)
{
    const char *const full = suffix == NULL ? name : ckpt_arena_format(l->out, "%s/%s", name, suffix);
    if (full == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a buffer's name");
    }
    *index = l->buffer_count++;
    l->buffer[*index] =
        (ckpt_buffer){.name = full, .bytes = ckpt_round_up(ckpt_tensor_bytes(tensor), CKPT_ALIGN), .kind = kind};
    l->buffer_role[*index] = role;
    return CKPT_OK;
}

/* The next op, with its name; its lists are filled by the caller. */
static ckpt_code add_op(lowering *l, int node, ckpt_phase phase, ckpt_graph_op **op, ckpt_op_role **role, ckpt_err *err)
{
    const char *const name = l->network->node[node].name;
    *op = &l->op[l->op_count];
    *role = &l->op_role[l->op_count];
    l->op_count++;
    **role = (ckpt_op_role){.node = node, .phase = phase, .value = -1, .peer = -1, .bucket = -1};
    **op = (ckpt_graph_op){
        .name = ckpt_arena_format(l->out, "%s/%s", name, ckpt_phase_name(phase)), .phase = phase, .layer = name};
    return (*op)->name != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "name of an op of %s", name);
}

static ckpt_bytes output_bytes(const ckpt_node *node)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < node->out_count; k++) {
        bytes = ckpt_plus(bytes, ckpt_tensor_bytes(&node->out[k]));
    }
    return bytes;
}

static ckpt_bytes saved_bytes(const ckpt_node *node)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < node->saved_count; k++) {
        bytes = ckpt_plus(bytes, ckpt_tensor_bytes(&node->saved[k]));
    }
    return bytes;
}

/* What the layer `did` when it was profiled, and `does` now; 0: the profile does not say. */
static ckpt_code match_bytes(const lowering *l, const ckpt_node *node, const char *did, const char *does,
                             ckpt_bytes there, ckpt_bytes here, ckpt_err *err)
{
    char a[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT];
    if (there == 0 || there == here) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s %s %s there and %s %s in %s: profile this model",
                     l->profile->source, node->name, did, ckpt_bytes_show(there, a), does, ckpt_bytes_show(here, b),
                     l->network->model->source);
}

/* Every layer that will run must have been measured, as what it is now: another batch gives other sizes, and other
 * heads of attention save others. */
static ckpt_code match_profile(lowering *l, ckpt_err *err)
{
    const ckpt_profile *const profile = l->profile;
    for (int n = 0; profile != NULL && n < l->network->node_count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        /* Rows mostly stand in layer order: look there first, so that large models stay linear. */
        const bool in_place = n < profile->row_count && strcmp(profile->row[n].layer, node->name) == 0;
        const ckpt_profile_row *const row = in_place ? &profile->row[n] : ckpt_profile_find(profile, node->name);
        if (row == NULL && !node->alias && !node->op->planned_only) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s has no row for layer %s (%s) of %s: profile this model",
                             profile->source, node->name, node->op->name, l->network->model->source);
        }
        if (row != NULL && strcmp(row->op, node->op->name) != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s is \"%s\" there and \"%s\" in %s: profile this model",
                             profile->source, node->name, row->op, node->op->name, l->network->model->source);
        }
        if (row != NULL) {
            CKPT_TRY(match_bytes(l, node, "gave", "gives", row->output_bytes, output_bytes(node), err));
            CKPT_TRY(match_bytes(l, node, "saved", "saves", row->saved_bytes, saved_bytes(node), err));
        }
        l->row[n] = row;
    }
    return CKPT_OK;
}

static ckpt_ns choose_time(const lowering *l, const ckpt_node *node, ckpt_direction direction,
                           const ckpt_timing *measured, ckpt_ns stated, const ckpt_op_role *role)
{
    /* A file written by hand may give a time and no repeats. */
    if (measured != NULL && (measured->repeats > 0 || measured->median_ns > 0)) {
        return measured->median_ns;
    }
    return stated >= 0 ? stated
                       : ckpt_roofline_ns(l->device, node->op->name, direction, l->network->model->dtype, role->flop,
                                          role->moved_bytes);
}

static bool is_static(const lowering *l, int value)
{
    return l->value_buffer[value] < 0;
}

/* Buffers of what a layer gives; an alias has those of what it shows. */
static ckpt_code add_results(lowering *l, const ckpt_node *node, collected *writes, ckpt_err *err)
{
    for (int k = 0; k < node->out_count; k++) {
        const int value = node->out_value[k];
        const int storage = l->network->value[value].storage;
        if (storage == value) {
            const ckpt_buffer_role role = {.holds = CKPT_HOLDS_VALUE, .value = value, .node = -1, .saved = -1};
            CKPT_TRY(add_buffer(l, node->out[k].name, NULL, &node->out[k], CKPT_ACTIVATION, role,
                                &l->value_buffer[value], err));
            collect(writes, l->value_buffer[value]);
        }
        l->value_buffer[value] = l->value_buffer[storage];
    }
    for (int k = 0; k < node->saved_count; k++) {
        const ckpt_buffer_role role = {.holds = CKPT_HOLDS_SAVED, .value = -1, .node = node->index, .saved = k};
        int *const index = &l->saved_buffer[node->index * CKPT_SAVED_MAX + k];
        CKPT_TRY(add_buffer(l, node->name, node->saved[k].name, &node->saved[k], CKPT_SAVED, role, index, err));
        collect(writes, *index);
    }
    return CKPT_OK;
}

/* Output 0 may take the place of an input of the same size that is no model input: all that could be chosen. The sizes
 * are those before rounding: a gate and a small image may both fill one line. Whether somebody still needs that input
 * is for the plan to decide. */
static ckpt_code add_inplace(const lowering *l, const ckpt_node *node, ckpt_graph_op *op, ckpt_err *err)
{
    const int out = l->value_buffer[node->out_value[0]];
    ckpt_inplace *const pairs = CKPT_NEW(l->out, ckpt_inplace, op->reads.count);
    if (pairs == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "in-place pairs of %s", node->name);
    }
    collected seen = {.count = 0};
    for (int k = 0; k < node->in_count; k++) {
        const int in = l->value_buffer[node->in_value[k]];
        const bool may = (node->op->inplace >> k & 1) != 0 && in >= 0 &&
                         ckpt_tensor_bytes(&node->in[k]) == ckpt_tensor_bytes(&node->out[0]);
        const int before = seen.count;
        if (may) {
            collect(&seen, in);
        }
        if (seen.count > before) {
            pairs[before] = (ckpt_inplace){.out = out, .in = in};
        }
    }
    op->inplace = pairs;
    op->inplace_count = seen.count;
    return CKPT_OK;
}

static ckpt_code lower_forward(lowering *l, const ckpt_node *node, ckpt_err *err)
{
    collected reads = {.count = 0};
    collected writes = {.count = 0};
    for (int k = 0; k < node->in_count; k++) {
        if (!is_static(l, node->in_value[k])) {
            collect(&reads, l->value_buffer[node->in_value[k]]);
        }
    }
    CKPT_TRY(add_results(l, node, &writes, err));
    if (node->alias) {
        return CKPT_OK;
    }
    const ckpt_profile_row *const row = l->row[node->index];
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(add_op(l, node->index, CKPT_FORWARD, &op, &role, err));
    CKPT_TRY(keep_list(l, &reads, &op->reads, err));
    CKPT_TRY(keep_list(l, &writes, &op->writes, err));
    CKPT_TRY(add_inplace(l, node, op, err));
    role->flop = node->forward_flop;
    role->moved_bytes = node->forward_moved_bytes;
    op->time_ns =
        choose_time(l, node, CKPT_DIRECTION_FORWARD, row != NULL ? &row->forward : NULL, node->forward_ns, role);
    /* What shows the loss is an output: run again behind the updates, it would come out of the next step's weights. */
    op->recompute = node->index != l->network->loss_node;
    op->checkpoint = node->layer->checkpoint;
    op->segment = node->layer->checkpoint != CKPT_UNSET ? node->layer->segment : NULL;
    op->kind = node->layer->op;
    op->offload = node->layer->offload;
    op->stage = node->layer->stage + 1;
    const ckpt_bytes wanted = row != NULL ? row->forward_workspace_bytes : node->forward_workspace_bytes;
    return workspace_bytes(0, wanted, &op->workspace_bytes, err);
}

/* Where the gradients start: the last layer, or what it shows under another shape. */
static int end_node(const lowering *l)
{
    const ckpt_node *const last = &l->network->node[l->network->node_count - 1];
    const int storage = l->network->value[last->out_value[0]].storage;
    return l->network->value[storage].node;
}

static int *grad_of(const lowering *l, int value)
{
    return &l->grad_buffer[l->network->value[value].storage];
}

static bool has_backward(const lowering *l, const ckpt_node *node, int end)
{
    bool reached = node->index == end;
    for (int k = 0; k < node->out_count; k++) {
        reached = reached || *grad_of(l, node->out_value[k]) >= 0;
    }
    return reached && !node->alias && (ckpt_node_learns(node) || node->grad_in != 0);
}

/* Gradients of inputs: the first backward that comes to one writes it, the others add. */
static ckpt_code give_gradients(lowering *l, const ckpt_node *node, ckpt_op_role *role, collected *writes,
                                collected *adds, ckpt_err *err)
{
    for (int k = 0; k < node->in_count; k++) {
        if ((node->grad_in >> k & 1) == 0) {
            continue;
        }
        const int storage = l->network->value[node->in_value[k]].storage;
        const ckpt_value *const value = &l->network->value[storage];
        const int known = l->grad_buffer[storage];
        if (known < 0) {
            const ckpt_buffer_role held = {.holds = CKPT_HOLDS_GRADIENT, .value = storage, .node = -1, .saved = -1};
            CKPT_TRY(
                add_buffer(l, value->name, "grad", &value->tensor, CKPT_GRADIENT, held, &l->grad_buffer[storage], err));
            collect(writes, l->grad_buffer[storage]);
            continue;
        }
        role->grad_in_adds |= (uint64_t)1 << k;
        bool own = false; /* written by this very op, for an earlier input */
        for (int i = 0; i < writes->count; i++) {
            own = own || writes->at[i] == known;
        }
        if (!own) {
            collect(adds, known);
        }
    }
    for (int k = 0; k < node->param_count; k++) {
        const int owner = node->param[k].tied >= 0 ? node->param[k].tied : node->index;
        bool *const written = &l->param_written[owner * CKPT_PARAM_MAX + k];
        if (*written) {
            role->grad_param_adds |= (uint64_t)1 << k;
        }
        *written = true;
    }
    return CKPT_OK;
}

/* What backward reads: the gradients that come in, and what the op declared. Model inputs are no buffers. */
static void collect_needs(const lowering *l, const ckpt_node *node, collected *reads)
{
    for (int k = 0; k < node->out_count; k++) {
        const int grad = *grad_of(l, node->out_value[k]);
        if (grad >= 0) {
            collect(reads, grad);
        }
    }
    for (int k = 0; k < node->in_count; k++) {
        if ((node->backward_in >> k & 1) != 0 && !is_static(l, node->in_value[k])) {
            collect(reads, l->value_buffer[node->in_value[k]]);
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        if ((node->backward_out >> k & 1) != 0) {
            collect(reads, l->value_buffer[node->out_value[k]]);
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((node->backward_saved >> k & 1) != 0) {
            collect(reads, l->saved_buffer[node->index * CKPT_SAVED_MAX + k]);
        }
    }
}

/* The only gradient an op makes may take the place of the input it belongs to, where the op can do that and both are
 * buffers of its own making: "logits/grad" for "logits". */
static ckpt_code add_backward_inplace(const lowering *l, const ckpt_node *node, const collected *writes,
                                      ckpt_graph_op *op, ckpt_err *err)
{
    for (int k = 0; k < node->in_count; k++) {
        const uint64_t mine = (uint64_t)1 << k;
        const int in = l->value_buffer[node->in_value[k]];
        const bool may = (node->op->backward_inplace & mine) != 0 && node->grad_in == mine &&
                         (node->backward_in & mine) != 0 && in >= 0 && writes->count == 1;
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

static ckpt_code lower_backward(lowering *l, const ckpt_node *node, ckpt_err *err)
{
    const ckpt_profile_row *const row = l->row[node->index];
    collected reads = {.count = 0};
    collected writes = {.count = 0};
    collected adds = {.count = 0};
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(add_op(l, node->index, CKPT_BACKWARD, &op, &role, err));
    collect_needs(l, node, &reads);
    CKPT_TRY(give_gradients(l, node, role, &writes, &adds, err));
    CKPT_TRY(keep_list(l, &reads, &op->reads, err));
    CKPT_TRY(keep_list(l, &writes, &op->writes, err));
    CKPT_TRY(keep_list(l, &adds, &op->adds, err));
    CKPT_TRY(add_backward_inplace(l, node, &writes, op, err));
    const ckpt_bytes staging = ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds);
    role->flop = node->backward_flop;
    /* A staged piece is read, and its sum read and written. */
    role->moved_bytes = ckpt_plus(node->backward_moved_bytes, ckpt_times(3, staging));
    op->time_ns =
        choose_time(l, node, CKPT_DIRECTION_BACKWARD, row != NULL ? &row->backward : NULL, node->backward_ns, role);
    const ckpt_bytes wanted = row != NULL ? row->backward_workspace_bytes : node->backward_workspace_bytes;
    return workspace_bytes(staging, wanted, &op->workspace_bytes, err);
}

/* Parameters of its own that a gradient has reached. */
static ckpt_code lower_update(lowering *l, const ckpt_node *node, ckpt_err *err)
{
    const int slots = l->network->optimizer->slots(l->network->hyper);
    ckpt_bytes bytes = 0;
    bool reached = false;
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied < 0) {
            bytes = ckpt_plus(bytes, ckpt_tensor_bytes(&node->param[k].tensor));
            reached = reached || l->param_written[node->index * CKPT_PARAM_MAX + k];
        }
    }
    if (!reached) {
        return CKPT_OK;
    }
    const ckpt_profile_row *const row = l->row[node->index];
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(add_op(l, node->index, CKPT_UPDATE, &op, &role, err));
    /* Weight read and written, gradient read, state read and written, a bfloat16 copy written; a handful of operations
     * per value. */
    const ckpt_bytes copy = l->network->model->dtype == CKPT_BFLOAT16 ? bytes / 2 : 0;
    role->flop = ckpt_times(4 + 4 * slots, bytes / 4);
    role->moved_bytes = ckpt_plus(ckpt_times(3 + 2 * slots, bytes), copy);
    op->time_ns = choose_time(l, node, CKPT_DIRECTION_UPDATE, row != NULL ? &row->update : NULL, -1, role);
    return CKPT_OK;
}

static ckpt_code take_tables(lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    const size_t nodes = (size_t)network->node_count;
    const size_t values = (size_t)network->value_count;
    size_t buffers = 2 * values; /* each value and its gradient */
    for (size_t n = 0; n < nodes; n++) {
        buffers += (size_t)network->node[n].saved_count;
    }
    l->row = CKPT_NEW(l->out, const ckpt_profile_row *, nodes);
    l->op = CKPT_NEW(l->out, ckpt_graph_op, OPS_PER_NODE * nodes);
    l->op_role = CKPT_NEW(l->out, ckpt_op_role, OPS_PER_NODE * nodes);
    l->buffer = CKPT_NEW(l->out, ckpt_buffer, buffers);
    l->buffer_role = CKPT_NEW(l->out, ckpt_buffer_role, buffers);
    l->value_buffer = CKPT_NEW(l->out, int, values);
    l->grad_buffer = CKPT_NEW(l->out, int, values);
    l->saved_buffer = CKPT_NEW(l->out, int, nodes *CKPT_SAVED_MAX);
    l->param_written = CKPT_NEW(l->out, bool, nodes *CKPT_PARAM_MAX);
    if (l->row == NULL || l->op == NULL || l->op_role == NULL || l->buffer == NULL || l->buffer_role == NULL ||
        l->value_buffer == NULL || l->grad_buffer == NULL || l->saved_buffer == NULL || l->param_written == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of %d layers", network->node_count);
    }
    for (size_t v = 0; v < values; v++) {
        l->value_buffer[v] = -1;
        l->grad_buffer[v] = -1;
    }
    for (size_t i = 0; i < nodes * CKPT_SAVED_MAX; i++) {
        l->saved_buffer[i] = -1;
    }
    return CKPT_OK;
}

static ckpt_code lower_ops(lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    for (int n = 0; n < network->node_count; n++) {
        CKPT_TRY_WHILE(err, lower_forward(l, &network->node[n], err), "lowering layer %s", network->node[n].name);
    }
    const int end = end_node(l);
    for (int n = network->node_count - 1; n >= 0; n--) {
        if (has_backward(l, &network->node[n], end)) {
            CKPT_TRY_WHILE(err, lower_backward(l, &network->node[n], err), "lowering layer %s", network->node[n].name);
        }
    }
    for (int n = 0; n < network->node_count; n++) {
        CKPT_TRY_WHILE(err, lower_update(l, &network->node[n], err), "lowering layer %s", network->node[n].name);
    }
    /* A value seen under another shape has the gradient of what it shows. */
    for (int v = 0; v < network->value_count; v++) {
        l->grad_buffer[v] = *grad_of(l, v);
    }
    return CKPT_OK;
}

/* A plan can only say "in place", not which: of several inputs, take the first that nothing reads afterwards, or else
 * the first. */
static ckpt_code choose_inplace(lowering *l, ckpt_err *err)
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

static ckpt_code lower_statics(const lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    ckpt_static_layout layout;
    CKPT_TRY(ckpt_network_statics(l->network, l->out, &layout, err));
    const ckpt_static statics[] = {
        {.name = "weights", .bytes = layout.gradients - layout.weights},
        {.name = "gradients", .bytes = layout.optimizer - layout.gradients},
        {.name = "optimizer", .bytes = layout.statistics - layout.optimizer},
        {.name = "statistics", .bytes = layout.inputs - layout.statistics},
        {.name = "inputs", .bytes = layout.weights16 - layout.inputs},
        {.name = "weights16", .bytes = layout.total - layout.weights16}, /* only where there are any */
    };
    const int count = (int)(sizeof statics / sizeof statics[0]) - (layout.total == layout.weights16);
    ckpt_static *const kept = CKPT_NEW(l->out, ckpt_static, count);
    if (kept == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "static sizes");
    }
    memcpy(kept, statics, (size_t)count * sizeof *kept);
    graph->statics = kept;
    graph->static_count = count;
    return CKPT_OK;
}

/* Copies are planned beside compute and in both directions at once, each at its full rate: so the rates of a profile
 * are those that were measured under just that load, where it has them. A copy alone is faster than any in a step. */
static void choose_link(const lowering *l, ckpt_graph *graph)
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

static ckpt_code make_graph(const lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    graph->source = network->model->source;
    graph->name = network->model->name;
    graph->buffer = l->buffer;
    graph->buffer_count = l->buffer_count;
    graph->op = l->op;
    graph->op_count = l->op_count;
    CKPT_TRY(lower_statics(l, graph, err));
    choose_link(l, graph);
    collected outputs = {.count = 0};
    if (network->loss_node >= 0) {
        collect(&outputs, l->value_buffer[network->node[network->loss_node].out_value[0]]);
    }
    CKPT_TRY(keep_list(l, &outputs, &graph->outputs, err));
    return ckpt_graph_check(graph, l->out, err);
}

ckpt_code ckpt_network_lower(const ckpt_network *network, const ckpt_profile *profile, const ckpt_device_model *device,
                             ckpt_arena *out, const ckpt_lowered **lowered, ckpt_err *err)
{
    lowering l = {
        .network = network, .profile = profile, .device = device != NULL ? device : &ckpt_device_models[0], .out = out};
    ckpt_lowered *const made = CKPT_NEW(out, ckpt_lowered, 1);
    ckpt_graph *const graph = CKPT_NEW(out, ckpt_graph, 1);
    if (made == NULL || graph == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of %d layers", network->node_count);
    }
    CKPT_TRY(take_tables(&l, err));
    CKPT_TRY(match_profile(&l, err));
    CKPT_TRY(lower_ops(&l, err));
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
    };
    *lowered = made;
    return CKPT_OK;
}
