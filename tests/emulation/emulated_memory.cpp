/* The emulated device: its properties, its memory, its errors. Device memory can be touched only while the device
 * works, so that a host that reads through a device's address faults here as it would on a GPU; new memory is full of
 * 0xff. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <map>

#include "emulated_impl.h"
#include "emulation.h"

enum : size_t {
    PAGE = 4096,
    TOTAL = (size_t)8 << 30,
    CONTEXT = (size_t)64 << 20,
    ROUNDING = (size_t)2 << 20,
    LARGE_PAGE = (size_t)2 << 20,
    CACHE = (size_t)64 << 10
};

namespace
{

struct block {
    size_t bytes, mapped;
    void *place; /* with what is unmapped around it */
    size_t whole;
};

std::map<uintptr_t, block> device_blocks, pinned_blocks;
int64_t reservations;
int working;
uint64_t random_state = 1;
cudaError_t last_error = cudaSuccess;
char failure[400];

} // namespace

/* ------------------------------------------------------------------------------------------- random order */

void emulated_random_seed(uint64_t seed)
{
    random_state = seed;
}

uint64_t emulated_random(uint64_t below)
{
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

/* ------------------------------------------------------------------------------------------- errors */

void emulated_fail(const char *format, ...)
{
    if (failure[0] == '\0') {
        va_list rest;
        va_start(rest, format);
        vsnprintf(failure, sizeof failure, format, rest);
        va_end(rest);
    }
}

bool emulated_failed()
{
    return failure[0] != '\0';
}

void emulated_recover()
{
    failure[0] = '\0';
    last_error = cudaSuccess;
}

cudaError_t emulated_refuse(cudaError_t code)
{
    last_error = code;
    return code;
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return emulated_failed() ? cudaErrorLaunchFailure : last_error;
}

extern "C" cudaError_t cudaGetLastError(void)
{
    const cudaError_t code = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return code;
}

extern "C" const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    default: return "another error of CUDA";
    }
}

extern "C" const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorLaunchFailure && emulated_failed() ? failure : cudaGetErrorName(error);
}

/* ------------------------------------------------------------------------------------------- the device */

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : emulated_refuse(cudaErrorInvalidDevice);
}

extern "C" cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    (void)device_flags;
    (void)flags;
    return cudaSetDevice(device);
}

extern "C" cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

extern "C" cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    (void)flags;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device != 0) {
        return emulated_refuse(cudaErrorInvalidDevice);
    }
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "emulation on the host");
    properties->totalGlobalMem = TOTAL;
    properties->sharedMemPerBlock = EMULATED_SHARED_FREE;
    properties->sharedMemPerBlockOptin = EMULATED_SHARED_MOST;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->major = 9;
    properties->multiProcessorCount = emulated_multiprocessors();
    properties->l2CacheSize = (int)CACHE;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp all;
    const cudaError_t code = cudaGetDeviceProperties(&all, device);
    if (code != cudaSuccess) {
        return code;
    }
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = all.maxThreadsPerBlock; break;
    case cudaDevAttrWarpSize: *value = all.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = all.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = all.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = all.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)all.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)all.sharedMemPerBlockOptin; break;
    default: return emulated_refuse(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

extern "C" cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------- memory */

static void set_access(int access)
{
    for (const auto &[base, found] : device_blocks) {
        mprotect((void *)base, found.mapped, access);
    }
}

emulated_working::emulated_working()
{
    if (working++ == 0) {
        set_access(PROT_READ | PROT_WRITE);
    }
}

emulated_working::~emulated_working()
{
    if (--working == 0) {
        set_access(PROT_NONE);
    }
}

/* Open is as if the device never stopped working. */
void ckpt_emulated_guard(bool guarded)
{
    static bool open;
    if (open == guarded) {
        open = !guarded;
        if (open) {
            working++;
            set_access(PROT_READ | PROT_WRITE);
        } else if (--working == 0) {
            set_access(PROT_NONE);
        }
    }
}

static bool lies_in(const std::map<uintptr_t, block> &blocks, const void *address, size_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) {
        return false;
    }
    --after;
    return at - after->first <= after->second.bytes && bytes <= after->second.bytes - (at - after->first);
}

