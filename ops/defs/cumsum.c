/* cumsum: sums of all elements up to each, along a dim as written in the model file. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .required = true, .help = "dimension to sum along; negative from the end"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int axis = 0;
    CKPT_TRY(ckpt_node_axis(node, "axis", node->in[0].shape.rank, &axis, err));
    return ckpt_node_elementwise(node, 1, 1, err);
}

const ckpt_op ckpt_op_cumsum = {
    .name = "cumsum",
    .formula = "y[..., i, ...] = sum_{k <= i} x[..., k, ...] along axis",
    .source = "torch.cumsum; ONNX CumSum",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer,
};
