/* labels: unit */
/* Answers beyond one plan: curves that never rise with the budget, the largest model, layers explained, strategies
 * compared; each against something plainer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/analysis/analysis.h"
#include "planner/analysis/review.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

static const ckpt_plan_options low_effort = {.effort = CKPT_EFFORT_LOW};

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        count++;
    }
    return count;
}

/* One CSV line and one point per plan that fits, with that plan's figures. */
static void check_texts(const ckpt_sweep *sweep, int points)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_err err = {0};
    ckpt_curve curve;
    CHECK_OK(ckpt_sweep_curve(sweep, &arena, &curve, &err), err);
    assert_int_equal(curve.point_count, points);
    for (int i = 0; i < points; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        const ckpt_curve_point *const point = &curve.point[i];
        CHECK(point->budget_bytes == plan->budget_bytes && point->peak_bytes == plan->peak_bytes &&
                  point->time_ns == plan->time_ns && point->has_bound == plan->has_bound &&
                  point->bound_ns == plan->bound_ns && strcmp(point->strategy, plan->solver) == 0,
              "point %d is not its plan", i);
    }
    CHECK(curve.min_budget_bytes == sweep->plan[0]->min_budget_bytes && curve.complete == !sweep->stopped, "head");
    ckpt_curve_csv(&curve, &text);
    CHECK(count_lines(text.bytes) == 1 + points, "CSV: %s", text.bytes);
    ckpt_text_fini(&text);
    ckpt_curve_write(&curve, &text);
    CHECK(count_of(text.bytes, "\"overhead\"") == points, "JSON: %s", text.bytes);
    ckpt_text_fini(&text);
}

static void check_curve(const ckpt_graph *graph, const ckpt_sweep *sweep, const char *what)
{
    ckpt_err err = {0};
    for (int i = 0; i < sweep->count; i++) {
        const ckpt_plan *const plan = sweep->plan[i];
        CHECK(plan->verdict == CKPT_FITS, "%s: point %d does not fit", what, i);
        CHECK_OK(ckpt_plan_check(plan, graph, &err), err);
        ckpt_test_replay(graph, plan, what);
        CHECK(!plan->has_bound || plan->bound_ns <= plan->time_ns, "%s: point %d below its bound", what, i);
        if (i > 0) {
            const ckpt_plan *const before = sweep->plan[i - 1];
            CHECK(plan->budget_bytes > before->budget_bytes, "%s: budgets do not rise at %d", what, i);
            CHECK(plan->time_ns <= before->time_ns, "%s: point %d is slower", what, i);
            CHECK(before->bound_ns >= plan->bound_ns || strcmp(before->bound_scope, plan->bound_scope) != 0,
                  "%s: bounds rise at %d", what, i);
        }
    }
}

/* Strategies that alone do give slower plans for larger budgets: the sweep must not. */
static void curves_never_rise(void **state)
{
    enum { POINTS = 9 };
    int risen = 0;
    const uint64_t planned = ckpt_test_rounds(2, 1);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 5 + (int)(seed * 5 % 11));
        ckpt_err err = {0};
        for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
            const char *const name = ckpt_strategy_table[s]->name;
            const bool planner = strcmp(name, "auto") == 0 || strcmp(name, "chain") == 0;
            if (!ckpt_strategy_table[s]->baseline &&
                (!planner || seed > 2 || seed + planned <= 2)) { /* the planners take longest */
                continue;
            }
            char what[80];
            snprintf(what, sizeof what, "seed %d, %s", (int)seed, name);
            ckpt_sweep sweep;
            CHECK_OK(ckpt_sweep_make(graph, name, POINTS, &low_effort, NULL, &arena, &sweep, &err), err);
            CHECK(!sweep.stopped && sweep.count >= 1, "%s: %d points", what, sweep.count);
            check_curve(graph, &sweep, what);
            const ckpt_plan *const last = sweep.plan[sweep.count - 1];
            CHECK(last->budget_bytes >= last->keep_all_peak_bytes, "%s: ends below keep-all", what);
            if (planner) {
                check_texts(&sweep, sweep.count);
            }
            ckpt_ns before = INT64_MAX;
            const ckpt_bytes least = sweep.plan[0]->budget_bytes;
            for (int i = 0; i < POINTS; i++) { /* budgets of that range, each alone */
                ckpt_plan *alone = NULL;
                const ckpt_plan_options options = {.budget_bytes =
                                                       least + (last->budget_bytes - least) * i / (POINTS - 1)};
                CHECK_OK(ckpt_plan_make(graph, name, &options, &arena, &alone, &err), err);
                if (alone->verdict == CKPT_FITS) {
                    risen += alone->time_ns > before;
                    before = alone->time_ns;
                }
            }
        }
    }
    CHECK(risen > 0, "no strategy alone ever gives a slower plan for a larger budget: this test shows nothing");
}

