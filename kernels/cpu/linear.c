/* Linear on the CPU: three oneDNN matrix products. oneDNN splits a product among threads in a fixed way, so the bits
 * depend only on the thread count. Backward's products are prepared both to overwrite and to add: which of them is
 * needed is known only when it runs. */
#include "core/formats/tensor.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

/* index of the arrays: 1 if the product adds */
typedef struct linear {
    ckpt_dnn *forward, *input[2], *weight[2];
} linear;

typedef struct sizes {
    int64_t rows, in, out;
} sizes;

static sizes sizes_of(const ckpt_node *node)
{
    const ckpt_shape *w = &node->param[0].tensor.shape;
    return (sizes){ckpt_shape_count(&node->in[0].shape) / w->dim[1], w->dim[1], w->dim[0]};
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    linear *const l = state;
    (void)choice; /* none on a CPU */
    (void)context;
    const sizes s = sizes_of(node);
    const ckpt_dtype type = node->dtype;
    const ckpt_dnn_matrix x = ckpt_dnn_plain(s.rows, s.in, type), y = ckpt_dnn_plain(s.rows, s.out, type),
                          w = ckpt_dnn_plain(s.out, s.in, type), w_turned = ckpt_dnn_turned(s.out, s.in, type),
                          y_turned = ckpt_dnn_turned(s.rows, s.out, type),
                          dw = ckpt_dnn_plain(s.out, s.in, CKPT_FLOAT32);
    /* The allowance is enough for every shape; a few would use much more and gain little. */
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    CKPT_TRY(
        ckpt_dnn_matmul(&x, &w_turned, &y, node->param_count > 1, false, node->threads, forward, &l->forward, err));
    for (int adds = 0; adds < 2; adds++) {
        CKPT_TRY(ckpt_dnn_matmul(&y_turned, &x, &dw, false, adds == 1, node->threads, backward, &l->weight[adds], err));
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(ckpt_dnn_matmul(&y, &w, &x, false, adds == 1, node->threads, backward, &l->input[adds], err));
        }
    }
    return CKPT_OK;
}

static void release(void *state)
{
    linear *const l = state;
    ckpt_dnn_destroy(l->forward);
    for (int adds = 0; adds < 2; adds++) {
        ckpt_dnn_destroy(l->input[adds]);
        ckpt_dnn_destroy(l->weight[adds]);
    }
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const linear *l = state;
    *forward = ckpt_dnn_workspace(l->forward);
    *backward = 0;
    for (int adds = 0; adds < 2; adds++) {
        const ckpt_bytes weight = ckpt_dnn_workspace(l->weight[adds]);
        const ckpt_bytes input = l->input[adds] == NULL ? 0 : ckpt_dnn_workspace(l->input[adds]);
        *backward = weight > *backward ? weight : *backward;
        *backward = input > *backward ? input : *backward;
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear *l = args->state;
    const void *const bias = args->node->param_count > 1 ? ckpt_product_param(args, 1) : NULL;
    return ckpt_dnn_run(l->forward,
                        (const void *const[4]){args->in[0], ckpt_product_param(args, 0), args->out[0], bias},
                        args->workspace, err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear *l = args->state;
    const ckpt_node *node = args->node;
    const void *const dy = args->grad_out[0];
    const int weight_adds = (int)(args->grad_param_adds & 1);
    const int input_adds = (int)(args->grad_in_adds & 1);
    CKPT_TRY(ckpt_dnn_run(l->weight[weight_adds], (const void *const[4]){dy, args->in[0], args->grad_param[0], NULL},
                          args->workspace, err));
    if (node->param_count > 1) {
        const sizes s = sizes_of(node);
        ckpt_column_sums(node->dtype, s.rows, s.out, dy, args->grad_param[1], (args->grad_param_adds & 2) != 0,
                         node->threads);
    }
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(ckpt_dnn_run(l->input[input_adds],
                              (const void *const[4]){dy, ckpt_product_param(args, 0), args->grad_in[0], NULL},
                              args->workspace, err));
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_linear = {
    .op = "linear",
    .state_bytes = sizeof(linear),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
