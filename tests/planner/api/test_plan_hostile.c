/* labels: unit */
/* Sizes and times whose sums are as near to 2^63 as a graph may have them, through every strategy, bound and question:
 * a plan that is right, or CKPT_OVERFLOW. And the parts that the other tests starve only without a solver or a link. */
#include "planner/analysis/analysis.h"
#include "planner/bound/bound.h"
#include "planner/ilp/solver.h"
#include "planner/replay/replay.h"
#include "planner/search/search.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

typedef struct vast {
    ckpt_graph graph;
    const char *what;
} vast;

/* The same graph with every size multiplied so that all together are just below bytes_max (0: as they are), and every
 * time so that all are just below 2^63. */
static ckpt_graph stretch(const ckpt_graph *made, int64_t bytes_max, bool times, int64_t rate, ckpt_arena *arena)
{
    ckpt_graph graph = *made;
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, graph.buffer_count);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, graph.op_count);
    int64_t bytes = graph.static_bytes;
    int64_t most_workspace = 0;
    int64_t time = 1;
    for (int b = 0; b < graph.buffer_count; b++) {
        bytes += graph.buffer[b].bytes;
    }
    for (int o = 0; o < graph.op_count; o++) {
        most_workspace = graph.op[o].workspace_bytes > most_workspace ? graph.op[o].workspace_bytes : most_workspace;
        time += graph.op[o].time_ns;
    }
    const int64_t per_byte = bytes_max > 0 ? bytes_max / (bytes + most_workspace + 1) : 1;
    const int64_t per_ns = times ? INT64_MAX / time : 1;
    for (int b = 0; b < graph.buffer_count; b++) {
        buffer[b] = graph.buffer[b];
        buffer[b].bytes *= per_byte;
    }
    for (int o = 0; o < graph.op_count; o++) {
        op[o] = graph.op[o];
        op[o].workspace_bytes *= per_byte;
        op[o].time_ns *= per_ns;
    }
    graph.buffer = buffer;
    graph.op = op;
    graph.has_link = rate > 0;
    graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = rate;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(&graph, arena, &err), err);
    return graph;
}

/* Every way there is of making numbers vast, on a chain and on a step of random shape. */
static int take_vast(vast *found, ckpt_arena *arena)
{
    int count = 0;
    for (int shape = 0; shape < 2; shape++) {
        const ckpt_graph *const made =
            shape == 0 ? ckpt_test_chain(arena, 21, 5, 9, 1, 9) : ckpt_test_step(arena, 22, 5);
        found[count++] = (vast){stretch(made, INT64_MAX, false, 0, arena), "bytes"};
        found[count++] = (vast){stretch(made, 0, true, 0, arena), "times"};
        found[count++] = (vast){stretch(made, INT64_MAX, true, 0, arena), "both"};
        found[count++] = (vast){stretch(made, INT64_C(1) << 56, true, 0, arena), "as many bytes as the search takes"};
        found[count++] = (vast){stretch(made, INT64_MAX, true, INT64_MAX, arena), "both, fast link"};
        found[count++] = (vast){stretch(made, INT64_MAX, false, 1, arena), "bytes, slow link"};
        found[count++] = (vast){stretch(made, 0, true, 1, arena), "times, slow link"};
    }
    return count;
}

enum { VAST_MAX = 16 };

/* Gives 1 when it recomputes. */
static int plan_vast(const vast *v, const char *strategy, int effort, ckpt_bytes budget)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.budget_bytes = budget, .effort = effort, .solver = &ckpt_solver_glpk};
    const ckpt_code code = ckpt_plan_make(&v->graph, strategy, &options, &arena, &plan, &err);
    CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s, %s, effort %d, %lld: %s", v->what, strategy, effort,
          (long long)budget, err.msg);
    int recomputed = 0;
    if (code == CKPT_OK && plan->verdict == CKPT_FITS) {
        ckpt_test_replay(&v->graph, plan, strategy);
        CHECK(plan->bound_ns <= plan->time_ns, "%s, %s: bound above time", v->what, strategy);
        recomputed = plan->recompute_ns > 0;
    }
    ckpt_arena_fini(&arena);
    return recomputed;
}

static ckpt_bytes keep_all_peak(const ckpt_graph *graph, ckpt_arena *arena)
{
    const ckpt_bytes peak = ckpt_test_keep_all(graph, arena);
    return peak;
}

