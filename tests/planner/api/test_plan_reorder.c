/* labels: unit */
/* Plans with ops in another order: found, said, replayed, and refused where they do not say so. */
#include <string.h>

#include "planner/api/planner.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

/* Two branches: each writes 100 bytes, of which its second op makes 10. In this order both hundreds are in memory at
 * once, or both are recomputed; branch after branch takes 120 bytes. */
static const char branches[] =
    "{ \"format\": \"ckpt-graph/1\", \"name\": \"branches\", \"order\": \"free\", \"buffers\": ["
    "{ \"name\": \"A\", \"bytes\": 100 }, { \"name\": \"B\", \"bytes\": 100 }, { \"name\": \"a\", \"bytes\": 10 },"
    "{ \"name\": \"b\", \"bytes\": 10 }, { \"name\": \"c\", \"bytes\": 10 } ], \"ops\": ["
    "{ \"name\": \"A\", \"phase\": \"forward\", \"time_ns\": 5, \"writes\": [\"A\"] },"
    "{ \"name\": \"B\", \"phase\": \"forward\", \"time_ns\": 5, \"writes\": [\"B\"] },"
    "{ \"name\": \"a\", \"phase\": \"forward\", \"time_ns\": 1, \"reads\": [\"A\"], \"writes\": [\"a\"] },"
    "{ \"name\": \"b\", \"phase\": \"forward\", \"time_ns\": 1, \"reads\": [\"B\"], \"writes\": [\"b\"] },"
    "{ \"name\": \"c\", \"phase\": \"forward\", \"time_ns\": 1, \"reads\": [\"a\", \"b\"], \"writes\": [\"c\"] } ],"
    "\"outputs\": [\"c\"] }";

static const ckpt_graph *read(const char *text, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_json *json = NULL;
    ckpt_item root;
    const ckpt_graph *graph = NULL;
    CHECK_OK(ckpt_json_open_text("branches.json", text, strlen(text), "ckpt-graph", &json, &root, &err), err);
    CHECK_OK(ckpt_graph_item(&root, arena, &graph, &err), err);
    ckpt_json_close(json);
    return graph;
}

static ckpt_plan *make(const ckpt_graph *graph, ckpt_bytes budget, bool reorder, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.budget_bytes = budget, .effort = CKPT_EFFORT_LOW, .reorder = reorder};
    CHECK_OK(ckpt_plan_make(graph, "auto", &options, arena, &plan, &err), err);
    return plan;
}

static void branch_after_branch(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_graph *const graph = read(branches, &arena);
    CHECK(graph->order_free, "the order is said to be free");
    const ckpt_plan *const fixed = make(graph, 120, false, &arena);
    CHECK(fixed->verdict == CKPT_FITS && fixed->time_ns == 23,
          "in reference order A and B are recomputed, found %lld ns", (long long)fixed->time_ns);
    ckpt_plan *const plan = make(graph, 120, true, &arena);
    CHECK(plan->verdict == CKPT_FITS && plan->reordered && plan->time_ns == 13, "found %lld ns, wanted 13",
          (long long)plan->time_ns);
    plan->reordered = false;
    CHECK(ckpt_plan_check(plan, graph, &err) == CKPT_BAD_INPUT && strstr(err.msg, "before the first run") != NULL,
          "another order that the plan does not say: %s", err.msg);
}

/* An op that adds keeps its place even where the plan says "reordered". */
static void others_keep_their_order(void **state)
{
    const uint64_t seeds = ckpt_test_rounds(40, 10);
    int refused = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 12);
        ckpt_plan *const plan = make(graph, 0, false, &arena);
        ckpt_step *const step = CKPT_NEW(&arena, ckpt_step, plan->step_count);
        memcpy(step, plan->step, (size_t)plan->step_count * sizeof *step);
        plan->step = step;
        plan->reordered = true;
        int last = -1;
        for (int i = 0; i < plan->step_count; i++) {
            if (step[i].kind != CKPT_RUN || ckpt_op_may_move(graph, step[i].target)) {
                continue;
            }
            if (last >= 0) {
                const ckpt_step swapped = step[last];
                ckpt_err err = {0};
                step[last] = step[i];
                step[i] = swapped;
                refused += ckpt_plan_check(plan, graph, &err) == CKPT_BAD_INPUT;
                step[i] = step[last];
                step[last] = swapped;
            }
            last = i;
        }
        ckpt_err err = {0};
        CHECK_OK(ckpt_plan_check(plan, graph, &err), err);
    }
    CHECK(refused > 0, "no exchange was tried");
}

static void no_worse_than_without(void **state)
{
    const uint64_t seeds = ckpt_test_rounds(30, 6);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 4 + (int)(seed % 14));
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns time = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &time, &err), err);
        for (int percent = 90; percent > 30; percent -= 20) {
            const ckpt_plan *const fixed = make(graph, whole * percent / 100, false, &arena);
            const ckpt_plan *const freed = make(graph, whole * percent / 100, true, &arena);
            const int number = (int)seed;
            CHECK_OK(ckpt_plan_check(freed, graph, &err), err);
            CHECK(fixed->verdict != CKPT_FITS || (freed->verdict == CKPT_FITS && freed->time_ns <= fixed->time_ns),
                  "seed %d, %d %%: slower with --reorder", number, percent);
            CHECK(freed->no_schedule_below_bytes <= fixed->min_budget_bytes || fixed->min_budget_bytes == 0,
                  "seed %d, %d %%: a plan below what is said to be the least", number, percent);
            CHECK(freed->verdict != CKPT_FITS || strcmp(freed->bound_scope, "all") != 0 ||
                      freed->bound_ns <= fixed->keep_all_time_ns,
                  "seed %d, %d %%: more than all ops once is proved for all orders", number, percent);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branch_after_branch),
        cmocka_unit_test(others_keep_their_order),
        cmocka_unit_test(no_worse_than_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
