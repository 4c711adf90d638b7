/* Descriptors of cuDNN's graph API: made, filled, finalized, given back. */
#include "kernels/cuda/cudnn_impl.h"

ckpt_code cudnn_check(cudnnStatus_t status, const char *what, ckpt_err *err)
{
    if (status == CUDNN_STATUS_SUCCESS) {
        return CKPT_OK;
    }
    char more[CUDNN_TEXT_MAX] = "";
    cudnnGetLastErrorString(more, sizeof more);
    const bool memory = status == CUDNN_STATUS_ALLOC_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return CKPT_FAIL(err, memory ? CKPT_NO_MEMORY : CKPT_DEVICE, "%s: %s%s%s", what, cudnnGetErrorString(status),
                     more[0] == '\0' ? "" : ": ", more);
}

void cudnn_destroy(cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL) {
        (void)cudnnBackendDestroyDescriptor(descriptor);
    }
}

void cudnn_destroy_owned(cudnn_owned *owned)
{
    while (owned->count > 0) {
        cudnn_destroy(owned->at[--owned->count]);
    }
}

ckpt_code cudnn_make(cudnn_owned *owned, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made,
                     ckpt_err *err)
{
    if (owned->count == CUDNN_OWNED_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "more than %d descriptors", CUDNN_OWNED_MAX);
    }
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(type, made), "cudnnBackendCreateDescriptor", err));
    owned->at[owned->count++] = *made;
    return CKPT_OK;
}

ckpt_code cudnn_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t count, const void *value, ckpt_err *err)
{
    return cudnn_check(cudnnBackendSetAttribute(descriptor, name, type, count, value), "cudnnBackendSetAttribute", err);
}

ckpt_code cudnn_set_descriptor(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                               cudnnBackendDescriptor_t value, ckpt_err *err)
{
    return cudnn_set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&value, err);
}

ckpt_code cudnn_finalize(cudnnBackendDescriptor_t descriptor, ckpt_err *err)
{
    return cudnn_check(cudnnBackendFinalize(descriptor), "cudnnBackendFinalize", err);
}
