/* Any graph as a chain of blocks, with the figures of each that a schedule of blocks needs.
 *
 *     forward ops  [ block 1 ][ block 2 ]...[ block n ]   backward and other ops [ n ]...[ 2 ][ 1 and the rest ]
 *                  ^cut 0     ^cut 1        ^cut n-1   ^cut n
 *
 * What a cut is crossed by is the set of buffers written before it that a forward op after it reads: the input of
 * the block behind it. What only backward reads is no crossing: it is the block's saved set. A cut is made only where
 * backward reads everything that crosses, so that keeping the input of a block never costs more than keeping what
 * backward needs anyway. Blocks count from 1.
 *
 * This file knows graphs; chain_dp.h knows figures of blocks alone. Neither knows another strategy. */
#ifndef CKPT_PLANNER_CHAIN_CHAIN_H
#define CKPT_PLANNER_CHAIN_CHAIN_H

#include "planner/chain/chain_dp.h"
#include "planner/schedule/schedule.h"

enum {
    CKPT_CHAIN_MAX = 512, /* blocks: of more cuts the cheapest are kept, spread evenly */
    CKPT_IN_OUT = 1,      /* op is needed for what crosses the cut behind its block */
    CKPT_IN_BACKWARD = 2, /* op is needed for what the block's backward reads */
};

typedef struct ckpt_block {
    int from, to;              /* forward ops from .. to - 1 */
    int back_from, back_to;    /* its backward ops */
    ckpt_bytes crossing_bytes; /* what crosses the cut behind it */
    ckpt_bytes saved_bytes;    /* kept by a run that keeps all, beside its input: saved set and crossing */
    ckpt_bytes gradient_bytes; /* held for backward ops that are still to come, when its backward starts */
    ckpt_ns out_ns[CKPT_DP_PASSES], keep_ns[CKPT_DP_PASSES], leaf_ns[CKPT_DP_PASSES]; /* forward, for each purpose */
    ckpt_ns back_ns;
    /* Most live bytes of a forward run, its input not counted: keeping all; keeping only what crosses. */
    ckpt_bytes keep_peak[CKPT_DP_PASSES], drop_peak[CKPT_DP_PASSES];
    ckpt_bytes pass_peak[CKPT_DP_PASSES]; /* keeping only what crosses, input counted until its last reader */
    ckpt_bytes leaf_peak[CKPT_DP_PASSES]; /* forward for backward, then backward; input not counted */
    ckpt_bytes back_peak;                 /* backward from the saved set; input not counted */
} ckpt_block;

typedef struct ckpt_chain {
    const ckpt_graph *graph;
    int forward_end;   /* ops before it are the forward section */
    ckpt_block *block; /* [1 .. count] */
    int count;
    bool exact;         /* `single`, and the figures are the same for every schedule of blocks */
    bool single;        /* what crosses a cut was written and is last read by its two blocks */
    unsigned char *use; /* per op of the forward section: CKPT_IN_... */
    ckpt_bytes *fresh;  /* [i * (count + 1) + j], i < j: bytes that cross cut j and were written behind cut i */
} ckpt_chain;

/* `relaxed`: also cut where several buffers cross. Errors: CKPT_NO_MEMORY. Cost: O(uses + n^2). */
CKPT_MUST_USE ckpt_code ckpt_chain_build(const ckpt_graph *graph, bool relaxed, ckpt_arena *out, ckpt_chain **chain,
                                         ckpt_err *err);

/* Append the forward ops of block k that are in `use`; of a pass that is not the first, those that may be
 * recomputed. */
void ckpt_chain_forward(const ckpt_chain *chain, int k, int pass, int use, ckpt_order *order);
void ckpt_chain_backward(const ckpt_chain *chain, int k, ckpt_order *order);

#endif
