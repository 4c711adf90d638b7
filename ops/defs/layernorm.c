/* Layer normalisation over the last dim. Backward may also take xhat from the output: (y - b) / w. That rounds
 * otherwise, by |b / w| units of y, and weights of 0 cannot be undone. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-5, .help = "added to the variance"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    double eps = 0;
    CKPT_TRY(ckpt_node_float_between(node, "eps", 0, 1, &eps, err));
    const ckpt_shape *const x = &node->in[0].shape;
    if (x->rank == 0 || x->rank == 4) {
        /* The last dim of a rank-4 tensor is not the fastest in memory. */
        char text[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s, wanted features in the last dim of a rank other than 0 and 4",
                         ckpt_shape_show(x, text));
    }
    const int64_t features = x->dim[x->rank - 1];
    const ckpt_shape vector = {.rank = 1, .dim = {features}};
    const ckpt_shape rows = {.rank = 1, .dim = {ckpt_node_in_count(node, 0) / features}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    CKPT_TRY(ckpt_node_add_saved(node, "mean", CKPT_FLOAT32, &rows, err));
    CKPT_TRY(ckpt_node_add_saved(node, "rstd", CKPT_FLOAT32, &rows, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &vector, CKPT_INIT_ONE, 0, false, err));
    CKPT_TRY(ckpt_node_add_param(node, "bias", &vector, CKPT_INIT_ZERO, 0, false, err));
    node->backward_in = 1u << 0;
    node->backward_saved = 1u << 0 | 1u << 1;
    node->forward_flop = ckpt_times(8, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(14, ckpt_node_in_count(node, 0));
    /* Four sums of a feature per thread: the gradients of weight and bias, over a block of rows and over all blocks. */
    node->backward_workspace_bytes = ckpt_times(16 * (int64_t)node->threads, features);
    ckpt_way *const way = ckpt_node_add_affine_way(node, 1u << 1);
    if (node->threads != CKPT_ON_GPU) { /* and a row of xhat */
        way->workspace_bytes = ckpt_times(20 * (int64_t)node->threads, features);
    }
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    /* The gradients of weight and bias over one group of rows, for each group. */
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t features = x->dim[x->rank - 1], rows = ckpt_node_in_count(node, 0) / features;
    const int64_t group = ckpt_gpu_group_rows(rows), groups = rows / group + (rows % group != 0);
    (void)forward;
    *backward = ckpt_round_up(ckpt_times(8 * groups, features), CKPT_ALIGN);
}

const ckpt_op ckpt_op_layernorm = {
    .name = "layernorm",
    .formula = "y = (x - mean) rstd w + b, rstd = 1 / sqrt(var + eps), moments over the last dim, var biased",
    .source = "Ba, Kiros, Hinton 2016, arXiv:1607.06450",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
