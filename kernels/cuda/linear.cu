/* Linear: three products by cuBLASLt (blas.c). The forward product's epilogue adds the bias. The epilogue of the
 * weight's gradient makes the bias's gradient, if both are overwritten and cuBLASLt has such a product; else column
 * sums do (sum.cu). A bfloat16 model multiplies bfloat16 copies of the weights and gets its weight gradient in float32.
 * A product of [rows x in] [in x out] is 2 rows in out FLOP and moves each matrix once: bound by arithmetic from a few
 * hundred rows on, by memory below. Backward's products are prepared both to overwrite and to add, as on the CPU. */
#include <cstdlib>

#include "kernels/cuda/blas_layer.cuh"

namespace
{

/* Each product that overwrites is followed by the one that adds. WEIGHT_SUMS also makes the bias's gradient; NULL:
 * column sums make it. */
enum { FORWARD, WEIGHT, WEIGHT_ADDS, WEIGHT_SUMS, INPUT, INPUT_ADDS, PRODUCTS };
const char *const linear_key[PRODUCTS] = {"forward", "weight", "weight-adds", "weight-sums", "input", "input-adds"};

struct linear_state {
    ckpt_blas_product *product[PRODUCTS]; /* NULL: not needed */
    char choice[CKPT_CHOICE_TEXT];
};

/* To be called after algorithms have changed. */
void linear_name(linear_state *l)
{
    l->choice[0] = '\0';
    for (int k = 0; k < PRODUCTS; k++) {
        if (l->product[k] != NULL) {
            ckpt_choice_add(l->choice, linear_key[k], ckpt_blas_product_choice(l->product[k]));
        }
    }
}

struct linear_sizes {
    int64_t rows, in, out;
};

/* In all three products, features that fill the gap between rows of y count as the layer's own (ckpt_node_pitch): y and
 * dy are stored along the features, and a stride alone would leave that dimension odd. */
linear_sizes linear_sizes_of(const ckpt_node *node)
{
    const int64_t in = node->param[0].tensor.shape.dim[1], rows = ckpt_shape_count(&node->in[0].shape) / in;
    return {rows, in, ckpt_tensor_room(&node->out[0]) / rows};
}

/* Column sums make the bias's gradient if the library has no product with sums, or a choice is without one, or there is
 * no choice and CKPT_BIAS_SUMS=apart. */
ckpt_code linear_make(linear_state *l, ckpt_cuda *cuda, int which, const ckpt_blas_shape &shape, ckpt_bytes limit,
                      const char *choice, ckpt_err *err)
{
    char text[CKPT_PIECE_TEXT];
    ckpt_err refusal = {};
    const char *const piece = ckpt_choice_get(choice, linear_key[which], text);
    const char *const asked = getenv("CKPT_BIAS_SUMS");
    const bool apart = piece != NULL ? piece[0] == '\0' : asked != NULL && strcmp(asked, "apart") == 0;
    if (which == WEIGHT_SUMS && apart) {
        return CKPT_OK;
    }
    const ckpt_code code = ckpt_blas_product_create(cuda, &shape, limit, piece, &l->product[which], &refusal);
    return code == CKPT_OK || (code == CKPT_DEVICE && which == WEIGHT_SUMS && piece == NULL)
               ? CKPT_OK
               : CKPT_FAIL(err, code, "%s", refusal.msg);
}

ckpt_code linear_fill(linear_state *l, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                      const char *choice, ckpt_err *err)
{
    const linear_sizes s = linear_sizes_of(node);
    const ckpt_dtype dtype = node->in[0].dtype;
    const bool bias = node->param_count > 1;
    const ckpt_blas_shape y = blas_of(s.rows, s.out, s.in, false, true, dtype, dtype, bias, false);
    CKPT_TRY(linear_make(l, cuda, FORWARD, y, forward, choice, err));
    for (int adds = 0; adds < 2; adds++) {
        const ckpt_blas_shape dw = blas_of(s.out, s.in, s.rows, true, false, dtype, CKPT_FLOAT32, false, adds == 1);
        const ckpt_blas_shape dx = blas_of(s.rows, s.in, s.out, false, false, dtype, dtype, false, adds == 1);
        CKPT_TRY(linear_make(l, cuda, WEIGHT + adds, dw, backward, choice, err));
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(linear_make(l, cuda, INPUT + adds, dx, backward, choice, err));
        }
    }
    ckpt_blas_shape with_sums = blas_of(s.out, s.in, s.rows, true, false, dtype, CKPT_FLOAT32, false, false);
    with_sums.sums = true;
    return bias ? linear_make(l, cuda, WEIGHT_SUMS, with_sums, backward, choice, err) : CKPT_OK;
}

