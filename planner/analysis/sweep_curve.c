/* The figures of a sweep as a curve, and those of the baselines at the same budgets. */
#include <inttypes.h>
#include <string.h>

#include "planner/analysis/analysis.h"
#include "planner/schedule/schedule.h"

enum { MIN_BUDGET_ROUNDS = 8 };

static ckpt_curve_point point_of(const ckpt_plan *plan)
{
    return (ckpt_curve_point){
        .budget_bytes = plan->budget_bytes,
        .peak_bytes = plan->peak_bytes,
        .arena_bytes = plan->arena_bytes,
        .time_ns = plan->time_ns,
        .has_bound = plan->has_bound,
        .bound_ns = plan->bound_ns,
        .bound_how = plan->bound_how,
        .bound_scope = plan->bound_scope,
        .strategy = plan->solver,
    };
}

ckpt_code ckpt_sweep_curve(const ckpt_sweep *sweep, ckpt_arena *out, ckpt_curve *curve, ckpt_err *err)
{
    const ckpt_plan *const first = sweep->plan[0];
    const bool fits = first->verdict == CKPT_FITS;
    ckpt_curve_point *const point = CKPT_NEW(out, ckpt_curve_point, sweep->count);
    if (point == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "curve of %d points", sweep->count);
    }
    for (int i = 0; fits && i < sweep->count; i++) {
        point[i] = point_of(sweep->plan[i]);
    }
    *curve = (ckpt_curve){
        .graph_name = first->graph_name,
        .costs = first->costs,
        .static_bytes = first->static_bytes,
        .keep_all_peak_bytes = first->keep_all_peak_bytes,
        .keep_all_time_ns = first->keep_all_time_ns,
        .min_budget_bytes = first->min_budget_bytes,
        .complete = !sweep->stopped,
        .point = point,
        .point_count = fits ? sweep->count : 0,
    };
    memcpy(curve->graph_sha256, first->graph_sha256, CKPT_DIGEST_TEXT);
    return CKPT_OK;
}

/* `plan` within `budget`; the bound is that of the next planned point. */
static ckpt_curve_point point_at(const ckpt_curve_point *plan, ckpt_bytes budget, const ckpt_curve_point *next)
{
    ckpt_curve_point point = *plan;
    point.budget_bytes = budget;
    point.has_bound = next->has_bound && next->bound_ns <= plan->time_ns;
    if (point.has_bound) {
        point.bound_ns = next->bound_ns;
        point.bound_scope = next->bound_scope;
        point.bound_how = ckpt_bound_how(next->bound_ns, next->bound_how, plan->time_ns);
        if (strcmp(point.bound_how, "exact") == 0 && point.bound_ns < point.time_ns) {
            point.bound_how = "exact under a larger budget";
        }
    }
    return point;
}

/* The baselines' next plan that is faster than `best` ns, from budget `from` on and below `to`; NULL: none. */
static const ckpt_curve_point *next_faster(const ckpt_curve *curve, ckpt_bytes from, ckpt_bytes to, ckpt_ns best)
{
    const ckpt_curve_point *found = NULL;
    for (int b = 0; b < curve->baseline_count; b++) {
        for (int i = 0; i < curve->baseline[b].point_count; i++) {
            const ckpt_curve_point *const point = &curve->baseline[b].point[i];
            const bool sooner = found == NULL || point->budget_bytes < found->budget_bytes ||
                                (point->budget_bytes == found->budget_bytes && point->time_ns < found->time_ns);
            if (point->budget_bytes >= from && point->budget_bytes < to && point->time_ns < best && sooner) {
                found = point;
            }
        }
    }
    return found;
}

/* A baseline's plan is a plan: where it is faster than what the curve has within its budget, the curve takes it. */
static ckpt_code take_baselines(ckpt_curve *curve, ckpt_arena *out, ckpt_err *err)
{
    size_t most = (size_t)curve->point_count;
    for (int b = 0; b < curve->baseline_count; b++) {
        most += (size_t)curve->baseline[b].point_count;
    }
    ckpt_curve_point *const point = CKPT_NEW(out, ckpt_curve_point, most);
    if (point == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "curve of %zu points", most);
    }
    int count = 0;
    ckpt_curve_point best = {.time_ns = INT64_MAX};
    ckpt_bytes from = 0;
    for (int i = 0; i < curve->point_count; i++) {
        const ckpt_curve_point *const planned = &curve->point[i];
        const ckpt_curve_point *known = NULL;
        while ((known = next_faster(curve, from, planned->budget_bytes, best.time_ns)) != NULL) {
            best = *known;
            from = known->budget_bytes;
            point[count++] = point_at(known, known->budget_bytes, planned);
        }
        from = planned->budget_bytes;
        known = next_faster(curve, from, from + 1, best.time_ns < planned->time_ns ? best.time_ns : planned->time_ns);
        best = known != NULL ? *known : planned->time_ns <= best.time_ns ? *planned : best;
        point[count++] = best.time_ns < planned->time_ns ? point_at(&best, from, planned) : *planned;
    }
    curve->point = point;
    curve->point_count = count;
    return CKPT_OK;
}

typedef struct measure {
    const ckpt_graph *graph;
    const ckpt_strategy *strategy;
    ckpt_plan_options options;
    const ckpt_curve *curve; /* whose budgets are asked about */
    ckpt_curve_point *point;
    int count;
} measure;

