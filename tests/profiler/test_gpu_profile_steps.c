/* labels: contract gpu; on a GPU: 60 s, together */
/* Times in the step, taken by real training: on the CPU, on every GPU there is and on the emulated one. What the profile
 * says adds up, plans by it are predicted as the steps were measured, and where memory is short another plan serves. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "profiler/profiler.h"
#include "programs/profile/profile_steps.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_core.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_train.h"

enum { STEPS = 4 }; /* two before and two behind what runs again */

static char said[512];

static void note(const char *line)
{
    snprintf(said, sizeof said, "%s", line);
}

static ckpt_profile *alone(test_train *t)
{
    ckpt_profile *profile = NULL;
    ckpt_err err = {0};
    const ckpt_profiler_options options = {.repeats = 3, .spend_ns = 1, .warm = true};
    CHECK_OK(ckpt_profile_run(t->device, t->lowered, &options, &t->arena, &profile, &err), err);
    profile->machine = (ckpt_machine){.device = "", .driver = "", .gpu = t->device->api->gpu};
    return profile;
}

static void take_steps(test_train *t, ckpt_profile *profile, ckpt_bytes memory)
{
    ckpt_err err = {0};
    const ckpt_profile_steps_options options = {.steps = STEPS, .memory_bytes = memory, .note = note};
    said[0] = '\0';
    ckpt_emulated_guard(false); /* what layers touch is looked at elsewhere */
    CHECK_OK(ckpt_profile_steps(t->device, t->network, &options, &t->arena, profile, &err), err);
    ckpt_emulated_guard(true);
}

static ckpt_plan *plan_by(test_train *t, const ckpt_profile *profile, const char *strategy, ckpt_bytes budget)
{
    const ckpt_lowered *lowered = NULL;
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_lower(t->network, profile, NULL, &t->arena, &lowered, &err), err);
    CHECK_OK(
        ckpt_plan_make(lowered->graph, strategy, &(ckpt_plan_options){.budget_bytes = budget}, &t->arena, &plan, &err),
        err);
    return plan;
}

/* Of keep-all: all directions of all rows and the overhead are the step, and so does the planner see it. */
static void check_sums(test_train *t, const ckpt_profile *profile, const char *what)
{
    ckpt_ns sum = profile->step.overhead_ns;
    int again = 0, ways = 0;
    for (int r = 0; r < profile->row_count; r++) {
        const ckpt_profile_row *const row = &profile->row[r];
        const ckpt_timing *const timing[] = {&row->forward, &row->backward, &row->update};
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            sum += timing[d]->median_ns;
            CHECK(timing[d]->repeats == 0 || timing[d]->repeats == STEPS, "%s: %s has %d repeats", what, row->layer,
                  timing[d]->repeats);
            assert_true(timing[d]->repeats == 0 || timing[d]->alone_ns >= 0);
        }
        again += row->recompute.repeats == STEPS;
        for (int k = 0; k < row->way_count; k++) {
            ways += row->way[k].timing.repeats == STEPS;
        }
    }
    assert_string_equal(profile->step.plan, "keep-all");
    assert_int_equal(profile->step.time.repeats, STEPS);
    CHECK(sum == profile->step.time.median_ns, "%s: rows and overhead are %lld ns of a step of %lld", what,
          (long long)sum, (long long)profile->step.time.median_ns);
    assert_int_equal(plan_by(t, profile, "keep-all", 0)->time_ns, profile->step.time.median_ns);
    CHECK(again > profile->row_count / 2 && ways > 0, "%s: %d of %d rows ran again, and %d ways", what, again,
          profile->row_count, ways);
}

/* The file has all of it: plans are the same by what was written. */
static void check_file(test_train *t, const ckpt_profile *profile)
{
    const ckpt_profile *read = NULL;
    ckpt_err err = {0};
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_profile_write(profile, &text);
    CHECK_OK(ckpt_profile_read(ckpt_test_file("steps.json", text.bytes, text.length), &t->arena, &read, &err), err);
    ckpt_text_fini(&text);
    static const char *const strategy[] = {"keep-all", "recompute-all", "auto"};
    for (size_t s = 0; s < sizeof strategy / sizeof strategy[0]; s++) {
        assert_int_equal(plan_by(t, read, strategy[s], 0)->time_ns, plan_by(t, profile, strategy[s], 0)->time_ns);
    }
}

static void check_model(ckpt_device *device, const char *file, const char *dtype)
{
    test_train t;
    test_train_open_on(&t, device, file, "", dtype);
    ckpt_profile *const profile = alone(&t);
    take_steps(&t, profile, 0);
    assert_string_equal(said, "");
    check_sums(&t, profile, file);
    check_file(&t, profile);
    test_train_close(&t);
}

static void keep_all_adds_up(void **state)
{
    check_model(ckpt_gpus_cpu, "tests/models/no-library.json", "float32");
    check_model(ckpt_gpus_cpu, "tests/models/resnet-small.json", "float32");
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_model(ckpt_gpus[g].device, "tests/models/no-library.json", "bfloat16");
        check_model(ckpt_gpus[g].device, "tests/models/resnet-small.json", "float32");
    }
}

/* Memory for keep-all, for the lowest peak alone, for nothing. */
static void short_memory_takes_another_plan(void **state)
{
    for (int g = -1; g < ckpt_gpus_count; g++) {
        test_train t;
        test_train_open_on(&t, g < 0 ? ckpt_gpus_cpu : ckpt_gpus[g].device, "tests/models/resnet-small.json", "",
                           "float32");
        ckpt_profile *const profile = alone(&t);
        const ckpt_profile before = *profile;
        const ckpt_plan *const keep = plan_by(&t, profile, "keep-all", 0);
        const ckpt_bytes all = keep->static_bytes + keep->arena_bytes;
        const ckpt_bytes least = plan_by(&t, profile, "auto", 1)->min_budget_bytes;
        assert_true(least < all);
        take_steps(&t, profile, least - 1);
        assert_false(ckpt_profile_is_in_step(profile));
        assert_ptr_equal(profile->row, before.row);
        CHECK(strstr(said, "layers are measured alone, not in the step: its plan of the lowest peak takes") != NULL,
              "%s", said);
        take_steps(&t, profile, all - 1);
        assert_true(ckpt_profile_is_in_step(profile));
        assert_string_not_equal(profile->step.plan, "keep-all");
        assert_string_equal(said, "");
        int again = 0;
        for (int r = 0; r < profile->row_count; r++) {
            again += profile->row[r].recompute.repeats > 0;
        }
        assert_true(again > 0);
        *profile = before;
        take_steps(&t, profile, all);
        assert_string_equal(profile->step.plan, "keep-all");
        test_train_close(&t);
    }
}

typedef struct starved {
    const test_train *t;
    const ckpt_profile *profile;
} starved;

static ckpt_code call_steps(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    ckpt_profile profile = *s->profile;
    const ckpt_profile_steps_options options = {.steps = STEPS, .note = note};
    return ckpt_profile_steps(s->t->device, s->t->network, &options, arena, &profile, err);
}

static void every_allocation_may_fail(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/no-library.json", "");
    assert_true(ckpt_test_starve_arena(call_steps, &(starved){&t, alone(&t)}) > 20);
    test_train_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keep_all_adds_up),
        cmocka_unit_test(short_memory_takes_another_plan),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
