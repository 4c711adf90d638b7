/* labels: unit */
/* The executor on plans that no planner made: kept, in place, offloaded and fetched; poisoned; refused. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_train.h"

static const struct {
    const char *file, *set;
} model[] = {
    {"tests/models/fork.json", ""},
    {"tests/models/resnet-small.json", ""},
    {"tests/models/unet-small.json", ""},
    {"models/lstm.json", "batch=2 hidden=8"},
    {"models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=2 heads=2 vocabulary=32"},
};
enum { MODELS = sizeof model / sizeof model[0] };

static int count_steps(const ckpt_plan *plan, ckpt_step_kind kind, bool inplace)
{
    int count = 0;
    for (int s = 0; s < plan->step_count; s++) {
        count += plan->step[s].kind == kind && (!inplace || plan->step[s].inplace);
    }
    return count;
}

/* In-place runs, offloads and fetches change where bits are, never what they are; and nothing freed is read. */
static void same_bits_under_hand_plans(void **state)
{
    int inplace_steps = 0;
    for (int m = 0; m < MODELS; m++) {
        test_train t;
        test_train_open(&t, model[m].file, model[m].set);
        test_record wanted, found;
        const ckpt_plan *const kept = test_train_hand_plan(&t, false, false);
        test_train_run(&t, &(test_run){.plan = kept, .seed = 3}, &wanted);
        assert_true(wanted.peak_bytes == kept->peak_bytes);
        CHECK(strcmp(wanted.digest[0][0], wanted.digest[1][0]) != 0, "%s: a step changes no weight", model[m].file);
        for (int variant = 1; variant < 8; variant++) {
            const bool inplace = (variant & 1) != 0, offload = (variant & 2) != 0, poison = (variant & 4) != 0;
            const ckpt_plan *const plan = test_train_hand_plan(&t, inplace, offload);
            char what[200];
            snprintf(what, sizeof what, "%s%s%s%s", model[m].file, inplace ? " in place" : "",
                     offload ? " offloaded" : "", poison ? " poisoned" : "");
            test_train_run(&t, &(test_run){.plan = plan, .seed = 3, .poison = poison}, &found);
            test_record_same(&wanted, &found, 0, what);
            CHECK(found.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, planned %lld", what,
                  (long long)found.peak_bytes, (long long)plan->peak_bytes);
            inplace_steps += count_steps(plan, CKPT_RUN, true);
            assert_true(!offload ||
                        (count_steps(plan, CKPT_OFFLOAD, false) > 3 && count_steps(plan, CKPT_FETCH, false) > 3));
        }
        test_train_close(&t);
    }
    assert_true(inplace_steps > 0);
}

/* Another seed gives other weights and other losses: the identity above is not the identity of constants. */
static void seed_matters(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
    test_record a, b;
    test_train_run(&t, &(test_run){.plan = plan, .seed = 1}, &a);
    test_train_run(&t, &(test_run){.plan = plan, .seed = 2}, &b);
    assert_string_not_equal(a.digest[0][CKPT_SECTION_WEIGHTS], b.digest[0][CKPT_SECTION_WEIGHTS]);
    assert_memory_not_equal(a.loss, b.loss, sizeof a.loss);
    test_train_close(&t);
}

/* A plan that frees a buffer too early: the poison shows in the loss, so a wrong plan cannot pass unseen. */
static void poison_shows(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
    ckpt_allocation *const allocation = (ckpt_allocation *)(uintptr_t)plan->allocation;
    int moved = 0; /* every allocation at its neighbour's address: what is written there is lost */
    for (int p = 1; p < plan->allocation_count; p++) {
        if (allocation[p].buffer >= 0 && allocation[p - 1].bytes >= allocation[p].bytes &&
            allocation[p - 1].to > allocation[p].from) {
            allocation[p].offset = allocation[p - 1].offset;
            moved++;
        }
    }
    assert_true(moved > 0);
    ckpt_err err = {0};
    assert_int_equal(ckpt_plan_check_run(plan, t.lowered->graph, &err), CKPT_BAD_INPUT);
    test_record wanted, found;
    test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, false, false), .seed = 3}, &wanted);
    test_train_run(&t, &(test_run){.plan = plan, .seed = 3, .poison = true}, &found);
    assert_memory_not_equal(wanted.loss, found.loss, sizeof found.loss);
    test_train_close(&t);
}

