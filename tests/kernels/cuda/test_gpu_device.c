/* labels: unit gpu; on a GPU: 40 s, alone */
/* kernels/device.h on every GPU present (the emulated one always): memory, copies, additions, signals between streams,
 * the counters of random numbers, recordings, stamps, refusals. On the emulated device also with late copies, and with
 * each signal's wait left out in turn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/lowering/network.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_network.h"
#include "tests/support/support_test.h"

enum { COUNT = 20011, SCHEDULES = 20, LARGE = 64 << 20 };

static bool is_emulated(const ckpt_device *device)
{
    return device->api == &ckpt_device_emulated;
}

static void *reserve(ckpt_device *device, ckpt_bytes bytes)
{
    void *base = NULL;
    ckpt_err err = {0};
    CHECK_OK(device->api->reserve(device, bytes, &base, &err), err);
    return base;
}

static void *reserve_host(ckpt_device *device, ckpt_bytes bytes)
{
    void *base = NULL;
    ckpt_err err = {0};
    CHECK_OK(device->api->reserve_host(device, bytes, &base, &err), err);
    return base;
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        ckpt_err try_err = {0};                                                                                        \
        CHECK_OK(call, try_err);                                                                                       \
    } while (0)

/* ------------------------------------------------------------------------------------------------ memory */

static void memory_of(ckpt_device *device)
{
    const ckpt_device_api *const api = device->api;
    static unsigned char bytes[COUNT], back[COUNT];
    static const unsigned char zero[COUNT];
    assert_true(api->gpu && device->threads == CKPT_ON_GPU);
    assert_string_equal(api->kind, "cuda");
    assert_non_null(strstr(api->describe(device), "cuda:0"));
    assert_true(strlen(api->libraries(device)) > 0);
    ckpt_device_memory before, now;
    TRY(api->memory(device, &before, &try_err));
    assert_true(before.free > 0 && before.free <= before.total && before.context >= 0 && before.libraries >= 0);
    unsigned char *const base = reserve(device, COUNT), *const large = reserve(device, LARGE);
    TRY(api->memory(device, &now, &try_err));
    const ckpt_bytes taken = LARGE + (2 << 20); /* the runtime takes 2 MiB for what is smaller */
    assert_int_equal(now.total, before.total);
    assert_true(ckpt_gpu_same_memory(device, "free with 64 MiB taken", now.free, before.free - taken));
    assert_int_equal((uintptr_t)base % 256, 0);
    memset(back, 1, COUNT);
    TRY(api->download(device, back, base, COUNT, &try_err));
    assert_memory_equal(back, zero, COUNT); /* reserved memory is zero */
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    }
    TRY(api->upload(device, base, bytes, COUNT, &try_err));
    TRY(api->fill(device, base + 100, 0xA5, 77, &try_err));
    memset(bytes + 100, 0xA5, 77);
    TRY(api->download(device, back, base, COUNT, &try_err));
    assert_memory_equal(back, bytes, COUNT);
    TRY(api->upload(device, base, bytes, 0, &try_err));
    TRY(api->fill(device, base, 0, 0, &try_err));
    unsigned char *const host = reserve_host(device, COUNT);
    assert_memory_equal(host, zero, COUNT);
    assert_int_equal((uintptr_t)host % CKPT_ALIGN, 0);
    TRY(api->offload(device, host, base, COUNT, &try_err));
    TRY(api->finish(device, &try_err));
    assert_memory_equal(host, bytes, COUNT);
    TRY(api->fill(device, base, 0, COUNT, &try_err));
    TRY(api->finish(device, &try_err));
    TRY(api->fetch(device, base, host, COUNT, &try_err));
    TRY(api->finish(device, &try_err));
    TRY(api->download(device, back, base, COUNT, &try_err));
    assert_memory_equal(back, bytes, COUNT);
    api->release(device, base, COUNT);
    api->release(device, large, LARGE);
    api->release(device, NULL, 0);
    api->release_host(device, host, COUNT);
    api->release_host(device, NULL, 0);
    TRY(api->memory(device, &now, &try_err));
    assert_true(ckpt_gpu_same_memory(device, "free with all of it back", now.free, before.free));
}

