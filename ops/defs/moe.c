/* moe: a mixture of experts, each a gated feed-forward network, of which every token goes to the few that its router
 * rates highest, weighted by their probabilities. Beside y it gives the balancing loss. Rows of tokens are sorted by
 * expert, so that an expert's products are over rows that follow each other.
 *
 * Saved: the router's probabilities, how tokens went (ckpt_moe), and both products of an expert's first layer. Backward
 * gathers tokens again and recomputes what lies between those and the last layer. */
#include <math.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "experts", .kind = CKPT_INT, .required = true, .help = "number of experts"},
    {.name = "top", .kind = CKPT_INT, .integer = 2, .help = "experts that a token goes to; of equals the first"},
    {.name = "hidden", .kind = CKPT_INT, .required = true, .help = "width between an expert's layers"},
    {.name = "capacity",
     .kind = CKPT_FLOAT,
     .help = "an expert takes the first ceil(top tokens / experts * capacity) tokens that come; 0: all"},
    {.name = "normalize", .kind = CKPT_BOOL, .integer = 1, .help = "the weights of a token's experts sum to 1"},
    {.name = "activation", .kind = CKPT_STRING, .string = "silu", .words = "silu", .help = "of the gate"},
    {0},
};

ckpt_moe ckpt_moe_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const double capacity = ckpt_node_float(node, "capacity");
    ckpt_moe m = {.width = x->dim[x->rank - 1],
                  .experts = ckpt_node_int(node, "experts"),
                  .top = ckpt_node_int(node, "top"),
                  .hidden = ckpt_node_int(node, "hidden"),
                  .normalize = ckpt_node_bool(node, "normalize")};
    m.tokens = ckpt_shape_count(x) / m.width;
    const int64_t all = ckpt_times(m.tokens, m.top);
    const double asked = ceil((double)all / (double)m.experts * capacity);
    m.places = capacity > 0 && asked < (double)m.tokens ? (int64_t)asked : m.tokens;
    const int64_t padded = ckpt_plus(m.places, CKPT_MOE_ROWS - 1) / CKPT_MOE_ROWS * CKPT_MOE_ROWS;
    const int64_t bounded = ckpt_times(m.experts, padded);
    const int64_t shared = ckpt_plus(all, ckpt_times(m.experts, CKPT_MOE_ROWS - 1)) / CKPT_MOE_ROWS * CKPT_MOE_ROWS;
    m.rows = bounded < shared ? bounded : shared;
    m.slot = all;
    m.source = ckpt_plus(m.slot, all);
    m.count = ckpt_plus(m.source, m.rows);
    m.first = ckpt_plus(m.count, m.experts);
    m.numbers = ckpt_plus(m.first, m.experts + 1);
    return m;
}

static ckpt_code check(const ckpt_node *node, ckpt_err *err)
{
    int64_t experts = 0, top = 0, hidden = 0;
    double capacity = 0;
    const ckpt_shape *const x = &node->in[0].shape;
    char text[CKPT_SHAPE_TEXT];
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    if (x->rank < 2 || x->rank == 4) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "input 0 has shape %s, wanted [N, C] or [B, T, C]",
                         ckpt_shape_show(x, text));
    }
    CKPT_TRY(ckpt_node_int_between(node, "experts", 1, CKPT_MOE_EXPERTS, &experts, err));
    CKPT_TRY(ckpt_node_int_between(node, "top", 1, experts, &top, err));
    CKPT_TRY(ckpt_node_int_between(node, "hidden", 1, INT32_MAX, &hidden, err));
    return ckpt_node_float_between(node, "capacity", 0, 1e9, &capacity, err);
}

