/* labels: contract */
/* What goes wrong with gradients that are summed, clipped, scaled or used up at once, and with evaluation in between,
 * on real steps; a test for each failure, named after it. */
#include "tests/support/support_data.h"
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support_right.h"

enum { SEED = 29, BATCH = 8, BATCHES = 3, WIDTH = 16, STEPS = 3 };

#define FILE_NAME "right-scheme.json"
/* A unit to recompute, and a parameter of two layers. */
#define NETWORK(batch, optimizer)                                                                                      \
    "'inputs': [ { 'name': 'x', 'shape': [" batch ", 16], 'dtype': 'float32' },"                                       \
    "            { 'name': 'y', 'shape': [" batch "], 'dtype': 'int32' } ], 'layers': ["                               \
    "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"                                                    \
    "{ 'repeat': 2, 'name': 'h', 'checkpoint': true, 'layers': ["                                                      \
    "  { 'name': 'act', 'op': 'gelu' }, { 'name': 'fc', 'op': 'linear', 'features': 16 },"                             \
    "  { 'name': 'norm', 'op': 'layernorm' } ] },"                                                                     \
    "{ 'name': 'b', 'op': 'linear', 'features': 16, 'tie': 'a' },"                                                     \
    "{ 'name': 'head', 'op': 'linear', 'features': 5 },"                                                               \
    "{ 'name': 'loss', 'op': 'cross_entropy', 'in': ['head', 'y'] } ],"                                                \
    "'optimizer': { " optimizer " }"

static const char *const layers[] = {"a", "h.0.fc", "h.0.norm", "h.1.fc", "h.1.norm", "head"};
enum { LAYERS = sizeof layers / sizeof layers[0], PARAMS = 2 };

static const char *const strategies[] = {"keep-all", "flags", "recompute-all"};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static ckpt_scheme scheme_of(int batches, bool fused)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = batches;
    scheme.fused = fused;
    return scheme;
}

static void open_with(test_train *t, const char *members, int batches, bool fused)
{
    const ckpt_scheme scheme = scheme_of(batches, fused);
    test_right_open(t, FILE_NAME, members, &scheme);
}

/* Three batches of the synthetic data behind each other are one large batch. */
static void fill_large(const test_train *small, ckpt_executor *large)
{
    float x[BATCH * WIDTH];
    int32_t y[BATCH];
    void *const to[] = {x, y};
    ckpt_data *const data = test_train_data(small, SEED);
    for (int j = 0; j < BATCHES; j++) {
        ckpt_test_fill(data, (uint64_t)j, to);
        memcpy((char *)ckpt_executor_input(large, 0) + (size_t)j * sizeof x, x, sizeof x);
        memcpy((char *)ckpt_executor_input(large, 1) + (size_t)j * sizeof y, y, sizeof y);
    }
    ckpt_data_close(data);
}

/* Three micro-batches train what one batch of all their rows trains: the loss is the mean, and so are the gradients. */
static void micro_batches_average_wrongly(void **state)
{
    test_train large, small;
    test_right_open(&large, FILE_NAME, NETWORK("24", "'name': 'sgd', 'lr': 0.5"), NULL);
    open_with(&small, NETWORK("8", "'name': 'sgd', 'lr': 0.5"), BATCHES, false);
    test_right_executor whole;
    ckpt_err err = {0};
    float loss = 0;
    test_right_start(&whole, &large, test_train_plan(&large, "keep-all", 0), SEED);
    fill_large(&small, whole.executor);
    CHECK_OK(ckpt_executor_step(whole.executor, &loss, NULL, &err), err);
    for (int s = 0; s < STRATEGIES; s++) {
        test_right_executor parts;
        test_right_start(&parts, &small, test_train_plan(&small, strategies[s], 0), SEED);
        const float found = test_right_step(&parts);
        CHECK(fabsf(found - loss) <= 1e-6f * loss, "%s: the loss is %.9g, of one batch %.9g", strategies[s],
              (double)found, (double)loss);
        for (int i = 0; i < LAYERS * PARAMS; i++) {
            int count = 0;
            const double *const wanted = test_right_param(&whole, layers[i / PARAMS], i % PARAMS, &count);
            test_right_near(test_right_param(&parts, layers[i / PARAMS], i % PARAMS, &count), wanted, count, 1e-6,
                            layers[i / PARAMS]);
        }
        test_right_end(&parts);
    }
    test_right_end(&whole);
    test_train_close(&large);
    test_train_close(&small);
}

typedef struct values {
    double *at[LAYERS * PARAMS];
    int count[LAYERS * PARAMS];
} values;

typedef double *read_function(test_right_executor *e, const char *layer, int k, int *count);

static values read_all(test_right_executor *e, read_function *read)
{
    values v;
    for (int i = 0; i < LAYERS * PARAMS; i++) {
        v.at[i] = read(e, layers[i / PARAMS], i % PARAMS, &v.count[i]);
    }
    return v;
}

