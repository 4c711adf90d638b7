/* concat: tensors one after another along a dimension. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .integer = 1, .help = "dimension that grows; negative from the end"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int axis;
    CKPT_TRY(ckpt_node_axis(node, "axis", node->in[0].shape.rank, &axis, err));
    ckpt_shape y = node->in[0].shape;
    y.dim[axis] = 0;
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
        ckpt_shape rest = node->in[k].shape;
        if (rest.rank == y.rank) {
            y.dim[axis] = ckpt_plus(y.dim[axis], rest.dim[axis]);
            rest.dim[axis] = y.dim[axis];
        }
        if (!ckpt_shape_equal(&rest, &y)) {
            char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is %s and input %d is %s: they may differ only in dim %d",
                             ckpt_shape_show(&node->in[0].shape, a), k, ckpt_shape_show(&node->in[k].shape, b), axis);
        }
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->native16 = true;
    return CKPT_OK;
}

const ckpt_op ckpt_op_concat = {
    .name = "concat",
    .formula = "y = [x0 x1 ...] along axis",
    .source = "ONNX Concat; torch.cat",
    .attrs = attrs,
    .in_min = 1,
    .in_max = CKPT_IN_MAX,
    .accumulates = true,
    .infer = infer,
};
