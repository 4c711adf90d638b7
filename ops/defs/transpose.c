/* transpose: dimensions in another order, copied. Dimensions are those of the model file; where the elements lie
 * follows core/formats/tensor.h on both sides. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "perm", .kind = CKPT_INTS, .required = true, .help = "dim d of the output is dim perm[d] of the input"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    const int count = ckpt_node_attr(node, "perm")->int_count;
    char shape[CKPT_SHAPE_TEXT];
    if (count != x->rank) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "perm has %d numbers, but input 0 is %s", count,
                         ckpt_shape_show(x, shape));
    }
    ckpt_shape y = {.rank = x->rank};
    unsigned seen = 0;
    for (int d = 0; d < x->rank; d++) {
        const int64_t from = ckpt_node_int_at(node, "perm", d);
        if (from < 0 || from >= x->rank || ((seen >> from) & 1) != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "perm[%d] is %lld, wanted every number of 0 to %d once, for input 0 %s", d,
                             (long long)from, x->rank - 1, ckpt_shape_show(x, shape));
        }
        seen |= 1U << from;
        y.dim[d] = x->dim[from];
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    return CKPT_OK;
}

const ckpt_op ckpt_op_transpose = {
    .name = "transpose",
    .formula = "y[i_0, i_1, ...] = x[j], j_perm[d] = i_d",
    .source = "ONNX Transpose; torch.permute",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer,
};