static double length_of(const values *v)
{
    double sum = 0;
    for (int i = 0; i < LAYERS * PARAMS; i++) {
        for (int k = 0; k < v->count[i]; k++) {
            sum += v->at[i][k] * v->at[i][k];
        }
    }
    return sqrt(sum);
}

/* Weights behind a step of SGD with rate 0.5 and the gradients it left, of `batches` micro-batches and a loss scaled by
 * `loss_scale`, clipped to `most`. Gives the length before clipping. */
static double check_clipped(const char *members, int batches, double loss_scale, double most, const char *strategy)
{
    test_train t;
    open_with(&t, members, batches, false);
    test_right_executor e;
    test_right_start(&e, &t, test_train_plan(&t, strategy, 0), SEED);
    const values before = read_all(&e, test_right_param);
    (void)test_right_step(&e);
    const values grad = read_all(&e, test_right_grad), after = read_all(&e, test_right_param);
    const double share = 1 / (batches * loss_scale), length = share * length_of(&grad);
    const double scale = share * fmin(1, most / (length + 1e-6));
    for (int i = 0; i < LAYERS * PARAMS; i++) {
        double wanted[WIDTH * WIDTH];
        assert_in_range(before.count[i], 1, WIDTH * WIDTH);
        for (int k = 0; k < before.count[i]; k++) {
            wanted[k] = before.at[i][k] - 0.5 * scale * grad.at[i][k];
        }
        test_right_near(after.at[i], wanted, before.count[i], 1.2e-7, layers[i / PARAMS]);
    }
    test_right_end(&e);
    test_train_close(&t);
    return length;
}

/* The length is of all gradients as one vector, summed over the micro-batches, once: a tied parameter counts once, and
 * neither a layer nor a micro-batch is clipped by itself. */
static void clipping_sees_partial_gradients(void **state)
{
    for (int s = 0; s < STRATEGIES; s++) {
        for (int batches = 1; batches <= BATCHES; batches += 2) {
            const double length = check_clipped(NETWORK("8", "'name': 'sgd', 'lr': 0.5, 'clip_norm': 0.25"), batches, 1,
                                                0.25, strategies[s]);
            CHECK(length > 0.5, "gradients of length %g are not clipped to 0.25", length);
            (void)check_clipped(NETWORK("8", "'name': 'sgd', 'lr': 0.5, 'clip_norm': 1e6"), batches, 1, 1e6,
                                strategies[s]);
            (void)check_clipped(NETWORK("8", "'name': 'sgd', 'lr': 0.5, 'clip_norm': 0.25, 'loss_scale': 512"), batches,
                                512, 0.25, strategies[s]);
        }
    }
}

typedef struct trail {
    float loss[STEPS];
    char weights[STEPS][CKPT_DIGEST_TEXT], optimizer[STEPS][CKPT_DIGEST_TEXT], statistics[STEPS][CKPT_DIGEST_TEXT];
} trail;

static void note(test_right_executor *e, int step, trail *to)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_executor_digest(e->executor, CKPT_SECTION_WEIGHTS, to->weights[step], &err), err);
    CHECK_OK(ckpt_executor_digest(e->executor, CKPT_SECTION_OPTIMIZER, to->optimizer[step], &err), err);
    CHECK_OK(ckpt_executor_digest(e->executor, CKPT_SECTION_STATISTICS, to->statistics[step], &err), err);
}

static trail run(const char *members, int batches, bool fused, const char *strategy)
{
    test_train t;
    test_right_executor e;
    trail found;
    memset(&found, 0, sizeof found);
    open_with(&t, members, batches, fused);
    const ckpt_plan *const plan = test_train_plan(&t, strategy, 0);
    assert_true(strcmp(strategy, "flags") != 0 || test_right_runs(plan, &t, "h.0.act") >= 2 * batches);
    test_right_start(&e, &t, plan, SEED);
    for (int step = 0; step < STEPS; step++) {
        found.loss[step] = test_right_step(&e);
        note(&e, step, &found);
    }
    test_right_end(&e);
    test_train_close(&t);
    return found;
}

static void same_trail(const trail *wanted, const trail *found, const char *what)
{
    for (int s = 0; s < STEPS; s++) {
        CHECK(memcmp(&wanted->loss[s], &found->loss[s], 4) == 0, "%s: the loss of step %d is %a, wanted %a", what,
              s + 1, (double)found->loss[s], (double)wanted->loss[s]);
        CHECK(strcmp(wanted->weights[s], found->weights[s]) == 0, "%s: weights after step %d differ", what, s + 1);
        CHECK(strcmp(wanted->optimizer[s], found->optimizer[s]) == 0, "%s: optimizer state after step %d differs", what,
              s + 1);
        CHECK(strcmp(wanted->statistics[s], found->statistics[s]) == 0, "%s: statistics after step %d differ", what,
              s + 1);
    }
}

#define ADAM "'name': 'adam', 'lr': 0.01, 'weight_decay': 0.1"

