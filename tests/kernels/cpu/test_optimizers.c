/* labels: contract */
/* Compares every optimizer in the table with its formula in double, over several steps, with and without weight decay,
 * and the bits of different thread counts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/support/support_reference.h"
#include "tests/support/support_test.h"

enum { COUNT = 40003, STEPS = 7, SLOTS_MAX = 4, GUARD = 8 };

typedef struct order {
    const char *optimizer, *name[CKPT_HYPER_MAX];
} order;

static const order orders[] = {
    {"sgd", {"lr", "momentum", "nesterov", "weight_decay"}},
    {"adam", {"lr", "beta1", "beta2", "eps", "weight_decay"}},
    {"adamw", {"lr", "beta1", "beta2", "eps", "weight_decay"}},
    {"lion", {"lr", "beta1", "beta2", "weight_decay"}},
};

static void check_names(const ckpt_optimizer *optimizer)
{
    const order *o = orders;
    while (strcmp(o->optimizer, optimizer->name) != 0) {
        o++;
        assert_true(o < orders + sizeof orders / sizeof *orders);
    }
    for (int i = 0; i < CKPT_HYPER_MAX && (o->name[i] != NULL || optimizer->attrs[i].name != NULL); i++) {
        CHECK(o->name[i] != NULL && optimizer->attrs[i].name != NULL &&
                  strcmp(optimizer->attrs[i].name, o->name[i]) == 0,
              "hyperparameter %d of %s is not %s: this test's settings stand in another order", i, optimizer->name,
              o->name[i] != NULL ? o->name[i] : "there");
    }
}

/* Deterministic numbers in -1..1, unlike any of the formulas. */
static double noise(int64_t i, uint64_t step)
{
    return sin((double)i * 12.9898 + (double)step * 78.233);
}

static void run(ckpt_device *device, const ckpt_optimizer *optimizer, const double *hyper, bool decay,
                float result[COUNT + GUARD])
{
    static float param[COUNT + GUARD], grad[COUNT], slots[SLOTS_MAX][COUNT + GUARD];
    static uint16_t copy[COUNT + GUARD];
    static double want[COUNT], want_slots[COUNT][SLOTS_MAX];
    const int slot_count = optimizer->slots(hyper);
    float *slot[SLOTS_MAX];
    ckpt_err err = {0};
    assert_in_range(slot_count, 0, optimizer->slots_max);
    memset(slots, 0, sizeof slots);
    memset(want_slots, 0, sizeof want_slots);
    for (int k = 0; k < SLOTS_MAX; k++) {
        slot[k] = k < slot_count ? slots[k] : NULL;
    }
    for (int i = 0; i < COUNT + GUARD; i++) {
        param[i] = (float)noise(i, 0);
        copy[i] = 0xEEEE;
    }
    for (int i = 0; i < COUNT; i++) {
        want[i] = (double)param[i];
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            grad[i] = (float)(noise(i, step) * 0.1);
            CHECK(ckpt_reference_update(optimizer, hyper, decay, step, &want[i], (double)grad[i], want_slots[i]),
                  "optimizer %s has no reference in tests/support/support_reference.c", optimizer->name);
        }
        const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, hyper, step);
        ckpt_update_args args = {.hyper = hyper,
                                 .decay = decay,
                                 .count = COUNT,
                                 .param = param,
                                 .param16 = step % 2 == 0 ? copy : NULL,
                                 .grad = grad,
                                 .slot = slot};
        CHECK_OK(ckpt_device_update(device, optimizer, &numbers, &args, 1, &err), err);
        for (int i = 0; i < COUNT; i++) {
            /* Adam's quotient of two moments may double a rounding error each step; lr keeps it small. */
            const double bound = 2e-6 * (1 + fabs(want[i]));
            CHECK(fabs((double)param[i] - want[i]) <= bound, "%s, step %llu, value %d: %.9g, wanted %.9g",
                  optimizer->name, (unsigned long long)step, i, (double)param[i], want[i]);
            CHECK(step % 2 != 0 || copy[i] == ckpt_bfloat16_of(param[i]), "%s, step %llu, copy %d", optimizer->name,
                  (unsigned long long)step, i);
        }
    }
    for (int k = 0; k < slot_count; k++) {
        for (int i = 0; i < COUNT; i++) {
            CHECK(fabs((double)slots[k][i] - want_slots[i][k]) <= 2e-6 * (1 + fabs(want_slots[i][k])),
                  "%s, slot %d of value %d: %.9g, wanted %.9g", optimizer->name, k, i, (double)slots[k][i],
                  want_slots[i][k]);
        }
    }
    for (int i = COUNT; i < COUNT + GUARD; i++) {
        CHECK(param[i] == (float)noise(i, 0) && copy[i] == 0xEEEE, "%s writes behind the parameters", optimizer->name);
    }
    memcpy(result, param, sizeof param);
}

