/* labels: contract gpu; on a GPU: 60 s, together */
/* Every optimizer's CUDA kernel compared with the CPU's over three steps, with and without weight decay and a bfloat16
 * copy, at awkward lengths. Bound: 4e-6 (1 + |want|), twice that of test_optimizers, which compares with the formula.
 * The copy is exactly the rounded parameter, nothing is written behind buffers, and another order of threads gives the
 * same bits. Also scaled gradients, parameters at any address, a recording of sum, scale and update, and lists of
 * parameters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_reference.h"
#include "tests/support/support_test.h"

enum {
    COUNT_MAX = 20011,
    STEPS = 3,
    SLOTS = 4,
    PARTS = 3 + SLOTS,
    ROOM = (COUNT_MAX * 4 / CKPT_ALIGN + 2) * CKPT_ALIGN
};

static const int counts[] = {1, 7, 1000, COUNT_MAX};

static float noise(int64_t i, int step)
{
    return (float)sin((double)i * 12.9898 + step * 78.233);
}

static void begin(ckpt_device *device, const ckpt_setting *s, uint64_t step)
{
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
    const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, s->hyper, step + 1);
    ckpt_err err = {0};
    CHECK_OK(device->api->begin(device, 1, step, &numbers, &err), err);
}

/* Parameter, gradient, copy, slots: one image, each part at a multiple of the alignment, 0xEE behind it. */
static unsigned char image[PARTS][ROOM], before[PARTS][ROOM], first[PARTS][ROOM];

static void run_gpu(const ckpt_gpu *gpu, const ckpt_setting *s, bool decay, bool half, int count)
{
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
    const ckpt_device_api *const api = gpu->device->api;
    const int slots = optimizer->slots(s->hyper);
    unsigned char *base = NULL;
    ckpt_err err = {0};
    CHECK_OK(api->reserve(gpu->device, sizeof image, (void **)&base, &err), err);
    memset(image, 0xEE, sizeof image);
    for (int i = 0; i < count; i++) {
        const float x = noise(i, 0);
        memcpy(image[0] + 4 * i, &x, 4);
    }
    for (int k = 0; k < slots; k++) {
        memset(image[3 + k], 0, (size_t)count * 4);
    }
    float *slot[SLOTS] = {NULL};
    for (int k = 0; k < slots; k++) {
        slot[k] = (float *)(void *)(base + (3 + k) * ROOM);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < count; i++) {
            const float x = noise(i, step + 1) * 0.1f;
            memcpy(image[1] + 4 * i, &x, 4);
        }
        memcpy(before, image, sizeof image);
        CHECK_OK(api->upload(gpu->device, base, image, sizeof image, &err), err);
        begin(gpu->device, s, (uint64_t)step);
        ckpt_update_args args = {.hyper = s->hyper,
                                 .decay = decay,
                                 .count = count,
                                 .param = (float *)(void *)base,
                                 .param16 = half ? base + 2 * ROOM : NULL,
                                 .grad = (const float *)(void *)(base + ROOM),
                                 .slot = slot};
        CHECK_OK(ckpt_device_update(gpu->device, optimizer, NULL, &args, 1, &err), err);
        CHECK_OK(api->download(gpu->device, image, base, sizeof image, &err), err);
    }
    api->release(gpu->device, base, sizeof image);
}

static void check_guards(const ckpt_setting *s, bool half, int count)
{
    const int slots = ckpt_optimizer_find(s->optimizer)->slots(s->hyper);
    for (int p = 0; p < PARTS; p++) {
        const bool written = p == 0 || (p == 2 && half) || (p >= 3 && p < 3 + slots);
        const size_t from = written ? (size_t)ckpt_round_up((int64_t)count * (p == 2 ? 2 : 4), CKPT_ALIGN) : 0;
        CHECK(memcmp(image[p] + from, before[p] + from, ROOM - from) == 0, "%s of %d values writes outside part %d",
              s->optimizer, count, p);
    }
}

static void compare(const char *what, const ckpt_setting *s, const float *want, const unsigned char *got, int count)
{
    for (int i = 0; i < count; i++) {
        float x;
        memcpy(&x, got + 4 * i, 4);
        CHECK(fabs((double)x - (double)want[i]) <= 4e-6 * (1 + fabs((double)want[i])),
              "%s, %s, value %d of %d: %.9g, the CPU's %.9g", s->optimizer, what, i, count, (double)x, (double)want[i]);
    }
}

