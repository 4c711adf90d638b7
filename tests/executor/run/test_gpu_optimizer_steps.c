/* labels: unit gpu; on a GPU: 60 s, together */
/* What training does with an optimizer, for every optimizer there is: the same bits with fused gradients, after a resume
 * and from a recorded step; sharding refused where a parameter is updated as a whole; the bytes of its state. Groups,
 * schedules and the average of the weights against AdamW's formula in double. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "ops/device_model.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_train.h"

enum { PARAMS_MAX = 8192 };

/* An embedding, hidden layers with biases and a norm, a filter, a head. */
static const char network[] =
    "{\"format\": \"ckpt-model/1\", \"name\": \"optimizers\", \"inputs\": ["
    "{\"name\": \"ids\", \"shape\": [3, 8], \"dtype\": \"int32\"},"
    "{\"name\": \"labels\", \"shape\": [3, 8], \"dtype\": \"int32\"}], \"layers\": ["
    "{\"name\": \"embed\", \"op\": \"embedding\", \"in\": [\"ids\"], \"rows\": 360, \"features\": 12},"
    "{\"name\": \"up\", \"op\": \"linear\", \"features\": 20},"
    "{\"name\": \"act\", \"op\": \"gelu\"},"
    "{\"name\": \"down\", \"op\": \"linear\", \"features\": 12},"
    "{\"name\": \"norm\", \"op\": \"layernorm\"},"
    "{\"name\": \"head\", \"op\": \"linear\", \"features\": 7},"
    "{\"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"head\", \"labels\"]}],"
    "\"optimizer\": {\"name\": %s}}";

/* `optimizer` is what stands behind "name": in the model. */
static void open_on(test_train *t, ckpt_device *device, const char *optimizer, const char *dtype)
{
    ckpt_err err = {0};
    char text[4096], path[512];
    const int length = snprintf(text, sizeof text, network, optimizer);
    snprintf(path, sizeof path, "%s/optimizers.json", ckpt_work_dir());
    CHECK_OK(ckpt_file_write(path, text, (size_t)length, &err), err);
    if (device == NULL) {
        test_train_open(t, path, "");
    } else {
        test_train_open_on(t, device, path, "", dtype);
    }
}

static void spread_fused(test_train *t)
{
    ckpt_scheme fused = ckpt_scheme_alone;
    fused.fused = true;
    test_train_spread(t, &fused, 0, 1);
}

/* Fused, resumed, recorded. `device` NULL: the CPU. */
static void check_ways(ckpt_device *device, const char *optimizer, const char *dtype)
{
    static test_record wanted, found;
    test_train t;
    char path[512];
    snprintf(path, sizeof path, "%s/optimizers.state", ckpt_work_dir());
    open_on(&t, device, optimizer, dtype);
    const ckpt_plan *const plan = test_train_hand_plan(&t, false, false);
    test_train_run(&t, &(test_run){.plan = plan, .seed = 3, .poison = true}, &wanted);
    if (device != NULL) {
        test_train_run(&t, &(test_run){.plan = plan, .seed = 3, .record = true}, &found);
        test_record_same(&wanted, &found, 0, optimizer);
    }
    test_train_run(&t, &(test_run){.plan = plan, .seed = 3, .steps = 2, .state_out = path}, &found);
    test_train_run(&t, &(test_run){.plan = plan, .seed = 9, .state_in = path, .poison = true}, &found);
    test_record_same(&wanted, &found, 2, optimizer);
    spread_fused(&t);
    test_train_run(&t, &(test_run){.plan = test_train_hand_plan(&t, false, false), .seed = 3, .poison = true}, &found);
    test_record_same(&wanted, &found, 0, optimizer);
    CHECK(strcmp(wanted.digest[0][CKPT_SECTION_WEIGHTS], wanted.digest[1][CKPT_SECTION_WEIGHTS]) != 0,
          "%s changes nothing", optimizer);
    remove(path);
    test_train_close(&t);
}

