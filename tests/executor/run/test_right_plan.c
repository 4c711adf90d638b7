/* labels: unit */
/* What checkpointing may get wrong about gradients, as properties of all plans of all strategies on random
 * steps; a test for each failure, named after it. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_scheme.h"

enum { ROUNDS = 5, FEW = 2 };

typedef void check_function(const ckpt_graph *graph, const void *about, const ckpt_plan *plan, const char *what);

/* `check` on what every strategy says to three budgets. Gives the number of recomputations. */
static int for_all_plans(const ckpt_graph *graph, const void *about, check_function *check, const char *name)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    int recomputed = 0;
    for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
        for (int percent = 100; percent >= 50; percent -= 25) {
            char what[160];
            (void)snprintf(what, sizeof what, "%s, %s, %d %%", name, ckpt_strategy_table[s]->name, percent);
            const ckpt_bytes arena_bytes = (whole - graph->static_bytes) * percent / 100;
            const ckpt_plan_options options = {.budget_bytes = graph->static_bytes + arena_bytes};
            ckpt_plan *plan = NULL;
            CHECK_OK(ckpt_plan_make(graph, ckpt_strategy_table[s]->name, &options, &arena, &plan, &err), err);
            for (int i = 0; plan->verdict == CKPT_FITS && i < plan->step_count; i++) {
                recomputed += plan->step[i].kind == CKPT_RUN && plan->step[i].recomputed;
            }
            if (plan->verdict == CKPT_FITS) {
                check(graph, about, plan, what);
            }
        }
    }
    ckpt_arena_fini(&arena);
    return recomputed;
}

static const ckpt_graph_op *op_of(const ckpt_graph *graph, const ckpt_step *step)
{
    return step->kind == CKPT_RUN ? &graph->op[step->target] : NULL;
}

/* Whatever gives to gradients, sends them or uses them up runs once, in the order of the step without checkpoints. */
static void check_once(const ckpt_graph *graph, const void *about, const ckpt_plan *plan, const char *what)
{
    (void)about;
    int next = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const ckpt_graph_op *const op = op_of(graph, &plan->step[s]);
        if (op == NULL || op->phase == CKPT_FORWARD) {
            continue;
        }
        while (next < graph->op_count && graph->op[next].phase == CKPT_FORWARD) {
            next++;
        }
        CHECK(plan->step[s].target == next, "%s: step %d runs %s, wanted %s", what, s, op->name,
              next < graph->op_count ? graph->op[next].name : "nothing");
        next++;
    }
    while (next < graph->op_count && graph->op[next].phase == CKPT_FORWARD) {
        next++;
    }
    CHECK(next == graph->op_count, "%s: %s never runs", what, graph->op[next < graph->op_count ? next : 0].name);
}

/* The peak of the plan's runs, without the static block, with those from..to - 1 behind the reductions to..end - 1. */
static ckpt_bytes peak_with(const ckpt_graph *graph, const int *run, int count, int from, int to, int end)
{
    int *const order = calloc((size_t)count, sizeof *order);
    assert_non_null(order);
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    for (int t = 0; t < count; t++) {
        order[t] = t < from || t >= end ? run[t] : t < from + end - to ? run[to + t - from] : run[t - (end - to)];
    }
    ckpt_test_measure(graph, order, count, &peak, &time);
    free(order);
    return peak;
}

/* What starts a bucket's reduction stands right behind what completes the bucket: a recomputation that a later backward
 * op needs comes after it, unless what arrives beside what is recomputed would take more than the plan does. */
