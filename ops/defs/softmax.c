/* softmax and log_softmax along one axis. Backward reads the output, not the input. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .integer = -1, .help = "dimension that sums to 1; negative from the end"},
    {0},
};

int64_t ckpt_softmax_room(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t given = ckpt_node_int(node, "axis"), axis = given < 0 ? given + x->rank : given;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, stride);
    return ckpt_times(x->dim[axis], stride[axis] < CKPT_SOFTMAX_STRIP ? stride[axis] : CKPT_SOFTMAX_STRIP);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int axis;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_axis(node, "axis", node->in[0].shape.rank, &axis, err));
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &node->in[0].shape, err));
    node->backward_out = 1;
    node->native16 = true;
    if (node->dtype == CKPT_BFLOAT16) { /* each thread widens a strip of what it reads, and of what it writes */
        node->forward_workspace_bytes = ckpt_times(8 * (int64_t)node->threads, ckpt_softmax_room(node));
        node->backward_workspace_bytes = node->forward_workspace_bytes;
    }
    /* Forward: maximum, difference, exponential, sum, quotient or logarithm. Backward: product, sum, difference,
     * product. */
    const int64_t count = ckpt_shape_count(&node->in[0].shape);
    node->forward_flop = ckpt_times(count, 5);
    node->backward_flop = ckpt_times(count, 4);
    return CKPT_OK;
}

const ckpt_op ckpt_op_softmax = {
    .name = "softmax",
    .formula = "y = exp(x - max x) / sum exp(x - max x)",
    .source = "torch.nn.Softmax",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer,
};

const ckpt_op ckpt_op_log_softmax = {
    .name = "log_softmax",
    .formula = "y = x - max x - log sum exp(x - max x)",
    .source = "torch.nn.LogSoftmax",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer,
};
