/* Quotient of two tensors that broadcast. */
#include "ops/broadcast.h"
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    node->backward_in = 1u << 0 | 1u << 1;
    return ckpt_node_broadcast(node, 1, 5, err);
}

const ckpt_op ckpt_op_div = {
    .name = "div",
    .formula = "y = x0 / x1; dx0 = dy / x1, dx1 = -dy x0 / x1^2, summed where an input was stretched",
    .source = "ONNX Div; NumPy's documentation, \"Broadcasting\"",
    .in_min = 2,
    .in_max = 2,
    .accumulates = true,
    .inplace = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = ckpt_broadcast_workspace,
};
