/* A device: memory, copies, and kernels bound to nodes. The executor and the profiler use only this header. The folder
 * kernels/ knows how devices compute; it knows nothing of plans, schedules or files. */
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

/* Work on one stream runs in order; only signals order work on different streams. The CPU does everything at once. */
typedef enum ckpt_stream {
    CKPT_STREAM_COMPUTE, /* kernels, updates, fills, uploads, downloads */
    CKPT_STREAM_D2H,     /* offload */
    CKPT_STREAM_H2D,     /* fetch */
    CKPT_STREAM_COUNT
} ckpt_stream;

/* A device's memory in bytes; 0 if unknown (the CPU). */
typedef struct ckpt_device_memory {
    ckpt_bytes total, free;
    ckpt_bytes context;   /* in use before anything was reserved: the context, and other processes */
    ckpt_bytes libraries; /* used since then by library handles and loaded code */
} ckpt_device_memory;

/* Work started on a device: kernels, and copies and fills of its memory. */
typedef struct ckpt_launches {
    int64_t kernels, copies;
} ckpt_launches;

/* The functions of one kind of device. Pointers are device addresses unless their name says host. Functions start work
 * and return: `finish` waits for it. upload and download wait themselves. */
typedef struct ckpt_device_api {
    const char *kind; /* "cpu", "cuda" */
    /* True: networks are inferred with CKPT_ON_GPU threads, and code is loaded at its first use,
     * so that set-up includes a rehearsal. */
    bool gpu;
    ckpt_code (*open)(int index, int threads, ckpt_device **device, ckpt_err *err);
    void (*close)(ckpt_device *device);
    const char *(*describe)(const ckpt_device *device);  /* "cpu: AMD EPYC, 2 threads"; lives as long as the device */
    const char *(*libraries)(const ckpt_device *device); /* "oneDNN 2.6.3" */
    ckpt_code (*memory)(ckpt_device *device, ckpt_device_memory *memory, ckpt_err *err);

    /* Exactly `bytes`, zeroed, page aligned, outside every heap. CKPT_NO_MEMORY names the size. */
    ckpt_code (*reserve)(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err);
    void (*release)(ckpt_device *device, void *base, ckpt_bytes bytes);
    /* Part of what was reserved, still zero, before anything writes there: bring it close to the threads that will
     * compute its shares. NULL: all memory is equally close. */
    void (*touch)(ckpt_device *device, void *at, ckpt_bytes bytes);
    /* Page-locked host memory for the copy engines, zeroed, CKPT_ALIGN aligned. */
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

    /* *sum = the sum of the squares of from[], in double, in an order that depends only on `count`. `workspace`:
     * square_workspace(count) bytes. */
    ckpt_bytes (*square_workspace)(int64_t count);
    ckpt_code (*square_sum)(ckpt_device *device, const float *from, int64_t count, double *sum, void *workspace,
                            ckpt_err *err);
    /* *scale = base * min(1, most / (norm + 1e-6)), norm = base * sqrt(sum[0] + sum[1] + ...), in double, in this order
     * (torch.nn.utils.clip_grad_norm_). A NaN norm gives a NaN scale. `most` is multiplied by the clip of the numbers
     * that `begin` was given last. */
    ckpt_code (*clip_scale)(ckpt_device *device, const double *sum, int64_t count, double base, double most,
                            float *scale, ckpt_err *err);

    /* Signals 0 .. count - 1, created once before use. `record` puts one behind all work on `stream` so far; `wait`
     * makes later work on `stream` start only after it. */
    ckpt_code (*signals)(ckpt_device *device, int count, ckpt_err *err);
    ckpt_code (*record)(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err);
    ckpt_code (*wait)(ckpt_device *device, int signal, ckpt_stream stream, ckpt_err *err);

    /* Sets the seed and step of kernels started from now on, and the numbers that updates read
     * (ckpt_optimizer.numbers; NULL: none); never part of a recording. */
    ckpt_code (*begin)(ckpt_device *device, uint64_t seed, uint64_t step, const ckpt_numbers *numbers, ckpt_err *err);
    ckpt_code (*finish)(ckpt_device *device, ckpt_err *err); /* wait for everything started on every stream */

    /* Recording: from capture_begin on, work is recorded instead of done. Other streams join by waiting for a signal
     * recorded on compute, and compute must wait for them before capture_end. `replay` starts all recorded work with
     * the same addresses. NULL if the device cannot record. */
    ckpt_code (*capture_begin)(ckpt_device *device, ckpt_err *err);
    ckpt_code (*capture_end)(ckpt_device *device, void **recording, ckpt_err *err);
    ckpt_code (*replay)(ckpt_device *device, void *recording, ckpt_err *err);
    void (*capture_release)(ckpt_device *device, void *recording);
    /* The work that one replay of `recording` starts, with kernels of libraries. `recording` NULL: the work started or
     * recorded since the device was opened, without kernels of libraries. NULL for a device that launches nothing. */
    void (*launches)(const ckpt_device *device, const void *recording, ckpt_launches *launches);

    /* Stamps 0 .. count - 1, created once. `stamp` records the time when `stream` reaches it; after `finish`, stamp_ns
     * is the time since stamp 0. NULL: the host's clock does as well (the CPU). */
    ckpt_code (*stamps)(ckpt_device *device, int count, ckpt_err *err);
    ckpt_code (*stamp)(ckpt_device *device, int index, ckpt_stream stream, ckpt_err *err);
    ckpt_code (*stamp_ns)(ckpt_device *device, int index, ckpt_ns *ns, ckpt_err *err);

    /* Opens a carrier of messages between the memory of this device and of other ranks' devices
     * (core/base/carrier.h); collective. NULL: messages are in the host's memory. */
    ckpt_code (*carry)(ckpt_device *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier, void **self,
                       ckpt_err *err);

    const ckpt_kernel *const *kernels;              /* NULL ends it */
    const ckpt_kernel *widened;                     /* of nodes with ckpt_node_widens; NULL: there are none here */
    const ckpt_optimizer_kernel *const *optimizers; /* NULL ends it */
} ckpt_device_api;