static void refused_memory_of(ckpt_device *device)
{
    static const ckpt_bytes sizes[] = {(ckpt_bytes)1 << 50, INT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[32];
        void *base = NULL;
        ckpt_err err = {0};
        (void)snprintf(text, sizeof text, "%lld", (long long)sizes[i]);
        assert_int_equal(device->api->reserve(device, sizes[i], &base, &err), CKPT_NO_MEMORY);
        CHECK(strstr(err.msg, text) != NULL, "found \"%s\", wanted %s in it", err.msg, text);
        assert_int_equal(device->api->reserve_host(device, sizes[i], &base, &err), CKPT_NO_MEMORY);
        assert_null(base);
    }
    unsigned char *const fine = reserve(device, 1); /* and it goes on */
    device->api->release(device, fine, 1);
}

/* ------------------------------------------------------------------------------------------------ arithmetic */

static void arithmetic_of(ckpt_device *device)
{
    static float a[COUNT + 16], b[COUNT + 16], back[COUNT + 16];
    static uint16_t a16[COUNT + 32], b16[COUNT + 32], back16[COUNT + 32];
    static const int counts[] = {1, 3, 7, 8, 1000, COUNT};
    const ckpt_device_api *const api = device->api;
    float *const to = reserve(device, sizeof a), *const from = reserve(device, sizeof a);
    for (int i = 0; i < COUNT + 16; i++) {
        a[i] = (float)sin(i * 1.7) * 100;
        b[i] = i % 97 == 0 ? (float)NAN : (float)cos(i * 0.3) / 3;
        a16[i] = ckpt_bfloat16_of(a[i]);
        b16[i] = ckpt_bfloat16_of(b[i]);
    }
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        const int count = counts[n];
        TRY(api->upload(device, to, a, sizeof a, &try_err));
        TRY(api->upload(device, from, b, sizeof b, &try_err));
        TRY(api->add(device, CKPT_FLOAT32, to, from, count, &try_err));
        TRY(api->download(device, back, to, sizeof a, &try_err));
        for (int i = 0; i < count; i++) {
            const float want = a[i] + b[i];
            CHECK(isnan(want) ? isnan(back[i]) : back[i] == want, "element %d of %d: %g + %g gives %g", i, count,
                  (double)a[i], (double)b[i], (double)back[i]);
        }
        const int end = (count + 15) / 16 * 16; /* of the buffer */
        assert_memory_equal(back + end, a + end, (size_t)(COUNT + 16 - end) * 4);

        TRY(api->upload(device, to, a16, sizeof a16, &try_err));
        TRY(api->upload(device, from, b16, sizeof b16, &try_err));
        TRY(api->add(device, CKPT_BFLOAT16, to, from, count, &try_err));
        TRY(api->download(device, back16, to, sizeof a16, &try_err));
        for (int i = 0; i < count; i++) {
            const float want = ckpt_bfloat16_value(a16[i]) + ckpt_bfloat16_value(b16[i]);
            CHECK(isnan(want) ? isnan(ckpt_bfloat16_value(back16[i])) : back16[i] == ckpt_bfloat16_of(want),
                  "bfloat16 element %d of %d: %04x + %04x gives %04x", i, count, a16[i], b16[i], back16[i]);
        }

        TRY(api->fill(device, to, 0xEE, sizeof a, &try_err));
        TRY(api->upload(device, from, b, sizeof b, &try_err));
        TRY(api->narrow(device, to, from, count, &try_err));
        TRY(api->download(device, back16, to, sizeof back16, &try_err));
        for (int i = 0; i < count; i++) {
            CHECK(isnan(b[i]) ? isnan(ckpt_bfloat16_value(back16[i])) : back16[i] == b16[i],
                  "element %d of %d: %g becomes %04x", i, count, (double)b[i], back16[i]);
        }
        assert_int_equal(back16[(count + 31) / 32 * 32], 0xEEEE);
    }
    api->release(device, to, sizeof a);
    api->release(device, from, sizeof a);
}

/* ------------------------------------------------------------------------------------------------ streams */

/* Writes a value, offloads it, overwrites its memory, fetches it to other memory, adds: every step depends on the
 * previous one, on another stream, by a signal. Returns the sum of the first elements, which must be 2 * 5 + 9. */
