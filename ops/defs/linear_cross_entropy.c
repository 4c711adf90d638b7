/* Linear and softmax cross entropy in one, which never holds all logits. Rows are worked on in units: forward makes the
 * logits of a unit, takes log-sum-exp of its rows and forgets them; backward makes them again, or reads them where
 * forward has kept them all. Every sum goes unit by unit, and a unit follows from the shape alone, so that the bits are
 * the same wherever this runs. */
#include <math.h>

#include "ops/ops_impl.h"

/* The logits of a unit take at most 32 MiB, but a unit has 128 rows: below that, products spend their time on reading
 * the weight. Units start at multiples of 16 rows, which keeps rows of any type aligned for a GPU's products. */
enum { UNIT_BYTES = 32 << 20, UNIT_LEAST = 128, UNIT_STEP = 16 };

static const ckpt_attr_spec attrs[] = {
    {.name = "features", .kind = CKPT_INT, .required = true, .help = "classes"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add a bias"},
    {.name = "ignore_index", .kind = CKPT_INT, .integer = -100, .help = "rows with this target do not count"},
    {.name = "label_smoothing",
     .kind = CKPT_FLOAT,
     .help = "this share of a row's target, 0 to 1, is spread over all classes"},
    {.name = "unit",
     .kind = CKPT_INT,
     .integer = 0,
     .help = "rows whose logits are held at a time, a multiple of 16; 0: from the shape"},
    {0},
};

static int64_t rows_of(const ckpt_node *node)
{
    return ckpt_node_in_count(node, 1);
}

int64_t ckpt_unit_rows(const ckpt_node *node)
{
    const int64_t rows = rows_of(node), asked = ckpt_node_int(node, "unit");
    const int64_t fit = UNIT_BYTES / ckpt_times(ckpt_node_int(node, "features"), ckpt_dtype_bytes(node->dtype));
    const int64_t most = asked > 0 ? asked : fit < UNIT_LEAST ? UNIT_LEAST : fit;
    const int64_t units = rows / most + (rows % most != 0), even = rows / units + (rows % units != 0);
    const int64_t unit = asked > 0 ? asked : ckpt_plus(even, UNIT_STEP - 1) / UNIT_STEP * UNIT_STEP;
    return unit < rows ? unit : rows;
}

int64_t ckpt_unit_pitch(const ckpt_node *node)
{
    const int64_t classes = ckpt_node_int(node, "features");
    return node->threads == CKPT_ON_GPU ? ckpt_gpu_pitch(classes, node->dtype) : classes;
}

ckpt_bytes ckpt_unit_bytes(const ckpt_node *node)
{
    const int64_t elements = ckpt_times(ckpt_unit_rows(node), ckpt_unit_pitch(node));
    const ckpt_bytes bytes = ckpt_times(elements, ckpt_dtype_bytes(node->dtype));
    return ckpt_aligned(bytes);
}

static ckpt_code check_shapes(const ckpt_node *node, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need(node, 1, CKPT_INT32, err));
    const ckpt_shape *const x = &node->in[0].shape;
    char a[CKPT_SHAPE_TEXT];
    char b[CKPT_SHAPE_TEXT];
    if (x->rank != 2 && x->rank != 3) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s, wanted [N, C] or [B, T, C]",
                         ckpt_shape_show(x, a));
    }
    ckpt_shape target = *x;
    target.rank--;
    target.dim[target.rank] = 0;
    if (!ckpt_shape_equal(&target, &node->in[1].shape)) {
        char c[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s and the targets %s, wanted targets %s",
                         ckpt_shape_show(x, a), ckpt_shape_show(&node->in[1].shape, b), ckpt_shape_show(&target, c));
    }
    return CKPT_OK;
}

/* A product forward; backward the same again, and one for each gradient. About 20 FLOP a logit around them. Each unit
 * reads the weight; all but the first add to its gradient. */
static void cost(ckpt_node *node, int64_t rows, int64_t in, int64_t classes, bool bias)
{
    const int64_t logits = ckpt_times(rows, classes), size = ckpt_dtype_bytes(node->dtype);
    const int64_t units = rows / ckpt_unit_rows(node) + (rows % ckpt_unit_rows(node) != 0);
    const bool wants_input = (node->grad_in & 1) != 0;
    const ckpt_flop product = ckpt_times(ckpt_times(logits, in), 2);
    node->forward_flop = ckpt_plus(product, ckpt_times(logits, bias ? 11 : 10));
    node->backward_flop = ckpt_plus(ckpt_times(product, wants_input ? 3 : 2), ckpt_times(logits, bias ? 12 : 10));
    const int64_t weight = ckpt_times(in, classes), weights = ckpt_times(weight, units), x = ckpt_times(rows, in);
    const ckpt_bytes once = ckpt_times(ckpt_plus(weights, x), size), grads = ckpt_times(weights, 8);
    node->forward_moved_bytes = ckpt_plus(once, ckpt_times(logits, 2 * size));
    node->backward_moved_bytes = ckpt_plus(ckpt_times(once, wants_input ? 3 : 2), grads);
    node->backward_moved_bytes = ckpt_plus(node->backward_moved_bytes, ckpt_times(logits, 5 * size));
    const int64_t unit = ckpt_unit_rows(node);
    const ckpt_bytes held = ckpt_unit_bytes(node);
    node->forward_workspace_bytes = ckpt_plus(held, ckpt_product_workspace(node, unit, in, classes, false));
    node->backward_workspace_bytes = ckpt_plus(held, ckpt_product_workspace(node, unit, in, classes, true));
}

