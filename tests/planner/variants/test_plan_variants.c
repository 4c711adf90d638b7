/* labels: unit */
/* Variants and optional ops: plans, bounds and the state of the search on tiny random graphs, against trying everything.
 * `test_plan_variants FIRST COUNT` does so for COUNT graphs from seed FIRST */
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/bound/bound.h"
#include "planner/replay/replay.h"
#include "planner/schedule/ways.h"
#include "planner/search/search_impl.h"
#include "planner/variants/variants.h"
#include "tests/support/support_brute.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { BUFFERS = 10, OPS = 12, RUNS = 40, LAYERS = 3, LIMITS = 3 };

static uint64_t first_seed = 1, graphs = 150;

/* ---- graphs ---- */

typedef struct build {
    ckpt_arena *arena;
    ckpt_dice dice;
    ckpt_graph *graph;
    ckpt_buffer buffer[BUFFERS];
    ckpt_graph_op op[RUNS];
    ckpt_graph_op variant[RUNS]; /* base: their op; appended in the order of ops */
    int variant_count;
} build;

static ckpt_list list_of(build *b, int count, const int *at)
{
    int *const copy = CKPT_NEW(b->arena, int, count);
    for (int i = 0; i < count; i++) {
        copy[i] = at[i];
    }
    return (ckpt_list){copy, count};
}

#define LIST(b, ...) list_of(b, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), (const int[]){__VA_ARGS__})

static int new_buffer(build *b, const char *name, int layer, ckpt_kind kind, ckpt_bytes bytes)
{
    ckpt_graph *const graph = b->graph;
    b->buffer[graph->buffer_count] = (ckpt_buffer){ckpt_arena_format(b->arena, "%s%d", name, layer), bytes, kind};
    return graph->buffer_count++;
}

static ckpt_graph_op *new_op(build *b, const char *name, int layer, ckpt_phase phase)
{
    ckpt_graph_op *const op = &b->op[b->graph->op_count++];
    *op = (ckpt_graph_op){.name = ckpt_arena_format(b->arena, "%s%d", name, layer),
                          .phase = phase,
                          .layer = "",
                          .recompute = phase == CKPT_FORWARD,
                          .time_ns = 1 + ckpt_dice_roll(&b->dice, 20),
                          .workspace_bytes = ckpt_dice_roll(&b->dice, 3) * 10};
    return op;
}

/* Another way to do the last op. */
static ckpt_graph_op *new_variant(build *b, const char *name)
{
    const int base = b->graph->op_count - 1;
    ckpt_graph_op *const way = &b->variant[b->variant_count++];
    *way = b->op[base];
    way->base = base;
    way->variant = name;
    way->optional = false;
    way->variant_count = 0;
    way->time_ns = 1 + ckpt_dice_roll(&b->dice, 20);
    b->op[base].variant_count++;
    return way;
}

static bool often(build *b)
{
    return ckpt_dice_roll(&b->dice, 3) > 0;
}

/* Forward layers whose backward may read output, input, a packed mask or something saved; one way is quick and takes
 * workspace, one has other bits. */
