/* What cudnn.c and cudnn_attention.c share of cuDNN's graph API (cudnn_graph.c); nobody else includes it. */
#ifndef CKPT_KERNELS_CUDA_CUDNN_IMPL_H
#define CKPT_KERNELS_CUDA_CUDNN_IMPL_H

#include <cudnn_graph.h>

#include "kernels/cuda/cudnn.h"

enum {
    CUDNN_WORKSPACE_ALIGN = 256, /* what kernels of the library may expect of a workspace */
    CUDNN_SLACK = CUDNN_WORKSPACE_ALIGN - CKPT_ALIGN,
    CUDNN_KNOB_MAX = CUDNN_KNOB_TYPE_COUNTS,
    CUDNN_OWNED_MAX = 80 + CUDNN_KNOB_MAX, /* descriptors of one graph, and of an engine made by its name */
    CUDNN_TEXT_MAX = 200,
};

/* What cuda->cudnn is: a handle, or in tests a GPU's description, and NULL for the other. */
typedef struct cudnn_session {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t gpu;
} cudnn_session;

/* Descriptors that are of no use once a plan is made; they hold on to each other themselves. */
typedef struct cudnn_owned {
    cudnnBackendDescriptor_t at[CUDNN_OWNED_MAX];
    int count;
} cudnn_owned;

/* CKPT_OK, or CKPT_NO_MEMORY / CKPT_DEVICE with "<what>: <cuDNN's own text>". */
CKPT_MUST_USE ckpt_code cudnn_check(cudnnStatus_t status, const char *what, ckpt_err *err);
void cudnn_destroy(cudnnBackendDescriptor_t descriptor); /* NULL is fine */
void cudnn_destroy_owned(cudnn_owned *owned);
CKPT_MUST_USE ckpt_code cudnn_make(cudnn_owned *owned, cudnnBackendDescriptorType_t type,
                                   cudnnBackendDescriptor_t *made, ckpt_err *err);
CKPT_MUST_USE ckpt_code cudnn_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count, const void *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code cudnn_set_descriptor(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                             cudnnBackendDescriptor_t value, ckpt_err *err);
CKPT_MUST_USE ckpt_code cudnn_finalize(cudnnBackendDescriptor_t descriptor, ckpt_err *err);

/* Does an engine note nothing of itself but tensor cores and how NaNs spread? exact: not tensor cores either, which
 * with float32 operands mean TF32. */
bool cudnn_is_allowed(cudnnBackendDescriptor_t engine, bool exact, bool *tensor_cores);
/* A configuration's name in CKPT_PIECE_TEXT bytes: "dnn91900:ENGINE,KNOB=VALUE,...", with cuDNN's version and its
 * numbers of engines and knobs. */
CKPT_MUST_USE ckpt_code cudnn_name(cudnnBackendDescriptor_t config, char *text, ckpt_err *err);

#endif