static void test_optimizers_against_formulas(void **state)
{
    static float one[COUNT + GUARD], three[COUNT + GUARD];
    for (int s = 0; s < ckpt_setting_count; s++) {
        const ckpt_optimizer *const optimizer = ckpt_optimizer_find(ckpt_settings[s].optimizer);
        CHECK(optimizer != NULL, "there is no optimizer %s", ckpt_settings[s].optimizer);
        check_names(optimizer);
        for (int decay = 0; decay < 2; decay++) {
            ckpt_err err = {0};
            ckpt_device *device = NULL;
            CHECK_OK(ckpt_device_open("cpu", 1, &device, &err), err);
            run(device, optimizer, ckpt_settings[s].hyper, decay != 0, one);
            ckpt_device_close(device);
            CHECK_OK(ckpt_device_open("cpu", 3, &device, &err), err);
            run(device, optimizer, ckpt_settings[s].hyper, decay != 0, three);
            ckpt_device_close(device);
            CHECK(memcmp(one, three, sizeof one) == 0, "%s: three threads give other bits than one",
                  ckpt_settings[s].optimizer);
        }
    }
}

/* Three steps from the same numbers; `factor` multiplies the gradients beforehand. */
static void run_scaled(ckpt_device *device, const ckpt_setting *s, float factor, const float *scale, float *values)
{
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
    static float grad[COUNT];
    float *slot[SLOTS_MAX];
    ckpt_err err = {0};
    memset(values, 0, sizeof(float) * COUNT * (1 + SLOTS_MAX));
    for (int k = 0; k < SLOTS_MAX; k++) {
        slot[k] = values + COUNT * (1 + k);
    }
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)noise(i, 0);
    }
    for (uint64_t step = 1; step <= 3; step++) {
        for (int i = 0; i < COUNT; i++) {
            grad[i] = (float)(noise(i, step) * 0.1) * factor;
        }
        ckpt_update_args args = {.hyper = s->hyper,
                                 .decay = true,
                                 .count = COUNT,
                                 .param = values,
                                 .grad = grad,
                                 .scale = scale,
                                 .slot = slot};
        const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, s->hyper, step);
        CHECK_OK(ckpt_device_update(device, optimizer, &numbers, &args, 1, &err), err);
    }
}

/* A scale of 1 changes no bit; another multiplies gradients in float, bit for bit. */
static void test_scaled_gradients(void **state)
{
    static float without[COUNT * (1 + SLOTS_MAX)], with[COUNT * (1 + SLOTS_MAX)];
    static const float scales[] = {1.0f, 0.3f, 1.0f / 3.0f, 0.0f, 1024.0f, -1.0f};
    ckpt_err err = {0};
    ckpt_device *device = NULL;
    CHECK_OK(ckpt_device_open("cpu", 2, &device, &err), err);
    for (int s = 0; s < ckpt_setting_count; s++) {
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
            run_scaled(device, &ckpt_settings[s], scales[k], NULL, without);
            run_scaled(device, &ckpt_settings[s], 1.0f, &scales[k], with);
            CHECK(memcmp(without, with, sizeof with) == 0, "%s: a scale of %g gives other bits",
                  ckpt_settings[s].optimizer, (double)scales[k]);
        }
    }
    ckpt_device_close(device);
}

static void test_every_optimizer_has_a_setting(void **state)
{
    for (const ckpt_optimizer *const *optimizer = ckpt_optimizer_table; *optimizer != NULL; optimizer++) {
        int found = 0;
        for (int s = 0; s < ckpt_setting_count; s++) {
            found += strcmp(ckpt_settings[s].optimizer, (*optimizer)->name) == 0;
        }
        for (int s = 0; s < ckpt_whole_setting_count; s++) {
            found += strcmp(ckpt_whole_settings[s].optimizer, (*optimizer)->name) == 0;
        }
        CHECK(found > 0, "optimizer %s has no setting in a test", (*optimizer)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_optimizer_has_a_setting),
        cmocka_unit_test(test_optimizers_against_formulas),
        cmocka_unit_test(test_scaled_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
