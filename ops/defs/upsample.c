/* upsample: an image enlarged by a whole factor. Half-pixel centres (align_corners false). */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "scale", .kind = CKPT_INT, .integer = 2, .help = "factor of height and width"},
    {.name = "mode", .kind = CKPT_STRING, .string = "nearest", .words = "nearest|bilinear", .help = "interpolation"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 4, "[N, C, H, W]", err));
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t scale = ckpt_node_int(node, "scale");
    if (scale < 1 || scale > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "scale is %lld, wanted 1 to %d", (long long)scale, INT32_MAX);
    }
    ckpt_shape y = *x;
    y.dim[2] = ckpt_times(x->dim[2], scale);
    y.dim[3] = ckpt_times(x->dim[3], scale);
    CKPT_TRY(ckpt_node_add_output(node, node->dtype, &y, err));
    /* Bilinear: four weights and their sum per pixel. */
    const int64_t per_pixel = ckpt_node_string(node, "mode")[0] == 'b' ? 8 : 1;
    node->forward_flop = ckpt_times(ckpt_shape_count(&node->out[0].shape), per_pixel);
    node->backward_flop = node->forward_flop;
    return CKPT_OK;
}

const ckpt_op ckpt_op_upsample = {
    .name = "upsample",
    .formula = "nearest: y[n,c,i,j] = x[n,c,i/s,j/s]; bilinear: x at ((i+1/2)/s - 1/2, (j+1/2)/s - 1/2), clamped",
    .source = "torch.nn.Upsample, align_corners=False",
    .attrs = attrs,
    .in_min = 1,
    .in_max = 1,
    .infer = infer,
};
