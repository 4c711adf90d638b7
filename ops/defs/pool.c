/* Pooling: maxpool2d, avgpool2d and global_avgpool. Max pooling keeps where each maximum stood, so that backward
 * needs neither its input nor its output. */
#include "ops/defs/window_impl.h"
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "kernel_size", .kind = CKPT_INTS, .required = true, .help = "height and width of the window"},
    {.name = "stride", .kind = CKPT_INTS, .integer = 0, .help = "step of the window; 0: kernel_size"},
    {.name = "padding", .kind = CKPT_INTS, .integer = 0, .help = "on each side, at most half the window"},
    {0},
};

static ckpt_code infer_window(ckpt_node *node, ckpt_window *window, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_window(node, true, window, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const ckpt_shape y = {4, {x->dim[0], x->dim[1], window->out[0], window->out[1]}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    /* One comparison or addition per element of a window. */
    node->forward_flop =
        ckpt_times(ckpt_times(ckpt_shape_count(&node->out[0].shape), window->kernel[0]), window->kernel[1]);
    return CKPT_OK;
}

static ckpt_code infer_max(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    ckpt_window window;
    CKPT_TRY(infer_window(node, &window, err));
    /* u * kernel width + v of the maximum in its window, a byte where that is enough; in the memory order of the output,
     * so of rank 1. */
    const ckpt_shape indices = {1, {ckpt_shape_count(&node->out[0].shape)}};
    const int64_t positions = ckpt_times(window.kernel[0], window.kernel[1]);
    if (positions > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "kernel_size is %lld x %lld, wanted at most %d positions",
                         (long long)window.kernel[0], (long long)window.kernel[1], INT32_MAX);
    }
    CKPT_TRY(ckpt_node_add_saved(node, "indices", positions <= 256 ? CKPT_UINT8 : CKPT_INT32, &indices, err));
    node->backward_saved = 1;
    node->backward_flop = indices.dim[0];
    return CKPT_OK;
}

static ckpt_code infer_average(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    ckpt_window window;
    CKPT_TRY(infer_window(node, &window, err));
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

static ckpt_code infer_global(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 4, "[N, C, H, W]", err));
    const ckpt_shape *const x = &node->in[0].shape;
    const ckpt_shape y = {4, {x->dim[0], x->dim[1], 1, 1}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->forward_flop = ckpt_shape_count(x);
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

const ckpt_op ckpt_op_maxpool2d = {
    .name = "maxpool2d",
    .formula = "y[n,c,i,j] = max_{u,v} x[n, c, i s + u - p, j s + v - p], the first of equal ones",
    .source = "torch.nn.MaxPool2d",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_max,
};

const ckpt_op ckpt_op_avgpool2d = {
    .name = "avgpool2d",
    .formula = "y[n,c,i,j] = sum_{u,v} x[n, c, i s + u - p, j s + v - p] / (kh kw), zeros of the padding counted",
    .source = "torch.nn.AvgPool2d, count_include_pad",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer_average,
};

const ckpt_op ckpt_op_global_avgpool = {
    .name = "global_avgpool",
    .formula = "y[n,c,0,0] = sum_{i,j} x[n,c,i,j] / (H W)",
    .source = "Lin, Chen & Yan 2013, arXiv:1312.4400; torch.nn.AdaptiveAvgPool2d(1)",
    .in_min = 1,
    .in_max = 1,
    .infer = infer_global,
};
