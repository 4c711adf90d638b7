/* Convolutions by our own kernels: depthwise ones, and those that cuDNN refuses. Filters are stored as in files, [out,
 * in / groups, depth, height, width]; x, y, and filters are of shape->dtype, bias and dw float32. */
#ifndef CKPT_KERNELS_CUDA_CONVOLUTION_DIRECT_CUH
#define CKPT_KERNELS_CUDA_CONVOLUTION_DIRECT_CUH

#include "kernels/cuda/device.cuh"

extern "C" {
#include "kernels/cuda/cudnn.h"
}

/* Every channel has one filter of its own. */
static inline bool convolution_is_depthwise(const ckpt_convolution &s)
{
    return s.groups == s.in_channels && s.groups == s.out_channels;
}

/* Of the weight gradient; other directions need none. */
ckpt_bytes ckpt_convolution_direct_workspace(const ckpt_convolution &s);

/* bias: NULL for none. */
void ckpt_convolution_direct_forward(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *w,
                                     const float *bias, void *y);
void ckpt_convolution_direct_input(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *dy, const void *w,
                                   void *dx);
void ckpt_convolution_direct_weight(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *dy,
                                    float *dw, void *workspace);

#endif
