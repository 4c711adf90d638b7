/* Measures every distinct layer of a network on a device. */
#ifndef CKPT_PROFILER_PROFILER_H
#define CKPT_PROFILER_PROFILER_H

#include "core/profile.h"
#include "kernels/device.h"
#include "ops/network.h"

typedef struct ckpt_profiler_options {
    int repeats;      /* timed runs of each direction; 0: default */
    int warmup;       /* runs before; 0: default */
    ckpt_ns spend_ns; /* stop repeating a layer after this long, but never before 3 repeats; 0: default */
    /* called after each distinct layer; NULL: none */
    void (*progress)(void *context, int done, int total, ckpt_ns elapsed_ns);
    /* called for each distinct layer that runs slower than a user might expect (ckpt_device_remark); NULL: none */
    void (*remark)(void *context, const char *layer, const char *why);
    void *context;
} ckpt_profiler_options;

/* `lowered` is of a network for this kind of device (CKPT_ON_GPU threads where device->api->gpu). Times are between two
 * stamps of the device where it has them. One row per layer that runs. Layers are identical when op, attributes,
 * shapes, wanted gradients and accumulation agree; each set is measured once. Fills everything but `machine`. Errors:
 * CKPT_BAD_INPUT (opaque layers without stated times are named), CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_profile_run(ckpt_device *device, const ckpt_lowered *lowered,
                                         const ckpt_profiler_options *options, ckpt_arena *out, ckpt_profile **profile,
                                         ckpt_err *err);

#endif
