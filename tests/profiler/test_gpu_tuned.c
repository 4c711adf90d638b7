/* labels: contract gpu; on a GPU: 60 s, together */
/* From the profile to the run: what a profile chose is in the file and in the plan, and every plan made from it leaves
 * the same bits, whatever the libraries would put first, or find fastest, when it runs. On every GPU there is; on the
 * emulated one the candidates are made up (tests/emulation/emulation.h). */
#include <string.h>

#include "core/base/text.h"
#include "core/formats/profile.h"
#include "ops/device_model.h"
#include "profiler/profiler.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_core.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"
#include "tests/support/support_train.h"

static void profile_model(test_train *t, bool tune, const ckpt_profile **profile)
{
    ckpt_err err = {0};
    ckpt_profile *made = NULL;
    const ckpt_profiler_options options = {.repeats = 3, .spend_ns = 1, .no_tune = !tune, .warm = true};
    ckpt_emulated_guard(false); /* thousands of runs, and what they touch is looked at elsewhere */
    CHECK_OK(ckpt_profile_run(t->device, t->lowered, &options, &t->arena, &made, &err), err);
    ckpt_emulated_guard(true);
    made->machine = (ckpt_machine){.device = "", .driver = "", .gpu = true};
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_profile_write(made, &text);
    CHECK_OK(ckpt_profile_read(ckpt_test_file("tuned.json", text.bytes, text.length), &t->arena, profile, &err), err);
    ckpt_text_fini(&text);
}

static const ckpt_plan *carry(test_train *t, ckpt_plan *plan, const ckpt_profile *profile)
{
    ckpt_layer_algorithms *const at = CKPT_NEW(&t->arena, ckpt_layer_algorithms, profile->row_count);
    plan->algorithms = at;
    for (int i = 0; i < profile->row_count; i++) {
        if (profile->row[i].algorithms[0] != '\0') {
            at[plan->algorithms_count++] = (ckpt_layer_algorithms){profile->row[i].layer, profile->row[i].algorithms};
        }
    }
    return plan;
}

/* The same bits by every plan that is made from it, whatever the libraries would put first or find fastest then. */
static void run_plans(test_train *t, const ckpt_profile *profile, const char *what, test_record *first)
{
    static const char *const strategy[] = {"keep-all", "recompute-only", "joint"};
    const ckpt_device_model *roofline = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_model_find("cpu", &t->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_lower(t->network, profile, roofline, &t->arena, &t->lowered, &err), err);
    for (int s = 0; s < 3; s++) {
        const ckpt_bytes least = s == 0 ? 0 : test_train_plan(t, strategy[s], 1)->min_budget_bytes;
        const ckpt_plan *const plan = carry(t, test_train_plan(t, strategy[s], least), profile);
        assert_true(plan->algorithms_count > 0);
        for (int record = 0; record < 2; record++) {
            test_record found;
            ckpt_emulated_candidates(s == 0 && record == 0 ? 0 : 3 + s);
            test_train_run(t, &(test_run){.plan = plan, .seed = 7, .steps = 3, .record = record == 1}, &found);
            if (s == 0 && record == 0) {
                *first = found;
            }
            test_record_same(first, &found, 0, what);
        }
    }
    ckpt_emulated_candidates(0);
}

static void check_model(const ckpt_gpu *gpu, const char *file, const char *set, const char *dtype)
{
    enum { PROFILES = 3 };
    test_record record[PROFILES];
    int differ = 0;
    for (int which = 0; which < PROFILES; which++) {
        test_train t;
        const ckpt_profile *profile = NULL;
        test_train_open_on(&t, gpu->device, file, set, dtype);
        ckpt_emulated_candidates(which);
        profile_model(&t, which > 0, &profile);
        ckpt_emulated_candidates(0);
        run_plans(&t, profile, file, &record[which]);
        differ += which > 0 && memcmp(record[which].digest[2], record[0].digest[2], sizeof record[0].digest[2]) != 0;
        test_train_close(&t);
    }
    CHECK(gpu->device->api != &ckpt_device_emulated || differ > 0, "%s in %s: other algorithms, and the same bits",
          file, dtype);
}

static void plans_run_what_was_profiled(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_model(&ckpt_gpus[g], "tests/models/fork.json", "", "float32");
        check_model(&ckpt_gpus[g], "tests/models/fork.json", "", "bfloat16");
        check_model(&ckpt_gpus[g], "tests/models/resnet-small.json", "", "bfloat16");
        check_model(&ckpt_gpus[g], "models/lstm.json", "batch=2 hidden=8", "float32");
    }
}

/* A plan whose algorithms are not there is refused before anything runs, with the layer and what was wanted. */
static void plans_with_other_algorithms(void **state)
{
    test_train t;
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    test_train_open_on(&t, ckpt_gpus[0].device, "tests/models/fork.json", "", NULL);
    ckpt_plan *const plan = test_train_plan(&t, "keep-all", 0);
    const ckpt_layer_algorithms at[] = {{"head", "forward=lt999999:1;weight=lt999999:1"}};
    const ckpt_executor_options options = {.seed = 1};
    plan->algorithms = at;
    plan->algorithms_count = 1;
    assert_int_equal(ckpt_executor_create(t.device, t.lowered, plan, &options, &executor, &err), CKPT_DEVICE);
    CHECK(strstr(err.msg, "layer head") != NULL && strstr(err.msg, "lt999999:1") != NULL &&
              strstr(err.msg, "profile and plan again") != NULL,
          "%s", err.msg);
    test_train_close(&t);
}

/* conv2's gradient of its input is added to another, in staging memory before the product's own workspace: an algorithm
 * that takes all the room that it was offered still fits behind it. An H200 wrote beyond the profiler's memory here. */
static void room_beside_staging(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        test_train t;
        const ckpt_profile *profile = NULL;
        test_train_open_on(&t, ckpt_gpus[g].device, "tests/models/staged.json", "batch=64", NULL);
        ckpt_emulated_candidates(CKPT_EMULATED_ALL_ROOM);
        profile_model(&t, true, &profile);
        ckpt_emulated_candidates(0);
        test_train_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_run_what_was_profiled),
        cmocka_unit_test(plans_with_other_algorithms),
        cmocka_unit_test(room_beside_staging),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
