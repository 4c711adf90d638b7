/* positional_embedding: a learned row per position, added to a sequence. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "rows", .kind = CKPT_INT, .integer = 0, .help = "positions in the table; 0: as many as the sequence has"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    char shape[CKPT_SHAPE_TEXT];
    if (x->rank != 3) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 is %s, wanted [B, T, H]", ckpt_shape_show(x, shape));
    }
    const int64_t given = ckpt_node_int(node, "rows"), rows = given == 0 ? x->dim[1] : given;
    if (rows < x->dim[1]) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "rows is %lld, but input 0 %s has %lld positions", (long long)rows,
                         ckpt_shape_show(x, shape), (long long)x->dim[1]);
    }
    const ckpt_shape weight = {2, {rows, x->dim[2]}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_NORMAL, 0.02, true, err));
    node->param[0].table = true;
    node->forward_flop = ckpt_shape_count(x);
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

const ckpt_op ckpt_op_positional_embedding = {
    .name = "positional_embedding",
    .formula = "y[b,t,h] = x[b,t,h] + w[t,h]",
    .source = "Gehring et al. 2017, arXiv:1705.03122; GPT-2's wpe",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1,
    .infer = infer,
};
