/* labels: unit */
/* Local search: incremental figures against a plain measure, answers against brute force, the same answer twice. */
#include <string.h>

#include "planner/search/search.h"
#include "planner/search/search_impl.h"
#include "tests/support/support_brute.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

/* The step with in-place pairs where an op reads something and writes something: sizes made equal. */
static const ckpt_graph *with_inplace(const ckpt_graph *made, ckpt_arena *arena, ckpt_dice *dice)
{
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, made->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, made->buffer_count);
    *graph = *made;
    memcpy(op, made->op, (size_t)made->op_count * sizeof *op);
    memcpy(buffer, made->buffer, (size_t)made->buffer_count * sizeof *buffer);
    for (int o = 0; o < made->op_count; o++) {
        if (op[o].reads.count > 0 && op[o].writes.count > 0 && ckpt_dice_roll(dice, 2) == 0) {
            ckpt_inplace *const pair = CKPT_NEW(arena, ckpt_inplace, 1);
            *pair = (ckpt_inplace){op[o].writes.at[0], op[o].reads.at[ckpt_dice_roll(dice, op[o].reads.count)]};
            op[o].inplace = pair;
            op[o].inplace_count = 1;
        }
    }
    for (int o = 0; o < made->op_count; o++) { /* writers come first: sizes travel along */
        if (op[o].inplace_count > 0) {
            buffer[op[o].inplace[0].out].bytes = buffer[op[o].inplace[0].in].bytes;
        }
    }
    graph->op = op;
    graph->buffer = buffer;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

static void check_figures(ckpt_search *search, ckpt_arena *arena, const char *what, int seed)
{
    ckpt_err err = {0};
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_search_write(search, &order);
    ckpt_candidate measured;
    CHECK_OK(ckpt_order_measure(&order, search->graph, arena, &measured, &err), err);
    ckpt_order_fini(&order);
    CHECK(measured.peak == search->most[1] && measured.time == search->time,
          "%s, seed %d: peak %lld, time %lld; measured %lld, %lld", what, seed, (long long)search->most[1],
          (long long)search->time, (long long)measured.peak, (long long)measured.time);
}

static void figures_are_exact(void **state)
{
    int inplace_seen = 0;
    for (int seed = 1; seed <= 60; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_dice dice = {(uint64_t)seed * 977};
        const ckpt_graph *graph = ckpt_test_step(&arena, (uint64_t)seed, 2 + seed % 20);
        graph = seed % 2 == 0 ? with_inplace(graph, &arena, &dice) : graph;
        ckpt_search search;
        CHECK_OK(ckpt_search_init(graph, &arena, &search, &err), err);
        check_figures(&search, &arena, "reference order", seed);
        for (int i = 0; i < 200; i++) {
            int k = ckpt_dice_roll(&dice, search.stages);
            int v = ckpt_dice_roll(&dice, k < graph->op_count ? k + 1 : k);
            if (search.recomputed_count > 5 + seed % 40) {
                const ckpt_instant at = search.recomputed[ckpt_dice_roll(&dice, search.recomputed_count)];
                k = CKPT_INSTANT_STAGE(at);
                v = CKPT_INSTANT_OP(at);
            }
            const bool had = ckpt_search_has(&search, k, v);
            const bool done = ckpt_search_toggle(&search, k, v);
            CHECK(done == (v < k && graph->op[v].recompute), "seed %d: toggle (%d, %d)", seed, k, v);
            CHECK(ckpt_search_has(&search, k, v) == (had != done), "seed %d: (%d, %d) is there", seed, k, v);
            check_figures(&search, &arena, "toggle", seed);
        }
        for (int k = 0; k < search.stages; k++) {
            for (int i = 0; i < search.stage[k].count; i++) {
                inplace_seen += search.stage[k].inplace[i];
            }
        }
    }
    CHECK(inplace_seen > 50, "only %d runs in place", inplace_seen);
}

