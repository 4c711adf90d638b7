/* conv2d: cross-correlation of an image with a bank of filters, grouped if asked: groups = C is depthwise. */
#include <math.h>

#include "ops/defs/window_impl.h"
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "out_channels", .kind = CKPT_INT, .required = true, .help = "filters"},
    {.name = "kernel_size", .kind = CKPT_INTS, .required = true, .help = "height and width of a filter"},
    {.name = "stride", .kind = CKPT_INTS, .integer = 1, .help = "step of the window"},
    {.name = "padding", .kind = CKPT_INTS, .integer = 0, .help = "zeros on each side"},
    {.name = "groups", .kind = CKPT_INT, .integer = 1, .help = "blocks of channels that do not mix"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add a learned number per channel"},
    {0},
};

static bool is_depthwise(const ckpt_shape *weight, int64_t groups)
{
    return weight->dim[0] == groups && weight->dim[1] == 1;
}

/* Bytes of the filters in the blocked order oneDNN gives them: channels of a group padded to vectors, or groups with
 * `by_groups`. */
static ckpt_bytes blocked_bytes(const ckpt_shape *weight, int64_t groups, bool by_groups)
{
    const int64_t out = ckpt_plus(weight->dim[0] / groups, 15) / 16 * 16, in = ckpt_plus(weight->dim[1], 15) / 16 * 16;
    const int64_t channels = by_groups ? ckpt_plus(groups, 15) / 16 * 16 : ckpt_times(ckpt_times(out, in), groups);
    return ckpt_times(ckpt_times(ckpt_times(channels, weight->dim[2]), weight->dim[3]), 4);
}

/* What the CPU takes. 1 x 1 filters are a matrix product, with the pixels they see gathered first when there is a
 * stride. Else the filters in blocked order (backward: and a partial gradient of them per thread), and per thread
 * 64 KiB of tables and edges. Gradients of depthwise filters larger than 3 x 3, or than the image, come from code that
 * knows no depthwise order. */
static void allow_workspace(ckpt_node *node, const ckpt_window *window, int64_t groups)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    if (window->kernel[0] == 1 && window->kernel[1] == 1 && window->padding[0] == 0 && window->padding[1] == 0 &&
        groups == 1) {
        const int64_t rows = ckpt_shape_count(y) / y->dim[1];
        const bool strided = window->stride[0] > 1 || window->stride[1] > 1;
        const ckpt_bytes seen = strided ? ckpt_plus(ckpt_times(ckpt_times(rows, x->dim[1]), 4), CKPT_ALIGN) : 0;
        node->forward_workspace_bytes =
            ckpt_plus(seen, ckpt_product_workspace(rows, x->dim[1], y->dim[1], false, node->threads));
        node->backward_workspace_bytes = node->forward_workspace_bytes;
        return;
    }
    const ckpt_bytes threads = ckpt_times(64 * 1024, node->threads);
    const ckpt_shape *const weight = &node->param[0].tensor.shape;
    const bool depthwise = is_depthwise(weight, groups);
    const ckpt_bytes filters = blocked_bytes(weight, groups, depthwise);
    const ckpt_bytes partial = ckpt_times(filters, (int64_t)node->threads + 1);
    const bool large = depthwise && (window->kernel[0] > 3 || window->kernel[1] > 3 || x->dim[2] < window->kernel[0] ||
                                     x->dim[3] < window->kernel[1]);
    const ckpt_bytes whole = large ? blocked_bytes(weight, groups, false) : 0;
    node->forward_workspace_bytes = ckpt_plus(filters, threads);
    node->backward_workspace_bytes = ckpt_plus(whole > partial ? whole : partial, threads);
}

