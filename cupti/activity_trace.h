/* From recorded activities to a ckpt-trace/1 that ckpt-view draws. */
#ifndef CKPT_CUPTI_ACTIVITY_TRACE_H
#define CKPT_CUPTI_ACTIVITY_TRACE_H

#include "core/formats/timeline.h"
#include "cupti/activity.h"

/* Counts for a line to the user. */
typedef struct ckpt_activity_summary {
    int kernels, copies, fills, allocations, releases;
    int other;           /* calls, ranges, marks and overhead: not events of the trace */
    int devices;         /* that something ran on or was allocated on */
    ckpt_ns overhead_ns; /* of the program's time, according to CUPTI */
    ckpt_timeline_report timeline;
} ckpt_activity_summary;

/* Kernels (by their demangled names) and fills become events of phase other, copies of phase copy. Their stream is
 * "stream N", for copies to and from the host "d2h" and "h2d", and with more than one device "gpu 1 stream N" and so
 * on. Allocations and releases become allocate and free of category other, named after the call that made them. An
 * event's layer is the NVTX ranges that were open on the calling thread, outermost first: "step/forward/attention". The
 * call is found by its correlation. Ranges nested deeper than 64 are left out.
 *
 *   activity  in any order; count of them. Borrowed
 *   name      of the program
 *   out       receives the trace and all it points to
 *   trace     its name, peak, time and events are filled; the caller fills the rest
 *
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n), and O(open ranges) for a call. */
CKPT_MUST_USE ckpt_code ckpt_activity_trace(const ckpt_activity *activity, int count, const char *name, ckpt_arena *out,
                                            ckpt_trace **trace, ckpt_activity_summary *summary, ckpt_err *err);

#endif
