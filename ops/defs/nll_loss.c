/* nll_loss: mean negative log-likelihood of the right classes, after log_softmax. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape, *const t = &node->in[1].shape;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, CKPT_INT32, err));
    if (x->rank != 2 || t->rank != 1 || t->dim[0] != x->dim[0]) {
        char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "log-probabilities are %s and targets are %s, wanted [N, K] and [N]",
                         ckpt_shape_show(x, a), ckpt_shape_show(t, b));
    }
    const ckpt_shape scalar = {0};
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    node->backward_in = 2;
    node->forward_flop = x->dim[0];
    node->backward_flop = x->dim[0];
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)backward;
    *forward = ckpt_gpu_loss_workspace(node->in[0].shape.dim[0]);
}

const ckpt_op ckpt_op_nll_loss = {
    .name = "nll_loss",
    .formula = "y = -sum_n x[n, t[n]] / N",
    .source = "torch.nn.NLLLoss",
    .in_min = 2,
    .in_max = 2,
    .loss = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
