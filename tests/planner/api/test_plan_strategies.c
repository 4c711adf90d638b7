/* labels: unit */
/* Every strategy on random steps and budgets, replayed by the test's own slow replay; minimum budgets planned at. */
#include <stdio.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

static void plan_and_replay(const ckpt_graph *graph, const char *strategy, int effort, ckpt_bytes budget,
                            const char *what, ckpt_ns *time)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.budget_bytes = budget, .effort = effort};
    CHECK_OK(ckpt_plan_make(graph, strategy, &options, &arena, &plan, &err), err);
    *time = -1;
    if (plan->verdict == CKPT_FITS) {
        CHECK_OK(ckpt_plan_check(plan, graph, &err), err);
        ckpt_test_replay(graph, plan, what);
        CHECK(budget == 0 || plan->budget_bytes == budget, "%s: budget", what);
        CHECK(plan->bound_ns <= plan->time_ns, "%s: bound above time", what);
        *time = plan->time_ns;
    } else {
        CHECK(plan->min_budget_bytes > budget, "%s: infeasible under %lld, least %lld", what, (long long)budget,
              (long long)plan->min_budget_bytes);
        ckpt_plan *second = NULL;
        const ckpt_plan_options least = {.budget_bytes = plan->min_budget_bytes, .effort = effort};
        CHECK_OK(ckpt_plan_make(graph, strategy, &least, &arena, &second, &err), err);
        CHECK(second->verdict == CKPT_FITS, "%s: the minimum budget %lld does not do", what,
              (long long)plan->min_budget_bytes);
        ckpt_test_replay(graph, second, what);
    }
}

static void random_steps(void **state)
{
    const int percents[] = {0, 85, 60, 35};
    const uint64_t seeds = ckpt_test_rounds(8, 2);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 3 + (int)(seed * 7 % 17));
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns keep_all = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &keep_all, &err), err);
        for (size_t p = 0; p < sizeof percents / sizeof *percents; p++) {
            const ckpt_bytes budget = whole * percents[p] / 100;
            ckpt_ns best = INT64_MAX; /* of all, the baselines too */
            ckpt_ns time = 0;
            char what[120];
            for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
                const char *const name = ckpt_strategy_table[s]->name;
                snprintf(what, sizeof what, "seed %d, %s, %d %%", (int)seed, name, percents[p]);
                plan_and_replay(graph, name, CKPT_EFFORT_LOW, budget, what, &time);
                CHECK(time < 0 || time >= keep_all, "%s: faster than keep-all", what);
                best = time >= 0 && time < best ? time : best;
            }
            snprintf(what, sizeof what, "seed %d, auto, %d %%", (int)seed, percents[p]);
            if (seed > (seeds < 8 ? 1 : 2)) { /* the best planner there is against all the others takes long */
                continue;
            }
            plan_and_replay(graph, "auto", CKPT_EFFORT_NORMAL, budget, what, &time);
            CHECK(best == INT64_MAX || (time >= 0 && time <= best), "%s: auto takes %lld, the best %lld", what,
                  (long long)time, (long long)best);
        }
    }
}

static void measures_agree(void **state)
{
    const uint64_t seeds = ckpt_test_rounds(12, 4);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 12);
        ckpt_err err = {0};
        for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
            const ckpt_plan_options options = {0};
            ckpt_candidates candidates = {0};
            CHECK_OK(ckpt_strategy_table[s]->plan(graph, CKPT_BYTES_MAX, &options, &arena, &candidates, &err), err);
            CHECK(candidates.count > 0, "%s finds nothing without a limit", ckpt_strategy_table[s]->name);
            const ckpt_sequence *const sequence = &candidates.candidate[0].sequence;
            ckpt_bytes peak[2];
            ckpt_ns time[2];
            CHECK_OK(ckpt_sequence_measure(graph, sequence, &arena, &peak[0], &time[0], &err), err);
            ckpt_test_measure(graph, sequence->op, sequence->count, &peak[1], &time[1]);
            CHECK(peak[0] == peak[1] && time[0] == time[1], "seed %d, %s: peak %lld, plain replay %lld", (int)seed,
                  ckpt_strategy_table[s]->name, (long long)peak[0], (long long)peak[1]);
        }
    }
}

