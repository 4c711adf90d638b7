/* Several ranks: replicas against each replica taken alone, stages against the whole network, both together; sharded or
 * not, with overlap or without, in buckets of any size. This program starts itself under mpirun. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "executor/executor_impl.h"
#include "ranks/ranks_impl.h"
#include "tests/support/support_ranks.h"
#include "tests/support/support_train.h"

enum { SEED = 5, STEPS = 2, STAGES_MAX = 4 };

#define BERT      "models/bert-8.json"
#define BERT_SET  "batch=2 tokens=6 positions=6 hidden=16 blocks=2 heads=2 feed_forward=24 vocabulary=24"
#define DENSE     "models/densenet-bc-100-12-dropout.json"
#define DENSE_SET "batch=2 size=8 growth=4 layers=1"
#define FROZEN    "tests/models/frozen.json"

static const char *program;
static ckpt_ranks *ranks;
static ckpt_device *device;

static ckpt_scheme scheme_of(int micro_batches, int replicas)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = micro_batches;
    scheme.replicas = replicas;
    return scheme;
}

/* Layers in equal parts; `names` must stay. */
static void cut(const test_train *t, ckpt_scheme *scheme, int stages, const char *names[STAGES_MAX])
{
    for (int s = 0; s < stages; s++) {
        names[s] = t->network->node[s * t->network->node_count / stages].name;
    }
    scheme->stages = stages;
    scheme->stage = ckpt_ranks_rank(ranks) % stages;
    scheme->first_layer = names;
}

/* A program has one executor, and its ranks their slots once; a test has many. */
static void forget_slots(void)
{
    ckpt_memory_put(ranks->slot);
    ckpt_memory_put(ranks->busy);
    ranks->slot = NULL;
    ranks->busy = NULL;
    ranks->slot_count = 0;
}

static void run_scaled(test_train *t, const ckpt_scheme *scheme, double clip, double loss_scale, const char *strategy,
                       test_record *record)
{
    ckpt_err err = {0};
    test_train_spread(t, scheme, clip, loss_scale);
    const bool together = ckpt_scheme_ranks(scheme) > 1, least = strcmp(strategy, "keep-all") != 0;
    const ckpt_plan *plan = test_train_plan(t, strategy, least ? 1 : 0);
    plan = least ? test_train_plan(t, strategy, plan->min_budget_bytes) : plan;
    assert_int_equal(plan->verdict, CKPT_FITS);
    const ckpt_trace *predicted = NULL;
    CHECK_OK(ckpt_plan_check(plan, t->lowered->graph, &err), err);
    CHECK_OK(ckpt_plan_simulate(plan, t->lowered->graph, &t->arena, &predicted, &err), err);
    forget_slots();
    const test_run how = {.plan = plan,
                          .seed = SEED,
                          .steps = STEPS,
                          .poison = least,
                          .predicted = predicted,
                          .ranks = together ? ranks : NULL};
    test_train_run(t, &how, record);
    CHECK(record->peak_bytes == plan->peak_bytes, "rank %d: measured peak %lld, predicted %lld", ckpt_ranks_rank(ranks),
          (long long)record->peak_bytes, (long long)plan->peak_bytes);
}

static void run(test_train *t, const ckpt_scheme *scheme, double clip, const char *strategy, test_record *record)
{
    run_scaled(t, scheme, clip, 1, strategy, record);
}

static ckpt_executor *open_executor(test_train *t, bool together)
{
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    if (together) {
        forget_slots();
    }
    const ckpt_executor_options options = {.seed = SEED, .poison = true, .ranks = together ? ranks : NULL};
    const ckpt_plan *const plan = test_train_plan(t, "sqrt", 0);
    CHECK_OK(ckpt_executor_create(device, t->lowered, plan, &options, &executor, &err), err);
    return executor;
}

/* The gradients of every replica, taken alone from the same weights, summed in float in their order; then divided, and
 * one update: the weights of all ranks to the bit, and the loss. */
