/* labels: unit */
/* Decodes one CUPTI record at a time. Values written at the offsets of NVIDIA's documents, in records from the length
 * of the oldest supported version to that of the newest, must be decoded unchanged. The seed is printed; a first
 * argument replaces it. */
#include "tests/support/support_test.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <stdio.h>

#ifdef CKPT_HAVE_CUPTI
#include "cupti/cupti_impl.h"

static uint64_t seed = 20261120;

static uint64_t draw(void)
{
    static uint64_t s = 0;
    s = s == 0 ? seed : s;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static CUptiResult CUPTIAPI call_name(CUpti_CallbackDomain domain, uint32_t id, const char **name)
{
    static const char *const names[] = {
        "cudaLaunchKernel_v7000", "cuMemAlloc_v2", "cudaFree", "_v7", "x_v", "cuInit_v12x"};
    *name = id < 6 ? names[id] : NULL;
    return id < 6 && (domain == CUPTI_CB_DOMAIN_RUNTIME_API || domain == CUPTI_CB_DOMAIN_DRIVER_API)
               ? CUPTI_SUCCESS
               : CUPTI_ERROR_INVALID_PARAMETER;
}

static const ckpt_cupti cupti = {.cuptiGetCallbackName = call_name};

/* The offsets of a kind's fields in bytes; 0: no such field. `least` and `most`: its size in CUPTI 11.8 and 13.2. */
typedef struct layout {
    uint32_t kind;
    ckpt_activity_kind is;
    uint32_t least, most;
    uint32_t start, end, device, context, stream, correlation, bytes, process, thread, address, name;
} layout;

static const layout layouts[] = {
    {10, CKPT_ACTIVITY_KERNEL, 200, 224, .start = 16, .end = 24, .device = 40, .context = 44, .stream = 48,
     .correlation = 92, .name = 104},
    {3, CKPT_ACTIVITY_KERNEL, 200, 224, .start = 16, .end = 24, .device = 40, .context = 44, .stream = 48,
     .correlation = 92, .name = 104},
    {1, CKPT_ACTIVITY_COPY, 88, 96, .start = 16, .end = 24, .device = 32, .context = 36, .stream = 40,
     .correlation = 44, .bytes = 8},
    {22, CKPT_ACTIVITY_COPY, 96, 96, .start = 16, .end = 24, .device = 32, .context = 36, .stream = 40,
     .correlation = 60, .bytes = 8},
    {2, CKPT_ACTIVITY_FILL, 88, 88, .start = 16, .end = 24, .device = 32, .context = 36, .stream = 40,
     .correlation = 44, .bytes = 8},
    {49, CKPT_ACTIVITY_ALLOCATE, 120, 128, .start = 32, .device = 52, .context = 56, .stream = 60, .correlation = 12,
     .bytes = 24, .process = 48, .address = 16},
    {5, CKPT_ACTIVITY_CALL, 40, 40, .start = 8, .end = 16, .process = 24, .thread = 28, .correlation = 32},
    {4, CKPT_ACTIVITY_CALL, 40, 40, .start = 8, .end = 16, .process = 24, .thread = 28, .correlation = 32},
    {17, CKPT_ACTIVITY_OVERHEAD, 40, 56, .start = 24, .end = 32, .process = 12, .thread = 16},
    {12, CKPT_ACTIVITY_MARK, 56, 56, .start = 8, .process = 24, .thread = 28, .name = 40},
};
enum { LAYOUT_COUNT = sizeof layouts / sizeof layouts[0] };

static void put32(uint8_t *record, uint32_t at, uint32_t value)
{
    if (at > 0) {
        memcpy(record + at, &value, sizeof value);
    }
}

static void put64(uint8_t *record, uint32_t at, uint64_t value)
{
    if (at > 0) {
        memcpy(record + at, &value, sizeof value);
    }
}

/* A record of layout `l` with the values of `a`, in memory of exactly `size` bytes, with noise elsewhere. */
static uint8_t *make(const layout *l, uint32_t size, const ckpt_activity *a)
{
    uint8_t *const record = ckpt_memory_get(size);
    assert_non_null(record);
    for (uint32_t i = 0; i < size; i++) {
        record[i] = (uint8_t)draw();
    }
    memcpy(record, &l->kind, sizeof l->kind);
    put64(record, l->start, (uint64_t)a->start_ns);
    put64(record, l->end, (uint64_t)a->end_ns);
    put32(record, l->device, a->device);
    put32(record, l->context, a->context);
    put32(record, l->stream, a->stream);
    put32(record, l->correlation, a->correlation);
    put64(record, l->bytes, (uint64_t)a->bytes);
    put32(record, l->process, a->process);
    put32(record, l->thread, a->thread);
    put64(record, l->address, a->address);
    put64(record, l->name, (uint64_t)(uintptr_t)(a->name[0] != '\0' ? a->name : NULL));
    /* Other fields that decide what the record is. */
    put32(record, l->is == CKPT_ACTIVITY_ALLOCATE || l->is == CKPT_ACTIVITY_MARK ? 4 : 0, 1); /* allocation; instant */
    put32(record, l->is == CKPT_ACTIVITY_ALLOCATE ? 8 : 0, 3);                                /* of device memory */
    put32(record, l->is == CKPT_ACTIVITY_OVERHEAD ? 8 : l->is == CKPT_ACTIVITY_MARK ? 20 : 0, 2); /* of a thread */
    put32(record, l->is == CKPT_ACTIVITY_CALL ? 4 : 0, 2);                                        /* cudaFree */
    return record;
}

static ckpt_cupti_record_kind decode(const uint8_t *record, ckpt_cupti_record *out)
{
    return ckpt_cupti_decode(&cupti, (const CUpti_Activity *)(const void *)record, out);
}

static void test_every_kind_says_what_was_put_in(void **state)
{
    static const char *const names[] = {"_ZN7cutlass6KernelIfEEv", "k", ""};
    (void)state;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < LAYOUT_COUNT; i++) {
            const layout *const l = &layouts[i];
            const ckpt_ns start = 1 + (ckpt_ns)(draw() >> 2);
            const ckpt_activity put = {.start_ns = start,
                                       .end_ns = start + (ckpt_ns)(draw() >> (2 + draw() % 60)),
                                       .device = (uint32_t)draw() >> 1,
                                       .context = (uint32_t)draw() >> 1,
                                       .stream = (uint32_t)draw() >> 1,
                                       .correlation = (uint32_t)draw(),
                                       .process = (uint32_t)draw(),
                                       .thread = (uint32_t)draw(),
                                       .bytes = (int64_t)(draw() >> 1),
                                       .address = draw(),
                                       .name = names[draw() % 3]};
            uint8_t *const record = make(l, draw() % 2 == 0 ? l->least : l->most, &put);
            ckpt_cupti_record got;
            CHECK(decode(record, &got) == CKPT_CUPTI_ACTIVITY, "kind %u, round %d", l->kind, round);
            const ckpt_activity *const a = &got.activity;
            assert_int_equal(a->kind, l->is);
            assert_int_equal(a->start_ns, put.start_ns);
            assert_int_equal(a->end_ns, l->end > 0 ? put.end_ns : put.start_ns);
            assert_int_equal(a->device, l->device > 0 ? put.device : 0);
            assert_int_equal(a->context, l->context > 0 ? put.context : 0);
            assert_int_equal(a->stream, l->stream > 0 ? put.stream : 0);
            assert_int_equal(a->correlation, l->correlation > 0 ? put.correlation : 0);
            assert_int_equal(a->process, l->process > 0 ? put.process : 0);
            assert_int_equal(a->thread, l->thread > 0 ? put.thread : 0);
            assert_int_equal(a->bytes, l->bytes > 0 ? put.bytes : 0);
            assert_int_equal(a->address, l->address > 0 ? put.address : 0);
            assert_int_equal(a->tag, 0);
            if (l->name > 0) {
                assert_string_equal(a->name, put.name);
            } else if (l->is == CKPT_ACTIVITY_CALL) {
                assert_string_equal(a->name, "cudaFree");
            }
            ckpt_memory_put(record);
        }
    }
}

