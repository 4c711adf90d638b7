/* Group norm and instance norm, which has one channel a group and by default no parameters. Channels lie last in memory
 * for every rank: [N, C, H, W] as N, H, W, C. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec groupnorm_attrs[] = {
    {.name = "groups", .kind = CKPT_INT, .required = true, .help = "of the channels; divides them"},
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-5, .help = "added to the variance"},
    {.name = "affine", .kind = CKPT_BOOL, .integer = 1, .help = "scale and shift by learned numbers"},
    {0},
};

static const ckpt_attr_spec instancenorm_attrs[] = {
    {.name = "eps", .kind = CKPT_FLOAT, .real = 1e-5, .help = "added to the variance"},
    {.name = "affine", .kind = CKPT_BOOL, .integer = 0, .help = "scale and shift by learned numbers"},
    {0},
};

ckpt_group_sizes ckpt_group_sizes_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape;
    ckpt_group_sizes s = {.images = x->dim[0], .channels = x->dim[x->rank == 4 ? 1 : x->rank - 1]};
    s.rows = ckpt_shape_count(x) / (s.images * s.channels);
    s.groups = node->saved[0].shape.dim[1];
    /* At most 16 parts of an image, each of 64 rows or more. */
    s.part_rows = node->threads == CKPT_ON_GPU ? ckpt_gpu_part_rows(s.images, s.rows, s.channels)
                  : s.rows > 16 * 64           ? s.rows / 16 + (s.rows % 16 != 0)
                                               : 64;
    s.parts = s.rows / s.part_rows + (s.rows % s.part_rows != 0);
    return s;
}

/* Where the channels stand; groups 0: as many as there are channels. */
static ckpt_code infer_groups(ckpt_node *node, int64_t groups, ckpt_err *err)
{
    const ckpt_shape *const x = &node->in[0].shape;
    char text[CKPT_SHAPE_TEXT];
    double eps = 0;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_float_between(node, "eps", 0, 1, &eps, err));
    if (x->rank < 2 || x->rank > 5) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s, wanted [N, C], [N, L, C], [N, C, H, W] or [N, D, H, W, C]",
                         ckpt_shape_show(x, text));
    }
    const int64_t channels = x->dim[x->rank == 4 ? 1 : x->rank - 1];
    groups = groups == 0 ? channels : groups;
    if (channels % groups != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "groups is %lld, input 0 is %s: wanted a divisor of %lld",
                         (long long)groups, ckpt_shape_show(x, text), (long long)channels);
    }
    if (ckpt_shape_count(x) == x->dim[0] * groups) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is %s: one value per group has no variance",
                         ckpt_shape_show(x, text));
    }
    const ckpt_shape moments = {2, {x->dim[0], groups}}, vector = {1, {channels}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    CKPT_TRY(ckpt_node_add_saved(node, "mean", CKPT_FLOAT32, &moments, err));
    CKPT_TRY(ckpt_node_add_saved(node, "rstd", CKPT_FLOAT32, &moments, err));
    if (ckpt_node_bool(node, "affine")) {
        CKPT_TRY(ckpt_node_add_param(node, "weight", &vector, CKPT_INIT_ONE, 0, false, err));
        CKPT_TRY(ckpt_node_add_param(node, "bias", &vector, CKPT_INIT_ZERO, 0, false, err));
    }
    node->native16 = true;
    node->backward_in = 1;
    node->backward_saved = 3;
    node->forward_flop = ckpt_times(8, ckpt_shape_count(x));
    node->backward_flop = ckpt_times(11, ckpt_shape_count(x));
    if (node->threads != CKPT_ON_GPU) {
        /* Two sums of each part as doubles, and three factors of each image forward, four backward. */
        const ckpt_group_sizes s = ckpt_group_sizes_of(node);
        const int64_t vectors = ckpt_times(s.images, channels), sums = ckpt_times(16, s.parts);
        node->forward_workspace_bytes = ckpt_times(vectors, sums + 12);
        node->backward_workspace_bytes = ckpt_times(vectors, sums + 16);
    }
    return CKPT_OK;
}

static ckpt_code infer_groupnorm(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int64_t groups = 0;
    CKPT_TRY(ckpt_node_int_between(node, "groups", 1, INT32_MAX, &groups, err));
    return infer_groups(node, groups, err);
}

static ckpt_code infer_instancenorm(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_groups(node, 0, err);
}

/* Two sums per channel and part of an image; backward also their totals, and two factors per group
 * (kernels/cuda/groupnorm.cu). */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_group_sizes s = ckpt_group_sizes_of(node);
    const ckpt_bytes pair = ckpt_times(8, ckpt_times(s.images, s.channels));
    const ckpt_bytes factors = ckpt_times(8, ckpt_times(s.images, s.groups));
    *forward = ckpt_aligned(ckpt_times(pair, s.parts));
    *backward = ckpt_plus(*forward, ckpt_plus(ckpt_aligned(pair), ckpt_aligned(factors)));
}

const ckpt_op ckpt_op_groupnorm = {
    .name = "groupnorm",
    .formula = "y = w (x - mean) / sqrt(var + eps) + b, mean and biased variance of an image's group of channels",
    .source = "Wu, He 2018, arXiv:1803.08494; torch.nn.GroupNorm",
    .attrs = groupnorm_attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer_groupnorm,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_instancenorm = {
    .name = "instancenorm",
    .formula = "y = w (x - mean) / sqrt(var + eps) + b, mean and biased variance of an image's channel",
    .source = "Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022; torch.nn.InstanceNorm2d",
    .attrs = instancenorm_attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer_instancenorm,
    .gpu_workspace = gpu_workspace,
};
