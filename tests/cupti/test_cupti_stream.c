/* labels: unit */
/* The recorder under load: too little memory, random streams compared with a plain model, random bytes, threads,
 * streams from files; and NVIDIA's libcupti, if it is installed without a driver. The seed is printed; a first argument
 * replaces it. */
#include "tests/support/support_cupti.h"

#include <stdlib.h>
#include <string.h>

#include <stdio.h>

#ifdef CKPT_HAVE_CUPTI
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cupti/cupti_impl.h"

static const char step[] = "range step; allocate 4096 0x1000; kernel gemm 1000; stream 9; copy to_host 640 300; "
                           "driver; fill 64 50; runtime; mark here; overhead 70; call 20; release 0x1000; end";

static ckpt_code record_something(void *context, ckpt_arena *out, ckpt_err *err)
{
    ckpt_recorder *r = NULL;
    const ckpt_activity *all = NULL;
    int count = 0;
    ckpt_twin.reset();
    ckpt_twin.control(context);
    ckpt_code code = ckpt_recorder_open(&ckpt_rec.options, &r, err);
    if (code == CKPT_OK) {
        for (int i = 0; i < 100 && code == CKPT_OK; i++) { /* all tables have to grow */
            char items[64];
            snprintf(items, sizeof items, "range r%d; kernel k%d 5", i, i);
            code = ckpt_recorder_push(r, (uint64_t)i + 1, err);
            if (code == CKPT_OK) {
                ckpt_twin.run(items);
                code = ckpt_recorder_pop(r, err);
            }
        }
        code = code == CKPT_OK ? ckpt_recorder_collect(r, out, &all, &count, err) : code;
        if (code == CKPT_OK && (count != 200 || ckpt_recorder_describe(r, out) == NULL)) {
            code = CKPT_FAIL(err, count != 200 ? CKPT_BAD_INPUT : CKPT_NO_MEMORY, "%d activities", count);
        }
    }
    ckpt_recorder_close(r);
    return code;
}

static void test_too_little_memory(void **state)
{
    char controls[] = "buffer=4096";
    (void)state;
    ckpt_rec_begin("");
    assert_true(ckpt_test_starve_arena(record_something, controls) > 10);
    ckpt_rec_end();
}

/* Memory runs out while records arrive, and is available when they are collected: the result is all of them or
 * CKPT_NO_MEMORY, and all of them the next time. */
static void test_memory_that_was_short_for_a_while(void **state)
{
    int short_of = 0;
    (void)state;
    for (int allowed = 0; allowed < 40; allowed++) {
        ckpt_err err = {0};
        ckpt_rec_begin("buffer=4096");
        ckpt_rec_open();
        for (int recomputed = 0; recomputed < 2; recomputed++) {
            for (int i = 0; i < 200; i++) {
                char items[64];
                snprintf(items, sizeof items, "range r%d; kernel k%d 5; end", i, i);
                ckpt_rec_tagged((uint64_t)i + 1, items);
            }
            ckpt_memory_fail_after(recomputed == 0 ? allowed : -1);
            CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
            ckpt_memory_fail_after(-1);
            const ckpt_code code =
                ckpt_recorder_collect(ckpt_rec.recorder, &ckpt_rec.arena, &ckpt_rec.got, &ckpt_rec.count, &err);
            assert_true(code == CKPT_OK || (code == CKPT_NO_MEMORY && recomputed == 0));
            short_of += code == CKPT_NO_MEMORY;
            if (code == CKPT_OK) {
                assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 200);
                assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_RANGE), 200);
                assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 199)->name, "k199");
            }
            ckpt_arena_fini(&ckpt_rec.arena);
        }
        ckpt_rec_end();
    }
    assert_in_range(short_of, 5, 39);
}

/* The expected result, in the simplest form: by the number of the call that started the work. */
typedef struct plain {
    ckpt_activity_kind kind;
    uint64_t tag;
    char name[16];
    int64_t bytes, ns;
    int seen;
} plain;
enum { MOST_PLAIN = 400 };

static plain random_item(char *items, size_t size)
{
    plain p = {.ns = (int64_t)(ckpt_rec_draw() % 1000), .bytes = (int64_t)(ckpt_rec_draw() % 100000)};
    switch (ckpt_rec_draw() % 4) {
    case 0:
        p.kind = CKPT_ACTIVITY_COPY;
        snprintf(items, size, "copy on_device %lld %lld", (long long)p.bytes, (long long)p.ns);
        break;
    case 1:
        p.kind = CKPT_ACTIVITY_FILL;
        snprintf(items, size, "driver; fill %lld %lld", (long long)p.bytes, (long long)p.ns);
        break;
    default:
        p.kind = CKPT_ACTIVITY_KERNEL;
        p.bytes = 0;
        snprintf(p.name, sizeof p.name, "k%u", (unsigned)(ckpt_rec_draw() % 300));
        snprintf(items, size, "stream %u; kernel %s %lld", (unsigned)(ckpt_rec_draw() % 5), p.name, (long long)p.ns);
    }
    return p;
}

