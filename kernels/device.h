/* A device: memory, copies, and kernels bound to nodes. The executor and the profiler see only this. */
#ifndef CKPT_KERNELS_DEVICE_H
#define CKPT_KERNELS_DEVICE_H

#include "core/base/carrier.h"
#include "kernels/kernel.h"

typedef struct ckpt_device ckpt_device;

/* A node made ready to run on a device. */
typedef struct ckpt_bound_kernel {
    const ckpt_node *node;
    const ckpt_kernel *kernel;
    void *state;
    ckpt_bytes forward_workspace_bytes, backward_workspace_bytes; /* used; staging not included */
} ckpt_bound_kernel;

/* A new state of the kernel for this node, NULL where it has none. Arguments and errors: see ckpt_kernel.prepare. */
CKPT_MUST_USE ckpt_code ckpt_kernel_prepare(const ckpt_kernel *kernel, void *context, const ckpt_node *node,
                                            ckpt_bytes forward_workspace, ckpt_bytes backward_workspace,
                                            const char *choice, void **state, ckpt_err *err);
void ckpt_kernel_release(const ckpt_kernel *kernel, void *state); /* NULL is fine */

/* What is given to one stream runs in order; between streams only signals order. The CPU does everything at once. */
typedef enum ckpt_stream {
    CKPT_STREAM_COMPUTE, /* kernels, updates, fills, uploads, downloads */
    CKPT_STREAM_D2H,     /* offload */
    CKPT_STREAM_H2D,     /* fetch */
    CKPT_STREAM_COUNT
} ckpt_stream;

/* What a device says about its memory, in bytes; 0 where it cannot tell (the CPU). */
typedef struct ckpt_device_memory {
    ckpt_bytes total, free;
    ckpt_bytes context;   /* taken before anything was reserved: context, and whatever other processes hold */
    ckpt_bytes libraries; /* taken by library handles and loaded code since then */
} ckpt_device_memory;

/* What a device was given to do: kernels, and copies and fills of its memory. */
typedef struct ckpt_launches {
    int64_t kernels, copies;
} ckpt_launches;

/* The functions of one kind of device. All pointers are device addresses unless they say host. Work is started, not
 * done: `finish` waits. upload and download are done when they come back. */
