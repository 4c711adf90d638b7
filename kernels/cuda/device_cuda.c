/* A CUDA device: memory, streams, events and recordings by the runtime's C API; kernels and libraries are behind
 * ckpt_kernel. A host thread has one device open at a time and sets the runtime's current device once, when it opens
 * it.
 *
 * The host waits by spinning (cudaDeviceScheduleSpin): it waits once per step, in `finish`, and has nothing else to do.
 * Sleeping and waking costs tens of microseconds, a tenth of a small model's step. */
#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/nccl.h"

extern const ckpt_kernel *const ckpt_cuda_kernel_table[];
extern const ckpt_optimizer_kernel *const ckpt_cuda_optimizer_table[];

enum {
    TEXT_MAX = 192,
    CAPABILITY_MIN = 80, /* bfloat16 on tensor cores, asynchronous copies to shared memory */
};

typedef struct event_list {
    cudaEvent_t *at;
    int count;
} event_list;

typedef struct cuda_device {
    ckpt_cuda cuda; /* first: a ckpt_device pointer is a cuda_device pointer */
    ckpt_cuda_counters *counters;
    ckpt_bytes context_bytes;  /* in use when the context was new */
    ckpt_bytes reserved_bytes; /* the fall of free memory at our own reservations; cudaMalloc rounds up */
    event_list signals, stamps;
    ckpt_launches launched;
    bool capturing;
    char description[TEXT_MAX], libraries[TEXT_MAX];
} cuda_device;

static cuda_device *device_of(ckpt_device *device)
{
    return (cuda_device *)device;
}

ckpt_code ckpt_cuda_check(cudaError_t code, const char *what, ckpt_err *err)
{
    if (code == cudaSuccess) {
        return CKPT_OK;
    }
    (void)cudaGetLastError(); /* reported here: the next launch must not report it too */
    return CKPT_FAIL(err, code == cudaErrorMemoryAllocation ? CKPT_NO_MEMORY : CKPT_DEVICE, "%s: %s", what,
                     cudaGetErrorString(code));
}

ckpt_code ckpt_cuda_launched(const char *what, ckpt_err *err)
{
    return ckpt_cuda_check(cudaGetLastError(), what, err);
}

/* Opening. */

/* Fails if there is no device of that index. Without a driver cudaGetDeviceCount does not set the count. */
static ckpt_code find_device(int index, ckpt_err *err)
{
    int count = 0, driver = 0, runtime = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess && code != cudaErrorNoDevice) {
        (void)cudaGetLastError();
        if (code == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
            cudaRuntimeGetVersion(&runtime) == cudaSuccess && driver > 0) {
            return CKPT_FAIL(err, CKPT_DEVICE,
                             "device cuda:%d: the NVIDIA driver knows CUDA up to %d.%d, wanted %d.%d or newer", index,
                             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        }
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: no device: %s", index,
                         code == cudaErrorInsufficientDriver ? "there is no NVIDIA driver" : cudaGetErrorString(code));
    }
    (void)cudaGetLastError();
    if (code == cudaErrorNoDevice || count == 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: no device: the NVIDIA driver sees no GPU", index);
    }
    if (index >= count) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: no such device: there %s %d GPU%s, the last is cuda:%d",
                         index, count == 1 ? "is" : "are", count, count == 1 ? "" : "s", count - 1);
    }
    return CKPT_OK;
}

static ckpt_code read_properties(cuda_device *self, ckpt_err *err)
{
    ckpt_cuda *const cuda = &self->cuda;
    struct cudaDeviceProp found;
    CKPT_TRY(ckpt_cuda_check(cudaGetDeviceProperties(&found, cuda->index), "cudaGetDeviceProperties", err));
    cuda->capability = found.major * 10 + found.minor;
    cuda->multiprocessors = found.multiProcessorCount;
    cuda->shared_bytes = (int)found.sharedMemPerBlockOptin;
    cuda->device.cache_bytes = found.l2CacheSize;
    if (cuda->capability < CAPABILITY_MIN) {
        return CKPT_FAIL(err, CKPT_DEVICE, "device cuda:%d: %s has compute capability %d.%d, wanted %d.%d or newer",
                         cuda->index, found.name, found.major, found.minor, CAPABILITY_MIN / 10, CAPABILITY_MIN % 10);
    }
    snprintf(self->description, sizeof self->description, "cuda:%d: %.80s, %d multiprocessors, %lld GiB", cuda->index,
             found.name, cuda->multiprocessors, (long long)(found.totalGlobalMem >> 30));
    return CKPT_OK;
}

