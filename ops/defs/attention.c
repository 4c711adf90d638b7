/* attention: multi-head scaled dot-product attention. It keeps the logarithm of every row's sum of exponentials
 * instead of the T x S probabilities; backward recomputes them, some queries of one head at a time. */
#include <math.h>

#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "heads", .kind = CKPT_INT, .required = true, .help = "of the queries"},
    {.name = "kv_heads", .kind = CKPT_INT, .integer = 0, .help = "of keys and values, divides heads; 0: heads"},
    {.name = "causal", .kind = CKPT_BOOL, .integer = 0, .help = "a position sees only itself and those before it"},
    {.name = "window",
     .kind = CKPT_INT,
     .integer = 0,
     .help = "causal: a position sees so many, the last itself; 0: all"},
    {.name = "dropout", .kind = CKPT_FLOAT, .real = 0, .help = "probability that an attention weight is dropped"},
    {.name = "scale", .kind = CKPT_FLOAT, .real = 0, .help = "of the scores; 0: 1 / sqrt(D)"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 0, .help = "an input [heads, T, S] is added to the scores"},
    {.name = "mask", .kind = CKPT_BOOL, .integer = 0, .help = "an int32 input says what is seen: 1, or 0 for not"},
    {0},
};

/* S keys in panels of about the same size. */
static int64_t panel_of(int64_t S)
{
    enum { LINE = 16, MOST = 31 * LINE };
    const int64_t panels = (ckpt_plus(S, MOST) - 1) / MOST, even = (ckpt_plus(S, panels) - 1) / panels;
    return ckpt_round_up(even + LINE, 2 * LINE) - LINE;
}

ckpt_attention_sizes ckpt_attention_sizes_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int extras = ckpt_node_bool(node, "bias") + ckpt_node_bool(node, "mask");
    const int64_t heads = ckpt_node_int(node, "heads"), kv_heads = ckpt_node_int(node, "kv_heads");
    ckpt_attention_sizes s = {.B = x->dim[0], .T = x->dim[1], .heads = heads};
    s.kv_heads = kv_heads == 0 ? heads : kv_heads;
    s.fused = node->in_count - extras == 1;
    s.S = s.fused ? s.T : node->in[1].shape.dim[1];
    s.D = x->dim[2] / (s.fused ? heads + 2 * s.kv_heads : heads);
    s.q_row = x->dim[2];
    s.kv_row = s.fused ? x->dim[2] : node->in[1].shape.dim[2];
    s.k_at = s.fused ? heads * s.D : 0;
    s.v_at = s.fused ? (heads + s.kv_heads) * s.D : 0;
    s.panel = panel_of(s.S);
    s.window = ckpt_node_int(node, "window");
    s.causal = ckpt_node_bool(node, "causal");
    s.scale = ckpt_node_float(node, "scale");
    s.scale = s.scale == 0 ? 1 / sqrt((double)s.D) : s.scale;
    s.mask = ckpt_node_bool(node, "mask") ? node->in_count - 1 : -1;
    s.bias = ckpt_node_bool(node, "bias") ? node->in_count - extras : -1;
    if (s.mask >= 0) {
        const ckpt_shape *const mask = &node->in[s.mask].shape;
        s.mask_count = mask->dim[0];
        s.mask_step = mask->rank == 2 ? s.S : s.T * s.S;
        s.mask_row = mask->rank == 2 ? 0 : s.S;
    }
    return s;
}

/* Up to a multiple of 64, saturating. */
static int64_t padded(int64_t n)
{
    return ckpt_plus(n, 63) / 64 * 64;
}

/* Per thread, each piece rounded up to 64 elements: forward one head's values [S, D] and its keys in whole panels, 32
 * queries and their probabilities [32, panel], and of bfloat16 their outputs; backward three of [S, D], two in panels, three of [32, D] and two of
 * [32, panel]; a row of random words for dropout.
 * Never more threads than there are heads of queries in forward, of keys in backward; with a bias a thread has a head of
 * all sequences there. */
static void allow_workspace(ckpt_node *node, const ckpt_attention_sizes *s)
{
    const int64_t rows = s->T < 32 ? s->T : 32, threads = node->threads;
    const int64_t head = padded(ckpt_times(s->S, s->D)), small = padded(ckpt_times(rows, s->D));
    const int64_t whole = ckpt_times((ckpt_plus(s->S, s->panel) - 1) / s->panel, s->panel);
    const int64_t turned = padded(ckpt_times(whole, s->D)), wide = padded(rows * s->panel);
    const int64_t words = ckpt_node_float(node, "dropout") > 0 ? padded(s->panel + 4) : 0;
    const int64_t y = node->native16 && node->dtype == CKPT_BFLOAT16 ? small : 0;
    const int64_t forward = ckpt_plus(ckpt_plus(ckpt_plus(head, turned), ckpt_plus(small, y)), wide + words);
    const int64_t backward = ckpt_plus(ckpt_plus(ckpt_times(head, 3), ckpt_times(turned, 2)),
                                       ckpt_plus(ckpt_times(small, 3), 2 * wide + words));
    const int64_t queries = ckpt_times(s->B, s->heads), keys = ckpt_times(s->bias >= 0 ? 1 : s->B, s->kv_heads);
    node->forward_workspace_bytes = ckpt_times(forward, 4 * (queries < threads ? queries : threads));
    node->backward_workspace_bytes = ckpt_times(backward, 4 * (keys < threads ? keys : threads));
}

