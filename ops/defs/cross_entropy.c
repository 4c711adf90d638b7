/* Softmax cross entropy with class numbers as targets. Classes are dim 1 of rank 4 and the last dim otherwise: in
 * memory the fastest dim either way, so a kernel sees rows of K logits. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "ignore_index", .kind = CKPT_INT, .integer = -100, .help = "rows with this target do not count"},
    {.name = "label_smoothing",
     .kind = CKPT_FLOAT,
     .help = "this share of a row's target, 0 to 1, is spread over all classes"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, CKPT_INT32, err));
    int64_t ignored = 0;
    CKPT_TRY(ckpt_node_int_between(node, "ignore_index", INT32_MIN, INT32_MAX, &ignored, err));
    CKPT_TRY(ckpt_check_smoothing(node, err));
    const ckpt_shape *const x = &node->in[0].shape;
    char a[CKPT_SHAPE_TEXT];
    char b[CKPT_SHAPE_TEXT];
    if (x->rank < 2 || x->rank > 4) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s, wanted [N, K], [B, T, K] or [N, K, H, W]",
                         ckpt_shape_show(x, a));
    }
    const int class_dim = x->rank == 4 ? 1 : x->rank - 1;
    ckpt_shape target = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        if (d != class_dim) {
            target.dim[target.rank++] = x->dim[d];
        }
    }
    if (!ckpt_shape_equal(&target, &node->in[1].shape)) {
        char c[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s and the targets %s, wanted targets %s",
                         ckpt_shape_show(x, a), ckpt_shape_show(&node->in[1].shape, b), ckpt_shape_show(&target, c));
    }
    const ckpt_shape scalar = {.rank = 0};
    const ckpt_shape one = {.rank = 1, .dim = {1}};
    const ckpt_shape rows = {.rank = 1, .dim = {ckpt_shape_count(&target)}};
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    CKPT_TRY(ckpt_node_add_saved(node, "lse", CKPT_FLOAT32, &rows, err));
    CKPT_TRY(ckpt_node_add_saved(node, "count", CKPT_FLOAT32, &one, err));
    node->native16 = true;
    node->backward_in = 1u << 0 | 1u << 1;
    node->backward_saved = 1u << 0 | 1u << 1;
    node->forward_flop = ckpt_times(10, ckpt_node_in_count(node, 0));
    node->backward_flop = ckpt_times(10, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t classes = x->dim[x->rank == 4 ? 1 : x->rank - 1];
    (void)backward;
    *forward = ckpt_plus(ckpt_gpu_loss_workspace(ckpt_shape_count(x) / classes),
                         ckpt_gpu_smoothing_workspace(node, ckpt_shape_count(x) / classes));
}

const ckpt_op ckpt_op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = mean over counted rows of log(sum(exp(x))) - (1 - s) x[target] - s mean(x), s = label_smoothing",
    .source = "torch.nn.CrossEntropyLoss; smoothing: Szegedy et al. 2016, arXiv:1512.00567",
    .attrs = attrs,
    .in_min = 2,
    .in_max = 2,
    .backward_inplace = 1u << 0,
    .gpu_pitched_in = 1u << 0,
    .loss = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