/* The way "kept": backward without the first of its products. Forward writes all logits to a saved tensor, with the rows
 * of a unit's, instead of to the workspace. */
static ckpt_code add_kept(ckpt_node *node, int64_t rows, int64_t in, int64_t classes, ckpt_err *err)
{
    const ckpt_shape all = {2, {rows, ckpt_unit_pitch(node)}};
    const int64_t logits = ckpt_times(rows, classes);
    CKPT_TRY(ckpt_node_add_way_saved(node, "logits", node->dtype, &all, err));
    const uint64_t kept = UINT64_C(1) << (node->saved_count - 1);
    ckpt_way *way = ckpt_node_add_way(node, "kept", false);
    way->saved |= kept;
    way->moved_bytes = node->forward_moved_bytes;
    way = ckpt_node_add_way(node, "kept", true);
    way->in = node->backward_in;
    way->saved = node->backward_saved | kept;
    way->flop = node->backward_flop - ckpt_times(ckpt_times(logits, in), 2);
    way->moved_bytes = /* forward's, of which its own pass over the logits is no part of backward */
        node->backward_moved_bytes - node->forward_moved_bytes + ckpt_times(logits, ckpt_dtype_bytes(node->dtype));
    node->backward_way = "recomputed";
    return CKPT_OK;
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int64_t classes = 0, ignored = 0, unit = 0;
    CKPT_TRY(check_shapes(node, err));
    CKPT_TRY(ckpt_node_int_between(node, "features", 1, INT32_MAX, &classes, err));
    CKPT_TRY(ckpt_node_int_between(node, "ignore_index", INT32_MIN, INT32_MAX, &ignored, err));
    CKPT_TRY(ckpt_check_smoothing(node, err));
    CKPT_TRY(ckpt_node_int_between(node, "unit", 0, INT32_MAX, &unit, err));
    if (unit % UNIT_STEP != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"unit\" is %lld, wanted a multiple of %d", (long long)unit, UNIT_STEP);
    }
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t in = x->dim[x->rank - 1], padding = ckpt_unit_pitch(node) - classes;
    const bool bias = ckpt_node_bool(node, "bias");
    const ckpt_shape scalar = {.rank = 0}, one = {1, {1}}, rows = {1, {rows_of(node)}};
    const ckpt_shape weight = {2, {classes, in}}, vector = {1, {classes}};
    const double scale = 1 / sqrt((double)in);
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    CKPT_TRY(ckpt_node_add_saved(node, "lse", CKPT_FLOAT32, &rows, err));
    CKPT_TRY(ckpt_node_add_saved(node, "count", CKPT_FLOAT32, &one, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_UNIFORM, scale, true, err));
    node->param[0].padding = padding * in;
    if (bias) {
        CKPT_TRY(ckpt_node_add_param(node, "bias", &vector, CKPT_INIT_UNIFORM, scale, false, err));
        node->param[1].padding = padding;
    }
    node->native16 = true;
    node->backward_in = 1u << 0 | 1u << 1;
    node->backward_saved = 1u << 0 | 1u << 1;
    cost(node, rows.dim[0], in, classes, bias);
    return add_kept(node, rows.dim[0], in, classes, err);
}

/* Behind a unit's logits: forward the parts of the loss, of all units, and what the product needs; backward what
 * products and column sums need one after the other, of a whole unit or of the rows that are left. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const int64_t unit = ckpt_unit_rows(node), pitch = ckpt_unit_pitch(node), in = node->param[0].tensor.shape.dim[1];
    const int64_t rest = rows_of(node) % unit;
    const ckpt_bytes held = ckpt_unit_bytes(node), product = ckpt_gpu_product_workspace(unit, in, pitch);
    const ckpt_bytes whole_sums = ckpt_gpu_column_sums_workspace(unit, pitch);
    const ckpt_bytes rest_sums = rest > 0 ? ckpt_gpu_column_sums_workspace(rest, pitch) : 0;
    const ckpt_bytes sums = node->param_count == 1 ? 0 : whole_sums > rest_sums ? whole_sums : rest_sums;
    *forward = ckpt_plus(ckpt_plus(held, ckpt_gpu_unit_loss_workspace(node)), product);
    *backward = ckpt_plus(held, product > sums ? product : sums);
}

ckpt_bytes ckpt_gpu_unit_loss_workspace(const ckpt_node *node)
{
    const int64_t rows = rows_of(node), unit = ckpt_unit_rows(node), units = rows / unit + (rows % unit != 0);
    return ckpt_plus(ckpt_times(units, ckpt_gpu_loss_workspace(unit)), ckpt_gpu_smoothing_workspace(node, unit));
}

const ckpt_op ckpt_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .formula = "loss = mean over counted rows of log(sum(exp(z))) - (1 - s) z[target] - s mean(z), z = x W^T + b, "
               "s = label_smoothing",
    .source = "torch.nn.Linear and torch.nn.CrossEntropyLoss; smoothing: Szegedy et al. 2016, arXiv:1512.00567; in "
              "pieces: Wijmans et al. 2024, arXiv:2411.09009",
    .attrs = attrs,
    .in_min = 2,
    .in_max = 2,
    .accumulates = true,
    .loss = true,
    .param16 = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
