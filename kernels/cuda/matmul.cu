/* matmul: cuBLASLt's products of a batch of matrices in one call (blas.c). A batch of [M x K] [K x N] is 2 M K N FLOP each
 * and moves every matrix once. Backward's products are prepared both to overwrite and to add, as linear's. */
#include "kernels/cuda/blas_layer.cuh"

namespace
{

/* Each gradient that overwrites is followed by the one that adds. */
enum { FORWARD, FIRST, FIRST_ADDS, SECOND, SECOND_ADDS, PRODUCTS };
const char *const matmul_key[PRODUCTS] = {"forward", "first", "first-adds", "second", "second-adds"};

struct matmul_state {
    ckpt_blas_product *product[PRODUCTS]; /* NULL: not needed */
    char choice[CKPT_CHOICE_TEXT];
};

/* To be called after algorithms have changed. */
void matmul_name(matmul_state *s)
{
    s->choice[0] = '\0';
    for (int k = 0; k < PRODUCTS; k++) {
        if (s->product[k] != NULL) {
            ckpt_choice_add(s->choice, matmul_key[k], ckpt_blas_product_choice(s->product[k]));
        }
    }
}

ckpt_blas_shape matmul_shape(const ckpt_node *node, int which)
{
    const ckpt_matmul m = ckpt_matmul_of(node);
    const ckpt_dtype dtype = node->dtype;
    const bool adds = which == FIRST_ADDS || which == SECOND_ADDS;
    ckpt_blas_shape shape = {};
    if (which == FORWARD) {
        shape = blas_of(m.rows, m.columns, m.inner, false, m.turned, dtype, dtype, false, adds);
    } else if (which == FIRST || which == FIRST_ADDS) {
        shape = blas_of(m.rows, m.inner, m.columns, false, !m.turned, dtype, dtype, false, adds);
    } else if (m.turned) { /* dz^T x */
        shape = blas_of(m.columns, m.inner, m.rows, true, false, dtype, dtype, false, adds);
    } else { /* x^T dz */
        shape = blas_of(m.inner, m.columns, m.rows, true, false, dtype, dtype, false, adds);
    }
    shape.batch = m.batch;
    return shape;
}

ckpt_code matmul_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    matmul_state *const s = (matmul_state *)memory;
    char text[CKPT_PIECE_TEXT];
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    for (int k = 0; k < PRODUCTS; k++) {
        if (k == FORWARD || (node->grad_in >> (k >= SECOND ? 1 : 0) & 1) != 0) {
            const ckpt_blas_shape shape = matmul_shape(node, k);
            CKPT_TRY(ckpt_blas_product_create((ckpt_cuda *)context, &shape, k == FORWARD ? forward : backward,
                                              ckpt_choice_get(choice, matmul_key[k], text), &s->product[k], err));
        }
    }
    matmul_name(s);
    return CKPT_OK;
}

void matmul_release(void *state)
{
    for (ckpt_blas_product *const product : ((matmul_state *)state)->product) {
        ckpt_blas_product_destroy(product);
    }
}

void matmul_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const matmul_state *const s = (const matmul_state *)state;
    *forward = ckpt_blas_product_workspace(s->product[FORWARD]);
    *backward = 0;
    for (int k = FORWARD + 1; k < PRODUCTS; k++) {
        *backward = blas_most(*backward, s->product[k]);
    }
}

const char *matmul_choice(const void *state)
{
    return ((const matmul_state *)state)->choice;
}

ckpt_code matmul_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const matmul_state *const s = (const matmul_state *)args->state;
    return ckpt_blas_product_run(s->product[FORWARD], args->in[0], args->in[1], args->out[0], NULL, args->workspace,
                                 err);
}

/* The operands of gradient k. */
void matmul_operands(const ckpt_kernel_args *args, int k, const void **x, const void **w)
{
    const bool turned = ckpt_matmul_of(args->node).turned;
    const void *const dz = args->grad_out[0];
    *x = k == 0 || turned ? dz : args->in[0];
    *w = k == 0 ? args->in[1] : turned ? args->in[0] : dz;
}

ckpt_code matmul_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const matmul_state *const s = (const matmul_state *)args->state;
    for (int k = 0; k < 2; k++) {
        if (args->grad_in[k] != NULL) {
            const void *x, *w;
            matmul_operands(args, k, &x, &w);
            CKPT_TRY(ckpt_blas_product_run(s->product[FIRST + 2 * k + (args->grad_in_adds >> k & 1)], x, w,
                                           args->grad_in[k], NULL, args->workspace, err));
        }
    }
    return CKPT_OK;
}

ckpt_code matmul_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    matmul_state *const s = (matmul_state *)args->state;
    ckpt_ns took = 0;
    if (!backward) {
        CKPT_TRY(ckpt_blas_product_tune(s->product[FORWARD], args->in[0], args->in[1], args->out[0], NULL,
                                        args->workspace, args->workspace_bytes, tuning, &took, err));
    }
    for (int k = 0; backward && k < 4; k++) {
        if (args->grad_in[k / 2] != NULL) {
            const void *x, *w;
            matmul_operands(args, k / 2, &x, &w);
            CKPT_TRY(ckpt_blas_product_tune(s->product[FIRST + k], x, w, args->grad_in[k / 2], NULL, args->workspace,
                                            args->workspace_bytes, tuning, &took, err));
        }
    }
    matmul_name(s);
    return CKPT_OK;
}

} // namespace

extern "C" const ckpt_kernel ckpt_cuda_matmul = {
    .op = "matmul",
    .state_bytes = sizeof(matmul_state),
    .prepare = matmul_prepare,
    .release = matmul_release,
    .workspace = matmul_workspace,
    .choice = matmul_choice,
    .tune = matmul_tune,
    .forward = matmul_forward,
    .backward = matmul_backward,
};