static void test_times_and_figures_nothing_can_have(void **state)
{
    static const struct {
        uint64_t start, end, bytes;
    } odd[] = {{0, 0, 1},          {0, 5, 1},          {6, 5, 1},
               {5, 1ULL << 63, 1}, {1ULL << 63, 5, 1}, {UINT64_MAX, UINT64_MAX, 1},
               {5, 6, 1ULL << 63}, {5, 6, UINT64_MAX}};
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        const layout *const l = &layouts[i];
        for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
            const bool by_bytes = odd[k].bytes > 1;
            if ((by_bytes && l->bytes == 0) ||
                (l->end == 0 && odd[k].start > 0 && odd[k].start < 1ULL << 63 && !by_bytes)) {
                continue;
            }
            uint8_t *const record = make(l, l->least, &(ckpt_activity){.name = ""});
            ckpt_cupti_record got;
            put64(record, l->start, odd[k].start);
            put64(record, l->end, odd[k].end);
            put64(record, l->bytes, odd[k].bytes);
            CHECK(decode(record, &got) == CKPT_CUPTI_ODD, "kind %u, case %zu", l->kind, k);
            ckpt_memory_put(record);
        }
    }
}

static const layout *layout_of(uint32_t kind)
{
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        if (layouts[i].kind == kind) {
            return &layouts[i];
        }
    }
    fail();
    return NULL;
}