static void sweep_ends(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 4, 9, 9, 100, 9);
    ckpt_err err = {0};
    ckpt_sweep sweep;
    CHECK_OK(ckpt_sweep_make(graph, "chain", 5, &low_effort, NULL, &arena, &sweep, &err), err);
    const ckpt_bytes least = sweep.plan[0]->budget_bytes;
    const ckpt_bytes top = sweep.plan[sweep.count - 1]->budget_bytes;
    assert_int_equal(sweep.count, 5);

    ckpt_plan_options options = {.budget_bytes = (least + top) / 2};
    CHECK_OK(ckpt_sweep_make(graph, "chain", 3, &options, NULL, &arena, &sweep, &err), err);
    assert_int_equal(sweep.count, 3);
    assert_int_equal(sweep.plan[0]->budget_bytes, least);
    assert_int_equal(sweep.plan[2]->budget_bytes, options.budget_bytes);

    CHECK_OK(ckpt_sweep_make(graph, "chain", 1, &options, NULL, &arena, &sweep, &err), err);
    assert_int_equal(sweep.count, 1);
    assert_int_equal(sweep.plan[0]->budget_bytes, options.budget_bytes);

    options.budget_bytes = least - 1;
    CHECK_OK(ckpt_sweep_make(graph, "chain", 4, &options, NULL, &arena, &sweep, &err), err);
    assert_int_equal(sweep.count, 1);
    assert_int_equal(sweep.plan[0]->verdict, CKPT_INFEASIBLE);
    assert_int_equal(sweep.plan[0]->min_budget_bytes, least);
    check_texts(&sweep, 0);

    options.budget_bytes = least + 2; /* only three budgets are there, and no more are asked for than differ in time */
    CHECK_OK(ckpt_sweep_make(graph, "chain", 100, &options, NULL, &arena, &sweep, &err), err);
    CHECK(sweep.count >= 2 && sweep.count <= 3, "%d points", sweep.count);

    options = (ckpt_plan_options){.cancelled = ckpt_test_cancelled};
    CHECK_OK(ckpt_sweep_make(graph, "chain", 5, &options, NULL, &arena, &sweep, &err), err);
    CHECK(sweep.stopped && sweep.count <= 1, "stopped before it began, and %d points", sweep.count);
}

/* Each baseline's points are what it gives when it is asked alone; one that nobody could tell apart from the planner,
 * and budgets it cannot meet, are not there. */
