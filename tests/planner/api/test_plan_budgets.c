/* labels: unit */
/* What holds from one budget to the next: the minimum budget is one, it does not depend on the budget that was asked for,
 * and it is looked for once. Random graphs. */
#include <string.h>

#include "planner/api/planner.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

static ckpt_plan *plan_at(const ckpt_graph *graph, ckpt_plan_options *options, ckpt_bytes budget, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    options->budget_bytes = budget;
    CHECK_OK(ckpt_plan_make(graph, "auto", options, arena, &plan, &err), err);
    return plan;
}

/* The minimum budget is a budget, and it is the same whether much or little is missing. */
static void minimum_budget_is_a_budget(void **state)
{
    for (int seed = 1; seed <= 26; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, (uint64_t)seed, 6 + seed % 20);
        ckpt_plan_options options = {.effort = seed % 2};
        const ckpt_plan *const none = plan_at(graph, &options, 1, &arena);
        const ckpt_bytes least = none->min_budget_bytes;
        assert_int_equal(none->verdict, CKPT_INFEASIBLE);
        const ckpt_plan *const plan = plan_at(graph, &options, least, &arena);
        CHECK(plan->verdict == CKPT_FITS, "seed %d: no plan at the minimum of %lld", seed, (long long)least);
        const ckpt_plan *const below = plan_at(graph, &options, least - 1, &arena);
        CHECK(below->verdict == CKPT_FITS || below->min_budget_bytes == least, "seed %d: minimum %lld, then %lld", seed,
              (long long)least, (long long)below->min_budget_bytes);
    }
}

static void count_searches(void *context, const ckpt_plan_progress *progress)
{
    *(int *)context += strcmp(progress->part, "search") == 0;
}

/* The minimum was searched for again at every budget at which it was tried: 70 s for a step of ResNet-50. */
static void infeasible_answer_takes_one_search(void **state)
{
    int searches = 0;
    for (int seed = 1; seed <= 8; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, (uint64_t)seed, 30);
        int count = 0;
        ckpt_plan_options options = {.progress = count_searches, .context = &count};
        assert_int_equal(plan_at(graph, &options, 1, &arena)->verdict, CKPT_INFEASIBLE);
        CHECK(count <= 1, "seed %d: searched %d times", seed, count);
        searches += count;
    }
    CHECK(searches > 0, "nothing was searched for");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimum_budget_is_a_budget),
        cmocka_unit_test(infeasible_answer_takes_one_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
