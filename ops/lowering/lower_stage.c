/* Values that travel from stage to stage, and their gradients on the way back.
 *
 *     stage 0            stage 1              stage 3
 *     h ──send──▶ receive─┬─send──▶ receive          h is read in 1 and 3, so it goes by 1
 *     grad ◀── send ◀─────┴ ...  ◀── send             and its gradient comes back by 1, which adds its own
 *
 * Between two stages messages have one order at both ends, whatever the network: values in increasing number, which is
 * the order in which they are made and relayed; gradients in decreasing number, each as soon as it is complete and all
 * before it are gone. So one micro-batch's are received in that order too, in one go before its forward or backward.
 *
 * Waiting until a message has gone (MPI may want the receiver's memory for that) must not close a circle. So think of
 * 1F1B on a clock: stage s of S has the forward of micro-batch j at s + 2j and its backward at 2j + 2S - 1 - s. That
 * keeps each stage's order, and what is sent at one time is received later. Each forward and each backward begins with
 * its receipts, and then waits for those of the earlier messages that are received by then, by that clock. So every op
 * waits only for what is earlier, or is a receipt at the same time, which waits for nothing of that time: there is no
 * circle. (Behind the next receipt from the same stage would be too early: with skips it may come before.)
 * tests/ops/lowering/test_ops_scheme_stages.c runs all stages against each other. */
#include <assert.h>

#include "ops/device_model.h"
#include "ops/lowering/lower_impl.h"
#include "ops/ops_impl.h"

/* Where a value goes, by its readers. */
typedef struct way {
    int from, to; /* last stage before, first behind this one that has it; -1: none */
    bool here;
    int last_giver; /* last stage that contributes to its gradient; -1: none */
    int givers;     /* of this stage */
} way;

static void pass_stage(way *at, int stage, int mine)
{
    at->here = at->here || stage == mine;
    if (stage < mine) {
        at->from = stage; /* nodes come in the order of stages */
    } else if (stage > mine && at->to < 0) {
        at->to = stage;
    }
}

static void follow_values(const ckpt_lowering *l, way *ways)
{
    const ckpt_network *const network = l->network;
    const int mine = network->scheme.stage;
    for (int v = 0; v < network->value_count; v++) {
        ways[v] = (way){.from = -1, .to = -1, .last_giver = -1};
    }
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        const int stage = network->stage_of[n];
        for (int k = 0; k < node->in_count && !node->alias; k++) {
            way *const at = &ways[network->value[node->in_value[k]].storage];
            pass_stage(at, stage, mine);
            if (l->has_backward[n] && (node->grad_in >> k & 1) != 0) {
                at->last_giver = stage;
                at->givers += stage == mine;
            }
        }
        for (int k = 0; k < node->out_count; k++) {
            if (network->value[node->out_value[k]].storage == node->out_value[k]) {
                pass_stage(&ways[node->out_value[k]], stage, mine);
            }
        }
    }
}

/* Every stage has its own copy of the model's inputs. */
static bool travels(const ckpt_lowering *l, int value, const way *at)
{
    return l->network->value[value].node >= 0 && at->here && (at->from >= 0 || at->to >= 0);
}

ckpt_code ckpt_lower_routes(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    const int values = network->value_count;
    way *const ways = CKPT_NEW(l->out, way, values);
    l->route_of = CKPT_NEW(l->out, int, values);
    if (ways == NULL || l->route_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ways of %d values", values);
    }
    follow_values(l, ways);
    for (int v = 0; v < values; v++) {
        l->route_of[v] = travels(l, v, &ways[v]) ? l->route_count++ : -1;
    }
    l->route = CKPT_NEW(l->out, ckpt_route, l->route_count);
    const int at_once =
        network->scheme.stages < network->scheme.micro_batches ? network->scheme.stages : network->scheme.micro_batches;
    l->pending_capacity = 2 * (size_t)l->route_count * (size_t)at_once; /* of a value or gradient, see the clock */
    l->pending = CKPT_NEW(l->out, ckpt_pending, l->pending_capacity);
    if (l->route == NULL || l->pending == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ways of %d values", l->route_count);
    }
    for (int v = 0; v < values; v++) {
        const way *const at = &ways[v];
        if (l->route_of[v] >= 0) {
            l->route[l->route_of[v]] = (ckpt_route){
                .value = v,
                .from = at->from,
                .to = at->to,
                .back_in = at->to >= 0 && at->last_giver >= at->to,
                .back_out = at->from >= 0 && at->last_giver >= network->scheme.stage,
                .givers = at->givers,
            };
        }
    }
    return CKPT_OK;
}

