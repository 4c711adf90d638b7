/* Product of two tensors of one shape, or of a tensor and one factor per channel: the gate of squeeze-and-
 * excitation. */
#include "ops/ops_impl.h"

static bool is_gate(const ckpt_shape *gate, const ckpt_shape *x)
{
    return x->rank == 4 && gate->rank == 4 && gate->dim[0] == x->dim[0] && gate->dim[1] == x->dim[1] &&
           gate->dim[2] == 1 && gate->dim[3] == 1;
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, node->dtype, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const ckpt_shape *const gate = &node->in[1].shape;
    if (!ckpt_shape_equal(x, gate) && !is_gate(gate, x)) {
        char a[CKPT_SHAPE_TEXT];
        char b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s and input 1 %s, wanted equal shapes, or [N, C, H, W] and [N, C, 1, 1]",
                         ckpt_shape_show(x, a), ckpt_shape_show(gate, b));
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    node->backward_in = 1u << 0 | 1u << 1;
    node->forward_flop = ckpt_node_in_count(node, 0);
    node->backward_flop = ckpt_times(3, ckpt_node_in_count(node, 0));
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    /* The gradient of a gate is summed over the pixels of its image, in parts. */
    const ckpt_shape *const x = &node->in[0].shape;
    if (!ckpt_shape_equal(x, &node->in[1].shape)) {
        const int64_t pixels = x->dim[2] * x->dim[3], part = ckpt_gpu_part_rows(x->dim[0], pixels, x->dim[1]);
        const int64_t parts = pixels / part + (pixels % part != 0), gates = x->dim[0] * x->dim[1];
        *backward = parts > 1 ? ckpt_round_up(ckpt_times(ckpt_times(4, parts), gates), CKPT_ALIGN) : 0;
    }
    (void)forward;
}

const ckpt_op ckpt_op_mul = {
    .name = "mul",
    .formula = "y = x0 x1; dx0 = dy x1, dx1 = dy x0 (summed over H and W where x1 is [N, C, 1, 1])",
    .source = "ONNX Mul; Hu et al., CVPR 2018, for the channel gate",
    .in_min = 2,
    .in_max = 2,
    .inplace = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
