/* Recording what this process does on its GPUs, through CUPTI's activity API. libcupti is opened when a recorder is, so
 * a program that does not record needs none, and one that cannot record says why in one line and goes on without.
 *
 *     ckpt_recorder_open
 *     push(7) - start work - pop - push(8) - start more - pop         tags what is started between
 *     the device is waited for
 *     ckpt_recorder_collect                                           all of it, joined with its tags
 *
 * CUPTI's buffers are host memory of ours, and its device buffers are asked to be page-locked host memory, so that it
 * takes nothing of a budget; what it took all the same is told. At most one recorder is open in a process. */
#ifndef CKPT_CUPTI_RECORDER_H
#define CKPT_CUPTI_RECORDER_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "cupti/activity.h"

typedef struct ckpt_recorder ckpt_recorder;

typedef struct ckpt_recorder_options {
    /* libcupti to open; NULL: $CKPT_CUPTI, else the one this process has loaded, else libcupti.so.13, .12, libcupti.so,
     * where the loader and the toolkit have it. "" in the variable: none */
    const char *library;
    bool memory; /* allocations and releases */
    bool calls;  /* of runtime and driver */
    bool ranges; /* NVTX */
    /* NULL: kept for ckpt_recorder_collect. Else each activity goes here instead as CUPTI gives its buffers back, from
     * a thread of CUPTI's or from ckpt_recorder_flush or _close, one call at a time; the activity and its name last as
     * long as the call, which calls no function of this header. Tags are 0 then. */
    void (*sink)(void *context, const ckpt_activity *activity);
    void *context;
} ckpt_recorder_options;

/* What recording cost and lost. */
typedef struct ckpt_recorder_report {
    const char *library;  /* "CUPTI 13.0.1"; lives as the recorder */
    int64_t host_bytes;   /* of buffers, the most at once */
    int64_t device_bytes; /* 0: CUPTI agreed to keep its device buffers on the host; -1: how much it took is not told */
    int64_t dropped;      /* records that CUPTI had no room for */
    int64_t odd;          /* records without times, whose clock ran backwards or that were cut off: left out */
    ckpt_ns skew_ns;      /* the most that work started before its call did: two clocks at least so far apart */
} ckpt_recorder_report;

/* Open before the first CUDA call where possible: what ran before is not known. Errors: CKPT_DEVICE with one line: no
 * libcupti found, too old, no driver, another tool records this process (its name where CUPTI tells it), no permission
 * (and what the administrator must set), already open; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_recorder_open(const ckpt_recorder_options *options, ckpt_recorder **recorder,
                                           ckpt_err *err);
/* CUPTI is asked for nothing more, from any thread (13.0.0 goes on: it may hang when it is told); what was recorded is
 * still there. For programs that go on in threads of their own, where closing is no safe thing. */
void ckpt_recorder_stop(ckpt_recorder *recorder);
/* NULL is fine. What was not collected is lost; what is there for a sink goes there first, but for what still runs. */
void ckpt_recorder_close(ckpt_recorder *recorder);

/* What this thread starts from now on carries `tag` (> 0) until the matching pop. Cost: about a microsecond. */
CKPT_MUST_USE ckpt_code ckpt_recorder_push(ckpt_recorder *recorder, uint64_t tag, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_recorder_pop(ckpt_recorder *recorder, ckpt_err *err);

/* Everything recorded since the last collect, by start time. The device must have been waited for: what still runs has
 * no times yet and counts as odd. Kernels, copies, fills, calls and allocations carry the tag of the push around their
 * call; an NVTX range is there when it has ended. Errors: CKPT_DEVICE, CKPT_NO_MEMORY (what was recorded is gone then).
 */
CKPT_MUST_USE ckpt_code ckpt_recorder_collect(ckpt_recorder *recorder, ckpt_arena *out, const ckpt_activity **activity,
                                              int *count, ckpt_err *err);

/* Give to the sink what is there by now. A buffer with something that still runs waits for it. */
CKPT_MUST_USE ckpt_code ckpt_recorder_flush(ckpt_recorder *recorder, ckpt_err *err);
/* The same at the end of the process, where waiting is no use: what still runs is given up. */
CKPT_MUST_USE ckpt_code ckpt_recorder_flush_last(ckpt_recorder *recorder, ckpt_err *err);

void ckpt_recorder_tell(const ckpt_recorder *recorder, ckpt_recorder_report *report);
/* The report as one text, for the "recorder" of a profile or trace: "CUPTI 13.0.1, 2.10 MB of host memory, its own
 * buffers page-locked there too, 0 records dropped". NULL when there is no memory. */
const char *ckpt_recorder_describe(const ckpt_recorder *recorder, ckpt_arena *out);

#endif