static ckpt_code check_attributes(const ckpt_node *node, ckpt_err *err)
{
    int64_t heads = 0, kv_heads = 0, window = 0;
    double real = 0;
    CKPT_TRY(ckpt_node_int_between(node, "heads", 1, INT32_MAX, &heads, err));
    CKPT_TRY(ckpt_node_int_between(node, "kv_heads", 0, heads, &kv_heads, err));
    CKPT_TRY(ckpt_node_int_between(node, "window", 0, INT32_MAX, &window, err));
    CKPT_TRY(ckpt_node_float_between(node, "dropout", 0, 1, &real, err));
    CKPT_TRY(ckpt_node_float_between(node, "scale", 0, 1e6, &real, err));
    if (kv_heads != 0 && heads % kv_heads != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "kv_heads is %lld, wanted a divisor of heads, %lld", (long long)kv_heads,
                         (long long)heads);
    }
    if (window > 0 && !ckpt_node_bool(node, "causal")) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "window is %lld, but causal is false", (long long)window);
    }
    return CKPT_OK;
}

/* Query, key and value: their types, ranks and widths. */
static ckpt_code check_inputs(const ckpt_node *node, int own, ckpt_err *err)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t heads = ckpt_node_int(node, "heads"), given = ckpt_node_int(node, "kv_heads");
    const int64_t kv_heads = given == 0 ? heads : given, parts = own == 1 ? heads + 2 * kv_heads : heads;
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    if ((own != 1 && own != 3) || x->rank != 3) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%d input%s of %s, wanted query, key and value [B, T, C] or the three side by side, then the "
                         "bias and the mask that the attributes tell of",
                         node->in_count, node->in_count == 1 ? "" : "s", ckpt_shape_show(x, a));
    }
    for (int k = 0; k < own; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
    }
    if (x->dim[2] % parts != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "heads is %lld, kv_heads %lld, wanted %lld equal parts of input 0 %s",
                         (long long)heads, (long long)kv_heads, (long long)parts, ckpt_shape_show(x, a));
    }
    for (int k = 1; k < own; k++) {
        const ckpt_shape *const other = &node->in[k].shape;
        const ckpt_shape wanted = {3, {x->dim[0], node->in[1].shape.dim[1], x->dim[2] / heads * kv_heads}};
        if (!ckpt_shape_equal(other, &wanted)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "query is %s and input %d is %s, wanted [B, S, %lld]",
                             ckpt_shape_show(x, a), k, ckpt_shape_show(other, b), (long long)wanted.dim[2]);
        }
    }
    return CKPT_OK;
}

static ckpt_code check_extras(const ckpt_node *node, const ckpt_attention_sizes *s, ckpt_err *err)
{
    const ckpt_shape bias = {3, {s->heads, s->T, s->S}}, padding = {2, {s->B, s->S}};
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    if (s->causal && s->T != s->S) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "causal, but %lld queries and %lld keys", (long long)s->T,
                         (long long)s->S);
    }
    if (s->bias >= 0) {
        CKPT_TRY(ckpt_node_need(node, s->bias, node->dtype, err));
        if (!ckpt_shape_equal(&node->in[s->bias].shape, &bias)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "the bias is %s, wanted %s",
                             ckpt_shape_show(&node->in[s->bias].shape, a), ckpt_shape_show(&bias, b));
        }
    }
    if (s->mask >= 0) {
        const ckpt_shape *const mask = &node->in[s->mask].shape;
        const ckpt_shape each = {3, {mask->dim[0], s->T, s->S}};
        CKPT_TRY(ckpt_node_need(node, s->mask, CKPT_INT32, err));
        if (!ckpt_shape_equal(mask, &padding) && !(ckpt_shape_equal(mask, &each) && s->B % mask->dim[0] == 0)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "the mask is %s, wanted %s, or [G, %lld, %lld] with a divisor G of %lld",
                             ckpt_shape_show(mask, a), ckpt_shape_show(&padding, b), (long long)s->T, (long long)s->S,
                             (long long)s->B);
        }
    }
    return CKPT_OK;
}