static void every_optimizer_every_way(void **state)
{
    for (const ckpt_optimizer *const *o = ckpt_optimizer_table; *o != NULL; o++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "\"%s\", \"lr\": 0.01, \"ema\": 0.75, \"schedule\": {\"kind\": \"cosine\", \"warmup\": 2, \"steps\": 5}",
            (*o)->name);
        check_ways(NULL, text, NULL);
        for (int g = 0; g < ckpt_gpus_count; g++) {
            check_ways(ckpt_gpus[g].device, text, "float32");
            check_ways(ckpt_gpus[g].device, text, "bfloat16");
        }
    }
}

static void whole_parameters_are_not_sharded(void **state)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.replicas = 2;
    scheme.shard_optimizer = true;
    for (const ckpt_optimizer *const *o = ckpt_optimizer_table; *o != NULL; o++) {
        test_train t;
        char text[64];
        ckpt_err err = {0};
        const ckpt_network *spread = NULL;
        snprintf(text, sizeof text, "\"%s\"", (*o)->name);
        open_on(&t, NULL, text, NULL);
        const ckpt_code code = ckpt_network_spread(t.network, &scheme, &t.arena, &spread, &err);
        if ((*o)->slot_bytes == NULL) {
            CHECK_OK(code, err);
        } else {
            assert_int_equal(code, CKPT_BAD_INPUT);
            CHECK(strstr(err.msg, "cannot be sharded") != NULL, "%s", err.msg);
        }
        test_train_close(&t);
    }
}

static ckpt_bytes state_of_adafactor(const ckpt_param *param)
{
    const ckpt_bytes all = ckpt_tensor_bytes(&param->tensor), rows = param->tensor.shape.dim[0];
    return param->tensor.shape.rank < 2 ? ckpt_round_up(all, 64)
                                        : ckpt_round_up(4 * rows, 64) + ckpt_round_up(all / rows, 64);
}

/* Bytes of state of a parameter, by name of its optimizer; -1: no optimizer of this test. */
static ckpt_bytes state_of(const char *optimizer, const ckpt_node *node, const ckpt_param *param)
{
    const ckpt_bytes all = ckpt_tensor_bytes(&param->tensor), rounded = ckpt_round_up(all, 64);
    const bool hidden =
        strcmp(param->tensor.name, "weight") == 0 && (strcmp(node->name, "up") == 0 || strcmp(node->name, "down") == 0);
    const ckpt_bytes bytes = ckpt_round_up(ckpt_round_up(all / 4, 64) + (all / 4 + 255) / 256 * 4, 64); /* and scales */
    if (strcmp(optimizer, "adamw8bit") == 0) {
        return all / 4 < 4096 ? 2 * rounded : 2 * bytes;
    }
    if (strcmp(optimizer, "adafactor") == 0 || strcmp(optimizer, "muon") == 0) {
        return optimizer[0] == 'a' ? state_of_adafactor(param) : hidden ? rounded : 2 * rounded;
    }
    return strcmp(optimizer, "sgd") == 0                                       ? 0
           : strcmp(optimizer, "adam") == 0 || strcmp(optimizer, "adamw") == 0 ? 2 * rounded
           : strcmp(optimizer, "lion") == 0                                    ? rounded
                                                                               : -1;
}

static void state_has_the_planned_bytes(void **state)
{
    for (const ckpt_optimizer *const *o = ckpt_optimizer_table; *o != NULL; o++) {
        for (int average = 0; average < 2; average++) {
            test_train t;
            char text[64];
            snprintf(text, sizeof text, "\"%s\", \"ema\": %s", (*o)->name, average != 0 ? "0.5" : "0");
            open_on(&t, NULL, text, NULL);
            ckpt_bytes wanted = 0, found = 0;
            for (int n = 0; n < t.network->node_count; n++) {
                for (int k = 0; k < t.network->node[n].param_count; k++) {
                    const ckpt_param *const param = &t.network->node[n].param[k];
                    const ckpt_bytes own = state_of((*o)->name, &t.network->node[n], param);
                    CHECK(own >= 0, "%s has no row in this test", (*o)->name);
                    wanted += own + average * ckpt_round_up(ckpt_tensor_bytes(&param->tensor), 64);
                }
            }
            for (int i = 0; i < t.lowered->graph->static_count; i++) {
                found += strcmp(t.lowered->graph->statics[i].name, "optimizer") == 0
                             ? t.lowered->graph->statics[i].bytes
                             : 0;
            }
            CHECK(found == wanted, "%s: %lld bytes of state, wanted %lld", (*o)->name, (long long)found,
                  (long long)wanted);
            test_train_close(&t);
        }
    }
}

