/* From a strategy's name to a plan. */
#include "core/base/clock.h"
#include "planner/api/plan_make_impl.h"
#include "planner/bound/bound.h"
#include "planner/variants/variants.h"

ckpt_code ckpt_maker_ask(const ckpt_maker *m, const ckpt_plan_options *options, ckpt_bytes limit,
                         ckpt_candidates *candidates, ckpt_err *err)
{
    *candidates = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_bytes possible = limit > 0 ? limit : 0; /* a budget below the static block: for the minimum peak */
    CKPT_TRY_WHILE(err, ckpt_variants_ask(m->strategy, m->graph, possible, options, m->out, candidates, err),
                   "planning by %s", m->strategy->name);
    return CKPT_OK;
}

ckpt_code ckpt_maker_floor(const ckpt_maker *m, ckpt_bytes *lowest, ckpt_err *err)
{
    const ckpt_graph *relaxed = NULL;
    CKPT_TRY(ckpt_variants_relax(m->graph, CKPT_BYTES_MAX, m->options, m->out, &relaxed, err));
    return ckpt_bound_peak(relaxed, m->out, lowest, err);
}

static ckpt_code make(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    bool fits = false;
    CKPT_TRY(ckpt_maker_attempt(m, candidates, plan, &fits, err));
    return fits ? ckpt_maker_finish(m, candidates, plan, err) : ckpt_maker_refuse(m, &candidates->min_peak, plan, err);
}

ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options, ckpt_arena *out,
                         ckpt_plan **made, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    const bool limited = options->budget_bytes > 0;
    ckpt_packed_list packed = {.first = NULL};
    const ckpt_maker m = {
        .graph = graph,
        .strategy = ckpt_strategy_find(name),
        .options = options,
        .budget = limited ? options->budget_bytes : CKPT_BYTES_MAX,
        .limit = limited ? options->budget_bytes - graph->static_bytes : CKPT_BYTES_MAX,
        .packed = &packed,
        .out = out,
    };
    if (m.strategy == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", name);
    }
    ckpt_plan *const plan = CKPT_NEW(out, ckpt_plan, 1);
    ckpt_candidates *const candidates = CKPT_NEW(out, ckpt_candidates, 1);
    if (plan == NULL || candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", name);
    }
    ckpt_arena_init(&packed.arena);
    const ckpt_code code = make(&m, candidates, plan, err);
    ckpt_arena_fini(&packed.arena);
    CKPT_TRY(code);
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    *made = plan;
    return CKPT_OK;
}
