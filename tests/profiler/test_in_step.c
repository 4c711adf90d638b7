/* labels: unit */
/* Times in the step from made-up training steps: what the profile then says, and that plans by it take what those steps
 * took, to the nanosecond where that can be. */
#include "tests/support/support_test.h"

#include <string.h>

#include "kernels/philox.h"
#include "profiler/in_step.h"
#include "profiler/profiler.h"
#include "tests/support/support_train.h"

enum { SEED = 20261124, STEPS = 7, OUTSIDE_NS = 900 };

static ckpt_ns draw(ckpt_ns below, uint64_t at)
{
    uint32_t word[4];
    ckpt_philox_block(SEED, 0, 0, 0, at, word);
    return (ckpt_ns)(word[0] % (uint32_t)below);
}

typedef struct made {
    test_train t;
    ckpt_profile *profile;
    const ckpt_lowered *lowered; /* by it, layers alone */
} made;

static void open_made(made *m, const char *file, const char *set)
{
    ckpt_err err = {0};
    test_train_open(&m->t, file, set);
    const ckpt_profiler_options options = {.repeats = 3, .spend_ns = 1};
    CHECK_OK(ckpt_profile_run(m->t.device, m->t.lowered, &options, &m->t.arena, &m->profile, &err), err);
    CHECK_OK(ckpt_network_lower(m->t.network, m->profile, NULL, &m->t.arena, &m->lowered, &err), err);
}

static ckpt_plan *plan_of(made *m, const ckpt_graph *graph, const char *strategy)
{
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_make(graph, strategy, &(ckpt_plan_options){0}, &m->t.arena, &plan, &err), err);
    CHECK_OK(ckpt_plan_bind(plan, m->lowered->graph, &err), err);
    return plan;
}

/* A made-up training step: a run takes what its op says, `again` per cent of that when it runs again, and a bit of noise
 * that is different in each step. */
static ckpt_ns base_ns(const ckpt_plan *plan, int s)
{
    return 20000 + 1000 * (ckpt_ns)(plan->step[s].target % 97) + (plan->step[s].variant != NULL ? 333 : 0);
}

static ckpt_stepped make_steps(made *m, const ckpt_plan *plan, int again, ckpt_ns noise)
{
    ckpt_stepped stepped;
    ckpt_err err = {0};
    CHECK_OK(ckpt_stepped_init(&stepped, plan, STEPS, &m->t.arena, &err), err);
    ckpt_event *const event = CKPT_NEW(&m->t.arena, ckpt_event, plan->step_count);
    for (int k = 0; k < STEPS; k++) {
        ckpt_ns now = OUTSIDE_NS / 2;
        for (int s = 0; s < plan->step_count; s++) {
            const ckpt_ns base = base_ns(plan, s) * (plan->step[s].recomputed ? again : 100) / 100;
            const bool runs = plan->step[s].kind == CKPT_RUN;
            event[s] = (ckpt_event){.step = s, .start_ns = now};
            now += runs ? base + (noise > 0 ? draw(noise, (uint64_t)(k * plan->step_count + s)) : 0) : 0;
            event[s].end_ns = now;
        }
        const ckpt_trace trace = {.event = event, .event_count = plan->step_count};
        ckpt_stepped_add(&stepped, &trace);
        ckpt_stepped_add_whole(&stepped, now + OUTSIDE_NS / 2);
    }
    return stepped;
}

static ckpt_ns median_whole(const ckpt_stepped *stepped)
{
    ckpt_ns sample[STEPS];
    memcpy(sample, stepped->whole_ns, sizeof sample);
    return ckpt_median(sample, STEPS, NULL);
}

/* What a plan takes by the profile as it is now. */
static ckpt_ns predicted(made *m, const char *strategy)
{
    const ckpt_lowered *lowered = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_lower(m->t.network, m->profile, NULL, &m->t.arena, &lowered, &err), err);
    return plan_of(m, lowered->graph, strategy)->time_ns;
}

static void join(made *m, const ckpt_stepped *stepped, int count)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_profile_in_step(m->lowered, stepped, count, &m->t.arena, m->profile, &err), err);
}

static const char *const gpt = "batch=2 tokens=8 hidden=16 blocks=3 heads=2 vocabulary=32";

