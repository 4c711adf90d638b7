/* Linear and integer programs, and who solves them. The one solver there is (solver_glpk.c) is a library of its own,
 * ckpt_glpk, handed to the planner by its caller: the planner links none, so another can take its place. */
#ifndef CKPT_PLANNER_ILP_SOLVER_H
#define CKPT_PLANNER_ILP_SOLVER_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "planner/schedule/options.h"

/* Minimise cost * x with row_low <= A x <= row_high, low <= x <= high. Infinities are HUGE_VAL. */
typedef struct ckpt_program {
    int columns, rows;
    const double *cost, *low, *high; /* per column */
    const bool *integer;             /* per column; NULL: none is */
    const double *row_low, *row_high;
    /* A by rows: entries of row r are [start[r], start[r + 1]) of column and value; a column stands in a row once */
    const int *start, *column;
    const double *value;
} ckpt_program;

typedef enum ckpt_outcome {
    CKPT_OPTIMAL,  /* x and bound are the optimum */
    CKPT_STOPPED,  /* work, time or stop ended it: bound holds, x is the best point found when has_point */
    CKPT_NO_POINT, /* proved: no x satisfies the rows (or none is better than `cutoff`) */
} ckpt_outcome;

typedef struct ckpt_solution {
    ckpt_outcome outcome;
    bool has_point;
    double *x;    /* room for `columns`; given by the caller */
    double *dual; /* room for `rows`, or NULL; linear programs only: of the minimisation, >= 0 on binding lower sides */
    double value; /* of x */
    double bound; /* no x is below this; -HUGE_VAL: none known. Floating point: not yet a proof. */
    long work;    /* what it took */
} ckpt_solution;

typedef struct ckpt_solver {
    const char *name; /* "GLPK" */
    /* Work counts simplex iterations or branch-and-bound nodes, never seconds; 0: no limit. Of solve, nothing at or above
     * `cutoff` (HUGE_VAL: none) is wanted. `reduced` (may be NULL): room for the reduced costs of the columns. Errors:
     * CKPT_NO_MEMORY; CKPT_BAD_INPUT (figures that are no numbers, or no lowest value). */
    ckpt_code (*relax)(const ckpt_program *program, long work, const ckpt_plan_options *options,
                       ckpt_solution *solution, double *reduced, ckpt_err *err);
    ckpt_code (*solve)(const ckpt_program *program, double cutoff, long work, const ckpt_plan_options *options,
                       ckpt_solution *solution, ckpt_err *err);
} ckpt_solver;

extern const ckpt_solver ckpt_solver_glpk; /* library ckpt_glpk */

#endif
