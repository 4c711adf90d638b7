/* Gradients of depthwise filters larger than 3 x 3, which oneDNN computes by code that knows no depthwise order. */
#ifndef CKPT_KERNELS_CPU_DEPTHWISE_H
#define CKPT_KERNELS_CPU_DEPTHWISE_H

#include <stdbool.h>

#include "ops/convolution.h"

/* Is the gradient of these filters better computed here? In float32, of sequences and images. */
bool ckpt_depthwise_is(const ckpt_convolution *s);

/* Bytes that ckpt_depthwise_weights takes. */
ckpt_bytes ckpt_depthwise_workspace(const ckpt_convolution *s, int threads);

/* dw[channels, taps] = sum of dy x. Each thread sums lines of its own; their sums are added in order. */
void ckpt_depthwise_weights(const ckpt_convolution *s, const float *x, const float *dy, float *dw, void *workspace,
                            int threads);

#endif
