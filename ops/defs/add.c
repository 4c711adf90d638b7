/* Sum of two or more tensors of one shape, or of two that broadcast. */
#include "ops/broadcast.h"
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    if (node->in_count == 2) {
        CKPT_TRY(ckpt_node_broadcast(node, 1, 0, err));
        node->native16 = node->by_element;
        return CKPT_OK;
    }
    const ckpt_shape *const first = &node->in[0].shape;
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
        if (!ckpt_shape_equal(first, &node->in[k].shape)) {
            char a[CKPT_SHAPE_TEXT];
            char b[CKPT_SHAPE_TEXT];
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "input 0 has shape %s and input %d %s, wanted equal shapes of more than two",
                             ckpt_shape_show(first, a), k, ckpt_shape_show(&node->in[k].shape, b));
        }
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, first, err));
    node->native16 = true;
    node->forward_flop = ckpt_times(node->in_count - 1, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

const ckpt_op ckpt_op_add = {
    .name = "add",
    .formula = "y = x0 + x1 + ...; two inputs broadcast",
    .source = "ONNX Sum; NumPy's documentation, \"Broadcasting\"",
    .in_min = 2,
    .in_max = CKPT_IN_MAX,
    .accumulates = true,
    .passes_gradient = true,
    .inplace = UINT64_MAX,
    .infer = infer,
    .gpu_workspace = ckpt_broadcast_workspace,
};
