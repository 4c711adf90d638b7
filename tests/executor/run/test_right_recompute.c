/* labels: contract */
/* What checkpointing gets wrong when it is done by hand, on real steps: a test for each failure, named after it. Each
 * network is the smallest in which the failure would show; that it does was seen by making the error on purpose. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support_right.h"

enum { SEED = 23 };

#define FILE_NAME "right-recompute.json"
#define INPUTS                                                                                                         \
    "'inputs': [ { 'name': 'x', 'shape': [8, 16], 'dtype': 'float32' },"                                               \
    "            { 'name': 'y', 'shape': [8], 'dtype': 'int32' } ],"
#define HEAD                                                                                                           \
    "{ 'name': 'head', 'op': 'linear', 'features': 5 },"                                                               \
    "{ 'name': 'loss', 'op': 'cross_entropy', 'in': ['head', 'y'] } ],"                                                \
    "'optimizer': { 'name': 'adam', 'lr': 0.01 }"

/* torch.utils.checkpoint needs preserve_rng_state for that, and loses it with other generators; here the mask is a
 * function of seed, step, layer and element. */
static void dropout_mask_differs_in_recompute(void **state)
{
    test_train t;
    test_right_open(&t, FILE_NAME,
                    INPUTS "'layers': ["
                           "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"
                           "{ 'repeat': 3, 'name': 'h', 'checkpoint': true, 'layers': ["
                           "  { 'name': 'fc', 'op': 'linear', 'features': 32 }, { 'name': 'act', 'op': 'gelu' },"
                           "  { 'name': 'drop', 'op': 'dropout', 'p': 0.4 },"
                           "  { 'name': 'out', 'op': 'linear', 'features': 16 } ] }," HEAD,
                    NULL);
    test_right_same_bits(&t, "h.0.drop h.1.drop", "dropout");
    test_train_close(&t);
    test_right_open(&t, FILE_NAME,
                    "'inputs': [ { 'name': 'x', 'shape': [2, 8, 16], 'dtype': 'float32' },"
                    "            { 'name': 'y', 'shape': [2, 8], 'dtype': 'int32' } ], 'layers': ["
                    "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"
                    "{ 'repeat': 2, 'name': 'h', 'checkpoint': true, 'layers': ["
                    "  { 'name': 'qkv', 'op': 'linear', 'features': 48 },"
                    "  { 'name': 'att', 'op': 'attention', 'heads': 2, 'dropout': 0.4 },"
                    "  { 'name': 'out', 'op': 'linear', 'features': 16 } ] }," HEAD,
                    NULL);
    test_right_same_bits(&t, "h.0.att", "dropout inside attention");
    test_train_close(&t);
}

/* Mean and unbiased variance of each channel of the first input, in double. */
static void moments(const ckpt_executor *executor, int rows, int channels, double *mean, double *variance)
{
    const float *const x = ckpt_executor_input((ckpt_executor *)(uintptr_t)executor, 0);
    for (int c = 0; c < channels; c++) {
        mean[c] = variance[c] = 0;
        for (int r = 0; r < rows; r++) {
            mean[c] += (double)x[r * channels + c] / rows;
        }
        for (int r = 0; r < rows; r++) {
            variance[c] += pow((double)x[r * channels + c] - mean[c], 2) / (rows - 1);
        }
    }
}

