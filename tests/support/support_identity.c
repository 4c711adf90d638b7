/* Every strategy under every budget against keep-all. */
#include "tests/support/support_identity.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_test.h"
#include "tests/support/support_train.h"

enum { BUDGETS = 4, SEED = 7 };

static int recomputed(const ckpt_plan *plan)
{
    int count = 0;
    for (int s = 0; s < plan->step_count; s++) {
        count += plan->step[s].recomputed;
    }
    return count;
}

typedef struct totals {
    int plans, recomputations;
} totals;

static void check_plan(test_train *t, const ckpt_plan *plan, ckpt_bytes least, const test_record *wanted,
                       const ckpt_identity *of, totals *total)
{
    ckpt_err err = {0};
    char what[256];
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    for (int poison = plan->budget_bytes > least ? 1 : 0; poison < 2; poison++) { /* tight plans with and without */
        snprintf(what, sizeof what, "%s, %s, %s under %lld bytes%s", of->file, of->dtype, plan->solver,
                 (long long)plan->budget_bytes, poison != 0 ? ", poisoned" : "");
        test_record found;
        const test_run run = {
            .plan = plan, .seed = SEED, .steps = of->steps, .poison = poison != 0, .predicted = predicted};
        test_train_run(t, &run, &found);
        test_record_same(wanted, &found, 0, what);
        /* an OpenMP team is what the heap may grow by (see test_no_allocation); 0 where the C library does not tell */
        CHECK(found.outside_bytes <= 4096, "%s: %lld bytes outside the plan", what, (long long)found.outside_bytes);
        CHECK(found.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", what,
              (long long)found.peak_bytes, (long long)plan->peak_bytes);
    }
    total->plans++;
    total->recomputations += recomputed(plan);
}

static void check_strategy(test_train *t, const ckpt_strategy *strategy, const test_record *wanted,
                           ckpt_bytes keep_all_bytes, const ckpt_identity *of, totals *total)
{
    const ckpt_plan *const none = test_train_plan(t, strategy->name, 1);
    assert_int_equal(none->verdict, CKPT_INFEASIBLE);
    const ckpt_bytes least = none->min_budget_bytes;
    for (int b = 0; b < (of->all ? BUDGETS : 2); b++) {
        if (b > 0 && (least >= keep_all_bytes || !strategy->budgeted)) {
            break; /* it has only one plan, or none that saves anything */
        }
        const ckpt_bytes budget = least + (keep_all_bytes - least) * b / (BUDGETS - 1);
        const ckpt_plan *const plan = test_train_plan(t, strategy->name, b == 0 ? least : budget);
        CHECK(plan->verdict == CKPT_FITS, "%s: %s finds nothing under %lld bytes, though it does under %lld", of->file,
              strategy->name, (long long)budget, (long long)least);
        check_plan(t, plan, least, wanted, of, total);
    }
}

void ckpt_identity_check(const ckpt_identity *of)
{
    test_train t;
    test_train_open_as(&t, of->file, of->set, of->dtype);
    const ckpt_plan *const keep_all = test_train_plan(&t, "keep-all", 0);
    assert_int_equal(keep_all->verdict, CKPT_FITS);
    assert_int_equal(recomputed(keep_all), 0);
    test_record wanted;
    test_train_run(&t, &(test_run){.plan = keep_all, .seed = SEED, .steps = of->steps}, &wanted);
    assert_true(wanted.peak_bytes == keep_all->peak_bytes);
    for (int s = 1; s < of->steps; s++) {
        CHECK(strcmp(wanted.digest[s][0], wanted.digest[s - 1][0]) != 0, "%s: step %d trains nothing", of->file, s + 1);
        CHECK(wanted.loss[s] > -1e6f && wanted.loss[s] < 1e6f, "%s: loss %g", of->file, (double)wanted.loss[s]);
    }
    totals total = {0};
    static int calls; /* if not all: every other strategy, the others in the next call */
    calls++;
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        if (!of->all && (i + calls) % 2 != 0 && strcmp(ckpt_strategy_table[i]->name, "auto") != 0) {
            continue;
        }
        check_strategy(&t, ckpt_strategy_table[i], &wanted, keep_all->static_bytes + keep_all->arena_bytes, of, &total);
    }
    CHECK(total.recomputations > 0, "%s: no plan recomputes anything", of->file);
    print_message("%s, %s: %d plans, %d recomputations, peaks equal, bits equal\n", of->file, of->dtype, total.plans,
                  total.recomputations);
    test_train_close(&t);
}