static void every_strategy_near_the_end_of_numbers(void **state)
{
    CKPT_TEST_ARENA(arena);
    vast v[VAST_MAX];
    const int count = take_vast(v, &arena);
    int recomputed = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_bytes whole = keep_all_peak(&v[i].graph, &arena);
        const ckpt_bytes budgets[] = {0, 1, whole / 100 * 80};
        for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
            for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
                recomputed += plan_vast(&v[i], ckpt_strategy_table[s]->name, CKPT_EFFORT_LOW, budgets[b]);
            }
        }
    }
    CHECK(recomputed > 20, "only %d plans recompute", recomputed);
}

static void every_question_near_the_end_of_numbers(void **state)
{
    CKPT_TEST_ARENA(arena);
    vast v[VAST_MAX];
    const int count = take_vast(v, &arena);
    int answered = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_graph *const graph = &v[i].graph;
        const ckpt_bytes whole = keep_all_peak(graph, &arena);
        const ckpt_plan_options options = {.budget_bytes = whole / 100 * 85, .effort = CKPT_EFFORT_LOW};
        ckpt_err err = {0};
        for (int effort = 0; effort <= CKPT_EFFORT_MORE; effort++) {
            ckpt_plan_options more = options;
            more.effort = effort;
            ckpt_bound bound;
            const ckpt_code code =
                ckpt_bound_find(graph, whole / 100 * 70 - graph->static_bytes, INT64_MAX, &more, &arena, &bound, &err);
            CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s: bound: %s", v[i].what, err.msg);
        }
        ckpt_bytes below = 0;
        ckpt_code code = ckpt_bound_peak(graph, &arena, &below, &err);
        CHECK(code == CKPT_OVERFLOW || (code == CKPT_OK && below <= whole), "%s: peak bound: %s", v[i].what, err.msg);
        ckpt_sweep sweep;
        code = ckpt_sweep_make(graph, "auto", 2, &options, NULL, &arena, &sweep, &err);
        CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s: sweep: %s", v[i].what, err.msg);
        answered += code == CKPT_OK;
        ckpt_plan *plan = NULL;
        code = ckpt_plan_make(graph, "auto", &options, &arena, &plan, &err);
        CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s: %s", v[i].what, err.msg);
        if (code == CKPT_OK && plan->verdict == CKPT_FITS) {
            ckpt_explanation explanation = {0};
            ckpt_text text;
            ckpt_text_init(&text);
            code = ckpt_explain(plan, graph, "auto", &options, &arena, &explanation, &err);
            CHECK(code == CKPT_OK || code == CKPT_OVERFLOW, "%s: explain: %s", v[i].what, err.msg);
            if (code == CKPT_OK) {
                ckpt_explanation_text(&explanation, &text);
                ckpt_plan_text(plan, true, true, &text);
                CHECK_OK(ckpt_text_end(&text, &err), err);
            }
            ckpt_text_fini(&text);
        }
    }
    CHECK(answered > 4, "%d sweeps", answered);
}

/* ---- without memory ---- */

typedef struct hungry {
    const ckpt_graph *graph;
    const char *strategy; /* NULL: the bound and the search alone */
    int effort;
    ckpt_bytes budget;
} hungry;

static ckpt_code eat(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const hungry *const h = context;
    const ckpt_plan_options options = {.budget_bytes = h->budget, .effort = h->effort, .solver = &ckpt_solver_glpk};
    ckpt_code code = CKPT_OK;
    if (h->strategy != NULL) {
        ckpt_plan *plan = NULL;
        code = ckpt_plan_make(h->graph, h->strategy, &options, arena, &plan, err);
    } else {
        const ckpt_bytes limit = h->budget - h->graph->static_bytes;
        ckpt_bound bound;
        ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        code = ckpt_bound_find(h->graph, limit, INT64_MAX, &options, arena, &bound, err);
        code = code == CKPT_OK ? ckpt_search_improve(h->graph, limit, 300, &options, arena, &candidates, err) : code;
    }
    return code;
}

static void no_memory_with_solver_and_link(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const made = ckpt_test_step(&arena, 3, 3);
    const ckpt_graph linked = stretch(made, 0, false, 1000000000, &arena);
    const ckpt_bytes budget = keep_all_peak(made, &arena) * 8 / 10;
    const hungry all[] = {
        {made, "auto", CKPT_EFFORT_LOW, budget},     {made, "ilp", CKPT_EFFORT_NORMAL, budget},
        {&linked, "joint", CKPT_EFFORT_LOW, budget}, {made, "hierarchy", CKPT_EFFORT_NORMAL, budget},
        {&linked, NULL, CKPT_EFFORT_NORMAL, budget},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hungry h = all[i];
        CHECK(ckpt_test_starve_arena(eat, &h) > 1, "case %d takes no memory", (int)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_near_the_end_of_numbers),
        cmocka_unit_test(every_question_near_the_end_of_numbers),
        cmocka_unit_test(no_memory_with_solver_and_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