static ckpt_graph *random_graph(uint64_t seed, ckpt_arena *arena)
{
    build *const b = CKPT_NEW(arena, build, 1);
    *b = (build){.arena = arena, .dice = {seed * 7919 + 1}, .graph = CKPT_NEW(arena, ckpt_graph, 1)};
    ckpt_graph *const graph = b->graph;
    *graph = (ckpt_graph){.source = "", .name = "variants"};
    const int layers = 2 + ckpt_dice_roll(&b->dice, LAYERS - 1);
    int output[LAYERS + 1] = {-1};
    int mask[LAYERS + 1];
    int saved[LAYERS + 1];
    for (int i = 1; i <= layers; i++) {
        mask[i] = saved[i] = -1;
        output[i] = new_buffer(b, "a", i, CKPT_ACTIVATION, 10 * (1 + ckpt_dice_roll(&b->dice, 8)));
        ckpt_graph_op *const op = new_op(b, "f", i, CKPT_FORWARD);
        op->reads = i > 1 ? LIST(b, output[i - 1]) : (ckpt_list){NULL, 0};
        op->writes = LIST(b, output[i]);
        if (ckpt_dice_roll(&b->dice, 3) == 0 && graph->buffer_count < 6) {
            saved[i] = new_buffer(b, "s", i, CKPT_SAVED, 5 + 10 * ckpt_dice_roll(&b->dice, 4));
            op->writes = LIST(b, output[i], saved[i]);
            new_variant(b, "bare")->writes = LIST(b, output[i]);
        }
        if (often(b)) {
            ckpt_graph_op *const quick = new_variant(b, "quick");
            quick->workspace_bytes = 10 * ckpt_dice_roll(&b->dice, 8);
            quick->inexact = ckpt_dice_roll(&b->dice, 3) == 0;
        }
        if (often(b) && graph->buffer_count < 6) {
            mask[i] = new_buffer(b, "m", i, CKPT_SAVED, 1 + ckpt_dice_roll(&b->dice, 5));
            ckpt_graph_op *const pack = new_op(b, "p", i, CKPT_FORWARD);
            pack->optional = true;
            pack->reads = LIST(b, output[i]);
            pack->writes = LIST(b, mask[i]);
        }
    }
    int gradient = -1;
    for (int i = layers; i >= 1; i--) {
        ckpt_graph_op *const op = new_op(b, "b", i, CKPT_BACKWARD);
        const int made = new_buffer(b, "g", i, CKPT_GRADIENT, b->buffer[output[i]].bytes);
        op->writes = LIST(b, made);
        op->reads = gradient >= 0 ? LIST(b, gradient, output[i]) : LIST(b, output[i]);
        if (gradient >= 0 && b->buffer[gradient].bytes == b->buffer[made].bytes && often(b)) {
            ckpt_inplace *const pair = CKPT_NEW(arena, ckpt_inplace, 1);
            *pair = (ckpt_inplace){made, gradient};
            op->inplace = pair;
            op->inplace_count = 1;
        }
        const int instead[] = {mask[i], saved[i], i > 1 && often(b) ? output[i - 1] : -1};
        const char *const name[] = {"mask", "saved", "input"};
        for (int k = 0; k < 3; k++) {
            if (instead[k] >= 0) {
                new_variant(b, name[k])->reads = gradient >= 0 ? LIST(b, gradient, instead[k]) : LIST(b, instead[k]);
            }
        }
        gradient = made;
    }
    if (ckpt_dice_roll(&b->dice, 4) == 0) {
        graph->outputs = LIST(b, output[layers]);
    }
    for (int k = 0; k < b->variant_count; k++) {
        if (k == 0 || b->variant[k - 1].base != b->variant[k].base) {
            b->op[b->variant[k].base].first_variant = graph->op_count + k;
        }
        b->op[graph->op_count + k] = b->variant[k];
    }
    graph->op = b->op;
    graph->buffer = b->buffer;
    graph->variant_count = b->variant_count;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    assert_true(graph->op_count <= OPS && graph->buffer_count <= BUFFERS);
    return graph;
}

/* ---- trying everything ---- */

typedef struct everything {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    int bits[OPS]; /* per op: the inexact variant that all its runs are; -1: exact ways */
    bool changed;
    ckpt_ns best[OPS + 1][1 << BUFFERS]; /* first runs done, buffers in memory */
} everything;

static unsigned set_of(const ckpt_list *list)
{
    unsigned made = 0;
    for (int i = 0; i < list->count; i++) {
        made |= 1u << list->at[i];
    }
    return made;
}

static ckpt_bytes bytes_of(const ckpt_graph *graph, unsigned set)
{
    ckpt_bytes sum = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        sum += (set >> b & 1u) != 0 ? graph->buffer[b].bytes : 0;
    }
    return sum;
}

static void arrive(everything *e, int done, unsigned live, ckpt_ns time)
{
    if (time < e->best[done][live]) {
        e->best[done][live] = time;
        e->changed = true; /* of `done` or the next: once more at worst */
    }
}