static void sum_of_replicas(const char *file, const char *set, const ckpt_scheme *scheme, int stages)
{
    const char *names[STAGES_MAX];
    ckpt_scheme mine = *scheme;
    test_train t, one;
    ckpt_err err = {0};
    test_optimizer o;
    test_train_open_on(&t, device, file, set, NULL);
    test_train_open_on(&one, device, file, set, NULL);
    if (stages > 1) {
        cut(&t, &mine, stages, names);
    }
    test_train_spread(&t, &mine, 0, 1);
    const ckpt_scheme single = scheme_of(scheme->micro_batches, 1);
    test_train_spread(&one, &single, 0, 1);
    ckpt_executor *const executor = open_executor(&t, true), *const alone = open_executor(&one, false);
    ckpt_data *const data = test_train_data(&t, SEED);
    test_optimizer_init(&o, &one);
    float *const grad = CKPT_NEW(&one.arena, float, o.count);
    test_train_get(&one, alone, ckpt_executor_param, o.param);
    for (int s = 0; s < STEPS; s++) {
        double sum = 0;
        char found[CKPT_DIGEST_TEXT], wanted[CKPT_DIGEST_TEXT];
        const float loss = test_train_step(&t, data, executor);
        for (int r = 0; r < scheme->replicas; r++) {
            test_train_set(&one, alone, o.param);
            const float value = test_train_step(&one, data, alone);
            test_train_get(&one, alone, ckpt_executor_grad, grad);
            for (int64_t i = 0; i < o.count; i++) {
                o.grad[i] = r == 0 ? grad[i] : o.grad[i] + grad[i];
            }
            sum += (double)value;
        }
        const float scale = (float)(1.0 / (scheme->replicas * scheme->micro_batches));
        for (int64_t i = 0; i < o.count; i++) {
            o.grad[i] *= scale;
        }
        test_optimizer_step(&o, &one, (uint64_t)s + 1);
        test_train_set(&one, alone, o.param);
        CHECK_OK(ckpt_executor_digest(executor, CKPT_SECTION_WEIGHTS, found, &err), err);
        CHECK_OK(ckpt_executor_digest(alone, CKPT_SECTION_WEIGHTS, wanted, &err), err);
        CHECK(strcmp(found, wanted) == 0, "%s: weights after step %d differ", file, s + 1);
        /* a mean of means, each rounded to float: the last bits may differ */
        const double mean = sum / scheme->replicas;
        CHECK((double)loss - mean < 1e-6 * mean && mean - (double)loss < 1e-6 * mean, "%s: loss %g, wanted %g", file,
              (double)loss, mean);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    ckpt_executor_destroy(alone);
    test_train_close(&one);
    test_train_close(&t);
}

static void replicas_are_summed(void **state)
{
    const int count = ckpt_ranks_count(ranks);
    for (int m = 1; m <= 2; m++) {
        ckpt_scheme scheme = scheme_of(m, count);
        sum_of_replicas(BERT, BERT_SET, &scheme, 1);
        scheme.shard_optimizer = true;
        scheme.overlap = true;
        scheme.fused = true;
        scheme.bucket_bytes = 3000;
        sum_of_replicas(DENSE, DENSE_SET, &scheme, 1);
    }
}

/* Everything that must not change a bit. */
static void any_way(const char *file, const char *set, double clip)
{
    test_train t;
    test_record wanted, found;
    test_train_open_on(&t, device, file, set, NULL);
    const ckpt_scheme plain = scheme_of(2, ckpt_ranks_count(ranks));
    run(&t, &plain, clip, "keep-all", &wanted);
    static const ckpt_bytes bucket[] = {1, 2000, (ckpt_bytes)1 << 40};
    for (int way = 1; way < 8; way++) {
        char what[160];
        ckpt_scheme scheme = plain;
        scheme.shard_optimizer = (way & 1) != 0;
        scheme.overlap = (way & 2) != 0;
        scheme.fused = (way & 4) != 0 && clip == 0;
        scheme.bucket_bytes = bucket[way % 3];
        snprintf(what, sizeof what, "rank %d: %s, clip %g,%s%s%s buckets of %lld bytes", ckpt_ranks_rank(ranks), file,
                 clip, scheme.shard_optimizer ? " sharded," : "", scheme.overlap ? " overlap," : "",
                 scheme.fused ? " fused," : "", (long long)scheme.bucket_bytes);
        run(&t, &scheme, clip, "recompute-all", &found);
        test_record_same(&wanted, &found, 0, what);
    }
    test_train_close(&t);
}

static void sharding_overlap_and_buckets_change_nothing(void **state)
{
    any_way(BERT, BERT_SET, 0);
    any_way(DENSE, DENSE_SET, 0.01);
}

/* Stages against the same micro-batches in one piece; where a parameter is in two of them, against copies of it. */
static void stages_give_the_same_bits(void **state)
{
    static const struct {
        const char *file, *set;
        bool apart;
        double clip;
    } model[] = {{DENSE, DENSE_SET, false, 0},
                 {DENSE, DENSE_SET, false, 0.01},
                 {FROZEN, "size=8", false, 0},
                 {"tests/models/fork.json", "", true, 0}, /* three layers are tied: of two stages one has two of them */
                 {BERT, BERT_SET, true, 0},
                 {BERT, BERT_SET, true, 0.001}};
    for (size_t i = 0; i < sizeof model / sizeof model[0]; i++) {
        for (int m = 1; m <= 5; m += m == 4 ? 1 : m) {
            test_train t;
            test_record wanted, found;
            const char *names[STAGES_MAX];
            char what[120];
            test_train_open_on(&t, device, model[i].file, model[i].set, NULL);
            ckpt_scheme scheme = scheme_of(m, 1);
            scheme.apart = model[i].apart;
            run(&t, &scheme, model[i].clip, "keep-all", &wanted);
            cut(&t, &scheme, ckpt_ranks_count(ranks), names);
            snprintf(what, sizeof what, "rank %d: %s, %d micro-batches in stages", ckpt_ranks_rank(ranks),
                     model[i].file, m);
            for (int fused = 0; fused < 2; fused++) {
                scheme.fused = fused != 0 && model[i].clip == 0;
                run(&t, &scheme, model[i].clip, fused != 0 ? "recompute-all" : "keep-all", &found);
                test_record_same(&wanted, &found, 0, what);
            }
            test_train_close(&t);
        }
    }
}

static void stages_of_replicas(void **state)
{
    if (ckpt_ranks_count(ranks) < 4) {
        return;
    }
    ckpt_scheme scheme = scheme_of(3, 2);
    sum_of_replicas(DENSE, DENSE_SET, &scheme, 2);
    scheme.shard_optimizer = true;
    scheme.overlap = true;
    scheme.bucket_bytes = 1000;
    sum_of_replicas(DENSE, DENSE_SET, &scheme, 2);
    scheme.fused = true;
    sum_of_replicas(DENSE, DENSE_SET, &scheme, 2);
}

/* --- the norm --- */

/* The sum of squares of this rank's gradients; what is a copy of another's does not count. */
static double squares_here(test_train *t, ckpt_executor *executor)
{
    const ckpt_network *const network = t->lowered->network;
    float *const grad = CKPT_NEW(&t->arena, float, test_train_get(t, NULL, NULL, NULL));
    double sum = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count && network->stage_of[n] == network->scheme.stage; k++) {
            ckpt_err err = {0};
            if (node->param[k].tied >= 0 || node->param[k].copy_of >= 0) {
                continue;
            }
            CHECK_OK(ckpt_executor_grad(executor, n, k, grad, &err), err);
            for (int64_t i = 0; i < ckpt_shape_count(&node->param[k].tensor.shape); i++) {
                sum += (double)grad[i] * (double)grad[i];
            }
        }
    }
    return sum;
}

