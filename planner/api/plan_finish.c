/* The rest of a plan: bound, summary, layers, check. */
#include <string.h>

#include "planner/api/plan_make_impl.h"
#include "planner/bound/bound.h"
#include "planner/placement/allocate.h"
#include "planner/replay/clock.h"
#include "planner/replay/replay.h"
#include "planner/variants/variants.h"

ckpt_code ckpt_maker_head(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err)
{
    plan->source = "";
    plan->graph_name = m->graph->name;
    plan->static_bytes = m->graph->static_bytes;
    plan->budget_bytes = m->budget;
    plan->bound_how = plan->bound_scope = plan->costs = "";
    return ckpt_keep_all_measure(m->graph, m->out, &plan->keep_all_peak_bytes, &plan->keep_all_time_ns, err);
}

static ckpt_code fill_bound(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    const bool has_all = candidates->has_bound && strcmp(candidates->bound_scope, "all") == 0;
    const bool wanted = !m->strategy->baseline && !ckpt_plan_hurried(m->options, m->graph->op_count) &&
                        (m->options->without & CKPT_PART_BOUND) == 0 && !has_all;
    const ckpt_ns least = ckpt_least_time(m->graph, m->options);
    if (wanted && plan->time_ns > least && m->limit < CKPT_BYTES_MAX) {
        const ckpt_ns first = candidates->count > 0 ? candidates->candidate[0].time : INT64_MAX;
        const ckpt_ns upper = first < plan->time_ns ? first : plan->time_ns;
        ckpt_bound found;
        CKPT_TRY_WHILE(err, ckpt_bound_find(m->graph, m->limit, upper, m->options, m->out, &found, err),
                       "bounding the time from below");
        ckpt_candidates_bound(candidates, found.time_ns, found.how, found.scope);
    }
    if (!candidates->has_bound || candidates->bound_ns > plan->time_ns || candidates->bound_ns < least) {
        candidates->has_bound = false;
        ckpt_candidates_bound(candidates, least, "every op runs at least once", "all");
    }
    plan->has_bound = true;
    plan->bound_ns = candidates->bound_ns;
    plan->bound_how = ckpt_bound_how(plan->bound_ns, candidates->bound_how, plan->time_ns);
    plan->bound_scope = candidates->bound_scope;
    if (strcmp(plan->bound_how, "exact") == 0 && plan->bound_ns < plan->time_ns) {
        plan->bound_how = "exact before placement"; /* fragmentation made the plan slower */
    }
    return CKPT_OK;
}

/* Trying candidates ended where the allocations fit. Pack the chosen one again with all that the effort pays for: what
 * is left of the budget is another process's room. The allocations there are may have been found with more effort, so
 * they stay unless the new ones are lower. */
static ckpt_code tighten(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err)
{
    if (plan->arena_bytes <= plan->peak_bytes - m->graph->static_bytes) {
        return CKPT_OK;
    }
    ckpt_plan packed = *plan;
    ckpt_allocation *const allocation = CKPT_NEW(m->out, ckpt_allocation, plan->allocation_count);
    if (allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d allocations", plan->allocation_count);
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        allocation[i] = plan->allocation[i];
    }
    packed.allocation = allocation;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = ckpt_sequence_pack(m->graph, &packed, 0, m->options, &scratch, err);
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK && packed.arena_bytes < plan->arena_bytes) {
        *plan = packed;
    }
    return code;
}

ckpt_code ckpt_maker_finish(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    CKPT_TRY(tighten(m, plan, err));
    CKPT_TRY(ckpt_maker_head(m, plan, err));
    plan->verdict = CKPT_FITS;
    plan->budget_bytes = m->budget == CKPT_BYTES_MAX ? plan->static_bytes + plan->arena_bytes : m->budget;
    CKPT_TRY(fill_bound(m, candidates, plan, err));
    ckpt_layer_decision *layer = NULL;
    CKPT_TRY(ckpt_layers_decide(plan, m->graph, m->out, &layer, &plan->layer_count, err));
    plan->layer = layer;
    CKPT_TRY_WHILE(err, ckpt_plan_check(plan, m->graph, err), "checking what %s planned", m->strategy->name);
    return CKPT_OK;
}
