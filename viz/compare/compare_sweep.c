/* Sweeps: step times at every budget of either, as stairs: at a budget one has the plan of the largest budget below. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

ckpt_code ckpt_match_sweeps(ckpt_comparer *c)
{
    const ckpt_curve *const base = c->base->curve, *const fresh = c->fresh->curve;
    CKPT_TRY(ckpt_match_name(c, "model", base->graph_name, fresh->graph_name));
    const bool known = base->graph_sha256[0] != '\0' && fresh->graph_sha256[0] != '\0';
    if (c->d->mismatch_count == 0 && known && strcmp(base->graph_sha256, fresh->graph_sha256) != 0) {
        char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT];
        const bool sizes = base->static_bytes != fresh->static_bytes;
        CKPT_TRY(ckpt_compare_mismatched(
            c, "graph",
            sizes ? ckpt_arena_format(c->out, "a static block of %s", ckpt_bytes_show(base->static_bytes, was))
                  : ckpt_arena_format(c->out, "digest %.12s", base->graph_sha256),
            sizes ? ckpt_arena_format(c->out, "a static block of %s", ckpt_bytes_show(fresh->static_bytes, is))
                  : ckpt_arena_format(c->out, "digest %.12s", fresh->graph_sha256)));
    }
    return base->keep_all_time_ns == fresh->keep_all_time_ns ? CKPT_OK : ckpt_match_costs(c, base->costs, fresh->costs);
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
static ckpt_code take_budgets(ckpt_comparer *c, ckpt_bytes **budget, int *count)
{
    const ckpt_curve *const a = c->base->curve, *const b = c->fresh->curve;
    const int most = a->point_count + b->point_count;
    *budget = CKPT_NEW(c->out, ckpt_bytes, most);
    if (*budget == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d budgets", most);
    }
    for (int i = 0; i < most; i++) {
        (*budget)[i] = i < a->point_count ? a->point[i].budget_bytes : b->point[i - a->point_count].budget_bytes;
    }
    qsort(*budget, (size_t)most, sizeof **budget, by_number);
    *count = 0;
    for (int i = 0; i < most; i++) {
        if (i == 0 || (*budget)[i] != (*budget)[i - 1]) {
            (*budget)[(*count)++] = (*budget)[i];
        }
    }
    return CKPT_OK;
}

/* What the stairs tell is the most that a step takes at a budget: between a sweep's own budgets the planner may do
 * better. So NEW is worse for certain where it has a point of its own, and better where BASE has one. */
static const char *other_budgets(const ckpt_compare_value *value, bool exact, bool fresh_exact)
{
    return value->fresh > value->base && !fresh_exact ? "NEW has no point at this budget"
           : value->fresh < value->base && !exact     ? "BASE has no point at this budget"
                                                      : "";
}

static ckpt_code add_rows(ckpt_comparer *c, const ckpt_bytes *budget, int count)
{
    ckpt_compare_row *const row = CKPT_NEW(c->out, ckpt_compare_row, count);
    if (row == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d budgets", count);
    }
    int next = 0, fresh_next = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_curve_point *const a = at_budget(c->base->curve, budget[i], &next);
        const ckpt_curve_point *const b = at_budget(c->fresh->curve, budget[i], &fresh_next);
        char text[CKPT_UNITS_TEXT];
        row[i] = (ckpt_compare_row){
            .name = ckpt_arena_text(c->out, ckpt_bytes_show(budget[i], text)),
            .part = "",
            .budget_bytes = budget[i],
            .value = ckpt_compare_number("step_time", a != NULL ? a->time_ns : 0, b != NULL ? b->time_ns : 0)};
        row[i].value.has_base = a != NULL;
        row[i].value.has_new = b != NULL;
        row[i].value.why =
            a == NULL   ? "BASE has no plan"
            : b == NULL ? "NEW has no plan"
                        : other_budgets(&row[i].value, a->budget_bytes == budget[i], b->budget_bytes == budget[i]);
        if (row[i].name == NULL) {
            return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a budget");
        }
        CKPT_TRY(ckpt_compare_judge(c, &row[i].value));
    }
    c->d->row = row;
    c->d->row_count = count;
    c->d->row_title = "budget";
    return CKPT_OK;
}