/* A chain whose blocks differ only in being flagged: exactly the flagged ops run twice, the unit as one. */
static void flags_are_obeyed(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const made = ckpt_test_chain(&arena, 5, 8, 9, 1, 9);
    ckpt_graph graph = *made;
    ckpt_graph_op op[16];
    for (int o = 0; o < 16; o++) {
        op[o] = made->op[o];
        if (o >= 2 && o < 5) {
            op[o].checkpoint = CKPT_YES;
            op[o].segment = "unit";
        }
    }
    graph.op = op;
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {0};
    CHECK_OK(ckpt_plan_make(&graph, "flags", &options, &arena, &plan, &err), err);
    int recomputed[16] = {0};
    int backward_of_4 = -1;
    int first_recomputed = -1;
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == CKPT_RUN) {
            recomputed[plan->step[i].target] += plan->step[i].recomputed;
            backward_of_4 = plan->step[i].target == 16 - 1 - 4 ? i : backward_of_4;
            first_recomputed = plan->step[i].recomputed && first_recomputed < 0 ? i : first_recomputed;
        }
    }
    for (int o = 0; o < 16; o++) {
        CHECK(recomputed[o] == (o >= 2 && o < 5), "op %s runs again %d times", op[o].name, recomputed[o]);
    }
    CHECK(first_recomputed < backward_of_4, "recomputed too late");
    CHECK(plan->layer_count == 8, "%d layers", plan->layer_count);
    for (int i = 0; i < 8; i++) {
        CHECK((plan->layer[i].decision == CKPT_RECOMPUTE) == (i >= 2 && i < 5), "layer %s", plan->layer[i].layer);
    }
}

/* One forward computation and nothing else: legal with every strategy, although there is nothing to gain. */
static void forward_only(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_graph graph = *ckpt_test_chain(&arena, 9, 10, 9, 1, 9);
    graph.op_count = 10;
    graph.buffer_count = 20;
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        ckpt_ns time = 0;
        plan_and_replay(&graph, ckpt_strategy_table[s]->name, CKPT_EFFORT_LOW, 0, ckpt_strategy_table[s]->name, &time);
        CHECK(time > 0, "%s has no plan", ckpt_strategy_table[s]->name);
    }
}

static void refusals(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 1, 4, 9, 1, 9);
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options none = {0};
    assert_int_equal(ckpt_plan_make(graph, "nonesuch", &none, &arena, &plan, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "nonesuch"));
    assert_null(plan);
    const ckpt_plan_options tiny = {.budget_bytes = 1}; /* below the static block */
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        CHECK_OK(ckpt_plan_make(graph, ckpt_strategy_table[s]->name, &tiny, &arena, &plan, &err), err);
        assert_int_equal(plan->verdict, CKPT_INFEASIBLE);
        CHECK_OK(ckpt_plan_check(plan, graph, &err), err);
        assert_int_equal(plan->step_count, 0);
    }
}

/* Sizes and times of which little more than all together fit 63 bits: a plan, or one of the two answers there are, and
 * recomputing as much as there is time for. */