/* Adds a point where the strategy has a plan within the budget; else *lowest receives the minimum budget that it
 * reports. */
static ckpt_code try_budget(measure *m, ckpt_bytes budget, ckpt_bytes *lowest, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_plan *plan = NULL;
    m->options.budget_bytes = budget;
    CKPT_TRY(ckpt_plan_make(m->graph, m->strategy->name, &m->options, scratch, &plan, err));
    *lowest = plan->min_budget_bytes;
    if (plan->verdict == CKPT_FITS) {
        m->point[m->count] = point_of(plan);
        m->point[m->count].has_bound = false; /* the planner's is the better one */
        m->point[m->count].strategy = m->strategy->name;
        m->count++;
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

/* At the strategy's minimum budget and, for a strategy that reads the budget, at the budgets of the curve above
 * that. */
static ckpt_code measure_baseline(measure *m, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_bytes top = m->curve->point[m->curve->point_count - 1].budget_bytes;
    ckpt_bytes lowest = 1;
    for (int i = 0; i < MIN_BUDGET_ROUNDS && m->count == 0 && lowest > 0 && lowest <= top; i++) {
        CKPT_TRY(try_budget(m, lowest, &lowest, scratch, err));
    }
    for (int i = 0; m->strategy->budgeted && m->count > 0 && i < m->curve->point_count; i++) {
        const ckpt_bytes budget = m->curve->point[i].budget_bytes;
        if (budget > m->point[m->count - 1].budget_bytes && !ckpt_plan_stopped(&m->options)) {
            CKPT_TRY(try_budget(m, budget, &lowest, scratch, err));
        }
    }
    return CKPT_OK;
}

/* keep-all is in the curve already, and without a link recompute-only is what auto does. */
static bool is_compared(const ckpt_strategy *strategy, const ckpt_graph *graph)
{
    return strategy->baseline && (!strategy->link || graph->has_link) && strcmp(strategy->name, "keep-all") != 0 &&
           (graph->has_link || strcmp(strategy->name, "recompute-only") != 0);
}

static int count_compared(const ckpt_graph *graph)
{
    int count = 0;
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        count += is_compared(ckpt_strategy_table[i], graph);
    }
    return count;
}

ckpt_code ckpt_curve_baselines(ckpt_curve *curve, const ckpt_graph *graph, const ckpt_plan_options *options,
                               void (*report)(void *context, int done, int count), ckpt_arena *out, ckpt_err *err)
{
    const int most = count_compared(graph);
    ckpt_curve_baseline *const baseline = CKPT_NEW(out, ckpt_curve_baseline, most);
    if (baseline == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d baselines", most);
    }
    int done = 0;
    for (int i = 0; ckpt_strategy_table[i] != NULL && curve->point_count > 0; i++) {
        const ckpt_strategy *const strategy = ckpt_strategy_table[i];
        if (!is_compared(strategy, graph)) {
            continue;
        }
        if (report != NULL) {
            report(options->context, done, most);
        }
        measure m = {.graph = graph, .strategy = strategy, .options = *options, .curve = curve};
        m.point = CKPT_NEW(out, ckpt_curve_point, curve->point_count + 1);
        if (m.point == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "points of %s", strategy->name);
        }
        curve->complete = curve->complete && !ckpt_plan_stopped(options);
        if (!curve->complete) {
            break;
        }
        CKPT_TRY(measure_baseline(&m, out, err));
        if (m.count > 0) {
            baseline[curve->baseline_count++] = (ckpt_curve_baseline){strategy->name, m.point, m.count};
        }
        done++;
    }
    curve->complete = curve->complete && !ckpt_plan_stopped(options);
    curve->baseline = baseline;
    CKPT_TRY(take_baselines(curve, out, err));
    if (report != NULL) {
        report(options->context, most, most);
    }
    return CKPT_OK;
}

static void add_row(const ckpt_curve *curve, const ckpt_curve_point *point, const char *kind, ckpt_text *text)
{
    char number[CKPT_REAL_TEXT];
    ckpt_text_add(text, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,", point->budget_bytes, point->peak_bytes,
                  point->time_ns, ckpt_real_fixed(ckpt_excess(point->time_ns, curve->keep_all_time_ns), 6, number));
    if (point->has_bound) {
        ckpt_text_add(text, "%" PRId64 ",%s", point->bound_ns,
                      ckpt_real_fixed(ckpt_excess(point->time_ns, point->bound_ns), 6, number));
    } else {
        ckpt_text_add(text, ",");
    }
    ckpt_text_add(text, ",%s%s%s\n", point->strategy, curve->baseline_count > 0 ? "," : "",
                  curve->baseline_count > 0 ? kind : "");
}

void ckpt_curve_csv(const ckpt_curve *curve, ckpt_text *text)
{
    ckpt_text_add(text, "budget_bytes,peak_bytes,time_ns,overhead,bound_ns,gap,strategy%s\n",
                  curve->baseline_count > 0 ? ",kind" : "");
    for (int i = 0; i < curve->point_count; i++) {
        add_row(curve, &curve->point[i], "planner", text);
    }
    for (int b = 0; b < curve->baseline_count; b++) {
        for (int i = 0; i < curve->baseline[b].point_count; i++) {
            add_row(curve, &curve->baseline[b].point[i], "baseline", text);
        }
    }
}
