/* Plans with ops in another order: the same planner is asked on a graph whose ops stand in a better order, and its plan
 * is named in the ops of the graph. */
#include <string.h>

#include "planner/api/plan_make_impl.h"
#include "planner/replay/clock.h"
#include "planner/replay/replay.h"
#include "planner/schedule/reorder.h"
#include "planner/schedule/ways.h"

/* The incumbents whose first runs stand in the order of `place`, as sequences of the graph that has that order. */
static ckpt_code map_incumbents(const ckpt_graph *graph, const int *place, ckpt_arena *out, ckpt_plan_options *options,
                                ckpt_err *err)
{
    ckpt_candidate *const mapped = CKPT_NEW(out, ckpt_candidate, options->incumbent_count);
    bool *const ran = CKPT_NEW(out, bool, graph->op_count);
    int count = 0;
    if (mapped == NULL || ran == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d known plans", options->incumbent_count);
    }
    for (int i = 0; i < options->incumbent_count; i++) {
        const ckpt_sequence *const from = &options->incumbent[i].sequence;
        int *const op = CKPT_NEW(out, int, from->count);
        int last = -1;
        bool ordered = true;
        if (op == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d entries", from->count);
        }
        memset(ran, 0, (size_t)graph->op_count * sizeof *ran);
        for (int t = 0; t < from->count; t++) {
            const int run = from->op[t];
            op[t] = run >= 0 && run < graph->op_count ? place[run] : run;
            const int base = run >= 0 ? ckpt_run_base(graph, run) : -1;
            if (base >= 0 && !ran[base]) {
                ordered = ordered && place[base] > last;
                last = place[base];
                ran[base] = true;
            }
        }
        if (ordered) {
            mapped[count] = options->incumbent[i];
            mapped[count++].sequence.op = op;
        }
    }
    options->incumbent = mapped;
    options->incumbent_count = count;
    return CKPT_OK;
}

static ckpt_code plan_order(const ckpt_maker *m, const int *order, ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_graph *const graph = m->graph;
    int *const place = CKPT_NEW(m->out, int, graph->op_count);
    if (place == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "an order of %d ops", graph->op_count);
    }
    bool same = true;
    for (int i = 0; i < graph->op_count; i++) {
        place[order[i]] = i;
        same = same && order[i] == i;
    }
    ckpt_plan_options options = *m->options;
    CKPT_TRY(map_incumbents(graph, place, m->out, &options, err));
    ckpt_maker other = *m;
    other.options = &options;
    if (!same) {
        CKPT_TRY(ckpt_reorder_graph(graph, order, m->out, &other.graph, err));
    }
    return ckpt_maker_make(&other, plan, err);
}

/* A plan of the graph with ops in `order` as one of the graph itself. */
static ckpt_code rename_ops(const ckpt_maker *m, const int *order, ckpt_plan *plan, ckpt_err *err)
{
    ckpt_step *const step = CKPT_NEW(m->out, ckpt_step, plan->step_count);
    if (step == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d steps", plan->step_count);
    }
    for (int i = 0; i < plan->step_count; i++) {
        step[i] = plan->step[i];
        step[i].target = step[i].kind == CKPT_RUN ? order[step[i].target] : step[i].target;
    }
    plan->step = step;
    plan->reordered = true;
    CKPT_TRY(ckpt_keep_all_measure(m->graph, m->out, &plan->keep_all_peak_bytes, &plan->keep_all_time_ns, err));
    ckpt_layer_decision *layer = NULL;
    CKPT_TRY(ckpt_layers_decide(plan, m->graph, m->out, &layer, &plan->layer_count, err));
    plan->layer = layer;
    return CKPT_OK;
}

/* What was proved in one order holds for schedules in that order; for all there is what no order changes. */
static void widen(const ckpt_maker *m, ckpt_plan *plan)
{
    plan->no_schedule_below_bytes =
        plan->verdict == CKPT_INFEASIBLE ? m->graph->static_bytes + ckpt_reorder_floor(m->graph) : 0;
    const ckpt_ns least = ckpt_least_time(m->graph, m->options);
    const bool all = strcmp(plan->bound_scope, "all") == 0;
    if (plan->has_bound && !plan->reordered && all && plan->bound_ns > least) {
        plan->bound_scope = "reference-order";
    } else if (plan->has_bound && (plan->reordered || all)) {
        plan->bound_ns = least;
        plan->bound_how = ckpt_bound_how(least, "every op runs at least once", plan->time_ns);
        plan->bound_scope = "all";
    }
}

static bool is_better(const ckpt_plan *a, const ckpt_plan *b)
{
    if (a->verdict != b->verdict) {
        return a->verdict == CKPT_FITS;
    }
    return a->verdict == CKPT_FITS ? a->time_ns < b->time_ns : a->min_budget_bytes < b->min_budget_bytes;
}

ckpt_code ckpt_maker_reorder(const ckpt_maker *m, ckpt_plan *plan, ckpt_err *err)
{
    const int *order = NULL;
    bool better = false;
    ckpt_plan reference = {.verdict = CKPT_INFEASIBLE};
    ckpt_candidates_progress(&(ckpt_candidates){0}, "reorder", m->limit, m->options);
    CKPT_TRY(ckpt_reorder_find(m->graph, m->options, m->out, &order, &better, err));
    if (better) {
        CKPT_TRY(plan_order(m, order, plan, err));
        CKPT_TRY(rename_ops(m, order, plan, err));
    }
    if (!better || plan->verdict != CKPT_FITS || plan->time_ns > ckpt_least_time(m->graph, m->options)) {
        int *const given = CKPT_NEW(m->out, int, m->graph->op_count);
        if (given == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "an order of %d ops", m->graph->op_count);
        }
        for (int o = 0; o < m->graph->op_count; o++) {
            given[o] = o;
        }
        CKPT_TRY(plan_order(m, given, &reference, err));
        *plan = !better || is_better(&reference, plan) ? reference : *plan;
    }
    widen(m, plan);
    return ckpt_plan_check(plan, m->graph, err);
}
