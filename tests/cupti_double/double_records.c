/* Activity records as bytes. Fields are set through structs that the headers of CUPTI 12 and 13 both have; a version
 * that wrote more fields writes more bytes behind them, a version that wrote fewer is a prefix (cupti/decode.c has the
 * table of which is which). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cupti_double/cupti_double_impl.h"

/* Size of a record of one kind from a version on; the newest that applies counts. */
static const struct {
    uint32_t kind, since, size;
} sizes[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0, 200},      /* CUpti_ActivityKernel8, 11.8 */
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 19, 208},     /* 9, 12.0 */
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130000, 216}, /* 10 */
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130200, 224}, /* 11 */
    {CUPTI_ACTIVITY_KIND_MEMCPY, 0, 88},                  /* CUpti_ActivityMemcpy5 */
    {CUPTI_ACTIVITY_KIND_MEMCPY, 26, 96},                 /* 6, 12.8 */
    {CUPTI_ACTIVITY_KIND_MEMCPY2, 0, 96},
    {CUPTI_ACTIVITY_KIND_MEMSET, 0, 88},
    {CUPTI_ACTIVITY_KIND_MEMORY2, 0, 120},  /* CUpti_ActivityMemory3 */
    {CUPTI_ACTIVITY_KIND_MEMORY2, 24, 128}, /* 4 */
    {CUPTI_ACTIVITY_KIND_RUNTIME, 0, 40},
    {CUPTI_ACTIVITY_KIND_DRIVER, 0, 40},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 0, 24},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 0, 40},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 20, 48}, /* 2, 12.2 */
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 24, 56}, /* 3 */
    {CUPTI_ACTIVITY_KIND_MARKER, 0, 56},
};

uint32_t double_record_size(uint32_t kind)
{
    uint32_t size = 0;
    kind = kind == CUPTI_ACTIVITY_KIND_KERNEL ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL : kind;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size = sizes[i].kind == kind && sizes[i].since <= cupti_double.controls.version ? sizes[i].size : size;
    }
    return size;
}

const char *double_name(const char *text)
{
    static struct name {
        struct name *next;
        char text[];
    } *names = NULL;
    for (const struct name *n = names; n != NULL; n = n->next) {
        if (strcmp(n->text, text) == 0) {
            return n->text;
        }
    }
    struct name *const n = malloc(sizeof *n + strlen(text) + 1);
    if (n == NULL) {
        abort();
    }
    strcpy(n->text, text);
    n->next = names;
    names = n;
    return n->text;
}

void double_add(const void *bytes, uint32_t size, bool held)
{
    double_state *const d = &cupti_double;
    if (d->count == d->capacity) {
        d->capacity = d->capacity > 0 ? 2 * d->capacity : 256;
        d->record = realloc(d->record, d->capacity * sizeof *d->record);
        if (d->record == NULL) {
            abort();
        }
    }
    double_record *const record = &d->record[d->count++];
    *record = (double_record){.size = size < LARGEST_RECORD ? size : LARGEST_RECORD, .held = held};
    memcpy(record->bytes, bytes, record->size);
}

static bool enabled(uint32_t kind)
{
    return (cupti_double.enabled >> kind & 1) != 0;
}

/* A record whose first `known` bytes are given, as long as the version has it. What the version adds is not zero. */
static void add_known(const void *known, uint32_t known_size, bool held)
{
    unsigned char bytes[LARGEST_RECORD];
    uint32_t kind = 0;
    memcpy(&kind, known, sizeof kind);
    memset(bytes, 0xa5, sizeof bytes);
    memcpy(bytes, known, known_size);
    if (enabled(kind)) {
        double_add(bytes, double_record_size(kind), held);
    }
}

/* A call and, before it, the tag it stands under. */
static uint32_t call(const double_item *item, uint32_t runtime_id, uint32_t driver_id, uint64_t ns)
{
    double_state *const d = &cupti_double;
    const uint32_t correlation = ++d->correlation;
    for (uint32_t kind = CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN; kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; kind++) {
        CUpti_ActivityExternalCorrelation tag = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                                 .externalKind = (CUpti_ExternalCorrelationKind)kind,
                                                 .correlationId = correlation};
        uint64_t id = 0;
        if ((enabled(CUPTI_ACTIVITY_KIND_RUNTIME) || enabled(CUPTI_ACTIVITY_KIND_DRIVER)) &&
            double_tag((CUpti_ExternalCorrelationKind)kind, &id)) {
            tag.externalId = id;
            add_known(&tag, sizeof tag, false);
        }
    }
    const CUpti_ActivityAPI api = {.kind = item->driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME,
                                   .cbid = item->driver ? driver_id : runtime_id,
                                   .start = d->host_ns,
                                   .end = d->host_ns + ns,
                                   .processId = (uint32_t)getpid(),
                                   .threadId = 1,
                                   .correlationId = correlation};
    d->host_ns += ns;
    add_known(&api, sizeof api, false);
    return correlation;
}

/* When something started now runs on its stream, with the faults that were asked for. */
static void run_times(const double_item *item, uint64_t *start, uint64_t *end)
{
    double_state *const d = &cupti_double;
    uint64_t *const last = &d->stream_ns[item->stream % MOST_STREAMS];
    *start = *last > d->host_ns ? *last : d->host_ns;
    *end = *last = *start + item->ns;
    d->started++;
    if (d->controls.backwards > 0 && d->started % d->controls.backwards == 0) {
        const uint64_t forward = *start;
        *start = *end + 1;
        *end = forward;
    }
    if (d->controls.untimed > 0 && d->started % d->controls.untimed == 0) {
        *start = *end = 0;
    }
}