static void check_at_once(const ckpt_graph *graph, const void *about, const ckpt_plan *plan, const char *what)
{
    (void)about;
    enum { MOST = 4096 };
    int run[MOST], count = 0, copies = 0;
    bool recomputed[MOST];
    for (int s = 0; s < plan->step_count; s++) {
        copies += plan->step[s].kind == CKPT_OFFLOAD;
        if (plan->step[s].kind == CKPT_RUN) {
            assert_true(count < MOST);
            recomputed[count] = plan->step[s].recomputed;
            run[count++] = plan->step[s].target;
        }
    }
    for (int t = 1; t < count && copies == 0; t++) {
        int from = t, end = t;
        while (from > 0 && recomputed[from - 1]) {
            from--;
        }
        while (end < count && graph->op[run[end]].phase == CKPT_REDUCE) {
            end++;
        }
        if (from < t && t < end) {
            const ckpt_bytes peak = peak_with(graph, run, count, from, t, end);
            CHECK(peak > plan->peak_bytes - graph->static_bytes,
                  "%s: %s runs again while gradients wait for %s, for nothing", what, graph->op[run[from]].name,
                  graph->op[run[t]].name);
        }
    }
}

static ckpt_list list_of(ckpt_arena *arena, int buffer)
{
    int *const at = CKPT_NEW(arena, int, 1);
    assert_non_null(at);
    *at = buffer;
    return (ckpt_list){at, 1};
}

/* A random step in which gradients are reduced in buckets while backward goes on: behind every few backward ops one
 * that starts a bucket, which writes what the others send, and before the next start one that waits and reads it. */
static const ckpt_graph *reduced(ckpt_arena *arena, uint64_t seed, int forward_ops)
{
    const ckpt_graph *const from = ckpt_test_step(arena, seed, forward_ops);
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 3 * from->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, from->buffer_count + from->op_count);
    assert_true(graph != NULL && op != NULL && buffer != NULL);
    memcpy(buffer, from->buffer, (size_t)from->buffer_count * sizeof *buffer);
    ckpt_dice dice = {seed + 1};
    int ops = 0, buffers = from->buffer_count, open = -1;
    for (int o = 0; o < from->op_count; o++) {
        const bool last =
            from->op[o].phase == CKPT_BACKWARD && (o + 1 == from->op_count || from->op[o + 1].phase != CKPT_BACKWARD);
        op[ops++] = from->op[o];
        if (from->op[o].phase != CKPT_BACKWARD || (!last && ckpt_dice_roll(&dice, 3) > 0)) {
            continue;
        }
        if (open >= 0) {
            op[ops++] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "reduce%d", o),
                                        .phase = CKPT_REDUCE,
                                        .layer = "",
                                        .reads = list_of(arena, open),
                                        .time_ns = ckpt_dice_roll(&dice, 20)};
        }
        open = last ? -1 : buffers++;
        if (open >= 0) {
            buffer[open] = (ckpt_buffer){.name = ckpt_arena_format(arena, "@bucket%d", o),
                                         .bytes = 1 + ckpt_dice_roll(&dice, 500),
                                         .kind = CKPT_GRADIENT};
            op[ops++] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "start%d", o),
                                        .phase = CKPT_REDUCE,
                                        .layer = "",
                                        .writes = list_of(arena, open),
                                        .time_ns = ckpt_dice_roll(&dice, 20)};
        }
    }
    *graph = *from;
    graph->op = op;
    graph->op_count = ops;
    graph->buffer = buffer;
    graph->buffer_count = buffers;
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

static void for_all_reduced(check_function *check)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int recomputed = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        CKPT_TEST_ARENA(arena);
        const uint64_t seed = ckpt_test_draw(1000000);
        char name[40];
        (void)snprintf(name, sizeof name, "seed %d", (int)seed);
        recomputed += for_all_plans(reduced(&arena, seed, 4 + (int)(seed % 12)), NULL, check, name);
    }
    CHECK(recomputed > 0, "nothing runs again in any plan");
    print_message("%d runs again\n", recomputed);
}