void linear_release(void *state)
{
    for (ckpt_blas_product *const product : ((linear_state *)state)->product) {
        ckpt_blas_product_destroy(product);
    }
}

ckpt_code linear_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    linear_state *const l = (linear_state *)memory;
    /* The allowance is cuBLAS's own recommendation, less for small matrices: more brings nothing. */
    CKPT_TRY(linear_fill(l, (ckpt_cuda *)context, node, forward < 0 ? node->forward_workspace_bytes : forward,
                         backward < 0 ? node->backward_workspace_bytes : backward, choice, err));
    linear_name(l);
    return CKPT_OK;
}

void linear_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const linear_state *const l = (const linear_state *)state;
    const linear_sizes s = linear_sizes_of(node);
    *forward = ckpt_blas_product_workspace(l->product[FORWARD]);
    *backward = node->param_count > 1 ? ckpt_gpu_column_sums_workspace(s.rows, s.out) : 0;
    for (int k = FORWARD + 1; k < PRODUCTS; k++) {
        *backward = blas_most(*backward, l->product[k]);
    }
}

const char *linear_choice(const void *state)
{
    return ((const linear_state *)state)->choice;
}

ckpt_code linear_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    void *const bias = args->node->param_count > 1 ? (void *)ckpt_product_param(args, 1) : NULL;
    return ckpt_blas_product_run(l->product[FORWARD], args->in[0], ckpt_product_param(args, 0), args->out[0], bias,
                                 args->workspace, err);
}

ckpt_code linear_column_sums(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_sizes s = linear_sizes_of(args->node);
    return ckpt_cuda_column_sums((ckpt_cuda *)args->context, args->node->in[0].dtype, s.rows, s.out, args->grad_out[0],
                                 args->grad_param[1], (args->grad_param_adds & 2) != 0, args->workspace, err);
}

/* Whether a product adds does not depend on the plan: the lowered graph says which layer writes a gradient first. */
ckpt_code linear_weight(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    const void *const dy = args->grad_out[0];
    if (l->product[WEIGHT_SUMS] != NULL && (args->grad_param_adds & 3) == 0) {
        return ckpt_blas_product_run(l->product[WEIGHT_SUMS], dy, args->in[0], args->grad_param[0], args->grad_param[1],
                                     args->workspace, err);
    }
    CKPT_TRY(ckpt_blas_product_run(l->product[WEIGHT + (args->grad_param_adds & 1)], dy, args->in[0],
                                   args->grad_param[0], NULL, args->workspace, err));
    return args->node->param_count > 1 ? linear_column_sums(args, err) : CKPT_OK;
}

/* They run one after the other on one stream, so they share the workspace. */
ckpt_code linear_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    const int adds = (int)(args->grad_in_adds & 1);
    CKPT_TRY(linear_weight(args, err));
    return args->grad_in[0] == NULL
               ? CKPT_OK
               : ckpt_blas_product_run(l->product[INPUT + adds], args->grad_out[0], ckpt_product_param(args, 0),
                                       args->grad_in[0], NULL, args->workspace, err);
}

/* The gradients of weight and bias: 0 apart, 1 in one product. */
ckpt_code linear_run_way(void *self, int candidate, ckpt_err *err)
{
    const ckpt_kernel_args *const args = (const ckpt_kernel_args *)self;
    const linear_state *const l = (const linear_state *)args->state;
    const bool one = candidate == 1;
    CKPT_TRY(ckpt_blas_product_run(l->product[one ? WEIGHT_SUMS : WEIGHT], args->grad_out[0], args->in[0],
                                   args->grad_param[0], one ? args->grad_param[1] : NULL, args->workspace, err));
    return one ? CKPT_OK : linear_column_sums(args, err);
}

