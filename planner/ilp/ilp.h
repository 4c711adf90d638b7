/* Integer programs over which ops are recomputed in which stage (docs/explanation/integer-program.md). Knows a solver
 * by its table of functions alone; solver_glpk.c, a library of its own, knows GLPK. */
#ifndef CKPT_PLANNER_ILP_ILP_H
#define CKPT_PLANNER_ILP_ILP_H

#include "planner/schedule/strategy.h"

/* What schedules the program ranges over. "stages": between two first runs ops are recomputed in reference order, each
 * at most once. "stages-twice": that, and then once more. "backward-stages": as "stages", but that happens only from
 * the first op on that is of phase backward or depends on a gradient (anywhere, when there is none), and what is
 * recomputed is an ancestor of what the next first run needs. */
#define CKPT_ILP_SCOPE       "backward-stages"
#define CKPT_ILP_SCOPE_TWICE "stages-twice"
#define CKPT_ILP_SCOPE_ANY   "stages"

/* Solve the whole graph, branching at most `nodes` times (0: no limit) where the program has 600 rows: a branching
 * takes longer the more rows there are, so larger programs get fewer of them and smaller ones more. Candidates are
 * added to `candidates` as they are found, its first one is the incumbent. candidates->has_bound is set with scope
 * CKPT_ILP_SCOPE... and how CKPT_ILP_HOW, when that is above the bound it has. Nothing happens when the program would
 * have more than `pairs_max` (op, stage) pairs, when the candidates' bound already is that of this program, or when
 * there is no options->solver. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. Source: planner/ilp/ilp_model.c. */
CKPT_MUST_USE ckpt_code ckpt_ilp_solve(const ckpt_graph *graph, ckpt_bytes limit, int pairs_max, int64_t nodes,
                                       const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                                       ckpt_err *err);

/* Improve the first candidate of `candidates` by neighbourhoods that are solved as integer programs: the recomputations
 * of a few ops, or of a few stages near the peak, are free, all else stays. Ends after `work` simplex iterations in
 * all, or when no neighbourhood helps. Errors: CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ilp_improve(const ckpt_graph *graph, ckpt_bytes limit, int64_t work,
                                         const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                                         ckpt_err *err);

#endif
