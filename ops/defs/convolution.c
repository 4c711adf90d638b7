/* Convolutions, grouped if asked (groups = C is depthwise): cross-correlation of a sequence, an image or a volume with a
 * bank of filters. The transposed ones are its gradient by the input (ops/convolution.h). */
#include "ops/convolution.h"

#include <math.h>

#include "ops/defs/window_impl.h"
#include "ops/ops_impl.h"

/* clang-format off */
#define SIZES \
    {.name = "out_channels", .kind = CKPT_INT, .required = true, .help = "filters"}, \
    {.name = "kernel_size", .kind = CKPT_INTS, .required = true, .help = "of a filter, a number for each dim"}, \
    {.name = "stride", .kind = CKPT_INTS, .integer = 1, .help = "step of the window"}, \
    {.name = "padding", .kind = CKPT_INTS, .integer = 0, .help = "zeros on each side"}, \
    {.name = "dilation", .kind = CKPT_INTS, .integer = 1, .help = "step from tap to tap"}, \
    {.name = "groups", .kind = CKPT_INT, .integer = 1, .help = "blocks of channels that do not mix"}, \
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add a learned number per channel"}
/* clang-format on */

static const ckpt_attr_spec attrs[] = {SIZES, {0}};
static const ckpt_attr_spec transposed_attrs[] = {
    SIZES,
    {.name = "output_padding", .kind = CKPT_INTS, .integer = 0, .help = "added to the output's size; below stride"},
    {0},
};

static bool is_depthwise(const ckpt_convolution *c)
{
    return c->groups == c->in_channels && c->groups == c->out_channels;
}

/* Bytes of the filters in the blocked order oneDNN gives them: channels of a group padded to vectors, or groups with
 * `by_groups`. */
static ckpt_bytes blocked_bytes(const ckpt_convolution *c, bool by_groups)
{
    const int64_t out = ckpt_plus(c->out_channels / c->groups, 15) / 16 * 16;
    const int64_t in = ckpt_plus(c->in_channels / c->groups, 15) / 16 * 16;
    const int64_t channels =
        by_groups ? ckpt_plus(c->groups, 15) / 16 * 16 : ckpt_times(ckpt_times(out, in), c->groups);
    return ckpt_times(ckpt_times(channels, ckpt_convolution_taps(c)), 4);
}

/* What gradients of dilated filters and of volumes' take without AVX-512, where oneDNN has only products of columns for
 * them: the pixels that each output of an image, or of a volume's slice, sees, twice a thread (test_onednn). */
static ckpt_bytes spread_bytes(const ckpt_node *node, const ckpt_convolution *c)
{
    const int64_t channels = ckpt_times(c->in_channels, ckpt_convolution_taps(c));
    const int64_t seen = ckpt_times(channels, ckpt_times(c->out[1], c->out[2]));
    return ckpt_times(ckpt_times(seen, 2 * (int64_t)node->threads), 4);
}

/* What the CPU takes. Filters of one tap are a matrix product, with the pixels they see gathered first when there is a
 * stride; where columns are a product, they and the filters in their order come first. Else the filters in blocked order
 * (backward: and a partial gradient of them per thread), and per thread 64 KiB of tables and edges. oneDNN's
 * code for gradients of depthwise filters larger than 3 x 3, or than the image, or dilated, and for all depthwise filters
 * of volumes, knows no depthwise order; of images in float32 our own takes less (kernels/cpu/depthwise.h). */
static void allow_workspace(ckpt_node *node, const ckpt_convolution *c)
{
    const bool columns = ckpt_convolution_is_columns(c);
    if (columns || ckpt_convolution_is_product(c, false)) {
        const int64_t rows = ckpt_convolution_out_rows(c), in = ckpt_times(c->in_channels, ckpt_convolution_taps(c));
        const bool gathers = !ckpt_convolution_is_product(c, true);
        const ckpt_bytes pixels = ckpt_times(ckpt_times(rows, in), ckpt_dtype_bytes(node->dtype));
        const ckpt_bytes seen = gathers ? ckpt_plus(pixels, CKPT_ALIGN) : 0;
        const ckpt_bytes filters = columns ? ckpt_plus(ckpt_times(ckpt_times(in, c->out_channels), 4), CKPT_ALIGN) : 0;
        node->forward_workspace_bytes =
            ckpt_plus(ckpt_plus(seen, filters), ckpt_product_workspace(node, rows, in, c->out_channels, false));
        node->backward_workspace_bytes = node->forward_workspace_bytes;
        return;
    }
    const ckpt_bytes threads = ckpt_times(64 * 1024, node->threads);
    const bool depthwise = is_depthwise(c);
    bool large = c->volume, dilated = false;
    for (int d = 0; d < 3; d++) {
        dilated = dilated || c->dilation[d] > 1;
        large = large || c->kernel[d] > 3 || c->in[d] < c->kernel[d] || c->dilation[d] > 1;
    }
    const ckpt_bytes filters = blocked_bytes(c, depthwise), whole = blocked_bytes(c, false);
    const ckpt_bytes partial = ckpt_times(filters, (int64_t)node->threads + 1);
    const ckpt_bytes spread = (dilated || c->volume) && !depthwise ? spread_bytes(node, c) : 0;
    node->forward_workspace_bytes = ckpt_plus(c->volume ? whole : filters, threads);
    node->backward_workspace_bytes =
        ckpt_plus(ckpt_plus(depthwise && large && whole > partial ? whole : partial, threads), spread);
}

