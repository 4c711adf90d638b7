/* Integer programs solved whole: reduced costs against the incumbent leave few of the recomputations to branch on. */
#include "planner/ilp/ilp.h"

#include <math.h>
#include <string.h>

#include "planner/ilp/ilp_impl.h"

enum {
    FIXINGS_MAX = 4,
    FIXED_LEAST = 8,
    ROWS_COMMON = 600, /* of a program whose branchings are counted as one each */
};

/* The solver's feasibility tolerance, in parts of the whole: what it says about times is not believed beyond that. This
 * is care, not proof: its pivots and prunings are floating point all the same (Neumaier, Shcherbina, Safe bounds in
 * linear and mixed-integer linear programming, 2004), so what follows from it is called
 * CKPT_ILP_HOW and never exact. */
static const double trusted = 1e-7;

ckpt_ns ckpt_ilp_grain(const ckpt_graph *graph)
{
    ckpt_ns grain = 0;
    for (int o = 0; o < graph->op_count; o++) {
        ckpt_ns a = graph->op[o].time_ns;
        while (a > 0) { /* Euclid */
            const ckpt_ns rest = grain % a;
            grain = a;
            a = rest;
        }
    }
    return grain > 0 ? grain : 1;
}

/* The least time that is no less than `value` units say: rounded down by the tolerance, then up to what
 * times can be. */
static ckpt_ns bound_of(const ckpt_ilp_model *model, double value, ckpt_ns grain)
{
    if (!(value > 0)) {
        return model->fixed_ns;
    }
    const double ns = value * model->ns;
    const double safe = ns - trusted * (ns + (double)grain);
    if (!(safe < 9e18)) {
        return INT64_MAX;
    }
    const ckpt_ns least = (ckpt_ns)fmax(ceil(safe), 0);
    ckpt_ns sum = 0;
    if (!ckpt_sum(model->fixed_ns, least, &sum)) {
        return INT64_MAX;
    }
    const ckpt_ns rest = sum % grain; /* all times are multiples of the grain */
    return rest > 0 && sum <= INT64_MAX - (grain - rest) ? sum + (grain - rest) : sum;
}

/* Points at or above this are not wanted; between it and `before` no time lies, unless times are finer than trusted. */
static double cutoff_of(const ckpt_ilp_model *model, ckpt_ns before, ckpt_ns grain)
{
    if (before == INT64_MAX) {
        return HUGE_VAL;
    }
    const double most = (double)(before - model->fixed_ns);
    return (most - fmax(0.5 * (double)grain, trusted * most)) / model->ns;
}

ckpt_code ckpt_ilp_model_solve(const ckpt_ilp_model *model, ckpt_ilp_pairs *pairs, ckpt_ns grain, ckpt_ns before,
                               int64_t nodes, const ckpt_plan_options *options, bool *found, ckpt_ns *bound,
                               int64_t *work, ckpt_err *err)
{
    const ckpt_program *const p = &model->program;
    *found = false;
    *bound = model->fixed_ns;
    if (model->impossible || before <= model->fixed_ns) {
        *bound = before;
        return CKPT_OK;
    }
    double *const x = ckpt_memory_get(((size_t)p->columns + 1) * sizeof *x);
    if (x == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "point of %d columns", p->columns);
    }
    const double cutoff = cutoff_of(model, before, grain);
    ckpt_solution s = {.x = x, .bound = -HUGE_VAL};
    const ckpt_code code = options->solver->solve(p, cutoff, (long)nodes, options, &s, err);
    if (code == CKPT_OK) {
        *work += (s.work + 10) * (int64_t)(p->rows / 50 + 1);
        *found = s.has_point;
        *bound = s.outcome == CKPT_NO_POINT ? bound_of(model, cutoff, grain) : bound_of(model, s.bound, grain);
        *bound = *bound < before ? *bound : before;
        for (int c = 0; c < p->columns && s.has_point; c++) {
            if (model->pair_of[c] >= 0) {
                pairs->pair[model->pair_of[c]].runs = x[c] > 0.5;
            }
        }
    }
    ckpt_memory_put(x);
    return code;
}

typedef struct whole {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena scratch;
    ckpt_ilp_pairs pairs;
    ckpt_ilp_model model;
    ckpt_ns grain, before, bound;
    int64_t work;
    bool none; /* the relaxation has no point below `before` */
} whole;

/* Pairs that cannot run (or must) in anything faster than `before`, by the reduced costs of the relaxation. */
static int fix_pairs(whole *w, const ckpt_solution *relaxed, const double *reduced)
{
    if (w->before == INT64_MAX) {
        return 0;
    }
    const double room = cutoff_of(&w->model, w->before, w->grain) - relaxed->value;
    const double safe = room + 1e-6 * (1 + fabs(relaxed->value));
    int fixed = 0;
    for (int c = 0; c < w->model.program.columns; c++) {
        const int p = w->model.pair_of[c];
        if (p >= 0 && fabs(reduced[c]) > safe) {
            w->pairs.pair[p].free = false;
            w->pairs.pair[p].runs = reduced[c] < 0;
            fixed++;
        }
    }
    return fixed;
}