bool emulated_is_device(const void *address, size_t bytes)
{
    return lies_in(device_blocks, address, bytes);
}

bool emulated_is_pinned(const void *address, size_t bytes)
{
    return lies_in(pinned_blocks, address, bytes);
}

void ckpt_emulated_check_pointer(const void *pointer)
{
    if (pointer != nullptr && !emulated_is_device(pointer, 0) && !emulated_is_pinned(pointer, 0)) {
        emulated_fail("a kernel is given the address %p, which is not the device's", pointer);
    }
}

static size_t rounded(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

/* What cudaMemGetInfo counts: whole units of 2 MiB. */
static size_t used()
{
    size_t sum = CONTEXT;
    for (const auto &[base, found] : device_blocks) {
        (void)base;
        sum += rounded(found.bytes, ROUNDING);
    }
    return sum;
}

/* Unmapped pages on both sides. What is large begins at a large page, where the system has those: access is given and
 * taken at every command, which costs as much as there are pages. */
static cudaError_t map(std::map<uintptr_t, block> &blocks, void **base, size_t bytes, int access)
{
    const size_t inner = rounded(bytes, PAGE), step = inner < LARGE_PAGE ? (size_t)PAGE : (size_t)LARGE_PAGE;
    const size_t whole = inner + step + PAGE;
    void *const place = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *const start = place == MAP_FAILED ? nullptr : (char *)rounded((uintptr_t)place + PAGE, step);
    if (start == nullptr || mprotect(start, inner, PROT_READ | PROT_WRITE) != 0) {
        return emulated_refuse(cudaErrorMemoryAllocation);
    }
    (void)madvise(start, inner, MADV_HUGEPAGE);
    memset(start, 0xff, inner);
    mprotect(start, inner, access);
    blocks[(uintptr_t)start] = {bytes, inner, place, whole};
    reservations++;
    *base = start;
    return cudaSuccess;
}

static cudaError_t unmap(std::map<uintptr_t, block> &blocks, void *base)
{
    const auto found = blocks.find((uintptr_t)base);
    if (base == nullptr) {
        return cudaSuccess;
    }
    if (found == blocks.end()) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    munmap(found->second.place, found->second.whole);
    blocks.erase(found);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMalloc(void **base, size_t bytes)
{
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    if (bytes > TOTAL - used()) {
        return emulated_refuse(cudaErrorMemoryAllocation);
    }
    return map(device_blocks, base, bytes, working > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}

extern "C" cudaError_t cudaFree(void *base)
{
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    emulated_drain();
    return unmap(device_blocks, base);
}

extern "C" cudaError_t cudaHostAlloc(void **base, size_t bytes, unsigned int flags)
{
    (void)flags;
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    return bytes > TOTAL ? emulated_refuse(cudaErrorMemoryAllocation)
                         : map(pinned_blocks, base, bytes, PROT_READ | PROT_WRITE);
}

extern "C" cudaError_t cudaMallocHost(void **base, size_t bytes)
{
    return cudaHostAlloc(base, bytes, 0);
}

extern "C" cudaError_t cudaFreeHost(void *base)
{
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    emulated_drain();
    return unmap(pinned_blocks, base);
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = TOTAL;
    *free = TOTAL - used();
    return cudaSuccess;
}

static int64_t sum_of(const std::map<uintptr_t, block> &blocks)
{
    int64_t sum = 0;
    for (const auto &[base, found] : blocks) {
        (void)base;
        sum += (int64_t)found.bytes;
    }
    return sum;
}

int64_t ckpt_emulated_device_bytes(void)
{
    return sum_of(device_blocks);
}

int64_t ckpt_emulated_host_bytes(void)
{
    return sum_of(pinned_blocks);
}

int64_t ckpt_emulated_reservations(void)
{
    return reservations;
}