/* Other bits, and a workspace for images in blocks of channels (ckpt_dnn_winograd). */
static void add_ways(ckpt_node *node, const ckpt_convolution *c)
{
    bool fits = node->threads != CKPT_ON_GPU && node->dtype == CKPT_FLOAT32 && !c->transposed && !c->volume &&
                c->groups == 1 && c->in_channels % 16 == 0 && c->out_channels % 16 == 0;
    for (int d = 1; d < 3; d++) {
        fits = fits && c->kernel[d] == 3 && c->stride[d] == 1 && c->dilation[d] == 1;
    }
    for (int backward = 0; fits && backward < 2; backward++) {
        ckpt_way *const way = ckpt_node_add_way(node, "winograd", backward == 1);
        way->inexact = way->measured = true;
        way->in = backward == 1 ? node->backward_in : 0;
        node->forward_way = node->backward_way = "direct";
    }
}

static ckpt_code infer(ckpt_node *node, int dims, bool transposed, ckpt_err *err)
{
    ckpt_window window;
    CKPT_TRY(ckpt_node_window(node, dims, transposed ? CKPT_WINDOW_TRANSPOSED : CKPT_WINDOW_CONVOLUTION, &window, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t out_channels = ckpt_node_int(node, "out_channels"), groups = ckpt_node_int(node, "groups");
    const int channels = dims == 2 ? 1 : dims + 1, first = dims == 2 ? 2 : 1;
    const int64_t in_channels = x->dim[channels];
    char shape[CKPT_SHAPE_TEXT];
    if (out_channels < 1 || groups < 1 || out_channels % groups != 0 || in_channels % groups != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "out_channels is %lld, groups is %lld, input 0 is %s: groups must divide both channel counts",
                         (long long)out_channels, (long long)groups, ckpt_shape_show(x, shape));
    }
    ckpt_shape y = *x;
    ckpt_shape weight = {dims + 2, {transposed ? in_channels : out_channels, 0}};
    weight.dim[1] = (transposed ? out_channels : in_channels) / groups;
    y.dim[channels] = out_channels;
    int64_t fan = weight.dim[1];
    for (int d = 0; d < dims; d++) {
        y.dim[first + d] = window.out[d];
        weight.dim[2 + d] = window.kernel[d];
        fan = ckpt_times(fan, window.kernel[d]);
    }
    const double bound = 1.0 / sqrt((double)fan); /* as torch.nn: of a transposed one, too, by the weight's dim 1 */
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    CKPT_TRY(ckpt_node_add_param(node, "weight", &weight, CKPT_INIT_UNIFORM, bound, true, err));
    if (ckpt_node_bool(node, "bias")) {
        const ckpt_shape bias = {1, {out_channels}};
        CKPT_TRY(ckpt_node_add_param(node, "bias", &bias, CKPT_INIT_UNIFORM, bound, false, err));
    }
    node->backward_in = 1;
    node->native16 = true;

    /* Forward: a multiplication and an addition per filter tap and value on the side that windows lie around. Backward:
     * the same for the filters, and for the input when it is wanted. */
    const int64_t multiplies = ckpt_times(ckpt_shape_count(transposed ? x : &y), fan);
    node->forward_flop = ckpt_times(multiplies, 2);
    node->backward_flop = ckpt_times(multiplies, (node->grad_in & 1) ? 4 : 2);
    const ckpt_convolution form = ckpt_convolution_of(node);
    allow_workspace(node, &form);
    add_ways(node, &form);
    return CKPT_OK;
}

static ckpt_code infer_1d(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer(node, 1, false, err);
}

static ckpt_code infer_2d(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer(node, 2, false, err);
}

static ckpt_code infer_3d(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer(node, 3, false, err);
}

static ckpt_code infer_transpose1d(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer(node, 1, true, err);
}

static ckpt_code infer_transpose2d(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer(node, 2, true, err);
}

/* What cuDNN may take: memory for tables and for the parts of a split sum, in proportion to the data, at most 64 MiB.
 * It has algorithms that take next to nothing, and where it finds none own kernels do it
 * (kernels/cuda/convolution.cu). */
static ckpt_bytes library_allowance(const ckpt_node *node)
{
    const ckpt_bytes mib = (ckpt_bytes)1 << 20;
    const ckpt_bytes images = ckpt_plus(ckpt_tensor_bytes(&node->in[0]), ckpt_tensor_bytes(&node->out[0]));
    const ckpt_bytes data = ckpt_times(2, ckpt_plus(images, ckpt_tensor_bytes(&node->param[0].tensor)));
    return mib + ckpt_aligned(data < 63 * mib ? data : 63 * mib);
}

static ckpt_bytes larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* As kernels/cuda/convolution.cu divides convolutions: products over pixels, own kernels for depthwise filters, cuDNN
 * with turned filters before its own workspace. The steps of backward run one after the other. */
static void gpu_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_convolution c = ckpt_convolution_of(node);
    const int64_t rows = ckpt_convolution_out_rows(&c), seen = c.in_channels / c.groups * ckpt_convolution_taps(&c);
    const ckpt_bytes sums = node->param_count == 1 ? 0
                            : c.transposed ? ckpt_gpu_column_sums_workspace(ckpt_convolution_in_rows(&c), c.in_channels)
                                           : ckpt_gpu_column_sums_workspace(rows, c.out_channels);
    if (ckpt_convolution_is_product(&c, true)) {
        *forward = ckpt_gpu_product_workspace(rows, c.in_channels, c.out_channels);
        *backward = larger(*forward, sums);
        return;
    }
    /* Own kernels: a partial gradient for every part of the pixels. */
    const int64_t part_rows = ckpt_gpu_part_rows(seen, rows, c.out_channels);
    const int64_t parts = rows / part_rows + (rows % part_rows != 0);
    const ckpt_bytes partial = ckpt_times(ckpt_times(4 * parts, seen), c.out_channels);
    *backward = larger(ckpt_aligned(partial), sums);
    if (is_depthwise(&c)) {
        return;
    }
    const ckpt_bytes filters =
        ckpt_times(ckpt_shape_count(&node->param[0].tensor.shape), ckpt_dtype_bytes(node->in[0].dtype));
    *forward = ckpt_plus(ckpt_aligned(filters), library_allowance(node));
    *backward = larger(*backward, *forward);
}