static void describe_libraries(cuda_device *self)
{
    int runtime = 0, driver = 0;
    char blas[TEXT_MAX / 4], cudnn[TEXT_MAX / 4];
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    ckpt_blas_version(blas, sizeof blas);
    ckpt_cudnn_version(cudnn, sizeof cudnn);
    snprintf(self->libraries, sizeof self->libraries, "CUDA runtime %d.%d, driver for CUDA %d.%d, %s, %s",
             runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10, blas, cudnn);
}

static ckpt_code used_bytes(ckpt_bytes *used, ckpt_bytes *total, ckpt_err *err)
{
    size_t free_now = 0, all = 0;
    CKPT_TRY(ckpt_cuda_check(cudaMemGetInfo(&free_now, &all), "cudaMemGetInfo", err));
    *used = (ckpt_bytes)(all - free_now);
    *total = (ckpt_bytes)all;
    return CKPT_OK;
}

static ckpt_code make_context(cuda_device *self, ckpt_err *err)
{
    ckpt_cuda *const cuda = &self->cuda;
    CKPT_TRY(ckpt_cuda_check(cudaInitDevice(cuda->index, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid),
                             "cudaInitDevice", err));
    CKPT_TRY(ckpt_cuda_check(cudaSetDevice(cuda->index), "cudaSetDevice", err));
    ckpt_bytes total = 0;
    CKPT_TRY(used_bytes(&self->context_bytes, &total, err));
    /* Non-blocking: we use no default stream, and other work on it must not order ours. */
    for (int k = 0; k < CKPT_STREAM_COUNT; k++) {
        CKPT_TRY(ckpt_cuda_check(cudaStreamCreateWithFlags(&cuda->stream[k], cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags", err));
    }
    CKPT_TRY(ckpt_cuda_check(cudaMalloc((void **)&self->counters, sizeof *self->counters), "cudaMalloc", err));
    cuda->counters = self->counters;
    return CKPT_OK;
}

/* The first layer that needs cuDNN opens it (cudnn.c), because it is large and slow to load. */
static ckpt_code fill_device(cuda_device *self, ckpt_err *err)
{
    ckpt_cuda *const cuda = &self->cuda;
    CKPT_TRY(find_device(cuda->index, err));
    CKPT_TRY(read_properties(self, err));
    CKPT_TRY_WHILE(err, make_context(self, err), "opening device cuda:%d", cuda->index);
    CKPT_TRY_WHILE(err, ckpt_blas_open(cuda, err), "opening device cuda:%d", cuda->index);
    /* The first kernel: it fails if the program has no code for this device. */
    CKPT_TRY_WHILE(err, ckpt_cuda_set_counters(cuda, self->counters, &(ckpt_cuda_counters){0}, err),
                   "opening device cuda:%d", cuda->index);
    CKPT_TRY(ckpt_cuda_check(cudaStreamSynchronize(cuda->stream[CKPT_STREAM_COMPUTE]), "the first kernel", err));
    describe_libraries(self);
    return CKPT_OK;
}

static void destroy_events(event_list *list)
{
    for (int k = 0; k < list->count; k++) {
        (void)cudaEventDestroy(list->at[k]);
    }
    ckpt_memory_put(list->at);
    *list = (event_list){0};
}

static void cuda_close(ckpt_device *device)
{
    cuda_device *const self = device_of(device);
    ckpt_cuda *const cuda = &self->cuda;
    for (int k = 0; k < CKPT_STREAM_COUNT; k++) {
        if (cuda->stream[k] != NULL) {
            (void)cudaStreamSynchronize(cuda->stream[k]);
        }
    }
    destroy_events(&self->signals);
    destroy_events(&self->stamps);
    ckpt_cudnn_attention_close(cuda);
    ckpt_cudnn_close(cuda);
    ckpt_blas_close(cuda);
    if (self->counters != NULL) {
        (void)cudaFree(self->counters);
    }
    for (int k = 0; k < CKPT_STREAM_COUNT; k++) {
        if (cuda->stream[k] != NULL) {
            (void)cudaStreamDestroy(cuda->stream[k]);
        }
    }
    ckpt_memory_put(self);
}

static ckpt_code cuda_open(int index, int threads, ckpt_device **device, ckpt_err *err)
{
    (void)threads;
    cuda_device *const self = ckpt_memory_get(sizeof *self);
    if (self == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "device cuda:%d: %zu bytes", index, sizeof *self);
    }
    self->cuda.device = (ckpt_device){.api = &ckpt_device_cuda, .threads = CKPT_ON_GPU, .context = &self->cuda};
    self->cuda.index = index;
    self->cuda.launched = &self->launched;
    const ckpt_code code = fill_device(self, err);
    if (code != CKPT_OK) {
        cuda_close(&self->cuda.device);
        return code;
    }
    *device = &self->cuda.device;
    return CKPT_OK;
}

static const char *cuda_describe(const ckpt_device *device)
{
    return ((const cuda_device *)device)->description;
}

static const char *cuda_libraries(const ckpt_device *device)
{
    return ((const cuda_device *)device)->libraries;
}

/* Memory. */

static ckpt_code cuda_memory(ckpt_device *device, ckpt_device_memory *memory, ckpt_err *err)
{
    const cuda_device *const self = device_of(device);
    ckpt_bytes used = 0, total = 0;
    CKPT_TRY(used_bytes(&used, &total, err));
    const ckpt_bytes since = used - self->context_bytes - self->reserved_bytes;
    *memory = (ckpt_device_memory){
        .total = total,
        .free = total - used,
        .context = self->context_bytes,
        .libraries = since > 0 ? since : 0, /* other processes may have freed some */
    };
    return CKPT_OK;
}

static ckpt_code cuda_reserve(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err)
{
    cuda_device *const self = device_of(device);
    const cudaStream_t compute = self->cuda.stream[CKPT_STREAM_COMPUTE];
    ckpt_bytes before = 0, after = 0, total = 0;
    CKPT_TRY(used_bytes(&before, &total, err));
    const size_t wanted = bytes > 0 ? (size_t)bytes : 1;
    void *block = NULL;
    const cudaError_t code = cudaMalloc(&block, wanted);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        char text[CKPT_UNITS_TEXT], rest[CKPT_UNITS_TEXT], all[CKPT_UNITS_TEXT];
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "cannot reserve %s (%lld bytes) on cuda:%d, where %s of %s are free: %s",
                         ckpt_bytes_show(bytes, text), (long long)bytes, self->cuda.index,
                         ckpt_bytes_show(total - before, rest), ckpt_bytes_show(total, all), cudaGetErrorString(code));
    }
    /* Other streams may use it at once, so it is zero before this returns. */
    ckpt_code done = ckpt_cuda_check(cudaMemsetAsync(block, 0, wanted, compute), "cudaMemsetAsync", err);
    done = done != CKPT_OK ? done : ckpt_cuda_check(cudaStreamSynchronize(compute), "clearing memory", err);
    done = done != CKPT_OK ? done : used_bytes(&after, &total, err);
    if (done != CKPT_OK) {
        (void)cudaFree(block);
        return done;
    }
    self->reserved_bytes += after - before;
    *base = block;
    return CKPT_OK;
}

