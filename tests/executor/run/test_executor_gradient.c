/* labels: contract */
/* Whole networks: the gradient of every parameter against the change of the loss along it. Identity with keep-all
 * cannot see an error that every plan makes (a missing accumulation, a wrong buffer); this can.
 *
 * Along g / |g| the loss changes by |g|: D(h) = (L(w + h g/|g|) - L(w - h g/|g|)) / 2h = |g| + O(h^2), and
 * R = (4 D(h) - D(2h)) / 3 = |g| + O(h^4). The step is chosen by what the loss should change, h |g| = DELTA. What R may
 * differ by, relative to |g|:
 *   NOISE_ULPS ulp(L) / DELTA   losses are float32, and the sums behind them round too: 4e-3 for losses in 4..8
 *   |D(h) - D(2h)|              what R took out; it sees how curved the loss is, not whether g is right
 * ReLU and max pooling have kinks, where none of that holds: there the network is tested with GELU and average pooling
 * in their place, tightly, and as it is with a step so small that few kinks are crossed. The largest error of the
 * difference quotients of these networks is 2.7 % then (noise included), and the bound KINKED. */
#include "tests/support/support_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "tests/support/support_core.h"
#include "tests/support/support_train.h"

enum { SEED = 21, NOISE_ULPS = 4 };
static const double DELTA = 5e-4, KINKED_DELTA = 1.25e-4, KINKED = 0.04;
/* A difference quotient that has not settled to this says nothing about the gradient. */
static const double SETTLED = 0.02;

typedef struct network {
    test_train t;
    const char *file;
    const ckpt_plan *plan;
    ckpt_executor *start, *stepped; /* as initialised; after one step, with its gradients */
    double loss;
    bool smooth;
} network;

static ckpt_executor *create(const network *w)
{
    return test_train_executor(&w->t, w->plan, &(ckpt_executor_options){.seed = SEED});
}

static double step(const network *w, ckpt_executor *executor)
{
    ckpt_data *const data = test_train_data(&w->t, SEED);
    const double loss = (double)test_train_step(&w->t, data, executor);
    ckpt_data_close(data);
    return loss;
}

/* One parameter of one layer, where it starts and its gradient. */
typedef struct direction {
    const network *w;
    int node, k;
    size_t count;
    const float *start, *grad;
    float *moved;
    double norm;
} direction;

static double loss_at(const direction *d, double h)
{
    for (size_t i = 0; i < d->count; i++) {
        d->moved[i] = (float)((double)d->start[i] + h * (double)d->grad[i] / d->norm);
    }
    ckpt_err err = {0};
    ckpt_executor *const executor = create(d->w);
    CHECK_OK(ckpt_executor_param_set(executor, d->node, d->k, d->moved, &err), err);
    const double loss = step(d->w, executor);
    ckpt_executor_destroy(executor);
    return loss;
}

/* D(h) / |g|, which should be 1. */
static double quotient(const direction *d, double delta)
{
    const double h = delta / d->norm;
    return (loss_at(d, h) - loss_at(d, -h)) / (2 * delta);
}

static void check_direction(const direction *d)
{
    const char *const file = d->w->file;
    const ckpt_node *const node = &d->w->t.lowered->network->node[d->node];
    if (!d->w->smooth) {
        const double found = quotient(d, KINKED_DELTA);
        CHECK(fabs(found - 1) < KINKED, "%s: %s, parameter %d: |gradient| is %g, but the loss changes by %g times that",
              file, node->name, d->k, d->norm, found);
        return;
    }
    const double fine = quotient(d, DELTA), coarse = quotient(d, 2 * DELTA);
    const double ulp = ldexp((double)FLT_EPSILON, (int)floor(log2(d->w->loss)));
    const double curved = fabs(fine - coarse), allowed = NOISE_ULPS * ulp / DELTA + curved;
    CHECK(curved < SETTLED, "%s: %s, parameter %d: difference quotients are %g and %g times |gradient| = %g", file,
          node->name, d->k, fine, coarse, d->norm);
    const double found = (4 * fine - coarse) / 3;
    CHECK(fabs(found - 1) < allowed,
          "%s: %s, parameter %d: |gradient| is %g, but the loss changes by 1 %+g times that "
          "(allowed: %g)",
          file, node->name, d->k, d->norm, found - 1, allowed);
}