static void baselines_are_what_they_say(void **state)
{
    enum { POINTS = 6 };
    int several = 0;
    int single = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 12);
        ckpt_err err = {0};
        ckpt_sweep sweep;
        ckpt_curve curve;
        CHECK_OK(ckpt_sweep_make(graph, "hierarchy", POINTS, &low_effort, NULL, &arena, &sweep, &err), err);
        CHECK_OK(ckpt_sweep_curve(&sweep, &arena, &curve, &err), err);
        CHECK_OK(ckpt_curve_baselines(&curve, graph, &low_effort, NULL, &arena, &err), err);
        CHECK(curve.complete && curve.baseline_count >= 3, "seed %d: %d baselines", (int)seed, curve.baseline_count);
        const ckpt_bytes top = curve.point[curve.point_count - 1].budget_bytes;
        for (int b = 0; b < curve.baseline_count; b++) {
            const ckpt_curve_baseline *const baseline = &curve.baseline[b];
            const ckpt_strategy *const strategy = ckpt_strategy_find(baseline->strategy);
            CHECK(strategy != NULL && strategy->baseline && !strategy->link, "%s", baseline->strategy);
            CHECK(strcmp(strategy->name, "keep-all") != 0 && strcmp(strategy->name, "recompute-only") != 0, "%s",
                  baseline->strategy);
            several += baseline->point_count > 1;
            single += !strategy->budgeted;
            CHECK(strategy->budgeted ? baseline->point_count >= 1 : baseline->point_count == 1, "%s: %d points",
                  baseline->strategy, baseline->point_count);
            ckpt_plan *nothing = NULL;
            const ckpt_plan_options none = {.budget_bytes = 1};
            CHECK_OK(ckpt_plan_make(graph, baseline->strategy, &none, &arena, &nothing, &err), err);
            CHECK(nothing->min_budget_bytes == baseline->point[0].budget_bytes, "%s: begins at %lld, needs %lld",
                  baseline->strategy, (long long)baseline->point[0].budget_bytes, (long long)nothing->min_budget_bytes);
            for (int i = 0; i < baseline->point_count; i++) {
                const ckpt_bytes budget = baseline->point[i].budget_bytes;
                ckpt_plan *alone = NULL;
                const ckpt_plan_options options = {.budget_bytes = budget};
                CHECK_OK(ckpt_plan_make(graph, baseline->strategy, &options, &arena, &alone, &err), err);
                CHECK(alone->verdict == CKPT_FITS && alone->time_ns == baseline->point[i].time_ns &&
                          alone->peak_bytes == baseline->point[i].peak_bytes && budget <= top,
                      "%s: another plan at %lld", baseline->strategy, (long long)budget);
                CHECK(i < 1 || budget > baseline->point[i - 1].budget_bytes, "%s: falling budgets", strategy->name);
            }
        }
        ckpt_text text;
        ckpt_text_init(&text);
        ckpt_curve_csv(&curve, &text);
        CHECK(count_of(text.bytes, ",planner\n") == curve.point_count, "CSV: %s", text.bytes);
        CHECK(count_of(text.bytes, ",baseline\n") == count_lines(text.bytes) - 1 - curve.point_count, "CSV: %s",
              text.bytes);
        ckpt_text_fini(&text);

        const ckpt_plan_options stopped = {.cancelled = ckpt_test_cancelled};
        curve.baseline_count = 0;
        CHECK_OK(ckpt_curve_baselines(&curve, graph, &stopped, NULL, &arena, &err), err);
        CHECK(!curve.complete, "ended early, and complete");
    }
    CHECK(several > 0 && single > 0, "%d with several points, %d with one: this shows nothing", several, single);
}

/* The time of the curve's step function at a budget. */
static ckpt_ns time_at(const ckpt_curve *curve, ckpt_bytes budget)
{
    ckpt_ns time = INT64_MAX;
    for (int i = 0; i < curve->point_count && curve->point[i].budget_bytes <= budget; i++) {
        time = curve->point[i].time_ns;
    }
    return time;
}

/* Between two sampled budgets ckpt's curve stood above a baseline. "recompute-all" stands for a planner that others
 * beat. */
static void curve_is_never_above_a_known_plan(void **state)
{
    int beaten = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 12);
        ckpt_err err = {0};
        ckpt_sweep sweep;
        ckpt_curve curve;
        CHECK_OK(ckpt_sweep_make(graph, "recompute-all", 3, &low_effort, NULL, &arena, &sweep, &err), err);
        CHECK_OK(ckpt_sweep_curve(&sweep, &arena, &curve, &err), err);
        const ckpt_curve before = curve;
        CHECK_OK(ckpt_curve_baselines(&curve, graph, &low_effort, NULL, &arena, &err), err);
        for (int b = 0; b < curve.baseline_count; b++) {
            for (int i = 0; i < curve.baseline[b].point_count; i++) {
                const ckpt_curve_point *const point = &curve.baseline[b].point[i];
                CHECK(time_at(&curve, point->budget_bytes) <= point->time_ns, "seed %d: above %s at %lld", (int)seed,
                      curve.baseline[b].strategy, (long long)point->budget_bytes);
                beaten += time_at(&before, point->budget_bytes) > point->time_ns;
            }
        }
        for (int i = 1; i < curve.point_count; i++) {
            CHECK(curve.point[i].budget_bytes > curve.point[i - 1].budget_bytes &&
                      curve.point[i].time_ns <= curve.point[i - 1].time_ns,
                  "seed %d: the curve rises at point %d", (int)seed, i);
        }
    }
    CHECK(beaten > 0, "no baseline beats this planner: this shows nothing");
}

