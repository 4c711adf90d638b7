/* CUPTI's functions and the double's own. What each gives back when it is called out of order is what libcupti 13.0
 * gives (cupti_activity.h), as far as ckpt can come across it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cupti_double/cupti_double_impl.h"

enum { FIRST_NS = 1000000000, MOST_FUNCTIONS = 64 };

double_state cupti_double = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t tags[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE][DEEPEST_TAG];
static _Thread_local int depth[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];
static _Thread_local bool innermost; /* nothing was pushed since the last push */

static struct {
    char name[64];
    int calls;
} functions[MOST_FUNCTIONS];

static char *text_of(const char *variable)
{
    const char *const value = getenv(variable);
    return value != NULL && value[0] != '\0' ? strdup(value) : NULL;
}

static void start(void)
{
    double_state *const d = &cupti_double;
    const char *const controls = getenv("CKPT_CUPTI_DOUBLE");
    d->ready = true;
    d->controls = (double_controls){.version = CUPTI_API_VERSION};
    d->host_ns = 1000 * (uint64_t)FIRST_NS;
    d->rules = text_of("CKPT_CUPTI_DOUBLE_SCRIPT");
    d->file = text_of("CKPT_CUPTI_DOUBLE_STREAM");
    d->write = text_of("CKPT_CUPTI_DOUBLE_WRITE");
    if (controls != NULL && double_controls_read(&d->controls, controls) != 0) {
        fprintf(stderr, "cupti double: CKPT_CUPTI_DOUBLE not understood: %s\n", controls);
        abort();
    }
}

void double_enter(void)
{
    pthread_mutex_lock(&cupti_double.lock);
    if (!cupti_double.ready) {
        start();
    }
}

void double_leave(void)
{
    pthread_mutex_unlock(&cupti_double.lock);
}

bool double_tag(CUpti_ExternalCorrelationKind kind, uint64_t *tag)
{
    const int count = depth[kind];
    *tag = count > 0 ? tags[kind][count - 1] : 0;
    return count > 0;
}

/* Count a call, and give the failure it was told to have. */
static CUptiResult called(const char *function)
{
    for (int i = 0; i < MOST_FUNCTIONS; i++) {
        if (functions[i].calls == 0 || strcmp(functions[i].name, function) == 0) {
            snprintf(functions[i].name, sizeof functions[i].name, "%s", function);
            functions[i].calls++;
            break;
        }
    }
    for (int i = 0; i < cupti_double.controls.failures; i++) {
        if (strcmp(cupti_double.controls.failure[i].function, function) == 0) {
            return cupti_double.controls.failure[i].code;
        }
    }
    return CUPTI_SUCCESS;
}

/* Enter, and leave at once where the function is told to fail. */
#define ENTER()                                                                                                        \
    double_enter();                                                                                                    \
    const CUptiResult told = called(__func__);                                                                         \
    if (told != CUPTI_SUCCESS) {                                                                                       \
        double_leave();                                                                                                \
        return told;                                                                                                   \
    }

static CUptiResult leave_with(CUptiResult result)
{
    double_leave();
    return result;
}

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version)
{
    ENTER()
    *version = cupti_double.controls.version;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **str)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "CUPTI_RESULT_%d", (int)result);
    *str = text;
    return CUPTI_SUCCESS;
}

