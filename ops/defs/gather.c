/* gather: slices of a tensor by number. Numbers outside the tensor are an error of the data. */
#include "ops/gather.h"
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .integer = 0, .help = "dimension that the ids are of; negative from the end"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape, *const ids = &node->in[1].shape;
    const ckpt_dtype dtype = node->in[0].dtype;
    int axis = 0;
    if (dtype != CKPT_INT32) {
        CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    }
    CKPT_TRY(ckpt_node_need(node, 1, CKPT_INT32, err));
    CKPT_TRY(ckpt_node_axis(node, "axis", x->rank, &axis, err));
    if (x->rank - 1 + ids->rank > CKPT_RANK_MAX || x->dim[axis] > INT32_MAX) {
        char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "input 0 is %s and ids are %s: the output would have %d dims, wanted at most %d, and at most "
                         "%d positions along dim %d",
                         ckpt_shape_show(x, a), ckpt_shape_show(ids, b), x->rank - 1 + ids->rank, CKPT_RANK_MAX,
                         INT32_MAX, axis);
    }
    ckpt_shape y = {.rank = x->rank - 1 + ids->rank};
    for (int d = 0; d < y.rank; d++) {
        const bool inside = d >= axis && d < axis + ids->rank;
        y.dim[d] = inside ? ids->dim[d - axis] : x->dim[d < axis ? d : d - ids->rank + 1];
    }
    CKPT_TRY(ckpt_node_add_output(node, dtype, &y, err));
    node->id_limit = x->dim[axis];
    node->backward_in = 1u << 1;
    node->backward_flop = ckpt_shape_count(&y);
    /* Forward reads only the slices it needs. Backward writes the whole gradient of x. */
    const ckpt_bytes out = ckpt_tensor_bytes(&node->out[0]), id_bytes = ckpt_tensor_bytes(&node->in[1]);
    node->forward_moved_bytes = ckpt_plus(ckpt_times(out, 2), id_bytes);
    node->backward_moved_bytes = ckpt_plus(ckpt_plus(out, id_bytes), ckpt_tensor_bytes(&node->in[0]));
    return CKPT_OK;
}

/* Backward sorts the ids (kernels/cuda/sort.cuh): two arrays of positions, and 256 counts for every 1,024 ids. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t ids = ckpt_node_in_count(node, 1), blocks = ids / 1024 + (ids % 1024 != 0);
    *forward = 0;
    *backward = ckpt_plus(ckpt_times(2, ckpt_aligned(ckpt_times(4, ids))), ckpt_times(4 * 256, blocks));
}

const ckpt_op ckpt_op_gather = {
    .name = "gather",
    .formula = "y[..., i_0, i_1, ..., ...] = x[..., ids[i_0, i_1, ...], ...], ids in place of axis",
    .source = "numpy.take; ONNX Gather",
    .attrs = attrs,
    .in_min = 2,
    .in_max = 2,
    .accumulates = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
