/* Common to conv2d and the poolings: a window that slides over the two last dims of an image. */
#ifndef CKPT_OPS_DEFS_WINDOW_IMPL_H
#define CKPT_OPS_DEFS_WINDOW_IMPL_H

#include "ops/op.h"

typedef struct ckpt_window {
    int64_t kernel[2], stride[2], padding[2];
    int64_t out[2]; /* (size + 2 padding - kernel) / stride + 1, rounded down */
} ckpt_window;

/* From "kernel_size", "stride", "padding" and input 0, which must be float32 [N, C, H, W]. A stride of 0 (the default
 * of pools) is the kernel size.
 *   half   refuse padding beyond half the kernel, because a window could lie wholly outside (pooling) */
CKPT_MUST_USE ckpt_code ckpt_node_window(const ckpt_node *node, bool half, ckpt_window *window, ckpt_err *err);

#endif