/* Keep-all as measured exactly; recompute-all but for the rounding of each run. */
static void both_ends_are_exact(void **state)
{
    static const struct {
        const char *file, *set;
        int again;
        ckpt_ns noise;
    } of[] = {
        {"models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=3 heads=2 vocabulary=32", 100, 0},
        {"models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=3 heads=2 vocabulary=32", 80, 5000},
        {"tests/models/resnet-small.json", "", 120, 9000},
        {"tests/models/no-library.json", "", 70, 3000},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        made m;
        open_made(&m, of[i].file, of[i].set);
        const ckpt_plan *const keep = plan_of(&m, m.lowered->graph, "keep-all");
        const ckpt_plan *const all = plan_of(&m, m.lowered->graph, "recompute-all");
        const ckpt_stepped stepped[] = {make_steps(&m, keep, 100, of[i].noise),
                                        make_steps(&m, all, of[i].again, of[i].noise)};
        join(&m, stepped, 2);
        assert_true(ckpt_profile_is_in_step(m.profile));
        assert_string_equal(m.profile->step.plan, "keep-all");
        assert_int_equal(m.profile->step.time.median_ns, median_whole(&stepped[0]));
        assert_true(m.profile->step.overhead_ns >= OUTSIDE_NS - OUTSIDE_NS / 2 && m.profile->step.overhead_ns < 12000);
        assert_int_equal(predicted(&m, "keep-all"), median_whole(&stepped[0]));
        const ckpt_ns off = predicted(&m, "recompute-all") - median_whole(&stepped[1]);
        CHECK(off <= 0 && off >= -3 * all->step_count, "%s: recompute-all is off by %lld ns", of[i].file,
              (long long)off);
        test_train_close(&m.t);
    }
}

static ckpt_ns mean_of(const ckpt_stepped *stepped, const ckpt_lowered *lowered, const char *op, bool again)
{
    ckpt_ns sum = 0;
    int runs = 0;
    for (int s = 0; s < stepped->plan->step_count; s++) {
        const ckpt_step *const step = &stepped->plan->step[s];
        const char *const layer = step->kind == CKPT_RUN ? lowered->graph->op[step->target].name : "";
        /* "h.0.qkv/forward" is h.*.qkv/forward */
        const bool same = strncmp(layer, "h.", 2) == 0 && strcmp(layer + 3, op) == 0;
        if (same && step->recomputed == again) {
            sum += base_ns(stepped->plan, s);
            runs++;
        }
    }
    assert_true(runs > 0);
    return sum / runs;
}

/* Without noise nothing is stretched: rows have the means over identical layers, and what was there becomes alone_ns. */
static void rows_have_means_over_identical_layers(void **state)
{
    made m;
    open_made(&m, "models/byte-gpt.json", gpt);
    const ckpt_profile_row alone = *ckpt_profile_find(m.profile, "h.0.qkv");
    const ckpt_stepped stepped[] = {make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0),
                                    make_steps(&m, plan_of(&m, m.lowered->graph, "recompute-all"), 100, 0)};
    join(&m, stepped, 2);
    const ckpt_profile_row *const row = ckpt_profile_find(m.profile, "h.0.qkv");
    assert_int_equal(row->forward.median_ns, mean_of(&stepped[0], m.lowered, ".qkv/forward", false));
    assert_int_equal(row->backward.median_ns, mean_of(&stepped[0], m.lowered, ".qkv/backward", false));
    assert_int_equal(row->update.median_ns, mean_of(&stepped[0], m.lowered, ".qkv/update", false));
    assert_in_range(row->recompute.median_ns, mean_of(&stepped[1], m.lowered, ".qkv/forward", true) - 3,
                    mean_of(&stepped[1], m.lowered, ".qkv/forward", true));
    assert_int_equal(row->forward.alone_ns, alone.forward.median_ns);
    assert_int_equal(row->backward.alone_ns, alone.backward.median_ns);
    assert_int_equal(row->update.alone_ns, alone.update.median_ns);
    assert_true(row->forward.repeats == STEPS && row->recompute.repeats == STEPS && row->forward.spread_ns == 0);
    assert_true(row->forward.flop == alone.forward.flop && row->output_bytes == alone.output_bytes);
    const ckpt_profile_row *const twin = ckpt_profile_find(m.profile, "h.2.qkv");
    assert_string_equal(twin->same_as, "h.0.qkv");
    assert_true(twin->backward.median_ns == row->backward.median_ns &&
                twin->recompute.sample_ns == row->recompute.sample_ns);
    test_train_close(&m.t);
}

