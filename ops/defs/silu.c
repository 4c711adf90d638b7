/* SiLU, also called swish. Backward reads the input: the output does not tell it apart, since two inputs below zero
 * give the same one. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_elementwise(node, 10, 15, err));
    node->by_element = true;
    node->backward_in = 1u << 0;
    return CKPT_OK;
}

const ckpt_op ckpt_op_silu = {
    .name = "silu",
    .formula = "y = x s, s = 1 / (1 + exp(-x)); dx = dy s (1 + x (1 - s))",
    .source = "Hendrycks & Gimpel 2016, arXiv:1606.08415; torch.nn.SiLU",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .backward_inplace = 1u << 0,
    .infer = infer,
};
