/* matmul on the CPU: oneDNN's products, matrix after matrix. Those of backward are prepared both to overwrite and to add,
 * as linear's. */
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

/* index of the arrays: 1 if the product adds */
typedef struct matmul {
    ckpt_dnn *forward, *grad[2][2]; /* grad: of each input; NULL: not wanted */
} matmul;

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    matmul *const l = state;
    (void)choice; /* none on a CPU */
    (void)context;
    const ckpt_matmul m = ckpt_matmul_of(node);
    const ckpt_dtype type = node->dtype;
    const int64_t M = m.rows, K = m.inner, N = m.columns;
    const ckpt_dnn_matrix x = ckpt_dnn_plain(M, K, type), z = ckpt_dnn_plain(M, N, type),
                          y = m.turned ? ckpt_dnn_plain(N, K, type) : ckpt_dnn_plain(K, N, type);
    const ckpt_dnn_matrix right = m.turned ? ckpt_dnn_turned(N, K, type) : y,
                          right_turned = m.turned ? y : ckpt_dnn_turned(K, N, type);
    /* The gradient of y is z^T x or x^T z. */
    const ckpt_dnn_matrix left = m.turned ? ckpt_dnn_turned(M, N, type) : ckpt_dnn_turned(M, K, type),
                          other = m.turned ? x : z;
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    CKPT_TRY(ckpt_dnn_matmul(&x, &right, &z, false, false, node->threads, forward, &l->forward, err));
    for (int adds = 0; adds < 2; adds++) {
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(ckpt_dnn_matmul(&z, &right_turned, &x, false, adds == 1, node->threads, backward,
                                     &l->grad[0][adds], err));
        }
        if ((node->grad_in & 2) != 0) {
            CKPT_TRY(
                ckpt_dnn_matmul(&left, &other, &y, false, adds == 1, node->threads, backward, &l->grad[1][adds], err));
        }
    }
    return CKPT_OK;
}

static void release(void *state)
{
    matmul *const l = state;
    ckpt_dnn_destroy(l->forward);
    for (int k = 0; k < 4; k++) {
        ckpt_dnn_destroy(l->grad[k / 2][k % 2]);
    }
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const matmul *const l = state;
    *forward = ckpt_dnn_workspace(l->forward);
    *backward = 0;
    for (int k = 0; k < 4; k++) {
        const ckpt_dnn *const product = l->grad[k / 2][k % 2];
        const ckpt_bytes used = product == NULL ? 0 : ckpt_dnn_workspace(product);
        *backward = used > *backward ? used : *backward;
    }
}

/* `batch` products of matrices of so many elements, one behind the other. */
static ckpt_code run(const ckpt_kernel_args *args, const ckpt_dnn *product, int64_t batch, const void *x,
                     int64_t x_size, const void *y, int64_t y_size, void *z, int64_t z_size, ckpt_err *err)
{
    const int64_t size = ckpt_dtype_bytes(args->node->dtype);
    for (int64_t b = 0; b < batch; b++) {
        const void *const pointer[4] = {(const char *)x + b * x_size * size, (const char *)y + b * y_size * size,
                                        (char *)z + b * z_size * size, NULL};
        CKPT_TRY(ckpt_dnn_run(product, pointer, args->workspace, err));
    }
    return CKPT_OK;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const matmul *const l = args->state;
    const ckpt_matmul m = ckpt_matmul_of(args->node);
    return run(args, l->forward, m.batch, args->in[0], m.rows * m.inner, args->in[1], m.inner * m.columns, args->out[0],
               m.rows * m.columns, err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const matmul *const l = args->state;
    const ckpt_matmul m = ckpt_matmul_of(args->node);
    const int64_t x = m.rows * m.inner, y = m.inner * m.columns, z = m.rows * m.columns;
    const void *const dz = args->grad_out[0];
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(
            run(args, l->grad[0][args->grad_in_adds & 1], m.batch, dz, z, args->in[1], y, args->grad_in[0], x, err));
    }
    if (args->grad_in[1] == NULL) {
        return CKPT_OK;
    }
    const ckpt_dnn *const product = l->grad[1][args->grad_in_adds >> 1 & 1];
    return m.turned ? run(args, product, m.batch, dz, z, args->in[0], x, args->grad_in[1], y, err)
                    : run(args, product, m.batch, args->in[0], x, dz, z, args->grad_in[1], y, err);
}

const ckpt_kernel ckpt_cpu_matmul = {
    .op = "matmul",
    .state_bytes = sizeof(matmul),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
