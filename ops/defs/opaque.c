/* A layer that is only planned: the file states its sizes and costs, and nothing can run it. Sizes are kept in
 * elements, so a number of bytes is rounded up to a multiple of an element's: 4, and 2 for an output of a bfloat16
 * model. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "shape", .kind = CKPT_INTS, .help = "shape of the output (or give bytes)"},
    {.name = "bytes", .kind = CKPT_INT, .integer = -1, .help = "bytes of the output (or give shape)"},
    {.name = "saved_bytes", .kind = CKPT_INT, .help = "bytes kept for backward besides inputs and output"},
    {.name = "param_bytes", .kind = CKPT_INT, .help = "bytes of parameters"},
    {.name = "workspace_bytes", .kind = CKPT_INT, .help = "scratch, forward and backward"},
    {.name = "forward_ns", .kind = CKPT_INT, .integer = -1, .help = "time of forward; -1: from the roofline"},
    {.name = "backward_ns", .kind = CKPT_INT, .integer = -1, .help = "time of backward; -1: from the roofline"},
    {.name = "forward_flop", .kind = CKPT_INT, .help = "operations of forward, for the roofline"},
    {.name = "backward_flop", .kind = CKPT_INT, .help = "operations of backward, for the roofline"},
    {.name = "needs", .kind = CKPT_STRING, .string = "in", .words = "in|out|both|none", .help = "what backward reads"},
    {0},
};

/* Bytes as a vector. */
static ckpt_shape words(ckpt_bytes bytes, ckpt_dtype dtype)
{
    const ckpt_bytes each = ckpt_dtype_bytes(dtype);
    return (ckpt_shape){.rank = 1, .dim = {bytes / each + (bytes % each != 0)}};
}

static ckpt_code add_result(ckpt_node *node, ckpt_err *err)
{
    const ckpt_attr *const dims = ckpt_node_attr(node, "shape");
    const int64_t bytes = ckpt_node_int(node, "bytes");
    if ((dims->int_count > 0) == (bytes != -1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "wanted either \"shape\" or \"bytes\" of the output, found %s",
                         bytes != -1 ? "both" : "neither");
    }
    if (bytes != -1) {
        int64_t checked = 0;
        CKPT_TRY(ckpt_node_int_between(node, "bytes", 1, (int64_t)1 << 60, &checked, err));
        const ckpt_shape shape = words(checked, node->dtype);
        return ckpt_node_add_output(node, node->dtype, &shape, err);
    }
    if (dims->int_count > CKPT_RANK_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"shape\" has %d dims, wanted at most %d", dims->int_count,
                         CKPT_RANK_MAX);
    }
    ckpt_shape shape = {.rank = dims->int_count};
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = dims->ints[d];
    }
    return ckpt_node_add_output(node, node->dtype, &shape, err);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const int64_t most = (int64_t)1 << 60;
    int64_t saved = 0;
    int64_t params = 0;
    CKPT_TRY(add_result(node, err));
    CKPT_TRY(ckpt_node_int_between(node, "saved_bytes", 0, most, &saved, err));
    CKPT_TRY(ckpt_node_int_between(node, "param_bytes", 0, most, &params, err));
    CKPT_TRY(ckpt_node_int_between(node, "workspace_bytes", 0, most, &node->forward_workspace_bytes, err));
    CKPT_TRY(ckpt_node_int_between(node, "forward_ns", -1, most, &node->forward_ns, err));
    CKPT_TRY(ckpt_node_int_between(node, "backward_ns", -1, most, &node->backward_ns, err));
    CKPT_TRY(ckpt_node_int_between(node, "forward_flop", 0, most, &node->forward_flop, err));
    CKPT_TRY(ckpt_node_int_between(node, "backward_flop", 0, most, &node->backward_flop, err));
    node->backward_workspace_bytes = node->forward_workspace_bytes;
    if (saved > 0) {
        const ckpt_shape shape = words(saved, CKPT_FLOAT32);
        CKPT_TRY(ckpt_node_add_saved(node, "saved", CKPT_FLOAT32, &shape, err));
        node->backward_saved = 1u << 0;
    }
    if (params > 0) {
        const ckpt_shape shape = words(params, CKPT_FLOAT32);
        CKPT_TRY(ckpt_node_add_param(node, "param", &shape, CKPT_INIT_ZERO, 0, true, err));
    }
    const char needs = ckpt_node_string(node, "needs")[0]; /* the words differ in their first letter */
    if ((needs == 'i' || needs == 'b') && node->in_count > 0) {
        node->backward_in = UINT64_MAX >> (CKPT_IN_MAX - node->in_count);
    }
    node->backward_out = needs == 'o' || needs == 'b' ? 1u << 0 : 0;
    return CKPT_OK;
}

/* What the file states holds for every device. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    *forward = node->forward_workspace_bytes;
    *backward = node->backward_workspace_bytes;
}

const ckpt_op ckpt_op_opaque = {
    .name = "opaque",
    .formula = "known only by its sizes and times",
    .source = "the model file",
    .attrs = attrs,
    .in_max = CKPT_IN_MAX,
    .accumulates = true,
    .planned_only = true,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
