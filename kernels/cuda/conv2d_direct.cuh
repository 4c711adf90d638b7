/* Convolutions by our own kernels: depthwise ones, and those that cuDNN refuses. Filters are stored as in files, [out,
 * in / groups, height, width]; x, y, and filters are of shape->dtype, bias and dw float32. */
#ifndef CKPT_KERNELS_CUDA_CONV2D_DIRECT_CUH
#define CKPT_KERNELS_CUDA_CONV2D_DIRECT_CUH

#include "kernels/cuda/device.cuh"

extern "C" {
#include "kernels/cuda/cudnn.h"
}

/* Every channel has one filter of its own. */
static inline bool conv2d_is_depthwise(const ckpt_cudnn_shape &s)
{
    return s.groups == s.in_channels && s.groups == s.out_channels;
}

/* Of the weight gradient; other directions need none. */
ckpt_bytes ckpt_conv2d_direct_workspace(const ckpt_cudnn_shape &s);

/* bias: NULL for none. */
void ckpt_conv2d_direct_forward(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const void *x, const void *w,
                                const float *bias, void *y);
void ckpt_conv2d_direct_input(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const void *dy, const void *w,
                              void *dx);
void ckpt_conv2d_direct_weight(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const void *x, const void *dy,
                               float *dw, void *workspace);

#endif
