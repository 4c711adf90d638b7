/* Attention by cuDNN 9, as prepared calls that give the same bits in every run: bfloat16, without dropout. Only
 * cudnn*.c includes cuDNN. */
#ifndef CKPT_KERNELS_CUDA_CUDNN_ATTENTION_H
#define CKPT_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

/* Token t of sequence b and head h starts at element (b tokens + t) in_row + h size of q, k, v and their gradients, and
 * at (b tokens + t) out_row + h size of o and its gradient. lse and delta are [batch, heads, tokens]. */
typedef struct ckpt_cudnn_attention_shape {
    int64_t batch, heads, tokens, size, in_row, out_row;
    bool causal, backward;
} ckpt_cudnn_attention_shape;

typedef struct ckpt_cudnn_attention_tensors {
    const void *q, *k, *v, *dO; /* 16-byte aligned, as the next four */
    void *o, *dq, *dk, *dv;
    float *lse;   /* natural logarithm of each query's sum of exponentials; forward writes it, backward reads it */
    float *delta; /* scratch of backward */
} ckpt_cudnn_attention_tensors;

typedef struct ckpt_cudnn_attention ckpt_cudnn_attention;

/* The device keeps each attention until it is closed and gives it to every layer of the same shape, because cuDNN
 * compiles for half a second. Errors: CKPT_DEVICE (cuDNN has nothing for this; the message has the reason),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_attention_get(ckpt_cuda *cuda, const ckpt_cudnn_attention_shape *shape,
                                                 const ckpt_cudnn_attention **attention, ckpt_err *err);
void ckpt_cudnn_attention_close(ckpt_cuda *cuda); /* before ckpt_cudnn_close */
ckpt_bytes ckpt_cudnn_attention_workspace(const ckpt_cudnn_attention *attention);
/* The engine and its settings, "dnn91900:6,24=26" (cudnn_impl.h). */
const char *ckpt_cudnn_attention_engine(const ckpt_cudnn_attention *attention);
/* Starts it on the compute stream. */
CKPT_MUST_USE ckpt_code ckpt_cudnn_attention_run(const ckpt_cudnn_attention *attention,
                                                 const ckpt_cudnn_attention_tensors *tensors, void *workspace,
                                                 ckpt_err *err);

#endif
