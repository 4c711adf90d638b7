/* Sliding windows. */
#include "ops/defs/window_impl.h"

#include <stdio.h>

#include "ops/ops_impl.h"

enum { SIZES_TEXT = 80 };

/* "3 x 3" */
static const char *sizes_show(int dims, const int64_t *size, char *text)
{
    int at = 0;
    for (int d = 0; d < dims; d++) {
        at += snprintf(text + at, (size_t)(SIZES_TEXT - at), "%s%lld", d > 0 ? " x " : "", (long long)size[d]);
    }
    return text;
}

static ckpt_code pool_out(int d, int64_t size, ckpt_window *window, ckpt_err *err)
{
    window->stride[d] = window->stride[d] == 0 ? window->kernel[d] : window->stride[d];
    if (2 * window->padding[d] > window->kernel[d]) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"padding\" is %lld, wanted at most half of kernel_size %lld",
                         (long long)window->padding[d], (long long)window->kernel[d]);
    }
    window->out[d] = (ckpt_plus(size, 2 * window->padding[d]) - window->kernel[d]) / window->stride[d] + 1;
    return CKPT_OK;
}

static ckpt_code transposed_out(int d, int64_t size, int64_t span, int64_t output_padding, ckpt_window *window,
                                ckpt_err *err)
{
    if (output_padding >= window->stride[d]) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"output_padding\" is %lld, wanted less than stride %lld",
                         (long long)output_padding, (long long)window->stride[d]);
    }
    const int64_t full = ckpt_plus(ckpt_times(size - 1, window->stride[d]), ckpt_plus(span, output_padding));
    if (full <= 2 * window->padding[d]) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"padding\" is %lld and cuts off all of an output of %lld",
                         (long long)window->padding[d], (long long)full);
    }
    window->out[d] = full - 2 * window->padding[d];
    return CKPT_OK;
}

ckpt_code ckpt_node_window(const ckpt_node *node, int dims, ckpt_window_kind kind, ckpt_window *window, ckpt_err *err)
{
    static const char *const shape_text[] = {NULL, "[N, L, C]", "[N, C, H, W]", "[N, D, H, W, C]"};
    int64_t dilation[3] = {1, 1, 1}, output_padding[3] = {0};
    CKPT_TRY(ckpt_node_need(node, 0, node->dtype, err));
    CKPT_TRY(ckpt_node_need_rank(node, 0, dims + 2, shape_text[dims], err));
    CKPT_TRY(ckpt_node_ints(node, "kernel_size", dims, 1, window->kernel, err));
    CKPT_TRY(ckpt_node_ints(node, "stride", dims, kind == CKPT_WINDOW_POOL ? 0 : 1, window->stride, err));
    CKPT_TRY(ckpt_node_ints(node, "padding", dims, 0, window->padding, err));
    if (kind != CKPT_WINDOW_POOL) {
        CKPT_TRY(ckpt_node_ints(node, "dilation", dims, 1, dilation, err));
    }
    if (kind == CKPT_WINDOW_TRANSPOSED) {
        CKPT_TRY(ckpt_node_ints(node, "output_padding", dims, 0, output_padding, err));
    }
    const ckpt_shape *const x = &node->in[0].shape;
    for (int d = 0; d < dims; d++) {
        const int64_t size = x->dim[(dims == 2 ? 2 : 1) + d];
        const int64_t span = ckpt_plus(ckpt_times(dilation[d], window->kernel[d] - 1), 1);
        if (kind == CKPT_WINDOW_TRANSPOSED) {
            CKPT_TRY(transposed_out(d, size, span, output_padding[d], window, err));
            continue;
        }
        const int64_t padded = ckpt_plus(size, 2 * window->padding[d]);
        if (padded < span) {
            char shape[CKPT_SHAPE_TEXT], kernel[SIZES_TEXT], padding[SIZES_TEXT];
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "a window of %s does not fit input 0 %s with padding %s, taps being %lld apart",
                             sizes_show(dims, window->kernel, kernel), ckpt_shape_show(x, shape),
                             sizes_show(dims, window->padding, padding), (long long)dilation[d]);
        }
        if (kind == CKPT_WINDOW_POOL) {
            CKPT_TRY(pool_out(d, size, window, err));
        } else {
            window->out[d] = (padded - span) / window->stride[d] + 1;
        }
    }
    return CKPT_OK;
}
