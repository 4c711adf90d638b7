/* labels: cuda; on a GPU: 40 s, alone */
/* The recorder with NVIDIA's libcupti on cuda:0: the device's work is recorded with its tags, and nothing is lost. Exit
 * code 77 without a device, or if recording is refused.
 *
 * With CKPT_TEST_EMULATED=1 it runs on the emulated device and the double of libcupti, which is told what happened.
 * This tests this file, not CUPTI. */
#include "tests/support/support_cupti.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CKPT_HAVE_CUPTI
#include "kernels/device.h"
#include "tests/emulation/emulation.h"

enum { BYTES = 1 << 20, MANY = 20000, MANY_EMULATED = 200, TAGS = 6, NO_DEVICE = 77 };

static ckpt_device *gpu;
static bool emulated;
static void *block, *locked, *host;

/* One piece of work of the device, and its record by the double. */
typedef struct deed {
    ckpt_activity_kind kind;
    ckpt_copy_way way;
    int64_t bytes; /* 0: a kernel, which has none */
    ckpt_code (*run)(ckpt_err *err);
    const char *items;
} deed;

static ckpt_code upload(ckpt_err *err)
{
    return gpu->api->upload(gpu, block, host, BYTES, err);
}

static ckpt_code fill(ckpt_err *err)
{
    return gpu->api->fill(gpu, block, 7, BYTES / 2, err);
}

static ckpt_code add(ckpt_err *err)
{
    return gpu->api->add(gpu, CKPT_FLOAT32, block, (char *)block + BYTES, BYTES / 4, err);
}

static ckpt_code download(ckpt_err *err)
{
    return gpu->api->download(gpu, host, block, BYTES / 4, err);
}

static ckpt_code offload(ckpt_err *err)
{
    return gpu->api->offload(gpu, locked, block, BYTES, err);
}

static ckpt_code fetch(ckpt_err *err)
{
    return gpu->api->fetch(gpu, block, locked, BYTES, err);
}

static const deed deeds[TAGS] = {
    {CKPT_ACTIVITY_COPY, CKPT_COPY_TO_DEVICE, BYTES, upload, "copy to_device 1048576 300"},
    {CKPT_ACTIVITY_FILL, CKPT_COPY_OTHER, BYTES / 2, fill, "fill 524288 100"},
    {CKPT_ACTIVITY_KERNEL, CKPT_COPY_OTHER, 0, add, "kernel add 500"},
    {CKPT_ACTIVITY_COPY, CKPT_COPY_TO_HOST, BYTES / 4, download, "copy to_host 262144 90"},
    {CKPT_ACTIVITY_COPY, CKPT_COPY_TO_HOST, BYTES, offload, "stream 8; copy to_host 1048576 90"},
    {CKPT_ACTIVITY_COPY, CKPT_COPY_TO_DEVICE, BYTES, fetch, "stream 9; copy to_device 1048576 90"},
};

static void happened(const char *items)
{
    if (emulated) {
        assert_int_equal(ckpt_twin.run(items), 0);
    }
}

static void do_it(const deed *d, uint64_t tag)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_push(ckpt_rec.recorder, tag, &err), err);
    CHECK_OK(d->run(&err), err);
    happened(d->items);
    CHECK_OK(ckpt_recorder_pop(ckpt_rec.recorder, &err), err);
}

static void wait_and_collect(void)
{
    ckpt_err err = {0};
    CHECK_OK(gpu->api->finish(gpu, &err), err);
    ckpt_rec_collect();
}

static ckpt_bytes free_bytes(void)
{
    ckpt_err err = {0};
    ckpt_device_memory memory = {0};
    CHECK_OK(gpu->api->memory(gpu, &memory, &err), err);
    return memory.free;
}

static bool runs(const ckpt_activity *a)
{
    return a->kind == CKPT_ACTIVITY_KERNEL || a->kind == CKPT_ACTIVITY_COPY || a->kind == CKPT_ACTIVITY_FILL;
}

static void nothing_lost(void)
{
    const ckpt_recorder_report report = ckpt_rec_told();
    print_message("%s\n", ckpt_recorder_describe(ckpt_rec.recorder, &ckpt_rec.arena));
    assert_int_equal(report.dropped, 0);
    assert_int_equal(report.odd, 0);
}

static void each_thing_under_its_tag(void **state)
{
    int64_t bytes[TAGS] = {0};
    int count[TAGS] = {0};
    (void)state;
    for (int recomputed = 0; recomputed < 2; recomputed++) {
        for (int i = 0; i < TAGS; i++) {
            do_it(&deeds[i], (uint64_t)i + 1);
        }
        wait_and_collect();
        memset(bytes, 0, sizeof bytes);
        memset(count, 0, sizeof count);
        for (int i = 0; i < ckpt_rec.count; i++) {
            const ckpt_activity *const a = &ckpt_rec.got[i];
            if (runs(a)) {
                assert_in_range(a->tag, 1, TAGS);
                const deed *const d = &deeds[a->tag - 1];
                CHECK(a->kind == d->kind && a->way == d->way, "tag %d: a %s, way %d", (int)a->tag,
                      ckpt_activity_kind_name(a->kind), (int)a->way);
                assert_true(a->end_ns > a->start_ns);
                assert_true((a->name[0] != '\0') == (a->kind == CKPT_ACTIVITY_KERNEL));
                bytes[a->tag - 1] += a->bytes;
                count[a->tag - 1]++;
                if (recomputed == 0) {
                    print_message("tag %d: %s %s, %lld bytes, %lld ns, stream %u\n", (int)a->tag,
                                  ckpt_activity_kind_name(a->kind), a->name, (long long)a->bytes,
                                  (long long)(a->end_ns - a->start_ns), a->stream);
                }
            }
        }
        for (int i = 0; i < TAGS; i++) {
            CHECK(count[i] > 0, "tag %d: nothing", i + 1);
            assert_int_equal(bytes[i], deeds[i].bytes);
        }
        nothing_lost();
    }
    wait_and_collect();
    CHECK(!emulated || ckpt_rec.count == 0, "the double records %d things when nothing happens", ckpt_rec.count);
    for (int i = 0; i < ckpt_rec.count; i++) { /* CUPTI itself records calls or overhead */
        CHECK(!runs(&ckpt_rec.got[i]), "late: tag %d, a %s", (int)ckpt_rec.got[i].tag,
              ckpt_activity_kind_name(ckpt_rec.got[i].kind));
    }
}

