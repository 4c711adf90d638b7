/* labels: unit */
/* Bounds against the true optimum of tiny graphs, at every limit from below the minimum peak to above keep-all's. */
#include <inttypes.h>
#include <string.h>

#include "core/formats/graph.h"
#include "planner/bound/bound_impl.h"
#include "planner/replay/replay.h"
#include "tests/support/support_brute.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_sequence.h"
#include "tests/support/support_test.h"

enum { LIMITS = 8 };

/* A limit within which nothing is dropped. */
static ckpt_bytes all_bytes(const ckpt_graph *graph)
{
    ckpt_bytes bytes = 0;
    for (int o = 0; o < graph->op_count; o++) {
        bytes = graph->op[o].workspace_bytes > bytes ? graph->op[o].workspace_bytes : bytes;
    }
    for (int i = 0; i < graph->buffer_count; i++) {
        bytes += graph->buffer[i].bytes;
    }
    return bytes;
}

/* One graph at one limit: `best` is the truth, INT64_MAX when there is no schedule. */
static void check_bound(const ckpt_graph *graph, uint64_t seed, ckpt_bytes limit, ckpt_ns best, ckpt_ns *bound_sum)
{
    ckpt_err err = {0};
    CKPT_TEST_ARENA(arena);
    for (int effort = CKPT_EFFORT_LOW; effort <= CKPT_EFFORT_MORE; effort++) {
        const ckpt_plan_options options = {.effort = effort};
        ckpt_bound bound = {0};
        CHECK_OK(ckpt_bound_find(graph, limit, INT64_MAX, &options, &arena, &bound, &err), err);
        CHECK(!bound.infeasible || best == INT64_MAX, "seed %" PRIu64 ": %" PRId64 " bytes are said not to do (%s)",
              seed, limit, bound.how);
        CHECK(bound.infeasible || bound.time_ns <= best,
              "seed %" PRIu64 ", %" PRId64 " bytes: bound %" PRId64 " (%s), optimum %" PRId64, seed, limit,
              bound.time_ns, bound.how, best);
        *bound_sum += effort == CKPT_EFFORT_MORE ? bound.time_ns : 0;
        if (best < INT64_MAX) {
            /* a known schedule only saves work: what is proved is the same, and exact when it is reached */
            ckpt_bound told = {0};
            CHECK_OK(ckpt_bound_find(graph, limit, best, &options, &arena, &told, &err), err);
            CHECK(!told.infeasible && told.time_ns == bound.time_ns,
                  "seed %" PRIu64 ": %" PRId64 " with the optimum known, %" PRId64 " without", seed, told.time_ns,
                  bound.time_ns);
            assert_int_equal(strcmp(told.how, "exact") == 0, told.time_ns == best);
        }
    }
}

static void never_above_the_optimum(void **state)
{
    ckpt_ns best_sum = 0, bound_sum = 0, first_sum = 0;
    int exact = 0, cases = 0;
    const uint64_t graphs = ckpt_test_rounds(120, 24);
    for (uint64_t seed = 1; seed <= graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, seed, NULL);
        const ckpt_bytes least = ckpt_brute_peak(graph, CKPT_BRUTE_ALL);
        const ckpt_ns first = ckpt_brute_time(graph, CKPT_BYTES_MAX / 4, CKPT_BRUTE_ALL);
        ckpt_bytes peak = 0;
        CHECK_OK(ckpt_bound_peak(graph, &arena, &peak, &err), err);
        CHECK(peak <= least, "seed %" PRIu64 ": %" PRId64 " bytes are needed, but %" PRId64 " do", seed, peak, least);
        const ckpt_bytes most = all_bytes(graph);
        for (int i = -1; i < LIMITS; i++) {
            const ckpt_bytes limit = i < 0 ? least - 1 : least + (most - least) * i / LIMITS;
            const ckpt_ns best = i < 0 ? INT64_MAX : ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL);
            ckpt_ns bound = 0;
            check_bound(graph, seed, limit, best, &bound);
            if (i >= 0) {
                cases++;
                exact += bound == best;
                best_sum += best;
                bound_sum += bound;
                first_sum += first;
            }
        }
    }
    print_message("%d cases: %d met; of the time above keep-all's, %.1f %% is proved\n", cases, exact,
                  100.0 * (double)(bound_sum - first_sum) / (double)(best_sum - first_sum));
    /* with the groups left out, nothing is proved */
    CHECK(bound_sum - first_sum > (best_sum - first_sum) / 3, "a bound that bounds nothing");
}