/* Once a parameter is updated, what was computed with its old numbers cannot be recomputed. */
static void check_weights(const ckpt_graph *graph, const void *about, const ckpt_plan *plan, const char *what)
{
    const ckpt_lowered *const lowered = about;
    check_once(graph, NULL, plan, what);
    bool updated[256] = {false};
    for (int s = 0; s < plan->step_count; s++) {
        const ckpt_graph_op *const op = op_of(graph, &plan->step[s]);
        if (op == NULL) {
            continue;
        }
        const ckpt_op_role *const role = &lowered->op_role[plan->step[s].target];
        if (op->phase == CKPT_UPDATE) {
            updated[role->node] = true;
        } else if (role->task == CKPT_TASK_LAYER) {
            const ckpt_node *const node = &lowered->network->node[role->node];
            for (int k = 0; k < node->param_count; k++) {
                const int owner = node->param[k].tied >= 0 ? node->param[k].tied : role->node;
                CHECK(!updated[owner], "%s: step %d runs %s behind the update of its weights", what, s, op->name);
            }
        }
    }
}

/* A chain with skips in which some layers are tied to an earlier one: much to recompute, and updates of
 * which some wait for others' gradients. */
static void draw_chain(test_model *m)
{
    enum { BLOCKS = 6 };
    test_model_init(m);
    test_input(m, "x", CKPT_FLOAT32, 2, (int64_t[]){64, 16});
    test_input(m, "y", CKPT_INT32, 1, (int64_t[]){64});
    for (int i = 0; i < BLOCKS; i++) {
        const char *const fc = ckpt_arena_format(&m->arena, "fc%d", i), *const act =
                                                                            ckpt_arena_format(&m->arena, "act%d", i);
        ckpt_layer *const layer = test_layer(m, fc, "linear", i == 0 ? "x" : "", "features=16");
        if (i > 0 && ckpt_test_draw(3) == 0) {
            layer->tie = 0;
        }
        test_layer(m, act, "gelu", "", "");
        if (i > 1 && ckpt_test_draw(2) == 0) {
            test_layer(m, ckpt_arena_format(&m->arena, "add%d", i), "add",
                       ckpt_arena_format(&m->arena, "%s act%d", act, (int)ckpt_test_draw((uint64_t)i)), "");
        }
    }
    test_layer(m, "loss", "cross_entropy",
               ckpt_arena_format(&m->arena, "%s y", m->model.layer[m->model.layer_count - 1].name), "");
}

/* DistributedDataParallel with reentrant checkpoints: "Expected to mark a variable ready only once". On random steps,
 * and on chains whose buckets are exchanged at once or while backward goes on. */
static void for_all_steps(check_function *check)
{
    for_all_reduced(check);
    for (int variant = 0; variant < 4; variant++) {
        test_model m;
        draw_chain(&m);
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.replicas = 2;
        scheme.bucket_bytes = 1500;
        scheme.overlap = (variant & 1) != 0;
        scheme.fused = (variant & 2) != 0;
        scheme.micro_batches = 1 + variant / 3;
        const ckpt_lowered *const lowered = test_lower_network(&m, test_spread(&m, test_infer(&m), scheme));
        assert_true(lowered->bucket_count >= 2);
        (void)for_all_plans(lowered->graph, lowered, check, "two replicas");
        test_model_fini(&m);
    }
}

static void gradient_reduced_twice(void **state)
{
    for_all_steps(check_once);
}

/* Other ranks wait for it. */
static void recompute_delays_reduction(void **state)
{
    for_all_steps(check_at_once);
}

static void fused_update_uses_old_or_new_weights_in_recompute(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int recomputed = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        test_model m;
        draw_chain(&m);
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.fused = true;
        scheme.micro_batches = 1 + (int)(round % 2);
        const ckpt_lowered *const lowered = test_lower_network(&m, test_spread(&m, test_infer(&m), scheme));
        assert_true(lowered->network->node_count <= 256);
        char name[40];
        (void)snprintf(name, sizeof name, "round %d", (int)round);
        recomputed += for_all_plans(lowered->graph, lowered, check_weights, name);
        test_model_fini(&m);
    }
    CHECK(recomputed > 0, "nothing runs again in any plan");
    print_message("%d runs again\n", recomputed);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_reduced_twice),
        cmocka_unit_test(recompute_delays_reduction),
        cmocka_unit_test(fused_update_uses_old_or_new_weights_in_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
