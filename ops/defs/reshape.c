/* Reshape and flatten: the same elements, in the order of the model file, under another shape. Rank 4 lies channels
 * last, so this is free (an alias) only where the order in memory stays as it is. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec reshape_attrs[] = {
    {.name = "shape", .kind = CKPT_INTS, .required = true, .help = "sizes; one may be -1 and is worked out"},
    {0},
};

static const ckpt_attr_spec flatten_attrs[] = {
    {.name = "start_dim", .kind = CKPT_INT, .integer = 1, .help = "first dim of those that become one"},
    {0},
};

/* The order in memory is the order as written. */
static bool is_plain(const ckpt_shape *shape)
{
    return shape->rank != 4 || shape->dim[1] == 1 || (shape->dim[2] == 1 && shape->dim[3] == 1);
}

static ckpt_code finish(ckpt_node *node, const ckpt_shape *shape, ckpt_err *err)
{
    const ckpt_shape *const x = &node->in[0].shape;
    node->alias = ckpt_shape_equal(x, shape) || (is_plain(x) && is_plain(shape));
    return ckpt_node_add_output(node, node->in[0].dtype, shape, err);
}

static ckpt_code infer_reshape(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_attr *const wanted = ckpt_node_attr(node, "shape");
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t count = ckpt_node_in_count(node, 0);
    char text[CKPT_SHAPE_TEXT];
    if (wanted->int_count > CKPT_RANK_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"shape\" has %d dims, wanted at most %d", wanted->int_count,
                         CKPT_RANK_MAX);
    }
    ckpt_shape shape = {.rank = wanted->int_count};
    int free_dim = -1;
    int64_t known = 1;
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = wanted->ints[d];
        if (shape.dim[d] == -1 && free_dim < 0) {
            free_dim = d;
        } else if (shape.dim[d] < 1) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"shape\" has %lld as dim %d, wanted sizes of at least 1%s",
                             (long long)shape.dim[d], d, shape.dim[d] == -1 ? " and one -1 at most" : "");
        } else {
            known = ckpt_times(known, shape.dim[d]);
        }
    }
    if (free_dim >= 0) {
        shape.dim[free_dim] = count / known;
    }
    if (free_dim >= 0 ? count % known != 0 : count != known) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT, "input 0 has shape %s with %lld elements, which does not fit a \"shape\" with %s%lld",
            ckpt_shape_show(x, text), (long long)count, free_dim >= 0 ? "a multiple of " : "", (long long)known);
    }
    return finish(node, &shape, err);
}

static ckpt_code infer_flatten(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    int start = 0;
    CKPT_TRY(ckpt_node_axis(node, "start_dim", x->rank, &start, err));
    ckpt_shape shape = {.rank = start + 1};
    for (int d = 0; d < start; d++) {
        shape.dim[d] = x->dim[d];
    }
    shape.dim[start] = 1;
    for (int d = start; d < x->rank; d++) {
        shape.dim[start] *= x->dim[d]; /* no more than the elements of x */
    }
    return finish(node, &shape, err);
}

const ckpt_op ckpt_op_reshape = {
    .name = "reshape",
    .formula = "y = x under another shape, elements in the order of the model file",
    .source = "torch.reshape",
    .attrs = reshape_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_reshape,
};

const ckpt_op ckpt_op_flatten = {
    .name = "flatten",
    .formula = "y = x with the dims from start_dim on made one",
    .source = "torch.flatten",
    .attrs = flatten_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_flatten,
};