static void try_run(everything *e, int done, unsigned live, ckpt_ns now, int o, const ckpt_graph_op *way)
{
    const unsigned reads = set_of(&way->reads);
    const unsigned writes = set_of(&way->writes);
    if ((reads & ~live) != 0 || (writes & live) != 0 || (o < done && !way->recompute)) {
        return;
    }
    unsigned lost = 0;
    for (int i = 0; i < way->inplace_count; i++) {
        lost |= 1u << way->inplace[i].in;
    }
    const unsigned after[] = {live | writes, (live & ~lost) | writes};
    for (int i = 0; i < 2; i++) {
        if (bytes_of(e->graph, after[i]) + way->workspace_bytes <= e->limit) {
            arrive(e, o == done ? done + 1 : done, after[i], now + way->time_ns);
        }
    }
}

/* An optional op that has been passed over may not run later: `done` alone does not tell, so which ones run is fixed
 * outside. */
static void try_from(everything *e, int done, unsigned live, unsigned left_out)
{
    const ckpt_graph *const graph = e->graph;
    const ckpt_ns now = e->best[done][live];
    for (int b = 0; b < graph->buffer_count; b++) {
        arrive(e, done, live & ~(1u << b), now);
    }
    if (done < graph->op_count && (left_out >> done & 1u) != 0) {
        arrive(e, done + 1, live, now);
    }
    for (int o = 0; o <= done && o < graph->op_count; o++) {
        for (int k = 0; k < ckpt_way_count(graph, o) && (left_out >> o & 1u) == 0; k++) {
            const int run = ckpt_way_run(graph, o, k);
            if (e->bits[o] < 0 ? !graph->op[run].inexact : run == e->bits[o]) {
                try_run(e, done, live, now, o, &graph->op[run]);
            }
        }
    }
}

static ckpt_ns best_of(everything *e, unsigned left_out)
{
    const ckpt_graph *const graph = e->graph;
    const unsigned sets = 1u << graph->buffer_count;
    for (int done = 0; done <= graph->op_count; done++) {
        for (unsigned s = 0; s < sets; s++) {
            e->best[done][s] = INT64_MAX;
        }
    }
    e->best[0][0] = 0;
    for (int done = 0; done <= graph->op_count; done++) {
        do { /* nothing leads back to fewer first runs */
            e->changed = false;
            for (unsigned s = 0; s < sets; s++) {
                if (e->best[done][s] < INT64_MAX) {
                    try_from(e, done, s, left_out);
                }
            }
        } while (e->changed);
    }
    ckpt_ns end = INT64_MAX;
    for (unsigned s = 0; s < sets; s++) {
        const ckpt_ns time = e->best[graph->op_count][s];
        end = (set_of(&graph->outputs) & ~s) == 0 && time < end ? time : end;
    }
    return end;
}

/* All choices of bits for ops from `o` on, and of optional ops that run. */
static ckpt_ns choose(everything *e, int o, unsigned left_out, bool inexact)
{
    const ckpt_graph *const graph = e->graph;
    if (o == graph->op_count) {
        return best_of(e, left_out);
    }
    e->bits[o] = -1;
    ckpt_ns best = choose(e, o + 1, left_out, inexact);
    if (graph->op[o].optional) {
        const ckpt_ns without = choose(e, o + 1, left_out | 1u << o, inexact);
        best = without < best ? without : best;
    }
    for (int k = 1; k < ckpt_way_count(graph, o) && inexact; k++) {
        if (graph->op[ckpt_way_run(graph, o, k)].inexact) {
            e->bits[o] = ckpt_way_run(graph, o, k);
            const ckpt_ns other = choose(e, o + 1, left_out, inexact);
            best = other < best ? other : best;
        }
    }
    return best;
}

static ckpt_ns brute(everything *e, const ckpt_graph *graph, ckpt_bytes limit, bool inexact)
{
    e->graph = graph;
    e->limit = limit;
    return choose(e, 0, 0, inexact);
}

/* ---- plans and bounds against it ---- */

static bool is_inexact(const ckpt_graph *graph, const ckpt_plan *plan)
{
    bool any = false;
    for (int i = 0; i < plan->step_count; i++) {
        any = any || (plan->step[i].kind == CKPT_RUN && ckpt_step_op(graph, &plan->step[i])->inexact);
    }
    return any;
}

