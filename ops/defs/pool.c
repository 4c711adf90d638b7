/* Pooling: maxpool2d, avgpool2d, the adaptive ones, and global_avgpool. Max pooling keeps where each maximum stood, so
 * that backward needs neither its input nor its output. */
#include "ops/defs/window_impl.h"
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "kernel_size", .kind = CKPT_INTS, .required = true, .help = "height and width of the window"},
    {.name = "stride", .kind = CKPT_INTS, .integer = 0, .help = "step of the window; 0: kernel_size"},
    {.name = "padding", .kind = CKPT_INTS, .integer = 0, .help = "on each side, at most half the window"},
    {0},
};

static const ckpt_attr_spec adaptive_attrs[] = {
    {.name = "output_size", .kind = CKPT_INTS, .required = true, .help = "height and width of the output"},
    {0},
};

static ckpt_code infer_window(ckpt_node *node, ckpt_window *window, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_window(node, 2, CKPT_WINDOW_POOL, window, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const ckpt_shape y = {4, {x->dim[0], x->dim[1], window->out[0], window->out[1]}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->native16 = true;
    /* One comparison or addition per element of a window. */
    node->forward_flop =
        ckpt_times(ckpt_times(ckpt_shape_count(&node->out[0].shape), window->kernel[0]), window->kernel[1]);
    return CKPT_OK;
}

/* Where each maximum stood among height x width positions, a byte where that is enough; in the memory order of the
 * output, so of rank 1. */
static ckpt_code save_indices(ckpt_node *node, int64_t height, int64_t width, ckpt_err *err)
{
    const ckpt_shape indices = {1, {ckpt_shape_count(&node->out[0].shape)}};
    const int64_t positions = ckpt_times(height, width);
    if (positions > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "a maximum of %lld x %lld, wanted at most %d positions",
                         (long long)height, (long long)width, INT32_MAX);
    }
    CKPT_TRY(ckpt_node_add_saved(node, "indices", positions <= 256 ? CKPT_UINT8 : CKPT_INT32, &indices, err));
    node->backward_saved = 1;
    node->backward_flop = indices.dim[0];
    return CKPT_OK;
}

static ckpt_code infer_max(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    ckpt_window window;
    CKPT_TRY(infer_window(node, &window, err));
    /* u * kernel width + v in its window */
    return save_indices(node, window.kernel[0], window.kernel[1], err);
}

static ckpt_code infer_adaptive(ckpt_node *node, ckpt_err *err)
{
    int64_t size[2];
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 4, "[N, C, H, W]", err));
    CKPT_TRY(ckpt_node_pair(node, "output_size", 1, size, err));
    const ckpt_shape *const x = &node->in[0].shape;
    const ckpt_shape y = {4, {x->dim[0], x->dim[1], size[0], size[1]}};
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    node->native16 = true;
    /* A comparison or addition for each element of a window; windows are at most so long. */
    node->forward_flop = ckpt_shape_count(&node->out[0].shape);
    for (int d = 0; d < 2; d++) {
        node->forward_flop = ckpt_times(node->forward_flop, (x->dim[2 + d] - 1) / size[d] + 2);
    }
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

static ckpt_code infer_adaptive_max(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(infer_adaptive(node, err));
    /* row * width + column in the image */
    return save_indices(node, node->in[0].shape.dim[2], node->in[0].shape.dim[3], err);
}

static ckpt_code infer_adaptive_average(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return infer_adaptive(node, err);
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
    node->native16 = true;
    node->forward_flop = ckpt_shape_count(x);
    node->backward_flop = node->forward_flop;
    if (node->dtype == CKPT_BFLOAT16) {
        node->forward_workspace_bytes = ckpt_times(4, x->dim[1]); /* an image's sums */
    }
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
    .gpu_accumulates = true,
    .infer = infer_average,
};

const ckpt_op ckpt_op_adaptive_maxpool2d = {
    .name = "adaptive_maxpool2d",
    .formula =
        "y[n,c,i,j] = max of x[n,c,a,b], floor(i H/H') <= a < ceil((i+1) H/H'), b likewise; the first of equal ones",
    .source = "torch.nn.AdaptiveMaxPool2d",
    .attrs = adaptive_attrs,
    .in_min = 1,
    .in_max = 1,
    .accumulates = true,
    .infer = infer_adaptive_max,
};

const ckpt_op ckpt_op_adaptive_avgpool2d = {
    .name = "adaptive_avgpool2d",
    .formula = "y[n,c,i,j] = mean of x[n,c,a,b], floor(i H/H') <= a < ceil((i+1) H/H'), b likewise",
    .source = "torch.nn.AdaptiveAvgPool2d",
    .attrs = adaptive_attrs,
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer_adaptive_average,
};

const ckpt_op ckpt_op_global_avgpool = {
    .name = "global_avgpool",
    .formula = "y[n,c,0,0] = sum_{i,j} x[n,c,i,j] / (H W)",
    .source = "Lin, Chen & Yan 2013, arXiv:1312.4400; torch.nn.AdaptiveAvgPool2d(1)",
    .in_min = 1,
    .in_max = 1,
    .gpu_accumulates = true,
    .infer = infer_global,
};