/* A record of `kind` with one more field set, decoded. */
static ckpt_cupti_record_kind with(uint32_t kind, uint32_t at, uint32_t value, ckpt_cupti_record *got)
{
    static const ckpt_activity some = {.start_ns = 5,
                                       .end_ns = 6,
                                       .name = "n",
                                       .stream = UINT32_MAX,
                                       .context = UINT32_MAX,
                                       .process = 8,
                                       .thread = 9};
    uint8_t *const record = make(layout_of(kind), layout_of(kind)->least, &some);
    put32(record, at, value);
    const ckpt_cupti_record_kind is = decode(record, got);
    ckpt_memory_put(record);
    return is;
}

static void test_ways_of_copies(void **state)
{
    static const ckpt_copy_way ways[] = {CKPT_COPY_OTHER,     CKPT_COPY_TO_DEVICE, CKPT_COPY_TO_HOST,
                                         CKPT_COPY_TO_DEVICE, CKPT_COPY_TO_HOST,   CKPT_COPY_ON_DEVICE,
                                         CKPT_COPY_ON_DEVICE, CKPT_COPY_ON_DEVICE, CKPT_COPY_ON_DEVICE,
                                         CKPT_COPY_OTHER,     CKPT_COPY_OTHER,     CKPT_COPY_OTHER};
    ckpt_cupti_record got;
    (void)state;
    for (uint32_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        assert_int_equal(with(1, 4, k | 0x01020300U, &got), CKPT_CUPTI_ACTIVITY);
        assert_int_equal(got.activity.way, ways[k]);
    }
    assert_int_equal(with(22, 4, 1, &got), CKPT_CUPTI_ACTIVITY);
    assert_int_equal(got.activity.way, CKPT_COPY_OTHER); /* between two GPUs */
}

static void test_memory_of_the_host_is_left_out(void **state)
{
    ckpt_cupti_record got;
    (void)state;
    for (uint32_t where = 0; where < 9; where++) {
        const bool host = where == 1 || where == 2;
        assert_int_equal(with(49, 8, where, &got), host ? CKPT_CUPTI_OTHER : CKPT_CUPTI_ACTIVITY);
    }
    assert_int_equal(got.activity.stream, 0); /* not of a stream */
    assert_int_equal(got.activity.context, 0);
    assert_int_equal(with(49, 4, 2, &got), CKPT_CUPTI_ACTIVITY);
    assert_int_equal(got.activity.kind, CKPT_ACTIVITY_RELEASE);
    assert_int_equal(with(49, 4, 0, &got), CKPT_CUPTI_OTHER);
    assert_int_equal(with(49, 4, 3, &got), CKPT_CUPTI_OTHER);
}

