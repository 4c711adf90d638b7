/* From a strategy's name to a plan. */
#include <string.h>

#include "core/base/clock.h"
#include "planner/api/plan_make_impl.h"
#include "planner/bound/bound.h"
#include "planner/replay/replay.h"
#include "planner/schedule/ways.h"
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

/* Where not everything can be kept: below what no schedule exists. Then only a minimum is worth looking for. */
static ckpt_code find_floor(const ckpt_maker *m, ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_bytes keep_all = 0;
    ckpt_ns time = 0;
    CKPT_TRY(ckpt_keep_all_measure(m->graph, scratch, &keep_all, &time, err));
    if (keep_all > m->budget) {
        CKPT_TRY(ckpt_maker_floor(m, &options->floor_bytes, err));
        options->only_min_peak = m->limit < options->floor_bytes;
    }
    return CKPT_OK;
}

/* What a part finds alone may be slower and still fit where that of all does not: allocations take more than what is
 * live. So auto asks parts again where it lost by that, and is no slower than they are. */
static ckpt_code try_parts(const ckpt_maker *m, const ckpt_candidates *candidates, ckpt_plan *plan, ckpt_err *err)
{
    static const struct {
        const char *name;
        int lost; /* asked where the plan is slower than hoped for by more than this part */
        int ops;  /* of larger graphs it takes too long */
    } part[] = {{"hierarchy", 500, 3000}, {"search", 50, 500}};
    const bool is_auto = strcmp(m->strategy->name, "auto") == 0;
    for (size_t i = 0; i < sizeof part / sizeof *part && is_auto && candidates->count > 0; i++) {
        const ckpt_ns fastest = candidates->candidate[0].time;
        if (plan->time_ns - fastest <= fastest / part[i].lost || m->graph->op_count > part[i].ops ||
            ckpt_plan_stopped(m->options)) {
            continue;
        }
        ckpt_maker alone = *m;
        alone.strategy = ckpt_strategy_find(part[i].name);
        ckpt_candidates *const its = CKPT_NEW(m->out, ckpt_candidates, 1);
        if (its == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", part[i].name);
        }
        ckpt_plan found = {0};
        bool fits = false;
        CKPT_TRY(ckpt_maker_attempt(&alone, its, &found, &fits, err));
        *plan = fits && found.time_ns < plan->time_ns ? found : *plan;
    }
    return CKPT_OK;
}

ckpt_code ckpt_maker_make(const ckpt_maker *maker, ckpt_plan *plan, ckpt_err *err)
{
    bool fits = false;
    ckpt_plan_options known = *maker->options;
    ckpt_low_memo memo = {0};
    known.low_memo = &memo;
    ckpt_maker m = *maker;
    m.options = &known;
    ckpt_candidates *const candidates = CKPT_NEW(m.out, ckpt_candidates, 1);
    if (candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", m.strategy->name);
    }
    CKPT_TRY(find_floor(&m, &known, m.out, err));
    CKPT_TRY(ckpt_maker_attempt(&m, candidates, plan, &fits, err));
    CKPT_TRY(fits ? try_parts(&m, candidates, plan, err) : CKPT_OK);
    const ckpt_plan lowest = *plan;
    return fits ? ckpt_maker_finish(&m, candidates, plan, err) : ckpt_maker_refuse(&m, &lowest, plan, err);
}

ckpt_code ckpt_plan_make(const ckpt_graph *graph, const char *name, const ckpt_plan_options *options, ckpt_arena *out,
                         ckpt_plan **made, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    const bool limited = options->budget_bytes > 0;
    ckpt_maker m = {
        .strategy = ckpt_strategy_find(name),
        .options = options,
        .budget = limited ? options->budget_bytes : CKPT_BYTES_MAX,
        .limit = limited ? options->budget_bytes - graph->static_bytes : CKPT_BYTES_MAX,
        .out = out,
    };
    if (m.strategy == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy '%s', wanted one of --list-strategies", name);
    }
    ckpt_plan *const plan = CKPT_NEW(out, ckpt_plan, 1);
    if (plan == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a plan by %s", name);
    }
    CKPT_TRY(ckpt_ways_allowed(graph, options, out, &m.graph, err));
    CKPT_TRY((options->reorder ? ckpt_maker_reorder : ckpt_maker_make)(&m, plan, err));
    plan->solver_seconds = (double)(ckpt_clock_ns() - start) * 1e-9;
    CKPT_TRY(ckpt_graph_digest(graph, plan->graph_sha256, err));
    *made = plan;
    return CKPT_OK;
}
