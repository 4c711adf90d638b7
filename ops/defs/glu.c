/* Gated linear units: an activation of the gate times the other half. Gate and other half are two inputs, or the two
 * halves of one. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec geglu_attrs[] = {
    {.name = "approximate",
     .kind = CKPT_STRING,
     .string = "none",
     .words = "none|tanh",
     .help = "none: the error function; tanh: its approximation"},
    {0},
};

/* The shape of the output. */
static ckpt_code check_shapes(const ckpt_node *node, ckpt_shape *y, ckpt_err *err)
{
    char a[CKPT_SHAPE_TEXT];
    char b[CKPT_SHAPE_TEXT];
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
    }
    *y = node->in[0].shape;
    if (node->in_count == 2) {
        return ckpt_shape_equal(y, &node->in[1].shape)
                   ? CKPT_OK
                   : CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s and input 1 %s, wanted equal shapes",
                               ckpt_shape_show(y, a), ckpt_shape_show(&node->in[1].shape, b));
    }
    if (y->rank == 0 || y->rank == 4 || y->dim[y->rank - 1] % 2 != 0) {
        /* The last dim of a rank-4 tensor is not the fastest in memory. */
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 has shape %s, wanted two halves in the last dim of a rank other than 0 and 4",
                         ckpt_shape_show(y, a));
    }
    y->dim[y->rank - 1] /= 2;
    return CKPT_OK;
}

static ckpt_code infer_glu(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    ckpt_shape y;
    CKPT_TRY(check_shapes(node, &y, err));
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->backward_in = node->in_count == 2 ? 3 : 1;
    node->forward_flop = ckpt_times(forward_flop, ckpt_shape_count(&y));
    node->backward_flop = ckpt_times(backward_flop, ckpt_shape_count(&y));
    return CKPT_OK;
}

static ckpt_code infer_swiglu(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_glu(node, 6, 12, err);
}

static ckpt_code infer_geglu(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_glu(node, 11, 24, err);
}

const ckpt_op ckpt_op_swiglu = {
    .name = "swiglu",
    .formula = "y = g / (1 + exp(-g)) u, of inputs g and u or of the halves of one input",
    .source = "Shazeer 2020, arXiv:2002.05202, eq. 6",
    .in_min = 1,
    .in_max = 2,
    .accumulates = true,
    .inplace = 1u << 0 | 1u << 1,
    .backward_inplace = 1u << 0 | 1u << 1,
    .infer = infer_swiglu,
};

const ckpt_op ckpt_op_geglu = {
    .name = "geglu",
    .formula = "y = gelu(g) u, of inputs g and u or of the halves of one input",
    .source = "Shazeer 2020, arXiv:2002.05202, eq. 6",
    .attrs = geglu_attrs,
    .in_min = 1,
    .in_max = 2,
    .accumulates = true,
    .inplace = 1u << 0 | 1u << 1,
    .backward_inplace = 1u << 0 | 1u << 1,
    .infer = infer_geglu,
};
