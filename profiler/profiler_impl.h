/* What the profiler's files share. */
#ifndef CKPT_PROFILER_PROFILER_IMPL_H
#define CKPT_PROFILER_PROFILER_IMPL_H

#include "core/profile.h"
#include "kernels/device.h"

/* Measure how fast copies go to the host and back; leaves `profile` alone where nothing copies beside compute (the
 * CPU). The device's first two stamps must be there. */
CKPT_MUST_USE ckpt_code ckpt_profile_link(ckpt_device *device, ckpt_profile *profile, ckpt_err *err);

#endif