typedef struct ckpt_device_api {
    const char *kind; /* "cpu", "cuda" */
    /* Networks are inferred with CKPT_ON_GPU threads, bfloat16 runs, and code comes to the device at its first use, so
     * that a rehearsal belongs to the set-up. */
    bool gpu;
    ckpt_code (*open)(int index, int threads, ckpt_device **device, ckpt_err *err);
    void (*close)(ckpt_device *device);
    const char *(*describe)(const ckpt_device *device);  /* "cpu: AMD EPYC, 2 threads"; lives as the device */
    const char *(*libraries)(const ckpt_device *device); /* "oneDNN 2.6.3" */
    ckpt_code (*memory)(ckpt_device *device, ckpt_device_memory *memory, ckpt_err *err);

    /* Exactly `bytes`, zeroed, page aligned, apart from every heap. CKPT_NO_MEMORY names the size. */
    ckpt_code (*reserve)(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err);
    void (*release)(ckpt_device *device, void *base, ckpt_bytes bytes);
    /* Host memory that the copy engines reach (page-locked), zeroed, CKPT_ALIGN aligned. */
    ckpt_code (*reserve_host)(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err);
    void (*release_host)(ckpt_device *device, void *base, ckpt_bytes bytes);

    ckpt_code (*upload)(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*download)(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*fill)(ckpt_device *device, void *to, int byte, ckpt_bytes bytes, ckpt_err *err);
    /* Copies beside compute, on CKPT_STREAM_D2H and CKPT_STREAM_H2D; `host` is from reserve_host. */
    ckpt_code (*offload)(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*fetch)(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err);
    /* to[i] += from[i]; to[i] = bfloat16(from[i]), rounded to nearest even. */
    ckpt_code (*add)(ckpt_device *device, ckpt_dtype dtype, void *to, const void *from, int64_t count, ckpt_err *err);
    ckpt_code (*narrow)(ckpt_device *device, void *to, const float *from, int64_t count, ckpt_err *err);

    /* *sum = the sum of the squares of from[], in double, in an order that depends on `count` alone. `workspace`:
     * square_workspace(count) bytes. */
    ckpt_bytes (*square_workspace)(int64_t count);
    ckpt_code (*square_sum)(ckpt_device *device, const float *from, int64_t count, double *sum, void *workspace,
                            ckpt_err *err);
    /* *scale = base * min(1, most / (length + 1e-6)), length = base * sqrt(sum[0] + sum[1] + ...), in double, in this
     * order (torch.nn.utils.clip_grad_norm_). A length that is no number gives a scale that is none. */
    ckpt_code (*clip_scale)(ckpt_device *device, const double *sum, int64_t count, double base, double most,
                            float *scale, ckpt_err *err);

    /* Signals 0 .. count - 1, made once, before they are used. `record` puts one behind what `stream` was given so
     * far; `wait` lets what `stream` is given from now on start only after it. */
    ckpt_code (*signals)(ckpt_device *device, int count, ckpt_err *err);
    ckpt_code (*record)(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err);
    ckpt_code (*wait)(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err);

    /* Seed and step that kernels started from now on draw from, and the numbers that updates read
     * (ckpt_optimizer.numbers; NULL: none do); never part of a recording. */
    ckpt_code (*begin)(ckpt_device *device, uint64_t seed, uint64_t step, const float *numbers, ckpt_err *err);
    ckpt_code (*finish)(ckpt_device *device, ckpt_err *err); /* wait for everything started on every stream */

    /* Recording: from capture_begin on, work is written down instead of done; the other streams enter it by waiting
     * for a signal recorded on compute and must be waited for by compute before capture_end. `replay` starts it all
     * again, with the same addresses. NULL where the device cannot. */
    ckpt_code (*capture_begin)(ckpt_device *device, ckpt_err *err);
    ckpt_code (*capture_end)(ckpt_device *device, void **recording, ckpt_err *err);
    ckpt_code (*replay)(ckpt_device *device, void *recording, ckpt_err *err);
    void (*capture_release)(ckpt_device *device, void *recording);
    /* What one replay of `recording` starts, kernels of libraries included. Where `recording` is NULL: what was started
     * or recorded since the device was opened, those of libraries left out. A device that launches nothing (the CPU)
     * has no such function. */
    void (*launches)(const ckpt_device *device, const void *recording, ckpt_launches *launches);

    /* Stamps 0 .. count - 1, made once: `stamp` notes the time when `stream` comes to it; after `finish`, stamp_ns is
     * the time since stamp 0. NULL: the host's clock is as good (the CPU). */
    ckpt_code (*stamps)(ckpt_device *device, int count, ckpt_err *err);
    ckpt_code (*stamp)(ckpt_device *device, int index, ckpt_stream stream, ckpt_err *err);
    ckpt_code (*stamp_ns)(ckpt_device *device, int index, ckpt_ns *ns, ckpt_err *err);

    /* Carries messages between this device's memory and that of other ranks' devices (core/base/carrier.h); collective.
     * NULL: messages are in the host's memory. */
    ckpt_code (*carry)(ckpt_device *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier, void **self,
                       ckpt_err *err);

    const ckpt_kernel *const *kernels;              /* NULL ends it */
    const ckpt_optimizer_kernel *const *optimizers; /* NULL ends it */
} ckpt_device_api;

struct ckpt_device {
    const ckpt_device_api *api;
    int threads;            /* of the kernels; CKPT_ON_GPU */
    ckpt_bytes cache_bytes; /* of the last cache before memory, to be overwritten for cold runs; 0: not told */
    void *context;          /* see ckpt_kernel_args */
};