/* FairScale patches the modules against that. Against the recurrence itself, worked out from the data. */
static void batchnorm_statistics_updated_twice(void **state)
{
    enum { ROWS = 8, CHANNELS = 16, STEPS = 3 };
    test_train t;
    test_right_open(&t, FILE_NAME,
                    INPUTS
                    "'layers': ["
                    "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
                    "  { 'name': 'bn', 'op': 'batchnorm', 'momentum': 0.3, 'in': ['x'] },"
                    "  { 'name': 'act', 'op': 'gelu' }, { 'name': 'out', 'op': 'linear', 'features': 16 } ] }," HEAD,
                    NULL);
    static const char *const strategy[] = {"keep-all", "flags", "recompute-all"};
    for (int s = 0; s < 3; s++) {
        const ckpt_plan *const plan = test_train_plan(&t, strategy[s], 0);
        assert_true(s == 0 || test_right_runs(plan, &t, "h.0.bn") == 2);
        double mean[CHANNELS] = {0}, variance[CHANNELS], wanted_mean[CHANNELS] = {0}, wanted_variance[CHANNELS];
        test_right_executor e;
        test_right_start(&e, &t, plan, SEED);
        for (int c = 0; c < CHANNELS; c++) {
            wanted_variance[c] = 1;
        }
        for (int step = 0; step < STEPS; step++) {
            int count = 0;
            (void)test_right_step(&e);
            moments(e.executor, ROWS, CHANNELS, mean, variance);
            for (int c = 0; c < CHANNELS; c++) {
                wanted_mean[c] = 0.7 * wanted_mean[c] + 0.3 * mean[c];
                wanted_variance[c] = 0.7 * wanted_variance[c] + 0.3 * variance[c];
            }
            test_right_near(test_right_statistic(&e, "h.0.bn", 0, &count), wanted_mean, CHANNELS, 1e-6, strategy[s]);
            test_right_near(test_right_statistic(&e, "h.0.bn", 1, &count), wanted_variance, CHANNELS, 1e-6,
                            strategy[s]);
        }
        test_right_end(&e);
    }
    test_right_same_bits(&t, "h.0.bn h.0.act", "batch norm");
    test_train_close(&t);
}

static const char *const frozen_layers[] = {
    INPUTS "'layers': ["
           "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"
           "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
           "  { 'name': 'bn', 'op': 'batchnorm', 'frozen': true }, { 'name': 'act', 'op': 'gelu' },"
           "  { 'name': 'out', 'op': 'linear', 'features': 16 } ] }," HEAD,
    INPUTS "'layers': ["
           "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"
           "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
           "  { 'name': 'bn', 'op': 'batchnorm', 'frozen': true, 'learned': false }, { 'name': 'act', 'op': 'gelu' },"
           "  { 'name': 'out', 'op': 'linear', 'features': 16 } ] }," HEAD,
};

/* Not in forward, not in recomputation; and it keeps no moments, which would be the batch's. */
static void frozen_batchnorm_changes_statistics(void **state)
{
    static const double initial[4] = {0, 1, 1, 0};
    for (int learned = 1; learned >= 0; learned--) {
        test_train t;
        test_right_open(&t, FILE_NAME, frozen_layers[1 - learned], NULL);
        assert_int_equal(ckpt_graph_find_buffer(t.lowered->graph, "h.0.bn/mean"), -1);
        assert_int_equal(ckpt_graph_find_buffer(t.lowered->graph, "h.0.bn/rstd"), -1);
        test_right_executor e;
        test_right_start(&e, &t, test_train_plan(&t, "flags", 0), SEED);
        for (int step = 0; step < 3; step++) {
            (void)test_right_step(&e);
        }
        for (int k = 0; k < (learned ? 2 : 4); k++) {
            int count = 0;
            const double *const found = test_right_statistic(&e, "h.0.bn", k, &count);
            for (int c = 0; c < count; c++) {
                CHECK(found[c] == initial[k], "statistic %d of channel %d became %g", k, c, found[c]);
            }
        }
        const ckpt_node *const node = &t.lowered->network->node[test_right_node(&t, "h.0.bn")];
        assert_int_equal(node->param_count, learned ? 2 : 0);
        for (int k = 0; k < node->param_count; k++) {
            int count = 0;
            const double *const found = test_right_param(&e, "h.0.bn", k, &count);
            for (int c = 0; c < count; c++) {
                CHECK(found[c] != (k == 0 ? 1 : 0), "parameter %d of channel %d does not learn", k, c);
            }
        }
        test_right_end(&e);
        test_right_same_bits(&t, "h.0.bn h.0.act", "frozen batch norm");
        test_train_close(&t);
    }
}

/* Gradients of one step under `strategy`: `layer`'s first parameter, with the layers in `same` started from the first
 * of them. */
