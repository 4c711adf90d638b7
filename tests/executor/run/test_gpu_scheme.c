/* labels: contract gpu; long under sanitizers; takes 25 s; on a GPU: 60 s, together */
/* Micro-batches, fused gradients, scaled losses and the norm on a GPU; and GPUs of several ranks under mpirun, whose
 * messages are in the host's memory or go from GPU to GPU by the double of libnccl: what is one run's on one GPU, all
 * others leave to the bit, also when the emulated streams run in a random order and copies late. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_impl.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_ranks.h"
#include "tests/support/support_train.h"

enum { SEED = 3, STEPS = 2, RANKS = 2 };

/* tied embeddings, dropout in and out of attention; an odd width, so that what is behind it starts at odd elements */
#define BERT     "models/bert-8.json"
#define BERT_SET "batch=2 tokens=4 positions=4 hidden=8 blocks=1 heads=2 feed_forward=9 vocabulary=8"
/* the same with logits that have a pitch, so that zeros lie behind the shared weights */
#define PITCHED_SET "batch=2 tokens=4 positions=4 hidden=8 blocks=1 heads=2 feed_forward=9 vocabulary=4099"
#define LSTM        "models/lstm.json"
#define LSTM_SET    "batch=2 hidden=8"

static const char *program;
static ckpt_ranks *ranks; /* NULL: one process */
static bool by_nccl;      /* messages go from GPU to GPU */

typedef struct how {
    ckpt_scheme scheme;
    double clip, loss_scale;
    const char *strategy;
    bool poison, record;
    uint64_t order; /* of the emulated streams; 0: what is started is done at once */
} how;

static how how_of(int micro_batches, const char *strategy)
{
    how h = {.scheme = ckpt_scheme_alone, .loss_scale = 1, .strategy = strategy};
    h.scheme.micro_batches = micro_batches;
    return h;
}

/* A program has one executor, and its ranks their slots once. */
static void forget_slots(void)
{
    const ckpt_carrier *const carrier = ranks->carrier;
    for (int i = 0; i < ranks->slot_count && carrier->release != NULL; i++) {
        carrier->release(ranks->carrier_self, ranks->slot + (size_t)i * carrier->slot_bytes);
    }
    ckpt_memory_put(ranks->slot);
    ckpt_memory_put(ranks->busy);
    ranks->slot = NULL;
    ranks->busy = NULL;
    ranks->slot_count = 0;
}

static void run(test_train *t, const how *h, test_record *record)
{
    ckpt_err err = {0};
    const bool least = strcmp(h->strategy, "keep-all") != 0;
    test_train_spread(t, &h->scheme, h->clip, h->loss_scale);
    const ckpt_plan *plan = test_train_plan(t, h->strategy, least ? 1 : 0);
    plan = least ? test_train_plan(t, h->strategy, plan->min_budget_bytes) : plan;
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    const bool together = ckpt_scheme_ranks(&h->scheme) > 1;
    if (together) {
        forget_slots();
    }
    const test_run run = {.plan = plan,
                          .seed = SEED,
                          .steps = STEPS,
                          .poison = h->poison,
                          .record = h->record,
                          .predicted = h->record ? NULL : predicted,
                          .ranks = together ? ranks : NULL};
    ckpt_emulated_schedule(h->order);
    test_train_run(t, &run, record);
    ckpt_emulated_schedule(0);
    CHECK(record->peak_bytes == plan->peak_bytes, "%s: measured peak %lld, predicted %lld", h->strategy,
          (long long)record->peak_bytes, (long long)plan->peak_bytes);
}

static void same_weights(const test_record *wanted, const test_record *found, const char *what)
{
    for (int step = 0; step < STEPS; step++) {
        CHECK(strcmp(wanted->digest[step][0], found->digest[step][0]) == 0, "%s: other weights after step %d", what,
              step);
    }
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
    h.order = 11;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "offloaded");
    h.scheme.fused = true;
    h.order = 12;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, "fused");
    h.scheme.fused = false;
    h.order = 0;
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
    h.loss_scale = 1024; /* a power of two: nothing rounds otherwise */
    run(&t, &h, &found);
    same_weights(&clipped, &found, "clipped, with a scaled loss");
    h.clip = 0;
    run(&t, &h, &found);
    same_weights(&wanted, &found, "with a scaled loss");
    CHECK(strcmp(wanted.digest[0][1], found.digest[0][1]) != 0, "%s: no loss scale", file);
    test_train_close(&t);
}

