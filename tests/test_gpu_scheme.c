/* labels: contract gpu */
/* Micro-batches, fused gradients, scaled losses and the norm on a GPU; and GPUs of several ranks whose messages are in
 * the host's memory, under mpirun: what is one run's on one GPU, all others leave to the bit. */
#include "tests/support_test.h"

#include <stdio.h>
#include <string.h>

#include "ranks/ranks_impl.h"
#include "tests/emulation/emulation.h"
#include "tests/support_gpu.h"
#include "tests/support_ranks.h"
#include "tests/support_train.h"

enum { SEED = 3, STEPS = 2, RANKS = 2 };

/* tied embeddings, dropout in and out of attention */
#define BERT     "models/bert-8.json"
#define BERT_SET "batch=2 tokens=4 positions=4 hidden=8 blocks=1 heads=2 feed_forward=8 vocabulary=8"
#define LSTM     "models/lstm.json"
#define LSTM_SET "batch=2 hidden=8"

static const char *program;
static ckpt_ranks *ranks; /* NULL: one process */

typedef struct how {
    ckpt_scheme scheme;
    double clip, loss_scale;
    const char *strategy;
    bool poison, record;
} how;

static how how_of(int micro_batches, const char *strategy)
{
    how h = {.scheme = ckpt_scheme_alone, .loss_scale = 1, .strategy = strategy};
    h.scheme.micro_batches = micro_batches;
    return h;
}

static void run(test_train *t, const how *h, test_record *record)
{
    ckpt_err err = {0};
    const bool least = strcmp(h->strategy, "keep-all") != 0;
    test_train_spread(t, &h->scheme, h->clip, h->loss_scale);
    const ckpt_plan *plan = test_train_plan(t, h->strategy, least ? 1 : 0);
    plan = least ? test_train_plan(t, h->strategy, plan->least_budget_bytes) : plan;
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    const bool together = ckpt_scheme_ranks(&h->scheme) > 1;
    if (together) { /* a program has one executor, and its ranks their slots once */
        ckpt_memory_put(ranks->slot);
        ckpt_memory_put(ranks->busy);
        ranks->slot = NULL;
        ranks->busy = NULL;
    }
    const test_run run = {.plan = plan,
                          .seed = SEED,
                          .steps = STEPS,
                          .poison = h->poison,
                          .record = h->record,
                          .predicted = h->record ? NULL : predicted,
                          .ranks = together ? ranks : NULL};
    test_train_run(t, &run, record);
    CHECK(record->peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", h->strategy,
          (long long)record->peak_bytes, (long long)plan->peak_bytes);
}

static void check_one(const ckpt_gpu *on, const char *file, const char *set, const char *dtype, int m)
{
    test_train t;
    test_record wanted, found, clipped;
    test_train_open_on(&t, on->device, file, set, dtype);
    how h = how_of(m, "keep-all");
    run(&t, &h, &wanted);
    h.strategy = "recompute-only";
    h.poison = true;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "recomputed");
    h.strategy = "joint";
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "offloaded");
    h.scheme.fused = true;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "fused");
    h.scheme.fused = false;
    h.poison = false;
    h.record = true;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "to be replayed");
    h.clip = 0.01;
    run(&t, &h, &found);
    h.record = false;
    run(&t, &h, &clipped);
    test_record_same(&found, &clipped, 0, "clipped, to be replayed");
    CHECK(strcmp(wanted.digest[0][0], clipped.digest[0][0]) != 0, "%s: nothing was clipped", file);
    h.clip = 0;
    h.loss_scale = 256;
    run(&t, &h, &found);
    CHECK(strcmp(wanted.digest[STEPS - 1][0], found.digest[STEPS - 1][0]) == 0,
          "%s in %s: a loss scale of 256 changes weights", file, dtype);
    CHECK(strcmp(wanted.digest[0][1], found.digest[0][1]) != 0, "%s: no loss scale", file);
    test_train_close(&t);
}

static void one_process(void **state)
{
    (void)state;
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_one(&ckpt_gpus[g], BERT, BERT_SET, "float32", 1);
        check_one(&ckpt_gpus[g], BERT, BERT_SET, "bfloat16", 2);
    }
}

/* --- in a rank --- */

static void replicas_of(const char *file, const char *set, const char *dtype)
{
    test_train t;
    test_record wanted, found;
    test_train_open_on(&t, ckpt_gpus[0].device, file, set, dtype);
    how h = how_of(2, "keep-all");
    h.scheme.replicas = RANKS;
    run(&t, &h, &wanted);
    h.strategy = "recompute-only";
    h.poison = true;
    for (int way = 1; way < 8; way += 2) {
        h.scheme.shard_optimizer = way != 3;
        h.scheme.overlap = (way & 2) != 0;
        h.scheme.fused = (way & 4) != 0;
        h.scheme.bucket_bytes = way % 4 == 3 ? 500 : ckpt_scheme_alone.bucket_bytes;
        run(&t, &h, &found);
        test_record_same(&wanted, &found, 0, file);
    }
    test_train_close(&t);
}

static void replicas(void **state)
{
    (void)state;
    replicas_of(BERT, BERT_SET, "bfloat16");
}

static void stages_of(const char *file, const char *set, const char *dtype)
{
    test_train t;
    test_record wanted, found;
    test_train_open_on(&t, ckpt_gpus[0].device, file, set, dtype);
    const char *const names[RANKS] = {t.network->node[0].name, t.network->node[t.network->node_count / 2].name};
    how h = how_of(3, "keep-all");
    h.scheme.apart = true; /* as the copies of two stages */
    h.clip = 0.05;
    run(&t, &h, &wanted);
    h.scheme.stages = RANKS;
    h.scheme.stage = ckpt_ranks_rank(ranks);
    h.scheme.first_layer = names;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, file);
    h.strategy = "recompute-only";
    h.poison = true;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, file);
    test_train_close(&t);
}

static void stages(void **state)
{
    (void)state;
    stages_of(BERT, BERT_SET, "bfloat16");
    stages_of(LSTM, LSTM_SET, "float32");
}

static int open_devices(void **state)
{
    ckpt_emulated_guard(false);
    return ckpt_gpus_open(state);
}

static int as_rank(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(replicas), cmocka_unit_test(stages)};
    ckpt_err err = {0};
    if (ckpt_ranks_open(&ranks, &err) != CKPT_OK || ckpt_ranks_watch(ranks, "test_gpu_scheme", &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 3;
    }
    const int failed = cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
    if (failed != 0) {
        ckpt_ranks_give_up(ranks, "a test failed");
        return failed;
    }
    ckpt_ranks_close(ranks);
    return 0;
}

static void two_ranks(void **state)
{
    (void)state;
    if (ckpt_test_no_mpirun() != 0) {
        skip();
    }
    ckpt_test_ranks(program, RANKS, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (ckpt_test_is_rank()) {
        return as_rank();
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_process), cmocka_unit_test(two_ranks)};
    return cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
}