const ckpt_op ckpt_op_conv1d = {
    .name = "conv1d",
    .formula = "y[n,i,o] = b[o] + sum_{c,u} w[o,c,u] x[n, i s + u d - p, c + (o / (O/g)) C/g]",
    .source = "torch.nn.Conv1d, channels last",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0,
    .infer = infer_1d,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_conv2d = {
    .name = "conv2d",
    .formula = "y[n,o,i,j] = b[o] + sum_{c,u,v} w[o,c,u,v] x[n, c + (o / (O/g)) C/g, i s + u d - p, j s + v d - p]",
    .source = "torch.nn.Conv2d; LeCun et al., Proc. IEEE 86(11), 1998",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0,
    .infer = infer_2d,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_conv3d = {
    .name = "conv3d",
    .formula = "y[n,h,i,j,o] = b[o] + sum_{c,t,u,v} w[o,c,t,u,v] x[n, h s + t d - p, i s + u d - p, j s + v d - p, "
               "c + (o / (O/g)) C/g]",
    .source = "torch.nn.Conv3d, channels last",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0,
    .infer = infer_3d,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_conv_transpose1d = {
    .name = "conv_transpose1d",
    .formula = "y[n,i,o] = b[o] + the sum over a, u with a s + u d - p = i and c in o's group of w[c,o,u] x[n,a,c]",
    .source = "torch.nn.ConvTranspose1d, channels last; Dumoulin & Visin 2016, arXiv:1603.07285, section 4",
    .attrs = transposed_attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0,
    .infer = infer_transpose1d,
    .gpu_workspace = gpu_workspace,
};

const ckpt_op ckpt_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .formula =
        "y[n,o,i,j] = b[o] + the sum over a, b, u, v with a s + u d - p = i, b s + v d - p = j and c in o's group "
        "of w[c,o,u,v] x[n,c,a,b]",
    .source = "torch.nn.ConvTranspose2d; Dumoulin & Visin 2016, arXiv:1603.07285, section 4",
    .attrs = transposed_attrs,
    .in_min = 1,
    .in_max = 1,
    .param16 = 1u << 0,
    .infer = infer_transpose2d,
    .gpu_workspace = gpu_workspace,
};
