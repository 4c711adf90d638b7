/* Sweeps: step times at every budget of either, as step functions: at a budget one has the plan of the largest budget
 * below. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

void ckpt_match_sweeps(ckpt_comparer *c)
{
    const ckpt_curve *const base = c->file[0]->curve, *const fresh = c->file[1]->curve;
    ckpt_match_name(c, "model", base->graph_name, fresh->graph_name);
    const bool known = base->graph_sha256[0] != '\0' && fresh->graph_sha256[0] != '\0';
    if (c->d->mismatch_count == 0 && known && strcmp(base->graph_sha256, fresh->graph_sha256) != 0) {
        ckpt_compare_set_bytes(c, "static block", base->static_bytes, fresh->static_bytes);
        if (c->d->setting_count == 0) {
            ckpt_compare_set(c, "graph", CKPT_COMPARE_SAY(c, "digest %.12s", base->graph_sha256),
                             CKPT_COMPARE_SAY(c, "digest %.12s", fresh->graph_sha256));
        }
    }
    if (base->keep_all_time_ns != fresh->keep_all_time_ns) {
        (void)ckpt_match_costs(c, base->costs, fresh->costs);
    }
}

/* The plan at a budget, searched from point *next on, as budgets rise; NULL: none fits. */
static const ckpt_curve_point *at_budget(const ckpt_curve *curve, ckpt_bytes budget, int *next)
{
    while (*next < curve->point_count && curve->point[*next].budget_bytes <= budget) {
        (*next)++;
    }
    return *next > 0 ? &curve->point[*next - 1] : NULL;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All budgets of both, once each. */
static ckpt_bytes *take_budgets(ckpt_comparer *c, int *count)
{
    const ckpt_curve *const a = c->file[0]->curve, *const b = c->file[1]->curve;
    const int most = a->point_count + b->point_count;
    ckpt_bytes *const budget = CKPT_COMPARE_NEW(c, ckpt_bytes, most);
    *count = 0;
    for (int i = 0; i < most && budget != NULL; i++) {
        budget[i] = i < a->point_count ? a->point[i].budget_bytes : b->point[i - a->point_count].budget_bytes;
    }
    if (budget != NULL) {
        qsort(budget, (size_t)most, sizeof *budget, by_number);
    }
    for (int i = 0; i < most && budget != NULL; i++) {
        if (i == 0 || budget[i] != budget[i - 1]) {
            budget[(*count)++] = budget[i];
        }
    }
    return budget;
}

/* What a step function tells is the most that a step takes at a budget: between a sweep's own budgets the planner may
 * do better. So NEW is worse for certain where it has a point of its own, and better where BASE has one. */
static const char *other_budgets(ckpt_ns base, ckpt_ns fresh, bool exact, bool fresh_exact)
{
    return fresh > base && !fresh_exact ? "NEW has no point at this budget"
           : fresh < base && !exact     ? "BASE has no point at this budget"
                                        : "";
}

void ckpt_compare_sweeps(ckpt_comparer *c)
{
    const ckpt_curve *const curve[2] = {c->file[0]->curve, c->file[1]->curve};
    int count = 0, next[2] = {0, 0};
    const ckpt_bytes *const budget = take_budgets(c, &count);
    ckpt_compare_row *const row = CKPT_COMPARE_NEW(c, ckpt_compare_row, count);
    for (int i = 0; i < count && c->code == CKPT_OK; i++) {
        const ckpt_curve_point *const a = at_budget(curve[0], budget[i], &next[0]);
        const ckpt_curve_point *const b = at_budget(curve[1], budget[i], &next[1]);
        ckpt_number base = ckpt_exact(a != NULL ? a->time_ns : 0), fresh = ckpt_exact(b != NULL ? b->time_ns : 0);
        base.has = a != NULL;
        fresh.has = b != NULL;
        base.why = a == NULL   ? "BASE has no plan"
                   : b == NULL ? "NEW has no plan"
                               : other_budgets(a->time_ns, b->time_ns, a->budget_bytes == budget[i],
                                               b->budget_bytes == budget[i]);
        char text[CKPT_UNITS_TEXT];
        row[i] =
            (ckpt_compare_row){.name = ckpt_compare_keep(c, ckpt_arena_text(c->out, ckpt_bytes_show(budget[i], text))),
                               .part = "",
                               .budget_bytes = budget[i],
                               .value = ckpt_compare_value_of(c, ckpt_metric_find("step_time"), &base, &fresh)};
        ckpt_compare_judge(c, &row[i].value);
    }
    c->d->row = row;
    c->d->row_count = c->code == CKPT_OK ? count : 0;
    c->d->row_title = "budget";
    c->d->lost = curve[0]->point_count > 0 && curve[1]->point_count == 0;
    for (int s = 0; s < 2; s++) {
        if (!curve[s]->complete) {
            ckpt_compare_note(c,
                              s == 0 ? "BASE ended early: points are missing" : "NEW ended early: points are missing");
        }
    }
}

static double growth(const ckpt_compare_value *value)
{
    return value->base > 0 ? (double)(value->fresh - value->base) / (double)value->base : 0;
}

/* The step time is that at the budget where it grew most, of those at which it can be told. */
void ckpt_sweep_step_time(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    const ckpt_compare_row *worst = NULL;
    for (int i = 0; i < c->d->row_count; i++) {
        const ckpt_compare_row *const row = &c->d->row[i];
        if (row->value.has_base && row->value.has_new && row->value.change != CKPT_CHANGE_UNJUDGED &&
            (worst == NULL || growth(&row->value) > growth(&worst->value))) {
            worst = row;
        }
    }
    if (worst != NULL) {
        *number = ckpt_exact(side == 0 ? worst->value.base : worst->value.fresh);
        number->where = CKPT_COMPARE_SAY(c, "at %s", worst->name);
    }
}

/* Mean of the step function from `from` to `to`. */
static ckpt_ns mean(const ckpt_curve *curve, ckpt_bytes from, ckpt_bytes to)
{
    double sum = 0;
    for (int i = 0; i < curve->point_count; i++) {
        const double begin = fmax((double)curve->point[i].budget_bytes, (double)from);
        const double end =
            i + 1 < curve->point_count ? fmin((double)curve->point[i + 1].budget_bytes, (double)to) : (double)to;
        sum += end > begin ? (end - begin) * (double)curve->point[i].time_ns : 0;
    }
    return llround(fmin(sum / ((double)to - (double)from), 9e18));
}

/* Whether both have points at the same budgets. Else one has points between the other's, and the means tell nothing. */
static bool same_budgets(const ckpt_curve *a, const ckpt_curve *b, ckpt_bytes from)
{
    int i = 0, k = 0;
    (void)at_budget(a, from - 1, &i);
    (void)at_budget(b, from - 1, &k);
    while (i < a->point_count && k < b->point_count && a->point[i].budget_bytes == b->point[k].budget_bytes) {
        i++;
        k++;
    }
    return i == a->point_count && k == b->point_count;
}

void ckpt_sweep_mean(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    const ckpt_curve *const a = c->file[0]->curve, *const b = c->file[1]->curve;
    if (a->point_count == 0 || b->point_count == 0) {
        return;
    }
    const ckpt_bytes first =
        a->point[0].budget_bytes > b->point[0].budget_bytes ? a->point[0].budget_bytes : b->point[0].budget_bytes;
    const ckpt_bytes last = c->d->row_count > 0 ? c->d->row[c->d->row_count - 1].budget_bytes : first;
    if (last > first) {
        *number = ckpt_exact(mean(c->file[side]->curve, first, last));
        number->why = same_budgets(a, b, first) ? "" : "the sweeps have other budgets";
    }
}

void ckpt_compare_min_budget(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    const ckpt_curve *const curve = c->file[side]->curve;
    *number = ckpt_exact(curve->point_count > 0 ? curve->point[0].budget_bytes : curve->min_budget_bytes);
}
