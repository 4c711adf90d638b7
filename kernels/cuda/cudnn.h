/* Convolutions by cuDNN 9, as prepared calls. Only engines that give the same bits in every run are used; the choice is
 * made once, within the given workspace. Only cudnn*.c includes cuDNN. */
#ifndef CKPT_KERNELS_CUDA_CUDNN_H
#define CKPT_KERNELS_CUDA_CUDNN_H

#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"
#include "ops/convolution.h"

typedef struct ckpt_cudnn_convolution ckpt_cudnn_convolution;

/* x and y are stored channels last, filters as out, depth, height, width, in / groups (convolution.cu transposes them).
 * Sums are float32. */
typedef enum ckpt_cudnn_direction {
    CKPT_CUDNN_FORWARD,        /* x, w -> y */
    CKPT_CUDNN_INPUT_GRADIENT, /* dy, w -> dx */
    CKPT_CUDNN_WEIGHT_GRADIENT /* x, dy -> dw */
} ckpt_cudnn_direction;

/* limit: the most bytes of workspace; -1: what the fastest engine needs, up to the operands' bytes and 64 MiB. choice:
 * NULL, or the choice of such a convolution (ckpt_cudnn_convolution_choice).
 * Errors: CKPT_DEVICE (no reproducible engine fits, with the shape; or not `choice`), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_create(ckpt_cuda *cuda, const ckpt_convolution *shape,
                                                      ckpt_cudnn_direction direction, ckpt_bytes limit,
                                                      const char *choice, ckpt_cudnn_convolution **convolution,
                                                      ckpt_err *err);
void ckpt_cudnn_convolution_destroy(ckpt_cudnn_convolution *convolution); /* NULL is fine */
ckpt_bytes ckpt_cudnn_convolution_workspace(const ckpt_cudnn_convolution *convolution);
const char *ckpt_cudnn_convolution_choice(const ckpt_cudnn_convolution *convolution); /* lives until it is tuned */
/* Why it is slower than it could be, or "". */
const char *ckpt_cudnn_convolution_remark(const ckpt_cudnn_convolution *convolution);
/* Starts it on the compute stream: reads a and b, in the order given at the direction, and writes c. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_run(const ckpt_cudnn_convolution *convolution, const void *a,
                                                   const void *b, void *c, void *workspace, ckpt_err *err);

/* Times cuDNN's candidates within workspace_bytes and keeps the fastest (trial.h). */
CKPT_MUST_USE ckpt_code ckpt_cudnn_convolution_tune(ckpt_cudnn_convolution *convolution, const void *a, const void *b,
                                                    void *c, void *workspace, ckpt_bytes workspace_bytes,
                                                    ckpt_tuning *tuning, ckpt_err *err);

/* Opens cuda->cudnn unless it is open. The first layer that needs cuDNN calls this. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_open(ckpt_cuda *cuda, ckpt_err *err);
/* For tests without a GPU: cuDNN chooses engines for the GPU that `json` describes; nothing can run. The keys of the
 * description are cuDNN's own and may change. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_open_described(ckpt_cuda *cuda, const char *json, ckpt_err *err);
void ckpt_cudnn_close(ckpt_cuda *cuda);
void ckpt_cudnn_version(char *text, size_t room); /* "cuDNN 9.19.0" */

#endif