static double *gradient(test_train *t, const char *strategy, const char *const *same, int same_count, const char *layer,
                        int *count)
{
    test_right_executor e;
    ckpt_err err = {0};
    static float start[1024];
    test_right_start(&e, t, test_train_plan(t, strategy, 0), SEED);
    for (int i = 0; i < same_count; i++) {
        CHECK_OK(ckpt_executor_param(e.executor, test_right_node(t, same[0]), 0, start, &err), err);
        CHECK_OK(ckpt_executor_param_set(e.executor, test_right_node(t, same[i]), 0, start, &err), err);
    }
    (void)test_right_step(&e);
    double *const found = test_right_grad(&e, layer, 0, count);
    test_right_end(&e);
    return found;
}

typedef struct tying {
    const char *tied, *apart, *layer[3];
    int count;
} tying;

#define IDS                                                                                                            \
    "'inputs': [ { 'name': 'x', 'shape': [4, 6], 'dtype': 'int32' },"                                                  \
    "            { 'name': 'y', 'shape': [4, 6], 'dtype': 'int32' } ],"
#define EMBED(tie)                                                                                                     \
    IDS "'layers': ["                                                                                                  \
        "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["                                                  \
        "  { 'name': 'embed', 'op': 'embedding', 'rows': 11, 'features': 8, 'in': ['x'] },"                            \
        "  { 'name': 'fc', 'op': 'linear', 'features': 8 }, { 'name': 'act', 'op': 'tanh' } ] },"                      \
        "{ 'name': 'head', 'op': 'linear', 'features': 11, 'bias': false" tie " },"                                    \
        "{ 'name': 'loss', 'op': 'cross_entropy', 'in': ['head', 'y'] } ]"
#define THREE(tie)                                                                                                     \
    INPUTS "'layers': ["                                                                                               \
           "{ 'name': 'a', 'op': 'linear', 'features': 16, 'bias': false, 'in': ['x'] },"                              \
           "{ 'repeat': 2, 'name': 'h', 'checkpoint': true, 'layers': ["                                               \
           "  { 'name': 'act', 'op': 'tanh' },"                                                                        \
           "  { 'name': 'fc', 'op': 'linear', 'features': 16, 'bias': false" tie " } ] }," HEAD

/* A parameter of several layers has the sum of what they give, whoever is recomputed; against the same network with a
 * parameter for each of them that starts with the same numbers. */
static void tied_parameter_gets_half_its_gradient(void **state)
{
    static const tying ties[] = {
        {EMBED(", 'tie': 'h.0.embed'"), EMBED(""), {"h.0.embed", "head"}, 2},
        {THREE(", 'tie': 'a'"), THREE(""), {"a", "h.0.fc", "h.1.fc"}, 3},
    };
    static const char *const strategy[] = {"keep-all", "flags", "recompute-all"};
    for (size_t i = 0; i < sizeof ties / sizeof ties[0]; i++) {
        const tying *const tie = &ties[i];
        test_train tied, apart;
        test_right_open(&apart, FILE_NAME, tie->apart, NULL);
        int count = 0;
        double sum[1024] = {0};
        for (int l = 0; l < tie->count; l++) {
            const double *const part = gradient(&apart, "keep-all", tie->layer, tie->count, tie->layer[l], &count);
            double size = 0;
            for (int k = 0; k < count; k++) {
                sum[k] += part[k];
                size += fabs(part[k]);
            }
            CHECK(size > 1e-3, "%s gives nothing", tie->layer[l]);
        }
        test_right_open(&tied, FILE_NAME, tie->tied, NULL);
        for (int s = 0; s < 3; s++) {
            int found_count = 0;
            const double *const found = gradient(&tied, strategy[s], NULL, 0, tie->layer[0], &found_count);
            assert_int_equal(found_count, count);
            test_right_near(found, sum, count, 1e-6, strategy[s]);
        }
        test_right_same_bits(&tied, i == 0 ? "h.0.embed" : "h.0.act", "tied");
        test_train_close(&tied);
        test_train_close(&apart);
    }
}

