/* labels: contract */
/* Three whole networks against PyTorch: losses of three training steps (so the optimizers too), every gradient of the
 * first step, and batch-norm statistics. The reference files are made by tests/pytorch/make_reference.py in float64
 * from the same starting values; here they are trained by a keep-all plan and by a recomputing one. */
#include "tests/support/support_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "executor/executor.h"
#include "planner/api/planner.h"
#include "planner/replay/replay.h"

/* float32 against float64 through about 30 layers: each adds a relative error near 2^-24, sums of up to 100 terms
 * a few times that. The bounds leave a factor of ten. */
static const double LOSS_BOUND = 2e-6, GRADIENT_BOUND = 2e-5;

/* As value() in make_reference.py. */
static float value(int64_t i, int salt)
{
    return (float)((double)((i * 7919 + salt * 104729 + 13) % 2003) / 2003.0 - 0.5);
}

static int32_t token(int64_t i, int salt, int limit)
{
    return (int32_t)((i * 31 + salt * 17 + 5) % limit);
}

/* Reference numbers are in PyTorch's order; a rank-4 input lies channels last. */
static void fill_images(const ckpt_tensor *tensor, int salt, float *to)
{
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(&tensor->shape, stride);
    const int64_t *const dim = tensor->shape.dim;
    const int rank = tensor->shape.rank;
    for (int64_t i = 0; i < ckpt_shape_count(&tensor->shape); i++) {
        int64_t left = i, at = 0;
        for (int d = rank - 1; d >= 0; d--) {
            at += left % dim[d] * stride[d];
            left /= dim[d];
        }
        to[at] = value(i, salt);
    }
}

static void fill_inputs(const char *name, const ckpt_model *model, ckpt_executor *executor)
{
    void *const first = ckpt_executor_input(executor, 0);
    void *const second = ckpt_executor_input(executor, 1);
    const int64_t firsts = ckpt_shape_count(&model->input[0].shape);
    const int64_t seconds = ckpt_shape_count(&model->input[1].shape);
    if (strcmp(name, "tiny-gpt") == 0) {
        for (int64_t i = 0; i < firsts; i++) {
            ((int32_t *)first)[i] = token(i, 1, 11);
            ((int32_t *)second)[i] = token(i, 2, 11);
        }
    } else if (strcmp(name, "tiny-resnet") == 0) {
        fill_images(&model->input[0], 100, first);
        for (int64_t i = 0; i < seconds; i++) {
            ((int32_t *)second)[i] = token(i, 3, 5);
        }
    } else {
        fill_images(&model->input[0], 200, first);
        fill_images(&model->input[1], 201, second);
    }
}

static void set_parameters(const ckpt_network *network, ckpt_executor *executor)
{
    int salt = 0;
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < network->node[n].param_count; k++) {
            const ckpt_param *const param = &network->node[n].param[k];
            if (param->tied >= 0) {
                continue;
            }
            const int64_t count = ckpt_shape_count(&param->tensor.shape);
            float *const start = ckpt_memory_get((size_t)count * sizeof *start);
            assert_non_null(start);
            for (int64_t i = 0; i < count; i++) {
                start[i] = value(i, salt) * 0.4f + (param->init == CKPT_INIT_ONE ? 1.0f : 0.0f);
            }
            salt++;
            ckpt_err err = {0};
            CHECK_OK(ckpt_executor_param_set(executor, n, k, start, &err), err);
            ckpt_memory_put(start);
        }
    }
}

/* |found - wanted| against the largest wanted value of the tensor: gradients of one tensor come from the same sums. The
 * floor is for sums that cancel exactly (a bias before batch norm): what is left is the rounding of their terms. */
static void compare(const char *what, const char *key, const ckpt_item *wanted, const float *found, int64_t count,
                    double bound)
{
    CHECK(ckpt_item_count(wanted) == count, "%s %s: %d numbers in the reference, %lld here", what, key,
          ckpt_item_count(wanted), (long long)count);
    double largest = 0.05;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            ckpt_item item;
            double number = 0;
            ckpt_err err = {0};
            ckpt_item_at(wanted, i, &item);
            CHECK_OK(ckpt_item_real(&item, &number, &err), err);
            if (pass == 0) {
                largest = fmax(largest, fabs(number));
            } else {
                CHECK(fabs((double)found[i] - number) <= bound * largest, "%s %s[%d]: %.9g, PyTorch %.9g", what, key, i,
                      (double)found[i], number);
            }
        }
    }
}

