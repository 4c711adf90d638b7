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
    const ckpt_shape *const x = &node->in[0].shape;
    if (x->rank > 0 || node->in[0].dtype != CKPT_FLOAT32) {
        node->by_element = true;
        return ckpt_node_elementwise(node, 2, 1, err);
    }
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, x, err)); /* a loss, which is float32 in a bfloat16 model too */
    node->forward_flop = 2;
    node->backward_flop = 1;
    return CKPT_OK;
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
