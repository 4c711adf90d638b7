/* labels: unit */
/* The chain DP against two searches that share nothing with it: all schedules of its class, written out and replayed
 * one by one, and the best of all schedules there are, by Dijkstra over what is in memory. */
#include <string.h>

#include "planner/api/planner.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_sequence.h"
#include "tests/support/support_test.h"

/* ---- every schedule of whole blocks whose stored inputs stay until their backward ---- */

enum { ORDER_MAX = 400, STACK_MAX = 64, BLOCKS_MAX = 8, OPS_MAX = 32, SCHEDULES_MAX = 200 };

/* What is still to be planned: block s..t from a stored input, or the backward ops of block s. */
typedef struct task {
    int s, t;
    bool backward;
} task;

typedef struct enumeration {
    const ckpt_graph *graph;
    int n;
    int first[BLOCKS_MAX + 1]; /* first forward op of each block; the backward of op f is op 2F - 1 - f */
    bool for_out[OPS_MAX];     /* run again when the output of the block is wanted */
    bool for_back[OPS_MAX];    /* run again when its backward is to run */
    int order[ORDER_MAX];
    ckpt_bytes peak[SCHEDULES_MAX];
    ckpt_ns time[SCHEDULES_MAX];
    int schedules;
} enumeration;

static bool reads(const ckpt_graph_op *op, int buffer)
{
    for (int i = 0; i < op->reads.count; i++) {
        if (op->reads.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* An op is needed when something it writes is read by what is needed behind it in the block, and at the end by the
 * forward of the next block or by its own block's backward. */
static void find_needed(enumeration *e)
{
    const int forward = e->first[e->n];
    for (int k = 0; k < e->n; k++) {
        for (int o = e->first[k + 1] - 1; o >= e->first[k]; o--) {
            const ckpt_list *const writes = &e->graph->op[o].writes;
            e->for_out[o] = e->for_back[o] = false;
            for (int i = 0; i < writes->count; i++) {
                for (int r = o + 1; r < forward; r++) {
                    const bool read = reads(&e->graph->op[r], writes->at[i]);
                    e->for_out[o] = e->for_out[o] || (read && (r >= e->first[k + 1] || e->for_out[r]));
                    e->for_back[o] = e->for_back[o] || (read && r < e->first[k + 1] && e->for_back[r]);
                }
                for (int r = e->first[k]; r < e->first[k + 1]; r++) {
                    e->for_back[o] = e->for_back[o] || reads(&e->graph->op[2 * forward - 1 - r], writes->at[i]);
                }
            }
        }
    }
}

static int add_forward(enumeration *e, int k, bool recomputed, bool out, bool back, int count)
{
    for (int o = e->first[k]; o < e->first[k + 1]; o++) {
        if (!recomputed || (out && e->for_out[o]) || (back && e->for_back[o])) {
            e->order[count++] = o;
        }
    }
    return count;
}

/* Try every way for the topmost task; when none is left, measure. */
static void enumerate(enumeration *e, const task *stack, int depth, int count)
{
    const int forward = e->first[e->n];
    if (depth == 0) {
        assert_true(e->schedules < SCHEDULES_MAX);
        ckpt_test_measure(e->graph, e->order, count, &e->peak[e->schedules], &e->time[e->schedules]);
        e->schedules++;
        return;
    }
    const task top = stack[depth - 1];
    assert_true(count + forward < ORDER_MAX && depth + 2 < STACK_MAX);
    if (top.backward) {
        for (int o = e->first[top.s + 1] - 1; o >= e->first[top.s]; o--) {
            e->order[count++] = 2 * forward - 1 - o;
        }
        enumerate(e, stack, depth - 1, count);
        return;
    }
    const bool recomputed = top.t < e->n - 1;
    task mine[STACK_MAX];
    memcpy(mine, stack, (size_t)(depth - 1) * sizeof *mine);
    mine[depth - 1] = (task){top.s, top.s, true};
    if (top.s == top.t) {
        enumerate(e, mine, depth, add_forward(e, top.s, recomputed, false, true, count));
        return;
    }
    mine[depth] = (task){top.s + 1, top.t, false}; /* keep all of s */
    enumerate(e, mine, depth + 1, add_forward(e, top.s, recomputed, true, true, count));
    int dropped = count;
    for (int r = top.s + 1; r <= top.t; r++) { /* keep only what enters r */
        dropped = add_forward(e, r - 1, recomputed, true, false, dropped);
        mine[depth - 1] = (task){top.s, r - 1, false};
        mine[depth] = (task){r, top.t, false};
        enumerate(e, mine, depth + 1, dropped);
        dropped = count; /* deeper levels wrote over it */
        for (int j = top.s; j < r; j++) {
            dropped = add_forward(e, j, recomputed, true, false, dropped);
        }
    }
}

static void enumerate_all(enumeration *e)
{
    const task all = {0, e->n - 1, false};
    e->schedules = 0;
    find_needed(e);
    enumerate(e, &all, 1, 0);
}

static ckpt_ns best_of_class(const enumeration *e, ckpt_bytes limit)
{
    ckpt_ns best = INT64_MAX;
    for (int i = 0; i < e->schedules; i++) {
        best = e->peak[i] <= limit && e->time[i] < best ? e->time[i] : best;
    }
    return best;
}

/* ---- every schedule: states are (ops done in order, buffers in memory) ---- */

static uint32_t mask_of(const ckpt_list *list)
{
    uint32_t mask = 0;
    for (int i = 0; i < list->count; i++) {
        mask |= (uint32_t)1 << list->at[i];
    }
    return mask;
}

/* Least time to do all ops with live bytes never above `limit`; INT64_MAX: impossible. Bellman-Ford with a work list
 * over at most 2^buffers * (ops + 1) states; dropping a buffer costs nothing. */
static ckpt_ns best_of_all(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *arena)
{
    const uint32_t sets = (uint32_t)1 << graph->buffer_count;
    ckpt_ns *const cost = CKPT_NEW(arena, ckpt_ns, (size_t)sets * (size_t)(graph->op_count + 1));
    ckpt_bytes *const bytes = CKPT_NEW(arena, ckpt_bytes, sets);
    assert_true(cost != NULL && bytes != NULL);
    for (uint32_t m = 0; m < sets; m++) {
        for (int b = 0; b < graph->buffer_count; b++) {
            bytes[m] += (m >> b & 1) != 0 ? graph->buffer[b].bytes : 0;
        }
    }
    for (size_t i = 0; i < (size_t)sets * (size_t)(graph->op_count + 1); i++) {
        cost[i] = INT64_MAX;
    }
    cost[0] = 0;
    for (int done = 0; done <= graph->op_count; done++) { /* `done` never falls */
        ckpt_ns *const layer = &cost[(size_t)done * sets];
        for (bool changed = true; changed;) {
            changed = false;
            for (uint32_t m = sets; m-- > 0;) {
                if (layer[m] == INT64_MAX) {
                    continue;
                }
                for (int b = 0; b < graph->buffer_count; b++) {
                    const uint32_t less = m & ~((uint32_t)1 << b);
                    if (layer[less] > layer[m]) {
                        layer[less] = layer[m];
                        changed = changed || less > m;
                    }
                }
                for (int o = 0; o <= done && o < graph->op_count; o++) {
                    const ckpt_graph_op *const op = &graph->op[o];
                    const uint32_t reads = mask_of(&op->reads);
                    const uint32_t writes = mask_of(&op->writes);
                    if ((o < done && !op->recompute) || (m & reads) != reads || (m & writes) != 0 ||
                        bytes[m | writes] + op->workspace_bytes > limit) {
                        continue;
                    }
                    ckpt_ns *const to =
                        o == done ? &cost[(size_t)(done + 1) * sets + (m | writes)] : &layer[m | writes];
                    if (layer[m] + op->time_ns < *to) {
                        *to = layer[m] + op->time_ns;
                        changed = changed || o < done;
                    }
                }
            }
        }
    }
    ckpt_ns best = INT64_MAX;
    for (uint32_t m = 0; m < sets; m++) {
        const ckpt_ns end = cost[(size_t)graph->op_count * sets + m];
        best = end < best ? end : best;
    }
    return best;
}

/* Ask the strategy itself: placement has no part in this. */
static void ask(const ckpt_graph *graph, ckpt_bytes limit, int effort, ckpt_arena *arena, ckpt_candidates *candidates,
                ckpt_ns *time)
{
    ckpt_err err = {0};
    const ckpt_plan_options options = {.effort = effort};
    *candidates = (ckpt_candidates){0};
    CHECK_OK(ckpt_strategy_find("chain")->plan(graph, limit, &options, arena, candidates, &err), err);
    *time = INT64_MAX;
    if (candidates->count > 0) {
        const ckpt_candidate *const first = &candidates->candidate[0];
        ckpt_bytes peak = 0;
        ckpt_test_measure(graph, first->sequence.op, first->sequence.count, &peak, time);
        CHECK(peak <= limit, "peak %lld over the limit %lld", (long long)peak, (long long)limit);
    }
}

typedef struct tally {
    int feasible, squeezed, exact, bounded;
} tally;

/* The strategy at many limits against all schedules of its class. Strict cuts are the blocks; cuts inside (several
 * buffers) can only make it better. */
static void compare_with_class(const ckpt_graph *graph, enumeration *e, int seed, ckpt_arena *arena, tally *sum)
{
    ckpt_err err = {0};
    ckpt_bytes whole = 0;
    ckpt_ns keep_all = 0;
    CHECK_OK(ckpt_keep_all_measure(graph, arena, &whole, &keep_all, &err), err);
    whole -= graph->static_bytes;
    for (int o = 0; o < graph->op_count; o++) {
        e->order[o] = o;
    }
    ckpt_bytes plain = 0; /* of keep-all with what runs in place */
    ckpt_test_measure(graph, e->order, graph->op_count, &plain, &keep_all);
    enumerate_all(e);
    ckpt_bytes least = CKPT_BYTES_MAX;
    for (int i = 0; i < e->schedules; i++) {
        least = e->peak[i] < least ? e->peak[i] : least;
    }
    for (ckpt_bytes limit = whole / 4; limit <= whole; limit += whole / 12 + 1) {
        const ckpt_ns best = best_of_class(e, limit);
        ckpt_candidates candidates;
        ckpt_ns time = 0;
        ask(graph, limit, CKPT_EFFORT_NORMAL, arena, &candidates, &time);
        CHECK(time <= best, "seed %d, limit %lld: %lld ns, the class has %lld", seed, (long long)limit, (long long)time,
              (long long)best);
        CHECK(limit >= plain || candidates.min_peak.peak <= least,
              "seed %d, limit %lld: least peak %lld, the class has %lld", seed, (long long)limit,
              (long long)candidates.min_peak.peak, (long long)least);
        if (candidates.has_bound && strcmp(candidates.bound_scope, "chain-persistent") == 0) {
            CHECK(candidates.bound_ns == best, "seed %d, limit %lld: bound %lld, the class has %lld", seed,
                  (long long)limit, (long long)candidates.bound_ns, (long long)best);
            sum->exact += strcmp(candidates.bound_how, "exact") == 0 && time == best;
            sum->bounded++;
        }
        sum->feasible += best < INT64_MAX;
        sum->squeezed += best < INT64_MAX && best > keep_all;
    }
    ckpt_candidates candidates; /* what only the minimum peak of the class fits, and what nothing does */
    ckpt_ns time = 0;
    ask(graph, least, CKPT_EFFORT_NORMAL, arena, &candidates, &time);
    CHECK(candidates.count > 0 && time <= best_of_class(e, least), "seed %d: nothing at the least peak %lld", seed,
          (long long)least);
    ask(graph, candidates.min_peak.peak - 1, CKPT_EFFORT_NORMAL, arena, &candidates, &time);
    CHECK(candidates.count == 0 || least >= plain, "seed %d: found below the least peak", seed);
}

static void equals_its_class(void **state)
{
    tally sum = {0};
    for (int seed = 1; seed <= 80; seed++) {
        CKPT_TEST_ARENA(arena);
        enumeration e = {.n = 2 + seed % 4};
        e.graph = ckpt_test_chain(&arena, (uint64_t)seed, e.n, 6, seed % 2 == 0 ? 1 : 64, 9);
        for (int k = 0; k <= e.n; k++) {
            e.first[k] = k;
        }
        compare_with_class(e.graph, &e, seed, &arena, &sum);
    }
    CHECK(sum.feasible > 100 && sum.squeezed > 50, "too easy: %d feasible, %d with recomputation", sum.feasible,
          sum.squeezed);
    CHECK(sum.exact == sum.squeezed, "%d of %d proved exact", sum.exact, sum.squeezed);
}

/* Some outputs take the places of inputs; of what enters a block backward takes nothing, see takes_input in chain.c. */
static const ckpt_graph *in_place_inside(const ckpt_graph *graph, const enumeration *e, ckpt_arena *arena,
                                         uint64_t seed)
{
    ckpt_graph *const made = ckpt_test_variant(graph, arena, seed, true, 0, 0);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, graph->op_count);
    const int forward = e->first[e->n];
    memcpy(op, made->op, (size_t)graph->op_count * sizeof *op);
    for (int k = 0; k < e->n; k++) {
        for (int o = e->first[k]; o < e->first[k + 1]; o++) {
            ckpt_graph_op *const back = &op[2 * forward - 1 - o];
            for (int i = 0; i < back->inplace_count; i++) {
                if (graph->writer[back->inplace[i].in] < e->first[k]) {
                    back->inplace_count = 0;
                }
            }
        }
    }
    made->op = op;
    return made;
}

/* Blocks of several ops: what a run keeps, drops and is recomputed inside a block matters. */
static void equals_its_class_of_blocks(void **state)
{
    tally sum = {0};
    for (int seed = 1; seed <= 600; seed++) {
        CKPT_TEST_ARENA(arena);
        enumeration e = {.n = 2 + seed % 4};
        e.graph = ckpt_test_blocks(&arena, (uint64_t)seed, e.n, 9, 9, e.first);
        if (seed % 2 == 0) {
            e.graph = in_place_inside(e.graph, &e, &arena, (uint64_t)seed);
        }
        compare_with_class(e.graph, &e, seed, &arena, &sum);
    }
    CHECK(sum.feasible > 480 && sum.squeezed > 240 && sum.bounded > 120,
          "too easy: %d feasible, %d with recomputation, %d bounded", sum.feasible, sum.squeezed, sum.bounded);
}

static void never_below_the_optimum(void **state)
{
    int equal = 0;
    int cases = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        CKPT_TEST_ARENA(arena);
        const int n = 3 + (int)(seed % 2);
        const ckpt_graph *const graph = ckpt_test_chain(&arena, seed + 100, n, 5, 1, 9);
        ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        whole -= graph->static_bytes;
        for (ckpt_bytes limit = whole / 2; limit <= whole; limit += whole / 8 + 1) {
            const ckpt_mark mark = ckpt_arena_mark(&arena);
            const ckpt_ns best = best_of_all(graph, limit, &arena);
            ckpt_arena_rewind(&arena, mark);
            ckpt_candidates candidates;
            ckpt_ns time = 0;
            ask(graph, limit, CKPT_EFFORT_NORMAL, &arena, &candidates, &time);
            CHECK(time >= best, "seed %d, limit %lld: %lld ns beats the optimum %lld", (int)seed, (long long)limit,
                  (long long)time, (long long)best);
            if (candidates.has_bound && strcmp(candidates.bound_scope, "all") == 0) {
                CHECK(candidates.bound_ns <= best, "seed %d: bound above the optimum", (int)seed);
            }
            cases++;
            equal += time == best;
        }
    }
    CHECK(2 * equal > cases, "optimal in only %d of %d cases", equal, cases);
}

/* Less effort may cost time, never legality, and its bound stays a bound. */
static void low_effort(void **state)
{
    int exact = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = ckpt_test_chain(&arena, seed, 60, 1000, 1, 50);
        const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        const ckpt_bytes limit = (whole - graph->static_bytes) * 4 / 10;
        ckpt_candidates most;
        ckpt_candidates least;
        ckpt_ns most_time = 0;
        ckpt_ns least_time = 0;
        ask(graph, limit, CKPT_EFFORT_MORE, &arena, &most, &most_time);
        ask(graph, limit, CKPT_EFFORT_LOW, &arena, &least, &least_time);
        CHECK(most.has_bound && strcmp(most.bound_how, "exact") == 0 && most.bound_ns == most_time,
              "seed %d: not exact", (int)seed);
        CHECK(least.has_bound && least.bound_ns <= most_time && least_time >= most_time,
              "seed %d: %lld .. %lld, but %lld is the optimum", (int)seed, (long long)least.bound_ns,
              (long long)least_time, (long long)most_time);
        exact += least_time == most_time;
    }
    CHECK(exact > 3, "optimal in only %d cases", exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_class),
        cmocka_unit_test(equals_its_class_of_blocks),
        cmocka_unit_test(never_below_the_optimum),
        cmocka_unit_test(low_effort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
