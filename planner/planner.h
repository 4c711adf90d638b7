/* Graph and budget in, plan out. Every strategy only chooses an order of runs; turning that into steps with frees,
 * places and a predicted trace is done once, for all of them. */
#ifndef CKPT_PLANNER_PLANNER_H
#define CKPT_PLANNER_PLANNER_H

#include "core/plan.h"
#include "core/trace.h"

/* The order in which ops run; an op that stands again is a recomputation. */
typedef struct ckpt_sequence {
    const int *op;
    int count;
} ckpt_sequence;

typedef struct ckpt_plan_options {
    ckpt_bytes budget_bytes; /* static block and arena; 0: no limit */
    int slots;               /* resolution of the chain DP; 0: default */
} ckpt_plan_options;

/* A sequence and its figures. */
typedef struct ckpt_candidate {
    ckpt_sequence sequence;
    ckpt_bytes peak; /* the most that is live in any step: workspaces counted, static not */
    ckpt_ns time;
} ckpt_candidate;

enum { CKPT_CANDIDATES_MAX = 32 };

/* What a strategy answers. */
typedef struct ckpt_answer {
    /* Within the limit, fastest first. The slower ones have lower peaks: they are for when the places of those before
     * take more than what is live. */
    ckpt_candidate candidate[CKPT_CANDIDATES_MAX];
    int count; /* 0: this strategy has no schedule within the limit */
    /* The lowest peak that this strategy knows how to reach within 2^63 ns; no sequence when there is none. At every
     * limit below the peak of keep-all it is the same. */
    ckpt_candidate least;
    bool has_bound;
    ckpt_ns bound_ns; /* nothing in `bound_scope` is faster within the limit */
    const char *bound_how, *bound_scope;
} ckpt_answer;

typedef struct ckpt_strategy {
    const char *name; /* "sqrt" */
    const char *help; /* one line */
    const char *source;
    bool budgeted; /* uses the limit: may give different sequences for different limits */
    bool flags;    /* reads the user's checkpoint flags */
    /* Sequences whose live bytes never exceed `limit` >= 0 where the strategy can help it; CKPT_BYTES_MAX: no limit.
     * `answer` comes empty. Strategies write a ckpt_order and hand it over by ckpt_order_end, which measures it.
     * Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
    ckpt_code (*plan)(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err);
} ckpt_strategy;

extern const ckpt_strategy *const ckpt_strategy_table[]; /* NULL ends it; written by the build */
const ckpt_strategy *ckpt_strategy_find(const char *name);

/* Plan `graph` by strategy `name` ("auto": the fastest of all that fit).
 *
 *   plan   set on CKPT_OK only; verdict CKPT_INFEASIBLE names the least budget at which this strategy does find a
 *          plan. A plan that fits has been through ckpt_plan_check.
 *
 * Errors: CKPT_BAD_INPUT (no such strategy), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options,
                                       ckpt_arena *out, ckpt_plan **plan, ckpt_err *err);

/* The most that is live in any step of a sequence, static not counted, and its time; INT64_MAX when 63 bits do not hold
 * that. Errors: CKPT_OVERFLOW (uses more than 2^30 buffers), CKPT_NO_MEMORY. Cost: O(total reads + writes). */
CKPT_MUST_USE ckpt_code ckpt_sequence_measure(const ckpt_graph *graph, const ckpt_sequence *sequence,
                                              ckpt_arena *scratch, ckpt_bytes *peak, ckpt_ns *time, ckpt_err *err);

#endif
