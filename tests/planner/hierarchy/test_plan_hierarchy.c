/* labels: unit */
/* The sweep behind strategy hierarchy against brute force, against the plain replay, and against itself. */
#include <stdio.h>
#include <string.h>

#include "planner/hierarchy/hierarchy_impl.h"
#include "planner/replay/replay.h"
#include "tests/support/support_brute.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { WIDE = 4000 };

static const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};

static ckpt_candidates empty(void)
{
    return (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
}

static void sweep(const ckpt_graph *graph, ckpt_bytes limit, int width, ckpt_arena *arena, ckpt_candidates *found)
{
    *found = empty();
    ckpt_err err = {0};
    const ckpt_hierarchy_goal goal = {.limit = limit, .width = width, .offer = CKPT_BYTES_MAX};
    CHECK_OK(ckpt_hierarchy_run(graph, &goal, &options, arena, found, &err), err);
}

/* A label must never think that it needs less than it does: all that comes out keeps the limit of the sweep, although
 * anything is accepted. And its figures are those of the plain replay. */
static void limits_are_kept(void **state)
{
    int answers = 0;
    const int seeds = (int)ckpt_test_rounds(24, 8);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 4 + (int)(seed * 5 % 23));
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns keep_all = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &keep_all, &err), err);
        for (int percent = 50; percent <= 100; percent += 10) {
            const ckpt_bytes limit = (whole - graph->static_bytes) * percent / 100;
            ckpt_candidates found;
            sweep(graph, limit, percent % 20 == 0 ? 20 : 300, &arena, &found);
            for (int i = 0; i < found.count; i++) {
                const ckpt_candidate *const c = &found.candidate[i];
                ckpt_bytes peak = 0;
                ckpt_ns time = 0;
                ckpt_test_measure(graph, c->sequence.op, c->sequence.count, &peak, &time);
                CHECK(peak == c->peak && time == c->time, "seed %d: peak %lld, plain replay %lld", (int)seed,
                      (long long)c->peak, (long long)peak);
                CHECK(peak <= limit, "seed %d, %d %%: peak %lld above the limit %lld", (int)seed, percent,
                      (long long)peak, (long long)limit);
                answers++;
            }
            CHECK(percent < 100 || (found.count > 0 && found.candidate[0].time == keep_all),
                  "seed %d: keep-all is not found at its own peak", (int)seed);
        }
    }
    CHECK(answers > 5 * seeds, "only %d answers", answers);
}

/* Wide enough, nothing is lost but what the sweep never looks at: is recomputed before they are needed. */
static void near_the_optimum(void **state)
{
    int cases = 0;
    int equal = 0;
    int missed = 0;
    double excess = 0;
    const int seeds = (int)ckpt_test_rounds(36, 12);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        bool chain = false;
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, seed, &chain);
        const ckpt_bytes least = ckpt_brute_peak(graph, CKPT_BRUTE_ALL);
        ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        whole -= graph->static_bytes;
        for (int part = 0; part < 4; part++) {
            const ckpt_bytes limit = least + (whole - least) * part / 4;
            const ckpt_ns best = ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL);
            ckpt_candidates found;
            sweep(graph, limit, WIDE, &arena, &found);
            if (found.count == 0) {
                missed++;
                CHECK(part == 0 || !chain, "seed %d, part %d: a chain without an answer", (int)seed, part);
                continue;
            }
            const ckpt_ns time = found.candidate[0].time;
            CHECK(time >= best, "seed %d: %lld ns, brute force %lld", (int)seed, (long long)time, (long long)best);
            cases++;
            equal += time == best;
            excess += best > 0 ? (double)(time - best) / (double)best : 0;
        }
    }
    printf("%d cases, %d equal, %d without an answer, mean excess %.3f %%\n", cases, equal, missed,
           100 * excess / cases);
    CHECK(36 * cases > 130 * seeds && equal * 100 >= cases * 95, "%d of %d are optimal", equal, cases);
    CHECK(excess / cases < 0.005, "mean excess %.3f %%", 100 * excess / cases);
}

/* Narrower sweeps find less, never anything else than schedules; the same call gives the same sequences. */
static void same_twice(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 30);
        ckpt_err err = {0};
        const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        const ckpt_bytes limit = (whole - graph->static_bytes) * 7 / 10;
        const ckpt_strategy *const strategy = ckpt_strategy_find("hierarchy");
        ckpt_candidates found[2] = {empty(), empty()};
        for (int i = 0; i < 2; i++) {
            CHECK_OK(strategy->plan(graph, limit, &options, &arena, &found[i], &err), err);
        }
        CHECK(found[0].count == found[1].count && found[0].min_peak.peak == found[1].min_peak.peak, "seed %d",
              (int)seed);
        for (int i = 0; i < found[0].count; i++) {
            const ckpt_sequence *const x = &found[0].candidate[i].sequence, *const y = &found[1].candidate[i].sequence;
            CHECK(x->count == y->count && memcmp(x->op, y->op, (size_t)x->count * sizeof *x->op) == 0,
                  "seed %d: candidate %d differs", (int)seed, i);
            CHECK(found[0].candidate[i].peak <= limit, "seed %d: above the limit", (int)seed);
        }
        ckpt_candidates other = empty();
        CHECK_OK(strategy->plan(graph, limit / 2, &options, &arena, &other, &err), err);
        CHECK(other.min_peak.peak == found[0].min_peak.peak, "seed %d: least depends on the limit", (int)seed);
    }
}

/* A chain of equal blocks under a tight limit: about the square root of what keeping all takes has to be reached, which
 * needs demands that stay open over many blocks. */
static void long_chain(void **state)
{
    enum { BLOCKS = 60 };
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 3, BLOCKS, 1, 1000, 1);
    ckpt_err err = {0};
    ckpt_bytes whole = 0;
    ckpt_ns keep_all = 0;
    CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &keep_all, &err), err);
    ckpt_candidates found;
    sweep(graph, (whole - graph->static_bytes) / 5, 200, &arena, &found);
    CHECK(found.count > 0, "a fifth of keep-all is not reached");
    CHECK(found.candidate[0].time < keep_all * 2, "%lld ns", (long long)found.candidate[0].time);
}

typedef struct starved {
    const ckpt_graph *graph;
    ckpt_bytes limit;
} starved;

static ckpt_code plan_once(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_candidates found = empty();
    const ckpt_plan_options least = {.effort = CKPT_EFFORT_LOW};
    return ckpt_strategy_find("hierarchy")->plan(s->graph, s->limit, &least, arena, &found, err);
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = ckpt_test_chain(&arena, 5, 4, 9, 1, 9);
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    starved s = {graph, (whole - graph->static_bytes) * 8 / 10};
    CHECK(ckpt_test_starve_arena(plan_once, &s) > 20, "it hardly allocates");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_kept), cmocka_unit_test(near_the_optimum), cmocka_unit_test(same_twice),
        cmocka_unit_test(long_chain),      cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