/* "<layer>/send" and the like, for the micro-batch that is lowered. */
static ckpt_code message_op(ckpt_lowering *l, const ckpt_route *route, bool gradient, ckpt_task task, const char *what,
                            ckpt_graph_op **op, ckpt_op_role **role, ckpt_err *err)
{
    const int producer = l->network->value[route->value].node;
    const char *const label = ckpt_lower_label(l, l->network->node[producer].name);
    const char *const value = ckpt_lower_value_name(l, route->value);
    const char *const prefix = !gradient || value == NULL ? value : ckpt_arena_format(l->out, "%s/grad", value);
    CKPT_TRY(ckpt_lower_op(l, label, prefix, what, gradient ? CKPT_BACKWARD : CKPT_FORWARD, op, role, err));
    (*role)->task = task;
    (*role)->node = producer;
    (*role)->batch = l->batch;
    (*role)->value = route->value;
    (*role)->gradient = gradient;
    (*role)->peer = gradient == (task == CKPT_TASK_RECEIVE) ? route->to : route->from;
    (*op)->stage = l->network->scheme.stage + 1;
    /* The copy is read until the message has gone. */
    (*op)->offload = task == CKPT_TASK_SEND ? CKPT_NO : CKPT_UNSET;
    return CKPT_OK;
}

/* The clock: when a stage has the forward or the backward of a micro-batch. */
static int64_t time_of(const ckpt_lowering *l, int stage, int batch, bool backward)
{
    return backward ? 2 * ((int64_t)batch + l->network->scheme.stages) - 1 - stage : stage + 2 * (int64_t)batch;
}

static ckpt_code lower_sent(ckpt_lowering *l, const ckpt_pending *which, ckpt_err *err)
{
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    const int batch = l->batch;
    l->batch = which->batch;
    CKPT_TRY(message_op(l, &l->route[which->route], which->gradient, CKPT_TASK_SENT, "sent", &op, &role, err));
    l->batch = batch;
    return ckpt_lower_list(l, &which->buffer, 1, &op->reads, err);
}

/* Wait for the messages that are received by then, in the order in which they were sent. */
static ckpt_code lower_sents(ckpt_lowering *l, int64_t now, ckpt_err *err)
{
    size_t left = 0;
    for (size_t i = 0; i < l->pending_count; i++) {
        if (l->pending[i].due <= now) {
            CKPT_TRY(lower_sent(l, &l->pending[i], err));
        } else {
            l->pending[left++] = l->pending[i];
        }
    }
    l->pending_count = left;
    return CKPT_OK;
}

static ckpt_bytes route_bytes(const ckpt_lowering *l, const ckpt_route *route)
{
    return ckpt_tensor_bytes(&l->network->value[route->value].tensor);
}

static ckpt_code lower_send(ckpt_lowering *l, int index, bool gradient, ckpt_err *err)
{
    const ckpt_route *const route = &l->route[index];
    const ckpt_bytes bytes = route_bytes(l, route);
    const int from = gradient ? *ckpt_lower_grad(l, route->value) : *ckpt_lower_value(l, route->value);
    ckpt_pending sent = {.route = index, .batch = l->batch, .gradient = gradient};
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(message_op(l, route, gradient, CKPT_TASK_SEND, "send", &op, &role, err));
    ckpt_buffer_role held = ckpt_lower_holds_nothing;
    held.holds = CKPT_HOLDS_MESSAGE;
    held.value = route->value;
    held.batch = l->batch;
    CKPT_TRY(ckpt_lower_buffer(l, ckpt_lower_value_name(l, route->value), gradient ? "grad/message" : "message", bytes,
                               gradient ? CKPT_GRADIENT : CKPT_ACTIVATION, held, &sent.buffer, err));
    CKPT_TRY(ckpt_lower_list(l, &from, 1, &op->reads, err));
    CKPT_TRY(ckpt_lower_list(l, &sent.buffer, 1, &op->writes, err));
    role->moved_bytes = ckpt_times(2, bytes);
    op->time_ns =
        ckpt_roofline_ns(l->device, NULL, CKPT_DIRECTION_FORWARD, l->network->model->dtype, 0, role->moved_bytes);
    sent.due = time_of(l, role->peer, l->batch, gradient);
    assert(l->pending_count < l->pending_capacity);
    l->pending[l->pending_count++] = sent;
    return CKPT_OK;
}

