/* attention: multi-head scaled dot-product attention. It keeps the logarithm of every row's sum of exponentials
 * instead of the T x T probabilities; backward recomputes them, some queries of one head at a time. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "heads", .kind = CKPT_INT, .required = true, .help = "must divide the width"},
    {.name = "causal", .kind = CKPT_BOOL, .integer = 0, .help = "a position sees only itself and those before it"},
    {.name = "dropout", .kind = CKPT_FLOAT, .real = 0, .help = "probability that an attention weight is dropped"},
    {0},
};

/* Up to a multiple of 64, saturating. */
static int64_t padded(int64_t n)
{
    return ckpt_plus(n, 63) / 64 * 64;
}

/* Per thread, each piece rounded up to 64 elements: forward two copies of one head's rows [T, D], 32 queries and their
 * probabilities [32, T]; backward five and three of [32, D], and two of [32, T]; a row of random words for dropout.
 * Never more threads than heads. */
static void allow_workspace(ckpt_node *node, int64_t batch_heads, int64_t T, int64_t D, bool dropout)
{
    const int64_t rows = T < 32 ? T : 32;
    const int64_t head = padded(ckpt_times(T, D)), small = padded(ckpt_times(rows, D));
    const int64_t wide = padded(ckpt_times(rows, T)), words = dropout ? padded(ckpt_plus(T, 4)) : 0;
    const int64_t threads = batch_heads < node->threads ? batch_heads : node->threads;
    const int64_t forward = ckpt_plus(ckpt_plus(ckpt_times(head, 2), small), ckpt_plus(wide, words));
    const int64_t backward =
        ckpt_plus(ckpt_plus(ckpt_times(head, 5), ckpt_times(small, 3)), ckpt_plus(ckpt_times(wide, 2), words));
    node->forward_workspace_bytes = ckpt_times(forward, 4 * threads);
    node->backward_workspace_bytes = ckpt_times(backward, 4 * threads);
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t heads = ckpt_node_int(node, "heads");
    const double dropout = ckpt_node_float(node, "dropout");
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(ckpt_node_need(node, k, node->dtype, err));
        if (!ckpt_shape_equal(&node->in[k].shape, x)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "query is %s and input %d is %s, wanted one shape [B, T, C]",
                             ckpt_shape_show(x, a), k, ckpt_shape_show(&node->in[k].shape, b));
        }
    }
    if (node->in_count == 2 || x->rank != 3 || (node->in_count == 1 && x->dim[2] % 3 != 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%d input%s of %s, wanted query, key and value [B, T, C] or the three side by side [B, T, 3C]",
                         node->in_count, node->in_count == 1 ? "" : "s", ckpt_shape_show(x, a));
    }
    const int64_t B = x->dim[0], T = x->dim[1], C = node->in_count == 1 ? x->dim[2] / 3 : x->dim[2];
    if (heads < 1 || C % heads != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "heads is %lld, wanted a divisor of the width %lld of input 0 %s",
                         (long long)heads, (long long)C, ckpt_shape_show(x, a));
    }
    if (!(dropout >= 0 && dropout < 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "dropout is %g, wanted 0 <= dropout < 1", dropout);
    }
    const ckpt_shape y = {3, {B, T, C}}, lse = {3, {B, heads, T}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_saved(node, "lse", CKPT_FLOAT32, &lse, err));
    node->backward_in = node->in_count == 1 ? 1 : 7;
    node->backward_out = 1;
    node->backward_saved = 1;

    /* Forward: Q K^T and P V, two flop per multiplication, and five per probability. Backward: five products (the
     * probabilities once more). A causal mask halves the pairs. */
    const int64_t seen = ckpt_node_bool(node, "causal") ? ckpt_times(T, T + 1) / 2 : ckpt_times(T, T);
    const int64_t pairs = ckpt_times(ckpt_times(B, heads), seen);
    node->forward_flop = ckpt_times(pairs, ckpt_plus(ckpt_times(C / heads, 4), 5));
    node->backward_flop = ckpt_times(pairs, ckpt_plus(ckpt_times(C / heads, 10), 5));
    allow_workspace(node, ckpt_times(B, heads), T, C / heads, dropout > 0);
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
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t heads = ckpt_node_int(node, "heads"), T = y->dim[1], D = y->dim[2] / heads;
    return node->out[0].dtype == CKPT_BFLOAT16 && ckpt_node_float(node, "dropout") == 0 && T > 1 && D % 8 == 0 &&
           D <= 128 && ckpt_gpu_attention_heads(y->dim[0], heads, T) > 0;
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
    .formula = "y = dropout(softmax(q k^T / sqrt(C / heads) + mask)) v, head by head",
    .source = "Vaswani et al. 2017, arXiv:1706.03762; log-sum-exp kept as in Dao et al. 2022, arXiv:2205.14135",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 3,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
