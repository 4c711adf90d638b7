/* Decodes a record of CUPTI into a ckpt_activity. The struct that libcupti writes depends on its version, not on the
 * headers this was compiled with:
 *
 *                       11.8     12.0     12.2  12.8  13.0      13.2      reads up to
 *     kernel            Kernel8  Kernel9              Kernel10  Kernel11  name, byte 112
 *     copy              Memcpy5                Memcpy6                    correlationId, 48
 *     copy to a peer    MemcpyPtoP4                                       correlationId, 64
 *     fill              Memset4                                           correlationId, 48
 *     memory            Memory3 (4 in later 12)                           streamId, 64
 *     overhead          Overhead -> Overhead2 -> Overhead3                end, 40
 *     call, tag, marker API, ExternalCorrelation, Marker2                 all
 *
 * Fields have only ever been added at the end: the fields read here have the same offset in all versions, and the
 * assertions below check the headers for that. libcupti knows the sizes (cuptiActivityGetNextRecord). */
#include "cupti/activity.h"

#ifdef CKPT_HAVE_CUPTI
#include <assert.h>
#include <string.h>

#include "cupti/cupti_impl.h"

#define AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define KERNEL_LAYOUT(type)                                                                                            \
    AT(type, start, 16);                                                                                               \
    AT(type, end, 24);                                                                                                 \
    AT(type, deviceId, 40);                                                                                            \
    AT(type, contextId, 44);                                                                                           \
    AT(type, streamId, 48);                                                                                            \
    AT(type, correlationId, 92);                                                                                       \
    AT(type, name, 104)
#define MOVE_LAYOUT(type, correlation)                                                                                 \
    AT(type, bytes, 8);                                                                                                \
    AT(type, start, 16);                                                                                               \
    AT(type, end, 24);                                                                                                 \
    AT(type, deviceId, 32);                                                                                            \
    AT(type, contextId, 36);                                                                                           \
    AT(type, streamId, 40);                                                                                            \
    AT(type, correlationId, correlation)
#define MEMORY_LAYOUT(type)                                                                                            \
    AT(type, memoryOperationType, 4);                                                                                  \
    AT(type, memoryKind, 8);                                                                                           \
    AT(type, correlationId, 12);                                                                                       \
    AT(type, address, 16);                                                                                             \
    AT(type, bytes, 24);                                                                                               \
    AT(type, timestamp, 32);                                                                                           \
    AT(type, processId, 48);                                                                                           \
    AT(type, deviceId, 52);                                                                                            \
    AT(type, contextId, 56);                                                                                           \
    AT(type, streamId, 60)
#define OVERHEAD_LAYOUT(type)                                                                                          \
    AT(type, overheadKind, 4);                                                                                         \
    AT(type, objectKind, 8);                                                                                           \
    AT(type, objectId, 12);                                                                                            \
    AT(type, start, 24);                                                                                               \
    AT(type, end, 32)

KERNEL_LAYOUT(CUpti_ActivityKernel8);
KERNEL_LAYOUT(CUpti_ActivityKernel9);
MOVE_LAYOUT(CUpti_ActivityMemcpy5, 44);
MOVE_LAYOUT(CUpti_ActivityMemset4, 44);
MOVE_LAYOUT(CUpti_ActivityMemcpyPtoP4, 60);
AT(CUpti_ActivityMemcpy5, copyKind, 4);
MEMORY_LAYOUT(CUpti_ActivityMemory3);
OVERHEAD_LAYOUT(CUpti_ActivityOverhead);
#if CUPTI_API_VERSION >= 26
MOVE_LAYOUT(CUpti_ActivityMemcpy6, 44);
AT(CUpti_ActivityMemcpy6, copyKind, 4);
MEMORY_LAYOUT(CUpti_ActivityMemory4);
OVERHEAD_LAYOUT(CUpti_ActivityOverhead2);
OVERHEAD_LAYOUT(CUpti_ActivityOverhead3);
#endif
#if CUPTI_API_VERSION >= 130000
KERNEL_LAYOUT(CUpti_ActivityKernel10);
#endif
#if CUPTI_API_VERSION >= 130200
KERNEL_LAYOUT(CUpti_ActivityKernel11);
#endif
static_assert(sizeof(CUpti_ActivityAPI) == 40 && sizeof(CUpti_ActivityExternalCorrelation) == 24 &&
                  sizeof(CUpti_ActivityMarker2) == 56,
              "a record that was whole has grown");

