/* The user's "checkpoint" flags, as the programs' default planning obeys them: what is flagged true is planned by the
 * strategy of that name; what is flagged false is planned as if it could not run again. */
#include <string.h>

#include "planner/answers.h"
#include "planner/replay.h"

bool ckpt_flags_any(const ckpt_graph *graph, ckpt_choice flag)
{
    bool any = false;
    for (int o = 0; o < graph->op_count && !any; o++) {
        any = graph->op[o].checkpoint == flag;
    }
    return any;
}

ckpt_code ckpt_flags_pin(const ckpt_graph *graph, ckpt_arena *out, const ckpt_graph **pinned, ckpt_err *err)
{
    ckpt_graph *const copy = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(out, ckpt_graph_op, graph->op_count);
    if (copy == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "flags of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        op[o] = graph->op[o];
        op[o].recompute = op[o].recompute && op[o].checkpoint != CKPT_NO;
    }
    *copy = *graph;
    copy->op = op;
    *pinned = copy;
    return CKPT_OK;
}

ckpt_code ckpt_flags_unpin(ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    plan->no_schedule_below_bytes = 0; /* proved for schedules that keep what is flagged only */
    plan->has_bound = plan->has_bound && strcmp(plan->bound_scope, "all") == 0;
    plan->bound_scope = "flagged";
    CKPT_TRY(ckpt_graph_digest(graph, plan->graph_sha256, err));
    return ckpt_plan_check(plan, graph, err);
}
