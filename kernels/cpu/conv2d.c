/* conv2d on the CPU by oneDNN's convolutions, channels last, directly or by Winograd's. A convolution with 1 x 1 filters
 * and no padding runs as a matrix product over pixels, whose weights need no reordering. With a stride, its input pixels
 * are first gathered into the workspace. */
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

typedef struct conv2d {
    ckpt_dnn *forward, *input, *weight;
    /* NULL: oneDNN has none here. Where it has one of backward's two, the other is the layer's own. */
    ckpt_dnn *winograd_forward, *winograd_input, *winograd_weight;
    bool product;            /* the calls are matrix products */
    ckpt_bytes gather_bytes; /* of pixels gathered at the start of the workspace; 0: not gathered */
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
    return s->groups == 1 && s->kernel[0] == 1 && s->kernel[1] == 1 && s->padding[0] == 0 && s->padding[1] == 0;
}

static ckpt_code fill_product(conv2d *state, const ckpt_node *node, const ckpt_dnn_shape *s, ckpt_bytes forward,
                              ckpt_bytes backward, ckpt_err *err)
{
    const int64_t rows = s->batch * s->out[0] * s->out[1], in = s->in_channels, out = s->out_channels;
    const ckpt_dnn_matrix x = {rows, in, in, 1}, y = {rows, out, out, 1}, w = {out, in, in, 1};
    const ckpt_dnn_matrix w_turned = {in, out, 1, in}, y_turned = {out, rows, 1, out};
    if (s->stride[0] > 1 || s->stride[1] > 1) {
        state->gather_bytes = ckpt_round_up(rows * in * (ckpt_bytes)sizeof(float), CKPT_ALIGN);
    }
    /* As in linear.c. */
    forward = (forward < 0 ? node->forward_workspace_bytes : forward) - state->gather_bytes;
    backward = (backward < 0 ? node->backward_workspace_bytes : backward) - state->gather_bytes;
    if (forward < 0 || backward < 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "%lld and %lld bytes of workspace given, %lld wanted for gathered pixels",
                         (long long)(forward + state->gather_bytes), (long long)(backward + state->gather_bytes),
                         (long long)state->gather_bytes);
    }
    CKPT_TRY(ckpt_dnn_matmul(&x, &w_turned, &y, s->bias, false, node->threads, forward, &state->forward, err));
    CKPT_TRY(ckpt_dnn_matmul(&y_turned, &x, &w, false, false, node->threads, backward, &state->weight, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(ckpt_dnn_matmul(&y, &w, &x, false, false, node->threads, backward, &state->input, err));
    }
    return CKPT_OK;
}

/* What the library refuses is left out; other errors count. */
static ckpt_code add_winograd(const ckpt_node *node, const ckpt_dnn_shape *s, ckpt_dnn_direction direction,
                              ckpt_dnn **made, ckpt_err *err)
{
    ckpt_err refusal = {0};
    const ckpt_code code = ckpt_dnn_winograd(s, direction, node->threads, made, &refusal);
    return code == CKPT_OK || code == CKPT_DEVICE ? CKPT_OK : CKPT_FAIL(err, code, "%s", refusal.msg);
}

static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    conv2d *const c = state;
    (void)choice; /* none on a CPU */
    (void)context;
    const ckpt_dnn_shape s = shape_of(node);
    c->product = is_product(&s);
    if (c->product) {
        return fill_product(c, node, &s, forward, backward, err);
    }
    CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_FORWARD, node->threads, forward, &c->forward, err));
    CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_WEIGHT_GRADIENT, node->threads, backward, &c->weight, err));
    if ((node->grad_in & 1) != 0) {
        CKPT_TRY(ckpt_dnn_convolution(&s, CKPT_DNN_INPUT_GRADIENT, node->threads, backward, &c->input, err));
    }
    if (ckpt_node_find_way(node, "winograd", false) == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(add_winograd(node, &s, CKPT_DNN_FORWARD, &c->winograd_forward, err));
    CKPT_TRY(add_winograd(node, &s, CKPT_DNN_WEIGHT_GRADIENT, &c->winograd_weight, err));
    return c->input == NULL ? CKPT_OK : add_winograd(node, &s, CKPT_DNN_INPUT_GRADIENT, &c->winograd_input, err);
}

static void release(void *state)
{
    conv2d *const c = state;
    ckpt_dnn_destroy(c->forward);
    ckpt_dnn_destroy(c->input);
    ckpt_dnn_destroy(c->weight);
    ckpt_dnn_destroy(c->winograd_forward);
    ckpt_dnn_destroy(c->winograd_input);
    ckpt_dnn_destroy(c->winograd_weight);
}

static const ckpt_dnn *or_own(const ckpt_dnn *winograd, const ckpt_dnn *own)
{
    return winograd != NULL ? winograd : own;
}

static ckpt_bytes larger(const ckpt_dnn *a, const ckpt_dnn *b)
{
    const ckpt_bytes first = a == NULL ? 0 : ckpt_dnn_workspace(a), second = b == NULL ? 0 : ckpt_dnn_workspace(b);
    return first > second ? first : second;
}

