/* drop_path, or stochastic depth: drops whole examples of a branch. Nothing is kept for backward: the word of an example
 * is drawn a second time from its counter. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "p", .kind = CKPT_FLOAT, .real = 0.1, .help = "probability of dropping an example, below 1"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    double p = 0;
    CKPT_TRY(ckpt_node_float_between(node, "p", 0, 1, &p, err));
    if (node->in[0].shape.rank == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is a scalar, wanted examples along dim 0");
    }
    return ckpt_node_elementwise(node, 1, 1, err);
}

const ckpt_op ckpt_op_drop_path = {
    .name = "drop_path",
    .formula = "y[n] = x[n] / (1 - p) where u[n] > p, else 0; u from Philox4x32-10 at (seed, step, layer, n)",
    .source = "Huang et al. 2016, arXiv:1603.09382; torchvision.ops.stochastic_depth, mode row",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