static void happen_kernel(const double_item *item)
{
    CUpti_ActivityKernel9 k = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               .contextId = 1,
                               .streamId = item->stream,
                               .gridX = 1,
                               .gridY = 1,
                               .gridZ = 1,
                               .blockX = 128,
                               .blockY = 1,
                               .blockZ = 1,
                               .name = double_name(item->name)};
    uint64_t start = 0;
    uint64_t end = 0;
    k.correlationId =
        call(item, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1000);
    run_times(item, &start, &end);
    k.start = start;
    k.end = end;
    add_known(&k, sizeof k - 8, cupti_double.controls.running); /* the kernel of 11.8 is 8 bytes shorter */
}

static void happen_copy(const double_item *item)
{
    CUpti_ActivityMemcpy5 c = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                               .copyKind = (uint8_t)item->way,
                               .bytes = item->bytes,
                               .contextId = 1,
                               .streamId = item->stream};
    uint64_t start = 0;
    uint64_t end = 0;
    c.correlationId =
        call(item, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, 1000);
    run_times(item, &start, &end);
    c.start = start;
    c.end = end;
    add_known(&c, sizeof c, false);
}

static void happen_fill(const double_item *item)
{
    CUpti_ActivityMemset4 f = {
        .kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = item->bytes, .contextId = 1, .streamId = item->stream};
    uint64_t start = 0;
    uint64_t end = 0;
    f.correlationId =
        call(item, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async, 1000);
    run_times(item, &start, &end);
    f.start = start;
    f.end = end;
    add_known(&f, sizeof f, false);
}

static void happen_memory(const double_item *item, bool allocate, CUpti_ActivityMemoryKind where)
{
    CUpti_ActivityMemory3 m = {.kind = CUPTI_ACTIVITY_KIND_MEMORY2,
                               .memoryOperationType = allocate ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                                                               : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE,
                               .memoryKind = where,
                               .address = item->address,
                               .bytes = item->bytes,
                               .processId = (uint32_t)getpid(),
                               .contextId = 1,
                               .streamId = CUPTI_INVALID_STREAM_ID};
    m.correlationId =
        call(item, allocate ? CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020 : CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020,
             allocate ? CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2 : CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, 2000);
    m.timestamp = cupti_double.host_ns;
    add_known(&m, sizeof m, false);
}

static void happen_marker(uint32_t flags, uint32_t id, const char *name)
{
    CUpti_ActivityMarker2 m = {.kind = CUPTI_ACTIVITY_KIND_MARKER,
                               .flags = (CUpti_ActivityFlag)flags,
                               .timestamp = cupti_double.host_ns,
                               .id = id,
                               .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
                               .name = name};
    m.objectId.pt.processId = (uint32_t)getpid();
    m.objectId.pt.threadId = 1;
    add_known(&m, sizeof m, false);
    cupti_double.host_ns += 100;
}

static void happen_overhead(const double_item *item)
{
    CUpti_ActivityOverhead o = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                                .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH,
                                .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
                                .start = cupti_double.host_ns,
                                .end = cupti_double.host_ns + item->ns};
    cupti_double.host_ns += item->ns;
    o.objectId.pt.processId = (uint32_t)getpid();
    o.objectId.pt.threadId = 1;
    add_known(&o, sizeof o, false);
}

static _Thread_local uint32_t open_range[DEEPEST_TAG];
static _Thread_local int open_ranges;

void double_forget_ranges(void)
{
    open_ranges = 0;
}

void double_happen(const double_item *item)
{
    double_state *const d = &cupti_double;
    if (strcmp(item->verb, "kernel") == 0) {
        happen_kernel(item);
    } else if (strcmp(item->verb, "copy") == 0) {
        happen_copy(item);
    } else if (strcmp(item->verb, "fill") == 0) {
        happen_fill(item);
    } else if (strcmp(item->verb, "allocate") == 0) {
        happen_memory(item, true, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    } else if (strcmp(item->verb, "host") == 0) {
        happen_memory(item, true, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    } else if (strcmp(item->verb, "release") == 0) {
        happen_memory(item, false, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    } else if (strcmp(item->verb, "call") == 0) {
        call(item, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,
             item->ns);
    } else if (strcmp(item->verb, "overhead") == 0) {
        happen_overhead(item);
    } else if (strcmp(item->verb, "mark") == 0) {
        happen_marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, ++d->marker, double_name(item->name));
    } else if (strcmp(item->verb, "range") == 0) {
        open_range[open_ranges++ % DEEPEST_TAG] = ++d->marker;
        happen_marker(CUPTI_ACTIVITY_FLAG_MARKER_START, d->marker, double_name(item->name));
    } else if (strcmp(item->verb, "end") == 0) {
        const uint32_t ended = open_ranges > 0 ? open_range[--open_ranges % DEEPEST_TAG] : ++d->marker;
        happen_marker(CUPTI_ACTIVITY_FLAG_MARKER_END, ended, NULL);
    } else { /* gap */
        d->host_ns += item->ns;
    }
}
