/* relative_bias: what attention adds to its scores by the distance of query and key, learned for every head: the table of
 * T5, whose rows are buckets of distances in one dimension, or of Swin, whose rows are differences in two. */
#include "ops/relative_bias.h"

#include <math.h>
#include <string.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "kind", .kind = CKPT_STRING, .required = true, .string = "t5", .words = "t5|swin", .help = "of the table"},
    {.name = "heads", .kind = CKPT_INT, .required = true, .help = "columns of the table"},
    {.name = "queries", .kind = CKPT_INT, .integer = 0, .help = "t5: their number"},
    {.name = "keys", .kind = CKPT_INT, .integer = 0, .help = "t5: their number; 0: as many as queries"},
    {.name = "buckets", .kind = CKPT_INT, .integer = 32, .help = "t5: rows of the table, at most 256"},
    {.name = "max_distance", .kind = CKPT_INT, .integer = 128, .help = "t5: from here on all distances share a row"},
    {.name = "bidirectional",
     .kind = CKPT_BOOL,
     .integer = 1,
     .help = "t5: keys after the query have rows of their own"},
    {.name = "window", .kind = CKPT_INT, .integer = 0, .help = "swin: queries and keys are a square with this side"},
    {.name = "std", .kind = CKPT_FLOAT, .real = 0.02, .help = "standard deviation of the initial table"},
    {0},
};

static bool is_swin(const ckpt_node *node)
{
    return strcmp(ckpt_node_string(node, "kind"), "swin") == 0;
}

/* Half of the rows of a direction are for one distance each; the others grow with the distance's logarithm:
 * row e + k begins at e (max_distance / e)^(k / (rows - e)). Raffel et al.'s code computes the row from the logarithm;
 * where the power is a whole number, rounding must not put that distance into the row before. */
static int32_t row_start(int64_t row, int64_t rows, int64_t max_distance)
{
    const int64_t exact = rows / 2;
    if (row <= exact) {
        return (int32_t)row;
    }
    const double share = (double)(row - exact) / (double)(rows - exact);
    return (int32_t)ceil((double)exact * pow((double)max_distance / (double)exact, share) * (1 - 1e-12));
}

ckpt_relative ckpt_relative_of(const ckpt_node *node)
{
    ckpt_relative r = {.heads = ckpt_node_int(node, "heads")};
    if (is_swin(node)) {
        r.window = ckpt_node_int(node, "window");
        r.queries = r.keys = r.window * r.window;
        r.rows = (2 * r.window - 1) * (2 * r.window - 1);
        return r;
    }
    const int64_t keys = ckpt_node_int(node, "keys");
    r.queries = ckpt_node_int(node, "queries");
    r.keys = keys == 0 ? r.queries : keys;
    r.rows = ckpt_node_int(node, "buckets");
    r.half = ckpt_node_bool(node, "bidirectional") ? r.rows / 2 : r.rows;
    for (int64_t row = 0; row < r.half; row++) {
        r.start[row] = row_start(row, r.half, ckpt_node_int(node, "max_distance"));
    }
    r.start[r.half] = INT32_MAX;
    return r;
}

static ckpt_code check_t5(const ckpt_node *node, ckpt_err *err)
{
    const bool both = ckpt_node_bool(node, "bidirectional");
    int64_t buckets = 0, value = 0;
    CKPT_TRY(ckpt_node_int_between(node, "queries", 1, INT32_MAX, &value, err));
    CKPT_TRY(ckpt_node_int_between(node, "keys", 0, INT32_MAX, &value, err));
    CKPT_TRY(ckpt_node_int_between(node, "buckets", both ? 4 : 2, CKPT_RELATIVE_BUCKETS, &buckets, err));
    CKPT_TRY(ckpt_node_int_between(node, "max_distance", buckets + 1, INT32_MAX / 2, &value, err));
    CKPT_TRY(ckpt_node_int_between(node, "window", 0, 0, &value, err));
    return both && buckets % 2 != 0
               ? CKPT_FAIL(err, CKPT_BAD_INPUT, "\"buckets\" is %lld, wanted an even number for two directions",
                           (long long)buckets)
               : CKPT_OK;
}

static ckpt_code check_swin(const ckpt_node *node, ckpt_err *err)
{
    int64_t value = 0;
    CKPT_TRY(ckpt_node_int_between(node, "window", 1, 1024, &value, err));
    CKPT_TRY(ckpt_node_int_between(node, "queries", 0, 0, &value, err));
    return ckpt_node_int_between(node, "keys", 0, 0, &value, err);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int64_t heads = 0;
    double std = 0;
    CKPT_TRY(ckpt_node_int_between(node, "heads", 1, INT32_MAX, &heads, err));
    CKPT_TRY(ckpt_node_float_between(node, "std", 0, 1e9, &std, err));
    CKPT_TRY(is_swin(node) ? check_swin(node, err) : check_t5(node, err));
    const ckpt_relative r = ckpt_relative_of(node);
    const ckpt_shape weight = {2, {r.rows, heads}}, y = {3, {heads, r.queries, r.keys}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_NORMAL, std, false, err));
    node->backward_flop = ckpt_shape_count(&y);
    return CKPT_OK;
}

const ckpt_op ckpt_op_relative_bias = {
    .name = "relative_bias",
    .formula = "y[h, i, j] = w[row of (i, j), h]; t5: the bucket of j - i; swin: the difference of their places",
    .source = "Raffel et al. 2020, arXiv:1910.10683, section 2.1, with the buckets of its code "
              "(mesh_tensorflow.transformer.transformer_layers); Liu et al. 2021, arXiv:2103.14030, equation 4",
    .attrs = attrs,
    .in_min = 0,
    .in_max = 0,
    .accumulates = true,
    .infer = infer,
};
