/* labels: unit; takes 40 s */
/* What holds from one budget to the next: the minimum budget is one, it does not depend on the budget that was asked for,
 * and it is looked for once;
 * more memory never gives a slower plan, and auto is no slower than its parts. Random graphs. */
#include <string.h>

#include "planner/api/planner.h"
#include "planner/ilp/solver.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { SEEDS = 60 };

static ckpt_plan *plan_at(const ckpt_graph *graph, ckpt_plan_options *options, ckpt_bytes budget, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    options->budget_bytes = budget;
    CHECK_OK(ckpt_plan_make(graph, "auto", options, arena, &plan, &err), err);
    return plan;
}

static ckpt_list list_of(ckpt_arena *arena, int a, int b, int c)
{
    const int given[] = {a, b, c};
    int *const at = CKPT_NEW(arena, int, 3);
    ckpt_list list = {at, 0};
    for (int i = 0; i < 3; i++) {
        if (given[i] >= 0) {
            at[list.count++] = given[i];
        }
    }
    return list;
}

/* The minimum budget is a budget, and it is the same whether much or little is missing. */
static void minimum_budget_is_a_budget(void **state)
{
    for (int seed = 1; seed <= 12; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, (uint64_t)seed, 6 + seed % 20);
        ckpt_plan_options options = {.effort = seed % 6 == 0};
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
    for (int seed = 1; seed <= 5; seed++) {
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

/* A step as other frameworks trace it: forward ops that only backward reads, some of them late, several losses, pieces
 * that do not hang together, activations that the step gives back. */
static ckpt_graph *late_step(ckpt_arena *arena, uint64_t seed, int layers)
{
    enum { OPS = 24, BUFFERS = 32 };
    ckpt_dice dice = {seed};
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, OPS);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, BUFFERS);
    int ops = 0, buffers = 0, gradient = -1;
    int value[OPS], before[OPS], side[OPS];
    for (int i = 0; i < layers; i++) { /* a piece begins where nothing is read */
        before[i] = i > 0 && ckpt_dice_roll(&dice, 5) > 0 ? value[i - 1] : -1;
        value[i] = buffers;
        buffer[buffers++] = (ckpt_buffer){.name = ckpt_arena_format(arena, "a%d", i),
                                          .bytes = 1 + ckpt_dice_roll(&dice, 100),
                                          .kind = CKPT_ACTIVATION};
        ckpt_graph_op *const f = &op[ops++];
        *f = (ckpt_graph_op){.name = ckpt_arena_format(arena, "f%d", i),
                             .phase = CKPT_FORWARD,
                             .layer = "",
                             .time_ns = 1 + ckpt_dice_roll(&dice, 50),
                             .recompute = true};
        f->writes = list_of(arena, value[i], -1, -1);
        f->reads = list_of(arena, before[i], -1, -1);
        side[i] = before[i];
        if (ckpt_dice_roll(&dice, 3) == 0) { /* as a mask: for backward alone */
            side[i] = buffers;
            buffer[buffers++] = (ckpt_buffer){.name = ckpt_arena_format(arena, "s%d", i),
                                              .bytes = 1 + ckpt_dice_roll(&dice, 100),
                                              .kind = CKPT_SAVED};
            op[ops++] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "side%d", i),
                                        .phase = CKPT_FORWARD,
                                        .layer = "",
                                        .reads = list_of(arena, value[i], before[i], -1),
                                        .writes = list_of(arena, side[i], -1, -1),
                                        .time_ns = 1 + ckpt_dice_roll(&dice, 50),
                                        .recompute = true};
        }
    }
    for (int i = layers - 1; i >= 0; i--) {
        int late = -1;
        if (ckpt_dice_roll(&dice, 2) == 0) { /* of phase forward, among the backward ops */
            late = buffers;
            buffer[buffers++] = (ckpt_buffer){.name = ckpt_arena_format(arena, "l%d", i),
                                              .bytes = 1 + ckpt_dice_roll(&dice, 100),
                                              .kind = CKPT_ACTIVATION};
            op[ops++] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "late%d", i),
                                        .phase = CKPT_FORWARD,
                                        .layer = "",
                                        .reads = list_of(arena, value[i], -1, -1),
                                        .writes = list_of(arena, late, -1, -1),
                                        .time_ns = 1 + ckpt_dice_roll(&dice, 50),
                                        .recompute = true};
        }
        const int loss = ckpt_dice_roll(&dice, 5); /* 0: another loss begins here */
        const int written = buffers;
        buffer[buffers++] = (ckpt_buffer){
            .name = ckpt_arena_format(arena, "g%d", i), .bytes = 1 + ckpt_dice_roll(&dice, 100), .kind = CKPT_GRADIENT};
        op[ops++] =
            (ckpt_graph_op){.name = ckpt_arena_format(arena, "b%d", i),
                            .phase = CKPT_BACKWARD,
                            .layer = "",
                            .reads = list_of(arena, loss > 0 ? gradient : -1, late >= 0 ? late : value[i], side[i]),
                            .writes = list_of(arena, written, -1, -1),
                            .time_ns = 1 + ckpt_dice_roll(&dice, 50)};
        gradient = written;
    }
    *graph = (ckpt_graph){
        .source = "test", .name = "late", .buffer = buffer, .buffer_count = buffers, .op = op, .op_count = ops};
    const int given = ckpt_dice_roll(&dice, layers);
    graph->outputs = list_of(arena, value[given], ckpt_dice_roll(&dice, 2) == 0 ? -1 : value[(given + 1) % layers], -1);
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

