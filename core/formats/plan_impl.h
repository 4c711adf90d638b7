/* What the files of a plan share. */
#ifndef CKPT_CORE_FORMATS_PLAN_IMPL_H
#define CKPT_CORE_FORMATS_PLAN_IMPL_H

#include "core/formats/plan.h"
#include "core/json/json.h"

/* Does a plan agree with itself? Its figures (ckpt_plan_check_figures), and the outline it carries: names are unique,
 * steps and allocations name what is there, sizes and the static block are the same. `root`: the plan's file. Errors: CKPT_BAD_INPUT and
 * CKPT_OVERFLOW with the place in the file, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_check_itself(const ckpt_plan *plan, const ckpt_item *root, ckpt_err *err);

/* Do the figures of a plan that fits follow from itself? The peak from static block and places, both blocks within the budget,
 * the bound and its gap; with an outline also times, copies and layers from the steps.
 *   target   [steps] the outline's op of a run, its buffer of any other step; NULL: no outline
 *   buffer   [allocations] likewise; -1: workspace
 * Errors: CKPT_BAD_INPUT with the place in the file, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_check_figures(const ckpt_plan *plan, const int *target, const int *buffer,
                                                const ckpt_item *root, ckpt_arena *scratch, ckpt_err *err);

#endif