static void one_process(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_one(&ckpt_gpus[g], BERT, BERT_SET, "float32", 1);
        check_one(&ckpt_gpus[g], BERT, BERT_SET, "bfloat16", 2);
    }
}

/* --- in a rank --- */

/* Does a rank's chunk of a parameter begin at an odd element, where kernels cannot take four at a time? */
static bool starts_oddly(const ckpt_lowered *lowered)
{
    for (int k = 0; k < lowered->bucket_count; k++) {
        const ckpt_bucket *const bucket = &lowered->bucket[k];
        ckpt_piece piece = {.node = -1};
        while (ckpt_bucket_next(lowered->network, bucket, bucket->chunk, bucket->count, &piece)) {
            if (piece.first % 2 != 0 && piece.at % 2 == 0) {
                return true;
            }
        }
    }
    return false;
}

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
    int odd = 0;
    for (int way = by_nccl ? 5 : 1; way < 8; way += 2) {
        h.scheme.shard_optimizer = way != 3;
        h.scheme.overlap = (way & 2) != 0;
        h.scheme.fused = (way & 4) != 0;
        h.scheme.bucket_bytes = way % 4 == 3 ? 500 : ckpt_scheme_alone.bucket_bytes;
        h.order = (uint64_t)way;
        run(&t, &h, &found);
        test_record_same(&wanted, &found, 0, file);
        odd += h.scheme.shard_optimizer && starts_oddly(t.lowered) ? 1 : 0;
    }
    CHECK(odd > 0, "%s: all shares start at even elements", file);
    test_train_close(&t);
}

static void replicas(void **state)
{
    replicas_of(BERT, PITCHED_SET, "bfloat16");
    if (ckpt_test_rounds(2, 1) == 2) {
        replicas_of(BERT, BERT_SET, "bfloat16");
    }
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
    h.order = 13;
    run(&t, &h, &found);
    test_record_same(&wanted, &found, 0, file);
    test_train_close(&t);
}

static void stages(void **state)
{
    stages_of(BERT, PITCHED_SET, "bfloat16");
    stages_of(LSTM, LSTM_SET, "float32");
    if (ckpt_test_rounds(2, 1) == 2) {
        stages_of(BERT, BERT_SET, "bfloat16");
    }
}

static int open_devices(void **state)
{
    ckpt_emulated_guard(false);
    return ckpt_gpus_open(state);
}

static int open_carrier(void **state)
{
    ckpt_err err = {0};
    setenv("CKPT_NCCL", ckpt_bin_file("libnccl_double.so"), 1);
    if (open_devices(state) != 0 || ckpt_ranks_carry(ranks, ckpt_device_carry, ckpt_gpus[0].device, &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return ckpt_ranks_on_device(ranks) ? 0 : 1;
}

static int as_rank(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(replicas), cmocka_unit_test(stages)};
    ckpt_err err = {0};
    if (ckpt_ranks_open(&ranks, &err) != CKPT_OK ||
        ckpt_ranks_watch(ranks, ckpt_test_lost_rank, "test_gpu_scheme", &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 3;
    }
    const int failed = cmocka_run_group_tests(tests, by_nccl ? open_carrier : open_devices, ckpt_gpus_close);
    if (failed != 0) {
        ckpt_ranks_give_up(ranks, "a test failed");
        return failed;
    }
    ckpt_ranks_close(ranks);
    return 0;
}

static void two_ranks(void **state)
{
    if (ckpt_test_no_mpirun() != 0) {
        skip();
    }
    ckpt_test_ranks(program, RANKS, NULL);
}

/* The double carries bytes of the emulated device only. */
static void two_ranks_by_nccl(void **state)
{
    if (ckpt_test_no_mpirun() != 0 || getenv("CKPT_TEST_DEVICE") != NULL) {
        skip();
    }
    ckpt_test_ranks(program, RANKS, "carried");
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (ckpt_test_is_rank()) {
        by_nccl = argc > 1 && strcmp(argv[1], "carried") == 0;
        return as_rank();
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_process), cmocka_unit_test(two_ranks),
                                       cmocka_unit_test(two_ranks_by_nccl)};
    return cmocka_run_group_tests(tests, open_devices, ckpt_gpus_close);
}
