/* labels: unit */
/* Comparisons against plain loops over the same files: what is in memory at both peaks, what decisions cost, step functions of
 * sweeps, limits; names of groups; too little memory. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "tests/support/support_golden.h"
#include "tests/support/support_graphs.h"
#include "viz/compare/compare.h"

typedef ckpt_test_fixture fixture;

static const ckpt_difference *compare(fixture *f, const ckpt_compare_file *base, const ckpt_compare_file *fresh,
                                      const ckpt_compare_options *options)
{
    const ckpt_compare_report *report = NULL;
    CHECK_OK(ckpt_compare_make(base, fresh, 1, options, &f->arena, &report, &f->err), f->err);
    assert_true(report->count == 1 && report->kind == base->kind);
    return &report->difference[0];
}

static ckpt_compare_file of_plan(const ckpt_plan *plan)
{
    return (ckpt_compare_file){.source = "plan.json", .kind = CKPT_COMPARE_PLAN, .plan = plan};
}

static ckpt_plan *plan_of(fixture *f, const ckpt_graph *graph, const char *strategy)
{
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {0};
    CHECK_OK(ckpt_plan_make(graph, strategy, &options, &f->arena, &plan, &f->err), f->err);
    CHECK_OK(ckpt_plan_outline(graph, &f->arena, &plan->outline, &f->err), f->err);
    return plan;
}

/* Within that many per cent of keep-all's peak. */
static ckpt_plan *plan_at(fixture *f, const ckpt_graph *graph, const char *strategy, int percent)
{
    ckpt_plan *plan = NULL;
    ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
    options.budget_bytes = plan_of(f, graph, "keep-all")->peak_bytes / 100 * percent;
    CHECK_OK(ckpt_plan_make(graph, strategy, &options, &f->arena, &plan, &f->err), f->err);
    CHECK_OK(ckpt_plan_outline(graph, &f->arena, &plan->outline, &f->err), f->err);
    return plan;
}

/* The first run at which most is in memory, from the allocations alone. */
static int peak_step(const ckpt_plan *plan, ckpt_bytes *most)
{
    int at = -1;
    *most = -1;
    for (int s = 0; s < plan->step_count; s++) {
        ckpt_bytes live = plan->static_bytes;
        for (int p = 0; p < plan->allocation_count; p++) {
            live += plan->allocation[p].from <= s && s <= plan->allocation[p].to ? plan->allocation[p].bytes : 0;
        }
        if (plan->step[s].kind == CKPT_RUN && live > *most) {
            *most = live;
            at = s;
        }
    }
    return at;
}

/* Bytes of that name at step `at`; a workspace has the name of its op. */
static ckpt_bytes bytes_of(const ckpt_plan *plan, int at, const char *name, bool workspace)
{
    ckpt_bytes sum = 0;
    for (int p = 0; p < plan->allocation_count; p++) {
        const ckpt_allocation *const allocation = &plan->allocation[p];
        const bool own = strcmp(allocation->name, "workspace") == 0;
        const char *const called = own ? plan->step[allocation->from].name : allocation->name;
        if (allocation->from <= at && at <= allocation->to && own == workspace && strcmp(called, name) == 0) {
            sum += allocation->bytes;
        }
    }
    return sum;
}

static ckpt_bytes static_of(const ckpt_plan *plan, const char *name)
{
    for (int i = 0; i < plan->outline.static_count; i++) {
        if (strcmp(plan->outline.statics[i].name, name) == 0) {
            return plan->outline.statics[i].bytes;
        }
    }
    return 0;
}

