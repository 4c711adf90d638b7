/* Mean absolute error. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_node_pair_loss(node, 3, 2, err);
}

const ckpt_op ckpt_op_l1 = {
    .name = "l1",
    .formula = "loss = mean(|x - target|)",
    .source = "torch.nn.L1Loss",
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0 | 1u << 1,
    .loss = true,
    .infer = infer,
    .gpu_workspace = ckpt_pair_loss_workspace,
};
