/* What the files of the bound share: forward ops in groups whose recomputation is counted exactly, memory shared
 * between groups by an exact knapsack. The proof, and what h, s, P, held, exports and imports are:
 * docs/explanation/lower-bound.md.
 *
 *     forward ops   [ group 0 ][ group 1 ]...[ group n-1 ] | moments: first runs of all later ops
 *                                                          | [ window n-1 ]...[ window 1 ][ window 0 ] */
#ifndef CKPT_PLANNER_BOUND_BOUND_IMPL_H
#define CKPT_PLANNER_BOUND_BOUND_IMPL_H

#include "planner/bound/bound.h"
#include "planner/schedule/ways.h"

enum {
    CKPT_GROUP_MAX = 14, /* buffers in a group: a table has a value for every set of them */
    CKPT_CROSS_MAX = 2,  /* exports of a group; imports of a group */
    CKPT_OPEN_MAX = 3,   /* exports that are told apart between two groups */
    CKPT_WEIGHTS = 16,   /* weights of copies are multiples of 1 / this */
};

/* Of copies, in 1 / CKPT_WEIGHTS; one of them is 0, and without a link both are. */
typedef struct ckpt_weight {
    int fetch, offload;
} ckpt_weight;

/* Times are summed with saturation: NEVER is no schedule, LONG a time too long to tell from others. */
#define CKPT_BOUND_LONG  ((ckpt_ns)1 << 60)
#define CKPT_BOUND_NEVER ((ckpt_ns)1 << 61)

/* An op of the group that may be recomputed. Sets are of the group's buffers; bit buffer_count + j is import j. */
typedef struct ckpt_group_op {
    unsigned reads, writes;
    ckpt_ns time;
    ckpt_bytes extra; /* beside buffers: workspace, less what running in place may save; may be below zero */
} ckpt_group_op;

typedef struct ckpt_group_moment {
    unsigned reads;
    ckpt_bytes during;  /* beside the group's buffers in memory: what cannot be dropped, own writes, workspace */
    ckpt_bytes between; /* beside them since the moment before: what cannot be dropped */
} ckpt_group_moment;

/* The least time to come from `held` bytes (or more) through the window. */
typedef struct ckpt_group_point {
    ckpt_bytes held;
    ckpt_ns time;
} ckpt_group_point;

/* Pareto points: `held` rises, `time` falls. */
typedef struct ckpt_group_front {
    const ckpt_group_point *at;
    int count;
} ckpt_group_front;

/* The fronts for every P with low <= P < high. */
typedef struct ckpt_group_table {
    unsigned imports; /* those that are not held */
    ckpt_bytes low, high;
    ckpt_group_front front[1 << CKPT_CROSS_MAX]; /* per set of exports that are held */
    struct ckpt_group_table *next;
} ckpt_group_table;

/* A crossing buffer that is told apart. */
typedef struct ckpt_group_cross {
    int slot; /* bit in the state of the path: set when it is not held */
    int bit;  /* of the group that exports it */
    ckpt_ns time;
} ckpt_group_cross;

typedef struct ckpt_group {
    int buffer_count, import_count, export_count;
    ckpt_bytes bytes[CKPT_GROUP_MAX + CKPT_CROSS_MAX]; /* imports last */
    ckpt_group_op *op;                                 /* in reference order */
    int op_count;
    ckpt_group_moment *moment;
    int moment_count;
    unsigned later; /* read after the window, or an output */
    bool fetches;   /* there is a link */
    ckpt_ns fetch[CKPT_GROUP_MAX];
    ckpt_group_cross import[CKPT_CROSS_MAX], export[CKPT_CROSS_MAX];
    unsigned closed;         /* slots that no group behind it needs */
    struct ckpt_group *same; /* an earlier group that is equal in all but slots: its tables are ours; or itself */
    ckpt_group_table *table;
} ckpt_group;

typedef struct ckpt_groups {
    ckpt_group *group;
    int count;
    int slots;
    int instant; /* weighing offloads: the op at whose first run the bytes held are counted */
} ckpt_groups;

/* Room for the passes over the sets of one group. */
typedef struct ckpt_group_room {
    ckpt_ns *value;                   /* per set */
    ckpt_ns *without[CKPT_CROSS_MAX]; /* per set: the same with a forced drop of an export */
    ckpt_bytes *bytes;                /* per set */
    int *order;                       /* sets by bytes */
    ckpt_group_op *op;                /* those of the group for some set of imports, and their coming */
    int op_count, bits;
    const ckpt_group *of; /* whose bytes, order and ops these are, NULL: nobody's; */
    unsigned imports;     /* and for which imports */
} ckpt_group_room;