/* A plan's schedule, taken from its steps, measures as the plan says. */
static void plans_are_starts(void **state)
{
    int offloads = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_graph graph = *ckpt_test_step(&arena, seed, 10);
        graph.has_link = true;
        graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = (int64_t)1 << 40;
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns time = 0;
        CHECK_OK(ckpt_keep_all_measure(&graph, &arena, &whole, &time, &err), err);
        for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
            ckpt_plan *plan = NULL;
            const ckpt_plan_options options = {.budget_bytes = whole * 8 / 10};
            CHECK_OK(ckpt_plan_make(&graph, ckpt_strategy_table[s]->name, &options, &arena, &plan, &err), err);
            if (plan->verdict == CKPT_FITS) {
                ckpt_candidate candidate;
                CHECK_OK(ckpt_plan_candidate(plan, &graph, &arena, &candidate, &err), err);
                CHECK(candidate.time == plan->time_ns && candidate.peak == plan->peak_bytes - graph.static_bytes,
                      "seed %d, %s: peak %lld and %lld ns, wanted %lld and %lld", (int)seed,
                      ckpt_strategy_table[s]->name, (long long)candidate.peak, (long long)candidate.time,
                      (long long)(plan->peak_bytes - graph.static_bytes), (long long)plan->time_ns);
                offloads += plan->offload_bytes > 0;
            }
        }
    }
    CHECK(offloads > 0, "no plan copies anything");
}

/* Bytes of what the layer's forward ops wrote and that are in memory right before the first step that runs anything
 * after the last forward op of the beginning; by looking back from there, buffer by buffer. */
static ckpt_bytes kept_plainly(const ckpt_graph *graph, const ckpt_plan *plan, const char *layer)
{
    int forward = 0;
    while (forward < graph->op_count && graph->op[forward].phase == CKPT_FORWARD) {
        forward++;
    }
    int end = 0;
    while (!(plan->step[end].kind == CKPT_RUN && plan->step[end].target == forward - 1)) {
        end++;
    }
    for (end++; end < plan->step_count && plan->step[end].kind != CKPT_RUN; end++) {
    }
    ckpt_bytes sum = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_graph_op *const op = &graph->op[graph->writer[b]];
        if (op->phase != CKPT_FORWARD || strcmp(op->layer, layer) != 0) {
            continue;
        }
        for (int p = 0; p < plan->allocation_count; p++) {
            sum += plan->allocation[p].buffer == b && plan->allocation[p].from < end && plan->allocation[p].to >= end
                       ? graph->buffer[b].bytes
                       : 0;
        }
    }
    return sum;
}