static const char grouped[] =
    "\"adamw\", \"lr\": 0.02, \"weight_decay\": 0.2, \"ema\": 0.6,"
    "\"schedule\": {\"kind\": \"step\", \"warmup\": 2, \"every\": 2, \"factor\": 0.5},"
    "\"groups\": [{\"match\": \"*/bias\", \"lr\": 3, \"weight_decay\": 0.5}, {\"match\": \"embed.*\", \"lr\": 0},"
    "{\"match\": \"up/*\", \"weight_decay\": 0}]";

/* What the groups above say of one parameter. */
static void rule_of(const ckpt_node *node, const ckpt_param *param, double *rate, double *decay)
{
    const bool bias = strcmp(param->tensor.name, "bias") == 0;
    *rate = bias ? 3 : strcmp(node->name, "embed") == 0 ? 0 : 1;
    *decay = bias ? 0.5 : strcmp(node->name, "up") == 0 ? 0 : param->decay ? 0.2 : 0;
}

/* One step of AdamW with the gradient that the executor has, of parameters in the order of test_train_get. */
static void step_in_double(const test_train *t, int step, const float *grad, double *param, double *mean,
                           double *square, double *average)
{
    static const double schedule[] = {0.5, 1, 1, 1, 0.5};
    int64_t at = 0;
    for (int n = 0; n < t->network->node_count; n++) {
        const ckpt_node *const node = &t->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            double rate = 0, decay = 0;
            rule_of(node, &node->param[k], &rate, &decay);
            const double lr = 0.02 * schedule[step - 1] * rate;
            for (int64_t i = 0; i < ckpt_shape_count(&node->param[k].tensor.shape); i++, at++) {
                const double g = (double)grad[at];
                param[at] -= lr * decay * param[at];
                mean[at] = 0.9 * mean[at] + 0.1 * g;
                square[at] = 0.999 * square[at] + 0.001 * g * g;
                param[at] -=
                    lr * (mean[at] / (1 - pow(0.9, step))) / (sqrt(square[at] / (1 - pow(0.999, step))) + 1e-8);
                average[at] = step == 1 ? param[at] : 0.6 * average[at] + 0.4 * param[at];
            }
        }
    }
}

static void check_values(const char *what, int step, const float *found, const double *wanted, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        /* rounding of some 20 operations; a quotient of small moments may double it */
        CHECK(fabs((double)found[i] - wanted[i]) <= 5e-6 * (1 + fabs(wanted[i])),
              "%s, step %d, value %lld: %.9g, wanted %.9g", what, step, (long long)i, (double)found[i], wanted[i]);
    }
}

