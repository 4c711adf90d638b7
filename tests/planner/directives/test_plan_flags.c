/* labels: unit */
/* What the user sets is done, and done well: units in units, early stop, policies, and the rest planned around it. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/directives/choose.h"
#include "planner/directives/flags.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"

enum { CHAIN = 8, OPS = 2 * CHAIN };

typedef struct fixture {
    ckpt_arena arena;
    ckpt_graph graph;
    ckpt_graph_op op[OPS];
    int runs[OPS];
    ckpt_bytes peak;
    ckpt_ns time;
} fixture;

/* Forward op f writes an activation that backward op OPS - 1 - f reads, and something saved that it reads too. */
static void start(fixture *f, uint64_t seed)
{
    ckpt_arena_init(&f->arena);
    const ckpt_graph *const chain = ckpt_test_chain(&f->arena, seed, CHAIN, 9, 64, 9);
    f->graph = *chain;
    assert_int_equal(chain->op_count, OPS);
    memcpy(f->op, chain->op, sizeof f->op);
    f->graph.op = f->op;
}

static void flag(fixture *f, int from, int to, ckpt_choice choice, const char *segment)
{
    for (int o = from; o < to; o++) {
        f->op[o].checkpoint = choice;
        f->op[o].segment = segment;
    }
}

static void order_of(fixture *f, bool prefer, ckpt_order *order)
{
    ckpt_err err = {0};
    ckpt_candidate measured;
    ckpt_order_init(order);
    CHECK_OK(ckpt_flags_order(&f->graph, prefer, order, &err), err);
    CHECK_OK(ckpt_order_measure(order, &f->graph, &f->arena, &measured, &err), err);
    f->peak = measured.peak;
    f->time = measured.time;
    memset(f->runs, 0, sizeof f->runs);
    for (int t = 0; t < order->count; t++) {
        f->runs[order->op[t]]++;
    }
}

/* Op 3 writes what leaves the unit, and backward needs nothing else of it: torch would stop before it. */
static void whole_segment_is_recomputed_where_less_is_needed(void **state)
{
    fixture f;
    start(&f, 5);
    const int only[] = {f.op[3].writes.at[0]};
    f.op[3].writes = (ckpt_list){only, 1}; /* nothing saved */
    ckpt_graph_op *const back = &f.op[OPS - 1 - 3];
    back->reads = (ckpt_list){back->reads.at, 1}; /* the gradient alone */
    flag(&f, 1, 4, CKPT_YES, "unit");
    ckpt_order order;
    order_of(&f, true, &order);
    assert_int_equal(f.runs[1], 2);
    assert_int_equal(f.runs[2], 2);
    assert_int_equal(f.runs[3], 1);
    /* the plan that runs the whole segment takes exactly that op longer */
    ckpt_order whole;
    ckpt_order_init(&whole);
    for (int t = 0; t < order.count; t++) {
        ckpt_order_add(&whole, order.op[t]);
        if (order.op[t] == 2 && t > OPS / 2) {
            ckpt_order_add(&whole, 3);
        }
    }
    ckpt_candidate measured;
    ckpt_err err = {0};
    CHECK_OK(ckpt_order_measure(&whole, &f.graph, &f.arena, &measured, &err), err);
    assert_int_equal(measured.time, f.time + f.op[3].time_ns);
    ckpt_order_fini(&whole);
    ckpt_order_fini(&order);
    ckpt_arena_fini(&f.arena);
}

/* The inner unit's insides are dropped again in the outer recomputation: so its ops run three times. */
static void inner_unit_stays_in_memory_while_the_outer_is_recomputed(void **state)
{
    fixture f;
    start(&f, 6);
    flag(&f, 1, 6, CKPT_YES, "h");
    flag(&f, 2, 4, CKPT_YES, "h/h.in");
    ckpt_order nested;
    order_of(&f, true, &nested);
    const int wanted[CHAIN] = {1, 2, 3, 3, 2, 2, 1, 1};
    for (int o = 0; o < CHAIN; o++) {
        CHECK(f.runs[o] == wanted[o] || (o == 5 && f.runs[o] == 1), "op %d runs %d times, wanted %d", o, f.runs[o],
              wanted[o]);
    }
    ckpt_order_fini(&nested);
    ckpt_arena_fini(&f.arena);
}

/* A unit with only the loss behind it. */
static void last_segment_is_recomputed_for_nothing(void **state)
{
    fixture f;
    start(&f, 7);
    flag(&f, 0, 4, CKPT_YES, "a");
    flag(&f, 4, CHAIN, CKPT_YES, "b");
    ckpt_order order;
    order_of(&f, true, &order);
    for (int o = 4; o < CHAIN; o++) {
        CHECK(f.runs[o] == 1, "op %d of the last segment runs %d times", o, f.runs[o]);
    }
    CHECK(f.runs[1] == 2, "the first segment is not recomputed");
    ckpt_order_fini(&order);
    ckpt_arena_fini(&f.arena);
}

/* What is saved by a policy inside a unit is not recomputed, and what only it read is not kept for it. */
static void policy_saves_what_the_unit_recomputes(void **state)
{
    fixture f;
    start(&f, 8);
    flag(&f, 1, 5, CKPT_YES, "unit");
    f.op[3].policy = CKPT_MUST_SAVE;
    ckpt_order order;
    order_of(&f, true, &order);
    assert_int_equal(f.runs[3], 1);
    assert_int_equal(f.runs[2], 2);
    ckpt_order_fini(&order);
    f.op[3].policy = CKPT_PREFER_SAVE;
    order_of(&f, true, &order);
    assert_int_equal(f.runs[3], 1);
    ckpt_order_fini(&order);
    order_of(&f, false, &order);
    assert_int_equal(f.runs[3], 2);
    ckpt_order_fini(&order);
    ckpt_arena_fini(&f.arena);
}

