/* What is in memory when, and why: every live range of a buffer, at its address. The address map, the table of what is
 * live at the peak, the HTML page and ckpt-compare are made of this. */
#ifndef CKPT_VIZ_TIMELINE_LIVE_RANGES_H
#define CKPT_VIZ_TIMELINE_LIVE_RANGES_H

#include "core/formats/plan.h"
#include "core/formats/trace.h"

/* What a live range is coloured by. */
typedef enum ckpt_live_range_kind {
    CKPT_LIVE_ACTIVATION,
    CKPT_LIVE_SAVED,
    CKPT_LIVE_GRADIENT,
    CKPT_LIVE_WORKSPACE,
    CKPT_LIVE_RECOMPUTED, /* an activation or saved tensor that was recomputed */
    CKPT_LIVE_OFFLOADED,  /* one that is copied to the host meanwhile, or was fetched back for it */
    CKPT_LIVE_OTHER,      /* of a program that follows no plan */
    CKPT_LIVE_KIND_COUNT
} ckpt_live_range_kind;

typedef struct ckpt_live_range {
    const char *name;  /* buffer; of a workspace the op; without a plan what allocated it */
    const char *layer; /* of the op that wrote it, of a gradient of the op that it is passed back to; "" when unknown */
    ckpt_live_range_kind kind;
    ckpt_category category; /* in which a plan's trace counts it */
    /* In the arena. Without a plan: the address, less all ranges below it in which there never is a block. */
    ckpt_bytes offset, bytes;
    int64_t address; /* without a plan, as it was; else 0 */
    int from, to;    /* events of the trace, both included: a free is still part of it */
    int born;        /* the event that put it there; -1: unknown */
    int last;        /* the last run before it went, or that wrote over it: what it was kept for; -1: unknown, or
                        never freed */
    int copied;      /* the copy to the host that starts meanwhile; -1: none */
} ckpt_live_range;

typedef struct ckpt_live_ranges {
    const ckpt_trace *trace;
    const ckpt_live_range *range; /* by `from`, then by offset */
    int count;                    /* 0: the trace knows no allocations */
    ckpt_bytes top;               /* highest offset + bytes */
} ckpt_live_ranges;

/* From a trace's planned allocations, or from its events where it follows no plan. Cost: O(n log n).
 * Errors: CKPT_BAD_INPUT (an allocation whose steps the trace does not have), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_live_ranges_make(const ckpt_trace *trace, ckpt_arena *out, ckpt_live_ranges *ranges,
                                              ckpt_err *err);

/* The live set at event `at`, largest first: numbers of ranges, at most `room`; *count of all there are,
 * *bytes of all. What a free takes away is still there at that free. Cost: O(ranges log room). */
void ckpt_live_ranges_at(const ckpt_live_ranges *ranges, int at, int *which, int room, int *count, ckpt_bytes *bytes);

/* Why it is in memory. */
typedef enum ckpt_why {
    CKPT_WHY_SCRATCH, /* of the op that runs */
    CKPT_WHY_COPIED,
    CKPT_WHY_OUTPUT,
    CKPT_WHY_UNREAD, /* the op that wrote it is the last that had to do with it */
    CKPT_WHY_FETCHED,
    CKPT_WHY_FETCHED_TO_RECOMPUTE, /* something else; likewise below */
    CKPT_WHY_RECOMPUTED,
    CKPT_WHY_RECOMPUTED_TO_RECOMPUTE,
    CKPT_WHY_KEPT, /* across the turn from forward to what comes then */
    CKPT_WHY_KEPT_TO_RECOMPUTE,
    CKPT_WHY_PASSED_BACK,
    CKPT_WHY_IN_USE,
    CKPT_WHY_UNKNOWN,
    CKPT_WHY_FREED, /* of a program without a plan; likewise below */
    CKPT_WHY_LOST,  /* its free is not recorded */
    CKPT_WHY_NEVER,
    CKPT_WHY_COUNT
} ckpt_why;
ckpt_why ckpt_live_range_why(const ckpt_live_ranges *ranges, int which);

/* The clause for it, with letters behind % for the words of a range (live_reasons.c): the page fills them in itself. */
const char *ckpt_why_clause(ckpt_why why);

/* One clause on why it is in memory: "kept since step 12 for h.3.att/backward (step 812)", "recomputed at step 790 for
 * ...", "fetched back at step ... for ...", "in use until ...", "copied to the host from step ... and freed at step
 * ...". Names are as in the trace, however long. NULL without memory. */
const char *ckpt_live_range_reason(const ckpt_live_ranges *ranges, int which, ckpt_arena *out);

const char *ckpt_live_range_kind_name(ckpt_live_range_kind kind);

/* Whether it is something that ran: no copy, wait or free. A reduction across ranks ran: it is a copy on the compute
 * stream. */
bool ckpt_event_runs(const ckpt_event *event);

/* One buffer, or the same buffer of several repeated blocks. */
typedef struct ckpt_live_set_row {
    const char *name, *layer; /* "h.3.att"; of several "h.0…5.att", of two "h.0,3.att"; layer "" when unknown, or of
                                 several that differ */
    ckpt_live_range_kind kind;
    ckpt_bytes bytes;   /* of all */
    const int *range;   /* `count` numbers of ranges, largest first */
    int count;          /* more than 1: several */
    const char *reason; /* ckpt_live_range_reason; of several "kept for their own backward, steps 301 to 350" */
} ckpt_live_set_row;

/* bytes = sum of the rows' + rest_bytes */
typedef struct ckpt_live_set {
    const ckpt_live_ranges *ranges;
    int at;                 /* event */
    ckpt_bytes bytes;       /* of all ranges at it */
    ckpt_live_set_row *row; /* largest first */
    int row_count;
    int rest_count; /* ranges in no row: smaller than any row */
    ckpt_bytes rest_bytes;
} ckpt_live_set;

/* What is in memory at event `at` in at most `rows` rows. Each range has its own where that explains four fifths of the
 * bytes; else repeated blocks' buffers are one (in memory for the same reason, names that differ in numbers between
 * dots or slashes alone; if that explains less than a third, in any numbers). Of a program without a plan blocks of one
 * name, layer and size are one. Cost: O(ranges + n log n), n of them live at that event. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_live_set_make(const ckpt_live_ranges *ranges, int at, int rows, ckpt_arena *out,
                                           ckpt_live_set *live, ckpt_err *err);

/* The trace a plan predicts, in program order and without the steps' times (all 0; time_ns is the plan's): bytes by
 * category from its outline and its allocations. Errors: CKPT_BAD_INPUT (a plan that does not fit, or without an outline),
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_as_trace(const ckpt_plan *plan, ckpt_arena *out, const ckpt_trace **trace,
                                           ckpt_err *err);

#endif