/* Contexts and streams that do not apply are 0 here, as in CUPTI since 13.2; before, it wrote 2^32 - 1. */
static uint32_t number(uint32_t id)
{
    return id == UINT32_MAX ? 0 : id;
}

/* Takes the times. They are valid if both are known, in order and within 63 bits. */
static ckpt_cupti_record_kind ran(ckpt_activity *a, uint64_t start, uint64_t end)
{
    a->start_ns = (ckpt_ns)start;
    a->end_ns = (ckpt_ns)end;
    return start > 0 && start <= end && end <= INT64_MAX ? CKPT_CUPTI_ACTIVITY : CKPT_CUPTI_ODD;
}

static ckpt_cupti_record_kind moved(ckpt_activity *a, uint64_t bytes, uint64_t start, uint64_t end)
{
    a->bytes = (int64_t)bytes;
    return bytes <= INT64_MAX ? ran(a, start, end) : CKPT_CUPTI_ODD;
}

/* Fields of one name in every struct of something that ran. */
#define RAN_ON(a, r)                                                                                                   \
    ((a)->device = (r)->deviceId, (a)->context = (r)->contextId, (a)->stream = (r)->streamId,                          \
     (a)->correlation = (r)->correlationId)

static ckpt_cupti_record_kind decode_kernel(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityKernel8 *const r = record; /* the shortest version */
    a->kind = CKPT_ACTIVITY_KERNEL;
    a->name = r->name != NULL ? r->name : "";
    RAN_ON(a, r);
    return ran(a, r->start, r->end);
}

static ckpt_copy_way way_of(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return CKPT_COPY_TO_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return CKPT_COPY_TO_HOST;
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return CKPT_COPY_ON_DEVICE;
    default: return CKPT_COPY_OTHER;
    }
}

static ckpt_cupti_record_kind decode_copy(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityMemcpy5 *const r = record;
    a->kind = CKPT_ACTIVITY_COPY;
    a->way = way_of(r->copyKind);
    RAN_ON(a, r);
    return moved(a, r->bytes, r->start, r->end);
}

static ckpt_cupti_record_kind decode_peer_copy(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityMemcpyPtoP4 *const r = record;
    a->kind = CKPT_ACTIVITY_COPY;
    RAN_ON(a, r);
    return moved(a, r->bytes, r->start, r->end);
}

static ckpt_cupti_record_kind decode_fill(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityMemset4 *const r = record;
    a->kind = CKPT_ACTIVITY_FILL;
    RAN_ON(a, r);
    return moved(a, r->bytes, r->start, r->end);
}

/* Device memory only: page-locked and pageable host memory is not recorded. */
static ckpt_cupti_record_kind decode_memory(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityMemory3 *const r = record;
    const int operation = (int)r->memoryOperationType;
    const int where = (int)r->memoryKind;
    if ((operation != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION &&
         operation != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE) ||
        where == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || where == CUPTI_ACTIVITY_MEMORY_KIND_PINNED) {
        return CKPT_CUPTI_OTHER;
    }
    a->kind =
        operation == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION ? CKPT_ACTIVITY_ALLOCATE : CKPT_ACTIVITY_RELEASE;
    a->device = r->deviceId;
    a->context = number(r->contextId);
    a->stream = number(r->streamId);
    a->correlation = r->correlationId;
    a->process = r->processId;
    a->address = r->address;
    return moved(a, r->bytes, r->timestamp, r->timestamp);
}

/* "cudaLaunchKernel_v7000" without the version of its interface. */
static const char *call_name(const char *name, char *text, size_t size)
{
    size_t length = strlen(name);
    size_t digits = 0;
    while (digits < length && name[length - 1 - digits] >= '0' && name[length - 1 - digits] <= '9') {
        digits++;
    }
    if (digits > 0 && length > digits + 2 && strncmp(name + length - digits - 2, "_v", 2) == 0) {
        length -= digits + 2;
    }
    length = length < size ? length : size - 1;
    memcpy(text, name, length);
    text[length] = '\0';
    return text;
}