static void check_contributors(const ckpt_difference *d, const ckpt_plan *a, const ckpt_plan *b)
{
    ckpt_bytes most_a = 0, most_b = 0, sum = 0;
    const int at_a = peak_step(a, &most_a), at_b = peak_step(b, &most_b);
    assert_true(most_a == a->peak_bytes && most_b == b->peak_bytes);
    for (int i = 0; i < d->contributor_count; i++) {
        const ckpt_contributor *const c = &d->contributor[i];
        const bool workspace = strcmp(c->what, "workspace") == 0;
        const bool block = strcmp(c->what, "static") == 0;
        const ckpt_bytes was = block ? static_of(a, c->name) : bytes_of(a, at_a, c->name, workspace);
        const ckpt_bytes now = block ? static_of(b, c->name) : bytes_of(b, at_b, c->name, workspace);
        CHECK(c->base == was && c->fresh == now, "%s: %lld and %lld bytes", c->name, (long long)c->base,
              (long long)c->fresh);
        CHECK(c->base != c->fresh && (c->fresh == 0 || (c->reason[0] != '\0') == !block), "%s (%s): \"%s\"", c->name,
              c->what, c->reason);
        sum += c->fresh - c->base;
    }
    assert_true(sum == most_b - most_a);
    for (int k = 0; k < a->outline.buffer_count; k++) { /* and none is left out */
        const char *const name = a->outline.buffer[k].name;
        bool listed = false;
        for (int i = 0; i < d->contributor_count; i++) {
            listed = listed || strcmp(d->contributor[i].name, name) == 0;
        }
        assert_true(listed || bytes_of(a, at_a, name, false) == bytes_of(b, at_b, name, false));
    }
}

static ckpt_ns again_of(const ckpt_plan *plan, const char *layer)
{
    ckpt_ns sum = 0;
    for (int s = 0; s < plan->step_count; s++) {
        for (int o = 0; o < plan->outline.op_count; o++) {
            const ckpt_outline_op *const op = &plan->outline.op[o];
            if (plan->step[s].kind == CKPT_RUN && plan->step[s].recomputed &&
                strcmp(op->name, plan->step[s].name) == 0 && strcmp(op->layer, layer) == 0) {
                sum += op->time_ns;
            }
        }
    }
    return sum;
}

static bool has_layer(const ckpt_plan *plan, const char *layer)
{
    for (int k = 0; k < plan->layer_count; k++) {
        if (strcmp(plan->layer[k].layer, layer) == 0) {
            return true;
        }
    }
    return false;
}

static ckpt_decision decision_of(const ckpt_plan *plan, const char *layer)
{
    for (int k = 0; k < plan->layer_count; k++) {
        if (strcmp(plan->layer[k].layer, layer) == 0) {
            return plan->layer[k].decision;
        }
    }
    return CKPT_KEEP;
}

static const ckpt_compare_layer *layer_of(const ckpt_difference *d, const char *layer)
{
    for (int i = 0; i < d->layer_count; i++) {
        if (d->layer[i].fate <= CKPT_LAYER_REMOVED && strcmp(d->layer[i].layer, layer) == 0) {
            return &d->layer[i];
        }
    }
    return NULL;
}

