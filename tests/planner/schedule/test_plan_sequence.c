/* labels: unit */
/* What a sequence means: peaks of in-place runs and clocks of copies worked out by hand; random ones as steps that the
 * checker, a plain replay and a second clock agree with. */
#include <stdio.h>

#include "planner/placement/allocate.h"
#include "planner/replay/replay.h"
#include "planner/schedule/schedule.h"
#include "tests/support/support_sequence.h"
#include "tests/support/support_test.h"

static void entries_say_what_they_are(void **state)
{
    const ckpt_step_kind kinds[] = {CKPT_OFFLOAD, CKPT_FREE, CKPT_FETCH};
    const int buffers[] = {0, 1, 77, 1 << 28};
    for (int k = 0; k < 3; k++) {
        for (int b = 0; b < 4; b++) {
            const int made = ckpt_sequence_copy(kinds[k], buffers[b]);
            int target = -1;
            assert_true(made < 0);
            assert_int_equal(ckpt_sequence_kind(made, &target), kinds[k]);
            assert_int_equal(target, buffers[b]);
        }
    }
    int target = -1;
    assert_int_equal(ckpt_sequence_kind(5, &target), CKPT_RUN);
    assert_int_equal(target, 5);
}

/* f0 -> a (10 bytes), f1(a) -> b in its place, f2(b) -> c (30) in b's place or not: sizes forbid it, workspace 7. */
enum { A, B, C, BUFFERS };
enum { F0, F1, F2, B1, OPS };

typedef struct small {
    ckpt_arena arena;
    ckpt_buffer buffer[BUFFERS];
    ckpt_graph_op op[OPS];
    int a[1], b[1], c[1], ca[2];
    ckpt_inplace pair;
    ckpt_graph graph;
} small;

static void make_small(small *s, bool a_is_read_later)
{
    *s = (small){.a = {A}, .b = {B}, .c = {C}, .ca = {C, A}, .pair = {B, A}};
    ckpt_arena_init(&s->arena);
    s->buffer[A] = (ckpt_buffer){"a", 10, CKPT_ACTIVATION};
    s->buffer[B] = (ckpt_buffer){"b", 10, CKPT_ACTIVATION};
    s->buffer[C] = (ckpt_buffer){"c", 30, CKPT_ACTIVATION};
    const char *const name[OPS] = {"f0", "f1", "f2", "b1"};
    for (int o = 0; o < OPS; o++) {
        s->op[o] = (ckpt_graph_op){.name = name[o],
                                   .layer = "",
                                   .phase = o < B1 ? CKPT_FORWARD : CKPT_BACKWARD,
                                   .time_ns = 10,
                                   .recompute = o < B1};
    }
    s->op[F0].writes = (ckpt_list){s->a, 1};
    s->op[F1].reads = (ckpt_list){s->a, 1};
    s->op[F1].writes = (ckpt_list){s->b, 1};
    s->op[F1].inplace = &s->pair;
    s->op[F1].inplace_count = 1;
    s->op[F1].workspace_bytes = 7;
    s->op[F2].reads = (ckpt_list){s->b, 1};
    s->op[F2].writes = (ckpt_list){s->c, 1};
    s->op[B1].reads = (ckpt_list){s->ca, a_is_read_later ? 2 : 1};
    s->graph = (ckpt_graph){.source = "test",
                            .name = "small",
                            .buffer = s->buffer,
                            .buffer_count = BUFFERS,
                            .op = s->op,
                            .op_count = OPS,
                            .has_link = true,
                            .d2h_bytes_per_s = 1000000000,
                            .h2d_bytes_per_s = 500000000};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(&s->graph, &s->arena, &err), err);
}

static void measures(small *s, const int *op, int count, ckpt_bytes peak, ckpt_ns time, int inplace)
{
    ckpt_err err = {0};
    ckpt_bytes found_peak = 0;
    ckpt_ns found_time = 0;
    const ckpt_sequence sequence = {op, count};
    CHECK_OK(ckpt_sequence_measure(&s->graph, &sequence, &s->arena, &found_peak, &found_time, &err), err);
    assert_int_equal(found_peak, peak);
    assert_int_equal(found_time, time);
    const ckpt_plan *const plan = ckpt_test_plan(&s->graph, &sequence, &s->arena, "small");
    assert_int_equal(plan->peak_bytes, peak);
    assert_int_equal(plan->time_ns, time);
    for (int i = 0; i < plan->step_count; i++) {
        inplace -= plan->step[i].inplace;
    }
    assert_int_equal(inplace, 0);
}

static void in_place_by_hand(void **state)
{
    small s;
    const int once[] = {F0, F1, F2, B1};
    make_small(&s, false);
    measures(&s, once, 4, 40, 40, 1); /* f1: b alone with 7, 17 bytes; f2: b and c */
    s.buffer[C].bytes = 1;
    measures(&s, once, 4, 17, 40, 1);
    ckpt_arena_fini(&s.arena);

    make_small(&s, true); /* a is needed by b1: kept, f1 is not in place */
    measures(&s, once, 4, 50, 40, 0);
    const int recomputed[] = {F0, F1, F2, F0, B1}; /* f1 destroys a, which is made again */
    measures(&s, recomputed, 5, 40, 50, 1);
    ckpt_arena_fini(&s.arena);
}

