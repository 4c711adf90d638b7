/* labels: contract */
/* Whole networks: the gradient of every parameter against the change of the loss along it. Identity with keep-all
 * cannot see an error that every plan makes (a missing accumulation, a wrong buffer); this can.
 *
 * Along d = g / |g| the loss changes by |g|: (L(w + h d) - L(w - h d)) / 2h = |g| + O(h^2 L''') + O(eps L / h). With
 * h |g| = 5e-4 and losses near 2, a loss wrong by 10 ulp (2e-6) is 4e-3 of |g|; the rest of the bound of 8 % is for
 * the kinks of ReLU and max pooling and for batch norm over few values. */
#include "tests/support_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support_train.h"

enum { SEED = 21 };

/* One step from the start with parameter k of `node` replaced (NULL: as initialised); its gradient when asked. */
static double loss_with(const test_train *t, const ckpt_plan *plan, int node, int k, const float *value, float *was,
                        float *grad)
{
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    const ckpt_executor_options options = {.seed = SEED};
    CHECK_OK(ckpt_executor_create(t->device, t->lowered, plan, &options, &executor, &err), err);
    if (was != NULL) {
        CHECK_OK(ckpt_executor_param(executor, node, k, was, &err), err);
    }
    if (value != NULL) {
        CHECK_OK(ckpt_executor_param_set(executor, node, k, value, &err), err);
    }
    ckpt_data *data = NULL;
    CHECK_OK(ckpt_data_open("synthetic", t->model, t->limit, SEED, &data, &err), err);
    void *input[TEST_TRAIN_INPUTS];
    for (int i = 0; i < t->model->input_count; i++) {
        input[i] = ckpt_executor_input(executor, i);
    }
    ckpt_data_fill(data, 0, input);
    float loss = 0;
    CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
    if (grad != NULL) {
        CHECK_OK(ckpt_executor_grad(executor, node, k, grad, &err), err);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
    return (double)loss;
}

/* 1 when there was enough gradient to see. */
static int check_param(const test_train *t, const ckpt_plan *plan, const char *file, bool smooth, int node, int k)
{
    const ckpt_node *const n = &t->lowered->network->node[node];
    const size_t count = (size_t)ckpt_shape_count(&n->param[k].tensor.shape);
    float *const was = calloc(count, sizeof *was), *const grad = calloc(count, sizeof *grad);
    float *const moved = calloc(count, sizeof *moved);
    assert_true(was != NULL && grad != NULL && moved != NULL);
    loss_with(t, plan, node, k, NULL, was, grad);
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        square += (double)grad[i] * (double)grad[i];
    }
    const double norm = sqrt(square);
    const bool seen = norm > (smooth ? 5e-3 : 5e-2);
    if (seen) {
        const double h = fmin(5e-4 / norm, smooth ? 5e-2 : 5e-3);
        double loss[2];
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < count; i++) {
                moved[i] = (float)((double)was[i] + (side == 0 ? h : -h) * (double)grad[i] / norm);
            }
            loss[side] = loss_with(t, plan, node, k, moved, NULL, NULL);
        }
        const double found = (loss[0] - loss[1]) / (2 * h);
        CHECK(fabs(found - norm) < 0.08 * norm, "%s: %s, parameter %d: |gradient| %g, but the loss changes by %g", file,
              n->name, k, norm, found);
    }
    free(was);
    free(grad);
    free(moved);
    return seen;
}

/* `smooth`: no ReLU and no max pooling, so that wider steps can see smaller gradients. */
static void check_model(const char *file, const char *set, bool smooth, int at_least)
{
    test_train t;
    test_train_open(&t, file, set);
    const ckpt_plan *const plan = test_train_hand_plan(&t, true, false);
    int seen = 0;
    for (int n = 0; n < t.lowered->network->node_count; n++) {
        for (int k = 0; k < t.lowered->network->node[n].param_count; k++) {
            if (t.lowered->network->node[n].param[k].tied < 0) {
                seen += check_param(&t, plan, file, smooth, n, k);
            }
        }
    }
    CHECK(seen >= at_least, "%s: only %d parameters have a gradient worth testing", file, seen);
    print_message("%s: %d parameters\n", file, seen);
    test_train_close(&t);
}

static void forked(void **state)
{
    (void)state;
    check_model("tests/models/fork.json", "", true, 4);
}

static void gpt(void **state)
{
    (void)state;
    check_model("models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=2 heads=2 vocabulary=16", true, 12);
}

static void resnet(void **state)
{
    (void)state;
    check_model("tests/models/resnet-small.json", "size=16", false, 25);
}

static void unet(void **state)
{
    (void)state;
    check_model("tests/models/unet-small.json", "", false, 8);
}

static void lstm(void **state)
{
    (void)state;
    check_model("models/lstm.json", "batch=2 hidden=8", true, 4);
}

static void densenet(void **state)
{
    (void)state;
    check_model("models/densenet-bc-100-12-dropout.json", "batch=8 size=8 growth=4 layers=2", false, 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked), cmocka_unit_test(gpt),  cmocka_unit_test(resnet),
        cmocka_unit_test(unet),   cmocka_unit_test(lstm), cmocka_unit_test(densenet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