static void check(const ckpt_gpu *gpu, const ckpt_setting *s, bool decay, bool half, int count)
{
    static float param[COUNT_MAX], grad[COUNT_MAX], state[SLOTS][COUNT_MAX];
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
    float *slot[SLOTS];
    ckpt_err err = {0};
    memset(state, 0, sizeof state);
    for (int k = 0; k < SLOTS; k++) {
        slot[k] = state[k];
    }
    for (int i = 0; i < count; i++) {
        param[i] = noise(i, 0);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < count; i++) {
            grad[i] = noise(i, step + 1) * 0.1f;
        }
        ckpt_update_args args = {
            .hyper = s->hyper, .decay = decay, .count = count, .param = param, .grad = grad, .slot = slot};
        const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, s->hyper, (uint64_t)step + 1);
        CHECK_OK(ckpt_device_update(ckpt_gpus_cpu, optimizer, &numbers, &args, 1, &err), err);
    }
    run_gpu(gpu, s, decay, half, count);
    compare("parameter", s, param, image[0], count);
    for (int k = 0; k < optimizer->slots(s->hyper); k++) {
        compare("slot", s, state[k], image[3 + k], count);
    }
    for (int i = 0; half && i < count; i++) {
        float x;
        uint16_t copy;
        memcpy(&x, image[0] + 4 * i, 4);
        memcpy(&copy, image[2] + 2 * i, 2);
        CHECK(copy == ckpt_bfloat16_of(x), "%s: the copy of value %d is %04x, wanted %04x", s->optimizer, i, copy,
              ckpt_bfloat16_of(x));
    }
    check_guards(s, half, count);
    memcpy(first, image, sizeof image);
    ckpt_emulated_schedule(7);
    run_gpu(gpu, s, decay, half, count);
    ckpt_emulated_schedule(0);
    CHECK(memcmp(first, image, sizeof image) == 0, "%s: another order of threads gives other bits", s->optimizer);
}

static void test_optimizers(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int s = 0; s < ckpt_setting_count; s++) {
            for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
                for (int bits = 0; bits < 4; bits++) {
                    check(&ckpt_gpus[g], &ckpt_settings[s], (bits & 1) != 0, (bits & 2) != 0, counts[n]);
                }
            }
        }
    }
}

enum { VALUES = 1002, PIECE = VALUES - 5 }; /* even: no padding in what is compared */

/* Parameter, copy and slots after one step on `values`. Gradients are multiplied by `factor` before, and by *scale on
 * the device unless it is NULL. All start `shift` elements into their buffers. */
typedef struct left {
    float param[VALUES], slot[2][VALUES];
    uint16_t copy[VALUES];
} left;

static left update(const ckpt_gpu *gpu, const ckpt_setting *s, float factor, const float *scale, int shift, int count)
{
    enum { ROW = 8192, ROWS = 6 };
    static unsigned char host[ROWS * ROW];
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
    const ckpt_device_api *const api = gpu->device->api;
    unsigned char *base = NULL;
    float *const param = (float *)(void *)host, *const grad = (float *)(void *)(host + ROW);
    ckpt_err err = {0};
    CHECK_OK(api->reserve(gpu->device, sizeof host, (void **)&base, &err), err);
    memset(host, 0, sizeof host);
    for (int i = 0; i < VALUES; i++) {
        param[i] = noise(i, 0);
        grad[i] = noise(i, 1) * 0.1f * factor;
    }
    if (scale != NULL) {
        memcpy(host + 5 * ROW, scale, sizeof *scale);
    }
    CHECK_OK(api->upload(gpu->device, base, host, sizeof host, &err), err);
    begin(gpu->device, s, 0);
    float *const slot[] = {(float *)(void *)(base + 3 * ROW) + shift, (float *)(void *)(base + 4 * ROW) + shift};
    ckpt_update_args args = {.hyper = s->hyper,
                             .decay = true,
                             .count = count,
                             .param = (float *)(void *)base + shift,
                             .param16 = (uint16_t *)(void *)(base + 2 * ROW) + shift,
                             .grad = (const float *)(void *)(base + ROW) + shift,
                             .scale = scale != NULL ? (const float *)(void *)(base + 5 * ROW) : NULL,
                             .slot = slot};
    CHECK_OK(ckpt_device_update(gpu->device, optimizer, NULL, &args, 1, &err), err);
    CHECK_OK(api->download(gpu->device, host, base, sizeof host, &err), err);
    api->release(gpu->device, base, sizeof host);
    left result;
    memcpy(result.param, host, sizeof result.param);
    memcpy(result.copy, host + 2 * ROW, sizeof result.copy);
    memcpy(result.slot[0], host + 3 * ROW, sizeof result.slot[0]);
    memcpy(result.slot[1], host + 4 * ROW, sizeof result.slot[1]);
    return result;
}

