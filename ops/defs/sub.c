/* Difference of two tensors that broadcast. */
#include "ops/broadcast.h"
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_node_broadcast(node, 1, 2, err);
}

const ckpt_op ckpt_op_sub = {
    .name = "sub",
    .formula = "y = x0 - x1; dx0 = dy, dx1 = -dy, summed where an input was stretched",
    .source = "ONNX Sub; NumPy's documentation, \"Broadcasting\"",
    .in_min = 2,
    .in_max = 2,
    .accumulates = true,
    .inplace = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = ckpt_broadcast_workspace,
};