/* A loss scaled by a power of two, and divided out again, changes no bit: not of the loss, the weights or the moments
 * of Adam, which would take a gradient 1024 times as long as it is. */
static void loss_scale_leaks_into_update(void **state)
{
    for (int batches = 1; batches <= 2; batches++) {
        const trail plain = run(NETWORK("8", ADAM), batches, false, "keep-all");
        for (int s = 0; s < STRATEGIES; s++) {
            const trail scaled = run(NETWORK("8", ADAM ", 'loss_scale': 1024"), batches, false, strategies[s]);
            same_trail(&plain, &scaled, strategies[s]);
            const trail fused = run(NETWORK("8", ADAM ", 'loss_scale': 1024"), batches, true, strategies[s]);
            same_trail(&plain, &fused, strategies[s]);
        }
    }
}

/* Where the optimizer runs in backward, what is recomputed is made with the weights that made it first: the bits of
 * gradients that wait for the end. (That no plan runs anything behind the update of its weights: test_right_plan.) */
static void fused_update_uses_new_weights_in_recompute(void **state)
{
    for (int batches = 1; batches <= 2; batches++) {
        const trail plain = run(NETWORK("8", ADAM), batches, false, "keep-all");
        for (int s = 0; s < STRATEGIES; s++) {
            const trail fused = run(NETWORK("8", ADAM), batches, true, strategies[s]);
            same_trail(&plain, &fused, strategies[s]);
        }
    }
}

#define NOISY(p, frozen)                                                                                               \
    "'inputs': [ { 'name': 'x', 'shape': [8, 16], 'dtype': 'float32' },"                                               \
    "            { 'name': 'y', 'shape': [8], 'dtype': 'int32' } ], 'layers': ["                                       \
    "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"                                                    \
    "{ 'repeat': 2, 'name': 'h', 'checkpoint': true, 'layers': ["                                                      \
    "  { 'name': 'bn', 'op': 'batchnorm', 'frozen': " frozen " }, { 'name': 'act', 'op': 'gelu' },"                    \
    "  { 'name': 'drop', 'op': 'dropout', 'p': " p " }, { 'name': 'fc', 'op': 'linear', 'features': 16 } ] },"         \
    "{ 'name': 'head', 'op': 'linear', 'features': 5 },"                                                               \
    "{ 'name': 'loss', 'op': 'cross_entropy', 'in': ['head', 'y'] } ],"                                                \
    "'optimizer': { " ADAM " }"

/* Training with evaluation before every step, twice; the loss of the first goes to *first. */
static trail run_evaluating(const char *members, int batches, const char *strategy, float *first)
{
    test_train t;
    test_right_executor e;
    trail found;
    memset(&found, 0, sizeof found);
    open_with(&t, members, batches, false);
    test_right_start(&e, &t, test_train_plan(&t, strategy, 0), SEED);
    for (int step = 0; step < STEPS; step++) {
        ckpt_err err = {0};
        float loss[2] = {0};
        trail before = {0}, after = {0};
        test_right_fill(&e);
        note(&e, 0, &before);
        for (int k = 0; k < 2; k++) {
            CHECK_OK(ckpt_executor_evaluate(e.executor, NULL, &loss[k], &err), err);
        }
        note(&e, 0, &after);
        assert_memory_equal(&before, &after, sizeof before);
        assert_memory_equal(&loss[0], &loss[1], 4);
        assert_int_equal(ckpt_executor_steps(e.executor), step);
        *first = step == 0 ? loss[0] : *first;
        found.loss[step] = test_right_step(&e);
        CHECK(found.loss[step] != loss[0], "step %d: training drops nothing", step);
        note(&e, step, &found);
    }
    test_right_end(&e);
    test_train_close(&t);
    return found;
}

/* Evaluation in between changes no bit of training. Its first loss is that of the first step of a network that drops
 * nothing and whose batch norm takes the statistics, which are then what they begin with. */
static void evaluation_changes_statistics_or_drops(void **state)
{
    for (int batches = 1; batches <= 2; batches++) {
        const trail alone = run(NOISY("0.5", "false"), batches, false, "keep-all");
        const trail quiet = run(NOISY("0.0", "true"), batches, false, "keep-all");
        for (int s = 0; s < STRATEGIES; s++) {
            float first = 0;
            const trail found = run_evaluating(NOISY("0.5", "false"), batches, strategies[s], &first);
            same_trail(&alone, &found, strategies[s]);
            CHECK(first == quiet.loss[0], "%s: evaluation gives %.9g, wanted %.9g", strategies[s], (double)first,
                  (double)quiet.loss[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_average_wrongly),
        cmocka_unit_test(clipping_sees_partial_gradients),
        cmocka_unit_test(loss_scale_leaks_into_update),
        cmocka_unit_test(fused_update_uses_new_weights_in_recompute),
        cmocka_unit_test(evaluation_changes_statistics_or_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
