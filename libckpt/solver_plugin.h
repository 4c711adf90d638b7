/* Solvers of linear programs that are libraries of their own, opened when somebody asks for one. */
#ifndef CKPT_LIBCKPT_SOLVER_PLUGIN_H
#define CKPT_LIBCKPT_SOLVER_PLUGIN_H

#include "planner/ilp/solver.h"

/* What libckpt_<name>.so shows, as ckpt_solver_plugin. */
typedef struct ckpt_solver_plugin_entry {
    const char *version; /* CKPT_VERSION: no other fits, the table of functions is not stable */
    const ckpt_solver *solver;
} ckpt_solver_plugin_entry;

/* The solver of libckpt_<name>.so, which is looked for in this library's or program's run path and where the loader
 * looks. `library` is handed to ckpt_solver_close once nobody uses the solver any more.
 * Errors: CKPT_BAD_INPUT (no such name), CKPT_DEVICE (it is not there, or of another version). */
CKPT_MUST_USE ckpt_code ckpt_solver_open(const char *name, const ckpt_solver **solver, void **library, ckpt_err *err);
void ckpt_solver_close(void *library); /* NULL is fine */

#endif