static void cuda_release(ckpt_device *device, void *base, ckpt_bytes bytes)
{
    (void)bytes;
    cuda_device *const self = device_of(device);
    ckpt_bytes before = 0, after = 0, total = 0;
    if (base == NULL) {
        return;
    }
    const bool known = used_bytes(&before, &total, NULL) == CKPT_OK;
    (void)cudaFree(base); /* waits for all work that uses it */
    if (known && used_bytes(&after, &total, NULL) == CKPT_OK) {
        self->reserved_bytes += after - before;
    }
}

static ckpt_code cuda_reserve_host(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err)
{
    (void)device;
    const size_t wanted = bytes > 0 ? (size_t)bytes : 1;
    void *block = NULL;
    const cudaError_t code = cudaHostAlloc(&block, wanted, cudaHostAllocDefault);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        char text[CKPT_UNITS_TEXT];
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "cannot reserve %s (%lld bytes) of page-locked host memory: %s",
                         ckpt_bytes_show(bytes, text), (long long)bytes, cudaGetErrorString(code));
    }
    memset(block, 0, wanted);
    *base = block;
    return CKPT_OK;
}

static void cuda_release_host(ckpt_device *device, void *base, ckpt_bytes bytes)
{
    (void)device;
    (void)bytes;
    if (base != NULL) {
        (void)cudaFreeHost(base);
    }
}