/* Where there is no memory for keep-all, one plan that runs things again has all times. */
static void one_plan_has_runs_again_too(void **state)
{
    made m;
    open_made(&m, "models/byte-gpt.json", gpt);
    const ckpt_stepped stepped = make_steps(&m, plan_of(&m, m.lowered->graph, "recompute-all"), 50, 2000);
    join(&m, &stepped, 1);
    assert_string_equal(m.profile->step.plan, "recompute-all");
    const ckpt_ns off = predicted(&m, "recompute-all") - median_whole(&stepped);
    CHECK(off <= 0 && off >= -3 * stepped.plan->step_count, "off by %lld ns", (long long)off);
    const ckpt_profile_row *const row = ckpt_profile_find(m.profile, "h.0.fc");
    assert_true(row->recompute.median_ns < row->forward.median_ns * 6 / 10);
    test_train_close(&m.t);
}

/* A machine that was busy during the second plan changes no time by more than two. */
static void runs_again_pay_for_no_pause(void **state)
{
    made m;
    open_made(&m, "models/byte-gpt.json", gpt);
    ckpt_stepped stepped[] = {make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0),
                              make_steps(&m, plan_of(&m, m.lowered->graph, "recompute-all"), 100, 0)};
    for (int k = 0; k < STEPS; k++) {
        stepped[1].whole_ns[k] *= 10;
    }
    join(&m, stepped, 2);
    assert_in_range(ckpt_profile_find(m.profile, "h.0.qkv")->recompute.median_ns,
                    mean_of(&stepped[1], m.lowered, ".qkv/forward", true) * 2 - 3,
                    mean_of(&stepped[1], m.lowered, ".qkv/forward", true) * 2);
    for (int k = 0; k < STEPS; k++) {
        stepped[1].whole_ns[k] /= 100;
    }
    join(&m, stepped, 2);
    assert_in_range(ckpt_profile_find(m.profile, "h.0.qkv")->recompute.median_ns,
                    mean_of(&stepped[1], m.lowered, ".qkv/forward", true) / 2 - 3,
                    mean_of(&stepped[1], m.lowered, ".qkv/forward", true) / 2);
    test_train_close(&m.t);
}

static void slow_down(ckpt_stepped *stepped, int k, int turn, int by)
{
    const size_t steps = (size_t)stepped->plan->step_count;
    stepped->turn = turn > stepped->turn ? turn : stepped->turn;
    stepped->timed_turn[k] = stepped->whole_turn[k] = turn;
    stepped->whole_ns[k] *= by;
    for (size_t s = 0; s < steps; s++) {
        stepped->run_ns[(size_t)k * steps + s] *= by;
    }
}

/* The machine takes three times as long in turns 2 and 3, which are all that the second plan has, and until the first
 * plan's turn 4: no time is dearer for it. */
static void a_slow_while_is_no_price(void **state)
{
    made m;
    open_made(&m, "models/byte-gpt.json", gpt);
    ckpt_stepped stepped[] = {make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0),
                              make_steps(&m, plan_of(&m, m.lowered->graph, "recompute-all"), 110, 0)};
    join(&m, stepped, 2);
    const ckpt_ns keep = predicted(&m, "keep-all"), all = predicted(&m, "recompute-all");
    for (int k = 0; k < STEPS; k++) {
        slow_down(&stepped[0], k, k, k >= 2 && k <= 4 ? 3 : 1);
        slow_down(&stepped[1], k, 2 + k % 2, 3);
    }
    join(&m, stepped, 2);
    assert_int_equal(predicted(&m, "keep-all"), keep);
    assert_int_equal(predicted(&m, "recompute-all"), all);
    test_train_close(&m.t);
}

