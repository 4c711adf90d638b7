/* What is dropped is decided op by op at one price of memory, in near-linear time: for graphs of any size.
 *
 * An op is dropped over a gap: the longest stretch of the step in which nobody uses its outputs. Behind the gap it is
 * recomputed once, right before the first op that needs it, together with whatever that takes. Ops are dropped in the
 * order of what a byte costs, until the step fits: a fractional knapsack, which is the least that any schedule of one
 * recomputation per op costs, if recomputation took no memory. What it does take is bounded by `cap`.
 *
 * A moment is the first run of an op and what is recomputed right before it; moments count as ops do.
 *
 *     first runs   v ... p | gap: nothing uses v's outputs | q ... last
 *     dropped      v ... p                      [from ......] q ... last     from <= q: the first that needs them */
#ifndef CKPT_PLANNER_PRICE_PRICE_IMPL_H
#define CKPT_PLANNER_PRICE_PRICE_IMPL_H

#include "planner/schedule/schedule.h"

/* Bytes at every moment: sums over ranges and their maxima in O(log n). */
typedef struct ckpt_price_tree {
    int leaves;
    ckpt_bytes *most;  /* most[i]: in the subtree of node i; moment j is leaf leaves + j + 1 */
    ckpt_bytes *added; /* to all of the subtree */
} ckpt_price_tree;

/* Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_price_tree_take(ckpt_price_tree *tree, int moments, ckpt_arena *scratch, ckpt_err *err);
/* `bytes` NULL: all zero. */
void ckpt_price_tree_fill(ckpt_price_tree *tree, const ckpt_bytes *bytes, int moments);
/* Moments from .. to; nothing when that is empty. */
void ckpt_price_tree_add(ckpt_price_tree *tree, int from, int to, ckpt_bytes bytes);
ckpt_bytes ckpt_price_tree_most(const ckpt_price_tree *tree, int from, int to);
/* Each moment's bytes; the tree must be filled again afterwards. */
void ckpt_price_tree_read(ckpt_price_tree *tree, ckpt_bytes *bytes, int moments);

/* What does not change: facts about ops, in reference order. */
typedef struct ckpt_price_facts {
    const ckpt_graph *graph;
    int *reader_from, *reader; /* per buffer b: ops that read it or add to it, rising, op_count for the end of the step:
                                  reader[reader_from[b]] .. reader[reader_from[b + 1] - 1] */
    bool *fixed;               /* per op: never recomputed */
    int *gap_from, *gap_to;    /* per op: p and q of the gap; gap_to 0: no gap is worth a thought */
    int *last;                 /* per op: the last use of its outputs */
    ckpt_bytes *bytes;         /* per op: all its outputs */
    ckpt_bytes *held;          /* per op: those of them that live through the gap */
} ckpt_price_facts;

/* `live`: bytes in memory at each moment when everything is kept. Errors: CKPT_NO_MEMORY. Cost: O(uses). */
CKPT_MUST_USE ckpt_code ckpt_price_facts_find(const ckpt_graph *graph, const ckpt_bytes *live, ckpt_arena *scratch,
                                              ckpt_price_facts *facts, ckpt_err *err);

/* What recomputation may hold. */
typedef struct ckpt_price_room {
    ckpt_bytes cap;     /* at once */
    ckpt_bytes stretch; /* written between two positions where what crosses is held */
    bool forced;        /* what is held there may not be dropped */
} ckpt_price_room;

typedef struct ckpt_priced {
    double price; /* ns per byte */
    int op;
} ckpt_priced;

/* What is dropped so far. */
typedef struct ckpt_price_drops {
    const ckpt_price_facts *facts;
    bool *dropped;         /* per op */
    bool *checkpoint;      /* per op: unless dropped, held instead of recomputed when its outputs are needed again */
    ckpt_bytes *crossing;  /* scratch of the search for those, per op */
    int *from, *to;        /* per op: recomputed at moment `from` and held to `to`; from INT_MAX: not recomputed */
    int *extended;         /* per buffer that may not be recomputed: held so long for recomputations; -1: not */
    ckpt_price_tree live;  /* bytes at each moment */
    ckpt_price_tree extra; /* those of them that are held for or by recomputations */
    ckpt_priced *heap;     /* ops that may be dropped, cheapest first */
    unsigned char *tries;  /* per op */
    struct ckpt_price_change *log; /* of the trial under way: dropping one op */
    int log_count;
    ckpt_ns trial_ns;       /* what it recomputes */
    ckpt_bytes trial_bytes; /* what it frees in the gap */
    int low, high;          /* moments at which the trial adds bytes */
    int *stack;             /* ops whose inputs are still to be looked at */
    int stack_count;
} ckpt_price_drops;

CKPT_MUST_USE ckpt_code ckpt_price_drops_take(ckpt_price_drops *drops, const ckpt_price_facts *facts,
                                              ckpt_arena *scratch, ckpt_err *err);
/* Drop, in the order of price, what is in memory at a moment with more than `limit` bytes. `live` as for
 * ckpt_price_facts_find. Ends early when the poll says so. Cost: O(n log n) where what one op takes is bounded. */
void ckpt_price_drops_choose(ckpt_price_drops *drops, const ckpt_bytes *live, ckpt_bytes limit, ckpt_price_room room,
                             ckpt_poll *poll);
/* Append the schedule. Errors: CKPT_NO_MEMORY. Cost: O(uses + n log n). */
CKPT_MUST_USE ckpt_code ckpt_price_drops_write(const ckpt_price_drops *drops, ckpt_arena *scratch, ckpt_order *order,
                                               ckpt_err *err);

#endif