typedef struct tally {
    int plans, best, missed;
    double over; /* sum of plan / optimum - 1 */
} tally;

static void judge(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ns best, bool inexact, uint64_t seed, tally *t)
{
    CKPT_TEST_ARENA(arena);
    ckpt_plan_options options;
    ckpt_plan_options_init(&options);
    options.budget_bytes = limit > 0 ? limit : 1;
    options.effort = CKPT_EFFORT_LOW; /* tiny graphs: more finds nothing more */
    options.allow_inexact = inexact;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_make(graph, "auto", &options, &arena, &plan, &err), err);
    if (plan->verdict != CKPT_FITS) {
        t->missed += best < INT64_MAX;
        return;
    }
    CHECK(plan->time_ns >= best, "seed %d, limit %d: %lld ns, below the optimum %lld", (int)seed, (int)limit,
          (long long)plan->time_ns, (long long)best);
    CHECK(plan->bound_ns <= best, "seed %d, limit %d: bound %lld, above the optimum %lld", (int)seed, (int)limit,
          (long long)plan->bound_ns, (long long)best);
    CHECK(inexact || !is_inexact(graph, plan), "seed %d: other bits, which were not asked for", (int)seed);
    t->plans++;
    t->best += plan->time_ns == best;
    t->over += (double)plan->time_ns / (double)best - 1;
}

static void plans_and_bounds_keep_to_the_optimum(void **state)
{
    everything *const e = test_calloc(1, sizeof *e);
    tally t = {0};
    for (uint64_t seed = first_seed; seed < first_seed + graphs; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_graph *const graph = random_graph(seed, &arena);
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &peak, &time, &err), err);
        for (int i = 0; i < LIMITS; i++) {
            const ckpt_bytes limit = peak * (50 + 20 * i + (int)(seed % 7)) / 100;
            const bool inexact = (seed + (uint64_t)i) % 2 == 0;
            judge(graph, limit, brute(e, graph, limit, inexact), inexact, seed, &t);
        }
    }
    test_free(e);
    print_message("%d plans, %d of them optimal, %.3f %% above the optimum on the mean; %d missed\n", t.plans, t.best,
                  100 * t.over / (t.plans > 0 ? t.plans : 1), t.missed);
    CHECK(t.missed == 0 && 100 * t.best >= 98 * t.plans && t.over <= 0.002 * t.plans, "too far from the optimum");
}

/* ---- the state of the search ---- */

static void the_state_is_what_is_measured(void **state)
{
    int compared = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_dice dice = {seed * 31};
        const ckpt_graph *const graph = random_graph(seed, &arena);
        ckpt_search search;
        CHECK_OK(ckpt_search_init(graph, &arena, &search, &err), err);
        for (int move = 0; move < 400; move++) {
            const int v = ckpt_dice_roll(&dice, graph->op_count);
            const int k = v + ckpt_dice_roll(&dice, search.stages - v);
            const int way = ckpt_dice_roll(&dice, ckpt_way_count(graph, v) + 1) - 1;
            (void)ckpt_search_set(&search, k, v, way < 0 ? -1 : ckpt_way_run(graph, v, way));
            if (search.missing > 0) {
                continue;
            }
            ckpt_order order;
            ckpt_order_init(&order);
            ckpt_search_write(&search, &order);
            ckpt_candidate measured;
            CHECK_OK(ckpt_order_measure(&order, graph, &arena, &measured, &err), err);
            ckpt_order_fini(&order);
            CHECK(measured.peak == search.most[1] && measured.time == search.time,
                  "seed %d, move %d: peak %lld, time %lld; measured %lld, %lld", (int)seed, move,
                  (long long)search.most[1], (long long)search.time, (long long)measured.peak,
                  (long long)measured.time);
            compared++;
        }
    }
    CHECK(compared > 2000, "only %d states were sequences", compared);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        graphs = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_is_what_is_measured),
        cmocka_unit_test(plans_and_bounds_keep_to_the_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
