/* labels: contract gpu; long under sanitizers; takes 35 s; on a GPU: 60 s, together */
/* The promise on a GPU, emulated and, where there is one, real: every strategy under every budget gives the bits of
 * keep-all in the memory that was predicted, in float32 and bfloat16, started step by step or replayed, with freed
 * memory full of NaN, wherever the arena lies. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_train.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 2, MODES = 2 };
#else
enum { STEPS = 3, MODES = 4 };
#endif
enum { SEED = 7 };
#define ASIDE ((ckpt_bytes)3 << 20) /* taken first, so that the arena lies elsewhere */

typedef struct totals {
    int plans, runs, recomputed, copies;
} totals;

static void add_plan(const ckpt_plan *plan, totals *total)
{
    total->plans++;
    for (int s = 0; s < plan->step_count; s++) {
        total->recomputed += plan->step[s].recomputed;
        total->copies += plan->step[s].kind == CKPT_OFFLOAD || plan->step[s].kind == CKPT_FETCH;
    }
}

/* One run of a plan; bit 0 of `how`: replayed, bit 1: poisoned, bit 2: another arena. */
static void check_run(test_train *t, const ckpt_plan *plan, const ckpt_trace *predicted, int how,
                      const test_record *wanted, totals *total)
{
    ckpt_err err = {0};
    const ckpt_device_api *const api = t->device->api;
    const bool record = (how & 1) != 0, poison = (how & 2) != 0, elsewhere = (how & 4) != 0;
    void *aside = NULL;
    char what[256];
    snprintf(what, sizeof what, "%s, %s under %lld bytes%s%s%s", plan->graph_name, plan->solver,
             (long long)plan->budget_bytes, record ? ", replayed" : "", poison ? ", poisoned" : "",
             elsewhere ? ", another arena" : "");
    if (elsewhere) {
        CHECK_OK(api->reserve(t->device, ASIDE, &aside, &err), err);
    }
    test_record found;
    const test_run run = {.plan = plan,
                          .seed = SEED,
                          .steps = STEPS,
                          .poison = poison,
                          .record = record,
                          .predicted = record ? NULL : predicted};
    test_train_run(t, &run, &found);
    test_record_same(wanted, &found, 0, what);
    CHECK(found.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", what,
          (long long)found.peak_bytes, (long long)plan->peak_bytes);
    if (elsewhere) {
        api->release(t->device, aside, ASIDE);
    }
    total->runs++;
}

static void check_plan(test_train *t, const ckpt_plan *plan, const test_record *wanted, totals *total)
{
    static const int hows[] = {3, 4, 6, 1}; /* the first two differ in all three settings */
    ckpt_err err = {0};
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    /* a real GPU takes a tenth of a second to set up a run: two that differ in everything */
    const int modes = t->device->api == &ckpt_device_emulated ? MODES : 2;
    for (int i = 0; i < modes; i++) {
        check_run(t, plan, predicted, hows[i], wanted, total);
    }
    add_plan(plan, total);
}

/* At its minimum feasible peak, and half way to keep-all. */
static void check_strategy(test_train *t, const ckpt_strategy *strategy, const test_record *wanted,
                           ckpt_bytes keep_all_bytes, totals *total)
{
    const ckpt_plan *const none = test_train_plan(t, strategy->name, 1);
    assert_int_equal(none->verdict, CKPT_INFEASIBLE);
    const ckpt_bytes least = none->min_budget_bytes;
    check_plan(t, test_train_plan(t, strategy->name, least), wanted, total);
    if (strategy->budgeted && least < keep_all_bytes) {
        const ckpt_plan *const plan = test_train_plan(t, strategy->name, least + (keep_all_bytes - least) / 2);
        assert_int_equal(plan->verdict, CKPT_FITS);
        check_plan(t, plan, wanted, total);
    }
}

/* `strategies`: names between blanks; NULL: all there are. */
static void check_model(const ckpt_gpu *on, const char *file, const char *set, const char *dtype,
                        const char *strategies)
{
    test_train t;
    test_train_open_on(&t, on->device, file, set, dtype);
    const ckpt_plan *const keep_all = test_train_plan(&t, "keep-all", 0);
    test_record wanted;
    test_train_run(&t, &(test_run){.plan = keep_all, .seed = SEED, .steps = STEPS}, &wanted);
    assert_true(wanted.peak_bytes == keep_all->peak_bytes);
    for (int s = 1; s < STEPS; s++) {
        CHECK(strcmp(wanted.digest[s][0], wanted.digest[s - 1][0]) != 0, "%s: step %d trains nothing", file, s + 1);
        CHECK(wanted.loss[s] > -1e6f && wanted.loss[s] < 1e6f, "%s: loss %g", file, (double)wanted.loss[s]);
    }
    totals total = {0};
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, " %s ", ckpt_strategy_table[i]->name);
        if (strategies == NULL || strstr(strategies, name) != NULL) {
            check_strategy(&t, ckpt_strategy_table[i], &wanted, keep_all->static_bytes + keep_all->arena_bytes, &total);
        }
    }
    CHECK(total.recomputed > 0 && total.copies > 0, "%s: %d recomputations, %d copies", file, total.recomputed,
          total.copies);
    print_message("%s on %s in %s: %d plans, %d runs, %d recomputations, %d copies: peaks equal, bits equal\n", file,
                  on->name, dtype, total.plans, total.runs, total.recomputed, total.copies);
    test_train_close(&t);
}

/* In `first` and, but for few rounds, in `second`. */
static void check_on_all(const char *file, const char *set, const char *strategies, const char *first,
                         const char *second)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_model(&ckpt_gpus[g], file, set, first, strategies);
        if (ckpt_test_rounds(2, 1) == 2) {
            check_model(&ckpt_gpus[g], file, set, second, strategies);
        }
    }
}

static void forked(void **state)
{
    check_on_all("tests/models/fork.json", "", NULL, "bfloat16", "float32");
}

/* dropout inside attention */
static void bert(void **state)
{
    check_on_all("models/bert-8.json",
                 "batch=2 tokens=4 positions=4 hidden=8 blocks=2 heads=2 feed_forward=8 vocabulary=8",
                 " auto recompute-only joint ", "float32", "bfloat16");
}

static void pointwise(void **state)
{
    check_on_all("tests/models/pointwise-small.json", "", " recompute-all joint ", "bfloat16", "float32");
}

static void attention(void **state)
{
    check_on_all("tests/models/attention-small.json", "", " recompute-only joint ", "bfloat16", "float32");
}

/* so large that the workspace of its convolution is not the peak */
static void shapes(void **state)
{
    check_on_all("tests/models/shape-small.json", "batch=16 size=24", " recompute-only offload-only ", "bfloat16",
                 "float32");
}

static void resnet(void **state)
{
    check_on_all("tests/models/resnet-small.json", "", " recompute-only joint ", "bfloat16", "float32");
}

static void unet(void **state)
{
    check_on_all("tests/models/unet-small.json", "", " recompute-only joint ", "float32", "bfloat16");
}

static void lstm(void **state)
{
    check_on_all("models/lstm.json", "batch=2 hidden=8", " recompute-only joint ", "bfloat16", "float32");
}

static int open_devices(void **state)
{
    ckpt_emulated_guard(false);
    return ckpt_gpus_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked), cmocka_unit_test(bert),   cmocka_unit_test(attention), cmocka_unit_test(pointwise),
        cmocka_unit_test(shapes), cmocka_unit_test(resnet), cmocka_unit_test(unet),      cmocka_unit_test(lstm),
    };
    return cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
}