/* What the updates multiply gradients by follows from the gradients of one replica's ranks, all of them, each once. */
static void check_scale(const char *file, const char *set, ckpt_scheme scheme, int stages, double loss_scale)
{
    enum { RANKS = 8 };
    const double clip = 0.001;
    const char *names[STAGES_MAX];
    test_train t;
    ckpt_err err = {0};
    double all[RANKS], sum = 0;
    test_train_open_on(&t, device, file, set, NULL);
    if (stages > 1) {
        cut(&t, &scheme, stages, names);
    }
    test_train_spread(&t, &scheme, clip, loss_scale);
    ckpt_executor *const executor = open_executor(&t, true);
    ckpt_data *const data = test_train_data(&t, SEED);
    (void)test_train_step(&t, data, executor);
    const double mine = squares_here(&t, executor);
    CHECK_OK(ckpt_ranks_allgather(ranks, &mine, all, sizeof mine, &err), err);
    for (int s = 0; s < stages; s++) {
        sum += all[ckpt_ranks_rank(ranks) / stages * stages + s];
    }
    const double base = 1 / (scheme.micro_batches * scheme.replicas * loss_scale);
    const double wanted = base * clip / (sqrt(sum) * base + 1e-6),
                 found = (double)*ckpt_program_scale(&executor->program, 0);
    CHECK(wanted < base, "%s: nothing is clipped", file);
    CHECK(fabs(found - wanted) < 1e-6 * wanted, "%s, %d stages of %d replicas%s: gradients times %g, wanted %g", file,
          stages, scheme.replicas, scheme.apart ? ", apart" : "", found, wanted);
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    test_train_close(&t);
}