/* Groups of a single buffer upwards, so that tiny graphs too are cut, with crossing buffers told apart or not. */
static void no_partition_is_above_the_optimum(void **state)
{
    ckpt_err err = {0};
    const ckpt_plan_options options = {0};
    const ckpt_weight none = {0};
    uint64_t crossed = 0;
    double proved = 0, paid = 0;
    const uint64_t graphs = ckpt_test_rounds(80, 16);
    for (uint64_t seed = 1; seed <= graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, seed, NULL);
        const ckpt_bytes least = ckpt_brute_peak(graph, CKPT_BRUTE_ALL), most = all_bytes(graph);
        ckpt_ns first_runs = 0;
        int forward_end = 0;
        for (int o = 0; o < graph->op_count; o++) {
            first_runs += graph->op[o].time_ns;
            forward_end += graph->op[o].phase == CKPT_FORWARD && forward_end == o;
        }
        for (int i = 0; i < LIMITS && forward_end > 0; i++) {
            const ckpt_bytes limit = least + (most - least) * i / LIMITS;
            const ckpt_ns best = ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL) - first_runs;
            for (int buffers = 1; buffers <= 4; buffers++) {
                for (int open = 0; open <= CKPT_OPEN_MAX; open++) {
                    const ckpt_mark mark = ckpt_arena_mark(&arena);
                    ckpt_groups groups;
                    ckpt_ns time = 0;
                    int64_t work = INT64_C(1000000000);
                    CHECK_OK(
                        ckpt_groups_build(graph, forward_end, forward_end, buffers, open, none, &arena, &groups, &err),
                        err);
                    CHECK_OK(ckpt_groups_bound(&groups, limit, CKPT_BOUND_LONG, &options, &work, &time, &err), err);
                    CHECK(work >= 0 && time <= best,
                          "seed %" PRIu64 ", %" PRId64 " bytes, groups of %d, %d open: %" PRId64
                          " ns again, but %" PRId64 " will do",
                          seed, limit, buffers, open, time, best);
                    crossed += groups.slots > 0;
                    proved += (double)time;
                    paid += (double)best;
                    ckpt_arena_rewind(&arena, mark);
                }
            }
        }
    }
    print_message("%" PRIu64 " partitions with crossing buffers told apart; %.1f %% proved\n", crossed,
                  100 * proved / paid);
    assert_true(crossed > graphs && proved > paid / 3);
}

/* Flows alone, over any graph that ops may run again in: those of chains and steps, and any DAG. */
static void no_flow_is_above_the_optimum(void **state)
{
    ckpt_err err = {0};
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
    double proved = 0, paid = 0;
    const uint64_t graphs = ckpt_test_rounds(400, 40);
    for (uint64_t seed = 1; seed <= graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_brute_graph(&arena, seed, NULL);
        const ckpt_bytes least = ckpt_brute_peak(graph, CKPT_BRUTE_ALL), most = all_bytes(graph);
        const ckpt_ns first_runs = ckpt_brute_time(graph, most, CKPT_BRUTE_ALL);
        for (int i = 0; i < LIMITS; i++) {
            const ckpt_bytes limit = least + (most - least) * i / LIMITS;
            const ckpt_ns best = ckpt_brute_time(graph, limit, CKPT_BRUTE_ALL) - first_runs;
            ckpt_flow_proof proof;
            CHECK_OK(ckpt_flow_bound(graph, limit, &options, &proof, &err), err);
            const ckpt_ns time = proof.time;
            CHECK(time <= best, "seed %" PRIu64 ", %" PRId64 " bytes: %" PRId64 " ns again, but %" PRId64 " will do",
                  seed, limit, time, best);
            proved += (double)time;
            paid += (double)best;
        }
    }
    print_message("%.1f %% proved by flows\n", 100 * proved / paid);
    assert_true(proved > paid / 4);
}

/* ---- variants ---- */

enum { TINY_OPS = 12, TINY_BUFFERS = 10, TINY_LISTS = 128, TINY_SETS = 1 << 12 };

