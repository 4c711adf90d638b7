/* tokens and image: an image as the sequence of its pixels, and back. Channels lie last on both sides, so nothing
 * moves. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec image_attrs[] = {
    {.name = "height", .kind = CKPT_INT, .required = true, .help = "rows of pixels"},
    {.name = "width", .kind = CKPT_INT, .required = true, .help = "pixels of a row; height * width tokens"},
    {0},
};

static ckpt_code finish(ckpt_node *node, const ckpt_shape *shape, ckpt_err *err)
{
    node->alias = true;
    return ckpt_node_add_output(node, node->in[0].dtype, shape, err);
}

static ckpt_code infer_tokens(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need_rank(node, 0, 4, "[N, C, H, W]", err));
    const int64_t *const dim = node->in[0].shape.dim;
    return finish(node, &(ckpt_shape){3, {dim[0], dim[2] * dim[3], dim[1]}}, err);
}

static ckpt_code infer_image(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need_rank(node, 0, 3, "[N, H*W, C]", err));
    const int64_t *const dim = node->in[0].shape.dim;
    const int64_t height = ckpt_node_int(node, "height"), width = ckpt_node_int(node, "width");
    if (height < 1 || width < 1 || ckpt_times(height, width) != dim[1]) {
        char shape[CKPT_SHAPE_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "height is %lld and width is %lld, but input 0 %s has %lld tokens",
                         (long long)height, (long long)width, ckpt_shape_show(&node->in[0].shape, shape),
                         (long long)dim[1]);
    }
    return finish(node, &(ckpt_shape){4, {dim[0], dim[2], height, width}}, err);
}

const ckpt_op ckpt_op_tokens = {
    .name = "tokens",
    .formula = "y[n, i W + j, c] = x[n, c, i, j]",
    .source = "Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1",
    .in_min = 1,
    .in_max = 1,
    .view = true,
    .infer = infer_tokens,
};

const ckpt_op ckpt_op_image = {
    .name = "image",
    .formula = "y[n, c, i, j] = x[n, i W + j, c]",
    .source = "the inverse of tokens",
    .attrs = image_attrs,
    .in_min = 1,
    .in_max = 1,
    .view = true,
    .infer = infer_image,
};
