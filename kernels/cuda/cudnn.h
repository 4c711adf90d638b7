/* Convolution by cuDNN 9, as ready-made calls: only engines that give the same bits again, chosen once, within the
 * workspace that is given. Only cudnn*.c sees cuDNN. */
#ifndef CKPT_KERNELS_CUDA_CUDNN_H
#define CKPT_KERNELS_CUDA_CUDNN_H

#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"

typedef struct ckpt_cudnn_convolution ckpt_cudnn_convolution;

/* x and y lie as N, H, W, C and the filters as out, height, width, in / groups (the caller turns them: conv2d.cu). */
typedef struct ckpt_cudnn_shape {
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2]; /* height, width */
    ckpt_dtype dtype; /* of x, y, filters and their gradients; sums are float32 */
} ckpt_cudnn_shape;

typedef enum ckpt_cudnn_direction {
    CKPT_CUDNN_FORWARD,        /* x, w -> y */
    CKPT_CUDNN_INPUT_GRADIENT, /* dy, w -> dx */
    CKPT_CUDNN_WEIGHT_GRADIENT /* x, dy -> dw */
} ckpt_cudnn_direction;

/* limit: bytes of workspace at most; -1: as much as the fastest wants, up to the operands' bytes and 64 MiB. choice:
 * NULL, or what ckpt_cudnn_convolution_choice said of such a convolution.
 * Errors: CKPT_DEVICE (nothing reproducible fits, with the shape; or not `choice`), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_cudnn_shape *shape,
                                                      ckpt_cudnn_direction direction, ckpt_bytes limit,
                                                      const char *choice, ckpt_cudnn_convolution **convolution,
                                                      ckpt_err *err);
void ckpt_cudnn_convolution_destroy(ckpt_cudnn_convolution *convolution); /* NULL is fine */
ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution);
const char *ckpt_cudnn_convolution_choice(const ckpt_cudnn_convolution *convolution); /* lives until it is tuned */
/* Why it is slower than might be, or "". */
const char *ckpt_cudnn_convolution_remark(const ckpt_cudnn_convolution *convolution);
/* Starts it on the compute stream: reads a and b in the order written at the direction, writes c. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a,
                                                   const void *b, void *c, void *workspace, ckpt_err *err);

/* Times cuDNN's candidates within workspace_bytes and keeps the fastest (trial.h). */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_tune(ckpt_cudnn_convolution *convolution, const void *a, const void *b,
                                                    void *c, void *workspace, ckpt_bytes workspace_bytes,
                                                    ckpt_tuning *tuning, ckpt_err *err);

/* What is in cuda->cudnn, if there is nothing yet; the first layer that wants it calls it. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_open(ckpt_cuda *cuda, ckpt_err *err);
/* For tests, where there is no GPU: cuDNN chooses for the one that `json` describes to it, and nothing can be run. The
 * keys of the description are cuDNN's own and may change. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_open_described(ckpt_cuda *cuda, const char *json, ckpt_err *err);
void ckpt_cudnn_close(ckpt_cuda *cuda);
void ckpt_cudnn_version(char *text, size_t room); /* "cuDNN 9.19.0" */

#endif
