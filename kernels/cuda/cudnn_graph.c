/* Creates, fills, finalizes and destroys descriptors of cuDNN's graph API; reads engines' notes and names; makes and
 * runs plans. */
#include <inttypes.h>
#include <stdio.h>

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

bool cudnn_is_allowed(cudnnBackendDescriptor_t engine, bool exact, bool *tensor_cores)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, note) != CUDNN_STATUS_SUCCESS ||
        count > CUDNN_NUMERICAL_NOTE_TYPE_COUNT) {
        return false; /* an engine without notes is not trusted */
    }
    for (int64_t k = 0; k < count; k++) {
        *tensor_cores = *tensor_cores || note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        const bool fine =
            note[k] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP || (note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !exact);
        if (!fine) {
            return false;
        }
    }
    return true;
}

static ckpt_code get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *value, ckpt_err *err)
{
    return cudnn_check(cudnnBackendGetAttribute(descriptor, name, type, most, count, value), "cudnnBackendGetAttribute",
                       err);
}

static ckpt_code name_knobs(const cudnnBackendDescriptor_t *knob, int64_t count, char *text, size_t used, ckpt_err *err)
{
    for (int64_t k = 0; k < count; k++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = 0, got = 0;
        CKPT_TRY(get(knob[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type, err));
        CKPT_TRY(get(knob[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value, err));
        used += (size_t)snprintf(text + used, CKPT_PIECE_TEXT - used, ",%d=%" PRId64, (int)type, value);
        if (used >= CKPT_PIECE_TEXT) {
            return CKPT_FAIL(err, CKPT_DEVICE, "cuDNN's engine has a name of more than %d bytes", CKPT_PIECE_TEXT);
        }
    }
    return CKPT_OK;
}

static ckpt_code name_config(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine,
                             cudnnBackendDescriptor_t *knob, char *text, ckpt_err *err)
{
    int64_t index = 0, count = 0, got = 0;
    CKPT_TRY(get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, (void *)&engine, err));
    CKPT_TRY(get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &index, err));
    CKPT_TRY(get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_MAX, &count,
                 (void *)knob, err));
    const int used = snprintf(text, CKPT_PIECE_TEXT, "dnn%zu:%" PRId64, cudnnGetVersion(), index);
    return name_knobs(knob, count < CUDNN_KNOB_MAX ? count : CUDNN_KNOB_MAX, text, (size_t)used, err);
}

ckpt_code cudnn_name(cudnnBackendDescriptor_t config, char *text, ckpt_err *err)
{
    cudnn_owned owned = {0};
    cudnnBackendDescriptor_t engine = NULL, knob[CUDNN_KNOB_MAX] = {0};
    ckpt_code code = cudnn_make(&owned, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, err);
    for (int k = 0; k < CUDNN_KNOB_MAX && code == CKPT_OK; k++) {
        code = cudnn_make(&owned, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[k], err);
    }
    code = code == CKPT_OK ? name_config(config, engine, knob, text, err) : code;
    cudnn_destroy_owned(&owned);
    return code;
}

ckpt_code cudnn_engine(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *engine, ckpt_err *err)
{
    int64_t count = 0;
    cudnnBackendDescriptor_t made = NULL;
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &made),
                         "cudnnBackendCreateDescriptor", err));
    const ckpt_code code =
        get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, (void *)&made, err);
    if (code != CKPT_OK || count != 1) {
        cudnn_destroy(made);
        return code != CKPT_OK ? code : CKPT_FAIL(err, CKPT_DEVICE, "cuDNN has no engine for a configuration");
    }
    *engine = made;
    return CKPT_OK;
}

static ckpt_code fill_plan(const cudnn_session *session, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t plan,
                           int64_t *bytes, ckpt_err *err)
{
    int64_t count = 0;
    CKPT_TRY(cudnn_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config, err));
    if (session->handle != NULL) {
        CKPT_TRY(cudnn_set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&session->handle,
                           err));
    } else {
        CKPT_TRY(cudnn_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, session->gpu, err));
    }
    CKPT_TRY(cudnn_finalize(plan, err));
    CKPT_TRY(get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, bytes, err));
    return *bytes >= 0 ? CKPT_OK : CKPT_FAIL(err, CKPT_DEVICE, "cuDNN names no workspace for a plan");
}

ckpt_code cudnn_plan(const cudnn_session *session, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *plan,
                     int64_t *bytes, ckpt_err *err)
{
    cudnnBackendDescriptor_t made = NULL;
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made),
                         "cudnnBackendCreateDescriptor", err));
    const ckpt_code code = fill_plan(session, config, made, bytes, err);
    if (code != CKPT_OK) {
        cudnn_destroy(made);
        return code;
    }
    *plan = made;
    return CKPT_OK;
}

static ckpt_code fill_pack(cudnnBackendDescriptor_t pack, int count, const int64_t *id, const void *const *at,
                           const void *workspace, ckpt_err *err)
{
    CKPT_TRY(cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, id, err));
    CKPT_TRY(cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, (const void *)at, err));
    CKPT_TRY(cudnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, (const void *)&workspace, err));
    return cudnn_finalize(pack, err);
}

/* A finalized pack of addresses cannot be changed, so each run makes one (in host memory, by cuDNN). */
ckpt_code cudnn_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, int64_t bytes, int count,
                        const int64_t *id, const void *const *at, const void *workspace, ckpt_err *err)
{
    const uintptr_t up =
        ((uintptr_t)workspace + CUDNN_WORKSPACE_ALIGN - 1) / CUDNN_WORKSPACE_ALIGN * CUDNN_WORKSPACE_ALIGN;
    cudnnBackendDescriptor_t pack = NULL;
    CKPT_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                         "cudnnBackendCreateDescriptor", err));
    ckpt_code code = fill_pack(pack, count, id, at, bytes > 0 ? (const void *)up : NULL, err);
    if (code == CKPT_OK) {
        code = cudnn_check(cudnnBackendExecute(handle, plan, pack), "cudnnBackendExecute", err);
    }
    cudnn_destroy(pack);
    return code;
}
