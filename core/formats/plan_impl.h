/* What the files of a plan share: the outline of its graph, in outline.c. */
#ifndef CKPT_CORE_FORMATS_PLAN_IMPL_H
#define CKPT_CORE_FORMATS_PLAN_IMPL_H

#include "core/formats/plan.h"
#include "core/json/json.h"

/* "static", "buffers" and "ops" of a plan's member "graph": all of them, or none. Sums are checked. */
CKPT_MUST_USE ckpt_code ckpt_outline_read(const ckpt_item *graph, ckpt_arena *out, ckpt_outline *outline,
                                          ckpt_err *err);

/* Names in the outline stand once, and all that the plan's steps, places and static bytes say is in it. */
CKPT_MUST_USE ckpt_code ckpt_outline_check(const ckpt_plan *plan, const ckpt_item *root, ckpt_err *err);

/* Those members, each after a comma; nothing when the plan knows nothing of its graph. */
void ckpt_outline_write(const ckpt_outline *outline, ckpt_text *text);

/* What of it is not as in the graph; times may differ, another profile changes those. */
CKPT_MUST_USE ckpt_code ckpt_outline_compare(const ckpt_outline *outline, const ckpt_graph *graph, ckpt_err *err);

#endif