/* Copies. */

static ckpt_code copy_on(ckpt_device *device, ckpt_stream stream, void *to, const void *from, ckpt_bytes bytes,
                         enum cudaMemcpyKind kind, const char *what, ckpt_err *err)
{
    const cudaStream_t queue = device_of(device)->cuda.stream[stream];
    device_of(device)->launched.copies += bytes > 0;
    return bytes <= 0 ? CKPT_OK : ckpt_cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, kind, queue), what, err);
}

static ckpt_code wait_for(ckpt_device *device, ckpt_stream stream, const char *what, ckpt_err *err)
{
    return ckpt_cuda_check(cudaStreamSynchronize(device_of(device)->cuda.stream[stream]), what, err);
}

static ckpt_code cuda_upload(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err)
{
    CKPT_TRY(copy_on(device, CKPT_STREAM_COMPUTE, to, host, bytes, cudaMemcpyHostToDevice, "upload", err));
    return wait_for(device, CKPT_STREAM_COMPUTE, "upload", err);
}

static ckpt_code cuda_download(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err)
{
    CKPT_TRY(copy_on(device, CKPT_STREAM_COMPUTE, host, from, bytes, cudaMemcpyDeviceToHost, "download", err));
    return wait_for(device, CKPT_STREAM_COMPUTE, "download", err);
}

static ckpt_code cuda_fill(ckpt_device *device, void *to, int byte, ckpt_bytes bytes, ckpt_err *err)
{
    const cudaStream_t compute = device_of(device)->cuda.stream[CKPT_STREAM_COMPUTE];
    device_of(device)->launched.copies += bytes > 0;
    return bytes <= 0 ? CKPT_OK : ckpt_cuda_check(cudaMemsetAsync(to, byte, (size_t)bytes, compute), "fill", err);
}

static ckpt_code cuda_offload(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err)
{
    return copy_on(device, CKPT_STREAM_D2H, host, from, bytes, cudaMemcpyDeviceToHost, "offload", err);
}

static ckpt_code cuda_fetch(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err)
{
    return copy_on(device, CKPT_STREAM_H2D, to, host, bytes, cudaMemcpyHostToDevice, "fetch", err);
}

static ckpt_code cuda_add(ckpt_device *device, ckpt_dtype dtype, void *to, const void *from, int64_t count,
                          ckpt_err *err)
{
    return ckpt_cuda_add(&device_of(device)->cuda, dtype, to, from, count, err);
}

static ckpt_code cuda_narrow(ckpt_device *device, void *to, const float *from, int64_t count, ckpt_err *err)
{
    return ckpt_cuda_narrow(&device_of(device)->cuda, to, from, count, err);
}

static ckpt_code cuda_square_sum(ckpt_device *device, const float *from, int64_t count, double *sum, void *workspace,
                                 ckpt_err *err)
{
    return ckpt_cuda_square_sum(&device_of(device)->cuda, from, count, sum, workspace, err);
}

static ckpt_code cuda_clip_scale(ckpt_device *device, const double *sum, int64_t count, double base, double most,
                                 float *scale, ckpt_err *err)
{
    return ckpt_cuda_clip_scale(&device_of(device)->cuda, sum, count, base, most, scale, err);
}

/* Order between streams, and times. */

/* Makes at least `count` events; existing ones stay, so that two executors may use one device in turn. */
static ckpt_code make_events(event_list *list, int count, unsigned flags, ckpt_err *err)
{
    if (count <= list->count) {
        return CKPT_OK;
    }
    cudaEvent_t *const at = ckpt_memory_get((size_t)count * sizeof(cudaEvent_t));
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d events", count);
    }
    if (list->count > 0) {
        memcpy(at, list->at, (size_t)list->count * sizeof(cudaEvent_t));
    }
    ckpt_memory_put(list->at);
    list->at = at;
    while (list->count < count) {
        CKPT_TRY(ckpt_cuda_check(cudaEventCreateWithFlags(&at[list->count], flags), "cudaEventCreateWithFlags", err));
        list->count++;
    }
    return CKPT_OK;
}

