/* What a recorder saw of a program, as a ckpt-trace/1 that ckpt-view draws. */
#ifndef CKPT_CUPTI_ACTIVITY_TRACE_H
#define CKPT_CUPTI_ACTIVITY_TRACE_H

#include "core/formats/timeline.h"
#include "cupti/activity.h"

/* How many there were, for a line to the user. */
typedef struct ckpt_activity_summary {
    int kernels, copies, fills, allocations, releases;
    int other;           /* calls, ranges, marks and overhead: not events of the trace */
    int devices;         /* on which something ran or lay */
    ckpt_ns overhead_ns; /* that CUPTI says it took of the program's time */
    ckpt_timeline_report timeline;
} ckpt_activity_summary;

/* Kernels (by their demangled names) and fills become events of phase other, copies of phase copy, on the stream
 * "stream N" ("d2h" and "h2d" for copies to and from the host; "gpu 1 stream N" and so on where more than one device is
 * used). Allocations and releases become allocate and free of category other, named after the call that made them. The
 * layer of each is the NVTX ranges that were open on the thread when it called, outermost first,
 * "step/forward/attention"; the call is known by its correlation. Ranges nested deeper than 64 are not told.
 *
 *   activity  in any order; count of them. Borrowed
 *   name      of the program
 *   out       receives the trace and all it points to
 *   trace     its name, peak, time and events are filled, the rest is the caller's
 *
 * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n), and O(open ranges) for a call. */
CKPT_MUST_USE ckpt_code ckpt_activity_trace(const ckpt_activity *activity, int count, const char *name, ckpt_arena *out,
                                            ckpt_trace **trace, ckpt_activity_summary *summary, ckpt_err *err);

#endif