/* 1 byte takes 1 ns to the host and 2 ns back. */
static void copies_by_hand(void **state)
{
    small s;
    make_small(&s, true);
    const int off = ckpt_sequence_copy(CKPT_OFFLOAD, A);
    const int gone = ckpt_sequence_copy(CKPT_FREE, A);
    const int back = ckpt_sequence_copy(CKPT_FETCH, A);
    /* f0 0..10, copy 10..20 beside f1 10..20, f2 20..30, back 30..50, b1 waits: 50..60. f1: a, b, 7; f2: b, c */
    const int late[] = {F0, off, F1, gone, F2, back, B1};
    measures(&s, late, 7, 40, 60, 0);
    /* back 20..40 beside f2 20..30; b1 40..50; but a is there with b and c */
    const int early[] = {F0, off, F1, gone, back, F2, B1};
    measures(&s, early, 7, 50, 50, 0);
    /* the copy starts after f1: 20..30, and the free holds f2 up until 30 */
    const int waits[] = {F0, F1, off, gone, F2, back, B1};
    measures(&s, waits, 7, 40, 70, 0);
    /* the fetch starts when the copy to the host has ended, although the other engine is idle */
    s.buffer[A].bytes = s.buffer[B].bytes = 100;
    const int both[] = {F0, off, F1, F2, gone, back, B1};
    measures(&s, both, 7, 230, 320, 0); /* copy 10..110, back 110..310 */
    ckpt_arena_fini(&s.arena);
}

static void without_a_link(void **state)
{
    small s;
    make_small(&s, true);
    s.graph.has_link = false;
    const int op[] = {F0, ckpt_sequence_copy(CKPT_OFFLOAD, A), F1, F2, B1};
    const ckpt_sequence sequence = {op, 5};
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    ckpt_err err = {0};
    CHECK_OK(ckpt_sequence_measure(&s.graph, &sequence, &s.arena, &peak, &time, &err), err);
    CHECK(time == INT64_MAX, "a copy without a link takes %lld ns", (long long)time);
    ckpt_arena_fini(&s.arena);
}

static void random_sequences(void **state)
{
    int inplace = 0, copies = 0, waits = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        CKPT_TEST_ARENA(arena);
        char what[60];
        snprintf(what, sizeof what, "seed %d", (int)seed);
        const int64_t rate = seed % 3 == 0 ? 0 : 1000000000 / (int64_t)(1 + seed % 2);
        const ckpt_graph *const plain = ckpt_test_step(&arena, seed, 3 + (int)(seed * 7 % 12));
        const ckpt_graph *const graph = ckpt_test_variant(plain, &arena, seed, seed % 4 != 0, rate, rate);
        const ckpt_sequence sequence = ckpt_test_sequence(graph, &arena, seed);
        ckpt_err err = {0};
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        CHECK_OK(ckpt_sequence_measure(graph, &sequence, &arena, &peak, &time, &err), err);
        const ckpt_plan *const plan = ckpt_test_plan(graph, &sequence, &arena, what);
        CHECK(plan->peak_bytes == graph->static_bytes + peak, "%s: measured %lld, steps %lld", what, (long long)peak,
              (long long)(plan->peak_bytes - graph->static_bytes));
        const ckpt_ns clock = ckpt_test_clock(graph, plan);
        CHECK(time == plan->time_ns && time == clock, "%s: measured %lld ns, steps %lld, second clock %lld", what,
              (long long)time, (long long)plan->time_ns, (long long)clock);
        ckpt_ns runs = 0;
        for (int t = 0; t < sequence.count; t++) {
            runs += sequence.op[t] >= 0 ? graph->op[sequence.op[t]].time_ns : 0;
        }
        waits += time > runs;
        copies += plan->offload_bytes > 0;
        for (int i = 0; i < plan->step_count; i++) {
            inplace += plan->step[i].inplace;
        }
        if (plan->offload_bytes == 0) {
            ckpt_bytes plain_peak = 0;
            ckpt_ns plain_time = 0;
            ckpt_test_measure(graph, sequence.op, sequence.count, &plain_peak, &plain_time);
            CHECK(plain_peak == peak && plain_time == time, "%s: peak %lld, plain replay %lld", what, (long long)peak,
                  (long long)plain_peak);
        }
    }
    CHECK(inplace > 100 && copies > 60 && waits > 30, "%d in-place runs, %d with copies, %d that wait", inplace, copies,
          waits);
}

typedef struct starved {
    const ckpt_graph *graph;
    ckpt_sequence sequence;
} starved;

static ckpt_code make_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    ckpt_plan plan = {0};
    const ckpt_plan_options options = {0};
    ckpt_code code = ckpt_sequence_measure(s->graph, &s->sequence, arena, &peak, &time, err);
    code = code == CKPT_OK ? ckpt_sequence_steps(s->graph, &s->sequence, arena, &plan, err) : code;
    return code == CKPT_OK ? ckpt_sequence_pack(s->graph, &plan, 0, &options, arena, err) : code;
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const plain = ckpt_test_step(&arena, 5, 30);
    starved s = {.graph = ckpt_test_variant(plain, &arena, 5, true, 1000000000, 1000000000)};
    s.sequence = ckpt_test_sequence(s.graph, &arena, 5);
    ckpt_test_starve_arena(make_starved, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_say_what_they_are),
        cmocka_unit_test(in_place_by_hand),
        cmocka_unit_test(copies_by_hand),
        cmocka_unit_test(without_a_link),
        cmocka_unit_test(random_sequences),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