static void near_the_end_of_numbers(void **state)
{
    enum { N = 12 };
    CKPT_TEST_ARENA(arena);
    ckpt_graph graph = *ckpt_test_chain(&arena, 21, N, 4, (ckpt_bytes)1 << 55, 9);
    ckpt_graph_op op[2 * N];
    for (int o = 0; o < 2 * N; o++) {
        op[o] = graph.op[o];
        op[o].time_ns = (ckpt_ns)1 << 58;
    }
    graph.op = op;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(&graph, &arena, &err), err);
    const ckpt_bytes whole = ckpt_test_keep_all(&graph, &arena);
    int fits = 0;
    for (int percent = 100; percent > 0; percent -= 23) {
        for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
            const char *const name = ckpt_strategy_table[s]->name;
            const ckpt_plan_options options = {.budget_bytes = whole / 100 * percent};
            ckpt_plan *plan = NULL;
            const ckpt_code code = ckpt_plan_make(&graph, name, &options, &arena, &plan, &err);
            CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s, %d %%: %s", name, percent, err.msg);
            if (code == CKPT_OK && plan->verdict == CKPT_FITS) {
                ckpt_test_replay(&graph, plan, name);
                fits += plan->recompute_ns > 0;
            }
        }
    }
    CHECK(fits > 2, "only %d plans recompute", fits);
}

/* A chain of n equal ops and their backward ops: sizes and times 1, backward i reads the gradient and a(i). */
static const ckpt_graph *unit_chain(ckpt_arena *arena, int n)
{
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, 2 * n);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 2 * n);
    int *const index = CKPT_NEW(arena, int, 6 * n);
    for (int i = 0; i < 2 * n; i++) {
        const bool forward = i < n;
        int *const list = index + 3 * i;
        list[0] = forward ? i - 1 : 2 * n - 1 - i; /* what it reads */
        list[1] = i - 1;
        list[2] = i;
        const ckpt_list reads = {list, forward ? i > 0 : 1 + (i > n)};
        buffer[i] = (ckpt_buffer){ckpt_arena_format(arena, "b%d", i), 1, forward ? CKPT_ACTIVATION : CKPT_GRADIENT};
        op[i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "o%d", i),
                                .phase = forward ? CKPT_FORWARD : CKPT_BACKWARD,
                                .layer = "",
                                .reads = reads,
                                .writes = {list + 2, 1},
                                .time_ns = 1,
                                .recompute = forward};
    }
    *graph = (ckpt_graph){
        .source = "test", .name = "chain", .buffer = buffer, .buffer_count = 2 * n, .op = op, .op_count = 2 * n};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

/* The paper's theorem: on a chain of n ops, memory of about 2 sqrt(n) is enough for O(n) runs in all. And it is not
 * thrown away: with memory for all but one buffer, few runs are added. */
static void dtr_runs_linearly_often(void **state)
{
    for (int n = 16; n <= 1024; n *= 4) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = unit_chain(&arena, n);
        ckpt_err err = {0};
        int root = 1;
        while (root * root < n) {
            root++;
        }
        const ckpt_bytes budgets[] = {2 * root + 3, n - 1};
        const ckpt_ns wanted[] = {4 * n, 2 * n + 8};
        for (int i = 0; i < 2; i++) {
            ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
            const ckpt_plan_options options = {0};
            CHECK_OK(ckpt_strategy_find("dtr")->plan(graph, budgets[i], &options, &arena, &candidates, &err), err);
            CHECK(candidates.count > 0 && candidates.candidate[0].peak <= budgets[i], "n %d: no schedule in %d", n,
                  (int)budgets[i]);
            CHECK(candidates.candidate[0].time <= wanted[i], "n %d, memory %d: %lld runs, wanted at most %lld", n,
                  (int)budgets[i], (long long)candidates.candidate[0].time, (long long)wanted[i]);
        }
    }
}

/* Dropping everything makes a chain's whole forward again at the first backward op, where all of it is then held:
 * keeping every other one peaks lower. The smallest share is not the smallest peak, and the
 * knapsack does not see it. */
static void knapsack_overshoots(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = unit_chain(&arena, 40);
    ckpt_err err = {0};
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    CHECK_OK(ckpt_keep_all_measure(graph, &arena, &peak, &time, &err), err);
    for (int s = 0; s < 2; s++) {
        ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        const ckpt_plan_options options = {0};
        const char *const name = s == 0 ? "knapsack" : "greedy";
        CHECK_OK(ckpt_strategy_find(name)->plan(graph, peak / 4, &options, &arena, &candidates, &err), err);
        CHECK(candidates.count == 0 && candidates.min_peak.peak > peak / 4, "%s: %lld of %lld bytes", name,
              (long long)candidates.min_peak.peak, (long long)peak);
        /* nothing that leaves the first backward op without its input costs less than making all before it again */
        CHECK(candidates.min_peak.time < 2 * time, "%s: %lld ns", name, (long long)candidates.min_peak.time);
    }
}

