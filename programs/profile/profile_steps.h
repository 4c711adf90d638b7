/* Times of layers in training steps: ckpt-profile trains by a few plans, by its own executor. */
#ifndef CKPT_PROGRAMS_PROFILE_PROFILE_STEPS_H
#define CKPT_PROGRAMS_PROFILE_PROFILE_STEPS_H

#include "core/formats/profile.h"
#include "kernels/device.h"
#include "ops/lowering/network.h"

typedef struct ckpt_profile_steps_options {
    int steps;               /* timed of each plan; 0: 5, more of short ones, 3 of long ones */
    bool record;             /* take a GPU's times from what CUPTI says, where it can be opened */
    ckpt_bytes memory_bytes; /* for the plans; 0: what is free */
    /* called with a line for what the figures do not show; never NULL */
    void (*note)(const char *line);
    /* called after the steps of each plan; NULL: none */
    void (*progress)(int done, int total, ckpt_ns elapsed_ns);
} ckpt_profile_steps_options;

enum { CKPT_PROFILE_STEPS_MAX = 1000 };

/* Change `profile`, of the layers of `network` alone, to times in the step (profiler/in_step.h). Trains by keep-all, or
 * where there is no memory for it by a plan of the lowest peak; then by one that runs everything again, and by plans that
 * choose other ways of layers. A model that cannot be trained, or not in this memory, keeps its times, and `note` says
 * why. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_profile_steps(ckpt_device *device, const ckpt_network *network,
                                           const ckpt_profile_steps_options *options, ckpt_arena *out,
                                           ckpt_profile *profile, ckpt_err *err);

#endif