static void layers_are_explained(void **state)
{
    int rerun = 0;
    const int seeds = (int)ckpt_test_rounds(12, 4);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 12);
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns time = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &time, &err), err);
        ckpt_plan *plan = NULL;
        const ckpt_plan_options options = {.budget_bytes = whole * 8 / 10};
        CHECK_OK(ckpt_plan_make(graph, "dtr", &options, &arena, &plan, &err), err);
        if (plan->verdict == CKPT_FITS) {
            ckpt_explanation explanation;
            CHECK_OK(ckpt_explain(plan, graph, "dtr", &options, &arena, &explanation, &err), err);
            assert_int_equal(explanation.layer_count, plan->layer_count);
            ckpt_ns recomputed = 0;
            for (int i = 0; i < explanation.layer_count; i++) {
                const ckpt_layer_report *const row = &explanation.layer[i];
                assert_string_equal(row->layer, plan->layer[i].layer);
                assert_int_equal(row->decision, plan->layer[i].decision);
                const ckpt_bytes kept = kept_plainly(graph, plan, row->layer);
                CHECK(row->kept_bytes == kept, "seed %d, %s: %lld bytes kept, wanted %lld", (int)seed, row->layer,
                      (long long)row->kept_bytes, (long long)kept);
                CHECK((row->recompute_ns > 0) == (row->decision == CKPT_RECOMPUTE), "seed %d, %s", (int)seed,
                      row->layer);
                recomputed += row->recompute_ns;
            }
            assert_int_equal(recomputed, plan->recompute_ns);
            for (int i = 0; i < explanation.more_count; i++) {
                const ckpt_more *const more = &explanation.more[i];
                CHECK(more->budget_bytes > plan->budget_bytes && more->plan->time_ns <= plan->time_ns,
                      "seed %d: more budget is worse", (int)seed);
                CHECK_OK(ckpt_plan_check(more->plan, graph, &err), err);
            }
            CHECK(explanation.more_count > 0 || plan->time_ns == time, "seed %d: nothing to buy", (int)seed);
            rerun += recomputed > 0;
            ckpt_text text;
            ckpt_text_init(&text);
            ckpt_explanation_text(&explanation, &text);
            CHECK(count_lines(text.bytes) >= explanation.layer_count + 3, "%s", text.bytes);
            ckpt_text_fini(&text);
        }
    }
    CHECK(12 * rerun > 4 * seeds, "only %d plans recompute", rerun);
}

static void all_are_compared(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 3, 12, 9, 1, 9); /* without flags or link */
    ckpt_err err = {0};
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    const ckpt_plan_options options = {.budget_bytes = whole * 7 / 10};
    ckpt_comparison *const comparison = CKPT_NEW(&arena, ckpt_comparison, 1);
    CHECK_OK(ckpt_compare(graph, &options, &arena, comparison, &err), err);
    assert_string_equal(comparison->strategy[0], "auto");
    int fits = 0;
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        int row = 0;
        while (row < comparison->count && strcmp(comparison->strategy[row], ckpt_strategy_table[s]->name) != 0) {
            row++;
        }
        CHECK((row == comparison->count) == (ckpt_strategy_table[s]->flags || ckpt_strategy_table[s]->link), "%s",
              ckpt_strategy_table[s]->name);
        if (row < comparison->count) {
            ckpt_plan *alone = NULL;
            CHECK_OK(ckpt_plan_make(graph, ckpt_strategy_table[s]->name, &options, &arena, &alone, &err), err);
            assert_int_equal(alone->verdict, comparison->plan[row]->verdict);
            assert_int_equal(alone->time_ns, comparison->plan[row]->time_ns);
            CHECK(alone->verdict != CKPT_FITS || alone->time_ns >= comparison->bound_ns, "%s beats the bound",
                  ckpt_strategy_table[s]->name);
            fits += alone->verdict == CKPT_FITS;
        }
    }
    CHECK(fits >= 3, "only %d fit", fits);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_comparison_text(comparison, &text);
    assert_int_equal(count_lines(text.bytes), comparison->count + 3);
    ckpt_text_fini(&text);
    ckpt_comparison_json(comparison, &text);
    assert_int_equal(count_of(text.bytes, "\"kind\""), comparison->count);
    ckpt_text_fini(&text);
}

/* A chain whose sizes are `value` times as large; only every `step`-th value exists. Times: fixed + value. */
typedef struct chains {
    int64_t step;
    ckpt_ns fixed, slow; /* slow: added value^2 / slow; 0: nothing */
    int asked;
} chains;

static ckpt_code chain_at(void *context, int64_t value, ckpt_arena *out, const ckpt_graph **graph, bool *exists,
                          ckpt_err *err)
{
    (void)err;
    chains *const c = context;
    c->asked++;
    *exists = value % c->step == 0;
    if (*exists) {
        ckpt_graph *const made = ckpt_test_chain(out, 11, 8, 9, value, 9);
        ckpt_graph_op *const op = CKPT_NEW(out, ckpt_graph_op, made->op_count);
        memcpy(op, made->op, (size_t)made->op_count * sizeof *op);
        for (int o = 0; o < made->op_count; o++) {
            op[o].time_ns = c->fixed + value + (c->slow > 0 ? value * value / c->slow : 0);
        }
        made->op = op;
        *graph = made;
    }
    return CKPT_OK;
}