static ckpt_code cuda_signals(ckpt_device *device, int count, ckpt_err *err)
{
    return make_events(&device_of(device)->signals, count, cudaEventDisableTiming, err);
}

static ckpt_code cuda_record(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err)
{
    const cuda_device *const self = device_of(device);
    return ckpt_cuda_check(cudaEventRecord(self->signals.at[signal], self->cuda.stream[stream]), "cudaEventRecord",
                           err);
}

static ckpt_code cuda_wait(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err)
{
    const cuda_device *const self = device_of(device);
    return ckpt_cuda_check(cudaStreamWaitEvent(self->cuda.stream[stream], self->signals.at[signal], 0),
                           "cudaStreamWaitEvent", err);
}

/* The numbers are a kernel's arguments, which the launch copies, so that no host memory must stay valid. A step that
 * still runs keeps its numbers until it ends, because both are on one stream. */
static ckpt_code cuda_begin(ckpt_device *device, uint64_t seed, uint64_t step, const ckpt_numbers *numbers,
                            ckpt_err *err)
{
    cuda_device *const self = device_of(device);
    ckpt_cuda_counters now = {.seed = seed, .step = step, .numbers = {.clip = 1}};
    if (numbers != NULL) {
        now.numbers = *numbers;
    }
    return ckpt_cuda_set_counters(&self->cuda, self->counters, &now, err);
}

/* A replay is work on the compute stream, so these three streams are all. */
static ckpt_code cuda_finish(ckpt_device *device, ckpt_err *err)
{
    CKPT_TRY(wait_for(device, CKPT_STREAM_D2H, "finishing the offloads", err));
    CKPT_TRY(wait_for(device, CKPT_STREAM_H2D, "finishing the fetches", err));
    return wait_for(device, CKPT_STREAM_COMPUTE, "finishing the step", err);
}

/* Thread local: a call of this thread that cannot be recorded (an allocation, a wait) fails and ends the recording,
 * which proves that a step has none. Other threads are not affected. */