static void check_plain(plain *all, int from, int to)
{
    int wanted = to - from;
    for (int i = 0; i < ckpt_rec.count; i++) {
        const ckpt_activity *const a = &ckpt_rec.got[i];
        assert_true(i == 0 || ckpt_rec.got[i - 1].start_ns <= a->start_ns);
        assert_in_range(a->correlation, from + 1, to);
        plain *const p = &all[a->correlation - 1];
        assert_int_equal(a->tag, p->tag);
        if (a->kind != CKPT_ACTIVITY_CALL) {
            assert_int_equal(a->kind, p->kind);
            assert_int_equal(a->bytes, p->bytes);
            assert_int_equal(a->end_ns - a->start_ns, p->ns);
            assert_string_equal(a->name, p->name);
            p->seen++;
            wanted--;
        }
    }
    assert_int_equal(wanted, 0);
    for (int i = from; i < to; i++) {
        assert_int_equal(all[i].seen, 1);
    }
}

static void test_random_streams_against_a_plain_model(void **state)
{
    static plain all[MOST_PLAIN];
    static const char *const versions[] = {"18", "22", "26", "130001", "130202"};
    const uint64_t rounds = ckpt_test_rounds(300, 60);
    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        char controls[128];
        uint64_t tags[8];
        int depth = 0;
        int count = 0;
        int collected = 0;
        ckpt_err err = {0};
        snprintf(controls, sizeof controls, "version=%s; buffer=%u; reverse=%u; thread=%u",
                 versions[ckpt_rec_draw() % 5], (unsigned)(224 + ckpt_rec_draw() % 3000),
                 (unsigned)(ckpt_rec_draw() % 2), (unsigned)(ckpt_rec_draw() % 8 == 0));
        ckpt_rec_begin(controls);
        ckpt_rec.options.calls = ckpt_rec_draw() % 2 == 0;
        ckpt_rec_open();
        for (int action = (int)(ckpt_rec_draw() % 200); action > 0; action--) {
            char items[64];
            const uint64_t what = ckpt_rec_draw() % 10;
            if (what < 2 && depth < 8) {
                tags[depth] = 1 + ckpt_rec_draw() % 50;
                CHECK_OK(ckpt_recorder_push(ckpt_rec.recorder, tags[depth++], &err), err);
            } else if (what < 4 && depth > 0) {
                depth--;
                CHECK_OK(ckpt_recorder_pop(ckpt_rec.recorder, &err), err);
            } else if (what == 4 && ckpt_rec_draw() % 8 == 0) {
                ckpt_rec_collect();
                check_plain(all, collected, count);
                collected = count;
            } else {
                all[count] = random_item(items, sizeof items);
                all[count++].tag = depth > 0 ? tags[depth - 1] : 0;
                CHECK(ckpt_twin.run(items) == 0, "%s", items);
            }
        }
        for (; depth > 0; depth--) {
            CHECK_OK(ckpt_recorder_pop(ckpt_rec.recorder, &err), err);
        }
        ckpt_rec_collect();
        check_plain(all, collected, count);
        assert_int_equal(ckpt_rec_told().odd, 0);
        ckpt_rec_end();
    }
}

/* Random buffers must not crash, and results must have valid times. Pointers from CUPTI are trusted, so kinds with
 * names are tested only with valid records. */
static void test_random_bytes(void **state)
{
    static const uint32_t kinds[] = {1, 2, 4, 5, 17, 22, 39, 49, 0, 6, 50, 99, UINT32_MAX};
    const uint64_t rounds = ckpt_test_rounds(400, 100);
    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        ckpt_rec_begin(ckpt_rec_draw() % 2 == 0 ? "" : "cut=1; version=26; buffer=300");
        ckpt_rec_open();
        for (int i = (int)(ckpt_rec_draw() % 20); i > 0; i--) {
            uint64_t words[32];
            for (int w = 0; w < 32; w++) {
                const uint64_t narrow = ckpt_rec_draw() % 64;
                const uint32_t kind = ckpt_rec_draw() % 8 == 0 ? kinds[ckpt_rec_draw() % 13]
                                                               : (uint32_t)(ckpt_rec_draw() >> narrow % 32) | 64;
                words[w] = ckpt_rec_draw() >> narrow << 32 | kind;
            }
            words[0] = words[0] >> 32 << 32 | kinds[ckpt_rec_draw() % 13];
            ckpt_twin.record(words, 8 * (uint32_t)(1 + ckpt_rec_draw() % 28));
        }
        ckpt_twin.run("kernel whole 5; range r; mark m");
        ckpt_rec_collect();
        for (int i = 0; i < ckpt_rec.count; i++) {
            assert_true(ckpt_rec.got[i].start_ns > 0 && ckpt_rec.got[i].end_ns >= ckpt_rec.got[i].start_ns);
            assert_in_range(ckpt_rec.got[i].kind, 0, CKPT_ACTIVITY_KIND_COUNT - 1);
            assert_true(ckpt_rec.got[i].bytes >= 0);
            assert_non_null(ckpt_rec.got[i].name);
        }
        ckpt_rec_end();
    }
}