/* A tiny step whose ops have ways: forward op i writes a(i), now and then an optional op packs a mask m(i) of it, and
 * backward reads a(i), or a(i - 1), or the mask; ways differ in time and workspace. */
typedef struct tiny {
    ckpt_graph graph;
    ckpt_buffer buffer[TINY_BUFFERS];
    ckpt_graph_op op[3 * TINY_OPS];
    int index[TINY_LISTS], indices;
} tiny;

static ckpt_list tiny_list(tiny *t, int a, int b)
{
    int *const at = &t->index[t->indices];
    t->indices += 2;
    at[0] = a >= 0 ? a : b;
    at[1] = b;
    return (ckpt_list){at, (a >= 0) + (b >= 0)};
}

static int tiny_buffer(tiny *t, ckpt_arena *arena, ckpt_dice *dice, ckpt_kind kind, int size)
{
    const int b = t->graph.buffer_count++;
    t->buffer[b] = (ckpt_buffer){ckpt_arena_format(arena, "t%d", b), 1 + ckpt_dice_roll(dice, size), kind};
    return b;
}

static ckpt_graph_op *tiny_op(tiny *t, ckpt_arena *arena, ckpt_dice *dice, ckpt_phase phase)
{
    ckpt_graph_op *const op = &t->op[t->graph.op_count];
    *op = (ckpt_graph_op){.name = ckpt_arena_format(arena, "o%d", t->graph.op_count++),
                          .layer = "",
                          .phase = phase,
                          .time_ns = 1 + ckpt_dice_roll(dice, 20),
                          .workspace_bytes = ckpt_dice_roll(dice, 8),
                          .recompute = phase == CKPT_FORWARD};
    return op;
}

/* Another way of the op, kept apart until all ops are there. */
static void tiny_way(ckpt_graph_op *ways, int *count, int base, const ckpt_graph_op *op, ckpt_dice *dice,
                     ckpt_list reads)
{
    ckpt_graph_op *const way = &ways[*count];
    *way = *op;
    way->base = base;
    way->variant = *count % 2 == 0 ? "even" : "odd";
    way->reads = reads;
    way->time_ns = 1 + ckpt_dice_roll(dice, 20);
    way->workspace_bytes = ckpt_dice_roll(dice, 8);
    ++*count;
}

static void tiny_make(tiny *t, ckpt_arena *arena, uint64_t seed)
{
    ckpt_dice dice = {seed};
    *t = (tiny){.graph = {.source = "", .name = "tiny"}};
    ckpt_graph_op ways[2 * TINY_OPS];
    int count = 0, a[3], m[3];
    for (int i = 0; i < 3; i++) {
        ckpt_graph_op *const op = tiny_op(t, arena, &dice, CKPT_FORWARD);
        const int base = t->graph.op_count - 1;
        a[i] = tiny_buffer(t, arena, &dice, CKPT_ACTIVATION, 9);
        op->reads = tiny_list(t, i > 0 ? a[i - 1] : -1, i > 1 && ckpt_dice_roll(&dice, 3) == 0 ? a[i - 2] : -1);
        op->writes = tiny_list(t, a[i], -1);
        if (ckpt_dice_roll(&dice, 2) == 0) {
            tiny_way(ways, &count, base, op, &dice, op->reads);
        }
        m[i] = -1;
        if (ckpt_dice_roll(&dice, 2) == 0) {
            ckpt_graph_op *const pack = tiny_op(t, arena, &dice, CKPT_FORWARD);
            pack->optional = true;
            m[i] = tiny_buffer(t, arena, &dice, CKPT_SAVED, 2);
            pack->reads = tiny_list(t, a[i], -1);
            pack->writes = tiny_list(t, m[i], -1);
        }
    }
    int gradient = -1;
    for (int i = 2; i >= 0; i--) {
        ckpt_graph_op *const op = tiny_op(t, arena, &dice, CKPT_BACKWARD);
        const int base = t->graph.op_count - 1, before = gradient;
        gradient = tiny_buffer(t, arena, &dice, CKPT_GRADIENT, 5);
        op->reads = tiny_list(t, a[i], before);
        op->writes = tiny_list(t, gradient, -1);
        if (i > 0 && ckpt_dice_roll(&dice, 2) == 0) {
            tiny_way(ways, &count, base, op, &dice, tiny_list(t, a[i - 1], before));
        }
        if (m[i] >= 0) {
            tiny_way(ways, &count, base, op, &dice, tiny_list(t, m[i], before));
        }
    }
    for (int k = 0; k < count; k++) {
        t->op[t->graph.op_count + k] = ways[k];
        t->op[t->graph.op_count + k].name = t->op[ways[k].base].name;
        ckpt_graph_op *const op = &t->op[ways[k].base];
        op->first_variant = op->variant_count == 0 ? t->graph.op_count + k : op->first_variant;
        op->variant_count++;
    }
    t->graph.buffer = t->buffer;
    t->graph.op = t->op;
    t->graph.variant_count = count;
}