/* Relax, fix, and again with what is left. */
static ckpt_code relax(whole *w, int *fixed, ckpt_err *err)
{
    const ckpt_program *const p = &w->model.program;
    double *const x = CKPT_NEW(&w->scratch, double, p->columns);
    double *const reduced = CKPT_NEW(&w->scratch, double, p->columns);
    if (x == NULL || reduced == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "relaxation of %d columns", p->columns);
    }
    ckpt_solution s = {.x = x};
    CKPT_TRY(w->options->solver->relax(p, 0, w->options, &s, reduced, err));
    w->work += s.work;
    *fixed = 0;
    w->none = s.outcome == CKPT_NO_POINT;
    if (s.outcome == CKPT_OPTIMAL) {
        const ckpt_ns bound = bound_of(&w->model, s.bound, w->grain);
        w->bound = bound > w->bound ? bound : w->bound;
        w->none = w->bound >= w->before;
        *fixed = fix_pairs(w, &s, reduced);
    }
    return CKPT_OK;
}

static ckpt_code reduce(whole *w, ckpt_err *err)
{
    int fixed = FIXED_LEAST;
    for (int i = 0; i <= FIXINGS_MAX && fixed > 0 && !w->none; i++) {
        CKPT_TRY(ckpt_ilp_model_build(w->graph, w->limit, &w->pairs, &w->scratch, &w->model, err));
        if (w->model.impossible || w->model.fixed_ns >= w->before) {
            w->none = true;
        } else if (fixed >= FIXED_LEAST && i < FIXINGS_MAX) {
            CKPT_TRY(relax(w, &fixed, err));
        } else {
            fixed = 0;
        }
    }
    return CKPT_OK;
}

/* The point as a candidate. */
static ckpt_code offer(whole *w, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_ilp_pairs_write(w->graph, &w->pairs, &order);
    const ckpt_code code = ckpt_order_offer(&order, w->graph, w->limit, out, candidates, err);
    ckpt_order_fini(&order);
    return code;
}

static ckpt_code solve(whole *w, int64_t nodes, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(reduce(w, err));
    if (w->none) {
        w->bound = w->before;
        return CKPT_OK;
    }
    bool found = false;
    ckpt_ns bound = 0;
    const int64_t rows = w->model.program.rows + 1; /* so many iterations, each of so many rows */
    const int64_t paid_for = nodes > 0 ? 1 + nodes * ROWS_COMMON / rows * ROWS_COMMON / rows : 0;
    CKPT_TRY(ckpt_ilp_model_solve(&w->model, &w->pairs, w->grain, w->before, paid_for, w->options, &found, &bound,
                                  &w->work, err));
    w->bound = bound > w->bound ? bound : w->bound;
    return found ? offer(w, out, candidates, err) : CKPT_OK;
}

/* As much as is small enough: any recomputation anywhere, or at least what backward needs. */
static ckpt_code choose_pairs(whole *w, int pairs_max, const char **scope, ckpt_err *err)
{
    static const struct {
        bool any;
        int passes;
        const char *scope;
    } choice[] = {{true, 2, CKPT_ILP_SCOPE_TWICE}, {true, 1, CKPT_ILP_SCOPE_ANY}, {false, 1, CKPT_ILP_SCOPE}};
    for (size_t i = 0; i < sizeof choice / sizeof *choice && (i == 0 || w->pairs.count > pairs_max); i++) {
        *scope = choice[i].scope;
        CKPT_TRY(
            ckpt_ilp_pairs_find(w->graph, choice[i].any, choice[i].passes, pairs_max, &w->scratch, &w->pairs, err));
    }
    for (int p = 0; p < w->pairs.count && w->pairs.count <= pairs_max; p++) {
        w->pairs.pair[p].free = true;
    }
    return CKPT_OK;
}

ckpt_code ckpt_ilp_solve(const ckpt_graph *graph, ckpt_bytes limit, int pairs_max, int64_t nodes,
                         const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    if (options->solver == NULL || limit == CKPT_BYTES_MAX) {
        return CKPT_OK;
    }
    whole w = {.graph = graph,
               .limit = limit,
               .options = options,
               .grain = ckpt_ilp_grain(graph),
               .before = candidates->count > 0 ? candidates->candidate[0].time : INT64_MAX};
    ckpt_arena_init(&w.scratch);
    const char *scope = NULL;
    ckpt_code code = choose_pairs(&w, pairs_max, &scope, err);
    const bool known = code == CKPT_OK && candidates->has_bound && strcmp(candidates->bound_how, CKPT_ILP_HOW) == 0 &&
                       strcmp(candidates->bound_scope, scope) == 0;
    const bool small = code == CKPT_OK && w.pairs.count <= pairs_max && !known;
    if (small) {
        code = solve(&w, nodes, out, candidates, err);
    }
    if (small && code == CKPT_OK && w.bound < INT64_MAX && (!candidates->has_bound || w.bound > candidates->bound_ns)) {
        candidates->has_bound = true;
        candidates->bound_ns = w.bound;
        candidates->bound_scope = scope;
        candidates->bound_how = CKPT_ILP_HOW;
    }
    ckpt_arena_fini(&w.scratch);
    return code;
}
