/* Recurrent layers over whole sequences: lstm and gru. One product makes what the inputs contribute to the gates at all
 * times; then the recurrence makes one product and one pass over the gates a time step. */
#include <math.h>

#include "ops/ops_impl.h"

const ckpt_attr_spec ckpt_recurrent_attrs[] = {
    {.name = "hidden", .kind = CKPT_INT, .required = true, .help = "width of the state"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add two biases to the gates"},
    {.name = "reverse", .kind = CKPT_BOOL, .help = "start at the last position and end at the first"},
    {0},
};

static ckpt_code check_inputs(const ckpt_node *node, int states, int64_t H, ckpt_err *err)
{
    const ckpt_shape *const x = &node->in[0].shape;
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    if (x->rank != 3 || H < 1 || (node->in_count != 1 && node->in_count != 1 + states)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%d input%s, input 0 is %s, hidden is %lld; wanted x [B, T, C] alone or with %s [B, H]",
                         node->in_count, node->in_count == 1 ? "" : "s", ckpt_shape_show(x, a), (long long)H,
                         states == 2 ? "h0 and c0" : "h0");
    }
    const ckpt_shape state = {2, {x->dim[0], H}};
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
        if (k > 0 && !ckpt_shape_equal(&node->in[k].shape, &state)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %d is %s, wanted %s", k,
                             ckpt_shape_show(&node->in[k].shape, a), ckpt_shape_show(&state, b));
        }
    }
    return CKPT_OK;
}

static ckpt_code add_params(ckpt_node *node, int64_t G, int64_t C, int64_t H, ckpt_err *err)
{
    const ckpt_shape weight_ih = {2, {G, C}}, weight_hh = {2, {G, H}}, bias = {1, {G}};
    const double bound = 1.0 / sqrt((double)H);
    CKPT_TRY(ckpt_node_add_param(node, "weight_ih", &weight_ih, CKPT_INIT_UNIFORM, bound, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight_hh", &weight_hh, CKPT_INIT_UNIFORM, bound, true, err));
    if (ckpt_node_bool(node, "bias")) {
        CKPT_TRY(ckpt_node_add_param(node, "bias_ih", &bias, CKPT_INIT_UNIFORM, bound, false, err));
        CKPT_TRY(ckpt_node_add_param(node, "bias_hh", &bias, CKPT_INIT_UNIFORM, bound, false, err));
    }
    return CKPT_OK;
}

static ckpt_bytes most(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* Two products forward, the same twice backward; about 20 FLOP a state element around them. The allowances are those of
 * kernels/cpu/recurrent.c: what it holds, then what its largest product takes. */
static void cost(ckpt_node *node, int64_t B, int64_t T, int64_t C, int64_t H, int64_t G)
{
    const int64_t rows = ckpt_times(B, T), around = ckpt_times(ckpt_times(rows, H), 20);
    const int64_t multiplies = ckpt_times(ckpt_times(rows, G), ckpt_plus(C, H));
    node->forward_flop = ckpt_plus(ckpt_times(multiplies, 2), around);
    node->backward_flop = ckpt_plus(ckpt_times(multiplies, 4), around);
    const ckpt_bytes inputs = ckpt_product_workspace(node, rows, C, G, true);
    const ckpt_bytes states = ckpt_product_workspace(node, rows, H, G, true);
    const ckpt_bytes step = ckpt_product_workspace(node, B, H, G, true), product = most(most(inputs, states), step);
    const int64_t held = ckpt_times(ckpt_times(B, H), 4), gates = ckpt_times(ckpt_times(B, G), 4);
    const int64_t all = ckpt_plus(ckpt_times(ckpt_times(rows, G), 8), ckpt_times(ckpt_times(rows, H), 4));
    node->forward_workspace_bytes = ckpt_plus(ckpt_plus(ckpt_plus(held, gates), 2 * CKPT_ALIGN), product);
    node->backward_workspace_bytes =
        ckpt_plus(ckpt_plus(ckpt_plus(all, gates), ckpt_times(held, 3)), ckpt_plus(7 * CKPT_ALIGN, product));
}

ckpt_code ckpt_recurrent_infer(ckpt_node *node, int gates, int states, ckpt_err *err)
{
    const int64_t H = ckpt_node_int(node, "hidden");
    CKPT_TRY(check_inputs(node, states, H, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t B = x->dim[0], T = x->dim[1], C = x->dim[2], G = ckpt_times(gates, H);
    const ckpt_shape y = {3, {B, T, H}}, state = {2, {B, H}}, all_gates = {3, {B, T, G}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    for (int k = 0; k < states; k++) {
        CKPT_TRY(ckpt_node_add_output(node, node->dtype, &state, err));
    }
    CKPT_TRY(ckpt_node_add_saved(node, "gates", node->dtype, &all_gates, err));
    CKPT_TRY(ckpt_node_add_saved(node, states == 2 ? "cells" : "inner", node->dtype, &y, err));
    CKPT_TRY(add_params(node, G, C, H, err));
    node->backward_in = node->in_count == 1 ? 1 : states == 2 ? 7 : 3;
    node->backward_out = 1;
    node->backward_saved = 3;
    cost(node, B, T, C, H, G);
    return CKPT_OK;
}

/* As kernels/cuda/recurrent.cuh lays them out: forward what the state contributes to the gates and the state itself;
 * backward the gradients of the gates at all times (of the inputs' and the state's part where they differ) and at one,
 * the states before, the gradients that are carried. */
void ckpt_recurrent_gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t B = x->dim[0], T = x->dim[1], C = x->dim[2], G = node->param[1].tensor.shape.dim[0];
    const int64_t H = node->param[1].tensor.shape.dim[1], rows = ckpt_times(B, T), size = ckpt_dtype_bytes(node->dtype);
    const ckpt_bytes step = ckpt_gpu_product_workspace(B, H, G);
    const ckpt_bytes inputs = ckpt_gpu_product_workspace(rows, C, G), states = ckpt_gpu_product_workspace(rows, H, G);
    const ckpt_bytes sums = node->param_count > 2 ? ckpt_gpu_column_sums_workspace(rows, G) : 0;
    const ckpt_bytes gate_bytes = ckpt_aligned(ckpt_times(ckpt_times(B, G), size));
    const ckpt_bytes wide_gates = ckpt_aligned(ckpt_times(ckpt_times(B, G), 4));
    const ckpt_bytes state_bytes = ckpt_aligned(ckpt_times(ckpt_times(B, H), size));
    const ckpt_bytes wide_state = ckpt_aligned(ckpt_times(ckpt_times(B, H), 4));
    const ckpt_bytes all_gates = ckpt_aligned(ckpt_times(ckpt_times(rows, G), size));
    const ckpt_bytes all_states = ckpt_aligned(ckpt_times(ckpt_times(rows, H), size));
    const ckpt_bytes product = most(most(inputs, states), most(step, sums));
    *forward = ckpt_plus(ckpt_plus(wide_gates, state_bytes), most(inputs, step));
    *backward = ckpt_plus(ckpt_times(all_gates, node->out_count == 3 ? 1 : 2), all_states);
    *backward = ckpt_plus(ckpt_plus(*backward, gate_bytes), ckpt_plus(ckpt_times(wide_state, 2), product));
}