static void moves_can_be_taken_back(void **state)
{
    for (int seed = 1; seed <= 20; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_dice dice = {(uint64_t)seed};
        const ckpt_graph *const graph = with_inplace(ckpt_test_step(&arena, (uint64_t)seed, 5 + seed), &arena, &dice);
        ckpt_searcher w = {.dice = (uint64_t)seed, .live_age_max = 3, .log_max = CKPT_SEARCH_LOG};
        CHECK_OK(ckpt_search_init(graph, &arena, &w.search, &err), err);
        w.live = CKPT_NEW(&arena, int, graph->buffer_count);
        w.limit = w.aim = w.search.most[1] * 3 / 4;
        for (int i = 0; i < 500; i++) {
            const ckpt_bytes peak = w.search.most[1];
            const ckpt_ns time = w.search.time;
            w.log_count = 0;
            ckpt_move_any(&w);
            check_figures(&w.search, &arena, "move", seed);
            if (ckpt_dice_roll(&dice, 2) == 0) {
                ckpt_move_undo(&w, 0);
                CHECK(w.search.most[1] == peak && w.search.time == time, "seed %d: not taken back", seed);
            }
        }
    }
}

static ckpt_code improve(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *arena, ckpt_candidates *candidates,
                         ckpt_err *err)
{
    const ckpt_plan_options options = {0};
    *candidates = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    return ckpt_search_improve(graph, limit, 30000, &options, arena, candidates, err);
}

/* Never below the optimum; within the limit wherever there is a schedule with a little room; close to it
 * on the whole. */
static void against_brute_force(void **state)
{
    double excess = 0;
    int count = 0;
    int missed = 0;
    for (int seed = 1; seed <= 40; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, (uint64_t)seed, NULL);
        const ckpt_bytes least = ckpt_brute_peak(graph, CKPT_BRUTE_STAGES);
        for (int percent = 102; percent <= 142; percent += 20) {
            const ckpt_bytes limit = least * percent / 100;
            const ckpt_ns best = ckpt_brute_time(graph, limit, CKPT_BRUTE_STAGES);
            ckpt_candidates candidates;
            CHECK_OK(improve(graph, limit, &arena, &candidates, &err), err);
            if (candidates.count == 0) {
                missed++;
                continue;
            }
            for (int i = 0; i < candidates.count; i++) {
                const ckpt_candidate *const c = &candidates.candidate[i];
                ckpt_bytes peak = 0;
                ckpt_ns time = 0;
                CHECK_OK(ckpt_sequence_measure(graph, &c->sequence, &arena, &peak, &time, &err), err);
                CHECK(peak == c->peak && time == c->time && peak <= limit, "seed %d: candidate %d", seed, i);
                CHECK(c->time >= best, "seed %d: %lld ns, brute force %lld", seed, (long long)c->time, (long long)best);
            }
            excess += (double)(candidates.candidate[0].time - best) / (double)(best > 0 ? best : 1);
            count++;
        }
    }
    CHECK(missed == 0, "no schedule for %d of %d", missed, count + missed);
    CHECK(excess / count <= 0.001, "mean excess %f", excess / count);
}

/* Random layered graphs: ops in layers that read the layer before and, now and then, any before that, all of which may
 * run again; the last op reads whatever nobody has read. */
static const ckpt_graph *layered(ckpt_arena *arena, ckpt_dice *dice, int count)
{
    enum { READS = 4 };
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, count);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, count);
    bool *const is_read = CKPT_NEW(arena, bool, count);
    const int width = 2 << ckpt_dice_roll(dice, 4);
    const int far = 3 + ckpt_dice_roll(dice, 30);
    for (int o = 0; o < count; o++) {
        const bool last = o == count - 1;
        int *const reads = CKPT_NEW(arena, int, last ? count : READS);
        int *const writes = CKPT_NEW(arena, int, 1);
        const int first = o - o % width; /* of its layer */
        int read = 0;
        for (int i = 0; last && i < o; i++) {
            reads[read] = i;
            read += !is_read[i];
        }
        for (int i = ckpt_dice_roll(dice, READS); !last && i >= 0 && first > 0; i--) {
            const int from =
                ckpt_dice_roll(dice, far) == 0 ? ckpt_dice_roll(dice, first) : first - 1 - ckpt_dice_roll(dice, width);
            bool new = true;
            for (int j = 0; j < read; j++) {
                new = new &&reads[j] != from;
            }
            reads[read] = from;
            read += new;
            is_read[from] = true;
        }
        *writes = o;
        buffer[o] = (ckpt_buffer){ckpt_arena_format(arena, "t%d", o), 10 * (1 + ckpt_dice_roll(dice, 500)), 0};
        op[o] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "o%d", o),
                                .layer = "",
                                .reads = {reads, read},
                                .writes = {writes, 1},
                                .time_ns = ckpt_dice_roll(dice, 1000),
                                .recompute = true};
    }
    *graph = (ckpt_graph){
        .source = "", .name = "layered", .buffer = buffer, .buffer_count = count, .op = op, .op_count = count};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

