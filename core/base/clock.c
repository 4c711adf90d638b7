/* POSIX's monotonic clock: no change of the wall clock moves it. */
#include "core/base/clock.h"

#include <time.h>

ckpt_ns ckpt_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (ckpt_ns)now.tv_sec * 1000000000 + (ckpt_ns)now.tv_nsec;
}