/* A scale of 1 changes nothing; another multiplies gradients in float: bit for bit, as on the CPU. */
static void test_scaled_gradients(void **state)
{
    static const float scales[] = {1.0f, 1.0f / 3.0f, 0.0f, 1024.0f};
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int s = 0; s < ckpt_setting_count; s++) {
            for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
                const left wanted = update(&ckpt_gpus[g], &ckpt_settings[s], scales[k], NULL, 0, VALUES);
                const left found = update(&ckpt_gpus[g], &ckpt_settings[s], 1.0f, &scales[k], 0, VALUES);
                CHECK(memcmp(&wanted, &found, sizeof found) == 0, "%s, %s: a scale of %g gives other bits",
                      ckpt_gpus[g].name, ckpt_settings[s].optimizer, (double)scales[k]);
            }
        }
    }
}

/* A rank's part of a parameter starts at any element: inside it has the bits of the whole, outside it is unchanged. */
static void test_pieces(void **state)
{
    const float scale = 0.3f;
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int s = 0; s < ckpt_setting_count; s++) {
            const left whole = update(&ckpt_gpus[g], &ckpt_settings[s], 1.0f, &scale, 0, VALUES);
            const left piece = update(&ckpt_gpus[g], &ckpt_settings[s], 1.0f, &scale, 3, PIECE);
            for (int i = 0; i < VALUES; i++) {
                const bool inside = i >= 3 && i < 3 + PIECE;
                const float wanted = inside ? whole.param[i] : noise(i, 0);
                CHECK(memcmp(&piece.param[i], &wanted, 4) == 0, "%s: value %d is %.9g, wanted %.9g",
                      ckpt_settings[s].optimizer, i, (double)piece.param[i], (double)wanted);
                assert_int_equal(piece.copy[i], inside ? whole.copy[i] : 0);
                for (int k = 0; k < 2; k++) {
                    assert_true(piece.slot[k][i] == (inside ? whole.slot[k][i] : 0.0f));
                }
            }
        }
    }
}

/* The squares, the clipping scale and an update in one recording, replayed on other gradients: it reads the device's
 * current values. Compared with the same kernels started one by one. */
static void test_recorded(void **state)
{
    enum { ROW = 8192, PARAM = 0, GRAD = ROW, SUM = 2 * ROW, SCALE = SUM + 64, WORK = SCALE + 64, ALL = WORK + 8192 };
    static unsigned char host[ALL];
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        const ckpt_device_api *const api = device->api;
        const ckpt_optimizer *const sgd = ckpt_optimizer_find("sgd");
        const double hyper[CKPT_HYPER_MAX] = {0.5};
        unsigned char *base = NULL;
        void *recording = NULL;
        float result[2][2][VALUES];
        const ckpt_numbers numbers = ckpt_numbers_plain(sgd, hyper, 1);
        ckpt_err err = {0};
        CHECK_OK(api->begin(device, 1, 0, &numbers, &err), err);
        CHECK_OK(api->reserve(device, ALL, (void **)&base, &err), err);
        ckpt_update_args args = {.hyper = hyper,
                                 .count = VALUES,
                                 .param = (float *)(void *)(base + PARAM),
                                 .grad = (const float *)(void *)(base + GRAD),
                                 .scale = (const float *)(void *)(base + SCALE)};
        double *const sum = (double *)(void *)(base + SUM);
        for (int replayed = 0; replayed < 2; replayed++) {
            for (int step = 0; step < 2; step++) {
                float *const param = (float *)(void *)(host + PARAM), *const grad = (float *)(void *)(host + GRAD);
                for (int i = 0; i < VALUES; i++) {
                    param[i] = noise(i, 0);
                    grad[i] = noise(i, 1 + step) * (step == 0 ? 0.001f : 1.0f); /* only the second is clipped */
                }
                CHECK_OK(api->upload(device, base, host, ALL, &err), err);
                if (replayed != 0 && step == 0) {
                    CHECK_OK(api->capture_begin(device, &err), err);
                }
                if (replayed == 0 || step == 0) {
                    CHECK_OK(api->square_sum(device, args.grad, VALUES, sum, base + WORK, &err), err);
                    CHECK_OK(api->clip_scale(device, sum, 1, 1.0, 2.0, (float *)(void *)(base + SCALE), &err), err);
                    CHECK_OK(ckpt_device_update(device, sgd, NULL, &args, 1, &err), err);
                }
                if (replayed != 0 && step == 0) {
                    CHECK_OK(api->capture_end(device, &recording, &err), err);
                }
                if (replayed != 0) {
                    CHECK_OK(api->replay(device, recording, &err), err);
                }
                CHECK_OK(api->download(device, result[replayed][step], base + PARAM, sizeof result[0][0], &err), err);
            }
        }
        assert_memory_equal(result[0], result[1], sizeof result[0]);
        double length = 0;
        for (int i = 0; i < VALUES; i++) {
            length += (double)noise(i, 2) * (double)noise(i, 2);
        }
        const double factor = 2.0 / (sqrt(length) + 1e-6);
        assert_true(factor < 0.5);
        for (int i = 0; i < VALUES; i++) {
            const double wanted = (double)noise(i, 0) - 0.5 * factor * (double)noise(i, 2);
            CHECK(fabs((double)result[0][1][i] - wanted) <= 1e-6, "value %d: %.9g, wanted %.9g", i,
                  (double)result[0][1][i], wanted);
        }
        api->capture_release(device, recording);
        api->release(device, base, ALL);
    }
}