enum { THREADS = 4, STEPS = 150 };

static void *work(void *context)
{
    const uint64_t first = *(const uint64_t *)context;
    for (uint64_t i = 0; i < STEPS; i++) {
        char items[64];
        ckpt_err err = {0};
        snprintf(items, sizeof items, "kernel t%llu 5", (unsigned long long)(first + i));
        if (ckpt_recorder_push(ckpt_rec.recorder, first + i, &err) != CKPT_OK || ckpt_twin.run(items) != 0 ||
            ckpt_recorder_pop(ckpt_rec.recorder, &err) != CKPT_OK ||
            (i % 16 == 0 && ckpt_recorder_flush(ckpt_rec.recorder, &err) != CKPT_OK)) {
            abort();
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[THREADS];
    uint64_t first[THREADS];
    (void)state;
    ckpt_rec_begin("thread=1; buffer=1000");
    ckpt_rec.options.calls = false;
    ckpt_rec_open();
    for (uint64_t i = 0; i < THREADS; i++) {
        first[i] = 1000 * (i + 1);
        assert_int_equal(pthread_create(&thread[i], NULL, work, &first[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec.count, THREADS * STEPS);
    for (int i = 0; i < ckpt_rec.count; i++) {
        assert_int_equal(ckpt_rec.got[i].tag, strtoull(ckpt_rec.got[i].name + 1, NULL, 10));
    }
    assert_int_equal(ckpt_rec_told().dropped, 0);
    ckpt_rec_end();
}

/* The same script, run and from files of two versions (CKPT_UPDATE_GOLDEN=1 writes them). */
static void test_streams_from_files(void **state)
{
    static const char *const versions[] = {"26", "130001"};
    const bool update = getenv("CKPT_UPDATE_GOLDEN") != NULL;
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[512];
        char control[32];
        ckpt_arena live;
        snprintf(path, sizeof path, "%s/tests/cupti_double/streams/step_%s.txt", ckpt_source_dir(), versions[i]);
        snprintf(control, sizeof control, "version=%s", versions[i]);
        assert_int_equal(setenv("CKPT_CUPTI_DOUBLE_WRITE", update ? path : "", 1), 0);
        ckpt_rec_begin(control);
        ckpt_rec_open();
        ckpt_rec_tagged(7, step);
        ckpt_rec_tagged(8, "kernel \"void f<int, 4>(float*)\" 99");
        ckpt_rec_collect();
        const ckpt_activity *const wanted = ckpt_rec.got;
        const int count = ckpt_rec.count;
        live = ckpt_rec.arena;
        ckpt_rec_close();
        assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE_WRITE"), 0);
        assert_int_equal(setenv("CKPT_CUPTI_DOUBLE_STREAM", path, 1), 0);
        ckpt_rec_begin("");
        assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE_STREAM"), 0);
        ckpt_rec_open();
        ckpt_rec_collect();
        assert_int_equal(ckpt_rec.count, count);
        for (int k = 0; k < count; k++) {
            const ckpt_activity *const a = &ckpt_rec.got[k];
            const ckpt_activity *const b = &wanted[k];
            assert_string_equal(a->name, b->name);
            assert_true(a->kind == b->kind && a->way == b->way && a->start_ns == b->start_ns &&
                        a->end_ns == b->end_ns && a->device == b->device && a->context == b->context &&
                        a->stream == b->stream && a->correlation == b->correlation && a->tag == b->tag &&
                        a->thread == b->thread && a->bytes == b->bytes && a->address == b->address);
        }
        ckpt_arena_fini(&live);
        ckpt_rec_end();
    }
}

/* Runs in a separate process that ends without the destructors of NVIDIA's library, in which CUDA 13.2's crashes.
 * Returns its exit status; 77: not available. */
static int apart(int (*check)(void))
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(check());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static const char *const reals[] = {"libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/lib64/libcupti.so"};
enum { REAL_COUNT = 3 };

static int decline(void)
{
    int result = 77;
    for (int i = 0; i < REAL_COUNT; i++) {
        ckpt_err err = {0};
        ckpt_recorder *none = NULL;
        ckpt_rec.options.library = reals[i];
        if (dlopen(reals[i], RTLD_LAZY) != NULL) {
            result = ckpt_recorder_open(&ckpt_rec.options, &none, &err) == CKPT_DEVICE &&
                             strncmp(err.msg, "no NVIDIA driver here: libcuda.so.1 is not found", 48) == 0
                         ? 0
                         : 1;
            fprintf(stderr, "%s: %s\n", reals[i], err.msg);
        }
    }
    return result;
}

static void test_nvidias_library_without_a_driver(void **state)
{
    if (ckpt_cupti_driver()) {
        print_message("there is a driver\n");
        skip();
    }
    ckpt_rec_begin("");
    ckpt_rec.options.library = NULL;
    ckpt_rec_declined("no NVIDIA driver here: libcuda.so.1 is not found");
    ckpt_err err = {0};
    ckpt_recorder *none = NULL;
    assert_int_equal(ckpt_recorder_open(&ckpt_rec.options, &none, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "no NVIDIA driver here: libcuda.so.1 is not found"); /* and no libcupti was asked */
    const int result = apart(decline);
    CHECK(result == 0 || result == 77, "NVIDIA's libcupti was not declined");
    if (result == 77) {
        print_message("no libcupti of NVIDIA's here\n");
        skip();
    }
}

/* The second of two calls fails if a buffer has more than the valid bytes, and finds no record at the end: this is how
 * the recorder notices a cut buffer. */
static bool shows_the_cut(const ckpt_cupti *real)
{
    static uint64_t bytes[64];
    const uint32_t kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    CUpti_Activity *last = NULL;
    CUpti_Activity *next = NULL;
    memcpy(bytes, &kind, sizeof kind);
    memcpy(bytes + 5, &kind, sizeof kind);
    bool good = real->cuptiActivityGetNextRecord((uint8_t *)bytes, 60, &last) == CUPTI_SUCCESS;
    next = last;
    good = good && real->cuptiActivityGetNextRecord((uint8_t *)bytes, 60, &next) == CUPTI_ERROR_MAX_LIMIT_REACHED;
    next = last;
    good = good && real->cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &next) == CUPTI_SUCCESS &&
           (uint64_t *)(void *)next == bytes + 5;
    return good && real->cuptiActivityGetNextRecord((uint8_t *)bytes, sizeof bytes, &next) == CUPTI_ERROR_INVALID_KIND;
}

/* The double's records have the length of NVIDIA's. */
static int compare_sizes(void)
{
    static const uint32_t kinds[] = {1, 2, 3, 4, 5, 10, 12, 17, 22, 39, 49};
    static uint64_t record[64];
    ckpt_err err = {0};
    ckpt_cupti real;
    ckpt_cupti copy;
    int result = 77;
    for (int i = 0; i < REAL_COUNT; i++) {
        char control[32];
        if (ckpt_cupti_load(reals[i], &real, &err) != CKPT_OK) {
            continue;
        }
        snprintf(control, sizeof control, "version=%u", real.version);
        ckpt_twin.reset();
        ckpt_twin.control(control);
        if (ckpt_cupti_load(CKPT_TEST_DOUBLE, &copy, &err) != CKPT_OK) {
            return 1;
        }
        result = result == 1 || !shows_the_cut(&real) || !shows_the_cut(&copy);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            for (size_t size = 0; size <= sizeof record; size += 4) {
                CUpti_Activity *a = NULL;
                CUpti_Activity *b = NULL;
                memcpy(record, &kinds[k], sizeof kinds[k]);
                const CUptiResult x = real.cuptiActivityGetNextRecord((uint8_t *)record, size, &a);
                const CUptiResult y = copy.cuptiActivityGetNextRecord((uint8_t *)record, size, &b);
                if (x != y || a != b) {
                    fprintf(stderr, "%s: kind %u in %zu bytes: %d, the double %d\n", real.name, kinds[k], size, (int)x,
                            (int)y);
                    result = 1;
                    break;
                }
            }
        }
    }
    return result;
}

static void test_the_double_is_as_long_as_nvidias(void **state)
{
    ckpt_rec_begin("");
    const int result = apart(compare_sizes);
    CHECK(result == 0 || result == 77, "records of other sizes");
    ckpt_rec_end();
}

int main(int argc, char **argv)
{
    ckpt_rec_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_too_little_memory, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_memory_that_was_short_for_a_while, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_random_streams_against_a_plain_model, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_random_bytes, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_threads, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_streams_from_files, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_nvidias_library_without_a_driver, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_the_double_is_as_long_as_nvidias, ckpt_rec_leave),
    };
    return cmocka_run_group_tests(tests, ckpt_rec_group, NULL);
}
#else
int main(void)
{
    puts("this build has no CUPTI");
    return 77;
}
#endif