/* What was decided on layers of both, recomputed where, added and removed; and whether all shares add up. */
static void check_layers(const ckpt_difference *d, const ckpt_plan *a, const ckpt_plan *b)
{
    const int64_t all[] = {[CKPT_SHARE_PEAK] = b->peak_bytes - a->peak_bytes,
                           [CKPT_SHARE_TIME] = b->time_ns - a->time_ns,
                           [CKPT_SHARE_RECOMPUTED] = b->recompute_ns - a->recompute_ns,
                           [CKPT_SHARE_COPIED] = b->offload_bytes - a->offload_bytes,
                           [CKPT_SHARE_HOST] = b->host_bytes - a->host_bytes};
    const bool copies = a->offload_bytes > 0 || b->offload_bytes > 0;
    for (int s = 0; s <= CKPT_SHARE_HOST; s++) {
        int64_t by_layer = 0, by_group = 0;
        for (int i = 0; i < d->layer_count; i++) {
            by_layer += d->layer[i].by[s];
            /* The files tell everything: only waits for copies are no layer's. */
            assert_true(s == CKPT_SHARE_KEEP_ALL || d->layer[i].fate != CKPT_LAYER_REST || d->layer[i].by[s] == 0 ||
                        (s == CKPT_SHARE_TIME && copies));
        }
        for (int g = 0; g < d->layer_group_count; g++) {
            by_group += d->layer_group[g].by[s];
        }
        CHECK(s == CKPT_SHARE_KEEP_ALL || by_layer == all[s], "share %d: %lld of %lld", s, (long long)by_layer,
              (long long)all[s]);
        assert_true(by_group == by_layer);
    }
    int grouped = 0;
    for (int g = 0; g < d->layer_group_count; g++) {
        grouped += d->layer_group[g].count;
    }
    assert_true(grouped == d->layer_count && d->layers_known);
    for (int side = 0; side < 2; side++) {
        const ckpt_plan *const own = side == 0 ? a : b, *const other = side == 0 ? b : a;
        for (int k = 0; k < own->layer_count; k++) {
            const char *const name = own->layer[k].layer;
            const ckpt_compare_layer *const l = layer_of(d, name);
            const ckpt_ns again = again_of(b, name) - again_of(a, name);
            if (!has_layer(other, name)) {
                assert_true(l != NULL && l->fate == (side == 0 ? CKPT_LAYER_REMOVED : CKPT_LAYER_ADDED) && !l->decided);
            } else if (decision_of(a, name) != decision_of(b, name)) {
                assert_true(l != NULL && l->decided && l->base == decision_of(a, name) &&
                            l->fresh == decision_of(b, name));
            }
            assert_true((l == NULL ? 0 : l->by[CKPT_SHARE_RECOMPUTED]) == again);
        }
    }
}

/* Whatever exceeds a limit, its lines add up to what changed: in points, to rounding. */
static int check_causes(fixture *f, const ckpt_compare_file *files)
{
    ckpt_limit limit[16];
    int count = 0, exceeded = 0;
    CHECK_OK(ckpt_limits_parse("peak=0,arena=0,static=0,step_time=0,recompute=0,overhead=0,gap=0,offload=0,host=0,"
                               "keep_all_time=0,other_ways=0",
                               true, limit, 16, &count, &f->arena, &f->err),
             f->err);
    const ckpt_difference *const d =
        compare(f, &files[0], &files[1], &(ckpt_compare_options){.limit = limit, .limit_count = count});
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        int64_t sum = 0;
        bool counts = false;
        for (int k = 0; k < r->because_count; k++) {
            assert_true(!counts || r->because[k].counts); /* what was set stands first */
            counts = counts || r->because[k].counts;
            sum += r->because[k].change;
        }
        if (r->state == CKPT_LIMIT_EXCEEDED) {
            const int64_t change = r->value->fresh - r->value->base;
            const int64_t off = r->value->metric->unit == CKPT_UNIT_RATIO ? d->layer_group_count + 2 : 0;
            CHECK(counts && llabs(sum - change) <= off, "%s: %lld of %lld", r->limit->text, (long long)sum,
                  (long long)change);
            assert_true(d->setting_count == 0 || strcmp(d->setting[0].what, "budget") != 0 ||
                        strcmp(r->limit->metric->name, "static") == 0 ||
                        strncmp(r->because[0].text, "budget: ", 8) == 0);
            exceeded++;
        }
    }
    return exceeded;
}

static void plans_against_plain_loops(void **state)
{
    static const char *const strategies[] = {"keep-all", "recompute-all", "greedy", "sqrt"};
    fixture *const f = *state;
    const uint64_t rounds = ckpt_test_rounds(80, 15);
    int changed = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&f->arena);
        const ckpt_graph *const graph = ckpt_test_step(&f->arena, ckpt_test_draw(1000000), 3 + (int)ckpt_test_draw(12));
        const ckpt_plan *const a = plan_of(f, graph, strategies[ckpt_test_draw(4)]);
        const ckpt_plan *const b = plan_of(f, graph, strategies[ckpt_test_draw(4)]);
        if (a->verdict == CKPT_FITS && b->verdict == CKPT_FITS) {
            const ckpt_compare_file files[] = {of_plan(a), of_plan(b)};
            const ckpt_compare_options options = {0};
            const ckpt_difference *const d = compare(f, &files[0], &files[1], &options);
            assert_true(d->compared && d->mismatch_count == 0 && d->contributors_known);
            check_contributors(d, a, b);
            check_layers(d, a, b);
            (void)check_causes(f, files);
            changed += d->layer_count > 0;
            const ckpt_difference *const back = compare(f, &files[1], &files[0], &options);
            assert_true(back->worse == d->better && back->better == d->worse);
            check_contributors(back, b, a);
        }
        ckpt_arena_rewind(&f->arena, mark);
    }
    CHECK(changed > 5, "only %d pairs had changed decisions", changed);
}

