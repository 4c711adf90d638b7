/* Measures every distinct layer of a network on a device. The profiler knows layers and kernels; of a plan it knows what
 * each step is a run of. */
#ifndef CKPT_PROFILER_PROFILER_H
#define CKPT_PROFILER_PROFILER_H

#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "cupti/recorder.h"
#include "kernels/device.h"
#include "ops/device_model.h"
#include "ops/lowering/network.h"

typedef struct ckpt_profiler_options {
    /* timed runs of each direction; 0: default, and more for short layers, until threads and processor are awake */
    int repeats;
    int warmup;       /* untimed runs before, at least; 0: default */
    ckpt_ns spend_ns; /* stop repeating a layer after this long, but never before 3 repeats; 0: default */
    bool no_tune;     /* every layer computes with what the libraries put first; else with the fastest they offer */
    bool warm;        /* leave the device's cache as the run before left it, where it could be overwritten */
    /* Records what the device runs, opened by the caller (ckpt_profile_record); each run is started under the tag
     * ckpt_profile_tag. NULL: times are between two stamps of the device, and no kernels are known */
    ckpt_recorder *recorder;
    /* whose data sheet the percentages of the roofline refer to; NULL: none are given */
    const ckpt_device_model *roofline;
    /* called after each distinct layer; NULL: none */
    void (*progress)(void *context, int done, int total, ckpt_ns elapsed_ns);
    /* called for each distinct layer that runs slower than a user might expect (ckpt_device_remark); NULL: none */
    void (*remark)(void *context, const char *layer, const char *why);
    /* called with a line for what the figures do not show: runs that were not recorded whole; NULL: none */
    void (*note)(void *context, const char *line);
    void *context;
} ckpt_profiler_options;

enum { CKPT_PROFILE_REPEATS_MAX = 1000 };

/* `lowered` is of a network for this kind of device (CKPT_ON_GPU threads where device->api->gpu). One row per layer
 * that runs. Layers are identical when op, attributes, shapes, wanted gradients and accumulation agree; each set is
 * measured once. Fills everything but `machine`.
 *
 * Times are the recorder's, from the first start to the last end of a run; without a recorder those between two stamps
 * of the device; without stamps the host clock's. A direction of which the recorder saw fewer than three whole runs has
 * the stamps' times, and no kernels. On the CPU the processor's counters are read where that is allowed.
 *
 * Errors: CKPT_BAD_INPUT (opaque layers without stated times are named), CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_profile_run(ckpt_device *device, const ckpt_lowered *lowered,
                                         const ckpt_profiler_options *options, ckpt_arena *out, ckpt_profile **profile,
                                         ckpt_err *err);

/* The rows of the same profile before anything is measured: names, bytes, which layers are identical, their ways. Workspaces
 * are those of `plan`, which must be bound to lowered->graph; of what it does not run those that the ops state. Errors:
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_profile_outline(const ckpt_lowered *lowered, const ckpt_plan *plan, ckpt_arena *out,
                                             ckpt_profile **profile, ckpt_err *err);

/* Open a recorder beside a device that is open and run a first piece of work under it. *device_bytes: how
 * much less memory the device has afterwards, other processes included; -1: the device does not tell. Errors: those of
 * ckpt_recorder_open. */
CKPT_MUST_USE ckpt_code ckpt_profile_record(ckpt_device *device, ckpt_recorder **recorder, ckpt_bytes *device_bytes,
                                            ckpt_err *err);

/* The tag of a timed run: row 0, 1, ... of the profile, repeat 0 to CKPT_PROFILE_REPEATS_MAX - 1. */
uint64_t ckpt_profile_tag(int row, ckpt_direction direction, int repeat);

#endif
