/* labels: contract */
/* What is set by hand trains with the bits of keep-all too: groups, units in units, policies, copies; on networks with
 * dropout, batch norm, several readers of one value and tied parameters. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/directives/choose.h"
#include "tests/support/support_train.h"

enum { SEED = 11 };

typedef struct choice {
    const char *grouping;
    ckpt_rule rule[3];
    int count;
} choice;

#define CHECKPOINT(text)                                                                                               \
    {                                                                                                                  \
        CKPT_RULE_CHECKPOINT, text                                                                                     \
    }
#define KEEP(text)                                                                                                     \
    {                                                                                                                  \
        CKPT_RULE_KEEP, text                                                                                           \
    }
#define OFFLOAD(text)                                                                                                  \
    {                                                                                                                  \
        CKPT_RULE_OFFLOAD, text                                                                                        \
    }
#define POLICY(text)                                                                                                   \
    {                                                                                                                  \
        CKPT_RULE_POLICY, text                                                                                         \
    }

static void count_steps(const ckpt_plan *plan, int *recomputed, int *copies)
{
    for (int s = 0; s < plan->step_count; s++) {
        *recomputed += plan->step[s].kind == CKPT_RUN && plan->step[s].recomputed;
        *copies += plan->step[s].kind == CKPT_OFFLOAD;
    }
}

static void check_choices(const char *file, const char *set, const choice *choices, int count)
{
    test_train t;
    test_train_open(&t, file, set);
    const ckpt_plan *const keep_all = test_train_plan(&t, "keep-all", 0);
    test_record wanted;
    test_train_run(&t, &(test_run){.plan = keep_all, .seed = SEED}, &wanted);
    ckpt_graph linked = *t.lowered->graph;
    linked.has_link = true;
    linked.d2h_bytes_per_s = linked.h2d_bytes_per_s = INT64_C(1000000000);
    int recomputed = 0;
    int copies = 0;
    for (int i = 0; i < count; i++) {
        char what[96];
        snprintf(what, sizeof what, "%s, choice %d", file, i);
        ckpt_err err = {0};
        ckpt_text notes;
        ckpt_text_init(&notes);
        const ckpt_graph *chosen = NULL;
        ckpt_plan *plan = NULL;
        CHECK_OK(ckpt_choose(&linked, choices[i].rule, choices[i].count, true, choices[i].grouping, &t.arena, &chosen,
                             &notes, &err),
                 err);
        ckpt_text_fini(&notes);
        CHECK_OK(ckpt_plan_make(chosen, "flags", &(ckpt_plan_options){0}, &t.arena, &plan, &err), err);
        assert_int_equal(plan->verdict, CKPT_FITS);
        test_record found;
        test_train_run(&t, &(test_run){.plan = plan, .seed = SEED, .poison = true}, &found);
        test_record_same(&wanted, &found, 0, what);
        CHECK(found.peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", what,
              (long long)found.peak_bytes, (long long)plan->peak_bytes);
        const int before = recomputed + copies;
        count_steps(plan, &recomputed, &copies);
        CHECK(recomputed + copies > before, "%s changes nothing", what);
    }
    print_message("%s: %d runs again, %d offloads, bits equal\n", file, recomputed, copies);
    test_train_close(&t);
}

static void sequence_of_blocks(void **state)
{
    static const choice choices[] = {
        {"each", {POLICY("attention=recompute")}, 1},
        {"group_2", {KEEP("h.*.fc")}, 1},
        {"contiguous", {POLICY("linear=save")}, 1},
        {"segments:2", {OFFLOAD("h.*")}, 1},
        {NULL, {CHECKPOINT("h.*"), CHECKPOINT("h.*.drop1"), CHECKPOINT("h.*.fc")}, 3},
        {NULL, {POLICY("linear=save,*=recompute")}, 1},
        {NULL, {POLICY("linear=offload,gelu=recompute,dropout=recompute")}, 1},
    };
    check_choices("models/byte-gpt.json", "batch=2 tokens=16 hidden=32 blocks=4 heads=2 vocabulary=64", choices,
                  (int)(sizeof choices / sizeof *choices));
}

/* Batch-norm statistics that a second run would move, dropout that it would draw anew. */
static void batch_norm_and_dropout(void **state)
{
    static const choice choices[] = {
        {"each", {OFFLOAD("*")}, 1},
        {NULL, {POLICY("conv2d=save,*=recompute")}, 1},
        {NULL, {POLICY("conv2d=offload,*=recompute")}, 1},
    };
    check_choices("models/densenet-bc-100-12-dropout.json", "batch=4 size=8 growth=4 layers=2", choices,
                  (int)(sizeof choices / sizeof *choices));
}

/* A unit with several inputs and outputs, outputs that nobody reads, a tied parameter. */
static void several_inputs_and_outputs(void **state)
{
    static const choice choices[] = {
        {"group_2", {CHECKPOINT("[a-z]*")}, 1},
        {NULL, {POLICY("linear=save,*=recompute")}, 1},
        {NULL, {POLICY("split=recompute,concat=recompute,add=offload,tanh=offload,mul=recompute")}, 1},
    };
    check_choices("tests/models/fork.json", "", choices, (int)(sizeof choices / sizeof *choices));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequence_of_blocks),
        cmocka_unit_test(batch_norm_and_dropout),
        cmocka_unit_test(several_inputs_and_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
