/* embedding: a row of a learned table for every id. Ids outside the table are an error of the data. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "rows", .kind = CKPT_INT, .required = true, .help = "ids 0 .. rows-1"},
    {.name = "features", .kind = CKPT_INT, .required = true, .help = "length of a row"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const ids = &node->in[0].shape;
    const int64_t rows = ckpt_node_int(node, "rows"), features = ckpt_node_int(node, "features");
    CKPT_TRY(ckpt_node_need(node, 0, CKPT_INT32, err));
    /* A rank-4 result would lie channels last while its ids' order says otherwise. */
    if (ids->rank > 2 || rows < 1 || rows > INT32_MAX || features < 1) {
        char shape[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "ids are %s, rows is %lld, features is %lld; wanted at most 2 dimensions, 1 to %d rows and at "
                         "least 1 feature",
                         ckpt_shape_show(ids, shape), (long long)rows, (long long)features, INT32_MAX);
    }
    ckpt_shape y = *ids;
    y.dim[y.rank++] = features;
    const ckpt_shape weight = {2, {rows, features}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_NORMAL, 0.02, true, err));
    node->param[0].table = true;
    node->backward_in = 1;
    node->native16 = true;
    node->backward_flop = ckpt_shape_count(&node->out[0].shape);
    /* Forward reads only the rows it needs. Backward writes the whole gradient of the table. */
    const ckpt_bytes out = ckpt_tensor_bytes(&node->out[0]), id_bytes = ckpt_tensor_bytes(&node->in[0]);
    node->forward_moved_bytes = ckpt_plus(ckpt_times(out, 2), id_bytes);
    node->backward_moved_bytes =
        ckpt_plus(ckpt_plus(ckpt_times(out, 2), id_bytes), ckpt_tensor_bytes(&node->param[0].tensor));
    return CKPT_OK;
}

/* Backward sorts the tokens: two arrays of positions, and 256 counts for every 1,024 tokens. Then it adds up 32 tokens
 * at a time, which leave two rows of features where a row's tokens go on. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t tokens = ckpt_node_in_count(node, 0), features = node->param[0].tensor.shape.dim[1];
    const int64_t blocks = tokens / 1024 + (tokens % 1024 != 0), segments = tokens / 32 + (tokens % 32 != 0);
    *forward = 0;
    *backward = ckpt_plus(ckpt_times(2, ckpt_aligned(ckpt_times(4, tokens))), ckpt_times(4 * 256, blocks));
    if (segments > 1) {
        *backward = ckpt_plus(*backward, ckpt_times(ckpt_times(8, segments), features));
    }
}

const ckpt_op ckpt_op_embedding = {
    .name = "embedding",
    .formula = "y[..., f] = w[ids[...], f]",
    .source = "torch.nn.Embedding",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .param16 = 1u << 0,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
