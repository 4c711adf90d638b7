/* split: a tensor cut into pieces along a dimension, into equal parts or into given sizes. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "axis", .kind = CKPT_INT, .integer = 1, .help = "dimension that is cut; negative from the end"},
    {.name = "parts",
     .kind = CKPT_INT,
     .integer = 0,
     .help = "number of equal pieces, 2 to 32; for more cut the pieces again"},
    {.name = "sizes",
     .kind = CKPT_INTS,
     .integer = 0,
     .help = "length of each piece, instead of parts; 2 to 32 of them"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int axis;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_axis(node, "axis", node->in[0].shape.rank, &axis, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t parts = ckpt_node_int(node, "parts"), length = x->dim[axis];
    const int size_count = ckpt_node_attr(node, "sizes")->int_count;
    const int64_t count = size_count > 0 ? size_count : parts;
    char shape[CKPT_SHAPE_TEXT];
    if ((parts != 0) == (size_count > 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "parts is %lld and sizes has %d numbers, wanted one of the two",
                         (long long)parts, size_count);
    }
    if (count < 2 || count > CKPT_OUT_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s gives %lld pieces, wanted 2 to %d pieces; for more cut the pieces again",
                         size_count > 0 ? "sizes" : "parts", (long long)count, CKPT_OUT_MAX);
    }
    if (size_count == 0 && length % parts != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "parts is %lld, wanted a divisor of dim %d of input 0 %s",
                         (long long)parts, axis, ckpt_shape_show(x, shape));
    }
    int64_t total = 0;
    for (int k = 0; k < (int)count; k++) {
        const int64_t size = size_count > 0 ? ckpt_node_int_at(node, "sizes", k) : length / parts;
        if (size < 1 || size > length - total) {
            total = -1;
            break;
        }
        total += size;
    }
    if (total != length) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "sizes, each at least 1, must add up to dim %d of input 0 %s", axis,
                         ckpt_shape_show(x, shape));
    }
    for (int k = 0; k < (int)count; k++) {
        ckpt_shape y = *x;
        y.dim[axis] = size_count > 0 ? ckpt_node_int_at(node, "sizes", k) : length / parts;
        CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    }
    node->native16 = true;
    return CKPT_OK;
}

const ckpt_op ckpt_op_split = {
    .name = "split",
    .formula = "[y0 y1 ...] = x along axis",
    .source = "ONNX Split; torch.split",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer,
};