/* 1 when there was enough gradient to see. */
static int check_param(const network *w, int node, int k)
{
    ckpt_err err = {0};
    const size_t count = (size_t)ckpt_shape_count(&w->t.lowered->network->node[node].param[k].tensor.shape);
    float *const start = calloc(count, sizeof *start), *const grad = calloc(count, sizeof *grad);
    float *const moved = calloc(count, sizeof *moved);
    assert_true(start != NULL && grad != NULL && moved != NULL);
    CHECK_OK(ckpt_executor_param(w->start, node, k, start, &err), err);
    CHECK_OK(ckpt_executor_grad(w->stepped, node, k, grad, &err), err);
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        square += (double)grad[i] * (double)grad[i];
    }
    const direction d = {w, node, k, count, start, grad, moved, sqrt(square)};
    const bool seen = d.norm > (w->smooth ? 5e-4 : 5e-2); /* smaller ones would need steps beyond the weights' size */
    if (seen) {
        check_direction(&d);
    }
    free(start);
    free(grad);
    free(moved);
    return seen;
}

static void check_model(const char *file, const char *set, bool smooth, int at_least)
{
    network w = {.file = file, .smooth = smooth};
    test_train_open(&w.t, file, set);
    w.plan = test_train_hand_plan(&w.t, true, false);
    w.start = create(&w);
    w.stepped = create(&w);
    w.loss = step(&w, w.stepped);
    int seen = 0;
    for (int n = 0; n < w.t.lowered->network->node_count; n++) {
        for (int k = 0; k < w.t.lowered->network->node[n].param_count; k++) {
            if (w.t.lowered->network->node[n].param[k].tied < 0) {
                seen += check_param(&w, n, k);
            }
        }
    }
    CHECK(seen >= at_least, "%s: only %d parameters have a gradient worth testing", file, seen);
    print_message("%s: %d parameters\n", file, seen);
    ckpt_executor_destroy(w.start);
    ckpt_executor_destroy(w.stepped);
    test_train_close(&w.t);
}

/* The file with smooth ops instead of those with kinks. */
static const char *smoothed(const char *file)
{
    static const char *const change[][2] = {
        {"\"relu6\"", "\"gelu\""}, {"\"relu\"", "\"gelu\""}, {"\"maxpool2d\"", "\"avgpool2d\""}};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const char *text = NULL;
    size_t length = 0;
    CHECK_OK(ckpt_file_read(ckpt_arena_format(&arena, "%s/%s", ckpt_source_dir(), file), &arena, &text, &length, &err),
             err);
    for (size_t i = 0; i < sizeof change / sizeof change[0]; i++) {
        while (strstr(text, change[i][0]) != NULL) {
            text = ckpt_test_replace(text, change[i][0], change[i][1]);
        }
    }
    const char *const path = ckpt_test_file("smoothed.json", text, strlen(text));
    ckpt_arena_fini(&arena);
    return path;
}

static void forked(void **state)
{
    check_model("tests/models/fork.json", "", true, 6);
}

/* Losses that other layers read, some twice, have the gradients that come from there; one that nothing reads has none. */
static void losses(void **state)
{
    check_model("tests/models/losses.json", "", true, 6);
}

static void gpt(void **state)
{
    check_model("models/byte-gpt.json", "batch=2 tokens=8 hidden=16 blocks=2 heads=2 vocabulary=16", true, 28);
}

static void resnet(void **state)
{
    check_model("tests/models/resnet-small.json", "size=16", false, 25);
    check_model(smoothed("tests/models/resnet-small.json"), "size=16", true, 34);
}

static void unet(void **state)
{
    check_model("tests/models/unet-small.json", "", false, 8);
    check_model(smoothed("tests/models/unet-small.json"), "", true, 16);
}

static void lstm(void **state)
{
    check_model("models/lstm.json", "batch=2 hidden=8", true, 7);
}

static void densenet(void **state)
{
    const char *const set = "batch=8 size=8 growth=4 layers=2";
    check_model("models/densenet-bc-100-12-dropout.json", set, false, 25);
    check_model(smoothed("models/densenet-bc-100-12-dropout.json"), set, true, 47);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked), cmocka_unit_test(losses), cmocka_unit_test(gpt),      cmocka_unit_test(resnet),
        cmocka_unit_test(unet),   cmocka_unit_test(lstm),   cmocka_unit_test(densenet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