/* Other bits, and a workspace for images in blocks of channels (ckpt_dnn_winograd). */
static void add_ways(ckpt_node *node, const ckpt_window *window, int64_t groups)
{
    const int64_t in = node->in[0].shape.dim[1], out = node->out[0].shape.dim[1];
    bool fits = node->threads != CKPT_ON_GPU && groups == 1 && in % 16 == 0 && out % 16 == 0;
    for (int d = 0; d < 2; d++) {
        fits = fits && window->kernel[d] == 3 && window->stride[d] == 1;
    }
    for (int backward = 0; fits && backward < 2; backward++) {
        ckpt_way *const way = ckpt_node_add_way(node, "winograd", backward == 1);
        way->inexact = way->measured = true;
        way->in = backward == 1 ? node->backward_in : 0;
        node->forward_way = node->backward_way = "direct";
    }
}

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    ckpt_window window;
    CKPT_TRY(ckpt_node_window(node, false, &window, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t out_channels = ckpt_node_int(node, "out_channels"), groups = ckpt_node_int(node, "groups");
    char shape[CKPT_SHAPE_TEXT];
    if (out_channels < 1 || groups < 1 || out_channels % groups != 0 || x->dim[1] % groups != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "out_channels is %lld, groups is %lld, input 0 is %s: groups must divide both channel counts",
                         (long long)out_channels, (long long)groups, ckpt_shape_show(x, shape));
    }
    const ckpt_shape y = {4, {x->dim[0], out_channels, window.out[0], window.out[1]}};
    const ckpt_shape weight = {4, {out_channels, x->dim[1] / groups, window.kernel[0], window.kernel[1]}};
    const int64_t fan_in = ckpt_times(ckpt_times(weight.dim[1], weight.dim[2]), weight.dim[3]);
    const double bound = 1.0 / sqrt((double)fan_in);
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_UNIFORM, bound, true, err));
    if (ckpt_node_bool(node, "bias")) {
        const ckpt_shape bias = {1, {out_channels}};
        CKPT_TRY(ckpt_node_add_param(node, "bias", &bias, CKPT_INIT_UNIFORM, bound, false, err));
    }
    node->backward_in = 1;

    /* Forward: a multiplication and an addition per filter tap. Backward: the same for the filters, and for the
     * image when it is wanted. */
    const int64_t multiplies = ckpt_times(ckpt_shape_count(&y), fan_in);
    node->forward_flop = ckpt_times(multiplies, 2);
    node->backward_flop = ckpt_times(multiplies, (node->grad_in & 1) ? 4 : 2);
    allow_workspace(node, &window, groups);
    add_ways(node, &window, groups);
    return CKPT_OK;
}

/* What cuDNN may take: memory for tables and for the parts of a split sum, in proportion to the data, at most 64 MiB.
 * It has algorithms that take next to nothing, and where it finds none own kernels do it (kernels/cuda/conv2d.cu). */
static ckpt_bytes library_allowance(const ckpt_node *node)
{
    const ckpt_bytes mib = (ckpt_bytes)1 << 20;
    const ckpt_bytes images = ckpt_plus(ckpt_tensor_bytes(&node->in[0]), ckpt_tensor_bytes(&node->out[0]));
    const ckpt_bytes data = ckpt_times(2, ckpt_plus(images, ckpt_tensor_bytes(&node->param[0].tensor)));
    return mib + ckpt_round_up(data < 63 * mib ? data : 63 * mib, CKPT_ALIGN);
}

static ckpt_bytes larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* As kernels/cuda/conv2d.cu divides convolutions: products over pixels, own kernels for depthwise filters, cuDNN with
 * turned filters before its own workspace. The steps of backward run one after the other. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    const ckpt_shape *const weight = &node->param[0].tensor.shape;
    const int64_t groups = ckpt_node_int(node, "groups"), rows = ckpt_shape_count(y) / y->dim[1];
    const int64_t taps = ckpt_times(weight->dim[2], weight->dim[3]), seen = ckpt_times(weight->dim[1], taps);
    bool product = groups == 1 && taps == 1;
    for (int d = 0; d < 2; d++) {
        product = product && ckpt_node_int_at(node, "stride", d) == 1 && ckpt_node_int_at(node, "padding", d) == 0;
    }
    const ckpt_bytes sums = node->param_count > 1 ? ckpt_gpu_column_sums_workspace(rows, y->dim[1]) : 0;
    if (product) {
        *forward = ckpt_gpu_product_workspace(rows, x->dim[1], y->dim[1]);
        *backward = larger(*forward, sums);
        return;
    }
    /* Own kernels: a partial gradient for every part of the pixels. */
    const int64_t part_rows = ckpt_gpu_part_rows(seen, rows, y->dim[1]);
    const int64_t parts = rows / part_rows + (rows % part_rows != 0);
    const ckpt_bytes partial = ckpt_times(ckpt_times(4 * parts, seen), y->dim[1]);
    *backward = larger(partial < CKPT_BYTES_MAX - CKPT_ALIGN ? ckpt_round_up(partial, CKPT_ALIGN) : partial, sums);
    if (groups == x->dim[1] && groups == y->dim[1]) {
        return;
    }
    const ckpt_bytes filters = ckpt_times(ckpt_shape_count(weight), ckpt_dtype_bytes(node->in[0].dtype));
    *forward = ckpt_plus(ckpt_round_up(filters, CKPT_ALIGN), library_allowance(node));
    *backward = larger(*backward, *forward);
}

const ckpt_op ckpt_op_conv2d = {
    .name = "conv2d",
    .formula = "y[n,o,i,j] = b[o] + sum_{c,u,v} w[o,c,u,v] x[n, c + (o / (O/g)) C/g, i s + u - p, j s + v - p]",
    .source = "torch.nn.Conv2d; LeCun et al., Proc. IEEE 86(11), 1998",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer,
    .gpu_workspace = gpu_workspace,
};