static ckpt_bytes most(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* Three products of each token for each of its experts, and the router's; twice that backward. The allowances are those
 * of kernels/cpu/moe.c: what it holds, then what its largest product takes. */
static void cost(ckpt_node *node, const ckpt_moe *m)
{
    const int64_t C = m->width, F = m->hidden, E = m->experts, all = ckpt_times(m->tokens, m->top);
    const int64_t weight = ckpt_times(C, F), route = ckpt_times(ckpt_times(m->tokens, C), E);
    const ckpt_flop products = ckpt_plus(ckpt_times(ckpt_times(all, weight), 6), ckpt_times(route, 2));
    const ckpt_flop around = ckpt_times(ckpt_plus(ckpt_times(all, F), ckpt_times(m->tokens, E)), 10);
    node->forward_flop = ckpt_plus(products, around);
    node->backward_flop = ckpt_plus(ckpt_times(products, 2), around);
    const int64_t wide = ckpt_times(ckpt_times(m->rows, C), 4), chunk = ckpt_times(ckpt_times(CKPT_MOE_CHUNK, F), 4);
    const ckpt_bytes expert = ckpt_product_workspace(node, CKPT_MOE_CHUNK, C, F, true);
    const ckpt_bytes router = ckpt_product_workspace(node, m->tokens, C, E, true), product = most(expert, router);
    const ckpt_bytes weights = ckpt_times(ckpt_plus(all, ckpt_times(m->tokens, E)), 4);
    node->forward_workspace_bytes = ckpt_plus(ckpt_plus(wide, chunk), ckpt_plus(4 * CKPT_ALIGN, product));
    node->backward_workspace_bytes = ckpt_plus(ckpt_plus(ckpt_times(wide, 2), ckpt_times(chunk, 3)),
                                               ckpt_plus(ckpt_plus(weights, 8 * CKPT_ALIGN), product));
    /* Of bfloat16 all tokens, the router, an expert's weights, a chunk's gates and ups are widened. */
    if (node->dtype == CKPT_BFLOAT16) {
        const ckpt_bytes tokens = ckpt_times(ckpt_times(m->tokens, C), 4);
        const ckpt_bytes own = ckpt_times(ckpt_plus(ckpt_times(E, C), ckpt_times(weight, 3)), 4);
        const ckpt_bytes copies = ckpt_plus(ckpt_plus(tokens, own), ckpt_plus(ckpt_times(chunk, 2), 8 * CKPT_ALIGN));
        node->forward_workspace_bytes = ckpt_plus(node->forward_workspace_bytes, copies);
        node->backward_workspace_bytes = ckpt_plus(node->backward_workspace_bytes, ckpt_plus(copies, tokens));
    }
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(check(node, err));
    const ckpt_moe m = ckpt_moe_of(node);
    if (m.numbers > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%lld tokens for %lld experts each: more rows than 31 bits can count",
                         (long long)m.tokens, (long long)m.top);
    }
    const int64_t C = m.width, F = m.hidden, E = m.experts;
    const ckpt_shape scalar = {.rank = 0}, probabilities = {2, {m.tokens, E}}, routes = {1, {m.numbers}};
    const ckpt_shape inner = {2, {m.rows, F}}, router = {2, {E, C}}, in = {3, {E, F, C}}, out = {3, {E, C, F}};
    const double narrow = 1 / sqrt((double)C), wide = 1 / sqrt((double)F);
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &node->in[0].shape, err));
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &scalar, err));
    CKPT_TRY(ckpt_node_add_saved(node, "probabilities", CKPT_FLOAT32, &probabilities, err));
    CKPT_TRY(ckpt_node_add_saved(node, "routes", CKPT_INT32, &routes, err));
    CKPT_TRY(ckpt_node_add_saved(node, "gates", node->dtype, &inner, err));
    CKPT_TRY(ckpt_node_add_saved(node, "ups", node->dtype, &inner, err));
    CKPT_TRY(ckpt_node_add_param(node, "router", &router, CKPT_INIT_UNIFORM, narrow, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "gate", &in, CKPT_INIT_UNIFORM, narrow, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "up", &in, CKPT_INIT_UNIFORM, narrow, true, err));
    CKPT_TRY(ckpt_node_add_param(node, "down", &out, CKPT_INIT_UNIFORM, wide, true, err));
    for (int k = 1; k < node->param_count; k++) {
        node->param[k].stack = E; /* an expert's matrix after the other */
    }
    node->native16 = true;
    node->backward_in = 1;
    node->backward_saved = 15;
    cost(node, &m);
    return CKPT_OK;
}

/* As kernels/cuda/moe.cu lays them out: rows of tokens and of the inner width, sums of probabilities, gradients of
 * weights and logits; then what the router's products and those sums take. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_moe m = ckpt_moe_of(node);
    const int64_t size = ckpt_dtype_bytes(node->dtype);
    const ckpt_bytes tokens = ckpt_aligned(ckpt_times(ckpt_times(m.rows, m.width), size));
    const ckpt_bytes inner = ckpt_aligned(ckpt_times(ckpt_times(m.rows, m.hidden), size));
    const ckpt_bytes sums = ckpt_aligned(ckpt_times(m.experts, 4));
    const ckpt_bytes weights = ckpt_aligned(ckpt_times(ckpt_times(m.tokens, m.top), 4));
    const ckpt_bytes logits = ckpt_aligned(ckpt_times(ckpt_times(m.tokens, m.experts), size));
    const ckpt_bytes product = ckpt_gpu_product_workspace(m.tokens, m.width, m.experts);
    const ckpt_bytes parts = ckpt_gpu_column_sums_workspace(m.tokens, m.experts);
    *forward = ckpt_plus(ckpt_plus(tokens, inner), ckpt_plus(sums, most(product, parts)));
    *backward = ckpt_plus(ckpt_times(tokens, 2), ckpt_times(inner, 3));
    *backward = ckpt_plus(*backward, ckpt_plus(ckpt_plus(weights, logits), product));
}

const ckpt_op ckpt_op_moe = {
    .name = "moe",
    .formula = "y = sum over the top experts e of w_e W_down (silu(W_gate x) W_up x), w of softmax(W_router x); "
               "aux = experts sum_e f_e mean(p_e), f_e: tokens that go to e / tokens",
    .source = "Jiang et al. 2024, arXiv:2401.04088; loss: Fedus et al. 2021, arXiv:2101.03961, equation 4, summed over "
              "the top as transformers' Mixtral does",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
