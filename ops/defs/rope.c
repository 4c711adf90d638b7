/* Rotary position embedding: pairs of a head's features are turned by an angle that grows with the position. Backward
 * turns the gradient the other way and reads nothing. */
#include <math.h>
#include <string.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "heads", .kind = CKPT_INT, .required = true, .help = "heads in the last dim"},
    {.name = "base", .kind = CKPT_FLOAT, .real = 10000, .help = "of the geometric series of frequencies"},
    {.name = "layout",
     .kind = CKPT_STRING,
     .string = "half",
     .words = "half|interleaved",
     .help = "half: feature i turns with i + rotary/2 (GPT-NeoX, Llama of Hugging Face); interleaved: 2i with 2i + 1"},
    {.name = "rotary",
     .kind = CKPT_INT,
     .integer = 0,
     .help = "features of a head that turn, the first ones: even, at most 512; 0: all"},
    {.name = "scaling",
     .kind = CKPT_STRING,
     .string = "none",
     .words = "none|linear|llama3",
     .help = "linear: all frequencies are divided by factor; llama3: the low ones, smoothly"},
    {.name = "factor", .kind = CKPT_FLOAT, .real = 1, .help = "of the scaling"},
    {.name = "low_freq_factor",
     .kind = CKPT_FLOAT,
     .real = 1,
     .help = "llama3: below so many turns in the original positions, a frequency is divided by factor"},
    {.name = "high_freq_factor", .kind = CKPT_FLOAT, .real = 4, .help = "llama3: above so many it is kept"},
    {.name = "original", .kind = CKPT_INT, .integer = 8192, .help = "llama3: positions before scaling"},
    {0},
};

static bool scaled_by(const ckpt_node *node, const char *scaling)
{
    return strcmp(ckpt_node_string(node, "scaling"), scaling) == 0;
}

int64_t ckpt_rope_rotary(const ckpt_node *node)
{
    const int64_t given = ckpt_node_int(node, "rotary");
    return given > 0 ? given : node->in[0].shape.dim[2] / ckpt_node_int(node, "heads");
}

double ckpt_rope_turns(const ckpt_node *node, int64_t pair)
{
    const double pi = 3.14159265358979323846;
    const double exponent = -2 * (double)pair / (double)ckpt_rope_rotary(node);
    const double turns = pow(ckpt_node_float(node, "base"), exponent) / (2 * pi);
    const double factor = ckpt_node_float(node, "factor");
    if (scaled_by(node, "linear")) {
        return turns / factor;
    }
    if (scaled_by(node, "llama3")) {
        const double low = ckpt_node_float(node, "low_freq_factor"), high = ckpt_node_float(node, "high_freq_factor");
        const double kept = ((double)ckpt_node_int(node, "original") * turns - low) / (high - low);
        const double share = kept < 0 ? 0 : kept > 1 ? 1 : kept;
        return (1 - share) * turns / factor + share * turns;
    }
    return turns;
}

static ckpt_code check_scaling(const ckpt_node *node, ckpt_err *err)
{
    double base = 0, factor = 0, low = 0, high = 0;
    int64_t original = 0;
    CKPT_TRY(ckpt_node_float_between(node, "base", 1, HUGE_VAL, &base, err));
    CKPT_TRY(ckpt_node_float_between(node, "factor", 1, HUGE_VAL, &factor, err));
    CKPT_TRY(ckpt_node_float_between(node, "low_freq_factor", 0, HUGE_VAL, &low, err));
    CKPT_TRY(ckpt_node_float_between(node, "high_freq_factor", 0, HUGE_VAL, &high, err));
    CKPT_TRY(ckpt_node_int_between(node, "original", 1, INT32_MAX, &original, err));
    return high > low ? CKPT_OK
                      : CKPT_FAIL(err, CKPT_BAD_INPUT,
                                  "low_freq_factor is %g and high_freq_factor %g, wanted a larger one", low, high);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 3, "[B, T, heads * D]", err));
    CKPT_TRY(check_scaling(node, err));
    const ckpt_shape *const x = &node->in[0].shape;
    int64_t heads = 0, given = 0;
    CKPT_TRY(ckpt_node_int_between(node, "heads", 1, INT32_MAX, &heads, err));
    CKPT_TRY(ckpt_node_int_between(node, "rotary", 0, CKPT_ROPE_MAX, &given, err));
    char text[CKPT_SHAPE_TEXT];
    if (x->dim[2] % heads != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "heads is %lld, input 0 is %s: wanted a divisor of %lld",
                         (long long)heads, ckpt_shape_show(x, text), (long long)x->dim[2]);
    }
    const int64_t head = x->dim[2] / heads, rotary = ckpt_rope_rotary(node);
    if (rotary % 2 != 0 || rotary > head || rotary > CKPT_ROPE_MAX) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%lld of %lld features of a head would turn, wanted an even number, at most %d and all of them",
            (long long)rotary, (long long)head, CKPT_ROPE_MAX);
    }
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, x, err));
    node->forward_flop = ckpt_times(3, ckpt_shape_count(x));
    node->backward_flop = node->forward_flop;
    node->native16 = true;
    /* Per thread, of each pair: sine and cosine as doubles and as floats, and of bfloat16 two heads as floats; of all
     * threads, what a position adds. */
    const ckpt_bytes pairs = ckpt_times(24, rotary / 2), two = node->dtype == CKPT_BFLOAT16 ? ckpt_times(8, head) : 0;
    const ckpt_bytes own = ckpt_times(node->threads, ckpt_plus(pairs, two));
    node->forward_workspace_bytes = ckpt_plus(pairs, own);
    node->backward_workspace_bytes = node->forward_workspace_bytes;
    return CKPT_OK;
}

const ckpt_op ckpt_op_rope = {
    .name = "rope",
    .formula = "(y_a, y_b) = (x_a cos - x_b sin, x_b cos + x_a sin) for each pair, angle t base^(-2 i / rotary) at "
               "position t",
    .source =
        "Su et al. 2021, arXiv:2104.09864, eq. 34; scaling: Hugging Face transformers, rope_type linear and llama3",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .inplace = 1u << 0,
    .infer = infer,
};
