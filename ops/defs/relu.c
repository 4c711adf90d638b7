/* ReLU and ReLU6. Backward looks at the output, so that an in-place run loses nothing; or at the input, where that is
 * kept anyway; or at a mask of one bit an element. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_elementwise(node, 1, 1, err));
    node->native16 = true;
    node->backward_out = 1u << 0;
    node->backward_way = "output";
    ckpt_node_add_way(node, "input", true)->in = 1u << 0;
    return ckpt_node_add_mask(node, err);
}

const ckpt_op ckpt_op_relu = {
    .name = "relu",
    .formula = "y = max(x, 0); dx = dy where y > 0",
    .source = "Nair & Hinton, ICML 2010",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};

const ckpt_op ckpt_op_relu6 = {
    .name = "relu6",
    .formula = "y = min(max(x, 0), 6); dx = dy where 0 < y < 6",
    .source = "Howard et al. 2017, arXiv:1704.04861",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
