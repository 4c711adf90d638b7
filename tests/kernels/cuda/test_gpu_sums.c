/* labels: contract gpu; on a GPU: 60 s, together */
/* The device functions that add and round: to += from and to = bfloat16(from), bit for bit like float32 and
 * ckpt_bfloat16_of, without changing other bytes, for tensors and for pieces at any address; sums of squares and the
 * clipping scale, compared with the CPU's. Random numbers from a printed seed, with every length around a pack of 16
 * bytes; on every GPU present, the emulated one always. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

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

/* `to` must have `bytes` of `content`, followed by its old bytes; releases both blocks. */
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

/* A piece of a parameter starts at any element: only its elements change, to the same bits. */
static void test_pieces(void **state)
{
    enum { N = 5003 };
    static float sum[N];
    static uint16_t sum16[N], narrow[N];
    ckpt_err err = {0};
    draw();
    memcpy(sum, first, sizeof sum);
    memcpy(sum16, first16, sizeof sum16);
    memcpy(narrow, second16, sizeof narrow);
    for (int i = 3; i < N - 5; i++) {
        sum[i] = first[i] + second[i - 2];
        sum16[i] = ckpt_bfloat16_of(ckpt_bfloat16_value(first16[i]) + ckpt_bfloat16_value(second16[i - 2]));
        narrow[i] = ckpt_bfloat16_of(first[i - 2]);
    }
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        const ckpt_device_api *const api = device->api;
        void *from = block_of(device, second, sizeof sum), *to = block_of(device, first, sizeof sum);
        CHECK_OK(api->add(device, CKPT_FLOAT32, (float *)to + 3, (float *)from + 1, N - 8, &err), err);
        expect(device, to, from, sum, sizeof sum, N);
        from = block_of(device, second16, sizeof sum16);
        to = block_of(device, first16, sizeof sum16);
        CHECK_OK(api->add(device, CKPT_BFLOAT16, (uint16_t *)to + 3, (uint16_t *)from + 1, N - 8, &err), err);
        expect(device, to, from, sum16, sizeof sum16, N);
        from = block_of(device, first, sizeof sum);
        to = block_of(device, second16, sizeof narrow);
        CHECK_OK(api->narrow(device, (uint16_t *)to + 3, (float *)from + 1, N - 8, &err), err);
        expect(device, to, from, narrow, sizeof narrow, N);
    }
}

/* Bytes of a block: numbers, then sums and the scale, then workspace. */
enum { NUMBERS = 4 * 4300004, SUMS = 8 * 600, SQUARE_ROOM = NUMBERS + SUMS + 64 + 8192 + 64 };

/* Compares with the CPU's sum, which has another order: both are within count / 2 roundings of the exact sum. The
 * workspace has the promised size and holds NaN before. A second run, and another order of threads, give the same
 * bits. */
