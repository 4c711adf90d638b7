/* What the files of the integer programs share. */
#ifndef CKPT_PLANNER_ILP_ILP_IMPL_H
#define CKPT_PLANNER_ILP_ILP_IMPL_H

#include "planner/ilp/ilp.h"
#include "planner/ilp/solver.h"
#include "planner/schedule/schedule.h"

/* Op `op` may be recomputed in stage `stage`. Stages are passes over the ops in reference order: the recomputations of
 * a stage come in that order, and the last of every `passes` stages ends with the first run of op stage / passes. */
typedef struct ckpt_ilp_pair {
    int stage, op;
    int depth;  /* recomputations between it and what op `stage` reads, at least; 0: it writes that */
    bool free;  /* decided by the program; else `runs` says */
    bool runs;  /* what the incumbent does */
    int column; /* -1: not free */
} ckpt_ilp_pair;

/* All pairs that may help; the stages of op_count are after the end, for outputs. */
typedef struct ckpt_ilp_pairs {
    ckpt_ilp_pair *pair; /* by stage, then op */
    int *from;           /* [stages + 1]: those of stage s are from[s] .. from[s + 1] - 1 */
    int count;
    int passes, stages; /* stages: (op_count + 1) * passes */
} ckpt_ilp_pairs;

/* What may be recomputed, as pairs: the ancestors of what each stage reads, in the stages from the first op that depends
 * on a gradient on (in all, when none does); or with `any` in all stages, and the ancestors of what later stages read too.
 * Gives up with count > `most`, also where merely looking takes too long. Errors: CKPT_NO_MEMORY. Cost: O(stages *
 * uses), at most about 0.1 s. */
CKPT_MUST_USE ckpt_code ckpt_ilp_pairs_find(const ckpt_graph *graph, bool any, int passes, int most, ckpt_arena *out,
                                            ckpt_ilp_pairs *pairs, ckpt_err *err);

/* Set `runs` from a sequence. False when it has a run that is no pair. */
bool ckpt_ilp_pairs_read(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_ilp_pairs *pairs);
/* The order in which `runs` says, written. */
void ckpt_ilp_pairs_write(const ckpt_graph *graph, const ckpt_ilp_pairs *pairs, ckpt_order *order);

enum { CKPT_ILP_REAL = -1 /* continuous */, CKPT_ILP_COUNT = -2 /* how often an op is recomputed */ };

typedef struct ckpt_ilp_model {
    ckpt_program program; /* times and bytes are scaled */
    int *pair_of;         /* per column: the pair, CKPT_ILP_COUNT or CKPT_ILP_REAL */
    double ns;            /* of one unit of cost */
    ckpt_ns fixed_ns;     /* first runs, and recomputations that are not free */
    bool impossible;      /* what is fixed already breaks the limit */
} ckpt_ilp_model;

/* The program whose free pairs are those of `pairs`. Fills in their columns. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ilp_model_build(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ilp_pairs *pairs,
                                             ckpt_arena *out, ckpt_ilp_model *model, ckpt_err *err);

/* The largest number that divides every time. */
ckpt_ns ckpt_ilp_grain(const ckpt_graph *graph);

/* Look for a point of the model that is faster than `before` ns (INT64_MAX: any), and set `runs` of the free pairs to
 * it.
 *
 *   found   whether there is one
 *   bound   set: as far as the solver can tell no point of the model is faster; `before` when it found that none is
 *   work    about the simplex iterations it took, added
 *
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ilp_model_solve(const ckpt_ilp_model *model, ckpt_ilp_pairs *pairs, ckpt_ns grain,
                                             ckpt_ns before, int64_t nodes, const ckpt_plan_options *options,
                                             bool *found, ckpt_ns *bound, int64_t *work, ckpt_err *err);

#endif
