/* Kullback-Leibler divergence of log-probabilities from target probabilities, summed and divided by the batch, which is dim 0.
 * A target of 0 adds nothing to the loss, and its gradient is -x alone, where the formula has none. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    if (node->in[0].shape.rank == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is a scalar, wanted a batch of log-probabilities");
    }
    return ckpt_node_pair_loss(node, 8, 8, err);
}

const ckpt_op ckpt_op_kl = {
    .name = "kl",
    .formula = "loss = sum(target (log(target) - x)) / dim 0",
    .source = "torch.nn.KLDivLoss, reduction batchmean",
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0 | 1u << 1,
    .loss = true,
    .infer = infer,
    .gpu_workspace = ckpt_pair_loss_workspace,
};
