/* cuDNN's graph API for cudnn.c and cudnn_attention.c, the only files that include this. */
#ifndef CKPT_KERNELS_CUDA_CUDNN_IMPL_H
#define CKPT_KERNELS_CUDA_CUDNN_IMPL_H

#include <cudnn_graph.h>

#include "kernels/cuda/cudnn.h"

enum {
    CUDNN_WORKSPACE_ALIGN = 256, /* the alignment of a workspace that the library's kernels may rely on */
    CUDNN_SLACK = CUDNN_WORKSPACE_ALIGN - CKPT_ALIGN,
    CUDNN_KNOB_MAX = CUDNN_KNOB_TYPE_COUNTS,
    CUDNN_OWNED_MAX = 80 + CUDNN_KNOB_MAX, /* descriptors of one graph, and of an engine created by name */
    CUDNN_TEXT_MAX = 200,
};

/* cuda->cudnn: a handle, or in tests the description of a GPU; the other one is NULL. */
typedef struct cudnn_session {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t gpu;
} cudnn_session;

/* Descriptors that are not needed after a plan is made; cuDNN keeps those that refer to each other alive. */
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

/* A new descriptor of a configuration's engine; the caller destroys it. */
CKPT_MUST_USE ckpt_code cudnn_engine(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *engine, ckpt_err *err);

/* Makes a plan of a configuration; *bytes: the workspace it uses. */
CKPT_MUST_USE ckpt_code cudnn_plan(const cudnn_session *session, cudnnBackendDescriptor_t config,
                                   cudnnBackendDescriptor_t *plan, int64_t *bytes, ckpt_err *err);

/* Starts a plan with the addresses at[0 .. count) of the tensors `id`. */
CKPT_MUST_USE ckpt_code cudnn_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, int64_t bytes, int count,
                                      const int64_t *id, const void *const *at, const void *workspace, ckpt_err *err);

/* True if the engine's notes are only about tensor cores and the propagation of NaN. exact: tensor cores are not
 * allowed either, because with float32 operands they mean TF32. */
bool cudnn_is_allowed(cudnnBackendDescriptor_t engine, bool exact, bool *tensor_cores);
/* Writes a configuration's name to CKPT_PIECE_TEXT bytes: "dnn91900:ENGINE,KNOB=VALUE,...", with cuDNN's version and
 * cuDNN's numbers of engines and knobs. */
CKPT_MUST_USE ckpt_code cudnn_name(cudnnBackendDescriptor_t config, char *text, ckpt_err *err);

#endif