/* Without recomputation what fits is known without planning: peaks are `value` times that of value 1. */
static void largest_value(void **state)
{
    const int64_t starts[] = {1, 12, 60, 999};
    const int64_t steps[] = {1, 3, 7};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            CKPT_TEST_ARENA(arena);
            ckpt_err err = {0};
            ckpt_bytes unit = 0;
            ckpt_ns time = 0;
            CHECK_OK(ckpt_keep_all_measure(ckpt_test_chain(&arena, 11, 8, 9, 1, 9), &arena, &unit, &time, &err), err);
            chains c = {steps[k], 100, 0, 0};
            const ckpt_family family = {chain_at, &c, "n", starts[i] / steps[k] * steps[k] + steps[k]};
            for (int64_t wanted = steps[k]; wanted < 400; wanted += 91 * steps[k]) {
                const ckpt_plan_options options = {.budget_bytes = unit * wanted + unit / 2};
                ckpt_maximum *const maximum = CKPT_NEW(&arena, ckpt_maximum, 1);
                CHECK_OK(ckpt_maximize(&family, false, -1, "keep-all", &options, &arena, maximum, &err), err);
                CHECK(maximum->found && maximum->value == wanted, "from %lld by %lld: %lld, wanted %lld",
                      (long long)family.start, (long long)steps[k], (long long)maximum->value, (long long)wanted);
                CHECK_OK(ckpt_plan_check(maximum->plan, maximum->graph, &err), err);
                bool refused = false; /* the next one was planned too */
                for (int p = 0; p < maximum->probe_count; p++) {
                    refused = refused || (maximum->probe[p].value == wanted + steps[k] && !maximum->probe[p].accepted);
                }
                CHECK(refused, "%lld was not tried", (long long)(wanted + steps[k]));
                CHECK(maximum->probe_count < 40, "%d plans", maximum->probe_count);
            }
            const ckpt_plan_options none = {.budget_bytes = unit / 2};
            ckpt_maximum *const maximum = CKPT_NEW(&arena, ckpt_maximum, 1);
            CHECK_OK(ckpt_maximize(&family, false, -1, "keep-all", &none, &arena, maximum, &err), err);
            CHECK(!maximum->found, "%lld fits in nothing", (long long)maximum->value);
        }
    }
}

/* With recomputation: the answer keeps to the overhead, a larger allowance never gives less, none at all gives what
 * keep-all gives. */
static void largest_value_within_overhead(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes unit = 0;
    ckpt_ns time = 0;
    CHECK_OK(ckpt_keep_all_measure(ckpt_test_chain(&arena, 11, 8, 9, 1, 9), &arena, &unit, &time, &err), err);
    const double overheads[] = {0, 0.07, 0.13, 0.2, 0.35, -1};
    const size_t count = sizeof overheads / sizeof *overheads;
    int64_t before = 0;
    for (size_t i = 0; i < 2 * count; i++) { /* with little effort, then with more */
        const double overhead = overheads[i % count];
        chains c = {1, 1000, 0, 0};
        const ckpt_family family = {chain_at, &c, "n", 5};
        const ckpt_plan_options options = {.budget_bytes = unit * 100, .effort = (int)(i / count)};
        ckpt_maximum *const maximum = CKPT_NEW(&arena, ckpt_maximum, 1);
        CHECK_OK(ckpt_maximize(&family, false, overhead, "chain", &options, &arena, maximum, &err), err);
        CHECK(maximum->found && (i % count > 0 || maximum->value == 100), "overhead %g: %lld", overhead,
              (long long)maximum->value);
        CHECK(overhead < 0 || ckpt_excess(maximum->plan->time_ns, maximum->plan->keep_all_time_ns) <= overhead,
              "overhead %g exceeded", overhead);
        before = i == count ? 0 : before;
        CHECK(maximum->value >= before, "overhead %g: %lld after %lld", overhead, (long long)maximum->value,
              (long long)before);
        before = maximum->value;
        bool exists = false; /* one more, planned by itself */
        const ckpt_graph *next = NULL;
        ckpt_plan *plan = NULL;
        CHECK_OK(chain_at(&c, before + 1, &arena, &next, &exists, &err), err);
        CHECK_OK(ckpt_plan_make(next, "chain", &options, &arena, &plan, &err), err);
        CHECK(plan->verdict == CKPT_INFEASIBLE ||
                  (overhead >= 0 && ckpt_excess(plan->time_ns, plan->keep_all_time_ns) > overhead),
              "overhead %g: %lld would do too", overhead, (long long)before + 1);
        for (int p = 0; p < maximum->probe_count; p++) {
            CHECK(maximum->probe[p].value != before || !maximum->probe[p].quick,
                  "the answer has been left at a quick plan");
        }
    }
    CHECK(before > 100, "recomputation buys nothing");
}