struct ckpt_device {
    const ckpt_device_api *api;
    int threads;            /* of the kernels; CKPT_ON_GPU */
    ckpt_bytes cache_bytes; /* of the last cache before memory, overwritten for cold runs; 0: unknown */
    void *context;          /* see ckpt_kernel_args */
};

extern const ckpt_device_api ckpt_device_cpu;

/* Is `name` that of a GPU, present or not? Errors: CKPT_BAD_INPUT (no such device name). */
CKPT_MUST_USE ckpt_code ckpt_device_is_gpu(const char *name, bool *gpu, ckpt_err *err);

/* "cpu", "cuda:0". Errors: CKPT_BAD_INPUT (no such kind), CKPT_DEVICE (no such device, or not built in). */
CKPT_MUST_USE ckpt_code ckpt_device_open(const char *name, int threads, ckpt_device **device, ckpt_err *err);
void ckpt_device_close(ckpt_device *device); /* NULL is fine */

/* A ckpt_carrier_open for ckpt_ranks_carry; `device` is a ckpt_device. Errors: CKPT_DEVICE (the CPU). */
CKPT_MUST_USE ckpt_code ckpt_device_carry(void *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier,
                                          void **self, ckpt_err *err);

/* The kernel for an op; NULL: there is none in the table, on this device. */
const ckpt_kernel *ckpt_kernel_find(const ckpt_kernel *const *table, const char *op);
const ckpt_kernel *ckpt_device_find(const ckpt_device *device, const char *op);

/* Binds `node` with algorithms that fit the two workspaces (-1: no limit): those that `choice` names
 * (ckpt_device_choice), or the libraries' first ones if it is NULL.
 * Errors: CKPT_DEVICE if there is no kernel for the op, none that fits (the message names the layer, what is given and
 * what is needed), or no algorithm as in `choice`. */
CKPT_MUST_USE ckpt_code ckpt_device_bind(ckpt_device *device, const ckpt_node *node, ckpt_bytes forward_workspace,
                                         ckpt_bytes backward_workspace, const char *choice, ckpt_bound_kernel *bound,
                                         ckpt_err *err);
void ckpt_device_unbind(ckpt_bound_kernel *bound);
/* The algorithms of a bound layer: one line that lives until it is tuned or unbound; "": no choice. */
const char *ckpt_device_choice(const ckpt_bound_kernel *bound);
/* Times the candidates of one direction and binds the layer to the fastest (ckpt_kernel.tune); updates the workspaces
 * of `bound`. `args` as for a run, with the workspace that candidates may use. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_device_tune(ckpt_device *device, ckpt_bound_kernel *bound, const ckpt_kernel_args *args,
                                         bool backward, ckpt_tuning *tuning, ckpt_err *err);
/* Why the layer is slower than a user might expect ("own kernels: cuDNN ..."), in one line; "": it is not. */
const char *ckpt_device_remark(const ckpt_bound_kernel *bound);

/* Starts a layer. The function sets context, node and state of `args`. If backward must add and the node does not
 * accumulate, results are staged at the start of the workspace (ckpt_staging_bytes) and then added: inputs first, then
 * parameters. Errors: CKPT_DEVICE, with the layer. */
CKPT_MUST_USE ckpt_code ckpt_device_forward(ckpt_device *device, const ckpt_bound_kernel *bound,
                                            const ckpt_kernel_args *args, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_device_backward(ckpt_device *device, const ckpt_bound_kernel *bound,
                                             const ckpt_kernel_args *args, ckpt_err *err);
/* Updates parameters args[0 .. count) with the same hyper and scale; a GPU does so in one launch or a few. The function
 * sets context and threads of `args`. A GPU uses the numbers of `begin` in place of `numbers`. Then the averages of the
 * weights move, where `args` has some (all of them or none). Errors: CKPT_DEVICE (no kernel for this optimizer). */
CKPT_MUST_USE ckpt_code ckpt_device_update(ckpt_device *device, const ckpt_optimizer *optimizer,
                                           const ckpt_numbers *numbers, ckpt_update_args *args, int count,
                                           ckpt_err *err);

#endif
