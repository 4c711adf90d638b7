/* Micro-batches, fused gradients, scaled losses and the norm on one rank: the same bits under any plan, and what a
 * plainer computation gives. */
#include "tests/support/support_data.h"
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_train.h"

enum { SEED = 11, STEPS = 2 };

/* tied embeddings, dropout in and out of attention; batch norm and dropout */
#define BERT      "models/bert-8.json"
#define BERT_SET  "batch=2 tokens=6 positions=6 hidden=16 blocks=1 heads=2 feed_forward=24 vocabulary=24"
#define DENSE     "models/densenet-bc-100-12-dropout.json"
#define DENSE_SET "batch=2 size=8 growth=4 layers=1"

static ckpt_scheme scheme_of(int micro_batches, bool fused)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = micro_batches;
    scheme.fused = fused;
    return scheme;
}

static void run_plan(test_train *t, const ckpt_plan *plan, bool poison, test_record *record)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    test_train_run(t, &(test_run){.plan = plan, .seed = SEED, .poison = poison, .predicted = predicted, .steps = STEPS},
                   record);
    CHECK(record->peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", plan->solver,
          (long long)record->peak_bytes, (long long)plan->peak_bytes);
}

/* What keep-all leaves, and that other plans, poisoned, leave the same. */
static void check_plans(test_train *t, const char *what, test_record *wanted)
{
    static const char *const strategy[] = {"recompute-all", "sqrt", "auto"};
    run_plan(t, test_train_plan(t, "keep-all", 0), false, wanted);
    for (int s = 1; s < STEPS; s++) {
        CHECK(strcmp(wanted->digest[s][0], wanted->digest[s - 1][0]) != 0, "%s: step %d trains nothing", what, s + 1);
    }
    int recomputed = 0;
    for (size_t i = 0; i < sizeof strategy / sizeof strategy[0]; i++) {
        char name[160];
        if (i == 2 && t->lowered->network->scheme.micro_batches != 2) {
            break; /* it takes its time */
        }
        const ckpt_plan *plan = test_train_plan(t, strategy[i], 1);
        plan = test_train_plan(t, strategy[i], plan->min_budget_bytes);
        assert_int_equal(plan->verdict, CKPT_FITS);
        test_record found;
        run_plan(t, plan, true, &found);
        snprintf(name, sizeof name, "%s: %s", what, strategy[i]);
        test_record_same(wanted, &found, 0, name);
        for (int s = 0; s < plan->step_count; s++) {
            recomputed += plan->step[s].recomputed;
        }
    }
    CHECK(recomputed > 0, "%s: nothing runs again", what);
}

static void any_plan(const char *file, const char *set, int step)
{
    test_train t;
    test_train_open(&t, file, set);
    for (int m = 1; m <= 4; m += step) {
        char what[120];
        test_record fixed, fused, scaled, clipped;
        ckpt_scheme scheme = scheme_of(m, false);
        test_train_spread(&t, &scheme, 0, 1);
        snprintf(what, sizeof what, "%s, %d micro-batches", file, m);
        check_plans(&t, what, &fixed);
        test_train_spread(&t, &scheme, 0, 1024);
        run_plan(&t, test_train_plan(&t, "sqrt", 0), true, &scaled);
        test_train_spread(&t, &scheme, 0.01, 1);
        snprintf(what, sizeof what, "%s, %d micro-batches, clipped", file, m);
        check_plans(&t, what, &clipped);
        scheme.fused = true;
        test_train_spread(&t, &scheme, 0, 1);
        snprintf(what, sizeof what, "%s, %d micro-batches, fused", file, m);
        check_plans(&t, what, &fused);
        test_record_same(&fixed, &fused, 0, what);
        for (int s = 0; s < STEPS; s++) {
            for (int i = 0; i < TEST_SECTIONS; i++) { /* a power of two changes no bit but of the gradients */
                const bool same = strcmp(fixed.digest[s][i], scaled.digest[s][i]) == 0;
                CHECK(same == (i != CKPT_SECTION_GRADIENTS), "%s: section %d with a loss scale, step %d", what, i,
                      s + 1);
            }
            CHECK(strcmp(fixed.digest[s][0], clipped.digest[s][0]) != 0, "%s: nothing was clipped", what);
        }
        CHECK(m > 1 || fused.peak_bytes < fixed.peak_bytes, "%s: fused gradients save nothing", what);
    }
    test_train_close(&t);
}

