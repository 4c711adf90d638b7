/* scale: a constant factor and a constant offset. Backward reads nothing. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "factor", .kind = CKPT_FLOAT, .real = 1, .help = "multiplies every element"},
    {.name = "offset", .kind = CKPT_FLOAT, .real = 0, .help = "added to every product"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_node_elementwise(node, 2, 1, err);
}

const ckpt_op ckpt_op_scale = {
    .name = "scale",
    .formula = "y = factor x + offset",
    .source = "ONNX Mul and Add with constants",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
