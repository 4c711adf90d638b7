/* The curve of time over budget, sampled where it bends. A plan for a smaller budget also fits a larger one, so this file keeps it where the
 * planner's plan for the larger budget is slower. */
#include <string.h>

#include "planner/analysis/analysis.h"
#include "planner/schedule/schedule.h"

enum { MIN_BUDGET_ROUNDS = 8 };

/* Walks the steps backwards: a free belongs to a copy only when the next step with that buffer is a fetch. */
ckpt_code ckpt_plan_candidate(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                              ckpt_candidate *candidate, ckpt_err *err)
{
    int *const entry = CKPT_NEW(out, int, plan->step_count);
    const ckpt_mark mark = ckpt_arena_mark(out);
    bool *const fetched = CKPT_NEW(out, bool, graph->buffer_count); /* later, before any rewrite */
    if (entry == NULL || fetched == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d steps", plan->step_count);
    }
    int at = plan->step_count;
    for (int i = plan->step_count - 1; i >= 0; i--) {
        const ckpt_step *const step = &plan->step[i];
        if (step->kind == CKPT_RUN) {
            entry[--at] = (int)(ckpt_step_op(graph, step) - graph->op);
            const ckpt_list *const writes = &ckpt_step_op(graph, step)->writes;
            for (int k = 0; k < writes->count; k++) {
                fetched[writes->at[k]] = false;
            }
        } else if (step->kind != CKPT_FREE || fetched[step->target]) {
            entry[--at] = ckpt_sequence_copy(step->kind, step->target);
            fetched[step->target] = step->kind == CKPT_FETCH;
        }
    }
    ckpt_arena_rewind(out, mark);
    const ckpt_sequence sequence = {entry + at, plan->step_count - at};
    *candidate = (ckpt_candidate){.sequence = sequence, .by = plan->solver};
    return ckpt_sequence_measure(graph, &sequence, out, &candidate->peak, &candidate->time, err);
}

typedef struct sweeper {
    const ckpt_graph *graph;
    const char *strategy;
    ckpt_plan_options options;
    ckpt_candidate incumbent; /* of the last plan */
    ckpt_arena *out;
} sweeper;

static ckpt_code make(sweeper *s, ckpt_bytes budget, ckpt_plan **plan, ckpt_err *err)
{
    s->options.budget_bytes = budget;
    return ckpt_plan_make(s->graph, s->strategy, &s->options, s->out, plan, err);
}

/* The plan at the minimum budget. When planning at the minimum that the planner reports gives a higher minimum, that
 * one is planned. */
static ckpt_code find_min_budget(sweeper *s, ckpt_plan **plan, ckpt_err *err)
{
    CKPT_TRY(make(s, 1, plan, err));
    for (int i = 0; i < MIN_BUDGET_ROUNDS && (*plan)->verdict == CKPT_INFEASIBLE; i++) {
        CKPT_TRY(make(s, (*plan)->min_budget_bytes, plan, err));
    }
    return CKPT_OK;
}

/* `plan` is for a larger budget than `before`, but slower: take the steps of `before` with the bound of `plan`. */
static void keep_before(const ckpt_plan *before, ckpt_plan *plan)
{
    const ckpt_plan made = *plan;
    *plan = *before;
    plan->budget_bytes = made.budget_bytes;
    plan->has_bound = made.has_bound && made.bound_ns <= before->time_ns;
    plan->bound_ns = made.bound_ns;
    plan->bound_how = made.bound_how;
    plan->bound_scope = made.bound_scope;
    plan->solver_seconds = made.solver_seconds;
}

/* A plan with the same time and no less memory is dropped too, so that the curve stays the same to the byte. */
static bool no_better(const ckpt_plan *plan, const ckpt_plan *before)
{
    return plan->verdict != CKPT_FITS || plan->time_ns > before->time_ns ||
           (plan->time_ns == before->time_ns && plan->peak_bytes >= before->peak_bytes);
}

/* A plan within `budget`, no slower than `before` is, which is for a smaller budget. */
static ckpt_code plan_next(sweeper *s, const ckpt_plan *before, ckpt_bytes budget, ckpt_plan **plan, ckpt_err *err)
{
    CKPT_TRY(ckpt_plan_candidate(before, s->graph, s->out, &s->incumbent, err));
    s->options.incumbent = &s->incumbent;
    s->options.incumbent_count = 1;
    CKPT_TRY(make(s, budget, plan, err));
    if (no_better(*plan, before)) {
        keep_before(before, *plan);
    }
    return CKPT_OK;
}

/* Between which neighbours the curve is known least: the area of the box that it passes through. -1: every budget
 * between them is known, or makes no difference. */