/* On layered graphs, at limits that leave some room: a schedule, and a faster one than online eviction and hierarchy
 * have; and a peak at least as low as theirs. */
static void better_on_layers(void **state)
{
    static const char *const others[] = {"dtr", "hierarchy"};
    int compared = 0;
    for (int seed = 1; seed <= 4; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_dice dice = {(uint64_t)seed * 7919};
        const ckpt_graph *const graph = layered(&arena, &dice, 100 + 50 * seed);
        ckpt_search keep;
        CHECK_OK(ckpt_search_init(graph, &arena, &keep, &err), err);
        const ckpt_plan_options options = {0};
        ckpt_candidates least = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
        CHECK_OK(ckpt_search_min_peak(graph, 0, 200000, &options, &arena, &least, &err), err);
        for (int percent = 70; percent <= 90; percent += 10) {
            const ckpt_bytes limit = keep.most[1] * percent / 100;
            ckpt_candidates candidates = {.min_peak = least.min_peak};
            CHECK_OK(ckpt_search_improve(graph, limit, 300000, &options, &arena, &candidates, &err), err);
            CHECK(candidates.count > 0 || least.min_peak.peak > limit, "seed %d: nothing at %d %%, least %lld of %lld",
                  seed, percent, (long long)least.min_peak.peak, (long long)limit);
            for (int i = 0; i < (seed <= 2 && percent == 80 ? 2 : 1); i++) {
                const ckpt_strategy *const other = ckpt_strategy_find(others[i]);
                ckpt_candidates theirs = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
                CHECK_OK(other->plan(graph, limit, &options, &arena, &theirs, &err), err);
                CHECK(least.min_peak.peak <= theirs.min_peak.peak, "seed %d: peak %lld, %s's %lld", seed,
                      (long long)least.min_peak.peak, others[i], (long long)theirs.min_peak.peak);
                CHECK(theirs.count == 0 ||
                          (candidates.count > 0 && candidates.candidate[0].time <= theirs.candidate[0].time),
                      "seed %d: slower than %s at %d %%", seed, others[i], percent);
                compared += theirs.count > 0;
            }
        }
    }
    CHECK(compared > 0, "only %d compared", compared);
}

static void same_twice(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_graph *const graph = ckpt_test_step(&arena, 7, 25);
    ckpt_search keep;
    CHECK_OK(ckpt_search_init(graph, &arena, &keep, &err), err);
    for (int percent = 40; percent <= 90; percent += 25) {
        ckpt_candidates candidates[2];
        for (int i = 0; i < 2; i++) {
            CHECK_OK(improve(graph, keep.most[1] * percent / 100, &arena, &candidates[i], &err), err);
        }
        assert_int_equal(candidates[0].count, candidates[1].count);
        for (int i = 0; i < candidates[0].count; i++) {
            const ckpt_sequence *const a = &candidates[0].candidate[i].sequence;
            const ckpt_sequence *const b = &candidates[1].candidate[i].sequence;
            assert_int_equal(a->count, b->count);
            assert_memory_equal(a->op, b->op, (size_t)a->count * sizeof *a->op);
        }
    }
}

static ckpt_code starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_candidates candidates;
    return improve(context, 1500, arena, &candidates, err);
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_graph *const graph = ckpt_test_step(&arena, 3, 12);
    ckpt_test_starve_arena(starved, graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_exact),   cmocka_unit_test(moves_can_be_taken_back),
        cmocka_unit_test(against_brute_force), cmocka_unit_test(better_on_layers),
        cmocka_unit_test(same_twice),          cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
