/* conv2d on the CPU: oneDNN's convolutions, channels last. A convolution with 1 x 1 filters, stride 1 and no padding
 * is a matrix product over all pixels and runs as one: its weights then need no reordering. */
#include "core/memory.h"
#include "core/tensor.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

typedef struct conv2d {
    ckpt_dnn *forward, *input, *weight;
    bool product; /* the calls are matrix products */
} conv2d;

static ckpt_dnn_shape shape_of(const ckpt_node *node)
{
    const ckpt_shape *x = &node->in[0].shape, *y = &node->out[0].shape;
    ckpt_dnn_shape s = {
        .batch = x->dim[0],
        .in_channels = x->dim[1],
        .out_channels = y->dim[1],
        .groups = ckpt_node_int(node, "groups"),
        .bias = node->param_count > 1,
    };
    for (int d = 0; d < 2; d++) {
        s.in[d] = x->dim[2 + d];
        s.out[d] = y->dim[2 + d];
        s.kernel[d] = ckpt_node_int_at(node, "kernel_size", d);
        s.stride[d] = ckpt_node_int_at(node, "stride", d);
        s.padding[d] = ckpt_node_int_at(node, "padding", d);
    }
    return s;
}

static bool is_product(const ckpt_dnn_shape *s)
{
    return s->groups == 1 && s->kernel[0] == 1 && s->kernel[1] == 1 && s->stride[0] == 1 && s->stride[1] == 1 &&
           s->padding[0] == 0 && s->padding[1] == 0;
}

static ckpt_code fill_product(conv2d *state, const ckpt_node *node, const ckpt_dnn_shape *s, ckpt_bytes forward,
                              ckpt_bytes backward, ckpt_err *err)
{
    const int64_t rows = s->batch * s->in[0] * s->in[1], in = s->in_channels, out = s->out_channels;
    const ckpt_dnn_matrix x = {rows, in, in, 1}, y = {rows, out, out, 1}, w = {out, in, in, 1};
    const ckpt_dnn_matrix w_turned = {in, out, 1, in}, y_turned = {out, rows, 1, out};
    /* As in linear.c. */
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    CKPT_TRY(ckpt_dnn_matmul(&x, &w_turned, &y, s->bias, false, node->threads, forward, &state->forward, err));
    CKPT_TRY(ckpt_dnn_matmul(&y_turned, &x, &w, false, false, node->threads, backward, &state->weight, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(ckpt_dnn_matmul(&y, &w, &x, false, false, node->threads, backward, &state->input, err));
    }
    return CKPT_OK;
}

static ckpt_code fill(conv2d *state, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward, ckpt_err *err)
{
    const ckpt_dnn_shape s = shape_of(node);
    state->product = is_product(&s);
    if (state->product) {
        return fill_product(state, node, &s, forward, backward, err);
    }
    CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_FORWARD, node->threads, forward, &state->forward, err));
    CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_WEIGHT_GRADIENT, node->threads, backward, &state->weight, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_INPUT_GRADIENT, node->threads, backward, &state->input, err));
    }
    return CKPT_OK;
}

static void release(void *state)
{
    conv2d *c = state;
    if (c == NULL) {
        return;
    }
    ckpt_dnn_destroy(c->forward);
    ckpt_dnn_destroy(c->input);
    ckpt_dnn_destroy(c->weight);
    ckpt_memory_put(c);
}

static ckpt_code prepare(const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward, void **state, ckpt_err *err)
{
    conv2d *c = ckpt_memory_get(sizeof *c);
    if (c == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for layer %s", sizeof *c, node->name);
    }
    const ckpt_code code = fill(c, node, forward, backward, err);
    if (code != CKPT_OK) {
        release(c);
        ckpt_err_while(err, "preparing layer %s (conv2d)", node->name);
        return code;
    }
    *state = c;
    return CKPT_OK;
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const conv2d *c = state;
    const ckpt_bytes weight = ckpt_dnn_workspace(c->weight);
    const ckpt_bytes input = c->input == NULL ? 0 : ckpt_dnn_workspace(c->input);
    *forward = ckpt_dnn_workspace(c->forward);
    *backward = weight > input ? weight : input;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *bias = args->node->param_count > 1 ? args->param[1] : NULL;
    return ckpt_dnn_run(c->forward, (const void *const[4]){args->in[0], args->param[0], args->out[0], bias},
                        args->workspace, err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *dy = args->grad_out[0];
    float *bias = args->node->param_count > 1 ? args->grad_param[1] : NULL;
    if (c->product) {
        CKPT_TRY(ckpt_dnn_run(c->weight, (const void *const[4]){dy, args->in[0], args->grad_param[0], NULL},
                              args->workspace, err));
        if (bias != NULL) {
            const int64_t channels = args->node->out[0].shape.dim[1];
            const int64_t rows = ckpt_shape_count(&args->node->out[0].shape) / channels;
            ckpt_column_sums(rows, channels, dy, bias, false, args->node->threads);
        }
    } else {
        CKPT_TRY(ckpt_dnn_run(c->weight, (const void *const[4]){args->in[0], args->grad_param[0], dy, bias},
                              args->workspace, err));
    }
    if (args->grad_in[0] != NULL) {
        const void *const product[4] = {dy, args->param[0], args->grad_in[0], NULL};
        const void *const convolution[4] = {args->grad_in[0], args->param[0], dy, NULL};
        CKPT_TRY(ckpt_dnn_run(c->input, c->product ? product : convolution, args->workspace, err));
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_conv2d = {
    .op = "conv2d",
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
