/* Element by element, reductions, softmax. */
#include <math.h>
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"

/* ---- two operands ---- */

/* x op c and c op x, c one number. */
static ckpt_code with_number(onnx_importer *m, const onnx_value *x, double c, bool first, onnx_value *y)
{
    switch (m->node->op_type[0]) {
    case 'A': return onnx_scale(m, 1, c, x, y);
    case 'S': return first ? onnx_scale(m, -1, c, x, y) : onnx_scale(m, 1, -c, x, y);
    case 'M': return onnx_scale(m, c, 0, x, y);
    default: break;
    }
    if (!first) {
        return onnx_scale(m, 1 / c, 0, x, y);
    }
    CKPT_TRY(onnx_real(m, "pow", "exponent", -1, x, y));
    return onnx_scale(m, c, 0, y, y);
}

/* A vector along the last dim goes below a reshape to rank 4. */
static ckpt_code add_binary(onnx_importer *m, onnx_call *call, onnx_value *y)
{
    for (int k = 0; k < 2; k++) {
        const onnx_value *const vector = &call->in[1 - k];
        const ckpt_shape shape = call->in[k].shape;
        onnx_value source;
        if (shape.rank == 4 && vector->shape.rank == 1 && vector->shape.dim[0] == shape.dim[3] &&
            onnx_beneath(m, &call->in[k], &source) && source.shape.dim[source.shape.rank - 1] == shape.dim[3]) {
            call->in[k] = source;
            CKPT_TRY(onnx_add(m, call, y));
            return onnx_reshape(m, y, &shape, y);
        }
    }
    return onnx_add(m, call, y);
}

