/* batchnorm: every channel to mean 0 and variance 1 over the batch, then scaled and shifted by learned numbers. The
 * running variance takes the unbiased variance, as PyTorch does; the normalisation takes the biased one.
 *
 * Frozen it is an affine map per channel: the running statistics are read and never written, nothing is saved, and
 * backward reads the input for the gradient of the weight alone. So a layer that learns nothing (torchvision's
 * FrozenBatchNorm2d, whose weight and bias are buffers: statistics here) keeps nothing for backward at all.
 *
 * Backward may also take xhat from the output: (y - b) / w, as In-Place ABN does (Rota Bulo et al. 2018, arXiv:1712.02616).
 * That rounds otherwise, by |b / w| units of y, and weights of 0 cannot be undone. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-5, .help = "added to the variance"},
    {.name = "momentum", .kind = CKPT_FLOAT, .real = 0.1, .help = "weight of this batch in the running statistics"},
    {.name = "frozen",
     .kind = CKPT_BOOL,
     .integer = 0,
     .help = "normalise with the running statistics and leave them, as a module in PyTorch's eval()"},
    {.name = "learned",
     .kind = CKPT_BOOL,
     .integer = 1,
     .help = "weight and bias learn; false, only when frozen: they are statistics (FrozenBatchNorm2d)"},
    {0},
};

/* Costs of the affine map: sums for the parameters (4) and a product per element; one vector per channel. */
static void infer_frozen(ckpt_node *node, bool learned)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t count = ckpt_shape_count(x), channels = x->dim[1];
    node->backward_in = learned;
    node->forward_flop = ckpt_times(count, 3);
    node->backward_flop = ckpt_times(count, learned ? 5 : 1);
    node->forward_workspace_bytes = ckpt_times(channels, 4);
    node->backward_workspace_bytes = ckpt_times(channels, learned ? ckpt_plus(ckpt_times(16, node->threads), 4) : 4);
}

static ckpt_code add_parameters(ckpt_node *node, bool learned, const ckpt_shape *channels, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_add_stat(node, "running_mean", channels, 0, err));
    CKPT_TRY(ckpt_node_add_stat(node, "running_var", channels, 1, err));
    if (!learned) {
        CKPT_TRY(ckpt_node_add_stat(node, "weight", channels, 1, err));
        return ckpt_node_add_stat(node, "bias", channels, 0, err);
    }
    CKPT_TRY(ckpt_node_add_param(node, "weight", channels, CKPT_INIT_ONE, 0, false, err));
    return ckpt_node_add_param(node, "bias", channels, CKPT_INIT_ZERO, 0, false, err);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    const double eps = ckpt_node_float(node, "eps"), momentum = ckpt_node_float(node, "momentum");
    const bool frozen = ckpt_node_bool(node, "frozen"), learned = ckpt_node_bool(node, "learned");
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    char shape[CKPT_SHAPE_TEXT];
    if (x->rank != 4 && x->rank != 2) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is %s, wanted [N, C, H, W] or [N, C]",
                         ckpt_shape_show(x, shape));
    }
    const ckpt_shape channels = {1, {x->dim[1]}};
    const int64_t count = ckpt_shape_count(x), rows = count / x->dim[1];
    if (rows < 2 && !frozen) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is %s: one value per channel has no variance",
                         ckpt_shape_show(x, shape));
    }
    if (!(eps > 0) || !(momentum >= 0 && momentum <= 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "eps is %g, wanted more than 0; momentum is %g, wanted 0 to 1", eps,
                         momentum);
    }
    if (!learned && !frozen) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "learned is false and frozen is false, wanted frozen true with it");
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    node->native16 = true;
    if (frozen) {
        infer_frozen(node, learned);
        if (learned) {
            ckpt_node_add_affine_way(node, 0);
        }
        return add_parameters(node, learned, &channels, err);
    }
    CKPT_TRY(ckpt_node_add_saved(node, "mean", CKPT_FLOAT32, &channels, err));
    CKPT_TRY(ckpt_node_add_saved(node, "rstd", CKPT_FLOAT32, &channels, err));
    CKPT_TRY(add_parameters(node, true, &channels, err));
    node->backward_in = 1;
    node->backward_saved = 3;
    ckpt_node_add_affine_way(node, 1u << 1);

    /* Forward: sum, squared difference (3), normalise, scale, shift (4). Backward: two reductions (5), the input
     * gradient (6). */
    node->forward_flop = ckpt_times(count, 8);
    node->backward_flop = ckpt_times(count, 11);
    /* Two partial sums per channel and thread in double, and four channel vectors for the combined ones. */
    const ckpt_bytes per_channel = 16 * ((int64_t)node->threads + 2);
    const ckpt_bytes sums = ckpt_plus(ckpt_times(x->dim[1], per_channel), 4096);
    node->forward_workspace_bytes = sums;
    node->backward_workspace_bytes = sums;
    return CKPT_OK;
}

/* Two sums per channel and part of the rows; backward also two factors per channel (kernels/cuda/batchnorm.cu). Frozen:
 * one number per channel, and for the gradients of learned parameters the sums. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t channels = node->in[0].shape.dim[1], rows = ckpt_node_in_count(node, 0) / channels;
    const int64_t part_rows = ckpt_gpu_part_rows(1, rows, channels);
    const int64_t parts = rows / part_rows + (rows % part_rows != 0);
    const ckpt_bytes pair = ckpt_times(8, channels), sums = ckpt_aligned(ckpt_times(pair, parts));
    const ckpt_bytes with_factors = ckpt_plus(sums, ckpt_aligned(pair));
    if (ckpt_node_bool(node, "frozen")) {
        *forward = ckpt_aligned(pair / 2);
        *backward = ckpt_plus(*forward, ckpt_node_bool(node, "learned") ? with_factors : 0);
        return;
    }
    *forward = sums;
    *backward = with_factors;
}

const ckpt_op ckpt_op_batchnorm = {
    .name = "batchnorm",
    .formula = "y = w (x - mean) / sqrt(var + eps) + b, mean and biased variance per channel over the batch",
    .source = "Ioffe & Szegedy 2015, arXiv:1502.03167; torch.nn.BatchNorm2d",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
