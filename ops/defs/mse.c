/* Mean squared error. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_node_pair_loss(node, 3, 2, err);
}

const ckpt_op ckpt_op_mse = {
    .name = "mse",
    .formula = "loss = mean((x - target)^2)",
    .source = "torch.nn.MSELoss",
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0 | 1u << 1,
    .loss = true,
    .infer = infer,
    .gpu_workspace = ckpt_pair_loss_workspace,
};
