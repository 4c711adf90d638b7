/* What the files of offload planning share: a schedule as runs with marks, and what it comes to.
 *
 * A use of a buffer is followed by another use in the same live range, or by none. Between the two there is a gap, in
 * which the buffer may leave memory: a mark on the first use says so. Where exactly the copies start and the place is
 * freed is not chosen here but follows (ckpt_offload_try), so that every set of marks whose bytes fit is a legal
 * schedule. */
#ifndef CKPT_PLANNER_OFFLOAD_OFFLOAD_IMPL_H
#define CKPT_PLANNER_OFFLOAD_OFFLOAD_IMPL_H

#include "planner/offload/offload.h"
#include "planner/replay/clock.h"
#include "planner/schedule/schedule.h"

enum { CKPT_MARKS = 64 }; /* uses of one run that can be marked: its reads, then its writes, as far as these go */

typedef struct ckpt_marked_run {
    int op;
    uint64_t leaves; /* bit k: the buffer of its k-th use leaves memory until its next use */
    uint64_t late;   /* bit k, of a write: its offload starts with its first gap, not when it is written */
} ckpt_marked_run;

typedef struct ckpt_marked {
    ckpt_marked_run *run; /* in order; room for ckpt_offload.runs_room */
    int count;
    ckpt_ns lead_ns; /* fetches start so much earlier than they must */
} ckpt_marked;

/* Where a use's next use is. */
enum { CKPT_NEXT_NONE = -1, CKPT_NEXT_SAME = -2 }; /* SAME: the run uses it twice, the other use counts */

/* A marked gap, in the order of `to`. */
typedef struct ckpt_gap {
    int buffer, to, use; /* the run that needs it again; the use before it, in `next` */
    int state;           /* while the schedule is laid out */
    bool freed;          /* it did leave */
    int blocked;         /* a run without room for it to be back early; -1: none is known */
    ckpt_ns latest_ns;   /* when its fetch should start, were compute never to wait */
} ckpt_gap;

typedef struct ckpt_offload {
    const ckpt_graph *graph;
    ckpt_bytes limit, host_limit; /* host_limit CKPT_BYTES_MAX: none */
    ckpt_offload_mode mode;
    int runs_room, uses_room; /* of a schedule */
    bool *movable;            /* per buffer: it may be copied */
    ckpt_ns *d2h_ns, *h2d_ns; /* per buffer: how long that takes */

    /* Of the schedule looked at last. */
    int *first;       /* per run: its first use; [count] is their number */
    int *next;        /* per use: the run of its next use, the count of runs for an output, or CKPT_NEXT_... */
    ckpt_bytes *base; /* per run: live bytes during it, everything marked away from its gaps */
    bool *inplace;    /* per run */
    uint64_t *goes;   /* per run: what it writes and is marked later; bits as in `leaves` */
    ckpt_bytes peak;  /* largest base */
    int peak_run;

    /* Of the schedule laid out last. */
    ckpt_gap *gap;
    int gap_count;
    int *gap_at;      /* per run: first gap with `to` there or later */
    int *begun;       /* per use: its gap; -1: none */
    ckpt_bytes *more; /* per run: bytes that came back early */
    ckpt_ns *prefix;  /* per run: compute before it */
    int *pending;     /* gaps that may leave and are still in memory */
    int pending_count;
    ckpt_bytes pending_bytes, host_bytes;
    ckpt_clock clock;
    ckpt_ns time;

    int *next_use, *left;  /* per buffer */
    bool *later, *on_host; /* per buffer */
    ckpt_order *order;     /* receives what is laid out; NULL: nobody wants it */
} ckpt_offload;

/* Tables for schedules of up to so many runs and uses. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_offload_start(ckpt_offload *o, int runs, int uses, ckpt_arena *scratch, ckpt_err *err);

/* Uses, next uses, base and peak of a schedule; false when it is beyond the tables. Cost: O(uses). */
bool ckpt_offload_look(ckpt_offload *o, const ckpt_marked *m);

/* After that, when peak <= limit: lay it out, and give its time; false when the host or 2^63 ns do not do. */
bool ckpt_offload_lay(ckpt_offload *o, const ckpt_marked *m);

/* A search over marked schedules: its tables, and room for the schedules it holds. */
typedef struct ckpt_offload_search {
    ckpt_offload look;
    ckpt_marked now, tried, best;
    ckpt_ns now_ns, best_ns; /* INT64_MAX: there is none */
    ckpt_ns least_ns;        /* everything once */
    double *excess;          /* per run: sum of the bytes above the limit in the runs before it */
    int *stamp, *added;      /* per op: the closure it was put into last; ops of a closure */
    bool *spans;             /* per buffer: in memory or on the host when a closure is needed */
    int closure;
    uint64_t random;
    int64_t tries; /* left */
    const ckpt_plan_options *options;
} ckpt_offload_search;

/* Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_offload_search_start(ckpt_offload_search *s, int runs, int uses, ckpt_arena *scratch,
                                                  ckpt_err *err);

void ckpt_marked_copy(ckpt_marked *to, const ckpt_marked *from);

/* Mark or recompute in `tried` until it fits, and lay it out. Gives its time, INT64_MAX when that fails. */
ckpt_ns ckpt_offload_search_fit(ckpt_offload_search *s);

/* The same, and it is the new `now` when it is faster, and `best` likewise. */
void ckpt_offload_search_begin(ckpt_offload_search *s);

/* The same with a sequence in `tried`; of its copies only what leaves memory counts, not where. */
void ckpt_offload_search_offer(ckpt_offload_search *s, const ckpt_sequence *sequence);

/* Change `now` at random, `tries` times; what is faster than `best` is put there. */
void ckpt_offload_search_run(ckpt_offload_search *s, int64_t tries);

/* Move the copies of a sequence within o->limit, `tries` times or until the options end it; the best is left in
 * `entry`, and its time given. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(tries * uses). */
CKPT_MUST_USE ckpt_code ckpt_offload_polish(const ckpt_offload *o, int *entry, int count, int64_t tries,
                                            const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_ns *time,
                                            ckpt_err *err);

/* The fastest of all schedules within o->limit and o->host_limit, if it is faster than `below`, in `order`; else, or
 * when that takes more than so many nodes, or the graph has more than 20 buffers or 32 ops, `order` is left empty.
 * Errors: CKPT_NO_MEMORY. Cost: O(nodes * (buffers + ops) * buffers). */
CKPT_MUST_USE ckpt_code ckpt_offload_exact(const ckpt_offload *o, ckpt_ns below, int nodes, ckpt_arena *scratch,
                                           ckpt_order *order, ckpt_err *err);

/* The buffer of use k of an op: its reads, then its writes. */
static inline int ckpt_offload_buffer(const ckpt_graph_op *op, int k)
{
    return k < op->reads.count ? op->reads.at[k] : op->writes.at[k - op->reads.count];
}

#endif