static unsigned tiny_set(const ckpt_list *list)
{
    unsigned set = 0;
    for (int i = 0; i < list->count; i++) {
        set |= 1U << list->at[i];
    }
    return set;
}

static ckpt_bytes tiny_bytes(const ckpt_graph *graph, unsigned set)
{
    ckpt_bytes bytes = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        bytes += (set >> b & 1) != 0 ? graph->buffer[b].bytes : 0;
    }
    return bytes;
}

/* Behind the bits of buffers, one for every optional op: it has run. Later it may run again, else never. */
static unsigned tiny_flag(const ckpt_graph *graph, int o)
{
    int bit = graph->buffer_count;
    for (int i = 0; i < o; i++) {
        bit += graph->op[i].optional;
    }
    return graph->op[o].optional ? 1U << bit : 0;
}

/* time[after] = min(time[after], before + the run): all ways of op o from every set of buffers. */
static bool tiny_run(const ckpt_graph *graph, int o, ckpt_bytes limit, const ckpt_ns *before, ckpt_ns *after)
{
    bool changed = false;
    const unsigned flag = tiny_flag(graph, o), had = before == after ? flag : 0;
    for (int k = 0; k < ckpt_way_count(graph, o); k++) {
        const ckpt_graph_op *const way = &graph->op[ckpt_way_run(graph, o, k)];
        const unsigned reads = tiny_set(&way->reads) | had;
        for (unsigned s = 0; s < TINY_SETS; s++) {
            const unsigned to = s | tiny_set(&way->writes) | flag;
            const bool may =
                before[s] < INT64_MAX && (reads & ~s) == 0 && tiny_bytes(graph, to) + way->workspace_bytes <= limit;
            if (may && before[s] + way->time_ns < after[to]) {
                after[to] = before[s] + way->time_ns;
                changed = true;
            }
        }
    }
    return changed;
}

static bool tiny_drop(const ckpt_graph *graph, ckpt_ns *time)
{
    bool changed = false;
    for (unsigned s = 0; s < TINY_SETS; s++) {
        for (int b = 0; b < graph->buffer_count; b++) {
            const unsigned to = s & ~(1U << b);
            if (time[s] < time[to]) {
                time[to] = time[s];
                changed = true;
            }
        }
    }
    return changed;
}

/* The optimum over all variants and optional runs, by trying everything; INT64_MAX: there is none. */
static ckpt_ns tiny_optimum(const ckpt_graph *graph, ckpt_bytes limit)
{
    static ckpt_ns now[TINY_SETS], next[TINY_SETS];
    for (size_t s = 0; s < TINY_SETS; s++) {
        now[s] = s == 0 ? 0 : INT64_MAX;
    }
    for (int o = 0; o < graph->op_count; o++) {
        bool changed = true;
        while (changed) {
            changed = tiny_drop(graph, now);
            for (int r = 0; r < o; r++) {
                changed = (graph->op[r].recompute && tiny_run(graph, r, limit, now, now)) || changed;
            }
        }
        for (size_t s = 0; s < TINY_SETS; s++) {
            next[s] = graph->op[o].optional ? now[s] : INT64_MAX;
        }
        tiny_run(graph, o, limit, now, next);
        memcpy(now, next, sizeof now);
    }
    ckpt_ns best = INT64_MAX;
    for (size_t s = 0; s < TINY_SETS; s++) {
        best = now[s] < best ? now[s] : best;
    }
    return best;
}

