/* Linear: the last dim of x times a matrix. The weight lies as PyTorch's does, [features out, features in]. */
#include <math.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "features", .kind = CKPT_INT, .required = true, .help = "size of the last dim of the output"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add a bias"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    int64_t features = 0;
    CKPT_TRY(ckpt_node_int_between(node, "features", 1, INT32_MAX, &features, err));
    const bool bias = ckpt_node_bool(node, "bias");
    const ckpt_shape *const x = &node->in[0].shape;
    if (x->rank == 0 || x->rank == 4) {
        /* The last dim of a rank-4 tensor is not the fastest in memory. */
        char text[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s, wanted features in the last dim of a rank other than 0 and 4; "
                         "flatten it first",
                         ckpt_shape_show(x, text));
    }
    const int64_t in = x->dim[x->rank - 1];
    const int64_t rows = ckpt_node_in_count(node, 0) / in;
    ckpt_shape y = *x;
    y.dim[y.rank - 1] = features;
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    const int64_t padding = ckpt_node_pitch(node) - features; /* features that products compute and nobody has */
    const double scale = 1 / sqrt((double)in);
    const ckpt_shape weight = {.rank = 2, .dim = {features, in}};
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_UNIFORM, scale, true, err));
    node->param[0].padding = padding * in;
    if (bias) {
        const ckpt_shape vector = {.rank = 1, .dim = {features}};
        CKPT_TRY(ckpt_node_add_param(node, "bias", &vector, CKPT_INIT_UNIFORM, scale, false, err));
        node->param[1].padding = padding;
    }
    node->native16 = true;
    node->backward_in = 1u << 0;
    /* One matrix product forward; backward one for the weight's gradient and one for the input's. */
    const ckpt_flop product = ckpt_times(ckpt_times(ckpt_times(rows, in), features), 2);
    const ckpt_flop sums = bias ? ckpt_times(rows, features) : 0;
    node->forward_flop = ckpt_plus(product, sums);
    node->backward_flop = ckpt_plus(ckpt_times(product, (node->grad_in & 1) != 0 ? 2 : 1), sums);
    node->forward_workspace_bytes = ckpt_product_workspace(node, rows, in, features, false);
    node->backward_workspace_bytes = ckpt_product_workspace(node, rows, in, features, true);
    return CKPT_OK;
}

/* Products and the sums of the bias gradient run one after the other. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t in = node->param[0].tensor.shape.dim[1], rows = ckpt_node_in_count(node, 0) / in;
    const int64_t out = ckpt_tensor_room(&node->out[0]) / rows;
    const ckpt_bytes product = ckpt_gpu_product_workspace(rows, in, out);
    const ckpt_bytes sums = node->param_count > 1 ? ckpt_gpu_column_sums_workspace(rows, out) : 0;
    *forward = product;
    *backward = product > sums ? product : sums;
}

const ckpt_op ckpt_op_linear = {
    .name = "linear",
    .formula = "y = x W^T + b",
    .source = "torch.nn.Linear",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .param16 = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
