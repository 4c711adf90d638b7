/* slice, pad, roll, tile: elements at other places, along dims as written in the model file. Nothing is computed, so integers
 * move as well. */
#include "ops/ops_impl.h"
#include "ops/reduction.h"

static const ckpt_attr_spec slice_attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .required = true, .help = "dimension that is cut; negative from the end"},
    {.name = "start", .kind = CKPT_INT, .integer = 0, .help = "first position; negative from the end"},
    {.name = "end", .kind = CKPT_INT, .integer = 0, .help = "behind the last; negative from the end, 0: to the end"},
    {.name = "step", .kind = CKPT_INT, .integer = 1, .help = "from one position to the next"},
    {0},
};

static const ckpt_attr_spec pad_attrs[] = {
    {.name = "before", .kind = CKPT_INTS, .integer = 0, .help = "elements before each dim; one number: of all"},
    {.name = "after", .kind = CKPT_INTS, .integer = 0, .help = "elements behind each dim; one number: of all"},
    {.name = "value", .kind = CKPT_FLOAT, .real = 0, .help = "what they hold"},
    {0},
};

static const ckpt_attr_spec roll_attrs[] = {
    {.name = "shifts", .kind = CKPT_INTS, .required = true, .help = "steps towards higher positions, for each axis"},
    {.name = "axes", .kind = CKPT_INTS, .required = true, .help = "dimensions that roll; negative from the end"},
    {0},
};

static const ckpt_attr_spec tile_attrs[] = {
    {.name = "repeats", .kind = CKPT_INTS, .required = true, .help = "times that each dim is repeated"},
    {0},
};

/* One output of that shape and of the type of input 0, which is the network's or int32. */
static ckpt_code move_to(ckpt_node *node, const ckpt_shape *shape, ckpt_err *err)
{
    const ckpt_dtype dtype = node->in[0].dtype;
    if (dtype != CKPT_INT32) {
        CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    }
    return ckpt_node_add_output(node, dtype, shape, err);
}

static ckpt_code infer_slice(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int axis = 0;
    CKPT_TRY(ckpt_node_axis(node, "axis", node->in[0].shape.rank, &axis, err));
    ckpt_shape y = node->in[0].shape;
    const int64_t n = y.dim[axis], start = ckpt_node_int(node, "start"), end = ckpt_node_int(node, "end");
    const int64_t step = ckpt_node_int(node, "step"), first = start < 0 ? start + n : start;
    const int64_t behind = end <= 0 ? end + n : end;
    if (first < 0 || behind > n || first >= behind || step < 1) {
        char shape[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "start is %lld, end is %lld, step is %lld, wanted a piece of dim %d of input 0 %s and a step "
                         "of at least 1",
                         (long long)start, (long long)end, (long long)step, axis, ckpt_shape_show(&y, shape));
    }
    y.dim[axis] = (behind - first - 1) / step + 1;
    return move_to(node, &y, err);
}

static ckpt_code infer_pad(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    static const char *const sides[2] = {"before", "after"};
    ckpt_shape y = node->in[0].shape;
    char shape[CKPT_SHAPE_TEXT];
    for (int side = 0; side < 2; side++) {
        const int count = ckpt_node_attr(node, sides[side])->int_count;
        if (count > 1 && count != y.rank) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" has %d numbers, wanted one or one for each dim of input 0 %s",
                             sides[side], count, ckpt_shape_show(&node->in[0].shape, shape));
        }
        for (int d = 0; d < y.rank; d++) {
            const int64_t more = ckpt_node_int_at(node, sides[side], d);
            if (more < 0) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %lld for dim %d, wanted at least 0", sides[side],
                                 (long long)more, d);
            }
            y.dim[d] = ckpt_plus(y.dim[d], more);
        }
    }
    const double value = ckpt_node_float(node, "value");
    if (node->in[0].dtype == CKPT_INT32 &&
        !(value >= INT32_MIN && value <= INT32_MAX && value == (double)(int32_t)value)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "value is %g, wanted a whole number for int32", value);
    }
    return move_to(node, &y, err);
}

static ckpt_code infer_roll(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const int count = ckpt_node_attr(node, "axes")->int_count, shifts = ckpt_node_attr(node, "shifts")->int_count;
    const int rank = node->in[0].shape.rank;
    if (count == 0 || (shifts != 1 && shifts != count)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "\"shifts\" has %d numbers and \"axes\" %d, wanted an axis or more and as many shifts, or one",
                         shifts, count);
    }
    CKPT_TRY(ckpt_node_axes(node, "axes", rank, &(uint64_t){0}, err));
    return move_to(node, &node->in[0].shape, err);
}

static ckpt_code infer_tile(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    ckpt_shape y = node->in[0].shape;
    const int count = ckpt_node_attr(node, "repeats")->int_count;
    if (count != y.rank) {
        char shape[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"repeats\" has %d numbers, but input 0 is %s", count,
                         ckpt_shape_show(&y, shape));
    }
    for (int d = 0; d < y.rank; d++) {
        const int64_t times = ckpt_node_int_at(node, "repeats", d);
        if (times < 1) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"repeats\" is %lld for dim %d, wanted at least 1", (long long)times,
                             d);
        }
        y.dim[d] = ckpt_times(y.dim[d], times);
    }
    CKPT_TRY(move_to(node, &y, err));
    const ckpt_reduction r = ckpt_reduction_of_tile(node);
    node->backward_workspace_bytes = ckpt_reduction_workspace(&r, sizeof(float));
    node->backward_flop = ckpt_shape_count(&y);
    return CKPT_OK;
}

static void gpu_workspace_tile(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_reduction r = ckpt_reduction_of_tile(node);
    *forward = 0;
    *backward = ckpt_reduction_workspace(&r, sizeof(float));
}

const ckpt_op ckpt_op_slice = {
    .name = "slice",
    .formula = "y[..., i, ...] = x[..., start + i step, ...] along axis",
    .source = "ONNX Slice; numpy's x[start:end:step]",
    .attrs = slice_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_slice,
};

const ckpt_op ckpt_op_pad = {
    .name = "pad",
    .formula = "y[i_0, i_1, ...] = x[i_0 - before_0, i_1 - before_1, ...], value outside of x",
    .source = "ONNX Pad (constant); numpy.pad",
    .attrs = pad_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_pad,
};

const ckpt_op ckpt_op_roll = {
    .name = "roll",
    .formula = "y[..., (i + shift) mod n, ...] = x[..., i, ...] along each of axes, n positions long",
    .source = "torch.roll; numpy.roll",
    .attrs = roll_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_roll,
};

const ckpt_op ckpt_op_tile = {
    .name = "tile",
    .formula = "y[i_0, i_1, ...] = x[i_0 mod n_0, i_1 mod n_1, ...]",
    .source = "ONNX Tile; numpy.tile",
    .attrs = tile_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_tile,
    .gpu_workspace = gpu_workspace_tile,
};
