/* Functions of one element with nothing else to say: activations, exp, pow. Those whose slope follows from the output
 * read that, so that an in-place run loses nothing. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec elu_attrs[] = {
    {.name = "alpha", .kind = CKPT_FLOAT, .real = 1, .help = "-alpha is the limit below, alpha at least 0"},
    {0},
};

static const ckpt_attr_spec leaky_relu_attrs[] = {
    {.name = "negative_slope", .kind = CKPT_FLOAT, .real = 0.01, .help = "slope below 0, at least 0"},
    {0},
};

static const ckpt_attr_spec softplus_attrs[] = {
    {.name = "beta", .kind = CKPT_FLOAT, .real = 1, .help = "how sharp the bend is, above 0"},
    {.name = "threshold", .kind = CKPT_FLOAT, .real = 20, .help = "y = x where beta x is above this"},
    {0},
};

static const ckpt_attr_spec pow_attrs[] = {
    {.name = "exponent", .kind = CKPT_FLOAT, .required = true, .help = "a constant; a fraction wants x >= 0"},
    {0},
};

static ckpt_code read_input(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    node->backward_in = 1u << 0;
    node->by_element = true;
    return ckpt_node_elementwise(node, forward_flop, backward_flop, err);
}

static ckpt_code read_output(ckpt_node *node, int forward_flop, int backward_flop, ckpt_err *err)
{
    node->backward_out = 1u << 0;
    node->by_element = true;
    return ckpt_node_elementwise(node, forward_flop, backward_flop, err);
}

static ckpt_code infer_hardswish(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return read_input(node, 4, 5, err);
}

static ckpt_code infer_elu(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    double alpha = 0;
    CKPT_TRY(ckpt_node_float_between(node, "alpha", 0, 1e9, &alpha, err));
    return read_output(node, 10, 3, err);
}

static ckpt_code infer_leaky_relu(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    double slope = 0;
    CKPT_TRY(ckpt_node_float_between(node, "negative_slope", 0, 1e9, &slope, err));
    return read_output(node, 2, 2, err);
}

static ckpt_code infer_softplus(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    double beta = 0;
    CKPT_TRY(ckpt_node_float_between(node, "beta", 1e-9, 1e9, &beta, err));
    return read_input(node, 25, 12, err);
}

static ckpt_code infer_exp(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return read_output(node, 8, 1, err);
}

static ckpt_code infer_pow(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return read_input(node, 20, 22, err);
}

const ckpt_op ckpt_op_hardswish = {
    .name = "hardswish",
    .formula = "y = x min(max(x + 3, 0), 6) / 6",
    .source = "Howard et al. 2019, arXiv:1905.02244",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .backward_inplace = 1u << 0,
    .infer = infer_hardswish,
};

const ckpt_op ckpt_op_elu = {
    .name = "elu",
    .formula = "y = x where x > 0, else alpha (exp(x) - 1); dx = dy where y > 0, else dy (y + alpha)",
    .source = "Clevert et al. 2015, arXiv:1511.07289",
    .attrs = elu_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer_elu,
};

const ckpt_op ckpt_op_leaky_relu = {
    .name = "leaky_relu",
    .formula = "y = x where x > 0, else negative_slope x; dx = dy where y > 0, else negative_slope dy",
    .source = "Maas et al., ICML 2013 workshop; torch.nn.LeakyReLU",
    .attrs = leaky_relu_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer_leaky_relu,
};

const ckpt_op ckpt_op_softplus = {
    .name = "softplus",
    .formula = "y = log(1 + exp(beta x)) / beta, x where beta x > threshold",
    .source = "torch.nn.Softplus",
    .attrs = softplus_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .backward_inplace = 1u << 0,
    .infer = infer_softplus,
};

const ckpt_op ckpt_op_exp = {
    .name = "exp",
    .formula = "y = exp(x); dx = dy y",
    .source = "torch.exp",
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer_exp,
};

const ckpt_op ckpt_op_pow = {
    .name = "pow",
    .formula = "y = x^exponent; dx = dy exponent x^(exponent - 1)",
    .source = "torch.pow with a number as exponent",
    .attrs = pow_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .backward_inplace = 1u << 0,
    .infer = infer_pow,
};