static void test_markers(void **state)
{
    ckpt_cupti_record got;
    (void)state;
    assert_int_equal(with(12, 4, 2, &got), CKPT_CUPTI_RANGE_START);
    assert_int_equal(got.activity.kind, CKPT_ACTIVITY_RANGE);
    assert_string_equal(got.activity.name, "n");
    assert_int_equal(with(12, 4, 4, &got), CKPT_CUPTI_RANGE_END);
    assert_int_equal(with(12, 4, 8, &got), CKPT_CUPTI_OTHER); /* waiting for a user's lock */
    assert_int_equal(with(12, 4, 0, &got), CKPT_CUPTI_OTHER);
    assert_int_equal(with(12, 16, 12345, &got), CKPT_CUPTI_ACTIVITY);
    assert_int_equal(got.marker, 12345);
    assert_int_equal(with(12, 20, 5, &got), CKPT_CUPTI_ACTIVITY); /* of a stream */
    assert_int_equal(got.activity.thread, 0);
    assert_int_equal(with(12, 20, 1, &got), CKPT_CUPTI_ACTIVITY); /* of the whole process */
    assert_int_equal(got.activity.process, 8);
    assert_int_equal(got.activity.thread, 0);
    assert_int_equal(with(12, 20, 99, &got), CKPT_CUPTI_ACTIVITY);
}

static void test_names_of_calls_and_overheads(void **state)
{
    static const char *const calls[] = {"cudaLaunchKernel", "cuMemAlloc", "cudaFree", "_v7", "x_v", "cuInit_v12x", ""};
    ckpt_cupti_record got;
    (void)state;
    for (uint32_t id = 0; id < 7; id++) {
        assert_int_equal(with(5, 4, id, &got), CKPT_CUPTI_ACTIVITY);
        assert_string_equal(got.activity.name, calls[id]);
    }
    assert_int_equal(with(17, 4, 1 << 16, &got), CKPT_CUPTI_ACTIVITY);
    assert_string_equal(got.activity.name, "giving records back");
    assert_int_equal(with(17, 4, 77U << 16, &got), CKPT_CUPTI_ACTIVITY);
    assert_string_equal(got.activity.name, "other");
}

static void test_tags_and_what_is_nothing_of_ours(void **state)
{
    struct {
        uint32_t kind, of;
        uint64_t tag;
        uint32_t correlation, rest;
    } record = {39, 3, UINT64_MAX - 1, 77, 0};
    ckpt_cupti_record got;
    (void)state;
    static_assert(sizeof record == 24, "as CUPTI has it");
    assert_int_equal(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, record.kind);
    assert_int_equal(decode((const uint8_t *)&record, &got), CKPT_CUPTI_TAG);
    assert_int_equal(got.activity.tag, UINT64_MAX - 1);
    assert_int_equal(got.activity.correlation, 77);
    record.of = 4; /* another tool's */
    assert_int_equal(decode((const uint8_t *)&record, &got), CKPT_CUPTI_OTHER);
    for (uint32_t kind = 0; kind < 100; kind++) {
        bool ours = kind == 39;
        for (int i = 0; i < LAYOUT_COUNT; i++) {
            ours = ours || layouts[i].kind == kind;
        }
        record.kind = kind;
        if (!ours) {
            assert_int_equal(decode((const uint8_t *)&record, &got), CKPT_CUPTI_OTHER);
        }
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_says_what_was_put_in),
        cmocka_unit_test(test_times_and_figures_nothing_can_have),
        cmocka_unit_test(test_ways_of_copies),
        cmocka_unit_test(test_memory_of_the_host_is_left_out),
        cmocka_unit_test(test_markers),
        cmocka_unit_test(test_names_of_calls_and_overheads),
        cmocka_unit_test(test_tags_and_what_is_nothing_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    puts("this build has no CUPTI");
    return 77;
}
#endif