/* Random steps, random flags and policies, random budgets: plans pass the checker (ckpt_plan_make asks it) and a plain
 * replay; what is kept runs once, what must be recomputed is; and no plan within the budget is left out that the flags
 * alone would give. */
static void what_is_set_is_not_obeyed_under_a_budget(void **state)
{
    int recomputed = 0;
    int planned_around = 0;
    int copied = 0;
    const int rounds = (int)ckpt_test_rounds(150, 30);
    for (int seed = 1; seed <= rounds; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_dice dice = {(uint64_t)seed};
        const ckpt_graph *const step = ckpt_test_step(&arena, (uint64_t)seed, 10);
        ckpt_graph graph = *step;
        ckpt_graph_op *const op = CKPT_NEW(&arena, ckpt_graph_op, graph.op_count);
        static const char *const segment[] = {"a", "a/b", "a/b/c", "d", NULL};
        for (int o = 0; o < graph.op_count; o++) {
            op[o] = step->op[o];
            op[o].checkpoint = (ckpt_choice)ckpt_dice_roll(&dice, 3);
            op[o].segment = segment[ckpt_dice_roll(&dice, 5)];
            op[o].offload = ckpt_dice_roll(&dice, 3) == 0 ? CKPT_YES : CKPT_UNSET;
            op[o].policy = ckpt_dice_roll(&dice, 2) == 0 ? CKPT_NO_POLICY : (ckpt_policy)ckpt_dice_roll(&dice, 5);
        }
        graph.op = op;
        graph.has_link = seed % 2 == 0;
        graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = INT64_C(1) << ckpt_dice_roll(&dice, 40);
        ckpt_err err = {0};
        ckpt_plan *plan = NULL;
        ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
        CHECK_OK(ckpt_plan_make(&graph, "flags", &options, &arena, &plan, &err), err);
        const ckpt_bytes set_alone = plan->peak_bytes;
        const ckpt_bytes budgets[] = {0, set_alone - set_alone / 10, set_alone / 2, 1};
        for (int i = 0; i < 4; i++) {
            options.budget_bytes = budgets[i];
            CHECK_OK(ckpt_plan_make(&graph, "flags", &options, &arena, &plan, &err), err);
            if (plan->verdict != CKPT_FITS) {
                continue;
            }
            char what[64];
            snprintf(what, sizeof what, "seed %d, budget %lld", seed, (long long)options.budget_bytes);
            ckpt_test_replay(&graph, plan, what);
            planned_around += i > 0;
            for (int s = 0; s < plan->step_count; s++) {
                const int target = plan->step[s].kind == CKPT_RUN ? plan->step[s].target : 0;
                const ckpt_graph_op *const run = &op[target];
                copied += plan->step[s].kind == CKPT_FETCH;
                if (plan->step[s].kind == CKPT_RUN && plan->step[s].recomputed) {
                    recomputed++;
                    CHECK(run->checkpoint != CKPT_NO && run->policy != CKPT_MUST_SAVE, "%s: %s runs again", what,
                          run->name);
                }
            }
        }
    }
    print_message("%d runs again, %d copies, %d plans around what is set\n", recomputed, copied, planned_around);
    CHECK(recomputed > 50 && planned_around > 5 && copied > 20, "the instances show nothing");
}

typedef struct starved {
    const ckpt_graph *graph;
} starved;

static ckpt_code choose_and_plan(void *context, ckpt_err *err)
{
    const starved *const s = context;
    static const ckpt_rule rule[] = {{CKPT_RULE_CHECKPOINT, "[a-z]*"}, {CKPT_RULE_KEEP, "[a-z]*1"}};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_text notes;
    ckpt_text_init(&notes);
    const ckpt_graph *chosen = NULL;
    ckpt_plan *plan = NULL;
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW, .budget_bytes = 1};
    ckpt_code code = ckpt_choose(s->graph, rule, 2, false, "group_2", &arena, &chosen, &notes, err);
    code = code == CKPT_OK ? ckpt_plan_make(chosen, "flags", &options, &arena, &plan, err) : code;
    ckpt_text_fini(&notes);
    ckpt_arena_fini(&arena);
    return code;
}

/* Patterns, groups, copies, the unrolled graph, auto on it. */
static void memory_ends(void **state)
{
    fixture f;
    start(&f, 9);
    for (int o = 0; o < CHAIN; o++) {
        f.op[o].offload = o == 2 ? CKPT_YES : CKPT_UNSET;
        f.op[o].stage = 1 + (o > 4);
    }
    f.graph.has_link = true;
    f.graph.d2h_bytes_per_s = f.graph.h2d_bytes_per_s = 1000000000;
    starved s = {&f.graph};
    CHECK(ckpt_test_starve(choose_and_plan, &s) > 20, "hardly anything was allocated");
    ckpt_arena_fini(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_segment_is_recomputed_where_less_is_needed),
        cmocka_unit_test(inner_unit_stays_in_memory_while_the_outer_is_recomputed),
        cmocka_unit_test(last_segment_is_recomputed_for_nothing),
        cmocka_unit_test(policy_saves_what_the_unit_recomputes),
        cmocka_unit_test(what_is_set_is_not_obeyed_under_a_budget),
        cmocka_unit_test(memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