static void no_choice_of_variants_is_below_the_bound(void **state)
{
    ckpt_err err = {0};
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
    double proved = 0, paid = 0;
    const uint64_t graphs = ckpt_test_rounds(120, 20);
    for (uint64_t seed = 1; seed <= graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        static tiny t;
        tiny_make(&t, &arena, seed);
        CHECK_OK(ckpt_graph_check(&t.graph, &arena, &err), err);
        const ckpt_ns least = ckpt_least_time(&t.graph, &options);
        for (ckpt_bytes limit = 6; limit < 60; limit += 5) {
            const ckpt_ns best = tiny_optimum(&t.graph, limit);
            ckpt_bound bound = {0};
            CHECK_OK(ckpt_bound_find(&t.graph, limit, INT64_MAX, &options, &arena, &bound, &err), err);
            CHECK(!bound.infeasible || best == INT64_MAX, "seed %" PRIu64 ": %" PRId64 " bytes do", seed, limit);
            CHECK(bound.time_ns <= best,
                  "seed %" PRIu64 ", %" PRId64 " bytes: bound %" PRId64 " (%s), optimum %" PRId64, seed, limit,
                  bound.time_ns, bound.how, best);
            proved += best < INT64_MAX ? (double)(bound.time_ns - least) : 0;
            paid += best < INT64_MAX ? (double)(best - least) : 0;
        }
    }
    print_message("with variants, %.1f %% proved\n", 100 * proved / paid);
    assert_true(proved > paid / 6);
}

/* A chain of equal ops and its backward, which reads every output once more. */
static ckpt_graph long_chain(ckpt_arena *arena, int n, ckpt_bytes bytes, ckpt_ns time)
{
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, n);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 2 * n);
    int *const index = CKPT_NEW(arena, int, n);
    assert_true(buffer != NULL && op != NULL && index != NULL);
    for (int i = 0; i < n; i++) {
        index[i] = i;
        buffer[i] = (ckpt_buffer){ckpt_arena_format(arena, "a%d", i), bytes, CKPT_ACTIVATION};
        op[i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "f%d", i),
                                .layer = "",
                                .reads = {&index[i - (i > 0)], i > 0},
                                .writes = {&index[i], 1},
                                .time_ns = time,
                                .recompute = true};
        op[2 * n - 1 - i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "b%d", i),
                                            .layer = "",
                                            .phase = CKPT_BACKWARD,
                                            .reads = {&index[i], 1},
                                            .time_ns = time};
    }
    return (ckpt_graph){.source = "", .name = "long", .buffer = buffer, .buffer_count = n, .op = op, .op_count = 2 * n};
}

/* With room for a half, one op in two is recomputed, once: flows say so at any length. */
static void a_chain_of_any_length_has_a_bound(void **state)
{
    enum { N = 30000, BYTES = 640, TIME = 1000 };
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_graph graph = long_chain(&arena, N, BYTES, TIME);
    CHECK_OK(ckpt_graph_check(&graph, &arena, &err), err);
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
    ckpt_bound bound = {0};
    CHECK_OK(ckpt_bound_find(&graph, N / 2 * BYTES, INT64_MAX, &options, &arena, &bound, &err), err);
    const ckpt_ns exact = 2 * N * TIME + N / 2 * TIME;
    CHECK(bound.time_ns <= exact && bound.time_ns > exact - exact / 1000, "%" PRId64 " ns (%s), not %" PRId64,
          bound.time_ns, bound.how, exact);
}

