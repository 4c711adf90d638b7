/* labels: contract gpu; takes 25 s; on a GPU: 60 s, together */
/* Optimizers that update a parameter as a whole, on the CPU and on every GPU: each step against the formula in double, from
 * the state that the device had before it; nothing written behind a buffer, a workspace of exactly the stated bytes, the
 * same bits with other threads, in another order of them and with gradients that were scaled before. Bound of a value:
 * 4e-6 (1 + |want|), a rounding or two of each of the formula's operations, those of Newton and Schulz times lr. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/whole_update.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_reference.h"
#include "tests/support/support_test.h"

enum { COUNT_MAX = 12600, STEPS = 2, GUARD = 64, ROOM = 1 << 20 };
enum { PARAM, GRAD, COPY, SLOT0, SLOT1, WORK, SCALE, PARTS };

static const ckpt_matrix cases[] = {
    {1, 1, 1, true},     {1, 1, 7, false},  {1, 1, 5000, false}, {1, 5000, 1, false}, {1, 33, 65, true},
    {1, 70, 19, true},   {1, 70, 66, true}, {3, 20, 11, true},   {2, 1, 300, true},   {1, 40, 130, false},
    {1, 3, 4200, false}, {4, 9, 16, false}, {1, 2, 2, true},
};

typedef struct trial {
    ckpt_device *device;
    const char *name;
    const ckpt_setting *setting;
    const ckpt_optimizer *optimizer;
    ckpt_matrix matrix;
    bool decay, half;
    float scale, factor; /* on the device, of gradients; of the gradients beforehand */
    ckpt_bytes at[PARTS + 1], bytes[PARTS];
} trial;

static unsigned char image[ROOM];

static int64_t count_of(const trial *t)
{
    return t->matrix.stack * t->matrix.rows * t->matrix.columns;
}

static float noise(int64_t i, int step)
{
    return (float)sin((double)i * (double)i * 0.37 + (double)i * 12.9898 + step * 78.233);
}

static float *floats(const trial *t, int part)
{
    return (float *)(void *)(image + t->at[part]);
}

static void lay_out(trial *t)
{
    const int64_t count = count_of(t);
    const ckpt_bytes bytes[PARTS] = {
        4 * count,
        4 * count,
        t->half ? 2 * count : 0,
        t->optimizer->slot_bytes(&t->matrix, 0),
        t->optimizer->slot_bytes(&t->matrix, 1),
        t->optimizer->workspace != NULL ? t->optimizer->workspace(&t->matrix, t->device->api->gpu) : 0,
        4,
    };
    t->at[0] = 0;
    for (int p = 0; p < PARTS; p++) {
        t->bytes[p] = bytes[p];
        t->at[p + 1] = t->at[p] + ckpt_round_up(bytes[p], CKPT_ALIGN) + GUARD;
    }
    assert_true(count <= COUNT_MAX && t->at[PARTS] <= ROOM);
    memset(image, 0xEE, sizeof image);
    memset(image + t->at[SLOT0], 0, (size_t)t->bytes[SLOT0]);
    memset(image + t->at[SLOT1], 0, (size_t)t->bytes[SLOT1]);
    for (int64_t i = 0; i < count; i++) {
        floats(t, PARAM)[i] = noise(i, 0);
    }
    floats(t, SCALE)[0] = t->scale;
}

/* The values of a slot; of moments in 8 bits what they stand for. */
static int64_t read_slot(const trial *t, int slot, double *to)
{
    const int64_t count = count_of(t);
    const bool eight = strcmp(t->optimizer->name, "adamw8bit") == 0 && ckpt_eight_bit_takes(count);
    const unsigned char *const from = image + t->at[SLOT0 + slot];
    const int64_t values = eight ? count : t->bytes[SLOT0 + slot] / 4;
    for (int64_t i = 0; i < values; i++) {
        float x;
        memcpy(&x, from + (eight ? ckpt_eight_bit_scale(count) + i / CKPT_EIGHT_BIT_BLOCK * 4 : i * 4), 4);
        to[i] = eight ? (double)ckpt_eight_bit_value(from[i], slot == 0) * (double)x : (double)x;
    }
    return values;
}

