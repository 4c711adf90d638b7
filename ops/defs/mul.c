/* Product of two tensors that broadcast: equal shapes, a factor per channel, the gate of squeeze-and-excitation. */
#include "ops/broadcast.h"
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    node->backward_in = 1u << 0 | 1u << 1;
    return ckpt_node_broadcast(node, 1, 3, err);
}

const ckpt_op ckpt_op_mul = {
    .name = "mul",
    .formula = "y = x0 x1; dx0 = dy x1, dx1 = dy x0, summed where an input was stretched",
    .source = "ONNX Mul; NumPy's documentation, \"Broadcasting\"",
    .in_min = 2,
    .in_max = 2,
    .inplace = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = ckpt_broadcast_workspace,
};