static double growth(const ckpt_compare_value *value)
{
    return value->base > 0 ? (double)(value->fresh - value->base) / (double)value->base : 0;
}

/* The step time is that at the budget where it grew most, of those at which it can be told. */
static ckpt_code add_worst(ckpt_comparer *c)
{
    const ckpt_compare_row *worst = NULL;
    for (int i = 0; i < c->d->row_count; i++) {
        const ckpt_compare_row *const row = &c->d->row[i];
        if (row->value.has_base && row->value.has_new && row->value.change != CKPT_CHANGE_UNJUDGED &&
            (worst == NULL || growth(&row->value) > growth(&worst->value))) {
            worst = row;
        }
    }
    if (worst == NULL) {
        return CKPT_OK;
    }
    ckpt_compare_value *const value = ckpt_compare_add(c, "step_time", worst->value.base, worst->value.fresh);
    value->where = ckpt_arena_format(c->out, "at %s", worst->name);
    return value->where != NULL ? CKPT_OK : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for a budget");
}

/* Mean of the stairs from `from` to `to`. */
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

/* The mean is of stairs, and these tell nothing where one sweep has points between the other's. */
static bool same_budgets(const ckpt_curve *a, const ckpt_curve *b, ckpt_bytes from)
{
    int i = 0, k = 0;
    while (i < a->point_count && a->point[i].budget_bytes < from) {
        i++;
    }
    while (k < b->point_count && b->point[k].budget_bytes < from) {
        k++;
    }
    while (i < a->point_count && k < b->point_count && a->point[i].budget_bytes == b->point[k].budget_bytes) {
        i++;
        k++;
    }
    return i == a->point_count && k == b->point_count;
}

static void add_mean(ckpt_comparer *c)
{
    const ckpt_curve *const a = c->base->curve, *const b = c->fresh->curve;
    if (a->point_count == 0 || b->point_count == 0) {
        return;
    }
    const ckpt_bytes first =
        a->point[0].budget_bytes > b->point[0].budget_bytes ? a->point[0].budget_bytes : b->point[0].budget_bytes;
    const ckpt_bytes last_a = a->point[a->point_count - 1].budget_bytes,
                     last_b = b->point[b->point_count - 1].budget_bytes;
    const ckpt_bytes last = last_a > last_b ? last_a : last_b;
    if (last > first) {
        ckpt_compare_add(c, "mean_time", mean(a, first, last), mean(b, first, last))->why =
            same_budgets(a, b, first) ? "" : "the sweeps have other budgets";
    }
}

static ckpt_bytes least_of(const ckpt_curve *curve)
{
    return curve->point_count > 0 ? curve->point[0].budget_bytes : curve->min_budget_bytes;
}

ckpt_code ckpt_compare_sweeps(ckpt_comparer *c)
{
    const ckpt_curve *const a = c->base->curve, *const b = c->fresh->curve;
    ckpt_bytes *budget = NULL;
    int count = 0;
    CKPT_TRY(take_budgets(c, &budget, &count));
    CKPT_TRY(add_rows(c, budget, count));
    c->d->lost = a->point_count > 0 && b->point_count == 0;
    ckpt_compare_add(c, "least_budget", least_of(a), least_of(b));
    CKPT_TRY(add_worst(c));
    add_mean(c);
    ckpt_compare_add(c, "static", a->static_bytes, b->static_bytes);
    ckpt_compare_add(c, "keep_all_peak", a->keep_all_peak_bytes, b->keep_all_peak_bytes);
    ckpt_compare_add(c, "keep_all_time", a->keep_all_time_ns, b->keep_all_time_ns);
    for (int s = 0; s < 2; s++) {
        const ckpt_curve *const curve = s == 0 ? a : b;
        if (!curve->complete) {
            CKPT_TRY(ckpt_compare_note(
                c, ckpt_arena_format(c->out, "%s ended early: points are missing", s == 0 ? "BASE" : "NEW")));
        }
    }
    return CKPT_OK;
}
