/* The sum of losses, so that a network can have several. A loss that another layer reads has the gradient that comes from
 * there. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, CKPT_FLOAT32, err)); /* losses are, in a bfloat16 model too */
        if (node->in[k].shape.rank != 0) {
            char a[CKPT_SHAPE_TEXT];
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "input %d has shape %s, wanted a loss, which is a scalar", k,
                             ckpt_shape_show(&node->in[k].shape, a));
        }
    }
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &node->in[0].shape, err));
    node->forward_flop = node->in_count;
    return CKPT_OK;
}

const ckpt_op ckpt_op_total = {
    .name = "total",
    .formula = "loss = x0 + x1 + ...",
    .source = "the sum of a program's losses",
    .in_min = 1,
    .in_max = CKPT_IN_MAX,
    .accumulates = true,
    .loss = true,
    .infer = infer,
};