static int find_widest(ckpt_plan *const *plan, int count)
{
    double most = 0;
    int widest = -1;
    for (int i = 0; i + 1 < count; i++) {
        const ckpt_bytes bytes = plan[i + 1]->budget_bytes - plan[i]->budget_bytes;
        const double area = (double)bytes * (double)(plan[i]->time_ns - plan[i + 1]->time_ns);
        if (bytes > 1 && area > most) {
            most = area;
            widest = i;
        }
    }
    return widest;
}

/* From the minimum, which is planned, to `top`: always halfway between the neighbours of the widest gap. A plan that is
 * faster than those of larger budgets takes their place. */
static ckpt_code plan_between(sweeper *s, ckpt_sweep *sweep, ckpt_plan **plan, int points, ckpt_bytes top,
                              void (*report)(void *context, int done, int points), ckpt_err *err)
{
    while (sweep->count < points) {
        const int before = sweep->count == 1 ? 0 : find_widest(plan, sweep->count);
        if (before < 0) {
            break;
        }
        if (ckpt_plan_stopped(&s->options)) {
            sweep->stopped = true;
            break;
        }
        if (report != NULL) {
            report(s->options.context, sweep->count, points);
        }
        const ckpt_bytes low = plan[before]->budget_bytes;
        const ckpt_bytes budget = sweep->count == 1 ? top : low + (plan[before + 1]->budget_bytes - low) / 2;
        ckpt_plan *made = NULL;
        CKPT_TRY(plan_next(s, plan[before], budget, &made, err));
        for (int i = sweep->count++; i > before + 1; i--) {
            plan[i] = plan[i - 1];
        }
        plan[before + 1] = made;
        for (int i = before + 2; i < sweep->count && no_better(plan[i], plan[i - 1]); i++) {
            keep_before(plan[i - 1], plan[i]);
        }
    }
    return CKPT_OK;
}

/* A bound at a larger budget also holds at every smaller one. */
static void hand_down_bounds(ckpt_plan *const *plan, int count)
{
    for (int i = count - 2; i >= 0; i--) {
        const ckpt_plan *const larger = plan[i + 1];
        if (larger->has_bound && (!plan[i]->has_bound || (larger->bound_ns > plan[i]->bound_ns &&
                                                          strcmp(larger->bound_scope, plan[i]->bound_scope) == 0))) {
            plan[i]->has_bound = true;
            plan[i]->bound_ns = larger->bound_ns;
            plan[i]->bound_how = ckpt_bound_how(larger->bound_ns, larger->bound_how, plan[i]->time_ns);
            if (strcmp(plan[i]->bound_how, "exact") == 0 && plan[i]->bound_ns < plan[i]->time_ns) {
                plan[i]->bound_how = "exact under a larger budget";
            }
            plan[i]->bound_scope = larger->bound_scope;
        }
    }
}

ckpt_code ckpt_sweep_make(const ckpt_graph *graph, const char *strategy, int points, const ckpt_plan_options *options,
                          void (*report)(void *context, int done, int points), ckpt_arena *out, ckpt_sweep *sweep,
                          ckpt_err *err)
{
    sweeper s = {.graph = graph, .strategy = strategy, .options = *options, .out = out};
    ckpt_plan **const plan = CKPT_NEW(out, ckpt_plan *, points);
    ckpt_plan *lowest = NULL;
    if (plan == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sweep of %d points", points);
    }
    *sweep = (ckpt_sweep){.plan = plan, .count = 1};
    CKPT_TRY(find_min_budget(&s, &lowest, err));
    const ckpt_bytes low = lowest->budget_bytes;
    ckpt_bytes top = options->budget_bytes > 0 ? options->budget_bytes : lowest->keep_all_peak_bytes;
    top = options->budget_bytes == 0 && top < low ? low : top;
    plan[0] = lowest;
    points = top - low < points ? (int)(top > low ? top - low : 0) + 1 : points;
    if (ckpt_plan_stopped(options)) {
        sweep->stopped = true;
        return CKPT_OK;
    }
    if (lowest->verdict == CKPT_INFEASIBLE || top < low) { /* stopped before anything was found; or nothing to sweep */
        sweep->stopped = lowest->verdict == CKPT_INFEASIBLE;
        return sweep->stopped ? CKPT_OK : make(&s, top, &plan[0], err);
    }
    CKPT_TRY(points > 1 ? plan_between(&s, sweep, plan, points, top, report, err)
                        : plan_next(&s, lowest, top, &plan[0], err));
    hand_down_bounds(plan, sweep->count);
    if (report != NULL) {
        report(options->context, points, points);
    }
    return CKPT_OK;
}