/* Plans of two networks that share names: what was added, removed and resized, and what each does, adds up. */
static void contributors_add_up_on_random_pairs(void **state)
{
    static const char *const strategies[] = {"keep-all", "recompute-all", "greedy", "auto", "search"};
    fixture *const f = *state;
    const uint64_t rounds = ckpt_test_rounds(80, 40);
    int pairs = 0, exceeded = 0, copied = 0, fates[CKPT_LAYER_REST + 1] = {0};
    for (uint64_t i = 0; i < rounds; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&f->arena);
        ckpt_plan *plan[2];
        for (int k = 0; k < 2; k++) {
            ckpt_graph *const graph = ckpt_test_step(&f->arena, ckpt_test_draw(1000000), 3 + (int)ckpt_test_draw(12));
            graph->has_link = i % 2 == 0;
            graph->d2h_bytes_per_s = graph->h2d_bytes_per_s = INT64_C(1) << ckpt_test_draw(40);
            plan[k] = plan_at(f, graph, strategies[ckpt_test_draw(5)], 75 + (int)ckpt_test_draw(40));
        }
        if (plan[0]->verdict == CKPT_FITS && plan[1]->verdict == CKPT_FITS) {
            plan[0]->graph_name = plan[1]->graph_name = "net";
            plan[1]->budget_bytes = plan[0]->budget_bytes + (ckpt_bytes)ckpt_test_draw(2);
            const ckpt_compare_file files[] = {of_plan(plan[0]), of_plan(plan[1])};
            const ckpt_difference *const d = compare(f, &files[0], &files[1], &(ckpt_compare_options){0});
            assert_true(d->compared && d->mismatch_count == 0);
            check_contributors(d, plan[0], plan[1]);
            check_layers(d, plan[0], plan[1]);
            exceeded += check_causes(f, files);
            for (int l = 0; l < d->layer_count; l++) {
                fates[d->layer[l].fate]++;
            }
            copied += plan[0]->offload_bytes > 0 || plan[1]->offload_bytes > 0;
            pairs++;
        }
        ckpt_arena_rewind(&f->arena, mark);
    }
    CHECK(pairs > 5 && exceeded > pairs && fates[CKPT_LAYER_RESIZED] > 0 && fates[CKPT_LAYER_ADDED] > 0 &&
              fates[CKPT_LAYER_REMOVED] > 0 && fates[CKPT_LAYER_STATIC] > 0 && copied > 0,
          "%d pairs, %d limits exceeded, %d with copies: too few", pairs, exceeded, copied);
}

/* A plan of layers that all change alike, and nothing else. */
static const ckpt_compare_group *group_of(fixture *f, const char *const *layer, int count, int *groups)
{
    ckpt_layer_decision keep[16], recomputed[16];
    for (int i = 0; i < count; i++) {
        keep[i] = (ckpt_layer_decision){layer[i], CKPT_KEEP};
        recomputed[i] = (ckpt_layer_decision){layer[i], CKPT_RECOMPUTE};
    }
    ckpt_plan a = {.source = "a", .graph_name = "g", .costs = "", .layer = keep, .layer_count = count};
    ckpt_plan b = a;
    b.layer = recomputed;
    const ckpt_compare_file files[] = {of_plan(&a), of_plan(&b)};
    const ckpt_compare_options options = {0};
    const ckpt_difference *const d = compare(f, &files[0], &files[1], &options);
    *groups = d->layer_group_count;
    return d->layer_group;
}

