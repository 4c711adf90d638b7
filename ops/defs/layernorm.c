/* Layer norm and RMS norm over the last dim. Backward may also take xhat from the output: (y - b) / w. That rounds
 * otherwise, by |b / w| units of y, and weights of 0 cannot be undone. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec layernorm_attrs[] = {
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-5, .help = "added to the variance"},
    {0},
};

static const ckpt_attr_spec rmsnorm_attrs[] = {
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-6, .help = "added to the mean square"},
    {0},
};

static ckpt_code infer_norm(ckpt_node *node, bool centered, ckpt_err *err)
{
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
    if (centered) {
        CKPT_TRY(ckpt_node_add_saved(node, "mean", CKPT_FLOAT32, &rows, err));
    }
    CKPT_TRY(ckpt_node_add_saved(node, "rstd", CKPT_FLOAT32, &rows, err));
    const uint64_t rstd = UINT64_C(1) << (node->saved_count - 1);
    CKPT_TRY(ckpt_node_add_param(node, "weight", &vector, CKPT_INIT_ONE, 0, false, err));
    if (centered) {
        CKPT_TRY(ckpt_node_add_param(node, "bias", &vector, CKPT_INIT_ZERO, 0, false, err));
    }
    node->backward_in = 1u << 0;
    node->backward_saved = centered ? 1u << 0 | rstd : rstd;
    node->forward_flop = ckpt_times(centered ? 8 : 4, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(centered ? 14 : 10, ckpt_node_in_count(node, 0));
    node->native16 = true;
    /* Rows of float32 per thread: the gradient of each parameter, over a block of rows and over all blocks. What is read and
     * written, where it is bfloat16; and in the other way a row of xhat. */
    const bool narrow = node->dtype == CKPT_BFLOAT16;
    const ckpt_bytes row = ckpt_times(4 * (int64_t)node->threads, features);
    const int64_t held = 2 * (int64_t)node->param_count + (narrow ? 3 : 0);
    node->forward_workspace_bytes = narrow ? row : 0;
    node->backward_workspace_bytes = ckpt_times(held, row);
    ckpt_way *const way = ckpt_node_add_affine_way(node, rstd);
    if (node->threads != CKPT_ON_GPU) {
        way->workspace_bytes = ckpt_times(held + 1, row);
    }
    return CKPT_OK;
}

static ckpt_code infer_layernorm(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_norm(node, true, err);
}

static ckpt_code infer_rmsnorm(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_norm(node, false, err);
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    /* The gradient of each parameter over one group of rows, for each group. */
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t features = x->dim[x->rank - 1], rows = ckpt_node_in_count(node, 0) / features;
    const int64_t group = ckpt_gpu_group_rows(rows), groups = rows / group + (rows % group != 0);
    (void)forward;
    *backward = ckpt_aligned(ckpt_times(4 * node->param_count * groups, features));
}

const ckpt_op ckpt_op_layernorm = {
    .name = "layernorm",
    .formula = "y = (x - mean) rstd w + b, rstd = 1 / sqrt(var + eps), moments over the last dim, var biased",
    .source = "Ba, Kiros, Hinton 2016, arXiv:1607.06450",
    .attrs = layernorm_attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer_layernorm,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_rmsnorm = {
    .name = "rmsnorm",
    .formula = "y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps), mean over the last dim",
    .source = "Zhang, Sennrich 2019, arXiv:1910.07467",
    .attrs = rmsnorm_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_rmsnorm,
    .gpu_workspace = gpu_workspace,
};