extern const ckpt_device_api ckpt_device_cpu;

/* Is that the name of a GPU, present or not? Errors: CKPT_BAD_INPUT (no device is called that). */
CKPT_MUST_USE ckpt_code ckpt_device_is_gpu(const char *name, bool *gpu, ckpt_err *err);

/* "cpu", "cuda:0". Errors: CKPT_BAD_INPUT (no such kind), CKPT_DEVICE (no such device, or not built in). */
CKPT_MUST_USE ckpt_code ckpt_device_open(const char *name, int threads, ckpt_device **device, ckpt_err *err);
void ckpt_device_close(ckpt_device *device); /* NULL is fine */

/* Does it compute in this type? `what` is the model or layer, for the message. Errors: CKPT_DEVICE. */
CKPT_MUST_USE ckpt_code ckpt_device_check_dtype(const ckpt_device *device, ckpt_dtype dtype, const char *what,
                                                ckpt_err *err);

/* A ckpt_carrier_open for ckpt_ranks_carry: `device` is a ckpt_device. Errors: CKPT_DEVICE (a device of the host). */
CKPT_MUST_USE ckpt_code ckpt_device_carry(void *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier,
                                          void **self, ckpt_err *err);

/* NULL: this device has no kernel for that op. */
const ckpt_kernel *ckpt_device_find(const ckpt_device *device, const char *op);

/* Bind `node` with algorithms that fit the two workspaces (-1: free choice): with those that `choice` names
 * (ckpt_device_choice), or by the libraries' own order where it is NULL.
 * Errors: CKPT_DEVICE when the device has no kernel for the op, or none fits: the message names the layer, what is
 * given and what is needed; or when it cannot do what `choice` names. */
CKPT_MUST_USE ckpt_code ckpt_device_bind(ckpt_device *device, const ckpt_node *node, ckpt_bytes forward_workspace,
                                         ckpt_bytes backward_workspace, const char *choice, ckpt_bound_kernel *bound,
                                         ckpt_err *err);
void ckpt_device_unbind(ckpt_bound_kernel *bound);
/* The algorithms a layer is bound to, one line that lives until it is tuned or unbound; "": there is no choice. */
const char *ckpt_device_choice(const ckpt_bound_kernel *bound);
/* Time the candidates of one direction and bind the layer to the fastest (ckpt_kernel.tune); the workspaces of `bound`
 * follow. `args` as for a run, with the workspace that candidates may use. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_device_tune(ckpt_device *device, ckpt_bound_kernel *bound, const ckpt_kernel_args *args,
                                         bool backward, ckpt_tuning *tuning, ckpt_err *err);
/* Why this layer runs slower than a user might expect ("own kernels: cuDNN ..."), one line; "": it does not. */
const char *ckpt_device_remark(const ckpt_bound_kernel *bound);

/* Start a layer. args->context, node and state are filled in here. Where the node does not accumulate and backward must
 * add, its results are staged at the start of the workspace (ckpt_staging_bytes) and added in the order inputs, then
 * parameters. Errors: CKPT_DEVICE, with the layer. */
CKPT_MUST_USE ckpt_code ckpt_device_forward(ckpt_device *device, const ckpt_bound_kernel *bound,
                                            const ckpt_kernel_args *args, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_device_backward(ckpt_device *device, const ckpt_bound_kernel *bound,
                                             const ckpt_kernel_args *args, ckpt_err *err);
/* args[0 .. count): parameters with the same hyper and scale; a GPU updates them in one launch, or a few. Their context
 * and threads are filled in here, and the numbers of `step`, which counts from 1 (a GPU: as `begin` was told). Errors:
 * CKPT_DEVICE (no kernel for this optimizer). */
CKPT_MUST_USE ckpt_code ckpt_device_update(ckpt_device *device, const ckpt_optimizer *optimizer, uint64_t step,
                                           ckpt_update_args *args, int count, ckpt_err *err);

#endif