/* Steps that are shorter than their runs say, as a GPU's replayed ones are: no overhead, and the sum is right. */
static void shorter_steps_shrink_all(void **state)
{
    made m;
    open_made(&m, "models/byte-gpt.json", gpt);
    ckpt_stepped stepped = make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0);
    for (int k = 0; k < STEPS; k++) {
        stepped.whole_ns[k] /= 2;
    }
    join(&m, &stepped, 1);
    assert_int_equal(predicted(&m, "keep-all"), median_whole(&stepped));
    assert_true(m.profile->step.overhead_ns <= stepped.plan->step_count);
    test_train_close(&m.t);
}

/* Ways that a plan runs have its times; the others keep their proportion to the layer's own way. */
static void ways_have_times_in_the_step(void **state)
{
    made m;
    open_made(&m, "tests/models/no-library.json", "");
    ckpt_graph graph = *m.lowered->graph;
    ckpt_graph_op *const op = ckpt_graph_copy_ops(&graph, &m.t.arena);
    for (int o = 0; o < graph.op_count; o++) {
        op[o].time_ns = 1000000;
        for (int i = 0; i < op[o].variant_count; i++) {
            op[op[o].first_variant + i].time_ns = 1;
        }
    }
    graph.op = op;
    ckpt_stepped stepped[] = {make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0),
                              make_steps(&m, plan_of(&m, &graph, "auto"), 100, 0)};
    int ran = 0, all = 0;
    const ckpt_profile_row *const before = m.profile->row;
    join(&m, stepped, 2);
    for (int r = 0; r < m.profile->row_count; r++) {
        for (int k = 0; k < m.profile->row[r].way_count; k++) {
            const ckpt_profile_way *const way = &m.profile->row[r].way[k];
            const ckpt_timing *const own =
                way->direction == CKPT_DIRECTION_FORWARD ? &m.profile->row[r].forward : &m.profile->row[r].backward;
            all++;
            ran += way->timing.repeats > 0;
            assert_int_equal(way->timing.alone_ns, before[r].way[k].timing.median_ns);
            if (way->timing.repeats > 0) {
                assert_int_equal(way->timing.median_ns % 1000, 333);
            } else {
                const double wanted = (double)way->timing.alone_ns * (double)own->median_ns / (double)own->alone_ns;
                assert_int_equal(way->timing.median_ns, (ckpt_ns)wanted);
            }
        }
    }
    CHECK(ran > 0 && ran < all, "%d of %d ways ran", ran, all);
    test_train_close(&m.t);
}

typedef struct starved {
    made *m;
    const ckpt_stepped *stepped;
} starved;

static ckpt_code call_in_step(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_profile profile = *s->m->profile;
    ckpt_stepped one;
    CKPT_TRY(ckpt_stepped_init(&one, s->stepped[0].plan, STEPS, arena, err));
    CKPT_TRY(ckpt_profile_in_step(s->m->lowered, s->stepped, 2, arena, &profile, err));
    const ckpt_lowered *lowered = NULL;
    return ckpt_network_lower(s->m->t.network, &profile, NULL, arena, &lowered, err);
}

static void every_allocation_may_fail(void **state)
{
    made m;
    open_made(&m, "tests/models/no-library.json", "");
    const ckpt_stepped stepped[] = {make_steps(&m, plan_of(&m, m.lowered->graph, "keep-all"), 100, 0),
                                    make_steps(&m, plan_of(&m, m.lowered->graph, "recompute-all"), 90, 0)};
    assert_true(ckpt_test_starve_arena(call_in_step, &(starved){&m, stepped}) > 5);
    m.profile->row_count--;
    ckpt_err err = {0};
    assert_int_equal(ckpt_profile_in_step(m.lowered, stepped, 2, &m.t.arena, m.profile, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "the profile has no row for layer"));
    test_train_close(&m.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_are_exact),         cmocka_unit_test(rows_have_means_over_identical_layers),
        cmocka_unit_test(one_plan_has_runs_again_too), cmocka_unit_test(runs_again_pay_for_no_pause),
        cmocka_unit_test(a_slow_while_is_no_price),    cmocka_unit_test(shorter_steps_shrink_all),
        cmocka_unit_test(ways_have_times_in_the_step), cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
