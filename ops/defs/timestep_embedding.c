/* timestep_embedding: the step of a diffusion as sines and cosines of falling frequencies. */
#include <math.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "features", .kind = CKPT_INT, .required = true, .help = "half sines, half cosines; an odd last one is 0"},
    {.name = "max_period", .kind = CKPT_FLOAT, .real = 10000, .help = "of the slowest feature, in 2 pi steps"},
    {.name = "flip", .kind = CKPT_BOOL, .integer = 0, .help = "cosines first"},
    {.name = "shift", .kind = CKPT_FLOAT, .real = 0, .help = "taken from the number of frequencies in the exponent"},
    {0},
};

double ckpt_timestep_fall(const ckpt_node *node)
{
    const int64_t half = ckpt_node_int(node, "features") / 2;
    return log(ckpt_node_float(node, "max_period")) / ((double)half - ckpt_node_float(node, "shift"));
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int64_t features = 0;
    double period = 0, shift = 0;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 1, "[B]", err));
    CKPT_TRY(ckpt_node_int_between(node, "features", 2, INT32_MAX, &features, err));
    CKPT_TRY(ckpt_node_float_between(node, "max_period", 1, HUGE_VAL, &period, err));
    CKPT_TRY(ckpt_node_float_between(node, "shift", 0, (double)(features / 2), &shift, err));
    const ckpt_shape y = {2, {node->in[0].shape.dim[0], features}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->backward_in = 1;
    node->forward_flop = ckpt_times(20, ckpt_shape_count(&y));
    node->backward_flop = ckpt_times(22, ckpt_shape_count(&y));
    return CKPT_OK;
}

const ckpt_op ckpt_op_timestep_embedding = {
    .name = "timestep_embedding",
    .formula = "y[b] = [sin(x[b] f_i), cos(x[b] f_i)], f_i = max_period^(-i / (features/2 - shift)), i < features/2",
    .source = "Ho, Jain, Abbeel 2020, arXiv:2006.11239; Hugging Face diffusers, get_timestep_embedding",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer,
};
