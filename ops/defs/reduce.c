/* sum, mean and max over dims as written in the model file. max keeps which term was the first maximum, so that backward
 * needs neither its input nor its output. */
#include "ops/ops_impl.h"
#include "ops/reduction.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INTS, .integer = 0, .help = "dimensions to reduce, negative from the end; none: all"},
    {.name = "keepdim", .kind = CKPT_BOOL, .integer = 0, .help = "reduced dimensions stay, with one position"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    uint64_t axes = 0;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_axes(node, "axis", x->rank, &axes, err));
    ckpt_shape y = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        if ((axes >> d & 1) == 0) {
            y.dim[y.rank++] = x->dim[d];
        } else if (ckpt_node_bool(node, "keepdim")) {
            y.dim[y.rank++] = 1;
        }
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->forward_flop = ckpt_shape_count(x);
    return CKPT_OK;
}

static ckpt_code infer_sum(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    CKPT_TRY(infer(node, arena, err));
    const ckpt_reduction r = ckpt_reduction_of_axes(node);
    node->forward_workspace_bytes = ckpt_reduction_workspace(&r, sizeof(float));
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

static ckpt_code infer_max(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    CKPT_TRY(infer(node, arena, err));
    const ckpt_reduction r = ckpt_reduction_of_axes(node);
    if (r.terms > INT32_MAX) {
        char shape[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 %s has %lld elements for each maximum, wanted at most %d",
                         ckpt_shape_show(&node->in[0].shape, shape), (long long)r.terms, INT32_MAX);
    }
    /* In the memory order of the output, so of rank 1. */
    const ckpt_shape indices = {1, {r.outputs}};
    CKPT_TRY(ckpt_node_add_saved(node, "indices", CKPT_INT32, &indices, err));
    node->backward_saved = 1;
    node->backward_flop = r.outputs;
    node->forward_workspace_bytes = ckpt_reduction_workspace(&r, sizeof(float) + sizeof(int32_t));
    return CKPT_OK;
}

static void gpu_workspace_sum(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_reduction r = ckpt_reduction_of_axes(node);
    *forward = ckpt_reduction_workspace(&r, sizeof(float));
    *backward = 0;
}

/* A value and its number for each part. */
static void gpu_workspace_max(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_reduction r = ckpt_reduction_of_axes(node);
    *forward = ckpt_reduction_workspace(&r, sizeof(float) + sizeof(int32_t));
    *backward = 0;
}

const ckpt_op ckpt_op_sum = {
    .name = "sum",
    .formula = "y = sum of x over the dims of axis",
    .source = "torch.sum; ONNX ReduceSum",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_sum,
    .gpu_workspace = gpu_workspace_sum,
};

const ckpt_op ckpt_op_mean = {
    .name = "mean",
    .formula = "y = sum of x over the dims of axis / their number of elements",
    .source = "torch.mean; ONNX ReduceMean",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_sum,
    .gpu_workspace = gpu_workspace_sum,
};

const ckpt_op ckpt_op_max = {
    .name = "max",
    .formula = "y = maximum of x over the dims of axis; dx = dy at the first of equal ones in memory",
    .source = "torch.amax; ONNX ReduceMax",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_max,
    .gpu_workspace = gpu_workspace_max,
};