static void names_of_groups(void **state)
{
    fixture *const f = *state;
    static const struct {
        const char *layer[6];
        int count, groups;
        const char *name;
        int members, of;
    } cases[] = {
        {{"h.0.mlp", "h.1.mlp", "h.2.mlp"}, 3, 1, "h.0 … h.2.mlp", 3, 0},
        {{"h.0.mlp", "h.2.mlp", "h.10.mlp"}, 3, 1, "h.0 … h.10.mlp", 3, 11},
        {{"h.0.mlp", "h.1.att"}, 2, 2, "h.0.mlp", 1, 0},
        {{"h.0", "h.1"}, 2, 1, "h.0 … h.1", 2, 0},
        {{"s.0.b.0.c", "s.0.b.1.c", "s.1.b.0.c"}, 3, 1, "s.0.b.0.c … s.1.b.0.c", 3, 0},
        {{"s.0.b.0.c", "s.0.b.1.c"}, 2, 1, "s.0.b.0 … s.0.b.1.c", 2, 0},
        {{"0", "1"}, 2, 1, "0 … 1", 2, 0},
        {{"a..0", "a..1", ".", ""}, 4, 3, "a..0 … a..1", 2, 0},
        {{"x.99999999999999999999.y", "x.1.y"}, 2, 1, "x.99999999999999999999 … x.1.y", 2, 0},
        {{"only"}, 1, 1, "only", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int groups = 0;
        const ckpt_compare_group *const g = group_of(f, cases[i].layer, cases[i].count, &groups);
        CHECK(groups == cases[i].groups, "case %zu: %d groups", i, groups);
        bool found = false;
        for (int k = 0; k < groups; k++) {
            found = found ||
                    (strcmp(g[k].name, cases[i].name) == 0 && g[k].count == cases[i].members && g[k].of == cases[i].of);
        }
        CHECK(found, "case %zu: \"%s\" ×%d of %d, wanted \"%s\"", i, g[0].name, g[0].count, g[0].of, cases[i].name);
    }
}

static ckpt_curve *random_curve(fixture *f)
{
    ckpt_curve *const curve = CKPT_NEW(&f->arena, ckpt_curve, 1);
    const int count = (int)ckpt_test_draw(6);
    ckpt_curve_point *const point = CKPT_NEW(&f->arena, ckpt_curve_point, count);
    ckpt_bytes budget = 10 + (ckpt_bytes)ckpt_test_draw(20);
    ckpt_ns time = 1000;
    for (int i = 0; i < count; i++) {
        point[i] = (ckpt_curve_point){.budget_bytes = budget, .time_ns = time};
        budget += 1 + (ckpt_bytes)ckpt_test_draw(20);
        time -= (ckpt_ns)ckpt_test_draw(100);
    }
    *curve = (ckpt_curve){.source = "s",
                          .graph_name = "g",
                          .costs = "",
                          .complete = true,
                          .point = point,
                          .point_count = count,
                          .min_budget_bytes = count == 0 ? 200 : 0};
    return curve;
}

/* The time of the last point that the budget pays for; -1: none. */
static ckpt_ns time_at(const ckpt_curve *curve, ckpt_bytes budget)
{
    ckpt_ns time = -1;
    for (int i = 0; i < curve->point_count; i++) {
        time = curve->point[i].budget_bytes <= budget ? curve->point[i].time_ns : time;
    }
    return time;
}

static const ckpt_compare_value *value_of(const ckpt_difference *d, const char *name)
{
    for (int i = 0; i < d->value_count; i++) {
        if (strcmp(d->value[i].metric->name, name) == 0) {
            return &d->value[i];
        }
    }
    return NULL;
}

static bool has_point(const ckpt_curve *curve, ckpt_bytes budget)
{
    for (int i = 0; i < curve->point_count; i++) {
        if (curve->point[i].budget_bytes == budget) {
            return true;
        }
    }
    return false;
}

static void sweeps_against_every_budget(void **state)
{
    fixture *const f = *state;
    for (int round = 0; round < 200; round++) {
        const ckpt_curve *const a = random_curve(f), *const b = random_curve(f);
        const ckpt_compare_file files[] = {{.source = "a", .kind = CKPT_COMPARE_SWEEP, .curve = a},
                                           {.source = "b", .kind = CKPT_COMPARE_SWEEP, .curve = b}};
        const ckpt_compare_options options = {0};
        const ckpt_difference *const d = compare(f, &files[0], &files[1], &options);
        double worst = -2, sum_a = 0, sum_b = 0;
        ckpt_bytes first = 0, last = 0;
        bool alike = true; /* where both have plans, points are at the same budgets */
        for (int i = 0; i < d->row_count; i++) {
            const ckpt_compare_value *const v = &d->row[i].value;
            const ckpt_bytes budget = d->row[i].budget_bytes;
            const ckpt_ns x = time_at(a, budget), y = time_at(b, budget);
            assert_true(v->has_base == (x >= 0) && v->has_new == (y >= 0));
            assert_true((x < 0 || v->base == x) && (y < 0 || v->fresh == y));
            if (x >= 0 && y >= 0) {
                const bool told = y == x || has_point(y > x ? b : a, budget);
                const double growth = (double)(y - x) / (double)x;
                assert_true((v->change == CKPT_CHANGE_UNJUDGED) == !told);
                worst = told && growth > worst ? growth : worst;
                alike = alike && has_point(a, budget) == has_point(b, budget);
                first = first == 0 ? budget : first;
                last = budget;
            }
        }
        assert_true(d->lost == (a->point_count > 0 && b->point_count == 0));
        const ckpt_compare_value *const step = value_of(d, "step_time"), *const mean = value_of(d, "mean_time");
        assert_true((step != NULL) == (worst > -2));
        if (step != NULL) {
            assert_true((double)(step->fresh - step->base) / (double)step->base == worst);
        }
        assert_true((mean != NULL) == (last > first));
        for (ckpt_bytes budget = first; budget < last; budget++) { /* one byte after the other */
            sum_a += (double)time_at(a, budget);
            sum_b += (double)time_at(b, budget);
        }
        if (mean != NULL) {
            assert_true(alike || mean->change == CKPT_CHANGE_UNJUDGED || mean->base == mean->fresh);
            assert_true(!alike || mean->change != CKPT_CHANGE_UNJUDGED);
            assert_true(llabs((int64_t)(sum_a / (double)(last - first) + 0.5) - mean->base) <= 1);
            assert_true(llabs((int64_t)(sum_b / (double)(last - first) + 0.5) - mean->fresh) <= 1);
        }
    }
}

/* Each kind of limit at its edge: one more than it allows is exceeded, that itself is not. */
static void limits_to_the_byte(void **state)
{
    fixture *const f = *state;
    static const struct {
        const char *text;
        bool increase;
        int64_t base, allowed;
    } cases[] = {
        {"peak=1GB", false, 5, 1000000000},
        {"peak=0", true, 12345, 12345},
        {"peak=1kB", true, 12345, 13345},
        {"peak=3%", true, 1000001, 1030001},
        {"peak=0.0001%", true, 999999, 999999},
        {"peak=0.0001%", true, 1000000, 1000001},
        {"peak=100%", true, INT64_MAX / 2, INT64_MAX - 1},
        {"peak=250%", true, INT64_MAX / 2, INT64_MAX},
        {"peak=50%", true, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int over = 0; over < 2 && (over == 0 || cases[i].allowed < INT64_MAX); over++) {
            ckpt_limit limit[4];
            int count = 0;
            CHECK_OK(ckpt_limits_parse(cases[i].text, cases[i].increase, limit, 4, &count, &f->arena, &f->err), f->err);
            const ckpt_compare_options options = {.limit = limit, .limit_count = count};
            const ckpt_plan a = {.source = "a", .graph_name = "g", .costs = "", .peak_bytes = cases[i].base};
            ckpt_plan b = a;
            b.peak_bytes = cases[i].allowed + over;
            const ckpt_compare_file files[] = {of_plan(&a), of_plan(&b)};
            const ckpt_difference *const d = compare(f, &files[0], &files[1], &options);
            CHECK(d->limit_count == 1 && d->limit[0].allowed == cases[i].allowed, "%s: allows %lld, wanted %lld",
                  cases[i].text, (long long)d->limit[0].allowed, (long long)cases[i].allowed);
            assert_true((d->limit[0].state == CKPT_LIMIT_EXCEEDED) == (over == 1) && d->exceeded == (over == 1));
            assert_true((d->limit[0].because_count > 0) == (over == 1));
        }
    }
}

/* Everything of every kind, written in every form. */
static ckpt_code write_all(const ckpt_compare_report *report, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_compare_text(report, true, &text);
    ckpt_compare_json(report, &text);
    ckpt_compare_markdown(report, 0, &text);
    ckpt_compare_csv(report, &text);
    ckpt_compare_junit(report, &text);
    ckpt_compare_html(report, &text);
    ckpt_compare_annotations(report, &text);
    ckpt_metrics_text(&text);
    const ckpt_code code = ckpt_text_end(&text, err);
    ckpt_text_fini(&text);
    return code;
}

typedef struct pair {
    ckpt_compare_file file[2];
} pair;

static ckpt_code starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    static const char *const limits[CKPT_COMPARE_KIND_COUNT] = {
        "peak=0,step_time=3%,recompute=0,gap=1%", "step_time=0,backward=1%", "peak=0,step_time=1%,recompute=0",
        "step_time=0,least_budget=0"};
    const pair *const p = context;
    ckpt_limit limit[8];
    int count = 0;
    const ckpt_compare_report *report = NULL;
    ckpt_code code = ckpt_limits_parse(limits[p->file[0].kind], true, limit, 8, &count, arena, err);
    const ckpt_compare_options options = {.limit = limit, .limit_count = count, .force = true};
    code = code == CKPT_OK ? ckpt_compare_make(&p->file[0], &p->file[1], 1, &options, arena, &report, err) : code;
    return code == CKPT_OK ? write_all(report, err) : code;
}