static ckpt_cupti_record_kind decode_call(const ckpt_cupti *cupti, const void *record, ckpt_cupti_record *out)
{
    const CUpti_ActivityAPI *const r = record;
    ckpt_activity *const a = &out->activity;
    const CUpti_CallbackDomain domain =
        r->kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    const char *name = NULL;
    a->kind = CKPT_ACTIVITY_CALL;
    a->correlation = r->correlationId;
    a->process = r->processId;
    a->thread = r->threadId;
    if (cupti->cuptiGetCallbackName(domain, r->cbid, &name) == CUPTI_SUCCESS && name != NULL) {
        a->name = call_name(name, out->text, sizeof out->text);
    }
    return ran(a, r->start, r->end);
}

static ckpt_cupti_record_kind decode_tag(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityExternalCorrelation *const r = record;
    a->correlation = r->correlationId;
    a->tag = r->externalId;
    return (int)r->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 ? CKPT_CUPTI_TAG : CKPT_CUPTI_OTHER;
}

static void object_of(ckpt_activity *a, int kind, const CUpti_ActivityObjectKindId *id)
{
    if (kind == CUPTI_ACTIVITY_OBJECT_THREAD || kind == CUPTI_ACTIVITY_OBJECT_PROCESS) {
        a->process = id->pt.processId;
        a->thread = kind == CUPTI_ACTIVITY_OBJECT_THREAD ? id->pt.threadId : 0;
    } else if (kind == CUPTI_ACTIVITY_OBJECT_DEVICE || kind == CUPTI_ACTIVITY_OBJECT_CONTEXT ||
               kind == CUPTI_ACTIVITY_OBJECT_STREAM) {
        a->device = id->dcs.deviceId;
        a->context = kind == CUPTI_ACTIVITY_OBJECT_DEVICE ? 0 : id->dcs.contextId;
        a->stream = kind == CUPTI_ACTIVITY_OBJECT_STREAM ? id->dcs.streamId : 0;
    }
}

static const char *overhead_name(int kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER: return "compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH: return "giving records back";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION: return "instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE: return "resources";
    case 4 << 16: /* only later headers name these */ return "loading a module";
    case 5 << 16: return "loading a function";
    case 6 << 16: return "command buffer full";
    case 7 << 16: return "asking for a buffer";
    default: return "other";
    }
}

static ckpt_cupti_record_kind decode_overhead(const void *record, ckpt_activity *a)
{
    const CUpti_ActivityOverhead *const r = record;
    a->kind = CKPT_ACTIVITY_OVERHEAD;
    a->name = overhead_name((int)r->overheadKind);
    object_of(a, (int)r->objectKind, &r->objectId);
    return ran(a, r->start, r->end);
}

static ckpt_cupti_record_kind decode_marker(const void *record, ckpt_cupti_record *out)
{
    const CUpti_ActivityMarker2 *const r = record;
    const unsigned flags = (unsigned)r->flags;
    ckpt_activity *const a = &out->activity;
    a->kind = CKPT_ACTIVITY_RANGE;
    a->name = r->name != NULL ? r->name : "";
    object_of(a, (int)r->objectKind, &r->objectId);
    out->marker = r->id;
    if (ran(a, r->timestamp, r->timestamp) == CKPT_CUPTI_ODD) {
        return CKPT_CUPTI_ODD;
    }
    if ((flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0) {
        return CKPT_CUPTI_RANGE_START;
    }
    if ((flags & CUPTI_ACTIVITY_FLAG_MARKER_END) != 0) {
        return CKPT_CUPTI_RANGE_END;
    }
    a->kind = CKPT_ACTIVITY_MARK;
    return (flags & CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS) != 0 ? CKPT_CUPTI_ACTIVITY : CKPT_CUPTI_OTHER;
}

ckpt_cupti_record_kind ckpt_cupti_decode(const ckpt_cupti *cupti, const CUpti_Activity *record, ckpt_cupti_record *out)
{
    ckpt_activity *const a = &out->activity;
    *out = (ckpt_cupti_record){.activity = {.name = ""}};
    switch ((int)record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return decode_kernel(record, a);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return decode_copy(record, a);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return decode_peer_copy(record, a);
    case CUPTI_ACTIVITY_KIND_MEMSET: return decode_fill(record, a);
    case CUPTI_ACTIVITY_KIND_MEMORY2: return decode_memory(record, a);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return decode_call(cupti, record, out);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return decode_tag(record, a);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return decode_overhead(record, a);
    case CUPTI_ACTIVITY_KIND_MARKER: return decode_marker(record, out);
    default: return CKPT_CUPTI_OTHER;
    }
}
#endif
