/* Bound by groups: forward ops cut into groups whose recomputation is counted exactly, memory shared between them by
 * an exact knapsack.
 *
 *     forward ops   [ group 0 ][ group 1 ]...[ group n-1 ] | moments: first runs of all later ops
 *                                                          | [ window n-1 ]...[ window 1 ][ window 0 ]
 *
 * A moment is the first run of an op behind the forward section; first runs are in reference order, so the moments of
 * every schedule stand in one order, and every run of a forward op after the section is a repetition and costs. Window
 * i is a contiguous span of moments. For any schedule within the limit L let h(i) be the fewest bytes that buffers of
 * group i take at any instant from the end of the forward section to the start of window i, and s(i) the set in memory
 * then. Windows go down, so at every instant of window i each group k < i still takes at least h(k), and
 *
 *     buffers of group i + what nobody can drop + workspace  <=  L - h(0) - ... - h(i-1)  =: P(i)      in window i.
 *
 * What group i pays after that instant is at least cost(i, s(i), P(i)): the least time of runs of its own ops that take
 * it from s(i) through window i within P(i), its moments finding what they read of group i in memory; what its ops read
 * of other groups, and memory before the window, are free. The groups' ops are disjoint, so
 *
 *     time  >=  all first runs  +  min over s  of  sum over i of cost(i, s(i), L - h(0) - ... - h(i-1)),
 *
 * a shortest path over groups in the order 0, 1, ... with the bytes held so far as its label. cost(i, ., P) for all
 * sets is one backward pass over the moments of window i (bound_table.c). Nothing here is convex: that is why it is
 * stronger than linear programs, in which half a schedule has half a peak.
 *
 * Crossing buffers. For some buffers u of group i that ops of later groups read (exports), schedules are told apart: u
 * is in memory at every instant of h(i) (held), or not. h(i) is then taken over the other buffers of the group, plus u
 * when held, and s(i) is the set of those others at that instant, to which held exports belong. When u is not held, it
 * was absent at some instant before window i: either u is not in memory at the instant of s(i); or it is and its
 * absence came before, so that u was written again in between, beside what is paid later; or its absence comes later,
 * and what is paid contains that (the pass with a forced drop). And ops of later groups that read a u that is not held
 * need room for it: it is a buffer of their group's window (import), which comes and goes for nothing.
 *
 * Copies. With a link, a buffer may also come back by a fetch, on an engine beside compute. Fetches that start behind
 * the forward section run one after another, and a step does not end before those it waits for; so for any weight w in
 * 0 .. 1
 *
 *     time  >=  (1 - w) (all first runs + repetitions)  +  w (first runs of the section + those fetches),
 *
 * and the right side is a sum as before, of (1 - w) times runs and w times fetches. What is written once may then be on
 * the host between its uses, and counts only where it is used. Or all h(i) but the last are taken at one instant, the
 * start of a moment in window n - 1: what is not in memory then and is fetched later has been offloaded before, one
 * copy after another, so that
 *
 *     time  >=  all first runs + (1 - w) repetitions + w (those after the instant + offloads - first runs before it).
 *
 * The other windows have no limits then; h(0) + ... + h(n-2) and what that moment needs are within L. */
#ifndef CKPT_PLANNER_BOUND_BOUND_IMPL_H
#define CKPT_PLANNER_BOUND_BOUND_IMPL_H

#include "planner/bound/bound.h"

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

/* An op of the group that may run again. Sets are of the group's buffers; bit buffer_count + j is import j. */
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

/* What it costs to come from `held` bytes (or more) through the window. */
typedef struct ckpt_group_way {
    ckpt_bytes held;
    ckpt_ns time;
} ckpt_group_way;

/* `held` rises, `time` falls. */
typedef struct ckpt_group_ways {
    const ckpt_group_way *at;
    int count;
} ckpt_group_ways;

/* The ways for every P with low <= P < high. */
typedef struct ckpt_group_table {
    unsigned imports; /* those that are not held */
    ckpt_bytes low, high;
    ckpt_group_ways ways[1 << CKPT_CROSS_MAX]; /* per set of exports that are held */
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

/* A graph being cut into groups. */
typedef struct ckpt_grouping {
    const ckpt_graph *graph;
    int forward_end, buffers_max, open_max;
    ckpt_weight weight;
    ckpt_arena *out;
    int *last;  /* per buffer: the last op that reads or adds to it; op_count: it is an output */
    int *bit;   /* per buffer: its place in its group; -1: in none */
    int *group; /* per op of the forward section */
    int *count; /* per op of the forward section: buffers it brings into its group */
} ckpt_grouping;

/* Cut the ops before `forward_end` > 0 into groups of at most `buffers_max` buffers, where little crosses, and tell at
 * most `open_max` crossing buffers apart at a time.
 * Errors: CKPT_NO_MEMORY. Cost: O(uses + ops * ops in a group). */
CKPT_MUST_USE ckpt_code ckpt_groups_build(const ckpt_graph *graph, int forward_end, int buffers_max, int open_max,
                                          ckpt_weight weight, ckpt_arena *out, ckpt_groups *groups, ckpt_err *err);

/* A time by a weight, rounded down. */
ckpt_ns ckpt_bound_weigh(ckpt_ns time, int weight);
/* What it costs to have a buffer again, at least: by its writer or by a fetch. */
ckpt_ns ckpt_bound_again(const ckpt_grouping *b, int buffer);

/* Choose the crossing buffers: exports, imports, slots. Groups have their buffers, but no ops yet. */
CKPT_MUST_USE ckpt_code ckpt_groups_cross(const ckpt_grouping *b, ckpt_groups *groups, ckpt_err *err);

CKPT_MUST_USE ckpt_code ckpt_group_room_take(ckpt_arena *arena, const ckpt_groups *groups, ckpt_group_room *room,
                                             ckpt_err *err);

/* The ways of a group under P = `limit` when `imports` are not held, made when there is no table for that yet. `work`
 * goes down by the steps taken.
 * Errors: CKPT_NO_MEMORY. Cost: O(moments * ops * 2^buffers), times the few repetitions a gap is worth. */
CKPT_MUST_USE ckpt_code ckpt_group_find(ckpt_group *group, ckpt_bytes limit, unsigned imports, ckpt_group_room *room,
                                        ckpt_arena *out, int64_t *work, const ckpt_group_table **table, ckpt_err *err);

/* The most that any first run needs. Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_bound_op_peak(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak,
                                           ckpt_err *err);

/* The least time of repetitions that a partition proves; CKPT_BOUND_NEVER when it proves that no schedule exists.
 * What costs `enough` or more is not looked at: the answer is then `enough`.
 *   work   how much may be done; below zero afterwards: it ran out, and `time` is 0
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_groups_bound(ckpt_groups *groups, ckpt_bytes limit, ckpt_ns enough,
                                          const ckpt_plan_options *options, int64_t *work, ckpt_ns *time,
                                          ckpt_err *err);

#endif
