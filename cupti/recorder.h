/* Records what this process does on its GPUs, through CUPTI's activity API. This folder knows CUPTI and nothing of
 * layers, plans or devices of ours. libcupti is opened with the recorder, so a program that does not record needs none,
 * and one that cannot record gets the reason in one line and goes on.
 *
 *     ckpt_recorder_open
 *     push(7) - start work - pop - push(8) - start more - pop         tags what is started in between
 *     wait for the device
 *     ckpt_recorder_collect                                           everything, joined with its tags
 *
 * CUPTI's buffers are our host memory, and we ask it to page-lock its device buffers on the host, so that it takes
 * nothing of a memory budget; the report says what it took. At most one recorder is open in a process. */
#ifndef CKPT_CUPTI_RECORDER_H
#define CKPT_CUPTI_RECORDER_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "cupti/activity.h"

typedef struct ckpt_recorder ckpt_recorder;

typedef struct ckpt_recorder_options {
    /* libcupti to open. NULL: $CKPT_CUPTI, else the one this process has loaded, else libcupti.so.13, .12 or
     * libcupti.so from the loader's path or the toolkit. An empty variable stands for none. */
    const char *library;
    bool memory; /* allocations and releases */
    bool calls;  /* of runtime and driver */
    bool ranges; /* NVTX */
    /* NULL: activities are kept for ckpt_recorder_collect. Else each goes to the sink when CUPTI gives its buffer back:
     * one call at a time, on a thread of CUPTI's or inside ckpt_recorder_flush or _close. The activity and its name
     * live until the call returns, and the sink must call no function of this header. Tags are then 0. */
    void (*sink)(void *context, const ckpt_activity *activity);
    void *context;
} ckpt_recorder_options;

/* What recording cost and lost. */
typedef struct ckpt_recorder_report {
    const char *library;  /* "CUPTI 13.0.1"; lives as the recorder */
    int64_t host_bytes;   /* of buffers, the most at once */
    int64_t device_bytes; /* 0: CUPTI agreed to keep its device buffers on the host; -1: unknown */
    int64_t dropped;      /* records that CUPTI had no buffer for */
    int64_t odd;          /* records left out: without times, with a clock that ran backwards, or cut off */
    ckpt_ns skew_ns;      /* the longest time that work started before its call: how far the two clocks are apart */
} ckpt_recorder_report;

/* Open it before the first CUDA call if possible: what ran before is not recorded. Errors: CKPT_DEVICE with one line
 * (no libcupti, too old, no driver, another tool records this process, with its name if CUPTI tells it, no permission,
 * with what the administrator must set, or already open); CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_recorder_open(const ckpt_recorder_options *options, ckpt_recorder **recorder,
                                           ckpt_err *err);
/* Stops recording in all threads (except in CUPTI 13.0.0, which may hang when stopped). What was recorded stays. Meant
 * for programs whose threads go on, where closing is not safe. */
void ckpt_recorder_stop(ckpt_recorder *recorder);
/* NULL is fine. What was not collected is lost. A sink gets everything first, except work that still runs. */
void ckpt_recorder_close(ckpt_recorder *recorder);

/* What this thread starts gets `tag` (> 0) until the matching pop. Cost: about a microsecond. */
CKPT_MUST_USE ckpt_code ckpt_recorder_push(ckpt_recorder *recorder, uint64_t tag, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_recorder_pop(ckpt_recorder *recorder, ckpt_err *err);

/* Gives everything recorded since the last collect, by start time. The device must have finished: work that still runs
 * has no times yet and counts as odd. Kernels, copies, fills, calls and allocations have the tag of the push around
 * their call. NVTX ranges are included once they have ended. Errors: CKPT_DEVICE, CKPT_NO_MEMORY (what was recorded is
 * lost). */
CKPT_MUST_USE ckpt_code ckpt_recorder_collect(ckpt_recorder *recorder, ckpt_arena *out, const ckpt_activity **activity,
                                              int *count, ckpt_err *err);

/* Gives the sink what is recorded by now, except buffers with work that still runs. */
CKPT_MUST_USE ckpt_code ckpt_recorder_flush(ckpt_recorder *recorder, ckpt_err *err);
/* The same at the end of the process: work that still runs is left out. */
CKPT_MUST_USE ckpt_code ckpt_recorder_flush_last(ckpt_recorder *recorder, ckpt_err *err);

void ckpt_recorder_tell(const ckpt_recorder *recorder, ckpt_recorder_report *report);
/* The report as one text, for the "recorder" of a profile or trace: "CUPTI 13.0.1, 2.10 MB of host memory, its own
 * buffers page-locked there too, 0 records dropped". NULL when there is no memory. */
const char *ckpt_recorder_describe(const ckpt_recorder *recorder, ckpt_arena *out);

#endif