static void test_squares(void **state)
{
    static const int64_t counts[] = {0, 1, 3, 255, 4096, 4097, 100003, 4300001};
    float *const x = calloc(NUMBERS / 4, sizeof *x);
    assert_non_null(x);
    draw();
    for (int i = 0; i < NUMBERS / 4; i++) {
        x[i] = first[i % MOST];
    }
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        const ckpt_device_api *const api = device->api;
        unsigned char *base = NULL, guard[64], wanted[64];
        ckpt_err err = {0};
        CHECK_OK(api->reserve(device, SQUARE_ROOM, (void **)&base, &err), err);
        CHECK_OK(api->upload(device, base, x, NUMBERS, &err), err);
        memset(wanted, 0xff, sizeof wanted);
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            const int64_t count = counts[n];
            const ckpt_bytes workspace = api->square_workspace(count);
            double cpu = -1, sum[2][2] = {{0}};
            assert_in_range(workspace, 0, 8192);
            CHECK_OK(ckpt_gpus_cpu->api->square_sum(ckpt_gpus_cpu, x + 1, count, &cpu, NULL, &err), err);
            for (int run = 0; run < 2; run++) {
                unsigned char *const work = base + NUMBERS + SUMS + 64;
                ckpt_emulated_schedule(run == 0 ? 0 : 7);
                CHECK_OK(api->fill(device, base + NUMBERS, 0xff, SQUARE_ROOM - NUMBERS, &err), err);
                CHECK_OK(api->square_sum(device, (float *)(void *)base + 1, count, (double *)(void *)(base + NUMBERS),
                                         work, &err),
                         err);
                CHECK_OK(api->download(device, sum[run], base + NUMBERS, 16, &err), err);
                CHECK_OK(api->download(device, guard, work + workspace, 64, &err), err);
                ckpt_emulated_schedule(0);
                assert_memory_equal(guard, wanted, 64);
            }
            CHECK(fabs(sum[0][0] - cpu) <= cpu * (double)count * 0x1p-52, "%lld: %.17g, the CPU's %.17g",
                  (long long)count, sum[0][0], cpu);
            assert_memory_equal(sum[0], sum[1], 16);
            assert_true(isnan(sum[0][1]) != 0);
        }
        static const float odd[] = {NAN, INFINITY};
        for (int k = 0; k < 2; k++) {
            double sum = 0;
            CHECK_OK(api->upload(device, base + 4 * 9000, &odd[k], 4, &err), err);
            CHECK_OK(api->square_sum(device, (float *)(void *)base, 20000, (double *)(void *)(base + NUMBERS),
                                     base + NUMBERS + SUMS + 64, &err),
                     err);
            CHECK_OK(api->download(device, &sum, base + NUMBERS, 8, &err), err);
            assert_true(k == 0 ? isnan(sum) != 0 : isinf(sum) && sum > 0);
        }
        api->release(device, base, SQUARE_ROOM);
    }
    free(x);
}

/* The CPU's scale to the bit, for sums that none of the CPU's tests have. */
static void test_clip_scale(void **state)
{
    static double sum[600];
    static const int counts[] = {0, 1, 255, 256, 257, 600};
    for (int i = 0; i < 600; i++) {
        sum[i] = fabs(sin(i * 12.9898)) * exp(10 * sin(i * 0.37));
    }
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_device *const device = ckpt_gpus[g].device;
        const ckpt_device_api *const api = device->api;
        unsigned char *base = NULL;
        ckpt_err err = {0};
        CHECK_OK(api->reserve(device, SUMS + 64, (void **)&base, &err), err);
        const ckpt_numbers numbers = {.clip = 1};
        CHECK_OK(api->begin(device, 0, 0, &numbers, &err), err);
        for (size_t n = 0; n < 6; n++) {
            for (int k = 0; k < 4; k++) {
                const double most = k == 0 ? 1e-3 : k == 1 ? 1.0 : 1e9, base_scale = k == 2 ? 1.0 / 3.0 : 1.0;
                float got_scale = -1, cpu = -2;
                sum[0] = k == 3 ? (double)NAN : 1.0;
                CHECK_OK(api->upload(device, base, sum, sizeof sum, &err), err);
                CHECK_OK(api->clip_scale(device, (double *)(void *)base, counts[n], base_scale, most,
                                         (float *)(void *)(base + SUMS), &err),
                         err);
                CHECK_OK(api->download(device, &got_scale, base + SUMS, 4, &err), err);
                CHECK_OK(ckpt_gpus_cpu->api->clip_scale(ckpt_gpus_cpu, sum, counts[n], base_scale, most, &cpu, &err),
                         err);
                assert_int_equal(isnan(cpu) != 0, k == 3 && counts[n] > 0);
                CHECK(isnan(cpu) ? isnan(got_scale) : memcmp(&cpu, &got_scale, 4) == 0, "%d sums: %.9g, the CPU's %.9g",
                      counts[n], (double)got_scale, (double)cpu);
            }
        }
        api->release(device, base, SUMS + 64);
    }
}

int main(void)
{
    (void)printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),     cmocka_unit_test(test_narrow),     cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_squares), cmocka_unit_test(test_clip_scale),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
