/* conv2d: cross-correlation of an image with a bank of filters, grouped if asked: groups = C is depthwise. */
#include <math.h>

#include "ops/ops_impl.h"
#include "ops/window_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "out_channels", .kind = CKPT_INT, .required = true, .help = "filters"},
    {.name = "kernel_size", .kind = CKPT_INTS, .required = true, .help = "height and width of a filter"},
    {.name = "stride", .kind = CKPT_INTS, .integer = 1, .help = "step of the window"},
    {.name = "padding", .kind = CKPT_INTS, .integer = 0, .help = "zeros on each side"},
    {.name = "groups", .kind = CKPT_INT, .integer = 1, .help = "blocks of channels that do not mix"},
    {.name = "bias", .kind = CKPT_BOOL, .integer = 1, .help = "add a learned number per channel"},
    {0},
};

/* What one pass of oneDNN may want besides its tensors: the filters in its blocked order (once more for their
 * gradient), per-thread partial filter gradients, and padded rows. */
static void allow_workspace(ckpt_node *node, ckpt_bytes weight_bytes)
{
    node->forward_workspace_bytes = ckpt_plus(ckpt_times(weight_bytes, 2), 1 << 20);
    node->backward_workspace_bytes = ckpt_plus(ckpt_times(weight_bytes, (int64_t)node->threads + 2), 1 << 20);
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
    CKPT_TRY(ckpt_node_add_output(node, CKPT_FLOAT32, &y, err));
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
    allow_workspace(node, ckpt_tensor_bytes(&node->param[0].tensor));
    return CKPT_OK;
}

const ckpt_op ckpt_op_conv2d = {
    .name = "conv2d",
    .formula = "y[n,o,i,j] = b[o] + sum_{c,u,v} w[o,c,u,v] x[n, c + (o / (O/g)) C/g, i s + u - p, j s + v - p]",
    .source = "torch.nn.Conv2d; LeCun et al., Proc. IEEE 86(11), 1998",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer,
};
