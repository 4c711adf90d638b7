/* labels: contract gpu */
/* Every optimizer's CUDA kernel against the CPU's over three steps, with and without weight decay and a bfloat16 copy,
 * at awkward lengths. Bound: 4e-6 (1 + |want|), twice what test_optimizers allows each side against the formula. The
 * copy is the parameter rounded, exactly; nothing is written behind the buffers; another order of threads gives the
 * same bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support_gpu.h"
#include "tests/support_reference.h"
#include "tests/support_test.h"

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
        CHECK_OK(api->begin(gpu->device, 1, (uint64_t)step, &err), err);
        const ckpt_update_args args = {.hyper = s->hyper,
                                       .decay = decay,
                                       .step = (uint64_t)step + 1,
                                       .count = count,
                                       .param = (float *)(void *)base,
                                       .param16 = half ? base + 2 * ROOM : NULL,
                                       .grad = (const float *)(void *)(base + ROOM),
                                       .slot = slot};
        CHECK_OK(ckpt_device_update(gpu->device, optimizer, &args, &err), err);
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
        const ckpt_update_args args = {.hyper = s->hyper,
                                       .decay = decay,
                                       .step = (uint64_t)step + 1,
                                       .count = count,
                                       .param = param,
                                       .grad = grad,
                                       .slot = slot};
        CHECK_OK(ckpt_device_update(ckpt_gpus_cpu, optimizer, &args, &err), err);
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
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
