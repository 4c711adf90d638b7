/* Optimal schedules of a chain of blocks within a number of bytes. Pure: knows no graph, only figures.
 *
 *     cut 0 [ block 1 ] cut 1 [ block 2 ] cut 2 ... [ block n ] cut n
 *
 * Of blocks s..t, the input of s held, one of three things is done (Beaumont et al. 2019, theorem 1; several saved
 * sets per block: Zhao et al. 2023):
 *   leaf  s = t: forward for its own backward, then backward
 *   keep  forward of s keeping a saved set, all of s+1..t beside it, backward of s
 *   drop  forward of s..r-1 keeping only what crosses into r, all of r..t beside that, all of s..r-1
 * Schedules of this form are called persistent: what is stored stays until the backward that it is for. All bytes
 * below are live bytes beside the input of the block that runs; a peak counts all that is live at that moment but what
 * was stored before. */
#ifndef CKPT_PLANNER_CHAIN_CHAIN_DP_H
#define CKPT_PLANNER_CHAIN_CHAIN_DP_H

#include "planner/schedule/strategy.h"

/* The forward of a block is its first run or a recomputation. The two may differ in what has to run and in what else is
 * held. */
enum { CKPT_DP_FIRST, CKPT_DP_RECOMPUTED, CKPT_DP_PASSES };

/* A way to run forward and, after the blocks behind, backward. */
typedef struct ckpt_dp_keep {
    ckpt_bytes bytes;                        /* held between the two: the saved set and what crosses the cut behind */
    ckpt_ns time[CKPT_DP_PASSES];            /* forward and backward */
    ckpt_bytes forward_peak[CKPT_DP_PASSES]; /* gradients not counted; CKPT_BYTES_MAX: no such way in this pass */
    ckpt_bytes back_peak;                    /* gradients held for it counted */
} ckpt_dp_keep;

/* A way to run forward and backward in one go; gradients held for it counted. */
typedef struct ckpt_dp_leaf {
    ckpt_ns time[CKPT_DP_PASSES];
    ckpt_bytes peak[CKPT_DP_PASSES]; /* CKPT_BYTES_MAX: no such way in this pass */
} ckpt_dp_leaf;

typedef struct ckpt_dp_block {
    const ckpt_dp_keep *keep;
    const ckpt_dp_leaf *leaf;
    int keep_count, leaf_count; /* leaf_count >= 1 */
    /* Forward keeping only what crosses: time; peak while all of its input stays; peak with its input counted and let
     * go when it has been read (>= drop_peak; the lesser of the two views is taken; CKPT_BYTES_MAX: it stays). */
    ckpt_ns drop_time[CKPT_DP_PASSES];
    ckpt_bytes drop_peak[CKPT_DP_PASSES], going_peak[CKPT_DP_PASSES];
    ckpt_bytes gradient_bytes; /* held for its backward: while it and blocks before it are recomputed */
    ckpt_bytes crossing_bytes; /* what crosses the cut behind it; not read when the chain has `fresh` */
} ckpt_dp_block;

typedef struct ckpt_dp_chain {
    const ckpt_dp_block *block; /* [1 .. count] */
    int count;                  /* >= 1 */
    /* Where several buffers cross a cut and some of them are older: [i * (count + 1) + j], i < j, bytes that cross cut
     * j and were written behind cut i, so that holding the input of block i+1 does not hold them. NULL: what crosses
     * cut j was written in block j. */
    const ckpt_bytes *fresh;
} ckpt_dp_chain;

/* What to do, in order. Of a schedule the first forward of each block has pass CKPT_DP_FIRST. */
typedef enum ckpt_dp_do {
    CKPT_DP_DROP, /* forward keeping only what crosses */
    CKPT_DP_KEEP, /* forward keeping what keep[option] says */
    CKPT_DP_BACK, /* the backward to it */
    CKPT_DP_LEAF, /* forward and backward, leaf[option] */
} ckpt_dp_do;

typedef struct ckpt_dp_action {
    ckpt_dp_do what;
    int block, option, pass;
} ckpt_dp_action;

typedef struct ckpt_dp_schedule {
    const ckpt_dp_action *action;
    int count; /* 0: there is none */
    ckpt_ns time;
} ckpt_dp_schedule;

typedef struct ckpt_dp_result {
    ckpt_dp_schedule schedule; /* the best that was found within the limit; none exactly when there is none */
    ckpt_ns bound;             /* no persistent schedule within the limit is faster; without one it means nothing */
    bool exact;                /* bound == schedule.time */
    int64_t work;              /* breakpoints and intervals looked at: what it cost, on any machine */
} ckpt_dp_result;

/* What to spend; zero means default. */
typedef struct ckpt_dp_effort {
    int points;   /* breakpoints that a step function may have before it is thinned, which may cost exactness; >= 2 */
    int64_t work; /* end early, with the best so far, when result->work comes to that; default: no end */
} ckpt_dp_effort;

/* The fastest persistent schedule whose peak, input of block 1 not counted, is within `limit`. Equal blocks (all
 * figures equal) and equal runs of blocks are solved once. Same input, same result.
 * Errors: CKPT_OVERFLOW (the chain takes more than 2^63 ns), CKPT_NO_MEMORY. Cost: chain_dp.c. */
CKPT_MUST_USE ckpt_code ckpt_dp_solve(const ckpt_dp_chain *chain, ckpt_bytes limit, const ckpt_dp_effort *effort,
                                      const ckpt_plan_options *options, ckpt_arena *out, ckpt_dp_result *result,
                                      ckpt_err *err);

/* The minimum peak of all persistent schedules, exactly, and a fast one of that peak.
 * Where the options (NULL: none) end it early, there is no schedule. Cost: O(n^3 / 6) comparisons, fewer where blocks are
 * equal. */
CKPT_MUST_USE ckpt_code ckpt_dp_min_peak(const ckpt_dp_chain *chain, const ckpt_plan_options *options, ckpt_arena *out,
                                         ckpt_bytes *peak, ckpt_dp_schedule *schedule, ckpt_err *err);

#endif