/* Pairs of query and key that one head computes. A mask is not known here. */
static int64_t pairs_of(const ckpt_attention_sizes *s)
{
    if (!s->causal) {
        return ckpt_times(s->T, s->S);
    }
    const int64_t rising = s->window > 0 && s->window < s->T ? s->window : s->T;
    return ckpt_plus(ckpt_times(rising, rising + 1) / 2, ckpt_times(s->T - rising, rising));
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const int own = node->in_count - ckpt_node_bool(node, "bias") - ckpt_node_bool(node, "mask");
    CKPT_TRY(check_attributes(node, err));
    CKPT_TRY(check_inputs(node, own, err));
    const ckpt_attention_sizes s = ckpt_attention_sizes_of(node);
    CKPT_TRY(check_extras(node, &s, err));
    const ckpt_shape y = {3, {s.B, s.T, s.heads * s.D}}, lse = {3, {s.B, s.heads, s.T}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_saved(node, "lse", CKPT_FLOAT32, &lse, err));
    node->backward_in = (UINT64_C(1) << node->in_count) - 1;
    node->backward_out = 1;
    node->backward_saved = 1;

    /* Forward: Q K^T and P V, two flop per multiplication, and five per probability. Backward: five products (the
     * probabilities once more). A bias: one addition each, and one for its gradient. */
    const int64_t pairs = ckpt_times(ckpt_times(s.B, s.heads), pairs_of(&s)), more = s.bias >= 0 ? 1 : 0;
    node->forward_flop = ckpt_times(pairs, ckpt_plus(ckpt_times(s.D, 4), 5 + more));
    node->backward_flop = ckpt_times(pairs, ckpt_plus(ckpt_times(s.D, 10), 5 + 2 * more));
    node->native16 = s.bias < 0; /* whose gradient is a sum over sequences */
    allow_workspace(node, &s);
    return CKPT_OK;
}

/* Of dS of one head, as cuDNN lays it into its workspace: bfloat16, queries up to a multiple of 64, keys of 128. */
static ckpt_bytes pair_bytes(int64_t T)
{
    return ckpt_times(ckpt_times(2, padded(T)), ckpt_times(ckpt_plus(T, 127) / 128, 128));
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
    int64_t divisor = most < n ? most : n;
    while (divisor > 0 && n % divisor != 0) {
        divisor--;
    }
    return divisor;
}

int64_t ckpt_gpu_attention_heads(int64_t batch, int64_t heads, int64_t tokens)
{
    const int64_t fit = ((ckpt_bytes)64 << 20) / pair_bytes(tokens);
    return fit >= heads ? heads * largest_divisor(batch, fit / heads) : largest_divisor(heads, fit);
}

bool ckpt_gpu_attention_library(const ckpt_node *node)
{
    const ckpt_attention_sizes s = ckpt_attention_sizes_of(node);
    const bool plain = s.kv_heads == s.heads && s.T == s.S && s.window == 0 && ckpt_node_float(node, "scale") == 0 &&
                       s.bias < 0 && s.mask < 0;
    return plain && node->out[0].dtype == CKPT_BFLOAT16 && ckpt_node_float(node, "dropout") == 0 && s.T > 1 &&
           s.D % 8 == 0 && s.D <= 128 && ckpt_gpu_attention_heads(s.B, s.heads, s.T) > 0;
}

/* Backward of own kernels: a float32 per query, rowsum(dO O). cuDNN: the same and dS, of as many heads as it takes at
 * once; and a KiB for its own small things and for alignment. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_bytes small = 1024;
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t heads = ckpt_node_int(node, "heads"), T = y->dim[1];
    *forward = 0;
    *backward = ckpt_times(4, padded(ckpt_times(ckpt_times(y->dim[0], heads), T)));
    if (ckpt_gpu_attention_library(node)) {
        const int64_t n = ckpt_gpu_attention_heads(y->dim[0], heads, T);
        const ckpt_bytes library = 4 * padded(n * T) + n * pair_bytes(T) + small;
        *forward = small;
        *backward = library > *backward ? library : *backward;
    }
}

const ckpt_op ckpt_op_attention = {
    .name = "attention",
    .formula =
        "y = dropout(softmax(scale q k^T + bias, where seen)) v, head by head; kv_heads: a head of keys for each group "
        "of query heads",
    .source = "Vaswani et al. 2017, arXiv:1706.03762; log-sum-exp kept as in Dao et al. 2022, arXiv:2205.14135; "
              "kv_heads: Ainslie "
              "et al. 2023, arXiv:2305.13245; window: Jiang et al. 2023, arXiv:2310.06825",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 5,
    .id_limit = 2, /* of the mask */
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
