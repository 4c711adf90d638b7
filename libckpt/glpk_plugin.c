/* libckpt_glpk.so: the solver, and the version it goes with. */
#include "include/ckpt.h"
#include "libckpt/solver_plugin.h"

extern const ckpt_solver_plugin_entry ckpt_solver_plugin;
const ckpt_solver_plugin_entry ckpt_solver_plugin = {CKPT_VERSION, &ckpt_solver_glpk};