/* PyTorch's reentrant checkpoint says "None of the inputs have requires_grad=True" and trains nothing of the unit. */
static void input_without_gradient_breaks_checkpoint(void **state)
{
    static const struct {
        const char *members, *layers, *recomputed;
    } cases[] = {
        {INPUTS "'layers': ["
                "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
                "  { 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] }, { 'name': 'act', 'op': 'gelu' },"
                "  { 'name': 'b', 'op': 'linear', 'features': 16 } ] }," HEAD,
         "h.0.a h.0.b head", "h.0.a h.0.act"},
        {IDS "'layers': ["
             "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
             "  { 'name': 'embed', 'op': 'embedding', 'rows': 11, 'features': 8, 'in': ['x'] },"
             "  { 'name': 'act', 'op': 'gelu' }, { 'name': 'b', 'op': 'linear', 'features': 8 } ] }," HEAD,
         "h.0.embed h.0.b head", "h.0.embed h.0.act"},
        /* a prefix that learns nothing: no gradient flows into it, and what it gives is recomputed all the same */
        {INPUTS "'layers': ["
                "{ 'repeat': 1, 'name': 'h', 'checkpoint': true, 'layers': ["
                "  { 'name': 'bn', 'op': 'batchnorm', 'frozen': true, 'learned': false, 'in': ['x'] },"
                "  { 'name': 'act', 'op': 'gelu' }, { 'name': 'b', 'op': 'linear', 'features': 16 },"
                "  { 'name': 'act2', 'op': 'gelu' } ] }," HEAD,
         "h.0.b head", "h.0.bn h.0.act h.0.b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_train t;
        char layers[64];
        test_right_open(&t, FILE_NAME, cases[i].members, NULL);
        (void)snprintf(layers, sizeof layers, "%s", cases[i].layers);
        for (char *layer = strtok(layers, " "); layer != NULL; layer = strtok(NULL, " ")) {
            int count = 0;
            double size = 0;
            const double *const found = gradient(&t, "flags", NULL, 0, layer, &count);
            for (int k = 0; k < count; k++) {
                size += fabs(found[k]);
            }
            CHECK(size > 1e-3, "case %zu: %s has no gradient", i, layer);
        }
        test_right_same_bits(&t, cases[i].recomputed, "inputs without gradient");
        test_train_close(&t);
    }
}

/* Numbers, words, lists and flags of a layer, several inputs and outputs, an output that nobody reads: a recomputation
 * has them all, because it is the same op again. */
static void non_tensor_attribute_lost_in_recompute(void **state)
{
    test_train t;
    test_right_open(&t, FILE_NAME,
                    INPUTS "'layers': ["
                           "{ 'name': 'a', 'op': 'linear', 'features': 16, 'in': ['x'] },"
                           "{ 'name': 'b', 'op': 'linear', 'features': 16 },"
                           "{ 'repeat': 2, 'name': 'u', 'checkpoint': true, 'layers': ["
                           "  { 'name': 'parts', 'op': 'split', 'axis': 1, 'sizes': [3, 5, 8] },"
                           "  { 'name': 'swap', 'op': 'concat', 'axis': 1, 'in': ['parts:1', 'parts'] },"
                           "  { 'name': 'norm', 'op': 'layernorm', 'eps': 0.25 },"
                           "  { 'name': 'act', 'op': 'gelu', 'approximate': 'tanh' },"
                           "  { 'name': 'cell', 'op': 'lstm_cell', 'features': 16, 'in': ['act', 'b', '^'] },"
                           "  { 'name': 'out', 'op': 'linear', 'features': 16, 'bias': false } ] }," HEAD,
                    NULL);
    test_right_same_bits(&t, "u.0.parts u.0.swap u.0.norm u.0.act u.0.cell", "attributes");
    test_train_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_mask_differs_in_recompute),
        cmocka_unit_test(batchnorm_statistics_updated_twice),
        cmocka_unit_test(frozen_batchnorm_changes_statistics),
        cmocka_unit_test(tied_parameter_gets_half_its_gradient),
        cmocka_unit_test(input_without_gradient_breaks_checkpoint),
        cmocka_unit_test(non_tensor_attribute_lost_in_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