static ckpt_code cuda_capture_begin(ckpt_device *device, ckpt_err *err)
{
    cuda_device *const self = device_of(device);
    CKPT_TRY(ckpt_cuda_check(
        cudaStreamBeginCapture(self->cuda.stream[CKPT_STREAM_COMPUTE], cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture", err));
    self->capturing = true;
    return CKPT_OK;
}

/* A graph that can be replayed, and its contents. */
typedef struct cuda_recording {
    cudaGraphExec_t exec;
    ckpt_launches launches;
} cuda_recording;

static ckpt_code count_nodes(cudaGraph_t graph, ckpt_launches *launches, ckpt_err *err)
{
    size_t count = 0;
    CKPT_TRY(ckpt_cuda_check(cudaGraphGetNodes(graph, NULL, &count), "cudaGraphGetNodes", err));
    cudaGraphNode_t *const node = ckpt_memory_get((count + 1) * sizeof *node);
    if (node == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu nodes of a recording", count);
    }
    ckpt_code code = ckpt_cuda_check(cudaGraphGetNodes(graph, node, &count), "cudaGraphGetNodes", err);
    for (size_t i = 0; code == CKPT_OK && i < count; i++) {
        enum cudaGraphNodeType type = cudaGraphNodeTypeKernel;
        code = ckpt_cuda_check(cudaGraphNodeGetType(node[i], &type), "cudaGraphNodeGetType", err);
        launches->kernels += type == cudaGraphNodeTypeKernel;
        launches->copies += type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset;
    }
    ckpt_memory_put(node);
    return code;
}

static void cuda_launches(const ckpt_device *device, const void *recording, ckpt_launches *launches)
{
    *launches =
        recording != NULL ? ((const cuda_recording *)recording)->launches : ((const cuda_device *)device)->launched;
}

static void cuda_capture_release(ckpt_device *device, void *recording)
{
    (void)device;
    cuda_recording *const made = recording;
    if (made != NULL && made->exec != NULL) {
        (void)cudaGraphExecDestroy(made->exec);
    }
    ckpt_memory_put(made);
}

static ckpt_code cuda_capture_end(ckpt_device *device, void **recording, ckpt_err *err)
{
    cuda_device *const self = device_of(device);
    const cudaStream_t compute = self->cuda.stream[CKPT_STREAM_COMPUTE];
    cudaGraph_t graph = NULL;
    self->capturing = false;
    CKPT_TRY(ckpt_cuda_check(cudaStreamEndCapture(compute, &graph), "cudaStreamEndCapture", err));
    cuda_recording *const made = ckpt_memory_get(sizeof *made);
    ckpt_code code = made != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "a recording: %zu bytes", sizeof *made);
    code = code != CKPT_OK ? code : count_nodes(graph, &made->launches, err);
    code = code != CKPT_OK ? code
                           : ckpt_cuda_check(cudaGraphInstantiate(&made->exec, graph, 0), "cudaGraphInstantiate", err);
    (void)cudaGraphDestroy(graph);
    /* Takes its device memory now, not at the first replay. */
    code = code != CKPT_OK ? code : ckpt_cuda_check(cudaGraphUpload(made->exec, compute), "cudaGraphUpload", err);
    code = code != CKPT_OK ? code : wait_for(device, CKPT_STREAM_COMPUTE, "cudaGraphUpload", err);
    if (code != CKPT_OK) {
        cuda_capture_release(device, made);
        return code;
    }
    *recording = made;
    return CKPT_OK;
}

static ckpt_code cuda_replay(ckpt_device *device, void *recording, ckpt_err *err)
{
    const cuda_recording *const made = recording;
    return ckpt_cuda_check(cudaGraphLaunch(made->exec, device_of(device)->cuda.stream[CKPT_STREAM_COMPUTE]),
                           "cudaGraphLaunch", err);
}

static ckpt_code cuda_stamps(ckpt_device *device, int count, ckpt_err *err)
{
    return make_events(&device_of(device)->stamps, count, cudaEventDefault, err);
}

/* In a recording a plain record only orders work; an external one records the time in every replay. */
static ckpt_code cuda_stamp(ckpt_device *device, int index, ckpt_stream stream, ckpt_err *err)
{
    const cuda_device *const self = device_of(device);
    const unsigned flags = self->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    return ckpt_cuda_check(cudaEventRecordWithFlags(self->stamps.at[index], self->cuda.stream[stream], flags),
                           "cudaEventRecordWithFlags", err);
}

static ckpt_code cuda_stamp_ns(ckpt_device *device, int index, ckpt_ns *ns, ckpt_err *err)
{
    const cuda_device *const self = device_of(device);
    float ms = 0;
    CKPT_TRY(ckpt_cuda_check(cudaEventElapsedTime(&ms, self->stamps.at[0], self->stamps.at[index]),
                             "cudaEventElapsedTime", err));
    *ns = (ckpt_ns)((double)ms * 1e6);
    return CKPT_OK;
}

#ifdef CKPT_EMULATION
__attribute__((visibility("default")))
#endif
const ckpt_device_api ckpt_device_cuda = {
    .kind = "cuda",
    .gpu = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .libraries = cuda_libraries,
    .memory = cuda_memory,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .reserve_host = cuda_reserve_host,
    .release_host = cuda_release_host,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .offload = cuda_offload,
    .fetch = cuda_fetch,
    .add = cuda_add,
    .narrow = cuda_narrow,
    .square_workspace = ckpt_gpu_square_workspace,
    .square_sum = cuda_square_sum,
    .clip_scale = cuda_clip_scale,
    .signals = cuda_signals,
    .record = cuda_record,
    .wait = cuda_wait,
    .begin = cuda_begin,
    .finish = cuda_finish,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .capture_release = cuda_capture_release,
    .launches = cuda_launches,
    .stamps = cuda_stamps,
    .stamp = cuda_stamp,
    .stamp_ns = cuda_stamp_ns,
    .carry = ckpt_nccl_open,
    .kernels = ckpt_cuda_kernel_table,
    .optimizers = ckpt_cuda_optimizer_table,
};
