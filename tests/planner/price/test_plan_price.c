/* labels: unit */
/* Strategy price: its figures against plain sums and replays, its answers on chains of any length against a knapsack,
 * and how soon planning ends when it is asked to. */
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/price/price_impl.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

static void tree_is_plain_sums(void **state)
{
    enum { MOMENTS = 37 };
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_dice dice = {7};
    ckpt_bytes plain[MOMENTS], read[MOMENTS];
    ckpt_price_tree tree;
    CHECK_OK(ckpt_price_tree_take(&tree, MOMENTS, &arena, &err), err);
    for (int j = 0; j < MOMENTS; j++) {
        plain[j] = ckpt_dice_roll(&dice, 50);
    }
    ckpt_price_tree_fill(&tree, plain, MOMENTS);
    for (int i = 0; i < 2000; i++) {
        const int from = ckpt_dice_roll(&dice, MOMENTS), to = ckpt_dice_roll(&dice, MOMENTS);
        const ckpt_bytes bytes = ckpt_dice_roll(&dice, 100) - 50;
        ckpt_price_tree_add(&tree, from, to, bytes); /* nothing where from > to */
        ckpt_bytes most = INT64_MIN;
        const int low = from < to ? from : to, high = from < to ? to : from;
        for (int j = from; j <= to; j++) {
            plain[j] += bytes;
        }
        for (int j = low; j <= high; j++) {
            most = plain[j] > most ? plain[j] : most;
        }
        CHECK(ckpt_price_tree_most(&tree, low, high) == most, "most of %d..%d", low, high);
    }
    ckpt_price_tree_read(&tree, read, MOMENTS);
    assert_memory_equal(read, plain, sizeof plain);
}

/* On steps of any shape: legal orders with the figures of the plain replay, and within the limit. */
static void figures_are_those_of_a_replay(void **state)
{
    int fits = 0;
    const int seeds = (int)ckpt_test_rounds(200, 40);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_step(&arena, seed, 4 + (int)(seed * 5 % 40));
        const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        for (int percent = 50; percent < 100; percent += 10) {
            ckpt_err err = {0};
            const ckpt_bytes limit = (whole - graph->static_bytes) * percent / 100;
            const ckpt_plan_options options = {0};
            ckpt_candidates found = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
            CHECK_OK(ckpt_strategy_find("price")->plan(graph, limit, &options, &arena, &found, &err), err);
            for (int i = 0; i < found.count; i++) {
                const ckpt_candidate *const c = &found.candidate[i];
                ckpt_bytes peak = 0;
                ckpt_ns time = 0;
                ckpt_test_measure(graph, c->sequence.op, c->sequence.count, &peak, &time);
                CHECK(peak == c->peak && time == c->time && peak <= limit, "seed %d, %d %%", (int)seed, percent);
            }
            fits += found.count > 0;
            ckpt_plan *plan = NULL;
            const ckpt_plan_options whole_plan = {.budget_bytes = graph->static_bytes + limit};
            CHECK_OK(ckpt_plan_make(graph, "price", &whole_plan, &arena, &plan, &err), err); /* through the checker */
        }
    }
    CHECK(fits > seeds, "%d plans from %d graphs", fits, seeds);
}

/* The chain of n forward and n backward ops of unequal sizes and times that once took minutes. */
static const ckpt_graph *chain(ckpt_arena *arena, int n)
{
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 2 * n);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, 2 * n - 1);
    int *const list = CKPT_NEW(arena, int, 6 * n);
    for (int k = 0; k < n; k++) {
        int *const mine = &list[6 * k]; /* a(k-1), a(k); then of its backward: a(k-1), g(k), g(k-1) */
        memcpy(mine, (int[]){k - 1, k, k - 1, n + k, n + k - 1}, 5 * sizeof *mine);
        buffer[k] = (ckpt_buffer){ckpt_arena_format(arena, "a%d", k), 512 + 64 * (k % 7), CKPT_ACTIVATION};
        if (k > 0) {
            buffer[n + k - 1] = (ckpt_buffer){ckpt_arena_format(arena, "g%d", k - 1), 512, CKPT_GRADIENT};
        }
        op[k] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "f%d", k),
                                .layer = "",
                                .reads = {mine, k > 0},
                                .writes = {mine + 1, 1},
                                .time_ns = 100 + k % 13,
                                .workspace_bytes = 64,
                                .recompute = true};
        if (k == 0) {
            mine[0] = mine[2] = n; /* the first backward op reads no input */
        }
        const bool last = k == n - 1;
        op[2 * n - 1 - k] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "b%d", k),
                                            .layer = "",
                                            .phase = CKPT_BACKWARD,
                                            .reads = {k > 0 ? mine + 2 : mine + 3, (k > 0) + !last},
                                            .writes = {mine + 4, k > 0},
                                            .time_ns = 200,
                                            .workspace_bytes = 64};
    }
    *graph = (ckpt_graph){
        .source = "", .name = "chain", .buffer = buffer, .buffer_count = 2 * n - 1, .op = op, .op_count = 2 * n};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

