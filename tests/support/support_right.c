/* What the tests named after failures of checkpointing share. */
#include "tests/support/support_right.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/device_model.h"
#include "tests/support/support_core.h"

enum { SEED = 19 };

static void spread(test_train *t, const ckpt_scheme *scheme)
{
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    const ckpt_device_model *roofline = NULL;
    CHECK_OK(ckpt_network_spread(t->lowered->network, scheme, &t->arena, &network, &err), err);
    CHECK_OK(ckpt_device_model_find("h200", &t->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, roofline, &t->arena, &t->lowered, &err), err);
}

void test_right_open(test_train *t, const char *file, const char *members, const ckpt_scheme *scheme)
{
    char text[8192];
    const int length =
        snprintf(text, sizeof text, "{ \"format\": \"ckpt-model/1\", \"name\": \"right\", %s }", members);
    assert_true(length > 0 && (size_t)length < sizeof text);
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    test_train_open(t, ckpt_test_file(file, text, (size_t)length), "");
    if (scheme != NULL) {
        spread(t, scheme);
    }
}

int test_right_runs(const ckpt_plan *plan, const test_train *t, const char *layer)
{
    const size_t length = strlen(layer);
    int runs = 0;
    for (int s = 0; s < plan->step_count; s++) {
        if (plan->step[s].kind != CKPT_RUN) {
            continue;
        }
        const ckpt_graph_op *const op = &t->lowered->graph->op[plan->step[s].target];
        runs += op->phase == CKPT_FORWARD && strncmp(op->layer, layer, length) == 0 &&
                (op->layer[length] == '\0' || op->layer[length] == '@');
    }
    return runs;
}

void test_right_start(test_right_executor *e, const test_train *t, const ckpt_plan *plan, uint64_t seed)
{
    const ckpt_executor_options options = {.seed = seed, .poison = true};
    *e = (test_right_executor){
        .t = t, .executor = test_train_executor(t, plan, &options), .data = test_train_data(t, seed)};
}

void test_right_fill(test_right_executor *e)
{
    test_train_feed(e->t, e->data, e->executor);
}

float test_right_step(test_right_executor *e)
{
    return test_train_step(e->t, e->data, e->executor);
}

void test_right_end(test_right_executor *e)
{
    ckpt_data_close(e->data);
    ckpt_executor_destroy(e->executor);
}

int test_right_node(const test_train *t, const char *name)
{
    const ckpt_network *const network = t->lowered->network;
    for (int n = 0; n < network->node_count; n++) {
        if (strcmp(network->node[n].name, name) == 0) {
            return n;
        }
    }
    fail_msg("there is no layer %s", name);
    return -1;
}

typedef ckpt_code read_function(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err);

static double *read_all(test_right_executor *e, const char *layer, int k, const ckpt_tensor *tensor,
                        read_function *read, int *count)
{
    enum { MOST = 1 << 14 };
    static float host[MOST];
    ckpt_err err = {0};
    *count = (int)ckpt_shape_count(&tensor->shape);
    assert_in_range(*count, 1, MOST);
    double *const values = CKPT_NEW((ckpt_arena *)(uintptr_t)&e->t->arena, double, *count);
    assert_non_null(values);
    CHECK_OK(read(e->executor, test_right_node(e->t, layer), k, host, &err), err);
    for (int i = 0; i < *count; i++) {
        values[i] = (double)host[i];
    }
    return values;
}

static const ckpt_node *node_of(const test_right_executor *e, const char *layer)
{
    return &e->t->lowered->network->node[test_right_node(e->t, layer)];
}

double *test_right_param(test_right_executor *e, const char *layer, int k, int *count)
{
    return read_all(e, layer, k, &node_of(e, layer)->param[k].tensor, ckpt_executor_param, count);
}

double *test_right_grad(test_right_executor *e, const char *layer, int k, int *count)
{
    return read_all(e, layer, k, &node_of(e, layer)->param[k].tensor, ckpt_executor_grad, count);
}

double *test_right_statistic(test_right_executor *e, const char *layer, int k, int *count)
{
    return read_all(e, layer, k, &node_of(e, layer)->stat[k].tensor, ckpt_executor_statistic, count);
}

void test_right_near(const double *found, const double *wanted, int count, double bound, const char *what)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
    }
    for (int i = 0; i < count; i++) {
        CHECK(fabs(found[i] - wanted[i]) <= bound * (1 + most), "%s: value %d of %d is %.9g, wanted %.9g", what, i,
              count, found[i], wanted[i]);
    }
}

void test_right_same_bits(test_train *t, const char *recomputed, const char *what)
{
    static const char *const strategy[] = {"flags", "recompute-all"};
    const int batches = t->lowered->network->scheme.micro_batches;
    test_record wanted, found;
    test_train_run(t, &(test_run){.plan = test_train_plan(t, "keep-all", 0), .seed = SEED}, &wanted);
    for (size_t s = 0; s < sizeof strategy / sizeof strategy[0]; s++) {
        const ckpt_plan *const plan = test_train_plan(t, strategy[s], 0);
        char layers[256], line[256];
        (void)snprintf(layers, sizeof layers, "%s", recomputed);
        (void)snprintf(line, sizeof line, "%s, %s", what, strategy[s]);
        for (char *layer = strtok(layers, " "); layer != NULL; layer = strtok(NULL, " ")) {
            CHECK(s > 0 || test_right_runs(plan, t, layer) >= 2 * batches, "%s: %s does not run again", line, layer);
        }
        test_train_run(t, &(test_run){.plan = plan, .seed = SEED, .poison = true}, &found);
        test_record_same(&wanted, &found, 0, line);
    }
}
