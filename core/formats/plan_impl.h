/* What the files of a plan share. */
#ifndef CKPT_CORE_FORMATS_PLAN_IMPL_H
#define CKPT_CORE_FORMATS_PLAN_IMPL_H

#include "core/formats/plan.h"
#include "core/json/json.h"

/* Does a plan agree with the outline it carries? Names are unique, steps and allocations name what is there, sizes and the
 * static block are the same. An outline without ops agrees. `root`: the plan's file. Errors: CKPT_BAD_INPUT and
 * CKPT_OVERFLOW with the place in the file, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_plan_check_outline(const ckpt_plan *plan, const ckpt_item *root, ckpt_err *err);

#endif
