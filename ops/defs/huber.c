/* Squared error near the target and absolute error far from it. */
#include <float.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "delta", .kind = CKPT_FLOAT, .real = 1, .help = "errors beyond this count as absolute ones"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const double delta = ckpt_node_float(node, "delta");
    if (!(delta > 0 && delta <= (double)FLT_MAX)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"delta\" is %g, wanted more than 0", delta);
    }
    return ckpt_node_pair_loss(node, 5, 4, err);
}

const ckpt_op ckpt_op_huber = {
    .name = "huber",
    .formula = "loss = mean(e^2 / 2 where |e| < delta, else delta (|e| - delta / 2)), e = x - target",
    .source = "Huber 1964, The Annals of Mathematical Statistics 35(1); torch.nn.HuberLoss",
    .attrs = attrs,
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0 | 1u << 1,
    .loss = true,
    .infer = infer,
    .gpu_workspace = ckpt_pair_loss_workspace,
};
