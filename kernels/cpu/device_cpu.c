/* The CPU as a device: memory comes from the system, and kernels run when they are called. */
/* MAP_ANONYMOUS is not in POSIX 2008. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "core/formats/machine.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/clip.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/widened.h"
#include "kernels/device.h"
#include "kernels/place.h"

extern const ckpt_kernel *const ckpt_cpu_kernel_table[];
extern const ckpt_optimizer_kernel *const ckpt_cpu_optimizer_table[];

enum { TEXT_MAX = 160 };

typedef struct cpu_device {
    ckpt_device device; /* first: a ckpt_device pointer is a cpu_device pointer */
    char description[TEXT_MAX];
    char libraries[TEXT_MAX];
    double clip; /* of the numbers of the running step */
} cpu_device;

static ckpt_code cpu_open(int index, int threads, ckpt_device **device, ckpt_err *err)
{
    (void)index;
    if (threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "device cpu: found %d threads, wanted at most %d", threads,
                         CKPT_THREADS_MAX);
    }
    if (threads > omp_get_thread_limit()) { /* smaller teams would change the order of sums */
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "device cpu: OMP_THREAD_LIMIT is %d, wanted at least %d threads",
                         omp_get_thread_limit(), threads);
    }
    cpu_device *const cpu = ckpt_memory_get(sizeof *cpu);
    if (cpu == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "device cpu: %zu bytes", sizeof *cpu);
    }
    char processor[TEXT_MAX / 2];
    ckpt_machine_processor(processor, sizeof processor);
    snprintf(cpu->description, sizeof cpu->description, "cpu: %s, %d thread%s", processor, threads,
             threads == 1 ? "" : "s");
    snprintf(cpu->libraries, sizeof cpu->libraries, "%s, OpenMP %d", ckpt_dnn_version(), _OPENMP);
    /* A team of another size than requested would change the order of sums. */
    omp_set_dynamic(0);
    ckpt_place_take();
    cpu->device = (ckpt_device){.api = &ckpt_device_cpu, .threads = threads};
    cpu->clip = 1;
    *device = &cpu->device;
    return CKPT_OK;
}

static void cpu_close(ckpt_device *device)
{
    ckpt_place_leave();
    ckpt_memory_put(device);
}

static const char *cpu_describe(const ckpt_device *device)
{
    return ((const cpu_device *)device)->description;
}

static const char *cpu_libraries(const ckpt_device *device)
{
    return ((const cpu_device *)device)->libraries;
}

/* Rounds `bytes` up to whole pages, at least one; false if 63 bits are not enough. */
static bool whole_pages(ckpt_bytes bytes, size_t *rounded)
{
    const int64_t page = (int64_t)sysconf(_SC_PAGESIZE);
    int64_t sum = 0;
    if (bytes < 0 || !ckpt_sum(bytes > 0 ? bytes : 1, page - 1, &sum)) {
        return false;
    }
    *rounded = (size_t)(sum / page * page);
    return true;
}

static ckpt_code cpu_reserve(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err)
{
    (void)device;
    char text[CKPT_UNITS_TEXT];
    size_t length = 0;
    if (!whole_pages(bytes, &length)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "cannot reserve %lld bytes: no such size", (long long)bytes);
    }
    void *const block = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "cannot reserve %s (%lld bytes): %s", ckpt_bytes_show(bytes, text),
                         (long long)bytes, strerror(errno));
    }
    *base = block;
    return CKPT_OK;
}

/* The system gives a page of memory to the node of the processor that touches it first, and a share of a tensor is the
 * work of one thread. */
static void cpu_touch(ckpt_device *device, void *at, ckpt_bytes bytes)
{
    const ckpt_bytes page = (ckpt_bytes)sysconf(_SC_PAGESIZE);
    unsigned char *const first = (unsigned char *)at + (page - (ckpt_bytes)((uintptr_t)at % (uintptr_t)page)) % page;
    const ckpt_bytes pages = (bytes - (first - (unsigned char *)at) + page - 1) / page;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (ckpt_bytes p = 0; p < pages; p++) {
        ((volatile unsigned char *)first)[p * page] = 0;
    }
}

static void cpu_release(ckpt_device *device, void *base, ckpt_bytes bytes)
{
    (void)device;
    size_t length = 0;
    if (base != NULL && whole_pages(bytes, &length)) {
        munmap(base, length);
    }
}

