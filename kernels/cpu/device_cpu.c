/* The CPU as a device: memory straight from the system, kernels run where they are called. The staging of gradients
 * for ops that cannot add is here, once, so that such kernels need not know of it. */
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

#include "core/machine.h"
#include "core/memory.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"
#include "kernels/device.h"
#include "ops/network.h"

extern const ckpt_kernel *const ckpt_cpu_kernel_table[];
extern const ckpt_optimizer_kernel *const ckpt_cpu_optimizer_table[];

enum { TEXT_MAX = 160 };

typedef struct cpu_device {
    ckpt_device device; /* first: a ckpt_device pointer is a cpu_device pointer */
    char description[TEXT_MAX];
    char libraries[TEXT_MAX];
} cpu_device;

static ckpt_code cpu_open(int index, int threads, ckpt_device **device, ckpt_err *err)
{
    (void)index;
    if (threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "device cpu: found %d threads, wanted at most %d", threads,
                         CKPT_THREADS_MAX);
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
    /* Teams of another size than asked for would change the order of sums. */
    omp_set_dynamic(0);
    cpu->device = (ckpt_device){.api = &ckpt_device_cpu, .threads = threads};
    *device = &cpu->device;
    return CKPT_OK;
}

static void cpu_close(ckpt_device *device)
{
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

/* `bytes` in whole pages, at least one; false when 63 bits do not hold it. */
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

static const ckpt_kernel *cpu_find(const char *op)
{
    for (int i = 0; ckpt_cpu_kernel_table[i] != NULL; i++) {
        if (strcmp(ckpt_cpu_kernel_table[i]->op, op) == 0) {
            return ckpt_cpu_kernel_table[i];
        }
    }
    return NULL;
}

static ckpt_code cpu_forward(ckpt_device *device, const ckpt_bound *bound, const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)device;
    ckpt_kernel_args own = *args;
    own.node = bound->node;
    own.state = bound->state;
    CKPT_TRY_WHILE(err, bound->kernel->forward(&own, err), "running layer %s", bound->node->name);
    return CKPT_OK;
}

/* Take `bytes` from the start of the workspace that `args` still has. */
static void *take_workspace(ckpt_kernel_args *args, ckpt_bytes bytes)
{
    const ckpt_bytes step = ckpt_round_up(bytes, CKPT_ALIGN);
    void *const piece = args->workspace;
    args->workspace = (char *)args->workspace + step;
    args->workspace_bytes -= step;
    return piece;
}

static void add_all(const float *from, float *to, int64_t count, int threads)
{
    const int64_t blocks = CKPT_BLOCKS(count);
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        ckpt_vector_add(CKPT_IN_BLOCK(count, b), from + b * CKPT_BLOCK, to + b * CKPT_BLOCK);
    }
}

/* The kernel overwrites staged copies, which are then added in the order of the staging: inputs, then parameters. */
static ckpt_code backward_staged(const ckpt_bound *bound, const ckpt_kernel_args *args, ckpt_bytes staging,
                                 ckpt_err *err)
{
    const ckpt_node *const node = bound->node;
    if (args->workspace_bytes < staging + bound->backward_workspace_bytes) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "layer %s (%s): backward needs %lld bytes of workspace, %lld of them to stage "
                         "gradients that are added; found %lld",
                         node->name, node->op->name, (long long)(staging + bound->backward_workspace_bytes),
                         (long long)staging, (long long)args->workspace_bytes);
    }
    float *grad_in[CKPT_IN_MAX] = {0};
    float *grad_param[CKPT_PARAM_MAX] = {0};
    ckpt_kernel_args own = *args;
    own.node = node;
    own.state = bound->state;
    own.grad_in = grad_in;
    own.grad_param = grad_param;
    own.grad_in_adds = own.grad_param_adds = 0;
    for (int k = 0; k < node->in_count; k++) {
        const bool adds = (args->grad_in_adds >> k & 1) != 0;
        void *const piece = adds ? take_workspace(&own, ckpt_tensor_bytes(&node->in[k])) : NULL;
        grad_in[k] = adds && args->grad_in[k] != NULL ? piece : args->grad_in[k];
    }
    for (int k = 0; k < node->param_count; k++) {
        const bool adds = (args->grad_param_adds >> k & 1) != 0;
        void *const piece = adds ? take_workspace(&own, ckpt_tensor_bytes(&node->param[k].tensor)) : NULL;
        grad_param[k] = adds && args->grad_param[k] != NULL ? piece : args->grad_param[k];
    }
    CKPT_TRY_WHILE(err, bound->kernel->backward(&own, err), "running layer %s backward", node->name);
    for (int k = 0; k < node->in_count; k++) {
        if (grad_in[k] != args->grad_in[k]) {
            add_all(grad_in[k], args->grad_in[k], ckpt_shape_count(&node->in[k].shape), node->threads);
        }
    }
    for (int k = 0; k < node->param_count; k++) {
        if (grad_param[k] != args->grad_param[k]) {
            add_all(grad_param[k], args->grad_param[k], ckpt_shape_count(&node->param[k].tensor.shape), node->threads);
        }
    }
    return CKPT_OK;
}

static ckpt_code cpu_backward(ckpt_device *device, const ckpt_bound *bound, const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)device;
    const ckpt_bytes staging = ckpt_staging_bytes(bound->node, args->grad_in_adds, args->grad_param_adds);
    if (staging > 0) {
        return backward_staged(bound, args, staging, err);
    }
    ckpt_kernel_args own = *args;
    own.node = bound->node;
    own.state = bound->state;
    CKPT_TRY_WHILE(err, bound->kernel->backward(&own, err), "running layer %s backward", bound->node->name);
    return CKPT_OK;
}

static ckpt_code cpu_update(ckpt_device *device, const ckpt_optimizer *optimizer, const double *hyper, bool decay,
                            uint64_t step, int64_t count, float *param, const float *grad, float *const *slot,
                            ckpt_err *err)
{
    for (int i = 0; ckpt_cpu_optimizer_table[i] != NULL; i++) {
        if (strcmp(ckpt_cpu_optimizer_table[i]->optimizer, optimizer->name) == 0) {
            ckpt_cpu_optimizer_table[i]->update(hyper, decay, step, count, param, grad, slot, device->threads);
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_DEVICE, "device cpu has no kernel for optimizer \"%s\"", optimizer->name);
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
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .find = cpu_find,
    .forward = cpu_forward,
    .backward = cpu_backward,
    .update = cpu_update,
    .finish = cpu_finish,
};
