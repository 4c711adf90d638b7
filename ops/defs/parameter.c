/* parameter: a learned tensor as a value, for what is not part of another layer: a class token, a factor per channel,
 * queries. It reads no input: "in" is []. */
#include <string.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "shape", .kind = CKPT_INTS, .required = true, .help = "dims of the tensor; [] is a scalar"},
    {.name = "init", .kind = CKPT_STRING, .string = "zero", .words = "zero|one|normal", .help = "what it starts from"},
    {.name = "std", .kind = CKPT_FLOAT, .real = 0.02, .help = "standard deviation of init normal"},
    {.name = "decay", .kind = CKPT_BOOL, .integer = 0, .help = "weight decay applies"},
    {0},
};

static ckpt_code read_shape(const ckpt_node *node, ckpt_shape *shape, ckpt_err *err)
{
    const ckpt_attr *const attr = ckpt_node_attr(node, "shape");
    if (attr->int_count > CKPT_RANK_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"shape\" has %d dims, wanted at most %d", attr->int_count,
                         CKPT_RANK_MAX);
    }
    *shape = (ckpt_shape){.rank = attr->int_count};
    for (int d = 0; d < shape->rank; d++) {
        shape->dim[d] = attr->ints[d];
    }
    return CKPT_OK;
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const char *const word = ckpt_node_string(node, "init");
    const ckpt_init init = strcmp(word, "normal") == 0 ? CKPT_INIT_NORMAL
                           : strcmp(word, "one") == 0  ? CKPT_INIT_ONE
                                                       : CKPT_INIT_ZERO;
    ckpt_shape shape;
    double std = 0;
    CKPT_TRY(read_shape(node, &shape, err));
    /* Parameters lie as written, values of rank 4 channels last. */
    if (shape.rank == 4 && shape.dim[1] > 1 && (shape.dim[2] > 1 || shape.dim[3] > 1)) {
        char text[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "\"shape\" is %s, wanted [N, 1, H, W], [N, C, 1, 1], or another rank and a reshape behind it",
                         ckpt_shape_show(&shape, text));
    }
    CKPT_TRY(ckpt_node_float_between(node, "std", 0, 1e9, &std, err));
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &shape, err));
    return ckpt_node_add_param(node, "weight", &shape, init, std, ckpt_node_bool(node, "decay"), err);
}

const ckpt_op ckpt_op_parameter = {
    .name = "parameter",
    .formula = "y = w; dw = dy",
    .source = "torch.nn.Parameter",
    .attrs = attrs,
    .in_min = 0,
    .in_max = 0,
    .accumulates = true,
    .infer = infer,
};
