/* Common to convolutions and poolings: a window that slides over the spatial dims of a tensor. */
#ifndef CKPT_OPS_DEFS_WINDOW_IMPL_H
#define CKPT_OPS_DEFS_WINDOW_IMPL_H

#include "ops/op.h"

typedef struct ckpt_window {
    int64_t kernel[3], stride[3], padding[3]; /* of the layer's spatial dims, from the first */
    int64_t out[3];
} ckpt_window;

typedef enum ckpt_window_kind {
    /* out = (size + 2 padding - kernel) / stride + 1, rounded down. A stride of 0, the default, is the kernel size.
     * Padding beyond half the kernel is refused, because a window could lie wholly outside. */
    CKPT_WINDOW_POOL,
    /* The same with dilation (kernel - 1) + 1 for kernel. */
    CKPT_WINDOW_CONVOLUTION,
    /* out = (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1; output_padding < stride, so that
     * the convolution back gives the input's size. */
    CKPT_WINDOW_TRANSPOSED,
} ckpt_window_kind;

/* From the attributes and input 0, which must be of the node's type: [N, L, C], [N, C, H, W] or [N, D, H, W, C] for 1,
 * 2 or 3 spatial dims. */
CKPT_MUST_USE ckpt_code ckpt_node_window(const ckpt_node *node, int dims, ckpt_window_kind kind, ckpt_window *window,
                                         ckpt_err *err);

#endif
