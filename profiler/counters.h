/* What the processor counted while this process's threads worked: Linux's perf_event_open, user space only (which
 * /proc/sys/kernel/perf_event_paranoid up to 2 allows). Where the system, the processor or a permission is missing,
 * counts are 0 and nothing is an error. */
#ifndef CKPT_PROFILER_COUNTERS_H
#define CKPT_PROFILER_COUNTERS_H

#include <stdint.h>

#include "core/base/status.h"

/* Sums over all threads; 0: not counted. Misses are what Linux calls cache-misses: of the last level on Intel's and
 * Arm's processors, of the second on AMD's, whose third no process can count for itself. */
typedef struct ckpt_counts {
    int64_t cycles, instructions, cache_misses;
} ckpt_counts;

typedef struct ckpt_counters ckpt_counters;

/* Count for every thread there is now and every one these start later. *counters is NULL where nothing can be counted;
 * the calls below take that. Costs three file descriptors per thread. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_counters_create(ckpt_counters **counters, ckpt_err *err);
void ckpt_counters_destroy(ckpt_counters *counters);

/* Start and end of a measurement. `counts`: what was counted since the start, scaled up where the processor, counting
 * for others too, counted for part of the time only. Cost: a system call per descriptor, nearly all of it outside of
 * what is counted. */
void ckpt_counters_start(ckpt_counters *counters);
void ckpt_counters_stop(ckpt_counters *counters, ckpt_counts *counts);

/* As <linux/perf_event.h> numbers events. */
typedef struct ckpt_counter_event {
    uint32_t type;
    uint64_t config;
} ckpt_counter_event;

/* ckpt_counters_create with other events instead of cycles, instructions and cache_misses: for tests on machines whose
 * processor counts nothing for us. */
CKPT_MUST_USE ckpt_code ckpt_counters_create_for(const ckpt_counter_event event[3], ckpt_counters **counters,
                                                 ckpt_err *err);

#endif