static ckpt_bytes way_workspace(const ckpt_node *node, const void *state, const ckpt_way *way)
{
    (void)node;
    const conv2d *const c = state;
    const bool here =
        way->backward ? c->winograd_weight != NULL || c->winograd_input != NULL : c->winograd_forward != NULL;
    return !here           ? CKPT_WAY_ABSENT
           : way->backward ? larger(or_own(c->winograd_weight, c->weight), or_own(c->winograd_input, c->input))
                           : ckpt_dnn_workspace(c->winograd_forward);
}

static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)node;
    const conv2d *c = state;
    *forward = c->gather_bytes + ckpt_dnn_workspace(c->forward);
    *backward = c->gather_bytes + larger(c->weight, c->input);
}

/* Copies the input pixel of each output pixel, or back: then all other input pixels become zero. */
static void move_pixels(const ckpt_node *node, const float *from, float *to, bool back)
{
    const ckpt_dnn_shape s = shape_of(node);
    const int64_t C = s.in_channels;
    const size_t pixel = (size_t)C * sizeof(float);
#pragma omp parallel for schedule(static) num_threads(node->threads)
    for (int64_t row = 0; row < s.batch * s.out[0]; row++) {
        const int64_t n = row / s.out[0], i = row % s.out[0];
        /* This iteration clears the input rows from this output row's to the next one's. */
        const int64_t top = n * s.in[0] + i * s.stride[0];
        const int64_t below = i + 1 < s.out[0] ? top + s.stride[0] : (n + 1) * s.in[0];
        if (back) {
            memset(to + top * s.in[1] * C, 0, (size_t)((below - top) * s.in[1]) * pixel);
        }
        for (int64_t j = 0; j < s.out[1]; j++) {
            const int64_t large = (top * s.in[1] + j * s.stride[1]) * C, small = (row * s.out[1] + j) * C;
            memcpy(to + (back ? large : small), from + (back ? small : large), pixel);
        }
    }
}

/* y = x W^T, dW = dy^T x, dx = dy W over pixels. */
static ckpt_code product_forward(const ckpt_kernel_args *args, const float *bias, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *x = args->in[0];
    if (c->gather_bytes > 0) {
        move_pixels(args->node, x, args->workspace, false);
        x = args->workspace;
    }
    return ckpt_dnn_run(c->forward, (const void *const[4]){x, args->param[0], args->out[0], bias},
                        (char *)args->workspace + c->gather_bytes, err);
}

static ckpt_code product_backward(const ckpt_kernel_args *args, float *bias, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *x = args->in[0], *dy = args->grad_out[0];
    float *dx = args->grad_in[0], *pixels = args->workspace;
    void *scratch = (char *)args->workspace + c->gather_bytes;
    if (c->gather_bytes > 0) {
        move_pixels(args->node, x, pixels, false);
        x = pixels;
    }
    CKPT_TRY(ckpt_dnn_run(c->weight, (const void *const[4]){dy, x, args->grad_param[0], NULL}, scratch, err));
    if (bias != NULL) {
        const int64_t channels = args->node->out[0].shape.dim[1];
        const int64_t rows = ckpt_shape_count(&args->node->out[0].shape) / channels;
        ckpt_column_sums(rows, channels, dy, bias, false, args->node->threads);
    }
    if (dx == NULL) {
        return CKPT_OK;
    }
    float *const gathered = c->gather_bytes > 0 ? pixels : dx;
    CKPT_TRY(ckpt_dnn_run(c->input, (const void *const[4]){dy, args->param[0], gathered, NULL}, scratch, err));
    if (c->gather_bytes > 0) {
        move_pixels(args->node, pixels, dx, true);
    }
    return CKPT_OK;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *bias = args->node->param_count > 1 ? args->param[1] : NULL;
    if (c->product) {
        return product_forward(args, bias, err);
    }
    const ckpt_dnn *const call = args->way != NULL ? c->winograd_forward : c->forward;
    return ckpt_dnn_run(call, (const void *const[4]){args->in[0], args->param[0], args->out[0], bias}, args->workspace,
                        err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const conv2d *c = args->state;
    const float *dy = args->grad_out[0];
    float *bias = args->node->param_count > 1 ? args->grad_param[1] : NULL;
    if (c->product) {
        return product_backward(args, bias, err);
    }
    const ckpt_dnn *const weight = args->way != NULL ? or_own(c->winograd_weight, c->weight) : c->weight;
    const ckpt_dnn *const input = args->way != NULL ? or_own(c->winograd_input, c->input) : c->input;
    CKPT_TRY(
        ckpt_dnn_run(weight, (const void *const[4]){args->in[0], args->grad_param[0], dy, bias}, args->workspace, err));
    return args->grad_in[0] == NULL
               ? CKPT_OK
               : ckpt_dnn_run(input, (const void *const[4]){args->grad_in[0], args->param[0], dy, NULL},
                              args->workspace, err);
}

const ckpt_kernel ckpt_cpu_conv2d = {
    .op = "conv2d",
    .state_bytes = sizeof(conv2d),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .way_workspace = way_workspace,
    .forward = forward,
    .backward = backward,
};