typedef struct creation {
    test_train *t;
    const ckpt_plan *plan;
} creation;

static ckpt_code create_and_step(void *context, ckpt_err *err)
{
    const creation *const c = context;
    ckpt_executor *executor = NULL;
    CKPT_TRY(ckpt_executor_create(c->t->device, c->t->lowered, c->plan, NULL, &executor, err));
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_trace *trace = NULL;
    float loss = 0;
    char text[CKPT_DIGEST_TEXT];
    ckpt_code code = ckpt_executor_trace_create(executor, &arena, &trace, err);
    if (code == CKPT_OK) {
        code = ckpt_executor_step(executor, &loss, trace, err);
    }
    if (code == CKPT_OK) {
        code = ckpt_executor_digest(executor, CKPT_SECTION_WEIGHTS, text, err);
    }
    ckpt_arena_fini(&arena);
    ckpt_executor_destroy(executor);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    creation c = {&t, test_train_hand_plan(&t, false, true)};
    assert_true(ckpt_test_starve(create_and_step, &c) > 0);
    test_train_close(&t);
}

static void weights_go_in_and_out(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/fork.json", "");
    ckpt_err err = {0};
    const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
    ckpt_executor *const executor = test_train_executor(&t, plan, NULL);
    float bias[16], back[16], matrix[256];
    for (int i = 0; i < 16; i++) {
        bias[i] = (float)i * 0.5f;
    }
    CHECK_OK(ckpt_executor_param_set(executor, 0, 1, bias, &err), err);
    CHECK_OK(ckpt_executor_param(executor, 0, 1, back, &err), err);
    assert_memory_equal(bias, back, sizeof bias);
    /* weights of `a` start uniform within 1/sqrt(16), and not all the same */
    CHECK_OK(ckpt_executor_param(executor, 0, 0, matrix, &err), err);
    float least = 1, most = -1;
    for (int i = 0; i < 256; i++) {
        least = matrix[i] < least ? matrix[i] : least;
        most = matrix[i] > most ? matrix[i] : most;
    }
    assert_true(least >= -0.25f && least < -0.2f && most <= 0.25f && most > 0.2f);
    ckpt_executor_destroy(executor);
    ckpt_executor_destroy(NULL);
    test_train_close(&t);
}

static ckpt_code try_create(const test_train *t, const ckpt_plan *plan, ckpt_err *err)
{
    ckpt_executor *executor = NULL;
    const ckpt_code code = ckpt_executor_create(t->device, t->lowered, plan, NULL, &executor, err);
    ckpt_executor_destroy(executor);
    return code;
}

static void refusals(void **state)
{
    test_train t;
    test_train_open(&t, "tests/models/resnet-small.json", "");
    ckpt_plan *const plan = test_train_hand_plan(&t, false, true);
    ckpt_err err = {0};
    CHECK_OK(try_create(&t, plan, &err), err);
    const int64_t live = ckpt_memory_live();

    ckpt_plan other = *plan;
    other.verdict = CKPT_INFEASIBLE;
    assert_int_equal(try_create(&t, &other, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "fits"));

    other = *plan; /* an arena the machine cannot have */
    other.arena_bytes = INT64_C(1) << 60;
    err = (ckpt_err){0};
    assert_int_equal(try_create(&t, &other, &err), CKPT_NO_MEMORY);
    assert_non_null(strstr(err.msg, "arena"));

    other = *plan; /* an allocation that ends outside the arena */
    other.arena_bytes = 64;
    err = (ckpt_err){0};
    assert_int_equal(try_create(&t, &other, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "outside"));

    other = *plan; /* no workspaces */
    ckpt_allocation *const allocation = CKPT_NEW(&t.arena, ckpt_allocation, plan->allocation_count);
    int kept = 0;
    for (int p = 0; p < plan->allocation_count; p++) {
        if (plan->allocation[p].buffer >= 0) {
            allocation[kept++] = plan->allocation[p];
        }
    }
    assert_true(kept < plan->allocation_count);
    other.allocation = allocation;
    other.allocation_count = kept;
    err = (ckpt_err){0};
    assert_int_equal(try_create(&t, &other, &err), CKPT_DEVICE);
    assert_non_null(strstr(err.msg, "profile"));
    assert_int_equal(ckpt_memory_live(), live);
    test_train_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_under_hand_plans),
        cmocka_unit_test(seed_matters),
        cmocka_unit_test(poison_shows),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(weights_go_in_and_out),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