static ckpt_code lower_binary(onnx_importer *m)
{
    static const char *const names[][2] = {{"Add", "add"}, {"Sub", "sub"}, {"Mul", "mul"}, {"Div", "div"}};
    onnx_value *value[2], y;
    double c = 0;
    for (int k = 0; k < 2; k++) {
        CKPT_TRY(onnx_input(m, k, &value[k]));
    }
    for (int k = 0; k < 2; k++) {
        const onnx_value *const x = value[1 - k];
        if (onnx_scalar(m, value[k], &c) && value[k]->shape.rank <= x->shape.rank && (x->made || x->learned)) {
            onnx_value in;
            CKPT_TRY(onnx_as_layer(m, value[1 - k], &in));
            CKPT_TRY(with_number(m, &in, c, k == 0, &y));
            return onnx_name(m, 0, &y);
        }
    }
    onnx_call call = {.in_count = 2};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(m->node->op_type, names[i][0]) == 0) {
            call.op = names[i][1];
        }
    }
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_operand(m, 1, &call.in[1]));
    CKPT_TRY(add_binary(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_sum(onnx_importer *m)
{
    onnx_call call = {.op = "add", .in_count = (int)m->node->n_input};
    onnx_value y;
    if (m->node->n_input < 2 || m->node->n_input > ONNX_IN_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%zu inputs, wanted 2 to %d", m->node->n_input, ONNX_IN_MAX);
    }
    for (int k = 0; k < call.in_count; k++) {
        CKPT_TRY(onnx_operand(m, k, &call.in[k]));
    }
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

/* ---- one operand ---- */

static ckpt_code lower_function(onnx_importer *m)
{
    static const char *const names[][2] = {{"Relu", "relu"}, {"Sigmoid", "sigmoid"},     {"Tanh", "tanh"},
                                           {"Exp", "exp"},   {"HardSwish", "hardswish"}, {"Softplus", "softplus"}};
    onnx_value x, y;
    int i = 0;
    while (strcmp(m->node->op_type, names[i][0]) != 0) {
        i++;
    }
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_plain(m, names[i][1], &x, &y));
    return onnx_name(m, 0, &y);
}

/* x sigmoid(x) is silu, where nothing else reads the sigmoid. */
static ckpt_code lower_sigmoid(onnx_importer *m)
{
    int at = 0;
    onnx_value x, y;
    CKPT_TRY(onnx_operand(m, 0, &x));
    const Onnx__NodeProto *const times = onnx_only_reader(m, m->node->output[0], &at);
    const bool two = times != NULL && strcmp(times->op_type, "Mul") == 0 && times->n_input == 2 && times->n_output == 1;
    const int k = two && strcmp(times->input[0], m->node->output[0]) == 0 ? 1 : 0;
    if (!two || strcmp(times->input[k], m->node->input[0]) != 0) {
        return lower_function(m);
    }
    CKPT_TRY(onnx_plain(m, "silu", &x, &y));
    m->skipped[at] = true;
    const Onnx__NodeProto *const node = m->node;
    m->node = times;
    const ckpt_code code = onnx_name(m, 0, &y);
    m->node = node;
    return code;
}

static ckpt_code lower_slope(onnx_importer *m)
{
    const bool elu = m->node->op_type[0] == 'E';
    onnx_value x, y;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(elu ? onnx_real(m, "elu", "alpha", onnx_attr_real(m, "alpha", 1), &x, &y)
                 : onnx_real(m, "leaky_relu", "negative_slope", onnx_attr_real(m, "alpha", 0.01), &x, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_gelu(onnx_importer *m)
{
    onnx_call call = {.op = "gelu", .in_count = 1};
    onnx_value y;
    CKPT_TRY(onnx_attr_words(m, "approximate", "none|tanh"));
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    onnx_call_word(&call, "approximate", onnx_attr_is(m, "approximate", "tanh") ? "tanh" : "none");
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_power(onnx_importer *m)
{
    const char *const op = m->node->op_type;
    onnx_value x, y, *exponent = NULL;
    double power = strcmp(op, "Sqrt") == 0 ? 0.5 : -1;
    CKPT_TRY(onnx_operand(m, 0, &x));
    if (strcmp(op, "Pow") == 0) {
        CKPT_TRY(onnx_input(m, 1, &exponent));
        if (!onnx_scalar(m, exponent, &power)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "the exponent \"%.80s\" is no constant number", exponent->name);
        }
    }
    CKPT_TRY(onnx_real(m, "pow", "exponent", power, &x, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_neg(onnx_importer *m)
{
    onnx_value x, y;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_scale(m, -1, 0, &x, &y));
    return onnx_name(m, 0, &y);
}

/* Between 0 and 1: relu6 at a sixth of the size. */
static ckpt_code lower_hardsigmoid(onnx_importer *m)
{
    onnx_value x, y;
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_scale(m, 6 * onnx_attr_real(m, "alpha", 0.2), 6 * onnx_attr_real(m, "beta", 0.5), &x, &y));
    CKPT_TRY(onnx_plain(m, "relu6", &y, &y));
    CKPT_TRY(onnx_scale(m, 1.0 / 6, 0, &y, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_clip(onnx_importer *m)
{
    onnx_value x, y, *bound = NULL;
    double low = -INFINITY, high = INFINITY;
    for (int k = 1; k < 3; k++) {
        if (onnx_has_input(m, k)) {
            CKPT_TRY(onnx_input(m, k, &bound));
            if (!onnx_scalar(m, bound, k == 1 ? &low : &high)) {
                return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "the bound \"%.80s\" is no constant number", bound->name);
            }
        }
    }
    if (low != 0 || (high != 6 && high < 3e38)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "clips to %g to %g, wanted 0 to 6, or 0 without an end", low, high);
    }
    CKPT_TRY(onnx_operand(m, 0, &x));
    CKPT_TRY(onnx_plain(m, high == 6 ? "relu6" : "relu", &x, &y));
    return onnx_name(m, 0, &y);
}

/* ---- x / 2 (1 + erf(x / sqrt 2)) ---- */

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-4;
}

/* The node is an Add, Mul or Div of `name` and a number near `wanted`. */
static bool is_with(onnx_importer *m, const Onnx__NodeProto *node, const char *op, const char *name, double wanted)
{
    double number = 0;
    for (size_t k = 0; node != NULL && node->n_input == 2 && strcmp(node->op_type, op) == 0 && k < 2; k++) {
        onnx_value *const other = onnx_find(m, node->input[1 - k]);
        if (strcmp(node->input[k], name) == 0 && other != NULL && onnx_scalar(m, other, &number)) {
            return is_near(number, wanted);
        }
    }
    return false;
}

static const Onnx__NodeProto *maker_of(const onnx_importer *m, const char *name)
{
    for (int n = 0; n < m->node_index; n++) {
        const Onnx__NodeProto *const node = m->graph->node[n];
        for (size_t k = 0; k < node->n_output; k++) {
            if (strcmp(node->output[k], name) == 0) {
                return node;
            }
        }
    }
    return NULL;
}

/* Erf's nodes: x / sqrt 2 before it, + 1, times x, times 1/2 behind, where x may be halved already. Of one reader each. */
static ckpt_code lower_erf(onnx_importer *m)
{
    int at[3] = {0, 0, 0};
    const Onnx__NodeProto *const before = maker_of(m, m->node->n_input > 0 ? m->node->input[0] : "");
    const Onnx__NodeProto *const add = onnx_only_reader(m, m->node->output[0], &at[0]);
    const char *x = NULL;
    for (size_t k = 0; before != NULL && k < before->n_input; k++) {
        if ((k == 0 && is_with(m, before, "Div", before->input[0], sqrt(2.0))) ||
            is_with(m, before, "Mul", before->input[k], sqrt(0.5))) {
            x = before->input[k];
        }
    }
    const Onnx__NodeProto *const times =
        x != NULL && is_with(m, add, "Add", m->node->output[0], 1) && add->n_output == 1
            ? onnx_only_reader(m, add->output[0], &at[1])
            : NULL;
    if (times != NULL && strcmp(times->op_type, "Mul") == 0 && times->n_input == 2 && times->n_output == 1) {
        const int k = strcmp(times->input[0], add->output[0]) == 0 ? 1 : 0;
        const Onnx__NodeProto *last = times;
        int nodes = 2;
        bool exact = is_with(m, maker_of(m, times->input[k]), "Mul", x, 0.5);
        if (!exact && strcmp(times->input[k], x) == 0) {
            last = onnx_only_reader(m, times->output[0], &at[2]);
            exact = is_with(m, last, "Mul", times->output[0], 0.5) && last->n_output == 1;
            nodes = 3;
        }
        onnx_value *const from = onnx_find(m, x);
        if (exact && from != NULL && from->made) {
            onnx_value y;
            CKPT_TRY(onnx_plain(m, "gelu", from, &y));
            for (int i = 0; i < nodes; i++) {
                m->skipped[at[i]] = true;
            }
            const Onnx__NodeProto *const node = m->node;
            m->node = last;
            const ckpt_code code = onnx_name(m, 0, &y);
            m->node = node;
            return code;
        }
    }
    return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "is supported in x / 2 (1 + erf(x / sqrt 2)) alone, which is gelu");
}

/* ---- along dims ---- */

static ckpt_code lower_softmax(onnx_importer *m)
{
    onnx_call call = {.op = m->node->op_type[0] == 'L' ? "log_softmax" : "softmax", .in_count = 1};
    onnx_value y;
    int64_t axis = -1;
    int dim = 0;
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_attr_int(m, "axis", -1, &axis));
    CKPT_TRY(onnx_axis(m, axis, call.in[0].shape.rank, &dim));
    const ckpt_shape shape = call.in[0].shape;
    onnx_value source;
    if (dim == 3 && onnx_beneath(m, &call.in[0], &source) && source.shape.dim[source.shape.rank - 1] == shape.dim[3]) {
        call.in[0] = source;
        dim = source.shape.rank - 1;
    }
    onnx_call_int(&call, "axis", dim);
    CKPT_TRY(onnx_add(m, &call, &y));
    CKPT_TRY(onnx_reshape(m, &y, &shape, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_reduce(onnx_importer *m)
{
    const char what = m->node->op_type[7]; /* ReduceMax, ReduceMean, ReduceSum */
    onnx_call call = {.op = what == 'a' ? "max" : what == 'e' ? "mean" : "sum", .in_count = 1};
    onnx_value y;
    int64_t axes[CKPT_RANK_MAX], keep = 1, idle = 0;
    int count = 0;
    bool done = false;
    CKPT_TRY(what == 'e' ? onnx_whole_layernorm(m, &done) : CKPT_OK);
    if (done) {
        return CKPT_OK;
    }
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_ints(m, "axes", 1, axes, CKPT_RANK_MAX, &count));
    CKPT_TRY(onnx_attr_int(m, "keepdims", 1, &keep));
    CKPT_TRY(onnx_attr_int(m, "noop_with_empty_axes", 0, &idle));
    if (count <= 0 && idle != 0) {
        return onnx_name(m, 0, &call.in[0]);
    }
    if (count > 0) {
        CKPT_TRY(onnx_call_ints(m, &call, "axis", axes, count));
    }
    onnx_call_flag(&call, "keepdim", keep != 0);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

static ckpt_code lower_cumsum(onnx_importer *m)
{
    onnx_call call = {.op = "cumsum", .in_count = 1};
    onnx_value y;
    int64_t axis = 0, exclusive = 0, reverse = 0;
    int count = 0;
    CKPT_TRY(onnx_operand(m, 0, &call.in[0]));
    CKPT_TRY(onnx_ints(m, NULL, 1, &axis, 1, &count));
    CKPT_TRY(onnx_attr_int(m, "exclusive", 0, &exclusive));
    CKPT_TRY(onnx_attr_int(m, "reverse", 0, &reverse));
    if (count != 1 || exclusive != 0 || reverse != 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "is exclusive, reverse or of no constant axis");
    }
    onnx_call_int(&call, "axis", axis);
    CKPT_TRY(onnx_add(m, &call, &y));
    return onnx_name(m, 0, &y);
}

const onnx_rule onnx_point_rules[] = {
    {"Add", lower_binary},
    {"Sub", lower_binary},
    {"Mul", lower_binary},
    {"Div", lower_binary},
    {"Sum", lower_sum},
    {"Relu", lower_function},
    {"Sigmoid", lower_sigmoid},
    {"Tanh", lower_function},
    {"Exp", lower_function},
    {"HardSwish", lower_function},
    {"HardSigmoid", lower_hardsigmoid},
    {"Softplus", lower_function},
    {"Elu", lower_slope},
    {"LeakyRelu", lower_slope},
    {"Gelu", lower_gelu},
    {"Erf", lower_erf},
    {"Pow", lower_power},
    {"Sqrt", lower_power},
    {"Reciprocal", lower_power},
    {"Neg", lower_neg},
    {"Clip", lower_clip},
    {"Softmax", lower_softmax},
    {"LogSoftmax", lower_softmax},
    {"ReduceMean", lower_reduce},
    {"ReduceSum", lower_reduce},
    {"ReduceMax", lower_reduce},
    {"CumSum", lower_cumsum},
    {0},
};