static float chain_of(ckpt_device *device, bool recorded, int replays)
{
    const ckpt_device_api *const api = device->api;
    enum { BYTES = COUNT * 4 };
    static float value[COUNT], back[COUNT];
    float *const x = reserve(device, BYTES), *const y = reserve(device, BYTES), *const five = reserve(device, BYTES),
                 *const nine = reserve(device, BYTES), *const slab = reserve_host(device, BYTES);
    void *recording = NULL;
    for (int i = 0; i < COUNT; i++) {
        value[i] = 5;
    }
    TRY(api->upload(device, five, value, BYTES, &try_err));
    for (int i = 0; i < COUNT; i++) {
        value[i] = 9;
    }
    TRY(api->upload(device, nine, value, BYTES, &try_err));
    TRY(api->signals(device, 4, &try_err));
    for (int run = 0; run < replays; run++) {
        if (recorded && run > 0) {
            TRY(api->replay(device, recording, &try_err));
            continue;
        }
        if (recorded) {
            TRY(api->capture_begin(device, &try_err));
        }
        TRY(api->fill(device, x, 0, BYTES, &try_err));
        TRY(api->add(device, CKPT_FLOAT32, x, five, COUNT, &try_err));
        TRY(api->record(device, 0, CKPT_STREAM_COMPUTE, &try_err));
        TRY(api->wait(device, 0, CKPT_STREAM_D2H, &try_err)); /* x is there */
        TRY(api->offload(device, slab, x, BYTES, &try_err));
        TRY(api->record(device, 1, CKPT_STREAM_D2H, &try_err));
        TRY(api->wait(device, 1, CKPT_STREAM_H2D, &try_err)); /* the slab is there */
        TRY(api->fetch(device, y, slab, BYTES, &try_err));
        TRY(api->record(device, 2, CKPT_STREAM_H2D, &try_err));
        TRY(api->wait(device, 1, CKPT_STREAM_COMPUTE, &try_err)); /* x may be overwritten */
        TRY(api->fill(device, x, 0, BYTES, &try_err));
        TRY(api->add(device, CKPT_FLOAT32, x, nine, COUNT, &try_err));
        TRY(api->wait(device, 2, CKPT_STREAM_COMPUTE, &try_err)); /* y is there */
        TRY(api->add(device, CKPT_FLOAT32, x, y, COUNT, &try_err));
        TRY(api->add(device, CKPT_FLOAT32, x, five, COUNT, &try_err));
        if (recorded) {
            TRY(api->capture_end(device, &recording, &try_err));
            TRY(api->replay(device, recording, &try_err));
        }
    }
    TRY(api->finish(device, &try_err));
    TRY(api->download(device, back, x, BYTES, &try_err));
    if (recorded) {
        api->capture_release(device, recording);
    }
    api->release(device, x, BYTES);
    api->release(device, y, BYTES);
    api->release(device, five, BYTES);
    api->release(device, nine, BYTES);
    api->release_host(device, slab, BYTES);
    for (int i = 1; i < COUNT; i++) {
        if (back[i] != back[0]) {
            return -1;
        }
    }
    return back[0];
}

static void signals_of(ckpt_device *device)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        for (uint64_t seed = 0; seed < (is_emulated(device) ? SCHEDULES : 3); seed++) {
            ckpt_emulated_schedule(is_emulated(device) ? seed : 0);
            const float found = chain_of(device, recorded != 0, 3);
            CHECK(found == 19.0f, "schedule %llu, %s: found %g, wanted 19", (unsigned long long)seed,
                  recorded ? "recorded" : "direct", (double)found);
        }
        for (int lost = 0; is_emulated(device) && lost < 4; lost++) {
            int wrong = 0;
            for (uint64_t seed = 1; seed <= SCHEDULES; seed++) {
                ckpt_emulated_schedule(seed);
                ckpt_emulated_lose_wait(lost);
                wrong += chain_of(device, recorded != 0, 1) != 19.0f;
                assert_int_equal(ckpt_emulated_waits(), 4);
            }
            CHECK(wrong > 0, "without wait %d nothing goes wrong in %d schedules (%s)", lost, SCHEDULES,
                  recorded ? "recorded" : "direct");
        }
        ckpt_emulated_schedule(0);
    }
}