static void the_norm_counts_every_gradient_once(void **state)
{
    const int count = ckpt_ranks_count(ranks);
    check_scale(DENSE, DENSE_SET, scheme_of(2, count), 1, 8);
    check_scale(BERT, BERT_SET, scheme_of(1, count), 1, 1);
    check_scale(BERT, BERT_SET, scheme_of(2, 1), count, 8);
    ckpt_scheme apart = scheme_of(1, count); /* a copy is in a bucket, and does not count either */
    apart.apart = true;
    check_scale(BERT, BERT_SET, apart, 1, 1);
    if (count == 4) {
        check_scale(BERT, BERT_SET, scheme_of(2, 2), 2, 1);
    }
}

/* A power of two changes no bit but of the gradients. */
static void scaled_losses_train_the_same(void **state)
{
    const int count = ckpt_ranks_count(ranks);
    for (int stages = 1; stages <= count; stages += count - 1) {
        const char *names[STAGES_MAX];
        test_train t;
        test_record wanted, found;
        test_train_open_on(&t, device, DENSE, DENSE_SET, NULL);
        ckpt_scheme scheme = scheme_of(2, count / stages);
        if (stages > 1) {
            cut(&t, &scheme, stages, names);
        }
        run_scaled(&t, &scheme, 0, 1, "keep-all", &wanted);
        run_scaled(&t, &scheme, 0, 1024, "recompute-all", &found);
        for (int s = 0; s < STEPS; s++) {
            CHECK(strcmp(wanted.digest[s][CKPT_SECTION_GRADIENTS], found.digest[s][CKPT_SECTION_GRADIENTS]) != 0,
                  "%d stages: gradients of step %d are not scaled", stages, s + 1);
            found.digest[s][CKPT_SECTION_GRADIENTS][0] = '\0';
        }
        test_record_same(&wanted, &found, 0, "a loss scale");
        test_train_close(&t);
    }
}

/* All ranks get the same, and nothing changes. */
static void evaluation_is_for_all(void **state)
{
    test_train t, one;
    ckpt_err err = {0};
    const char *names[STAGES_MAX];
    float found = 0, wanted = 0;
    test_train_open_on(&t, device, DENSE, DENSE_SET, NULL);
    test_train_open_on(&one, device, DENSE, DENSE_SET, NULL);
    ckpt_scheme scheme = scheme_of(3, 1);
    test_train_spread(&one, &scheme, 0, 1);
    cut(&t, &scheme, ckpt_ranks_count(ranks), names);
    test_train_spread(&t, &scheme, 0, 1);
    ckpt_executor *const executor = open_executor(&t, true), *const alone = open_executor(&one, false);
    ckpt_data *const data = test_train_data(&t, SEED);
    for (int i = 0; i < 2; i++) {
        test_train_feed(&t, data, executor);
        test_train_feed(&one, data, alone);
        CHECK_OK(ckpt_executor_evaluate(executor, NULL, &found, &err), err);
        CHECK_OK(ckpt_executor_evaluate(alone, NULL, &wanted, &err), err);
        assert_memory_equal(&found, &wanted, sizeof found);
        CHECK_OK(ckpt_executor_step(executor, &found, NULL, &err), err);
        CHECK_OK(ckpt_executor_step(alone, &wanted, NULL, &err), err);
        assert_memory_equal(&found, &wanted, sizeof found);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    ckpt_executor_destroy(alone);
    test_train_close(&one);
    test_train_close(&t);
}

static int as_rank(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_are_summed),
        cmocka_unit_test(sharding_overlap_and_buckets_change_nothing),
        cmocka_unit_test(stages_give_the_same_bits),
        cmocka_unit_test(stages_of_replicas),
        cmocka_unit_test(the_norm_counts_every_gradient_once),
        cmocka_unit_test(scaled_losses_train_the_same),
        cmocka_unit_test(evaluation_is_for_all),
    };
    ckpt_err err = {0};
    if (ckpt_ranks_open(&ranks, &err) != CKPT_OK ||
        ckpt_ranks_watch(ranks, ckpt_test_lost_rank, "test_ranks_executor", &err) != CKPT_OK ||
        ckpt_device_open("cpu", 1, &device, &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 3;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        ckpt_ranks_give_up(ranks, "a test failed");
        return failed;
    }
    ckpt_device_close(device);
    ckpt_ranks_close(ranks);
    return 0;
}

static void two_ranks(void **state)
{
    ckpt_test_ranks(program, 2, NULL);
}

static void four_ranks(void **state)
{
    ckpt_test_ranks(program, 4, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (ckpt_test_is_rank()) {
        return as_rank();
    }
    const int missing = ckpt_test_no_mpirun();
    if (missing != 0) {
        return missing;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
