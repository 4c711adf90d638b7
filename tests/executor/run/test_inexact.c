/* labels: contract */
/* Plans with inexact variants: never unasked, however much faster they are; checked and predicted like any plan, the
 * same bits when run twice, and a training that stays by that of keep-all. The models' norms go backward from their
 * outputs in them. */
#include "tests/support/support_test.h"

#include <math.h>
#include <string.h>

#include "tests/support/support_train.h"

enum { SEED = 7, STEPS = 40 };

static int inexact_runs(const ckpt_plan *plan)
{
    int count = 0;
    for (int s = 0; s < plan->step_count; s++) {
        count += plan->step[s].inexact;
    }
    return count;
}

/* From now on the own ways of ops with an inexact variant are slow. */
static void slow_down(test_train *t, ckpt_lowered *lowered, ckpt_graph *graph)
{
    ckpt_graph_op *const op = ckpt_graph_copy_ops(t->lowered->graph, &t->arena);
    assert_non_null(op);
    *lowered = *t->lowered;
    *graph = *t->lowered->graph;
    for (int v = graph->op_count; v < graph->op_count + graph->variant_count; v++) {
        op[op[v].base].time_ns += op[v].inexact ? 1000000 : 0;
    }
    graph->op = op;
    lowered->graph = graph;
    t->lowered = lowered;
}

static ckpt_plan *plan_under(test_train *t, ckpt_bytes budget, bool allow)
{
    const ckpt_plan_options options = {.budget_bytes = budget, .allow_inexact = allow};
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_make(t->lowered->graph, "auto", &options, &t->arena, &plan, &err), err);
    return plan;
}

static void train(const test_train *t, const ckpt_plan *plan, float loss[STEPS])
{
    ckpt_executor *const executor = test_train_executor(t, plan, &(ckpt_executor_options){.seed = SEED});
    ckpt_data *const data = test_train_data(t, SEED);
    for (int s = 0; s < STEPS; s++) {
        loss[s] = test_train_step(t, data, executor);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
}

/* Gradients differ by roundings, 2^-24 of each number; `bound` of the loss is left for what training makes of them in
 * STEPS steps. */
static void check_training(const test_train *t, const ckpt_plan *plan, const char *file, const float *wanted,
                           double bound)
{
    float loss[STEPS];
    double most = 0;
    train(t, plan, loss);
    for (int s = 0; s < STEPS; s++) {
        const double apart = fabs((double)loss[s] - (double)wanted[s]) / fmax(1, fabs((double)wanted[s]));
        CHECK(apart <= bound, "%s: the loss of step %d is %.9g with %d inexact runs, %.9g with none", file, s + 1,
              (double)loss[s], inexact_runs(plan), (double)wanted[s]);
        most = fmax(most, apart);
    }
    print_message("%s: %d of %d runs are inexact, losses apart by %.2g of at most %.2g in %d steps\n", file,
                  inexact_runs(plan), plan->step_count, most, bound, STEPS);
}

static void check_twice(const test_train *t, const ckpt_plan *plan, const test_record *exact, const char *file)
{
    ckpt_err err = {0};
    const ckpt_trace *predicted = NULL;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &arena, &predicted, &err), err);
    test_record once, twice;
    test_train_run(t, &(test_run){.plan = plan, .seed = SEED, .predicted = predicted}, &once);
    test_train_run(t, &(test_run){.plan = plan, .seed = SEED, .predicted = predicted, .poison = true}, &twice);
    test_record_same(&once, &twice, 0, file);
    CHECK(once.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", file,
          (long long)once.peak_bytes, (long long)plan->peak_bytes);
    const int last = TEST_TRAIN_STEPS - 1; /* at the start (y - 0) / 1 has the bits of (x - mean) rstd */
    CHECK(strcmp(once.digest[last][0], exact->digest[last][0]) != 0, "%s: inexact runs leave the weights of exact ones",
          file);
    ckpt_arena_fini(&arena);
}

static void check_model(const char *file, const char *set, double bound)
{
    test_train t;
    ckpt_lowered lowered;
    ckpt_graph graph;
    test_train_open(&t, file, set);
    slow_down(&t, &lowered, &graph);
    ckpt_plan *const keep_all = test_train_plan(&t, "keep-all", 0);
    const ckpt_bytes least = plan_under(&t, 1, true)->min_budget_bytes;
    float wanted[STEPS];
    test_record exact;
    train(&t, keep_all, wanted);
    test_train_run(&t, &(test_run){.plan = keep_all, .seed = SEED}, &exact);
    for (int b = 0; b < 2; b++) {
        const ckpt_bytes budget = b == 0 ? (least + keep_all->peak_bytes) / 2 : 2 * keep_all->peak_bytes;
        const ckpt_plan *const without = plan_under(&t, budget, false);
        const ckpt_plan *const with = plan_under(&t, budget, true);
        assert_int_equal(inexact_runs(without), 0);
        assert_int_equal(with->verdict, CKPT_FITS);
        CHECK(inexact_runs(with) > 0 && (without->verdict != CKPT_FITS || with->time_ns < without->time_ns),
              "%s: inexact variants are not used under %lld bytes", file, (long long)budget);
        check_twice(&t, with, &exact, file);
        check_training(&t, with, file, wanted, bound);
    }
    test_train_close(&t);
}

static void byte_gpt(void **state)
{
    check_model("models/byte-gpt.json", "batch=2 tokens=16 hidden=32 blocks=3 heads=2 vocabulary=64", 1e-3);
}

static void resnet(void **state)
{
    check_model("tests/models/resnet-small.json", "", 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(byte_gpt), cmocka_unit_test(resnet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