static void starve(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_test_step(&f->arena, 4711, 8);
    const ckpt_plan *const a = plan_of(f, graph, "keep-all"), *const b = plan_of(f, graph, "recompute-all");
    pair plans = {{of_plan(a), of_plan(b)}};
    assert_true(ckpt_test_starve_arena(starved, &plans) > 20);
    pair traces = {{{.source = "a", .kind = CKPT_COMPARE_TRACE}, {.source = "b", .kind = CKPT_COMPARE_TRACE}}};
    CHECK_OK(ckpt_plan_as_trace(a, &f->arena, &traces.file[0].trace, &f->err), f->err);
    CHECK_OK(ckpt_plan_as_trace(b, &f->arena, &traces.file[1].trace, &f->err), f->err);
    assert_true(ckpt_test_starve_arena(starved, &traces) > 10);
    static const ckpt_ns fast[] = {10, 11, 12, 13, 14, 15}, slow[] = {20, 21, 22, 23, 24, 25};
    const ckpt_profile_row rows[2] = {{.layer = "x", .op = "relu", .same_as = "", .forward = {12, 3, 6, fast}},
                                      {.layer = "x", .op = "relu", .same_as = "", .forward = {22, 3, 6, slow}}};
    const ckpt_machine machine = {"cpu: a, 1 threads", "", "", "l", "", "", "", 1, false};
    const ckpt_machine other = {"cpu: b, 1 threads", "", "", "m", "", "", "", 2, false};
    const ckpt_profile profiles[2] = {
        {.source = "a", .model = "m", .machine = machine, .recorder = "", .row = &rows[0], .row_count = 1},
        {.source = "b", .model = "n", .machine = other, .recorder = "", .row = &rows[1], .row_count = 1}};
    pair profile = {{{.source = "a", .kind = CKPT_COMPARE_PROFILE, .profile = &profiles[0]},
                     {.source = "b", .kind = CKPT_COMPARE_PROFILE, .profile = &profiles[1]}}};
    assert_true(ckpt_test_starve_arena(starved, &profile) > 10);
    const ckpt_curve_point points[] = {{.budget_bytes = 10, .time_ns = 9}, {.budget_bytes = 20, .time_ns = 8}};
    const ckpt_curve curves[2] = {
        {.source = "a", .graph_name = "g", .costs = "roofline of a", .point = points, .point_count = 2},
        {.source = "b",
         .graph_name = "g",
         .costs = "roofline of b",
         .point = points + 1,
         .point_count = 1,
         .keep_all_time_ns = 3}};
    pair sweep = {{{.source = "a", .kind = CKPT_COMPARE_SWEEP, .curve = &curves[0]},
                   {.source = "b", .kind = CKPT_COMPARE_SWEEP, .curve = &curves[1]}}};
    assert_true(ckpt_test_starve_arena(starved, &sweep) > 10);
}

