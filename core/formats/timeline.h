/* Making a ckpt-trace/1 of a program that follows no plan: what ran and what was allocated, added in any order. */
#ifndef CKPT_CORE_FORMATS_TIMELINE_H
#define CKPT_CORE_FORMATS_TIMELINE_H

#include "core/formats/trace.h"

typedef struct ckpt_timeline ckpt_timeline;

/* Everything lies in `out`, the trace too: at most 460 bytes an event, and each text once. */
CKPT_MUST_USE ckpt_code ckpt_timeline_create(ckpt_arena *out, ckpt_timeline **timeline, ckpt_err *err);

/* Of `event` these count: name, layer ("" or NULL: none), stream (NULL: "compute"), span, start_ns, end_ns, address,
 * size_bytes; texts are copied. Events of equal start_ns stay in the order they were added.
 *   CKPT_SPAN_ALLOCATE  size_bytes more of `category` at `address` from start_ns on
 *   CKPT_SPAN_FREE      what was allocated at `address` last is gone; its size and category are remembered
 *   any other           ran from start_ns to end_ns; `category` is not looked at
 * Errors: CKPT_BAD_INPUT (end before start, a negative size or address), CKPT_OVERFLOW (2^31 events),
 * CKPT_NO_MEMORY. Cost: amortised O(length of the texts). */
CKPT_MUST_USE ckpt_code ckpt_timeline_add(ckpt_timeline *timeline, const ckpt_event *event, ckpt_category category,
                                          ckpt_err *err);

/* *kept: the timeline's copy of `text`, the same for equal texts, which lives as long as `out`: for those who note what they will add. Errors: CKPT_NO_MEMORY, CKPT_OVERFLOW (2^30 texts). */
CKPT_MUST_USE ckpt_code ckpt_timeline_keep(ckpt_timeline *timeline, const char *text, const char **kept, ckpt_err *err);

/* For each of `count` addresses the index of the one before it with the same address; -1: none, or the address is negative. Cost: O(n log n) for any addresses. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_timeline_previous(const int64_t *address, int count, ckpt_arena *arena, int **previous,
                                               ckpt_err *err);

typedef struct ckpt_timeline_report {
    int unknown_frees;     /* of addresses nobody allocated here (before the recording began): left out */
    int double_allocates;  /* at an address in use: the older one counts as freed, its free was not recorded */
    ckpt_bytes left_bytes; /* still allocated at the end */
} ckpt_timeline_report;

/* Sorts, sums and numbers the events; times count from the first start (which may be negative). Fills name, source (""), measured, peak, time and events; the caller fills the rest. Cost: O(n log n). Errors: CKPT_OVERFLOW (bytes, or the time from first start to last end, beyond 63 bits), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_timeline_finish(ckpt_timeline *timeline, const char *name, ckpt_trace **trace,
                                             ckpt_timeline_report *report, ckpt_err *err);

#endif
