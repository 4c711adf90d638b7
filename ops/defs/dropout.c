/* Dropout. Nothing is kept for backward: the mask is drawn a second time from its counter. Or it is kept as one bit an
 * element. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "p", .kind = CKPT_FLOAT, .real = 0.5, .help = "probability of dropping an element, below 1"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    double p = 0;
    CKPT_TRY(ckpt_node_float_between(node, "p", 0, 1, &p, err));
    /* Ten rounds of Philox for four elements, forward and backward. */
    CKPT_TRY(ckpt_node_elementwise(node, 20, 20, err));
    node->by_element = true;
    node->backward_way = "redrawn";
    CKPT_TRY(ckpt_node_add_mask(node, err));
    node->way[node->way_count - 1].flop = ckpt_times(2, ckpt_node_in_count(node, 0)); /* no word is drawn */
    return CKPT_OK;
}

const ckpt_op ckpt_op_dropout = {
    .name = "dropout",
    .formula = "y = x / (1 - p) where u > p, else 0; u from Philox4x32-10 at (seed, step, layer, element)",
    .source = "Srivastava et al., JMLR 15, 2014",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