/* On the CPU, and replayed on a GPU: the step's numbers must reach a recording. */
static void check_groups(ckpt_device *device, const char *name)
{
    static float value[PARAMS_MAX], grad[PARAMS_MAX];
    static double param[PARAMS_MAX], mean[PARAMS_MAX], square[PARAMS_MAX], average[PARAMS_MAX];
    test_train t;
    ckpt_err err = {0};
    open_on(&t, device, grouped, "float32");
    const ckpt_executor_options options = {.seed = 4, .record = device != NULL};
    ckpt_executor *const executor = test_train_executor(&t, test_train_hand_plan(&t, false, false), &options);
    ckpt_data *const data = test_train_data(&t, 4);
    memset(mean, 0, sizeof mean);
    memset(square, 0, sizeof square);
    const int64_t count = test_train_get(&t, executor, ckpt_executor_param, value);
    assert_true(count <= PARAMS_MAX);
    for (int64_t i = 0; i < count; i++) {
        param[i] = (double)value[i];
    }
    assert_int_equal(ckpt_executor_swap_average(executor, &err), CKPT_BAD_INPUT);
    for (int step = 1; step <= 5; step++) {
        test_train_step(&t, data, executor);
        test_train_get(&t, executor, ckpt_executor_grad, grad);
        step_in_double(&t, step, grad, param, mean, square, average);
        test_train_get(&t, executor, ckpt_executor_param, value);
        check_values(name, step, value, param, count);
        CHECK_OK(ckpt_executor_swap_average(executor, &err), err);
        test_train_get(&t, executor, ckpt_executor_param, value);
        check_values("average", step, value, average, count);
        CHECK_OK(ckpt_executor_swap_average(executor, &err), err);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    test_train_close(&t);
}

static void groups_schedules_and_averages(void **state)
{
    check_groups(NULL, "cpu");
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_groups(ckpt_gpus[g].device, ckpt_gpus[g].name);
    }
}

/* A schedule of clip_norm: the length of the step of plain SGD says what gradients were shortened to. */
static void check_clipping(ckpt_device *device)
{
    static float before[PARAMS_MAX], behind[PARAMS_MAX];
    static const double wanted[] = {0.00125, 0.0025, 0.0025, 0.00125}; /* t = 0, then half of the way to 0 */
    test_train t;
    open_on(&t, device,
            "\"sgd\", \"lr\": 1, \"clip_norm\": 0.0025, \"clip_schedule\": {\"kind\": \"linear\", \"warmup\": 2, "
            "\"steps\": 4}",
            "float32");
    const ckpt_executor_options options = {.seed = 4, .record = device != NULL};
    ckpt_executor *const executor = test_train_executor(&t, test_train_hand_plan(&t, false, false), &options);
    ckpt_data *const data = test_train_data(&t, 4);
    for (int step = 0; step < 4; step++) {
        const int64_t count = test_train_get(&t, executor, ckpt_executor_param, before);
        double length = 0;
        test_train_step(&t, data, executor);
        test_train_get(&t, executor, ckpt_executor_param, behind);
        for (int64_t i = 0; i < count; i++) {
            length += ((double)behind[i] - (double)before[i]) * ((double)behind[i] - (double)before[i]);
        }
        CHECK(fabs(sqrt(length) - wanted[step]) <= 2e-5, "step %d is %g long, wanted %g", step + 1, sqrt(length),
              wanted[step]);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    test_train_close(&t);
}

static void clip_norm_has_a_schedule(void **state)
{
    check_clipping(NULL);
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check_clipping(ckpt_gpus[g].device);
    }
}

/* In a GPT whose head is tied to its embedding, a network of filters, one with a tied hidden layer: by the ops' names. */
static void hidden_layers_are_found(void **state)
{
    static const char *const file[] = {"models/byte-gpt.json", "tests/models/resnet-small.json",
                                       "tests/models/fork.json"};
    for (int m = 0; m < 3; m++) {
        test_train t;
        test_train_open(&t, file[m], m == 0 ? "batch=1 tokens=4 hidden=8 blocks=1 heads=2" : "");
        int found = 0;
        for (int n = 0; n < t.network->node_count; n++) {
            const ckpt_node *const node = &t.network->node[n];
            const bool head = n + 2 == t.network->node_count; /* the loss is the last */
            const bool filter = strcmp(node->op->name, "conv2d") == 0, linear = strcmp(node->op->name, "linear") == 0;
            for (int k = 0; k < node->param_count; k++) {
                const bool wanted = (filter || (linear && !head)) && strcmp(node->param[k].tensor.name, "weight") == 0;
                CHECK(node->param[k].hidden == wanted, "%s: %s/%s", file[m], node->name, node->param[k].tensor.name);
                found += wanted;
            }
        }
        assert_true(found >= 3);
        test_train_close(&t);
    }
    test_train t;
    open_on(&t, NULL,
            "\"muon\", \"groups\": [{\"match\": \"up/*\", \"matrix\": false}, {\"match\": \"head/weight\", \"matrix\": "
            "true}]",
            NULL);
    for (int n = 0; n < t.network->node_count; n++) {
        const ckpt_node *const node = &t.network->node[n];
        const bool wanted = strcmp(node->name, "down") == 0 || strcmp(node->name, "head") == 0;
        assert_true(node->param_count == 0 || node->param[0].hidden == wanted);
    }
    test_train_close(&t);
}