/* Keeps the product that also makes the bias's gradient if it is right, and faster than both apart. It is compared with
 * the plain product and our own sums, because all of cuBLASLt's candidates could be wrong in the same way. */
ckpt_code linear_tune_sums(const ckpt_kernel_args *args, ckpt_tuning *tuning, ckpt_err *err)
{
    linear_state *const l = (linear_state *)args->state;
    const linear_sizes s = linear_sizes_of(args->node);
    ckpt_kernel_args own = *args;
    ckpt_tuning ways = {}; /* not counted: no candidate is new */
    ckpt_trial trial = {};
    ckpt_ns took = 0;
    int fastest = 0;
    CKPT_TRY(ckpt_blas_product_tune(l->product[WEIGHT_SUMS], args->grad_out[0], args->in[0], args->grad_param[0],
                                    args->grad_param[1], args->workspace, args->workspace_bytes, tuning, &took, err));
    own.grad_param_adds = 0;
    ways.flush = tuning->flush;
    ways.flush_bytes = tuning->flush_bytes;
    trial.cuda = (ckpt_cuda *)args->context;
    trial.what = "product with sums";
    trial.count = 2;
    trial.self = &own;
    trial.run = linear_run_way;
    trial.result[0] = {args->grad_param[0], CKPT_FLOAT32, s.out, s.in, s.in};
    trial.result[1] = {args->grad_param[1], CKPT_FLOAT32, 1, s.out, s.out};
    trial.terms = s.rows;
    CKPT_TRY(ckpt_trial_run(&trial, &ways, &fastest, &took, err));
    if (ways.refused > 0) {
        tuning->refused += ways.refused;
        memcpy(tuning->refusal, ways.refusal, sizeof tuning->refusal);
    }
    if (fastest == 0) {
        ckpt_blas_product_destroy(l->product[WEIGHT_SUMS]);
        l->product[WEIGHT_SUMS] = NULL;
    }
    return CKPT_OK;
}

ckpt_code linear_tune_backward(const ckpt_kernel_args *args, ckpt_tuning *tuning, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    const void *const dy = args->grad_out[0];
    ckpt_ns took = 0;
    for (int adds = 0; adds < 2; adds++) {
        CKPT_TRY(ckpt_blas_product_tune(l->product[WEIGHT + adds], dy, args->in[0], args->grad_param[0], NULL,
                                        args->workspace, args->workspace_bytes, tuning, &took, err));
        if (args->grad_in[0] != NULL) {
            CKPT_TRY(ckpt_blas_product_tune(l->product[INPUT + adds], dy, ckpt_product_param(args, 0), args->grad_in[0],
                                            NULL, args->workspace, args->workspace_bytes, tuning, &took, err));
        }
    }
    return l->product[WEIGHT_SUMS] == NULL ? CKPT_OK : linear_tune_sums(args, tuning, err);
}

ckpt_code linear_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    linear_state *const l = (linear_state *)args->state;
    void *const bias = args->node->param_count > 1 ? (void *)ckpt_product_param(args, 1) : NULL;
    ckpt_ns took = 0;
    CKPT_TRY(backward
                 ? linear_tune_backward(args, tuning, err)
                 : ckpt_blas_product_tune(l->product[FORWARD], args->in[0], ckpt_product_param(args, 0), args->out[0],
                                          bias, args->workspace, args->workspace_bytes, tuning, &took, err));
    linear_name(l);
    return CKPT_OK;
}

} // namespace

extern "C" const ckpt_kernel ckpt_cuda_linear = {
    .op = "linear",
    .state_bytes = sizeof(linear_state),
    .prepare = linear_prepare,
    .release = linear_release,
    .workspace = linear_workspace,
    .choice = linear_choice,
    .tune = linear_tune,
    .forward = linear_forward,
    .backward = linear_backward,
};
