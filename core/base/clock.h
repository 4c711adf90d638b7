/* The monotonic clock. */
#ifndef CKPT_CORE_BASE_CLOCK_H
#define CKPT_CORE_BASE_CLOCK_H

#include "core/base/units.h"

/* Nanoseconds since some moment that does not change while the process runs. */
ckpt_ns ckpt_clock_ns(void);

#endif