enum { LIST = 612, LENGTH = 80000 }; /* 580 and the rest: two launches */

/* Parameters of many lengths, one of several blocks, at any position in a row of LENGTH values. */
static int make_list(const ckpt_setting *s, unsigned char *base, float *slot[LIST][2], ckpt_update_args *args)
{
    enum { ROW = LENGTH * 4 };
    int64_t at = 0;
    for (int i = 0; i < LIST; i++) {
        const int64_t count = i == 7 ? COUNT_MAX : 1 + i * 37 % 97;
        at += i % 3 == 0 ? 1 + i % 5 : (16 - at % 16) % 16;
        slot[i][0] = (float *)(void *)(base + 2 * ROW) + at;
        slot[i][1] = (float *)(void *)(base + 3 * ROW) + at;
        args[i] = (ckpt_update_args){.hyper = s->hyper,
                                     .decay = i % 2 == 0,
                                     .count = count,
                                     .param = (float *)(void *)base + at,
                                     .param16 = i % 7 == 0 ? NULL : (uint16_t *)(void *)(base + 4 * ROW) + at,
                                     .grad = (const float *)(void *)(base + ROW) + at,
                                     .slot = slot[i]};
        at += count;
        assert_true(at <= LENGTH);
    }
    return 5 * ROW;
}

/* Updates in one call have the bits of single updates, and take as few launches as the length of the list needs. */
static void test_lists(void **state)
{
    static unsigned char host[2][5 * LENGTH * 4];
    static float *slot[LIST][2];
    static ckpt_update_args args[LIST];
    for (int i = 0; i < ckpt_gpus_count * ckpt_setting_count; i++) {
        ckpt_device *const device = ckpt_gpus[i / ckpt_setting_count].device;
        const ckpt_setting *const s = &ckpt_settings[i % ckpt_setting_count];
        const ckpt_optimizer *const optimizer = ckpt_optimizer_find(s->optimizer);
        ckpt_err err = {0};
        unsigned char *base = NULL;
        CHECK_OK(device->api->reserve(device, sizeof host[0], (void **)&base, &err), err);
        const int bytes = make_list(s, base, slot, args);
        assert_int_equal(bytes, sizeof host[0]);
        for (int once = 0; once < 2; once++) {
            memset(host[once], 0, sizeof host[once]);
            for (int v = 0; v < 2 * LENGTH; v++) {
                const float x = noise(v % LENGTH, v / LENGTH) * 0.1f;
                memcpy(host[once] + (size_t)v * 4, &x, 4);
            }
            CHECK_OK(device->api->upload(device, base, host[once], bytes, &err), err);
            begin(device, s, 2);
            ckpt_launches before_it = {0}, behind_it = {0};
            device->api->launches(device, NULL, &before_it);
            if (once != 0) {
                CHECK_OK(ckpt_device_update(device, optimizer, NULL, args, LIST, &err), err);
            }
            for (int k = 0; k < LIST && once == 0; k++) {
                CHECK_OK(ckpt_device_update(device, optimizer, NULL, &args[k], 1, &err), err);
            }
            device->api->launches(device, NULL, &behind_it);
            assert_int_equal(behind_it.kernels - before_it.kernels, once != 0 ? 2 : LIST);
            CHECK_OK(device->api->download(device, host[once], base, bytes, &err), err);
        }
        CHECK(memcmp(host[0], host[1], sizeof host[0]) == 0, "%s: a list leaves other bits", s->optimizer);
        device->api->release(device, base, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_scaled_gradients),
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