/* Time per step fixed + v + v^2 / slow: most v per time at sqrt(fixed * slow), as long as everything fits. */
static void most_throughput(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    chains c = {1, 10000, 25, 0}; /* best at 500 */
    const ckpt_family family = {chain_at, &c, "n", 8};
    ckpt_bytes unit = 0;
    ckpt_ns time = 0;
    CHECK_OK(ckpt_keep_all_measure(ckpt_test_chain(&arena, 11, 8, 9, 1, 9), &arena, &unit, &time, &err), err);
    const ckpt_plan_options options = {.budget_bytes = unit * 3000};
    ckpt_maximum *const maximum = CKPT_NEW(&arena, ckpt_maximum, 1);
    CHECK_OK(ckpt_maximize(&family, true, -1, "keep-all", &options, &arena, maximum, &err), err);
    CHECK(maximum->found && maximum->value > 480 && maximum->value < 520, "%lld, wanted about 500",
          (long long)maximum->value);
}

static const ckpt_graph *resized(const ckpt_graph *graph, int buffer, ckpt_bytes more, ckpt_arena *arena)
{
    ckpt_graph *const other = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_buffer *const buffers = CKPT_NEW(arena, ckpt_buffer, graph->buffer_count);
    memcpy(buffers, graph->buffer, (size_t)graph->buffer_count * sizeof *buffers);
    buffers[buffer].bytes += more;
    *other = *graph;
    other->buffer = buffers;
    return other;
}

/* What two plans differ in, counted by hand: nothing, a buffer, the layers whose decisions differ, all ops
 * and buffers. */