/* `before`: the time with less memory; becomes that with this much. True: a part alone is slower. */
static bool is_no_slower(const ckpt_graph *graph, uint64_t seed, ckpt_plan_options *options, ckpt_bytes budget,
                         ckpt_ns *before)
{
    static const char *const parts[] = {"search", "chain", "hierarchy", "price", "ilp"};
    CKPT_TEST_ARENA(arena);
    bool beaten = false;
    const ckpt_plan *const plan = plan_at(graph, options, budget, &arena);
    CHECK(plan->verdict == CKPT_FITS && plan->time_ns <= *before,
          "seed %d, effort %d: %lld ns at %lld B, %lld below it", (int)seed, options->effort, (long long)plan->time_ns,
          (long long)budget, (long long)*before);
    *before = plan->time_ns;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        ckpt_plan *alone = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_plan_make(graph, parts[p], options, &arena, &alone, &err), err);
        const bool fits = alone->verdict == CKPT_FITS;
        CHECK(!fits || alone->time_ns >= plan->time_ns, "seed %d, effort %d, %lld B: auto %lld ns, %s %lld", (int)seed,
              options->effort, (long long)budget, (long long)plan->time_ns, parts[p], (long long)alone->time_ns);
        beaten = beaten || (fits && alone->time_ns > plan->time_ns);
    }
    return beaten;
}

/* On a step of a Llama auto's own part `search` was faster than auto, and a plan got slower with more memory. */
static void auto_is_no_slower_than_its_parts_nor_with_more_memory(void **state)
{
    enum { BUDGETS = 8, NEAR = 4 }; /* evenly up to keep-all, and the first of them closely above the minimum */
    int beaten = 0;
    const uint64_t seeds = ckpt_test_rounds(SEEDS, SEEDS / 5);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = late_step(&arena, seed, 3 + (int)(seed % 3));
        const ckpt_bytes most = ckpt_test_keep_all(graph, &arena);
        for (int effort = CKPT_EFFORT_LOW; effort <= (seed % 5 == 0 ? CKPT_EFFORT_NORMAL : CKPT_EFFORT_LOW); effort++) {
            ckpt_plan_options options = {.effort = effort, .solver = &ckpt_solver_glpk};
            const ckpt_bytes least = plan_at(graph, &options, 1, &arena)->min_budget_bytes;
            ckpt_ns before = INT64_MAX;
            for (int i = 0; i < NEAR + BUDGETS - 1; i++) {
                const ckpt_bytes near = least + (most - least) * i / (NEAR * (BUDGETS - 1));
                const ckpt_bytes budget = i < NEAR ? near : least + (most - least) * (i - NEAR + 1) / (BUDGETS - 1);
                beaten += is_no_slower(graph, seed, &options, budget, &before);
            }
        }
    }
    CHECK(beaten > 0, "every part alone is as good as auto: this shows nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimum_budget_is_a_budget),
        cmocka_unit_test(infeasible_answer_takes_one_search),
        cmocka_unit_test(auto_is_no_slower_than_its_parts_nor_with_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