/* Half a cell of the map at a share of the scale: a ninth of a decade and less, or what lies below the first cell. */
static double half_cell(double share, bool is_signed)
{
    double half = 1e-7;
    for (int e = 0; e < 7; e++) {
        const double decade = pow(10, e - 6);
        half = share > 0.0999999 * decade ? 0.45 * decade / ((is_signed ? 1 : 2) << e) : half;
    }
    return half;
}

static void check_slot(const trial *t, int step, int slot, const double *want)
{
    static double found[COUNT_MAX];
    const int64_t count = read_slot(t, slot, found);
    const bool eight = strcmp(t->optimizer->name, "adamw8bit") == 0 && ckpt_eight_bit_takes(count);
    for (int64_t first = 0; first < count; first += CKPT_EIGHT_BIT_BLOCK) {
        const int64_t end = first + CKPT_EIGHT_BIT_BLOCK < count ? first + CKPT_EIGHT_BIT_BLOCK : count;
        double most = 0;
        for (int64_t i = first; i < end; i++) {
            most = fabs(want[i]) > most ? fabs(want[i]) : most;
        }
        for (int64_t i = first; i < end; i++) {
            const double bound = eight ? most * (half_cell(fabs(want[i]) / most, slot == 0) * 1.0001 + 1e-6)
                                       : 4e-6 * (1 + fabs(want[i]));
            CHECK(fabs(found[i] - want[i]) <= bound,
                  "%s on %s, %lld x %lld x %lld, step %d, slot %d, value %lld: %.9g, wanted %.9g", t->optimizer->name,
                  t->name, (long long)t->matrix.stack, (long long)t->matrix.rows, (long long)t->matrix.columns, step,
                  slot, (long long)i, found[i], want[i]);
        }
    }
}

static void check_step(const trial *t, int step, const double *param, double *const *slot)
{
    const int64_t count = count_of(t);
    for (int64_t i = 0; i < count; i++) {
        const double found = (double)floats(t, PARAM)[i];
        CHECK(fabs(found - param[i]) <= 4e-6 * (1 + fabs(param[i])),
              "%s on %s, %lld x %lld x %lld, step %d, value %lld: %.9g, wanted %.9g", t->optimizer->name, t->name,
              (long long)t->matrix.stack, (long long)t->matrix.rows, (long long)t->matrix.columns, step, (long long)i,
              found, param[i]);
        uint16_t copy = 0;
        if (t->half) {
            memcpy(&copy, image + t->at[COPY] + 2 * i, 2);
            assert_int_equal(copy, ckpt_bfloat16_of(floats(t, PARAM)[i]));
        }
    }
    check_slot(t, step, 0, slot[0]);
    check_slot(t, step, 1, slot[1]);
    for (int p = 0; p < PARTS; p++) {
        for (ckpt_bytes b = t->at[p] + ckpt_round_up(t->bytes[p], CKPT_ALIGN); b < t->at[p + 1]; b++) {
            CHECK(image[b] == 0xEE, "%s on %s writes behind part %d", t->optimizer->name, t->name, p);
        }
    }
}

