/* Binary cross entropy of logits, with probabilities as targets. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_node_pair_loss(node, 10, 10, err);
}

const ckpt_op ckpt_op_bce = {
    .name = "bce",
    .formula = "loss = mean(max(x, 0) - x target + log(1 + exp(-|x|)))",
    .source = "torch.nn.BCEWithLogitsLoss",
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0 | 1u << 1,
    .loss = true,
    .infer = infer,
    .gpu_workspace = ckpt_pair_loss_workspace,
};