static void tied_with_dropout(void **state)
{
    any_plan(BERT, BERT_SET, 1);
}

static void batch_norm_with_dropout(void **state)
{
    any_plan(DENSE, DENSE_SET, 2);
}

/* --- against plain steps, one micro-batch each --- */

static ckpt_executor *open_executor(test_train *t, const ckpt_plan *plan)
{
    return test_train_executor(t, plan, &(ckpt_executor_options){.seed = SEED, .poison = true});
}

/* |sum of floats in any order and grouping - the exact sum| <= (terms - 1) * eps * sum of |terms|; a kernel that adds
 * to a gradient may start its own sum with what is there, of `inner` terms. */
static void check_sum(const char *what, const float *found, const double *sum, const double *size, int64_t count,
                      int terms)
{
    const double inner = 4096;
    for (int64_t i = 0; i < count; i++) {
        const double most = ((double)terms + inner) * 6e-8 * size[i] + 1e-12;
        CHECK(fabs((double)found[i] - sum[i]) <= most, "%s: gradient %lld is %g, wanted %g within %g", what,
              (long long)i, (double)found[i], sum[i], most);
    }
}

/* Gradients of m plain steps, each from the same weights, are summed; the rest of the step follows from the found
 * gradients to the bit. Statistics change as in plain steps, batch after batch. */
