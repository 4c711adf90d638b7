/* Sliding windows. */
#include "ops/defs/window_impl.h"

#include "ops/ops_impl.h"

ckpt_code ckpt_node_window(const ckpt_node *node, bool half, ckpt_window *window, ckpt_err *err)
{
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, 4, "[N, C, H, W]", err));
    CKPT_TRY(ckpt_node_pair(node, "kernel_size", 1, window->kernel, err));
    CKPT_TRY(ckpt_node_pair(node, "stride", half ? 0 : 1, window->stride, err));
    CKPT_TRY(ckpt_node_pair(node, "padding", 0, window->padding, err));
    for (int d = 0; d < 2; d++) {
        if (window->stride[d] == 0) {
            window->stride[d] = window->kernel[d];
        }
        if (half && 2 * window->padding[d] > window->kernel[d]) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"padding\" is %lld, wanted at most half of kernel_size %lld",
                             (long long)window->padding[d], (long long)window->kernel[d]);
        }
        const int64_t padded = ckpt_plus(node->in[0].shape.dim[2 + d], 2 * window->padding[d]);
        if (padded < window->kernel[d]) {
            char shape[CKPT_SHAPE_TEXT];
            return CKPT_FAIL(
                err, CKPT_BAD_INPUT, "a window of %lld x %lld does not fit input 0 %s with padding %lld x %lld",
                (long long)window->kernel[0], (long long)window->kernel[1], ckpt_shape_show(&node->in[0].shape, shape),
                (long long)window->padding[0], (long long)window->padding[1]);
        }
        window->out[d] = (padded - window->kernel[d]) / window->stride[d] + 1;
    }
    return CKPT_OK;
}