/* Where the buffers of a graph are used. */
typedef struct ckpt_uses {
    const ckpt_graph *graph;
    int *last; /* per buffer: the last op that reads or adds to it; op_count: it is an output */
} ckpt_uses;

/* A graph being cut into groups. */
typedef struct ckpt_grouping {
    ckpt_uses uses;
    int forward_end, start, buffers_max, open_max;
    ckpt_weight weight;
    ckpt_arena *out;
    int *bit;   /* per buffer: its place in its group; -1: in none */
    int *group; /* per op of the forward section */
    int *count; /* per op of the forward section: buffers it brings into its group */
} ckpt_grouping;

/* Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_uses_find(const ckpt_graph *graph, ckpt_arena *out, ckpt_uses *uses, ckpt_err *err);
/* Written once and used later: nobody can drop it before its last use. With a link it may be on the host meanwhile. */
bool ckpt_uses_fixed(const ckpt_uses *uses, int buffer);
/* By how much the fixed bytes at the first run of each op differ from those at the op before. */
void ckpt_uses_changes(const ckpt_uses *uses, ckpt_bytes *change);
/* The most bytes that an op's running in place may save. */
ckpt_bytes ckpt_uses_inplace(const ckpt_uses *uses, int op);
/* What the first run of an op needs beside what is fixed: reads, writes, workspace. */
ckpt_bytes ckpt_uses_beside(const ckpt_uses *uses, int op);

typedef struct ckpt_flow_proof {
    ckpt_ns time; /* of recomputation, at least */
    /* Of that, what is recomputed before the first run of op `split`; no split, no time. */
    int split;
    ckpt_ns before;
} ckpt_flow_proof;

/* The least time of recomputation that flows prove. `limit` >= what every op needs; no link.
 * Errors: CKPT_NO_MEMORY. Cost: O(uses), a few dozen times; on small graphs thousands of times. */
CKPT_MUST_USE ckpt_code ckpt_flow_bound(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                        ckpt_flow_proof *proof, ckpt_err *err);

/* Only what is recomputed behind the first run of op `start` >= `forward_end` is looked at.
 * Cut the ops before `forward_end` > 0 into groups of at most `buffers_max` buffers, where little crosses, and tell at
 * most `open_max` crossing buffers apart at a time.
 * Errors: CKPT_NO_MEMORY. Cost: O(uses + ops * ops in a group). */
CKPT_MUST_USE ckpt_code ckpt_groups_build(const ckpt_graph *graph, int forward_end, int start, int buffers_max,
                                          int open_max, ckpt_weight weight, ckpt_arena *out, ckpt_groups *groups,
                                          ckpt_err *err);

/* A time by a weight, rounded down. */
ckpt_ns ckpt_bound_weigh(ckpt_ns time, int weight);
/* The least time to bring a buffer back: by its writer or by a fetch. */
ckpt_ns ckpt_bound_recompute(const ckpt_grouping *b, int buffer);

/* Choose the crossing buffers: exports, imports, slots. Groups have their buffers, but no ops yet. */
CKPT_MUST_USE ckpt_code ckpt_groups_cross(const ckpt_grouping *b, ckpt_groups *groups, ckpt_err *err);

CKPT_MUST_USE ckpt_code ckpt_group_room_take(ckpt_arena *arena, const ckpt_groups *groups, ckpt_group_room *room,
                                             ckpt_err *err);

/* The table of a group under P = `limit` when `imports` are not held; it is made when there is none yet. `work` goes
 * down by the steps taken.
 * Errors: CKPT_NO_MEMORY. Cost: O(moments * ops * 2^buffers), times the few rounds in a gap. */
CKPT_MUST_USE ckpt_code ckpt_group_find(ckpt_group *group, ckpt_bytes limit, unsigned imports, ckpt_group_room *room,
                                        ckpt_arena *out, int64_t *work, const ckpt_group_table **table, ckpt_err *err);

/* The most that any first run needs. Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_uses_peak(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err);

/* The least time of recomputation that a partition proves; CKPT_BOUND_NEVER when it proves that no schedule exists.
 * What costs `enough` or more is not looked at: `time` is then `enough`.
 *   work   how much may be done; below zero afterwards: it ran out, and `time` is 0
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_groups_bound(ckpt_groups *groups, ckpt_bytes limit, ckpt_ns enough,
                                          const ckpt_plan_options *options, int64_t *work, ckpt_ns *time,
                                          ckpt_err *err);

#endif