/* Blocks by name: the two copies are recomputed as wholes, what stands outside is not; what leaves them is kept. */
static void each_block_by_name(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const made = ckpt_test_chain(&arena, 5, 8, 9, 1, 9);
    static const char *const layers[] = {"in", "h.0.a", "h.0.b", "h.1.a", "h.1.b", "v2.x", "1.y", "out"};
    const bool inside[] = {false, true, true, true, true, false, false, false};
    ckpt_graph graph = *made;
    ckpt_graph_op op[16];
    for (int o = 0; o < 16; o++) {
        op[o] = made->op[o];
        op[o].layer = layers[o < 8 ? o : 15 - o];
    }
    graph.op = op;
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {0};
    CHECK_OK(ckpt_plan_make(&graph, "each-block", &options, &arena, &plan, &err), err);
    assert_int_equal(plan->layer_count, 8);
    for (int i = 0; i < 8; i++) {
        CHECK((plan->layer[i].decision == CKPT_RECOMPUTE) == inside[i], "layer %s", plan->layer[i].layer);
    }
}

/* Cancels when the search begins. */
typedef struct watcher {
    int parts;
    bool search;
} watcher;

static void watch(void *context, const ckpt_plan_progress *progress)
{
    watcher *const w = context;
    w->parts++;
    w->search = w->search || strcmp(progress->part, "search") == 0;
}

static bool is_cancelled(void *context)
{
    return ((const watcher *)context)->search;
}

/* A plan that is cancelled half way is the best so far, and legal. */
static void progress_and_cancel(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_step(&arena, 5, 30);
    ckpt_err err = {0};
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    watcher w = {0};
    ckpt_plan_options options;
    ckpt_plan_options_init(&options);
    options.budget_bytes = whole * 7 / 10;
    options.cancelled = is_cancelled;
    options.progress = watch;
    options.context = &w;
    ckpt_plan *plan = NULL;
    CHECK_OK(ckpt_plan_make(graph, "auto", &options, &arena, &plan, &err), err);
    CHECK(w.parts >= 4 && w.search, "%d parts", w.parts);
    CHECK_OK(ckpt_plan_check(plan, graph, &err), err);
}

typedef struct starved {
    const ckpt_graph *graph;
    const char *strategy;
    ckpt_bytes budget;
} starved;

static ckpt_code make_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.budget_bytes = s->budget};
    ckpt_code code = ckpt_plan_make(s->graph, s->strategy, &options, arena, &plan, err);
    if (code == CKPT_OK && plan->verdict == CKPT_FITS) {
        const ckpt_trace *trace = NULL;
        code = ckpt_plan_simulate(plan, s->graph, arena, &trace, err);
    }
    return code;
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_step(&arena, 3, 4);
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    const ckpt_bytes budgets[] = {0, graph->static_bytes + 1, whole * 9 / 10};
    const int count = (int)ckpt_test_rounds(3, 1);
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        for (int b = 0; b < count; b++) {
            starved run = {graph, ckpt_strategy_table[s]->name, budgets[(s + b) % 3]};
            ckpt_test_starve_arena(make_starved, &run);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_steps),
        cmocka_unit_test(measures_agree),
        cmocka_unit_test(flags_are_obeyed),
        cmocka_unit_test(forward_only),
        cmocka_unit_test(refusals),
        cmocka_unit_test(near_the_end_of_numbers),
        cmocka_unit_test(dtr_runs_linearly_often),
        cmocka_unit_test(knapsack_overshoots),
        cmocka_unit_test(each_block_by_name),
        cmocka_unit_test(progress_and_cancel),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
