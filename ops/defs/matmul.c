/* matmul: products of two activations, matrix by matrix. Rank 4 lies channels last, so its last two dims are no matrix in
 * memory: such tensors are reshaped to rank 3 first. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "transpose_y", .kind = CKPT_BOOL, .integer = 0, .help = "input 1 is [..., N, K]"},
    {0},
};

ckpt_matmul ckpt_matmul_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->in[1].shape;
    const int rank = x->rank;
    ckpt_matmul m = {.batch = 1, .turned = ckpt_node_bool(node, "transpose_y")};
    for (int d = 0; d < rank - 2; d++) {
        m.batch = ckpt_times(m.batch, x->dim[d]);
    }
    m.rows = x->dim[rank - 2];
    m.inner = x->dim[rank - 1];
    m.columns = y->dim[m.turned ? rank - 2 : rank - 1];
    return m;
}

/* As numpy.matmul of equal leading dims. */
static bool fits(const ckpt_shape *x, const ckpt_shape *y, bool turned)
{
    bool same = x->rank == y->rank && x->rank >= 2 && x->rank != 4;
    for (int d = 0; same && d < x->rank - 2; d++) {
        same = x->dim[d] == y->dim[d];
    }
    return same && x->dim[x->rank - 1] == y->dim[turned ? y->rank - 1 : y->rank - 2];
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, node->dtype, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const bool turned = ckpt_node_bool(node, "transpose_y");
    if (!fits(x, &node->in[1].shape, turned)) {
        char first[CKPT_SHAPE_TEXT], second[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "input 0 has shape %s and input 1 %s, wanted [..., M, K] and [..., %s] of one rank, 2, 3, 5 or 6, "
            "and equal leading dims; reshape rank 4 first",
            ckpt_shape_show(x, first), ckpt_shape_show(&node->in[1].shape, second), turned ? "N, K" : "K, N");
    }
    const ckpt_matmul m = ckpt_matmul_of(node);
    ckpt_shape z = *x;
    z.dim[z.rank - 1] = m.columns;
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &z, err));
    node->native16 = true;
    node->backward_in = (node->grad_in & 1) << 1 | (node->grad_in & 2) >> 1;
    const ckpt_flop product = ckpt_times(ckpt_times(ckpt_node_in_count(node, 0), m.columns), 2);
    node->forward_flop = product;
    node->backward_flop = ckpt_times(product, node->grad_in == 3 ? 2 : 1);
    node->forward_workspace_bytes = ckpt_product_workspace(node, m.rows, m.inner, m.columns, true);
    node->backward_workspace_bytes = node->forward_workspace_bytes;
    return CKPT_OK;
}

static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_matmul m = ckpt_matmul_of(node);
    const ckpt_bytes a = ckpt_gpu_product_workspace(ckpt_times(m.batch, m.rows), m.inner, m.columns);
    const ckpt_bytes b = ckpt_gpu_product_workspace(ckpt_times(m.batch, m.inner), m.rows, m.columns);
    *forward = *backward = a > b ? a : b;
}

const ckpt_op ckpt_op_matmul = {
    .name = "matmul",
    .formula = "z = x y, or x y^T, of the last two dims; the same for each place in the dims before them",
    .source = "numpy.matmul; ONNX MatMul",
    .attrs = attrs,
    .in_min = 2,
    .in_max = 2,
    .accumulates = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
