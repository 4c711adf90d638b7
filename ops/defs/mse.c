/* Mean squared error. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, node->dtype, err));
    if (!ckpt_shape_equal(&node->in[0].shape, &node->in[1].shape)) {
        char a[CKPT_SHAPE_TEXT];
        char b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s and the target %s, wanted equal shapes",
                         ckpt_shape_show(&node->in[0].shape, a), ckpt_shape_show(&node->in[1].shape, b));
    }
    const ckpt_shape scalar = {.rank = 0};
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    node->backward_in = 1u << 0 | 1u << 1;
    node->forward_flop = ckpt_times(3, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(2, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)backward;
    *forward = ckpt_gpu_loss_workspace(ckpt_plus(ckpt_node_in_count(node, 0), 15) / 16); /* a term is 16 elements */
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
    .gpu_workspace = gpu_workspace,
};