static CUptiResult subscribe(CUpti_SubscriberHandle *subscriber, const char *name, char *old, size_t old_size)
{
    double_state *const d = &cupti_double;
    if (d->controls.holder[0] != '\0' || d->subscribed) {
        if (old != NULL && old_size > 0) {
            const char *const holder = d->controls.holder[0] != '\0' ? d->controls.holder : d->subscriber;
            snprintf(old, old_size, "%.*s", (int)(sizeof d->subscriber - 1), holder);
        }
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    d->subscribed = true;
    snprintf(d->subscriber, sizeof d->subscriber, "CUPTI for %.52s", name != NULL ? name : "");
    *subscriber = (CUpti_SubscriberHandle)(void *)d;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                           void *userdata)
{
    (void)callback;
    (void)userdata;
    ENTER()
    return leave_with(subscriber == NULL ? CUPTI_ERROR_INVALID_PARAMETER : subscribe(subscriber, NULL, NULL, 0));
}

#if !defined(CUPTI_DOUBLE_OLD) && CUPTI_API_VERSION >= 130000
EXPORT CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                              void *userdata, CUpti_SubscriberParams *params)
{
    (void)callback;
    (void)userdata;
    ENTER()
    if (subscriber == NULL || (params != NULL && params->structSize < CUpti_SubscriberParams_STRUCT_SIZE)) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    return leave_with(subscribe(subscriber, params != NULL ? params->subscriberName : NULL,
                                params != NULL ? params->oldSubscriberName : NULL,
                                params != NULL ? params->oldSubscriberSize : 0));
}
#endif

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    ENTER()
    if (!cupti_double.subscribed || (void *)subscriber != (void *)&cupti_double) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    cupti_double.subscribed = false;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    ENTER()
    if (request == NULL || complete == NULL) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    cupti_double.request = request;
    cupti_double.complete = complete;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind)
{
    ENTER()
    if (double_record_size((uint32_t)kind) == 0) {
        return leave_with(CUPTI_ERROR_INVALID_KIND);
    }
    if ((uint64_t)kind == cupti_double.controls.refuse) {
        return leave_with(CUPTI_ERROR_NOT_COMPATIBLE);
    }
    cupti_double.enabled |= (uint64_t)1 << (unsigned)kind;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind)
{
    ENTER()
    if (double_record_size((uint32_t)kind) == 0) {
        return leave_with(CUPTI_ERROR_INVALID_KIND);
    }
    cupti_double.enabled &= ~((uint64_t)1 << (unsigned)kind);
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag)
{
    ENTER()
    if (cupti_double.request == NULL) {
        return leave_with(CUPTI_ERROR_INVALID_OPERATION);
    }
    if (cupti_double.enabled != 0) {
        double_script_begin();
    }
    if (cupti_double.file != NULL) {
        const int played = double_stream_play(cupti_double.file);
        free(cupti_double.file);
        cupti_double.file = NULL;
        if (played != 0) {
            return leave_with(CUPTI_ERROR_UNKNOWN);
        }
    }
    if ((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0) {
        double_end_running();
    }
    double_deliver();
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushPeriod(uint32_t time)
{
    (void)time;
    ENTER()
    return leave_with(CUPTI_SUCCESS);
}

/* As libcupti does: a record that is not all there ends the buffer like no record at all. */
EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    ENTER()
    if (buffer == NULL || record == NULL) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    size_t at = 0;
    uint32_t kind = 0;
    if (*record != NULL) {
        memcpy(&kind, *record, sizeof kind);
        at = (size_t)((uint8_t *)*record - buffer) + double_record_size(kind);
    }
    if (at + sizeof kind > valid) {
        return leave_with(CUPTI_ERROR_MAX_LIMIT_REACHED);
    }
    memcpy(&kind, buffer + at, sizeof kind);
    const uint32_t size = double_record_size(kind);
    if (size == 0) {
        return leave_with(CUPTI_ERROR_INVALID_KIND);
    }
    if (at + size > valid) {
        return leave_with(CUPTI_ERROR_MAX_LIMIT_REACHED);
    }
    *record = (CUpti_Activity *)(void *)(buffer + at);
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    ENTER()
    *dropped = (size_t)(cupti_double.controls.drop + cupti_double.refused);
    cupti_double.controls.drop = cupti_double.refused = 0;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value)
{
    ENTER()
    const bool byte = attribute == CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED ||
                      attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER ||
                      attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER;
    if (size == NULL || value == NULL || (unsigned)attribute > CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    return leave_with(*size < (byte ? 1 : sizeof(size_t)) ? CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT : CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiSetThreadIdType(CUpti_ActivityThreadIdType type)
{
    (void)type;
    ENTER()
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *timestamp)
{
    ENTER()
    *timestamp = cupti_double.host_ns;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    static const struct {
        CUpti_CallbackDomain domain;
        uint32_t id;
        const char *name;
    } names[] = {
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel_v7000"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, "cudaMalloc_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, "cudaFree_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020,
         "cudaDeviceSynchronize_v3020"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, "cuMemcpyAsync"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async, "cuMemsetD8Async"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, "cuMemAlloc_v2"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "cuCtxSynchronize"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].domain == domain && names[i].id == cbid) {
            *name = names[i].name;
            return CUPTI_SUCCESS;
        }
    }
    *name = NULL;
    return CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    ENTER()
    if ((unsigned)kind == 0 || (unsigned)kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE || depth[kind] == DEEPEST_TAG) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    double_script_begin();
    tags[kind][depth[kind]++] = id;
    innermost = true;
    return leave_with(CUPTI_SUCCESS);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last)
{
    ENTER()
    if ((unsigned)kind == 0 || (unsigned)kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE) {
        return leave_with(CUPTI_ERROR_INVALID_PARAMETER);
    }
    if (depth[kind] == 0) {
        return leave_with(CUPTI_ERROR_QUEUE_EMPTY);
    }
    const uint64_t id = tags[kind][depth[kind] - 1];
    if (innermost) {
        double_script_pop(id);
    }
    innermost = false;
    depth[kind]--;
    if (last != NULL) {
        *last = id;
    }
    return leave_with(CUPTI_SUCCESS);
}

EXPORT void ckpt_cupti_double_reset(void)
{
    pthread_mutex_lock(&cupti_double.lock);
    double_state *const d = &cupti_double;
    free(d->rules);
    free(d->file);
    free(d->write);
    free(d->record);
    double_stream_close();
    memset(&d->ready, 0, sizeof *d - offsetof(double_state, ready));
    memset(functions, 0, sizeof functions);
    memset(depth, 0, sizeof depth);
    double_forget_ranges();
    start();
    pthread_mutex_unlock(&cupti_double.lock);
}

EXPORT int ckpt_cupti_double_control(const char *controls)
{
    double_enter();
    const int result = double_controls_read(&cupti_double.controls, controls);
    double_leave();
    return result;
}

EXPORT int ckpt_cupti_double_script(const char *rules)
{
    double_enter();
    free(cupti_double.rules);
    cupti_double.rules = strdup(rules);
    double_leave();
    return cupti_double.rules != NULL ? 0 : -1;
}

EXPORT int ckpt_cupti_double_run(const char *items)
{
    double_enter();
    const int result = double_script_run(items, strlen(items));
    double_leave();
    return result;
}

EXPORT void ckpt_cupti_double_record(const void *bytes, uint32_t size)
{
    double_enter();
    double_add(bytes, size, false);
    double_leave();
}

EXPORT void ckpt_cupti_double_deliver(void)
{
    double_enter();
    double_deliver_kept();
    double_deliver();
    double_leave();
}

EXPORT uint64_t ckpt_cupti_double_enabled(void)
{
    return cupti_double.enabled;
}

EXPORT int ckpt_cupti_double_calls(const char *function)
{
    int calls = 0;
    double_enter();
    for (int i = 0; i < MOST_FUNCTIONS && functions[i].calls > 0; i++) {
        calls = strcmp(functions[i].name, function) == 0 ? functions[i].calls : calls;
    }
    double_leave();
    return calls;
}