/* Which ways differ between hand-made plans: of blocks, of one that is told no times, of a plan and itself. */
static void ways_that_changed(void **state)
{
    fixture *const f = *state;
    const ckpt_graph *const graph = ckpt_golden_ways(4, &f->arena);
    ckpt_plan base = *ckpt_golden_ways_plan(graph, 4, &f->arena), fresh = *ckpt_golden_ways_plan(graph, 1, &f->arena);
    ckpt_outline_op own[20];
    CHECK_OK(ckpt_plan_outline(graph, &f->arena, &base.outline, &f->err), f->err);
    fresh.outline = base.outline;
    base.costs = fresh.costs = base.source = fresh.source = "";
    const ckpt_compare_file file[] = {of_plan(&base), of_plan(&fresh)};
    const ckpt_difference *d = compare(f, &file[0], &file[0], &(ckpt_compare_options){0});
    assert_true(d->way_count == 0 && d->way_group_count == 0 && d->note_count == 0);
    d = compare(f, &file[0], &file[1], &(ckpt_compare_options){0});
    assert_int_equal(d->way_count, 9); /* three ops of three blocks */
    assert_int_equal(d->way_group_count, 3);
    const ckpt_way_group *const g = d->way_group;
    assert_string_equal(g[0].name, "h.1 … h.3.conv/forward");
    assert_string_equal(g[0].base, "winograd (inexact)");
    assert_string_equal(g[0].fresh, "gemm");
    assert_true(g[0].count == 3 && g[0].timed && g[0].time_ns == 3 * 50000);
    assert_string_equal(g[1].fresh, "not run");
    assert_true(g[1].count == 3 && g[1].timed && g[1].time_ns == -3 * 5000);
    assert_string_equal(g[2].base, "bits");
    assert_string_equal(g[2].fresh, "output");
    assert_true(g[2].count == 3 && g[2].timed && g[2].time_ns == -3 * 500);
    assert_non_null(strstr(d->note[d->note_count - 1], "other bits: 3 ops are"));
    memcpy(own, base.outline.op, sizeof own);
    for (int i = 0; i < 20; i++) {
        own[i].way_count = 0;
    }
    base.outline.op = own;
    d = compare(f, &file[0], &file[1], &(ckpt_compare_options){0});
    assert_int_equal(d->way_group_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(d->way_group[i].timed, strcmp(d->way_group[i].fresh, "not run") == 0);
    }
    pair both = {{file[0], file[1]}};
    assert_true(ckpt_test_starve_arena(starved, &both) > 10);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_against_plain_loops, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(contributors_add_up_on_random_pairs, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(names_of_groups, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(sweeps_against_every_budget, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(limits_to_the_byte, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(ways_that_changed, ckpt_test_open, ckpt_test_close),
        cmocka_unit_test_setup_teardown(starve, ckpt_test_open, ckpt_test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
