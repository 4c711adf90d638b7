/* window_mask: which tokens of a shifted window may see each other. The image has been rolled by -shift, so that windows
 * at its lower and right ends hold tokens from both ends. No gradient. */
#include "ops/ops_impl.h"

static const ckpt_attr_spec attrs[] = {
    {.name = "height", .kind = CKPT_INT, .required = true, .help = "of the image in tokens, a multiple of window"},
    {.name = "width", .kind = CKPT_INT, .required = true, .help = "likewise"},
    {.name = "window", .kind = CKPT_INT, .required = true, .help = "side of the square windows"},
    {.name = "shift", .kind = CKPT_INTS, .required = true, .help = "down and right, each below window; 0: all is seen"},
    {0},
};

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    int64_t window = 0, height = 0, width = 0, shift[2];
    CKPT_TRY(ckpt_node_int_between(node, "window", 1, 1024, &window, err));
    CKPT_TRY(ckpt_node_int_between(node, "height", 1, INT32_MAX, &height, err));
    CKPT_TRY(ckpt_node_int_between(node, "width", 1, INT32_MAX, &width, err));
    CKPT_TRY(ckpt_node_pair(node, "shift", 0, shift, err));
    if (height % window != 0 || width % window != 0 || shift[0] >= window || shift[1] >= window) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "height is %lld, width %lld, window %lld, shift [%lld, %lld], wanted multiples of the window and "
            "less than it",
            (long long)height, (long long)width, (long long)window, (long long)shift[0], (long long)shift[1]);
    }
    const int64_t windows = ckpt_times(height / window, width / window), tokens = window * window;
    const ckpt_shape y = {3, {windows, tokens, tokens}};
    return ckpt_node_add_output(node, CKPT_INT32, &y, err);
}

const ckpt_op ckpt_op_window_mask = {
    .name = "window_mask",
    .formula = "y[g, i, j] = 1 where tokens i and j of window g were neighbours before the roll, else 0",
    .source = "Liu et al. 2021, arXiv:2103.14030, section 3.2, figure 4",
    .attrs = attrs,
    .in_min = 0,
    .in_max = 0,
    .infer = infer,
};