typedef struct priced {
    ckpt_ns time;
    ckpt_bytes bytes;
} priced;

static int by_price(const void *a, const void *b)
{
    const priced *const x = a, *const y = b;
    const int64_t left = x->time * y->bytes, right = y->time * x->bytes;
    return (left > right) - (left < right);
}

/* The least time to recompute as many bytes as are above the limit, as if that took no memory itself. */
static double knapsack(const ckpt_graph *graph, ckpt_bytes limit)
{
    const int n = graph->op_count / 2;
    priced *const item = malloc((size_t)n * sizeof *item);
    assert_non_null(item);
    ckpt_bytes over = -limit;
    double time = 0;
    for (int k = 0; k < n; k++) {
        item[k] = (priced){graph->op[k].time_ns, graph->buffer[k].bytes};
        over += item[k].bytes;
        time += (double)(graph->op[k].time_ns + graph->op[n + k].time_ns);
    }
    qsort(item, (size_t)n, sizeof *item, by_price);
    for (int k = 0; k < n && over > 0; k++) {
        const double part = over < item[k].bytes ? (double)over / (double)item[k].bytes : 1;
        time += part * (double)item[k].time;
        over -= item[k].bytes;
    }
    free(item);
    return time;
}

static void long_chains_are_planned_near_the_knapsack(void **state)
{
    static const int percents[] = {80, 60, 30, 10};
    const int most = (int)ckpt_test_rounds(50000, 5000);
    for (int n = 5000; n <= most; n *= 10) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = chain(&arena, n);
        const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        for (int i = 0; i < 4; i++) {
            ckpt_err err = {0};
            const ckpt_bytes limit = whole * percents[i] / 100;
            const ckpt_plan_options options = {0};
            ckpt_candidates found = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
            CHECK_OK(ckpt_strategy_find("price")->plan(graph, limit, &options, &arena, &found, &err), err);
            const double least = knapsack(graph, limit);
            CHECK(found.count > 0 && (double)found.candidate[0].time <= 1.02 * least, "%d ops, %d %%: %lld ns, %.0f",
                  2 * n, percents[i], found.count > 0 ? (long long)found.candidate[0].time : -1LL, least);
        }
    }
}

typedef struct asked {
    int64_t times, until; /* true from the until-th time on */
} asked;

static bool cancelled(void *context)
{
    asked *const a = context;
    return ++a->times >= a->until;
}

/* What took 60 s to answer SIGTERM: all loops see the end, wherever it comes. */
static void a_large_chain_ends_when_asked(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = chain(&arena, 10000);
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    for (int64_t until = 1; until < 400; until = 4 * until + 1) {
        CKPT_TEST_ARENA(scratch);
        ckpt_err err = {0};
        asked a = {0, until};
        ckpt_plan *plan = NULL;
        const ckpt_plan_options options = {
            .budget_bytes = whole * 6 / 10, .effort = CKPT_EFFORT_NORMAL, .cancelled = cancelled, .context = &a};
        CHECK_OK(ckpt_plan_make(graph, "auto", &options, &scratch, &plan, &err), err);
        CHECK(a.times < until + 100, "asked %lld times after the end", (long long)(a.times - until));
    }
}

typedef struct starved {
    const ckpt_graph *graph;
    ckpt_bytes limit;
} starved;

static ckpt_code plan_once(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_candidates found = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const ckpt_plan_options options = {0};
    return ckpt_strategy_find("price")->plan(s->graph, s->limit, &options, arena, &found, err);
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = chain(&arena, 2000);
    starved s = {graph, ckpt_test_keep_all(graph, &arena) * 6 / 10};
    CHECK(ckpt_test_starve_arena(plan_once, &s) > 5, "it hardly allocates");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_is_plain_sums),
        cmocka_unit_test(figures_are_those_of_a_replay),
        cmocka_unit_test(long_chains_are_planned_near_the_knapsack),
        cmocka_unit_test(a_large_chain_ends_when_asked),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
