/* labels: contract gpu */
/* What a GPU's device table adds and rounds itself: to += from and to = bfloat16(from), bit for bit as float32 and
 * ckpt_bfloat16_of have it, and not one byte beside. Random numbers from a printed seed, with every length around a
 * pack of 16 bytes; on every GPU there is, the emulated one always. */
#include <stdio.h>
#include <string.h>

#include "tests/support_gpu.h"
#include "tests/support_test.h"

enum { MOST = 70001, ROOM = 4 * MOST + 4096, SEED = 20261120 };

static uint64_t word = SEED;
static float first[MOST], second[MOST];
static uint16_t first16[MOST], second16[MOST];
static unsigned char got[ROOM], want[ROOM];

static const int64_t lengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 33, 1000, 4099, MOST};

/* Bits of numbers between 2^-30 and 2^30 of either sign, so that sums round. */
static void draw(void)
{
    for (int i = 0; i < MOST; i++) {
        for (int k = 0; k < 2; k++) {
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const uint32_t top = (uint32_t)(word >> 32), bits = (top & 0x807FFFFFu) | (97u + (top >> 23) % 60u) << 23;
            memcpy(k == 0 ? &first[i] : &second[i], &bits, 4);
        }
        first16[i] = ckpt_bfloat16_of(first[i]);
        second16[i] = ckpt_bfloat16_of(second[i]);
    }
}

/* A block of ROOM bytes of 0xA5 with `bytes` of `content` in front. */
static void *block_of(ckpt_device *device, const void *content, size_t bytes)
{
    void *base = NULL;
    ckpt_err err = {0};
    CHECK_OK(device->api->reserve(device, ROOM, &base, &err), err);
    memset(want, 0xA5, ROOM);
    memcpy(want, content, bytes);
    CHECK_OK(device->api->upload(device, base, want, ROOM, &err), err);
    return base;
}

/* `to` holds `bytes` of `content` and then what it held; both blocks are given back. */
static void expect(ckpt_device *device, void *to, void *from, const void *content, size_t bytes, int64_t count)
{
    ckpt_err err = {0};
    CHECK_OK(device->api->finish(device, &err), err);
    CHECK_OK(device->api->download(device, got, to, ROOM, &err), err);
    CHECK(memcmp(got, content, bytes) == 0, "%lld elements: a sum is not what it should be", (long long)count);
    CHECK(memcmp(got + bytes, want + bytes, ROOM - bytes) == 0, "%lld elements: written behind", (long long)count);
    device->api->release(device, to, ROOM);
    device->api->release(device, from, ROOM);
}

static void test_add(void **state)
{
    (void)state;
    static float sum[MOST];
    static uint16_t sum16[MOST];
    ckpt_err err = {0};
    draw();
    for (int i = 0; i < MOST; i++) {
        sum[i] = first[i] + second[i];
        sum16[i] = ckpt_bfloat16_of(ckpt_bfloat16_value(first16[i]) + ckpt_bfloat16_value(second16[i]));
    }
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            const int64_t n = lengths[i];
            const size_t bytes = (size_t)n * 4, half = (size_t)n * 2;
            void *from = block_of(device, second, bytes), *to = block_of(device, first, bytes);
            CHECK_OK(device->api->add(device, CKPT_FLOAT32, to, from, n, &err), err);
            expect(device, to, from, sum, bytes, n);
            from = block_of(device, second16, half);
            to = block_of(device, first16, half);
            CHECK_OK(device->api->add(device, CKPT_BFLOAT16, to, from, n, &err), err);
            expect(device, to, from, sum16, half, n);
        }
    }
}

static void test_narrow(void **state)
{
    (void)state;
    ckpt_err err = {0};
    draw();
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            const int64_t n = lengths[i];
            void *const from = block_of(device, first, (size_t)n * 4), *const to = block_of(device, second16, 0);
            CHECK_OK(device->api->narrow(device, to, from, n, &err), err);
            expect(device, to, from, first16, (size_t)n * 2, n);
        }
    }
}

int main(void)
{
    (void)printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_narrow),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