static void changes_are_found(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 4, 9, 9, 100, 9);
    const ckpt_graph *const another = ckpt_test_chain(&arena, 5, 12, 9, 100, 9);
    const ckpt_graph *const larger = resized(graph, 3, 64, &arena);
    const struct {
        const ckpt_graph *graph;
        const char *strategy;
    } made[] = {{graph, "keep-all"}, {graph, "keep-all"}, {larger, "keep-all"}, {graph, "recompute-all"}};
    enum { MADE = sizeof made / sizeof *made };
    ckpt_plan *plan[MADE];
    ckpt_plan_changes changes;
    for (int i = 0; i < MADE; i++) {
        CHECK_OK(ckpt_plan_make(made[i].graph, made[i].strategy, &low_effort, &arena, &plan[i], &err), err);
        CHECK_OK(ckpt_plan_outline(made[i].graph, &arena, &plan[i]->outline, &err), err);
    }
    plan[1]->solver_seconds = 17;
    plan[1]->costs = "elsewhere";
    CHECK_OK(ckpt_plan_compare(plan[0], plan[1], &arena, &changes, &err), err);
    CHECK(changes.same && !changes.other_graph && changes.graph_count + changes.layer_count + changes.retimed == 0,
          "the same plan differs");
    CHECK_OK(ckpt_plan_compare(plan[0], plan[2], &arena, &changes, &err), err);
    CHECK(!changes.same && changes.other_graph && changes.graph_count == 1, "%d changes", changes.graph_count);
    CHECK(changes.graph[0].kind == CKPT_RESIZED && strcmp(changes.graph[0].name, graph->buffer[3].name) == 0 &&
              changes.graph[0].now - changes.graph[0].was == 64,
          "%s", changes.graph[0].name);
    CHECK_OK(ckpt_plan_compare(plan[0], plan[3], &arena, &changes, &err), err);
    int differ = 0;
    for (int i = 0; i < plan[0]->layer_count; i++) {
        differ += plan[0]->layer[i].decision != plan[3]->layer[i].decision; /* in the same order: the same graph */
    }
    CHECK(!changes.same && !changes.other_graph && differ > 0 && changes.layer_count == differ, "%d layers, wanted %d",
          changes.layer_count, differ);
    ckpt_plan nothing = *plan[0];
    nothing.outline = (ckpt_outline){0};
    CHECK_OK(ckpt_plan_compare(&nothing, plan[1], &arena, &changes, &err), err);
    CHECK(changes.same && changes.graph_count == 0, "a plan without an outline differs");
    ckpt_plan stranger = *plan[0];
    CHECK_OK(ckpt_plan_outline(another, &arena, &stranger.outline, &err), err);
    CHECK_OK(ckpt_plan_compare(plan[0], &stranger, &arena, &changes, &err), err);
    int came = 0;
    for (int i = 0; i < changes.graph_count; i++) {
        came += changes.graph[i].kind == CKPT_CAME;
        came -= changes.graph[i].kind == CKPT_WENT;
    }
    assert_int_equal(came, another->op_count + another->buffer_count + another->static_count - graph->op_count -
                               graph->buffer_count - graph->static_count);
}

typedef struct starved {
    const ckpt_graph *graph;
    ckpt_bytes budget;
    int what;
} starved;

static ckpt_code answer_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
    ckpt_sweep sweep;
    ckpt_code code = CKPT_OK;
    if (s->what == 0) {
        ckpt_curve curve;
        code = ckpt_sweep_make(s->graph, "chain", 3, &options, NULL, arena, &sweep, err);
        code = code == CKPT_OK ? ckpt_sweep_curve(&sweep, arena, &curve, err) : code;
        code = code == CKPT_OK ? ckpt_curve_baselines(&curve, s->graph, &options, NULL, arena, err) : code;
    } else if (s->what == 2) {
        ckpt_plan *was = NULL;
        ckpt_plan *now = NULL;
        ckpt_plan_changes changes;
        code = ckpt_plan_make(s->graph, "sqrt", &options, arena, &was, err);
        code = code == CKPT_OK ? ckpt_plan_make(s->graph, "keep-all", &options, arena, &now, err) : code;
        code = code == CKPT_OK ? ckpt_plan_outline(s->graph, arena, &was->outline, err) : code;
        code = code == CKPT_OK ? ckpt_plan_outline(s->graph, arena, &now->outline, err) : code;
        code = code == CKPT_OK ? ckpt_plan_compare(was, now, arena, &changes, err) : code;
    } else {
        ckpt_plan *plan = NULL;
        ckpt_explanation explanation;
        options.budget_bytes = s->budget;
        code = ckpt_plan_make(s->graph, "chain", &options, arena, &plan, err);
        code = code == CKPT_OK ? ckpt_explain(plan, s->graph, "chain", &options, arena, &explanation, err) : code;
    }
    return code;
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 4, 9, 9, 100, 9);
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    for (int what = 0; what < 3; what++) {
        starved s = {graph, whole * 8 / 10, what};
        ckpt_test_starve_arena(answer_starved, &s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_never_rise),
        cmocka_unit_test(sweep_ends),
        cmocka_unit_test(baselines_are_what_they_say),
        cmocka_unit_test(curve_is_never_above_a_known_plan),
        cmocka_unit_test(changes_are_found),
        cmocka_unit_test(plans_are_starts),
        cmocka_unit_test(layers_are_explained),
        cmocka_unit_test(all_are_compared),
        cmocka_unit_test(largest_value),
        cmocka_unit_test(largest_value_within_overhead),
        cmocka_unit_test(most_throughput),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