/* A parameter has the group of its owner, so a group for it alone would say nothing. */
static const char tied[] =
    "{\"format\": \"ckpt-model/1\", \"name\": \"tied\", \"inputs\": ["
    "{\"name\": \"ids\", \"shape\": [3], \"dtype\": \"int32\"}, {\"name\": \"labels\", \"shape\": [3], \"dtype\": "
    "\"int32\"}],"
    "\"layers\": [{\"name\": \"embed\", \"op\": \"embedding\", \"in\": [\"ids\"], \"rows\": 9, \"features\": 4},"
    "{\"name\": \"head\", \"op\": \"linear\", \"features\": 9, \"bias\": false, \"tie\": \"embed\"},"
    "{\"name\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"head\", \"labels\"]}], \"optimizer\": {\"name\": %s}}";

static void groups_are_refused(void **state)
{
    static const char *const row[][2] = {
        {"\"sgd\", \"groups\": [{\"match\": \"*/nothing\"}]", "\"*/nothing\" matches no parameter"},
        {"\"sgd\", \"groups\": [{\"match\": \"*\"}, {\"match\": \"up/*\"}]", "\"up/*\" matches no parameter"},
        {"\"sgd\", \"groups\": [{\"match\": \"*\", \"lr\": -1}]", "found lr -1"},
        {"\"sgd\", \"groups\": [{\"match\": \"*\", \"decay\": 1}]", "found \"decay\""},
        {"\"sgd\", \"groups\": [{\"lr\": 1}]", "match"},
        {"\"sgd\", \"schedule\": {\"kind\": \"cosine\"}", "a cosine schedule has 0 steps"},
        {"\"sgd\", \"schedule\": {\"kind\": \"cosine\", \"every\": 2}", "found \"every\" of a cosine schedule"},
        {"\"sgd\", \"clip_schedule\": {\"kind\": \"linear\", \"steps\": 9}", "no clip_norm"},
        {"\"sgd\", \"ema\": 1", "ema 1"},
        {"\"sgd\", \"groups\": [{\"match\": \"head/*\"}]", "\"head/*\" matches no parameter"},
    };
    const size_t rows = sizeof row / sizeof *row; /* the last is of the other network */
    for (size_t i = 0; i < rows; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        char text[4096];
        const char *const path = ckpt_work_file("refused.json");
        const int length = snprintf(text, sizeof text, i + 1 < rows ? network : tied, row[i][0]);
        const ckpt_model *model = NULL;
        const ckpt_network *made = NULL;
        CHECK_OK(ckpt_file_write(path, text, (size_t)length, &err), err);
        ckpt_code code = ckpt_model_read(path, NULL, 0, &arena, &model, &err);
        code = code == CKPT_OK ? ckpt_network_infer(model, 1, &arena, &made, &err) : code;
        assert_int_equal(code, CKPT_BAD_INPUT);
        CHECK(strstr(err.msg, row[i][1]) != NULL, "\"%s\", wanted \"%s\"", err.msg, row[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_every_way),   cmocka_unit_test(whole_parameters_are_not_sharded),
        cmocka_unit_test(state_has_the_planned_bytes), cmocka_unit_test(groups_schedules_and_averages),
        cmocka_unit_test(clip_norm_has_a_schedule),    cmocka_unit_test(groups_are_refused),
        cmocka_unit_test(hidden_layers_are_found),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