static void compare_gradients(const ckpt_item *root, const ckpt_network *network, ckpt_executor *executor)
{
    ckpt_item gradients;
    ckpt_err err = {0};
    CHECK_OK(ckpt_item_need(root, "gradients", &gradients, &err), err);
    int compared = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                continue;
            }
            char key[128];
            snprintf(key, sizeof key, "%s.%s", node->name, node->param[k].tensor.name);
            ckpt_item wanted;
            CHECK_OK(ckpt_item_need(&gradients, key, &wanted, &err), err);
            const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
            float *const found = ckpt_memory_get((size_t)count * sizeof *found);
            assert_non_null(found);
            CHECK_OK(ckpt_executor_grad(executor, n, k, found, &err), err);
            compare("gradient", key, &wanted, found, count, GRADIENT_BOUND);
            ckpt_memory_put(found);
            compared++;
        }
    }
    int walk = 0;
    ckpt_item item;
    int wanted_count = 0;
    while (ckpt_item_next(&gradients, &walk, &item)) {
        wanted_count++;
    }
    CHECK(compared == wanted_count, "%d parameters here, %d in the reference", compared, wanted_count);
}

static void compare_statistics(const ckpt_item *root, const ckpt_network *network, ckpt_executor *executor)
{
    ckpt_item statistics;
    ckpt_err err = {0};
    CHECK_OK(ckpt_item_need(root, "statistics", &statistics, &err), err);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->stat_count; k++) {
            char key[128];
            snprintf(key, sizeof key, "%s.%s", node->name, node->stat[k].tensor.name);
            ckpt_item wanted;
            CHECK_OK(ckpt_item_need(&statistics, key, &wanted, &err), err);
            const int64_t count = ckpt_shape_count(&node->stat[k].tensor.shape);
            float *const found = ckpt_memory_get((size_t)count * sizeof *found);
            assert_non_null(found);
            CHECK_OK(ckpt_executor_statistic(executor, n, k, found, &err), err);
            compare("statistic", key, &wanted, found, count, GRADIENT_BOUND);
            ckpt_memory_put(found);
        }
    }
}

static void train(const char *name, const char *strategy)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    char path[512];

    snprintf(path, sizeof path, "%s/tests/pytorch/%s.reference.json", ckpt_source_dir(), name);
    ckpt_json *json = NULL;
    ckpt_item root;
    CHECK_OK(ckpt_json_open(path, NULL, &json, &root, &err), err);

    snprintf(path, sizeof path, "%s/tests/pytorch/%s.model.json", ckpt_source_dir(), name);
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    const ckpt_lowered *lowered = NULL;
    ckpt_plan *plan = NULL;
    const ckpt_device_model *costs = NULL;
    CHECK_OK(ckpt_model_read(path, NULL, 0, &arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, 2, &arena, &network, &err), err);
    CHECK_OK(ckpt_device_model_find("cpu", &arena, &costs, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, costs, &arena, &lowered, &err), err);
    const ckpt_plan_options options = {0};
    CHECK_OK(ckpt_plan_make(lowered->graph, strategy, &options, &arena, &plan, &err), err);
    assert_int_equal(plan->verdict, CKPT_FITS);

    ckpt_device *device = NULL;
    ckpt_executor *executor = NULL;
    const ckpt_executor_options how = {.seed = 1, .poison = true};
    CHECK_OK(ckpt_device_open("cpu", 2, &device, &err), err);
    CHECK_OK(ckpt_executor_create(device, lowered, plan, &how, &executor, &err), err);
    set_parameters(network, executor);

    ckpt_item losses;
    CHECK_OK(ckpt_item_need(&root, "losses", &losses, &err), err);
    assert_int_equal(ckpt_item_count(&losses), 3);
    for (int step = 0; step < 3; step++) {
        fill_inputs(name, model, executor);
        float loss = 0;
        CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
        ckpt_item item;
        double wanted = 0;
        ckpt_item_at(&losses, step, &item);
        CHECK_OK(ckpt_item_real(&item, &wanted, &err), err);
        CHECK(fabs((double)loss - wanted) <= LOSS_BOUND * (step + 1) * fabs(wanted),
              "%s by %s, step %d: loss %.9g, PyTorch %.9g", name, strategy, step, (double)loss, wanted);
        if (step == 0) {
            compare_gradients(&root, network, executor);
        }
    }
    compare_statistics(&root, network, executor);

    ckpt_executor_destroy(executor);
    ckpt_device_close(device);
    ckpt_json_close(json);
}

static void test_networks(void **state)
{
    static const char *const networks[] = {"tiny-gpt", "tiny-resnet", "tiny-mix"};
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        train(networks[i], "keep-all");
        train(networks[i], "recompute-all");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_networks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