/* A call that cannot be recorded ends the recording with an error, and the device still works. */
static void bad_recordings_of(ckpt_device *device)
{
    const ckpt_device_api *const api = device->api;
    float *const x = reserve(device, 4096);
    float back[4];
    for (int which = 0; which < 3; which++) {
        void *recording = NULL, *base = NULL;
        ckpt_err err = {0};
        TRY(api->capture_begin(device, &try_err));
        const ckpt_code code = which == 0   ? api->finish(device, &err)
                               : which == 1 ? api->reserve(device, 64, &base, &err)
                                            : api->download(device, back, x, sizeof back, &err);
        assert_true(code == CKPT_DEVICE || code == CKPT_NO_MEMORY);
        assert_int_equal(api->capture_end(device, &recording, &err), CKPT_DEVICE);
        assert_null(recording);
    }
    /* a stream that joins and does not come back */
    void *recording = NULL;
    ckpt_err err = {0};
    float *const host = reserve_host(device, 4096);
    TRY(api->signals(device, 4, &try_err));
    TRY(api->capture_begin(device, &try_err));
    TRY(api->fill(device, x, 0, 64, &try_err));
    TRY(api->record(device, 0, CKPT_STREAM_COMPUTE, &try_err));
    TRY(api->wait(device, 0, CKPT_STREAM_D2H, &try_err));
    TRY(api->offload(device, host, x, 64, &try_err));
    assert_int_equal(api->capture_end(device, &recording, &err), CKPT_DEVICE);
    api->capture_release(device, NULL);
    TRY(api->fill(device, x, 0, 4096, &try_err));
    TRY(api->download(device, back, x, sizeof back, &try_err));
    assert_true(back[3] == 0.0f);
    api->release(device, x, 4096);
    api->release_host(device, host, 4096);
}

/* ------------------------------------------------------------------------------------------------ counters */

/* A recorded dropout draws with the counters of `begin` before each replay, not with those of the recording. */
static void begin_of(ckpt_device *device)
{
    const ckpt_device_api *const api = device->api;
    static float ones[COUNT], direct[3][COUNT], back[COUNT];
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 1, (int64_t[]){COUNT});
    test_layer(&m, "drop", "dropout", "x", "p=0.5");
    const ckpt_network *network = NULL;
    TRY(ckpt_network_infer(&m.model, CKPT_ON_GPU, &m.arena, &network, &try_err));
    ckpt_bound_kernel bound;
    TRY(ckpt_device_bind(device, &network->node[0], 0, 0, NULL, &bound, &try_err));
    float *const x = reserve(device, sizeof ones), *const y = reserve(device, sizeof ones);
    for (int i = 0; i < COUNT; i++) {
        ones[i] = 1;
    }
    TRY(api->upload(device, x, ones, sizeof ones, &try_err));
    const void *const in[] = {x};
    void *const out[] = {y};
    const ckpt_kernel_args args = {.in = in, .out = out, .seed = 9, .step = 9};
    for (uint64_t step = 0; step < 3; step++) {
        TRY(api->begin(device, 5, step, NULL, &try_err));
        TRY(ckpt_device_forward(device, &bound, &args, &try_err));
        TRY(api->download(device, direct[step], y, sizeof back, &try_err));
    }
    assert_memory_not_equal(direct[0], direct[1], sizeof back);
    void *recording = NULL;
    TRY(api->capture_begin(device, &try_err));
    TRY(ckpt_device_forward(device, &bound, &args, &try_err));
    TRY(api->capture_end(device, &recording, &try_err));
    for (uint64_t step = 0; step < 3; step++) {
        ckpt_emulated_schedule(is_emulated(device) ? step + 1 : 0);
        TRY(api->begin(device, 5, step, NULL, &try_err));
        TRY(api->replay(device, recording, &try_err));
        TRY(api->begin(device, 77, 77, NULL, &try_err)); /* of the next step: this one must not see it */
        TRY(api->download(device, back, y, sizeof back, &try_err));
        CHECK(memcmp(back, direct[step], sizeof back) == 0, "the replay of step %d draws another mask", (int)step);
    }
    ckpt_emulated_schedule(0);
    api->capture_release(device, recording);
    ckpt_device_unbind(&bound);
    api->release(device, x, sizeof ones);
    api->release(device, y, sizeof ones);
    test_model_fini(&m);
}