static void check_against_plain(const char *file, const char *set, int m, double clip)
{
    test_train t, plain;
    char what[120];
    snprintf(what, sizeof what, "%s, %d micro-batches", file, m);
    test_train_open(&t, file, set);
    test_train_open(&plain, file, set);
    const ckpt_scheme scheme = scheme_of(m, false);
    test_train_spread(&t, &scheme, clip, 1);
    ckpt_executor *const executor = open_executor(&t, test_train_plan(&t, "recompute-all", 0));
    ckpt_executor *const alone = open_executor(&plain, test_train_plan(&plain, "keep-all", 0));
    ckpt_err err = {0};
    ckpt_data *const data = test_train_data(&t, SEED);
    const int64_t count = test_train_get(&t, NULL, NULL, NULL);
    test_optimizer o;
    test_optimizer_init(&o, &t);
    float *const one = CKPT_NEW(&t.arena, float, count), *const found = CKPT_NEW(&t.arena, float, count);
    double *const sum = CKPT_NEW(&t.arena, double, count), *const size = CKPT_NEW(&t.arena, double, count);
    test_train_get(&t, executor, ckpt_executor_param, o.param);
    for (int s = 0; s < STEPS; s++) {
        double losses = 0, squares = 0;
        memset(sum, 0, (size_t)count * sizeof *sum);
        memset(size, 0, (size_t)count * sizeof *size);
        const float loss = test_train_step(&t, data, executor);
        for (int j = 0; j < m; j++) {
            test_train_set(&plain, alone, o.param);
            const float value = test_train_step(&plain, data, alone);
            test_train_get(&plain, alone, ckpt_executor_grad, one);
            losses += (double)value;
            for (int64_t i = 0; i < count; i++) {
                sum[i] += (double)one[i];
                size[i] += fabs((double)one[i]);
            }
        }
        const float mean = (float)(losses / m);
        CHECK(memcmp(&mean, &loss, sizeof loss) == 0, "%s: loss %a, wanted %a", what, (double)loss, (double)mean);
        test_train_get(&t, executor, ckpt_executor_grad, o.grad);
        check_sum(what, o.grad, sum, size, count, m);
        for (int64_t i = 0; i < count; i++) {
            squares += (double)o.grad[i] * (double)o.grad[i];
        }
        const double length = sqrt(squares) / m;
        const double shorter = clip > 0 && clip / (length + 1e-6) < 1 ? clip / (length + 1e-6) : 1;
        if (clip > 0) {
            CHECK(shorter < 1, "%s: a length of %g is not clipped", what, length);
        }
        const float scale = (float)(shorter / m);
        for (int64_t i = 0; i < count; i++) {
            o.grad[i] *= scale;
        }
        test_optimizer_step(&o, &t, (uint64_t)s + 1);
        test_train_get(&t, executor, ckpt_executor_param, found);
        for (int64_t i = 0; i < count; i++) { /* the norm's sum has another order here: its last bit may differ */
            const double off = clip > 0 ? 1e-6 * (fabs((double)o.param[i]) + 1e-3) : 0;
            CHECK(fabs((double)found[i] - (double)o.param[i]) <= off, "%s: weight %lld of step %d is %a, wanted %a",
                  what, (long long)i, s + 1, (double)found[i], (double)o.param[i]);
        }
        memcpy(o.param, found, (size_t)count * sizeof *found);
        char a[CKPT_DIGEST_TEXT], b[CKPT_DIGEST_TEXT];
        CHECK_OK(ckpt_executor_digest(executor, CKPT_SECTION_STATISTICS, a, &err), err);
        CHECK_OK(ckpt_executor_digest(alone, CKPT_SECTION_STATISTICS, b, &err), err);
        assert_string_equal(a, b);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    ckpt_executor_destroy(alone);
    test_train_close(&plain);
    test_train_close(&t);
}

static void plain_steps_say_the_same(void **state)
{
    check_against_plain(DENSE, DENSE_SET, 3, 0);
    check_against_plain(BERT, BERT_SET, 4, 0.001);
}

/* --- evaluation --- */

/* An evaluation changes nothing, whenever it comes; and gives what plain evaluations of the micro-batches give. */
/* One step by a scheme; its executor, which the caller destroys. */
static ckpt_executor *one_step(test_train *t, const ckpt_scheme *scheme)
{
    test_train_spread(t, scheme, 0, 1);
    ckpt_executor *const executor = open_executor(t, test_train_plan(t, "keep-all", 0));
    ckpt_data *const data = test_train_data(t, SEED);
    (void)test_train_step(t, data, executor);
    ckpt_data_close(data);
    return executor;
}

/* Every copy of a tied parameter has the gradient that all of its layers have together. */
static void copies_drift_apart(void **state)
{
    test_train t, together;
    ckpt_err err = {0};
    int compared = 0;
    test_train_open(&t, BERT, BERT_SET);
    test_train_open(&together, BERT, BERT_SET);
    ckpt_scheme scheme = scheme_of(2, false);
    ckpt_executor *const wanted = one_step(&together, &scheme);
    scheme.apart = true;
    ckpt_executor *const found = one_step(&t, &scheme);
    const ckpt_network *const network = t.lowered->network;
    for (int i = 0; i < network->tied_group_count; i++) {
        const ckpt_tied_group *const group = &network->tied_group[i];
        const int64_t count = ckpt_shape_count(&network->node[group->owner].param[group->param].tensor.shape);
        float *const whole = CKPT_NEW(&t.arena, float, count), *const one = CKPT_NEW(&t.arena, float, count);
        float *const weight = CKPT_NEW(&t.arena, float, count), *const first = CKPT_NEW(&t.arena, float, count);
        CHECK_OK(ckpt_executor_grad(wanted, group->owner, group->param, whole, &err), err);
        double most = 0;
        for (int64_t e = 0; e < count; e++) {
            most = fmax(most, fabs((double)whole[e]));
        }
        for (int h = 0; h < group->holder_count; h++) {
            CHECK_OK(ckpt_executor_grad(found, group->holder[h], group->param, one, &err), err);
            CHECK_OK(ckpt_executor_param(found, group->holder[h], group->param, weight, &err), err);
            for (int64_t e = 0; e < count; e++) {
                CHECK(fabs((double)one[e] - (double)whole[e]) <= 1e-5 * most, "copy %d: gradient %lld is %g, wanted %g",
                      h, (long long)e, (double)one[e], (double)whole[e]);
            }
            if (h > 0) {
                assert_memory_equal(weight, first, (size_t)count * sizeof *weight);
            }
            memcpy(first, weight, (size_t)count * sizeof *weight);
            compared++;
        }
    }
    assert_true(compared >= 2);
    ckpt_executor_destroy(found);
    ckpt_executor_destroy(wanted);
    test_train_close(&together);
    test_train_close(&t);
}

static void evaluation_leaves_no_trace(void **state)
{
    test_train t, plain;
    ckpt_err err = {0};
    test_train_open(&t, DENSE, DENSE_SET);
    test_train_open(&plain, DENSE, DENSE_SET);
    const ckpt_scheme scheme = scheme_of(3, false);
    test_train_spread(&t, &scheme, 0, 1);
    ckpt_executor *const a = open_executor(&t, test_train_plan(&t, "recompute-all", 0));
    ckpt_executor *const b = open_executor(&t, test_train_plan(&t, "keep-all", 0));
    ckpt_executor *const alone = open_executor(&plain, test_train_plan(&plain, "keep-all", 0));
    ckpt_data *const data = test_train_data(&t, SEED);
    for (int s = 0; s < STEPS; s++) {
        float first = 0, second = 0, trained = 0, other = 0, one = 0;
        double sum = 0;
        char before[TEST_SECTIONS][CKPT_DIGEST_TEXT], after[CKPT_DIGEST_TEXT];
        test_train_feed(&t, data, a);
        test_train_feed(&t, data, b);
        for (int i = 0; i < TEST_SECTIONS; i++) {
            CHECK_OK(ckpt_executor_digest(a, (ckpt_section)i, before[i], &err), err);
        }
        const ckpt_bytes peak = ckpt_executor_peak(a);
        CHECK_OK(ckpt_executor_evaluate(a, NULL, &first, &err), err);
        CHECK_OK(ckpt_executor_evaluate(a, NULL, &second, &err), err);
        assert_memory_equal(&first, &second, sizeof first);
        assert_int_equal(ckpt_executor_steps(a), s);
        assert_true(ckpt_executor_peak(a) == peak);
        for (int i = 0; i < TEST_SECTIONS; i++) {
            CHECK_OK(ckpt_executor_digest(a, (ckpt_section)i, after, &err), err);
            assert_string_equal(before[i], after);
        }
        if (s == 0) { /* the same weights and statistics as `alone`, which never trains */
            for (int j = 0; j < 3; j++) {
                void *input[TEST_TRAIN_INPUTS];
                for (int i = 0; i < t.model->input_count; i++) {
                    input[i] = ckpt_executor_input(alone, i);
                }
                ckpt_test_fill(data, (uint64_t)j, input);
                CHECK_OK(ckpt_executor_evaluate(alone, NULL, &one, &err), err);
                sum += (double)one;
            }
            one = (float)(sum / 3);
            assert_memory_equal(&first, &one, sizeof first);
        }
        CHECK_OK(ckpt_executor_step(a, &trained, NULL, &err), err);
        CHECK_OK(ckpt_executor_step(b, &other, NULL, &err), err);
        assert_memory_equal(&trained, &other, sizeof trained);
        CHECK(trained != first, "step %d: an evaluation has the loss of training, %g", s + 1, (double)first);
        CHECK_OK(ckpt_executor_digest(a, CKPT_SECTION_WEIGHTS, before[0], &err), err);
        CHECK_OK(ckpt_executor_digest(b, CKPT_SECTION_WEIGHTS, after, &err), err);
        assert_string_equal(before[0], after);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(a);
    ckpt_executor_destroy(b);
    ckpt_executor_destroy(alone);
    test_train_close(&plain);
    test_train_close(&t);
}

/* Without dropout and batch norm an evaluation is what the step then finds. */
static void evaluation_is_the_forward_pass(void **state)
{
    static const char *const strategy[] = {"keep-all", "recompute-all", "sqrt"};
    test_train t;
    ckpt_err err = {0};
    test_train_open(&t, "models/lstm.json", "batch=2 hidden=16");
    for (int fused = 0; fused < 2; fused++) {
        const ckpt_scheme scheme = scheme_of(2, fused != 0);
        test_train_spread(&t, &scheme, 0, 1);
        for (size_t i = 0; i < sizeof strategy / sizeof strategy[0]; i++) {
            ckpt_executor *const executor = open_executor(&t, test_train_plan(&t, strategy[i], 0));
            ckpt_data *const data = test_train_data(&t, SEED);
            for (int s = 0; s < STEPS; s++) {
                float found = 0, wanted = 0;
                test_train_feed(&t, data, executor);
                CHECK_OK(ckpt_executor_evaluate(executor, NULL, &found, &err), err);
                CHECK_OK(ckpt_executor_step(executor, &wanted, NULL, &err), err);
                assert_memory_equal(&found, &wanted, sizeof found);
                assert_true(isfinite(found) && found > 0);
            }
            ckpt_data_close(data);
            ckpt_executor_destroy(executor);
        }
    }
    test_train_close(&t);
}

/* --- refusals and memory --- */

static void fused_gradients_are_gone(void **state)
{
    test_train t;
    ckpt_err err = {0};
    float room[1];
    char digest[CKPT_DIGEST_TEXT];
    test_train_open(&t, "tests/models/fork.json", "");
    const ckpt_scheme scheme = scheme_of(2, true);
    test_train_spread(&t, &scheme, 0, 1);
    ckpt_executor *const executor = open_executor(&t, test_train_plan(&t, "keep-all", 0));
    assert_int_equal(ckpt_executor_grad(executor, 0, 0, room, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "fused"));
    assert_int_equal(ckpt_executor_digest(executor, CKPT_SECTION_GRADIENTS, digest, &err), CKPT_BAD_INPUT);
    ckpt_executor_destroy(executor);
    test_train_close(&t);
}

/* A plan that runs a layer on weights which the same step has changed is refused. */
static void weights_that_have_changed_are_seen(void **state)
{
    test_train t;
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    test_train_open(&t, "models/lstm.json", "batch=2 hidden=8");
    ckpt_plan plan = *test_train_hand_plan(&t, false, false);
    ckpt_step *const step = CKPT_NEW(&t.arena, ckpt_step, plan.step_count + 1);
    ckpt_allocation *const allocation = CKPT_NEW(&t.arena, ckpt_allocation, plan.allocation_count);
    int update = plan.step_count - 1;
    while (t.lowered->op_role[plan.step[update].target].phase != CKPT_UPDATE) {
        update--;
    }
    /* the last update stands first, and all before it one later */
    step[0] = plan.step[update];
    memcpy(step + 1, plan.step, (size_t)update * sizeof *step);
    memcpy(step + 1 + update, plan.step + update + 1, (size_t)(plan.step_count - update - 1) * sizeof *step);
    for (int i = 0; i < plan.allocation_count; i++) {
        allocation[i] = plan.allocation[i];
        allocation[i].from += allocation[i].from < update;
        allocation[i].to += allocation[i].to < update;
    }
    plan.step = step;
    plan.allocation = allocation;
    assert_int_equal(ckpt_executor_create(t.device, t.lowered, &plan, NULL, &executor, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, "after its weights are updated") != NULL, "%s", err.msg);
    test_train_close(&t);
}

static void several_ranks_need_several_processes(void **state)
{
    test_train t;
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    test_train_open(&t, "tests/models/fork.json", "");
    ckpt_scheme scheme = scheme_of(1, false);
    scheme.replicas = 2;
    test_train_spread(&t, &scheme, 0, 1);
    const ckpt_plan *const plan = test_train_plan(&t, "keep-all", 0);
    assert_int_equal(ckpt_executor_create(t.device, t.lowered, plan, NULL, &executor, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "1 process, wanted 2"));
    test_train_close(&t);
}

typedef struct creation {
    test_train t;
    const ckpt_plan *plan;
} creation;

static ckpt_code create(void *context, ckpt_err *err)
{
    const creation *const c = context;
    ckpt_executor *executor = NULL;
    const ckpt_code code = ckpt_executor_create(c->t.device, c->t.lowered, c->plan, NULL, &executor, err);
    ckpt_executor_destroy(executor);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    creation c;
    test_train_open(&c.t, "tests/models/fork.json", "");
    const ckpt_scheme scheme = scheme_of(2, false);
    test_train_spread(&c.t, &scheme, 0.5, 8);
    c.plan = test_train_plan(&c.t, "keep-all", 0);
    assert_true(ckpt_test_starve(create, &c) > 0);
    test_train_close(&c.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_with_dropout),
        cmocka_unit_test(batch_norm_with_dropout),
        cmocka_unit_test(plain_steps_say_the_same),
        cmocka_unit_test(copies_drift_apart),
        cmocka_unit_test(evaluation_leaves_no_trace),
        cmocka_unit_test(evaluation_is_the_forward_pass),
        cmocka_unit_test(fused_gradients_are_gone),
        cmocka_unit_test(weights_that_have_changed_are_seen),
        cmocka_unit_test(several_ranks_need_several_processes),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
