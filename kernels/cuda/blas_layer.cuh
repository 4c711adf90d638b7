/* Helpers of layers made of matrix products: dense shapes, and what they leave of a workspace. */
#ifndef CKPT_KERNELS_CUDA_BLAS_LAYER_CUH
#define CKPT_KERNELS_CUDA_BLAS_LAYER_CUH

#include "kernels/cuda/device.cuh"

extern "C" {
#include "kernels/cuda/blas.h"
#include "kernels/cuda/trial.h"
}

/* y[rows x columns] = x w (see blas.h) of matrices without gaps between their rows. */
static inline ckpt_blas_shape blas_of(int64_t rows, int64_t columns, int64_t inner, bool x_turned, bool w_turned,
                                      ckpt_dtype in, ckpt_dtype out, bool bias, bool adds)
{
    return {
        .rows = rows,
        .columns = columns,
        .inner = inner,
        .x_turned = x_turned,
        .w_turned = w_turned,
        .x_stride = x_turned ? rows : inner,
        .w_stride = w_turned ? inner : columns,
        .y_stride = columns,
        .in = in,
        .out = out,
        .bias = bias,
        .adds = adds,
    };
}

/* What a layer that keeps `own` bytes of the `given` ones leaves for its products; -1 stays -1, no limit. */
static inline ckpt_bytes blas_rest(ckpt_bytes given, ckpt_bytes own)
{
    return given < 0 ? -1 : given > own ? given - own : 0;
}

/* The larger of `bytes` and the workspace of a product; NULL: no product. */
static inline ckpt_bytes blas_most(ckpt_bytes bytes, const ckpt_blas_product *product)
{
    const ckpt_bytes used = product == NULL ? 0 : ckpt_blas_product_workspace(product);
    return used > bytes ? used : bytes;
}

#endif
