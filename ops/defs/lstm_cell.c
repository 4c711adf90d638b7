/* lstm_cell: one time step of a long short-term memory. With one input the state before it is zero. It keeps the
 * four gates after their nonlinearities and tanh of the new cell state; backward recomputes nothing. */
#include <math.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "features", .kind = CKPT_INT, .required = true, .help = "width of the hidden and the cell state"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t H = ckpt_node_int(node, "features");
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    if (x->rank != 2 || H < 1 || node->in_count == 2) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%d input%s, input 0 is %s, features is %lld; wanted x [N, I] alone or with h and c [N, H]",
                         node->in_count, node->in_count == 1 ? "" : "s", ckpt_shape_show(x, a), (long long)H);
    }
    const int64_t N = x->dim[0], I = x->dim[1];
    const ckpt_shape state = {2, {N, H}};
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
        if (k > 0 && !ckpt_shape_equal(&node->in[k].shape, &state)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %d is %s, wanted %s", k,
                             ckpt_shape_show(&node->in[k].shape, a), ckpt_shape_show(&state, b));
        }
    }
    const int64_t gate_width = ckpt_times(H, 4);
    const ckpt_shape gates = {2, {N, gate_width}}, weight_ih = {2, {gate_width, I}}, weight_hh = {2, {gate_width, H}};
    const ckpt_shape bias = {1, {gate_width}};
    const double bound = 1.0 / sqrt((double)H);
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &state, err));
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &state, err));
    CKPT_TRY(ckpt_node_add_saved(node, "gates", node->dtype, &gates, err));
    CKPT_TRY(ckpt_node_add_saved(node, "tanh_c", node->dtype, &state, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight_ih", &weight_ih, CKPT_INIT_UNIFORM, bound, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight_hh", &weight_hh, CKPT_INIT_UNIFORM, bound, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "bias_ih", &bias, CKPT_INIT_UNIFORM, bound, false, err));
    CKPT_TRY(ckpt_node_add_param(node, "bias_hh", &bias, CKPT_INIT_UNIFORM, bound, false, err));
    node->backward_in = node->in_count == 1 ? 1 : 7;
    node->backward_saved = 3;
    node->native16 = true;

    /* Two products forward, the same twice backward; about 20 flop per state element around them. */
    const int64_t width = ckpt_plus(I, node->in_count == 1 ? 0 : H), around = ckpt_times(ckpt_times(N, H), 20);
    const int64_t multiplies = ckpt_times(ckpt_times(N, gate_width), width);
    node->forward_flop = ckpt_plus(ckpt_times(multiplies, 2), around);
    node->backward_flop = ckpt_plus(ckpt_times(multiplies, 4), around);
    /* The products one after another, and in backward the gradient of the gates before their nonlinearities. In bfloat16
     * float32 copies: of the gates and four states; in backward of one more state, and a copy of the gradient. */
    const ckpt_bytes gate_bytes = ckpt_times(ckpt_times(N, gate_width), 4);
    const ckpt_bytes copies = node->dtype == CKPT_BFLOAT16 ? ckpt_plus(ckpt_times(2, gate_bytes), 8 * CKPT_ALIGN) : 0;
    const ckpt_bytes more = node->dtype == CKPT_BFLOAT16 ? gate_bytes : 0;
    const ckpt_bytes input_bytes = ckpt_product_workspace(node, N, I, gate_width, true);
    const ckpt_bytes state_bytes = ckpt_product_workspace(node, N, H, gate_width, true);
    const ckpt_bytes product_bytes = input_bytes > state_bytes ? input_bytes : state_bytes;
    node->forward_workspace_bytes = ckpt_plus(copies, product_bytes);
    node->backward_workspace_bytes =
        ckpt_plus(ckpt_plus(ckpt_plus(gate_bytes, CKPT_ALIGN), ckpt_plus(copies, more)), product_bytes);
    return CKPT_OK;
}

/* The products one after another. Before them lie, in a bfloat16 model, the gates before their nonlinearities in
 * float32 (a float32 model has them where the gates after them go); in backward the gradient of those. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t N = node->in[0].shape.dim[0], I = node->in[0].shape.dim[1], G = node->saved[0].shape.dim[1];
    const ckpt_bytes input_bytes = ckpt_gpu_product_workspace(N, I, G);
    const ckpt_bytes state_bytes = node->in_count == 1 ? 0 : ckpt_gpu_product_workspace(N, G / 4, G);
    const ckpt_bytes product_bytes = input_bytes > state_bytes ? input_bytes : state_bytes;
    const ckpt_bytes sum_bytes = ckpt_gpu_column_sums_workspace(N, G);
    const ckpt_bytes gradient_bytes = ckpt_aligned(ckpt_tensor_bytes(&node->saved[0]));
    const ckpt_bytes gate_bytes = node->dtype == CKPT_BFLOAT16 ? ckpt_times(2, gradient_bytes) : 0;
    *forward = ckpt_plus(gate_bytes, product_bytes);
    *backward = ckpt_plus(gradient_bytes, product_bytes > sum_bytes ? product_bytes : sum_bytes);
}

const ckpt_op ckpt_op_lstm_cell = {
    .name = "lstm_cell",
    .formula = "i,f,o = sigmoid, g = tanh of (x W_ih^T + b_ih + h W_hh^T + b_hh), in the order i,f,g,o; "
               "c' = f c + i g; h' = o tanh(c')",
    .source = "Hochreiter & Schmidhuber, Neural Computation 9(8), 1997; torch.nn.LSTMCell",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 3,
    .param16 = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
