/* A device: memory, copies, and kernels bound to nodes. The executor and the profiler see only this. */
#ifndef CKPT_KERNELS_DEVICE_H
#define CKPT_KERNELS_DEVICE_H

#include "kernels/kernel.h"

typedef struct ckpt_device ckpt_device;

/* A node made ready to run on a device. */
typedef struct ckpt_bound {
    const ckpt_node *node;
    const ckpt_kernel *kernel;
    void *state;
    ckpt_bytes forward_workspace_bytes, backward_workspace_bytes; /* used; staging not included */
} ckpt_bound;

/* The functions of one kind of device. All pointers are device addresses unless they say host. */
typedef struct ckpt_device_api {
    const char *kind; /* "cpu", "cuda" */
    ckpt_code (*open)(int index, int threads, ckpt_device **device, ckpt_err *err);
    void (*close)(ckpt_device *device);
    const char *(*describe)(const ckpt_device *device);  /* "cpu: AMD EPYC, 2 threads"; lives as the device */
    const char *(*libraries)(const ckpt_device *device); /* "oneDNN 2.6.3" */
    /* Exactly `bytes`, zeroed, page aligned, apart from every heap. CKPT_NO_MEMORY names the size. */
    ckpt_code (*reserve)(ckpt_device *device, ckpt_bytes bytes, void **base, ckpt_err *err);
    void (*release)(ckpt_device *device, void *base, ckpt_bytes bytes);
    ckpt_code (*upload)(ckpt_device *device, void *to, const void *host, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*download)(ckpt_device *device, void *host, const void *from, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*fill)(ckpt_device *device, void *to, int byte, ckpt_bytes bytes, ckpt_err *err);
    const ckpt_kernel *(*find)(const char *op); /* NULL: this device has no such kernel */
    ckpt_code (*forward)(ckpt_device *device, const ckpt_bound *bound, const ckpt_kernel_args *args, ckpt_err *err);
    ckpt_code (*backward)(ckpt_device *device, const ckpt_bound *bound, const ckpt_kernel_args *args, ckpt_err *err);
    ckpt_code (*update)(ckpt_device *device, const ckpt_optimizer *optimizer, const double *hyper, bool decay,
                        uint64_t step, int64_t count, float *param, const float *grad, float *const *slot,
                        ckpt_err *err);
    ckpt_code (*finish)(ckpt_device *device, ckpt_err *err); /* wait for everything started */
} ckpt_device_api;

struct ckpt_device {
    const ckpt_device_api *api;
    int threads;
};

extern const ckpt_device_api ckpt_device_cpu;

/* "cpu", "cuda:0". Errors: CKPT_BAD_INPUT (no such kind), CKPT_DEVICE (no such device, or not built in). */
CKPT_MUST_USE ckpt_code ckpt_device_open(const char *name, int threads, ckpt_device **device, ckpt_err *err);
void ckpt_device_close(ckpt_device *device); /* NULL is fine */

/* Bind `node` with algorithms that fit the two workspaces (-1: free choice).
 * Errors: CKPT_DEVICE when the device has no kernel for the op, or none fits: the message names the layer, what is
 * given and what is needed. */
CKPT_MUST_USE ckpt_code ckpt_device_bind(ckpt_device *device, const ckpt_node *node, ckpt_bytes forward_workspace,
                                         ckpt_bytes backward_workspace, ckpt_bound *bound, ckpt_err *err);
void ckpt_device_unbind(ckpt_bound *bound);

#endif