/* ------------------------------------------------------------------------------------------------ stamps */

static void stamps_of(ckpt_device *device)
{
    const ckpt_device_api *const api = device->api;
    float *const x = reserve(device, COUNT * 4), *const host = reserve_host(device, COUNT * 4);
    ckpt_ns ns[4];
    TRY(api->stamps(device, 4, &try_err));
    TRY(api->signals(device, 4, &try_err));
    for (int recorded = 0; recorded < 2; recorded++) {
        void *recording = NULL;
        if (recorded) {
            TRY(api->capture_begin(device, &try_err));
        }
        TRY(api->stamp(device, 0, CKPT_STREAM_COMPUTE, &try_err));
        TRY(api->fill(device, x, 1, COUNT * 4, &try_err));
        TRY(api->stamp(device, 1, CKPT_STREAM_COMPUTE, &try_err));
        TRY(api->record(device, 0, CKPT_STREAM_COMPUTE, &try_err));
        TRY(api->wait(device, 0, CKPT_STREAM_D2H, &try_err));
        TRY(api->stamp(device, 2, CKPT_STREAM_D2H, &try_err));
        TRY(api->offload(device, host, x, COUNT * 4, &try_err));
        TRY(api->stamp(device, 3, CKPT_STREAM_D2H, &try_err));
        TRY(api->record(device, 1, CKPT_STREAM_D2H, &try_err));
        TRY(api->wait(device, 1, CKPT_STREAM_COMPUTE, &try_err));
        for (int run = 0; run < 1 + recorded; run++) {
            if (recorded) {
                if (run == 0) {
                    TRY(api->capture_end(device, &recording, &try_err));
                }
                TRY(api->replay(device, recording, &try_err));
            }
            TRY(api->finish(device, &try_err));
            for (int k = 0; k < 4; k++) {
                TRY(api->stamp_ns(device, k, &ns[k], &try_err));
            }
            CHECK(ns[0] == 0 && ns[1] >= 0 && ns[2] >= ns[1] && ns[3] >= ns[2], "stamps %lld %lld %lld %lld",
                  (long long)ns[0], (long long)ns[1], (long long)ns[2], (long long)ns[3]);
        }
        if (recorded) {
            api->capture_release(device, recording);
        }
    }
    api->release(device, x, COUNT * 4);
    api->release_host(device, host, COUNT * 4);
}

/* ------------------------------------------------------------------------------------------------ opening */

static void test_opening(void **state)
{
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    assert_int_equal(ckpt_device_emulated.open(1, 1, &device, &err), CKPT_DEVICE);
    CHECK(strstr(err.msg, "cuda:1") != NULL, "%s", err.msg);
    assert_null(device);
    const int64_t before = ckpt_emulated_device_bytes();
    CHECK_OK(ckpt_device_emulated.open(0, 1, &device, &err), err);
    assert_true(ckpt_emulated_device_bytes() > before);
    ckpt_device_close(device);
    assert_int_equal(ckpt_emulated_device_bytes(), before);
    assert_int_equal(ckpt_emulated_host_bytes(), 0);
}

static void on_all(void (*check)(ckpt_device *device))
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        check(ckpt_gpus[g].device);
    }
}

#define ON_ALL(name)                                                                                                   \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        on_all(name##_of);                                                                                             \
    }
ON_ALL(memory)
ON_ALL(refused_memory)
ON_ALL(arithmetic)
ON_ALL(signals)
ON_ALL(bad_recordings)
ON_ALL(begin)
ON_ALL(stamps)

static int close_all(void **state)
{
    ckpt_gpus_close(state);
    assert_int_equal(ckpt_emulated_device_bytes(), 0);
    assert_int_equal(ckpt_emulated_host_bytes(), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),    cmocka_unit_test(test_memory),  cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_signals), cmocka_unit_test(test_bad_recordings),
        cmocka_unit_test(test_begin),      cmocka_unit_test(test_stamps),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, close_all);
}