/* More kernels than one buffer holds, started faster than they run. Each is recorded once, with its tag. Their order is
 * printed, and required only of the double: CUPTI adjusts the device's clock to the host's as it runs, so two kernels
 * of a microsecond may be swapped. */
static void many_kernels(void **state)
{
    static bool seen[MANY + 1];
    const int many = emulated ? MANY_EMULATED : MANY;
    int kernels = 0;
    int early = 0;
    ckpt_ns last = 0;
    (void)state;
    for (int i = 0; i < many; i++) {
        do_it(&deeds[2], (uint64_t)i + 1);
    }
    wait_and_collect();
    for (int i = 0; i < ckpt_rec.count; i++) {
        const ckpt_activity *const a = &ckpt_rec.got[i];
        if (runs(a)) {
            assert_in_range(a->tag, 1, many);
            assert_false(seen[a->tag]);
            seen[a->tag] = true;
            kernels++;
            early += a->start_ns < last;
            last = a->end_ns;
        }
    }
    print_message("%d of %d kernels start before the one before them ended\n", early, kernels);
    assert_int_equal(kernels, many);
    assert_true(!emulated || early == 0);
    nothing_lost();
}

static void memory_by_its_address(void **state)
{
    enum { ODD_BYTES = 12345678 };
    char items[64];
    ckpt_err err = {0};
    void *base = NULL;
    bool allocated = false;
    bool released = false;
    (void)state;
    CHECK_OK(gpu->api->reserve(gpu, ODD_BYTES, &base, &err), err);
    snprintf(items, sizeof items, "allocate %d %p; release %p", ODD_BYTES, base, base);
    gpu->api->release(gpu, base, ODD_BYTES);
    happened(items);
    wait_and_collect();
    for (int i = 0; i < ckpt_rec.count; i++) {
        const ckpt_activity *const a = &ckpt_rec.got[i];
        if (a->address == (uint64_t)(uintptr_t)base) {
            assert_true(a->kind != CKPT_ACTIVITY_ALLOCATE || a->bytes >= ODD_BYTES);
            allocated = allocated || a->kind == CKPT_ACTIVITY_ALLOCATE;
            released = released || (allocated && a->kind == CKPT_ACTIVITY_RELEASE);
        }
    }
    assert_true(allocated && released);
}

static void set_up(void)
{
    ckpt_err err = {0};
    host = ckpt_memory_get(BYTES);
    assert_non_null(host);
    CHECK_OK(gpu->api->reserve(gpu, 2 * BYTES, &block, &err), err);
    CHECK_OK(gpu->api->reserve_host(gpu, BYTES, &locked, &err), err);
    for (int i = 0; i < TAGS; i++) { /* code is loaded at its first use */
        CHECK_OK(deeds[i].run(&err), err);
    }
    CHECK_OK(gpu->api->finish(gpu, &err), err);
}

/* Opens the recorder if possible. */
static int recorder_set_up(void **state)
{
    ckpt_err err = {0};
    if (emulated) {
        ckpt_rec_group(state);
        ckpt_rec_begin("");
    } else {
        ckpt_rec.options = (ckpt_recorder_options){.memory = true, .calls = true};
        ckpt_arena_init(&ckpt_rec.arena);
    }
    set_up();
    const ckpt_bytes before = free_bytes();
    if (ckpt_recorder_open(&ckpt_rec.options, &ckpt_rec.recorder, &err) != CKPT_OK) {
        printf("skipped: %s\n", err.msg);
        exit(NO_DEVICE);
    }
    do_it(&deeds[2], 1);
    wait_and_collect();
    printf("recording took %lld bytes of the device\n", (long long)(before - free_bytes()));
    return 0;
}

static int recorder_tear_down(void **state)
{
    ckpt_rec_close();
    ckpt_arena_fini(&ckpt_rec.arena);
    gpu->api->release_host(gpu, locked, BYTES);
    gpu->api->release(gpu, block, 2 * BYTES);
    ckpt_memory_put(host);
    return 0;
}

int main(void)
{
    ckpt_err err = {0};
    const char *const rehearse = getenv("CKPT_TEST_EMULATED");
    emulated = rehearse != NULL && strcmp(rehearse, "1") == 0;
    const ckpt_code code =
        emulated ? ckpt_device_emulated.open(0, 1, &gpu, &err) : ckpt_device_open("cuda:0", 1, &gpu, &err);
    if (code != CKPT_OK) {
        printf("skipped: no device: %s\n", err.msg);
        return NO_DEVICE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thing_under_its_tag),
        cmocka_unit_test(many_kernels),
        cmocka_unit_test(memory_by_its_address),
    };
    const int failed = cmocka_run_group_tests_name("cuda_recorder", tests, recorder_set_up, recorder_tear_down);
    ckpt_device_close(gpu);
    return failed;
}
#else
int main(void)
{
    puts("this build has no CUPTI");
    return 77;
}
#endif
