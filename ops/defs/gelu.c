/* GELU: the model to copy for an op that works element by element. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "approximate",
     .kind = CKPT_STRING,
     .string = "none",
     .words = "none|tanh|sigmoid",
     .help = "none: the error function; tanh and sigmoid: its approximations"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_elementwise(node, 10, 20, err));
    node->by_element = true;
    node->backward_in = 1u << 0;
    return CKPT_OK;
}

const ckpt_op ckpt_op_gelu = {
    .name = "gelu",
    .formula = "y = x/2 (1 + erf(x / sqrt(2))); tanh: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); "
               "sigmoid: y = x / (1 + exp(-1.702 x))",
    .source = "Hendrycks & Gimpel 2016, arXiv:1606.08415",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .backward_inplace = 1u << 0,
    .infer = infer,
};