/* With a link, plans of all three kinds; on chains like these, the joint ones are shown to be optimal elsewhere. */
static void never_above_a_plan_with_copies(void **state)
{
    static const char *const names[] = {"joint", "offload-only", "recompute-only"};
    ckpt_err err = {0};
    double proved = 0, paid = 0;
    const uint64_t graphs = ckpt_test_rounds(10, 4);
    for (uint64_t seed = 1; seed <= graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        const int64_t rate = INT64_C(1000000000) << (seed % 4); /* 1 to 8 bytes a nanosecond */
        const ckpt_graph *const graph = ckpt_test_variant(
            ckpt_test_chain(&arena, seed, 3 + (int)(seed % 4), 8, 50, 200), &arena, seed, seed % 3 == 0, rate, rate);
        const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL}, quick = {.effort = CKPT_EFFORT_LOW};
        ckpt_bytes whole = 0;
        ckpt_ns first_runs = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &first_runs, &err), err);
        for (int i = 3; i < LIMITS; i += 2) {
            const ckpt_bytes limit = (whole - graph->static_bytes) * i / LIMITS;
            ckpt_bound bound = {0};
            CHECK_OK(ckpt_bound_find(graph, limit, INT64_MAX, &options, &arena, &bound, &err), err);
            ckpt_ns best = INT64_MAX;
            for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
                ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
                CHECK_OK(ckpt_strategy_find(names[n])->plan(graph, limit, &quick, &arena, &candidates, &err), err);
                CHECK(candidates.count == 0 || !bound.infeasible, "seed %" PRIu64 ": %" PRId64 " bytes do", seed,
                      limit);
                best =
                    candidates.count > 0 && candidates.candidate[0].time < best ? candidates.candidate[0].time : best;
            }
            CHECK(bound.time_ns <= best, "seed %" PRIu64 ", %" PRId64 " bytes: bound %" PRId64 ", plan %" PRId64, seed,
                  limit, bound.time_ns, best);
            proved += best < INT64_MAX ? (double)(bound.time_ns - first_runs) : 0;
            paid += best < INT64_MAX ? (double)(best - first_runs) : 0;
        }
    }
    print_message("with a link, %.1f %% proved\n", 100 * proved / paid);
    assert_true(proved > 0);
}

/* By hand. Backward reads b, then a, and writes a gradient beside b: 25 bytes with all kept. Below that a goes and is
 * written again, in 3 ns; below 15 bytes there is no room for b and the gradient, nor for a and the gradient. */
static void by_hand(void **state)
{
    enum { A, B, G };
    static const int a[] = {A}, b[] = {B}, g[] = {G}, ag[] = {A, G};
    const ckpt_buffer buffer[] = {{"a", 10, CKPT_ACTIVATION}, {"b", 10, CKPT_ACTIVATION}, {"g", 5, CKPT_GRADIENT}};
    const ckpt_graph_op op[] = {
        {.name = "fa", .layer = "", .writes = {a, 1}, .time_ns = 3, .recompute = true},
        {.name = "fb", .layer = "", .writes = {b, 1}, .time_ns = 5, .recompute = true},
        {.name = "bb", .layer = "", .phase = CKPT_BACKWARD, .reads = {b, 1}, .writes = {g, 1}, .time_ns = 1},
        {.name = "ba", .layer = "", .phase = CKPT_BACKWARD, .reads = {ag, 2}, .time_ns = 1},
    };
    ckpt_graph graph = {.source = "", .name = "hand", .buffer = buffer, .buffer_count = 3, .op = op, .op_count = 4};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(&graph, &arena, &err), err);
    const struct {
        ckpt_bytes limit;
        ckpt_ns time;
    } want[] = {{25, 10}, {24, 13}, {20, 13}, {15, 13}, {14, -1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
        ckpt_bound bound = {0};
        CHECK_OK(ckpt_bound_find(&graph, want[i].limit, INT64_MAX, &options, &arena, &bound, &err), err);
        CHECK(bound.infeasible == (want[i].time < 0) && (bound.infeasible || bound.time_ns == want[i].time),
              "%" PRId64 " bytes: %" PRId64 " ns", want[i].limit, bound.time_ns);
    }
    ckpt_bytes peak = 0;
    CHECK_OK(ckpt_bound_peak(&graph, &arena, &peak, &err), err);
    assert_int_equal(peak, 15);
}

static ckpt_code starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *const graph = context;
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
    ckpt_bound bound;
    ckpt_bytes peak = 0;
    ckpt_code code = ckpt_bound_peak(graph, arena, &peak, err);
    if (code == CKPT_OK) {
        code = ckpt_bound_find(graph, peak + 100, INT64_MAX, &options, arena, &bound, err);
    }
    return code;
}

static void out_of_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    assert_true(ckpt_test_starve_arena(starved, ckpt_test_step(&arena, 7, 24)) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand),
                                       cmocka_unit_test(never_above_the_optimum),
                                       cmocka_unit_test(no_flow_is_above_the_optimum),
                                       cmocka_unit_test(no_choice_of_variants_is_below_the_bound),
                                       cmocka_unit_test(a_chain_of_any_length_has_a_bound),
                                       cmocka_unit_test(no_partition_is_above_the_optimum),
                                       cmocka_unit_test(never_above_a_plan_with_copies),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
