/* Hyperbolic tangent. Backward needs only the output. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_elementwise(node, 10, 3, err));
    node->by_element = true;
    node->backward_out = 1u << 0;
    return CKPT_OK;
}

const ckpt_op ckpt_op_tanh = {
    .name = "tanh",
    .formula = "y = tanh(x); dx = dy (1 - y^2)",
    .source = "torch.nn.Tanh",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