static ckpt_code cpu_upload(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err)
{
    (void)device;
    (void)err;
    memcpy(to, host, (size_t)bytes);
    return CKPT_OK;
}

static ckpt_code cpu_download(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err)
{
    (void)device;
    (void)err;
    memcpy(host, from, (size_t)bytes);
    return CKPT_OK;
}

static ckpt_code cpu_fill(ckpt_device *device, void *to, int byte, ckpt_bytes bytes, ckpt_err *err)
{
    (void)device;
    (void)err;
    memset(to, byte, (size_t)bytes);
    return CKPT_OK;
}

/* to += from, each sum rounded once. */
static void add_narrow(int64_t n, const uint16_t *from, uint16_t *to)
{
    float term[CKPT_BLOCK], sum[CKPT_BLOCK];
    ckpt_widen(n, from, term);
    ckpt_widen(n, to, sum);
    ckpt_vector_add(n, term, sum);
    ckpt_narrow(n, sum, to);
}

static ckpt_code cpu_add(ckpt_device *device, ckpt_dtype dtype, void *to, const void *from, int64_t count,
                         ckpt_err *err)
{
    (void)err;
    const bool narrow = dtype == CKPT_BFLOAT16;
    const int64_t blocks = CKPT_BLOCKS(count);
#pragma omp parallel for schedule(static) num_threads(device->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        if (narrow) {
            add_narrow(n, (const uint16_t *)from + first, (uint16_t *)to + first);
        } else {
            ckpt_vector_add(n, (const float *)from + first, (float *)to + first);
        }
    }
    return CKPT_OK;
}

static ckpt_code cpu_narrow(ckpt_device *device, void *to, const float *from, int64_t count, ckpt_err *err)
{
    (void)err;
    ckpt_narrow_all(count, from, to, device->threads);
    return CKPT_OK;
}

static ckpt_bytes cpu_square_workspace(int64_t count)
{
    (void)count;
    return 0;
}

static ckpt_code cpu_square_sum(ckpt_device *device, const float *from, int64_t count, double *sum, void *workspace,
                                ckpt_err *err)
{
    (void)workspace;
    (void)err;
    *sum = ckpt_clip_squares(count, from, device->threads);
    return CKPT_OK;
}

static ckpt_code cpu_clip_scale(ckpt_device *device, const double *sum, int64_t count, double base, double most,
                                float *scale, ckpt_err *err)
{
    (void)err;
    *scale = ckpt_clip_scale(sum, count, base, most * ((const cpu_device *)device)->clip);
    return CKPT_OK;
}

static ckpt_code cpu_memory(ckpt_device *device, ckpt_device_memory *memory, ckpt_err *err)
{
    (void)device;
    (void)err;
    *memory = (ckpt_device_memory){0};
    return CKPT_OK;
}

/* All work is done when its call returns, so there is nothing to order. */
static ckpt_code cpu_signals(ckpt_device *device, int count, ckpt_err *err)
{
    (void)device;
    (void)count;
    (void)err;
    return CKPT_OK;
}

static ckpt_code cpu_signal(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err)
{
    (void)stream;
    return cpu_signals(device, signal, err);
}

static ckpt_code cpu_begin(ckpt_device *device, uint64_t seed, uint64_t step, const ckpt_numbers *numbers,
                           ckpt_err *err)
{
    (void)seed;
    (void)step;
    (void)err;
    ((cpu_device *)device)->clip = numbers != NULL ? numbers->clip : 1;
    return CKPT_OK;
}

static ckpt_code cpu_finish(ckpt_device *device, ckpt_err *err)
{
    (void)device;
    (void)err;
    return CKPT_OK;
}

const ckpt_device_api ckpt_device_cpu = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .libraries = cpu_libraries,
    .reserve = cpu_reserve,
    .release = cpu_release,
    .touch = cpu_touch,
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .memory = cpu_memory,
    .reserve_host = cpu_reserve,
    .release_host = cpu_release,
    .offload = cpu_download,
    .fetch = cpu_upload,
    .add = cpu_add,
    .narrow = cpu_narrow,
    .square_workspace = cpu_square_workspace,
    .square_sum = cpu_square_sum,
    .clip_scale = cpu_clip_scale,
    .signals = cpu_signals,
    .record = cpu_signal,
    .wait = cpu_signal,
    .begin = cpu_begin,
    .finish = cpu_finish,
    .kernels = ckpt_cpu_kernel_table,
    .widened = &ckpt_widened_kernel,
    .optimizers = ckpt_cpu_optimizer_table,
};
