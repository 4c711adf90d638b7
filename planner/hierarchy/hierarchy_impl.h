/* A sweep over the ops from the last to the first that decides, for each, when it is recomputed. A label is one set of
 * decisions for the ops from v on: its open demands, and the most that is live in each stretch of time whose ends a
 * later decision can still tell apart. Knows graphs and orders, no other strategy. How and why:
 * docs/explanation/hierarchy.md.
 *
 * Time is a code: op u that is recomputed in the moment before the first run of op j is j * stride + u, the first run
 * of j itself j * stride + j; the moment op_count is the end, where outputs are wanted. */
#ifndef CKPT_PLANNER_HIERARCHY_HIERARCHY_IMPL_H
#define CKPT_PLANNER_HIERARCHY_HIERARCHY_IMPL_H

#include "planner/schedule/schedule.h"

enum { CKPT_HIERARCHY_MOMENTS = 60 }; /* of one op, before which it may be recomputed */

typedef int64_t ckpt_when;

/* A buffer that a recomputation reads, and when. */
typedef struct ckpt_demand {
    int buffer;
    ckpt_when when;
} ckpt_demand;

/* Everything that happens from `from` to where the next stretch begins. */
typedef struct ckpt_stretch {
    ckpt_when from;
    ckpt_bytes most; /* live in it, workspaces included, as far as decided */
    ckpt_bytes pass; /* live just before it; kept only where a moment begins, else 0 */
} ckpt_stretch;

/* The moments before which an op is recomputed; a list through all ops decided so far. */
typedef struct ckpt_choices {
    const struct ckpt_choices *rest;
    int op, count;
    int moment[];
} ckpt_choices;

/* What a finished label of an earlier sweep added, seen from one op: the ops before it took `time` more, and the peak
 * came out `need` bytes above the rank it had there. */
typedef struct ckpt_prospect {
    ckpt_bytes need;
    ckpt_ns time;
} ckpt_prospect;

/* Those that no other beats: need rises, time falls. */
typedef struct ckpt_outlook {
    const ckpt_prospect *at;
    int count;
} ckpt_outlook;

/* A label as it was after one op. */
typedef struct ckpt_past {
    int parent; /* index among those after the op before */
    ckpt_bytes rank;
    ckpt_ns time;
} ckpt_past;

typedef struct ckpt_label {
    ckpt_ns time; /* of the recomputations */
    ckpt_bytes peak;
    ckpt_bytes rank;       /* the peak that labels with other demands are compared by */
    uint64_t key;          /* hash of the demands: equal ones have stretches with equal ends */
    ckpt_demand *demand;   /* rising */
    ckpt_stretch *stretch; /* rising */
    int demand_count, stretch_count;
    const ckpt_choices *rest; /* of the label it comes from */
    const int *recomputed;    /* moments chosen for the op just decided */
    int recomputed_count;
    int parent;   /* index of that label */
    int serial;   /* in which it was made among those of its op */
    int layer;    /* scratch of ckpt_labels_thin */
    ckpt_ns hope; /* of ckpt_labels_thin: time of all recomputations as the outlook sees it; INT64_MAX: none */
} ckpt_label;

/* Labels of one step. */
typedef struct ckpt_labels {
    ckpt_label *at;
    int count, room;
    ckpt_arena arena; /* their lists */
} ckpt_labels;

/* What a sweep is for. */
typedef struct ckpt_hierarchy_goal {
    ckpt_bytes limit; /* no label above it */
    int width;        /* labels kept after each op */
    ckpt_bytes slack; /* labels so near to one that is no slower go first when there are too many */
    bool whole;       /* the rank counts every buffer demanded, not only those that no first run keeps so long anyway */
    ckpt_bytes offer; /* candidates up to this peak are offered */
    bool min_peak;    /* the limit is not the user's: what is found may be the candidates' min_peak */
    const ckpt_outlook *outlook; /* per op, from an earlier sweep of the same `whole`; NULL: none */
    ckpt_outlook *seen;          /* room for one per op: the outlook that this sweep gives; NULL: not wanted */
    ckpt_arena *keep;            /* where that lives */
    int64_t most_work;           /* behind an even pace towards this, labels are thinned to a few; at twice it the
                                    sweep ends with nothing; 0: no limit */
    int64_t *work;               /* what was done is added here, about 15 ns each; NULL: not wanted */
} ckpt_hierarchy_goal;

typedef struct ckpt_hierarchy {
    const ckpt_graph *graph;
    const ckpt_hierarchy_goal *goal;
    ckpt_when stride; /* 2^shift, above the number of ops */
    int shift;
    bool *fixed; /* per op: never recomputed */
    /* per buffer b: its first-run readers are reader[reader_from[b]] .. reader[reader_from[b + 1] - 1] */
    int *reader_from;
    int *reader;
    int *needed; /* per moment: the first op that still has to be told apart there; a stretch begins at it and
                    behind it as long as that op is undecided */
    int *taken;  /* per op: the buffer whose memory it takes when that ends with it; -1: none */
    int *split;  /* per moment: the op that writes what its first run takes; a stretch begins with that run as long as
                    the op is undecided */
    ckpt_bytes *base;      /* per moment: live in the first run because of fixed ops, and the workspace */
    ckpt_bytes *base_pass; /* per moment: live before it because of fixed ops */
    int covered;           /* stretches reach from the op decided last to the end of this moment; -1: none yet */
    ckpt_labels now, next;
    ckpt_arena choices;
    int64_t work;
    const ckpt_past **past; /* per op: its labels; NULL: not wanted */
    /* scratch of the op under way */
    ckpt_demand *wanted; /* demands on its buffers, static and open, rising in time */
    int wanted_count, wanted_room;
    int *moment;
    int moment_count;
    ckpt_stretch *added; /* newly covered */
    int added_count;
} ckpt_hierarchy;

/* What can be decided about op v, for every label of `now`, into `next`. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_hierarchy_decide(ckpt_hierarchy *sweep, int v, ckpt_err *err);

/* Drop labels of which another is as good in all that matters, then all but the goal's width. Errors: CKPT_NO_MEMORY.
 * Cost: O(n log n) and the comparisons within equal demands. */
CKPT_MUST_USE ckpt_code ckpt_labels_thin(ckpt_labels *labels, const ckpt_hierarchy_goal *goal,
                                         const ckpt_outlook *outlook, ckpt_err *err);

/* Offer the sequences of a sweep's front. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: about 2 us for each
 * op that may be recomputed and label, where the graph is narrow. */
CKPT_MUST_USE ckpt_code ckpt_hierarchy_run(const ckpt_graph *graph, const ckpt_hierarchy_goal *goal,
                                           const ckpt_plan_options *options, ckpt_arena *out,
                                           ckpt_candidates *candidates, ckpt_err *err);

#endif