static void run(trial *t)
{
    static double param[COUNT_MAX], grad[COUNT_MAX], state[2][COUNT_MAX];
    const ckpt_device_api *const api = t->device->api;
    double *const slot[2] = {state[0], state[1]};
    unsigned char *base = NULL;
    ckpt_err err = {0};
    lay_out(t);
    const ckpt_bytes all = t->at[PARTS];
    CHECK_OK(api->reserve(t->device, all, (void **)&base, &err), err);
    float *const on_device[] = {(float *)(void *)(base + t->at[SLOT0]), (float *)(void *)(base + t->at[SLOT1])};
    for (int step = 1; step <= STEPS; step++) {
        for (int64_t i = 0; i < count_of(t); i++) {
            const float g = noise(i, step) * 0.1f * t->factor;
            floats(t, GRAD)[i] = g;
            grad[i] = (double)(g * t->scale);
            param[i] = (double)floats(t, PARAM)[i];
        }
        memset(image + t->at[WORK], 0xFF, (size_t)t->bytes[WORK]);
        read_slot(t, 0, state[0]);
        read_slot(t, 1, state[1]);
        const ckpt_numbers numbers = ckpt_numbers_plain(t->optimizer, t->setting->hyper, (uint64_t)step);
        ckpt_update_args args = {.hyper = t->setting->hyper,
                                 .decay = t->decay,
                                 .count = count_of(t),
                                 .matrix = t->matrix,
                                 .param = (float *)(void *)(base + t->at[PARAM]),
                                 .param16 = t->half ? base + t->at[COPY] : NULL,
                                 .grad = (const float *)(void *)(base + t->at[GRAD]),
                                 .scale = t->scale != 1.0f ? (const float *)(void *)(base + t->at[SCALE]) : NULL,
                                 .slot = on_device,
                                 .workspace = t->bytes[WORK] > 0 ? base + t->at[WORK] : NULL};
        CHECK_OK(api->upload(t->device, base, image, all, &err), err);
        CHECK_OK(api->begin(t->device, 1, (uint64_t)step - 1, &numbers, &err), err);
        CHECK_OK(ckpt_device_update(t->device, t->optimizer, &numbers, &args, 1, &err), err);
        CHECK_OK(api->download(t->device, image, base, all, &err), err);
        CHECK(ckpt_reference_update_whole(t->optimizer, t->setting->hyper, t->decay, &t->matrix, (uint64_t)step, param,
                                          grad, slot),
              "%s has no reference", t->optimizer->name);
        check_step(t, step, param, slot);
    }
    memset(image + t->at[WORK], 0, (size_t)t->bytes[WORK]);
    memset(image + t->at[GRAD], 0, (size_t)t->bytes[GRAD]);
    floats(t, SCALE)[0] = 0;
    api->release(t->device, base, all);
}

/* All settings and shapes on a device; `other`: the same again on that one, bit for bit. */
static void run_all(ckpt_device *device, ckpt_device *other, const char *name)
{
    static unsigned char first[ROOM];
    for (int s = 0; s < ckpt_whole_setting_count; s++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            for (int bits = 0; bits < 2; bits++) {
                trial t = {.device = device,
                           .name = name,
                           .setting = &ckpt_whole_settings[s],
                           .optimizer = ckpt_optimizer_find(ckpt_whole_settings[s].optimizer),
                           .matrix = cases[c],
                           .decay = bits != 0,
                           .half = bits != 0,
                           .scale = bits != 0 ? 0.37f : 1.0f,
                           .factor = 1.0f};
                run(&t);
                memcpy(first, image, sizeof image);
                ckpt_emulated_schedule(7);
                t.device = other;
                t.factor = t.scale;
                t.scale = 1.0f;
                run(&t);
                ckpt_emulated_schedule(0);
                CHECK(memcmp(first, image, sizeof image) == 0, "%s on %s, case %zu: other bits", t.optimizer->name,
                      name, c);
            }
        }
    }
}

static void test_whole_optimizers_on_the_cpu(void **state)
{
    ckpt_err err = {0};
    ckpt_device *three = NULL;
    CHECK_OK(ckpt_device_open("cpu", 3, &three, &err), err);
    run_all(ckpt_gpus_cpu, three, "cpu");
    ckpt_device_close(three);
}

static void test_whole_optimizers_on_gpus(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        run_all(ckpt_gpus[g].device, ckpt_gpus[g].device, ckpt_gpus[g].name);
    }
}

/* The map by its definition: sorted magnitudes, all different, seven decades. */
static void test_the_map_of_eight_bits(void **state)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const int top = is_signed ? 128 : 255;
        int byte = 1;
        for (int e = 0; e < 7; e++) {
            const int cells = (is_signed ? 1 : 2) << e;
            for (int k = 0; k < cells; k++, byte++) {
                const double want = pow(10, e - 6) * (0.1 + 0.9 * (2 * k + 1) / (2.0 * cells));
                CHECK(fabs((double)ckpt_eight_bit_value(byte, is_signed != 0) - want) <= 2e-7 * want, "byte %d", byte);
                if (is_signed) {
                    assert_true(ckpt_eight_bit_value(byte + top, true) == -ckpt_eight_bit_value(byte, true));
                }
            }
        }
        assert_int_equal(byte, top);
        assert_true(ckpt_eight_bit_value(0, is_signed != 0) == 0 && ckpt_eight_bit_value(top, is_signed != 0) == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_map_of_eight_bits),
        cmocka_unit_test(test_whole_optimizers_on_the_cpu),
        cmocka_unit_test(test_whole_optimizers_on_gpus),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