static ckpt_code lower_receive(ckpt_lowering *l, int index, bool gradient, ckpt_err *err)
{
    const ckpt_route *const route = &l->route[index];
    int *const buffer = gradient ? ckpt_lower_grad(l, route->value) : ckpt_lower_value(l, route->value);
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(message_op(l, route, gradient, CKPT_TASK_RECEIVE, "receive", &op, &role, err));
    ckpt_buffer_role held = ckpt_lower_holds_nothing;
    held.holds = gradient ? CKPT_HOLDS_GRADIENT : CKPT_HOLDS_VALUE;
    held.value = route->value;
    held.batch = l->batch;
    CKPT_TRY(ckpt_lower_buffer(l, ckpt_lower_value_name(l, route->value), gradient ? "grad" : NULL,
                               route_bytes(l, route), gradient ? CKPT_GRADIENT : CKPT_ACTIVATION, held, buffer, err));
    CKPT_TRY(ckpt_lower_list(l, buffer, 1, &op->writes, err));
    op->time_ns = ckpt_lower_network_ns(l, route_bytes(l, route));
    return CKPT_OK;
}

ckpt_code ckpt_lower_receive_values(ckpt_lowering *l, ckpt_err *err)
{
    for (int i = 0; i < l->route_count; i++) {
        if (l->route[i].from >= 0) {
            CKPT_TRY(lower_receive(l, i, false, err));
        }
        if (l->route[i].from >= 0 && l->route[i].to >= 0) {
            CKPT_TRY(lower_send(l, i, false, err));
        }
    }
    return lower_sents(l, time_of(l, l->network->scheme.stage, l->batch, false), err);
}

ckpt_code ckpt_lower_send_results(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    for (int k = 0; k < node->out_count; k++) {
        const int route = l->route_of[node->out_value[k]];
        if (route >= 0 && l->route[route].to >= 0) {
            CKPT_TRY(lower_send(l, route, false, err));
        }
    }
    return CKPT_OK;
}

/* Send the gradients that are complete, in their order. */
static ckpt_code send_back(ckpt_lowering *l, ckpt_err *err)
{
    for (; l->back >= 0; l->back--) {
        const ckpt_route *const route = &l->route[l->back];
        const bool complete = route->left == 0 && (!route->back_in || *ckpt_lower_grad(l, route->value) >= 0);
        if (route->back_out && !complete) {
            return CKPT_OK;
        }
        if (route->back_out) {
            CKPT_TRY(lower_send(l, l->back, true, err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_lower_receive_gradients(ckpt_lowering *l, ckpt_err *err)
{
    for (int i = 0; i < l->route_count; i++) {
        l->route[i].left = l->route[i].givers;
    }
    l->back = l->route_count - 1;
    for (int i = l->route_count - 1; i >= 0; i--) {
        if (l->route[i].back_in) {
            CKPT_TRY(lower_receive(l, i, true, err));
            CKPT_TRY(send_back(l, err));
        }
    }
    return lower_sents(l, time_of(l, l->network->scheme.stage, l->batch, true), err);
}

ckpt_code ckpt_lower_send_gradients(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    for (int k = 0; k < node->in_count; k++) {
        const int route = l->route_of[l->network->value[node->in_value[k]].storage];
        if (route >= 0 && (node->grad_in >> k & 1) != 0) {
            l->route[route].left--;
        }
    }
    return send_back(l, err);
}

ckpt_code ckpt_lower_sent_all(ckpt_lowering *l, ckpt_err *err)
{
    return lower_sents(l, INT64_MAX, err);
}
