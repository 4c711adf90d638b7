/* Units, which the user flags as a whole, and the patterns that name them. Knows graphs and names, no schedule. */
#ifndef CKPT_PLANNER_DIRECTIVES_UNITS_H
#define CKPT_PLANNER_DIRECTIVES_UNITS_H

#include "planner/directives/choose.h"

/* Flag the units of the sequence; names of their ops are in `out`. Does nothing where a forward op is flagged true.
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_units_flag(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err);

/* Units of `op` become segments, as `grouping` says. Errors: CKPT_BAD_INPUT (more segments than units). */
CKPT_MUST_USE ckpt_code ckpt_units_group(const ckpt_graph *graph, ckpt_graph_op *op, const char *grouping,
                                         ckpt_arena *out, ckpt_err *err);

/* A unit whose ops lie in several pipeline partitions is no unit any more; `notes` names it. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_units_whole(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, ckpt_text *notes,
                                         ckpt_err *err);

/* Whether a pattern matches the first `length` characters of a name; dots separate. */
bool ckpt_pattern_matches(const char *pattern, const char *name, int length);

/* The names of layers, and beginnings of names, closest to a pattern, as "a, b, c"; "" when there are none. */
CKPT_MUST_USE ckpt_code ckpt_pattern_close(const ckpt_graph *graph, const char *pattern, ckpt_arena *out,
                                           const char **close, ckpt_err *err);

#endif
