/* labels: unit */
/* The recorder from end to end, against the double of libcupti (tests/cupti_double) and, where it is installed, against
 * NVIDIA's own without a driver. The seed is printed; a first argument replaces it. */
#include "tests/support_test.h"

#include <stdlib.h>
#include <string.h>

#ifdef CKPT_HAVE_CUPTI
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cupti/cupti_impl.h"
#include "cupti/recorder.h"
#include "tests/cupti_double/cupti_double.h"

#define DOUBLE CKPT_BIN_DIR "/libcupti_double.so"

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

static struct {
    __typeof__(ckpt_cupti_double_reset) *reset;
    __typeof__(ckpt_cupti_double_control) *control;
    __typeof__(ckpt_cupti_double_script) *script;
    __typeof__(ckpt_cupti_double_run) *run;
    __typeof__(ckpt_cupti_double_record) *record;
    __typeof__(ckpt_cupti_double_deliver) *deliver;
    __typeof__(ckpt_cupti_double_enabled) *enabled;
    __typeof__(ckpt_cupti_double_calls) *calls;
} twin;

static int find_double(void **state)
{
    (void)state;
    void *const handle = dlopen(DOUBLE, RTLD_NOW);
    CHECK(handle != NULL, "%s", dlerror());
#define FIND(function)                                                                                                 \
    *(void **)&twin.function = dlsym(handle, "ckpt_cupti_double_" #function);                                          \
    assert_non_null(twin.function)
    FIND(reset);
    FIND(control);
    FIND(script);
    FIND(run);
    FIND(record);
    FIND(deliver);
    FIND(enabled);
    FIND(calls);
    return 0;
}

static ckpt_recorder_options options;
static ckpt_recorder *recorder;
static ckpt_arena arena;
static const ckpt_activity *got;
static int got_count;

/* A fresh double under these controls, and no recorder. */
static void begin(const char *controls)
{
    twin.reset();
    CHECK(twin.control(controls) == 0, "%s", controls);
    options = (ckpt_recorder_options){.library = DOUBLE, .memory = true, .calls = true, .ranges = true};
    recorder = NULL;
    ckpt_arena_init(&arena);
}

static void open_recorder(void)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_open(&options, &recorder, &err), err);
}

static void tagged(uint64_t tag, const char *items)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_push(recorder, tag, &err), err);
    CHECK(twin.run(items) == 0, "%s", items);
    CHECK_OK(ckpt_recorder_pop(recorder, &err), err);
}

static void collect(void)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_collect(recorder, &arena, &got, &got_count, &err), err);
}

static void close_recorder(void)
{
    ckpt_recorder_close(recorder);
    recorder = NULL;
}

static void end(void)
{
    close_recorder();
    ckpt_arena_fini(&arena);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void refused(const char *wanted)
{
    ckpt_err err = {0};
    ckpt_recorder *none = NULL;
    const ckpt_code code = ckpt_recorder_open(&options, &none, &err);
    CHECK(code == CKPT_DEVICE, "code %d: %s", (int)code, err.msg);
    CHECK(strstr(err.msg, wanted) != NULL, "'%s' does not say '%s'", err.msg, wanted);
    CHECK(strchr(err.msg, '\n') == NULL, "more than a line: %s", err.msg);
    assert_null(none);
    assert_int_equal(ckpt_memory_live(), 0);
}

static const ckpt_activity *nth(ckpt_activity_kind kind, int n)
{
    for (int i = 0; i < got_count; i++) {
        if (got[i].kind == kind && n-- == 0) {
            return &got[i];
        }
    }
    fail_msg("no %s number %d", ckpt_activity_kind_name(kind), n);
    return NULL;
}

static int count_of(ckpt_activity_kind kind)
{
    int count = 0;
    for (int i = 0; i < got_count; i++) {
        count += got[i].kind == kind;
    }
    return count;
}

static ckpt_recorder_report told(void)
{
    ckpt_recorder_report report;
    ckpt_recorder_tell(recorder, &report);
    return report;
}

static const char step[] = "range step; allocate 4096 0x1000; kernel gemm 1000; stream 9; copy to_host 640 300; "
                           "driver; fill 64 50; runtime; host 10 0x5; mark here; overhead 70; call 20; "
                           "release 0x1000; end";

static void check_step(uint64_t tag)
{
    const ckpt_activity *const k = nth(CKPT_ACTIVITY_KERNEL, 0);
    assert_string_equal(k->name, "gemm");
    assert_int_equal(k->end_ns - k->start_ns, 1000);
    assert_int_equal(k->stream, 7);
    assert_int_equal(k->tag, tag);
    const ckpt_activity *const c = nth(CKPT_ACTIVITY_COPY, 0);
    assert_int_equal(c->way, CKPT_COPY_TO_HOST);
    assert_int_equal(c->bytes, 640);
    assert_int_equal(c->end_ns - c->start_ns, 300);
    assert_int_equal(c->stream, 9);
    assert_int_equal(c->tag, tag);
    const ckpt_activity *const f = nth(CKPT_ACTIVITY_FILL, 0);
    assert_int_equal(f->bytes, 64);
    assert_int_equal(f->tag, tag);
    assert_int_equal(nth(CKPT_ACTIVITY_OVERHEAD, 0)->end_ns - nth(CKPT_ACTIVITY_OVERHEAD, 0)->start_ns, 70);
}

static void test_a_step_with_everything(void **state)
{
    static const char *const controls[] = {
        "",          "version=18", "version=26", "version=130202",
        "reverse=1", "thread=1",   "buffer=224", "buffer=400; reverse=1; thread=1; version=28"};
    (void)state;
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        begin(controls[i]);
        open_recorder();
        tagged(7, step);
        collect();
        check_step(7);
        assert_int_equal(nth(CKPT_ACTIVITY_ALLOCATE, 0)->address, 0x1000);
        assert_int_equal(nth(CKPT_ACTIVITY_ALLOCATE, 0)->bytes, 4096);
        assert_int_equal(count_of(CKPT_ACTIVITY_ALLOCATE), 1); /* not the host's */
        assert_int_equal(nth(CKPT_ACTIVITY_RELEASE, 0)->address, 0x1000);
        const ckpt_activity *const r = nth(CKPT_ACTIVITY_RANGE, 0);
        assert_string_equal(r->name, "step");
        assert_true(r->start_ns <= nth(CKPT_ACTIVITY_CALL, 0)->start_ns &&
                    r->end_ns > nth(CKPT_ACTIVITY_CALL, 6)->start_ns);
        assert_string_equal(nth(CKPT_ACTIVITY_MARK, 0)->name, "here");
        assert_string_equal(nth(CKPT_ACTIVITY_CALL, 0)->name, "cudaMalloc");
        assert_string_equal(nth(CKPT_ACTIVITY_CALL, 3)->name, "cuMemsetD8Async");
        assert_int_equal(nth(CKPT_ACTIVITY_CALL, 1)->tag, 7);
        assert_int_equal(nth(CKPT_ACTIVITY_CALL, 0)->process, getpid());
        for (int k = 1; k < got_count; k++) {
            assert_true(got[k - 1].start_ns <= got[k].start_ns);
        }
        assert_int_equal(told().dropped, 0);
        assert_int_equal(told().odd, 0);
        assert_int_equal(told().skew_ns, 0);
        collect();
        assert_int_equal(got_count, 0);
        end();
    }
}

static void test_only_what_was_asked_for(void **state)
{
    const uint64_t always = 1U << CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL | 1U << CUPTI_ACTIVITY_KIND_MEMCPY |
                            1U << CUPTI_ACTIVITY_KIND_MEMCPY2 | 1U << CUPTI_ACTIVITY_KIND_MEMSET |
                            1U << CUPTI_ACTIVITY_KIND_OVERHEAD;
    const uint64_t calls = 1U << CUPTI_ACTIVITY_KIND_RUNTIME | 1U << CUPTI_ACTIVITY_KIND_DRIVER;
    (void)state;
    begin("");
    options.memory = options.calls = options.ranges = false;
    open_recorder();
    assert_int_equal(twin.enabled(), always | calls | 1ULL << CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    tagged(3, step);
    collect();
    check_step(3); /* tags come by way of calls, which are not for us */
    assert_int_equal(count_of(CKPT_ACTIVITY_CALL), 0);
    assert_int_equal(count_of(CKPT_ACTIVITY_ALLOCATE), 0);
    assert_int_equal(count_of(CKPT_ACTIVITY_RANGE), 0);
    end();
    assert_int_equal(twin.enabled(), 0);
}

static void test_the_innermost_tag(void **state)
{
    static const struct {
        const char *name;
        uint64_t tag;
    } wanted[] = {{"outside", 0}, {"one", 1}, {"two", 2}, {"one again", 1}, {"large", UINT64_MAX}, {"after", 0}};
    ckpt_err err = {0};
    (void)state;
    begin("reverse=1");
    open_recorder();
    twin.run("kernel outside 5");
    CHECK_OK(ckpt_recorder_push(recorder, 1, &err), err);
    twin.run("kernel one 5");
    tagged(2, "kernel two 5");
    twin.run("kernel \"one again\" 5");
    CHECK_OK(ckpt_recorder_pop(recorder, &err), err);
    tagged(UINT64_MAX, "kernel large 5");
    twin.run("kernel after 5");
    collect();
    assert_int_equal(count_of(CKPT_ACTIVITY_KERNEL), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(nth(CKPT_ACTIVITY_KERNEL, i)->name, wanted[i].name);
        assert_int_equal(nth(CKPT_ACTIVITY_KERNEL, i)->tag, wanted[i].tag);
    }
    assert_int_equal(ckpt_recorder_pop(recorder, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "a tag ends that this thread did not begin");
    end();
}

static void test_a_script_runs_where_a_tag_ends(void **state)
{
    (void)state;
    begin("");
    twin.script("kernel warm 1\n*: kernel any 10\n8: kernel eight 20; kernel more 30");
    open_recorder();
    tagged(7, "");
    tagged(8, "");
    collect();
    assert_int_equal(count_of(CKPT_ACTIVITY_KERNEL), 4);
    assert_string_equal(nth(CKPT_ACTIVITY_KERNEL, 0)->name, "warm");
    assert_int_equal(nth(CKPT_ACTIVITY_KERNEL, 1)->tag, 7);
    assert_string_equal(nth(CKPT_ACTIVITY_KERNEL, 2)->name, "eight");
    assert_int_equal(nth(CKPT_ACTIVITY_KERNEL, 3)->tag, 8);
    end();
}

static void test_what_is_lost_is_told(void **state)
{
    (void)state;
    begin("drop=5; backwards=3; untimed=4; buffer=700; cut=2");
    open_recorder();
    for (int i = 0; i < 12; i++) {
        tagged(7, "kernel k 100");
    }
    collect();
    const ckpt_recorder_report report = told();
    assert_int_equal(report.dropped, 5);
    /* 24 kernels and calls and 12 tags; of the kernels 4 ran backwards and 2 more had no times; the rest was cut. */
    assert_true(report.odd >= 6);
    assert_true(count_of(CKPT_ACTIVITY_KERNEL) < 12 - 4);
    for (int i = 0; i < got_count; i++) {
        assert_true(got[i].start_ns > 0 && got[i].end_ns >= got[i].start_ns);
    }
    const char *const text = ckpt_recorder_describe(recorder, &arena);
    CHECK(strncmp(text, "CUPTI 13.", 9) == 0 && strstr(text, ", 5 records dropped, ") != NULL &&
              strstr(text, " left out that had no valid times or were cut off") != NULL,
          "%s", text);
    end();
}

static void test_each_cut_buffer_is_counted(void **state)
{
    (void)state;
    begin("buffer=224; cut=1");
    open_recorder();
    tagged(7, "kernel a 1; kernel b 1"); /* 24 + 40 bytes, then 216 by themselves, twice */
    collect();
    assert_int_equal(told().odd, 4);
    assert_int_equal(count_of(CKPT_ACTIVITY_KERNEL), 0);
    end();
}

static void test_clocks_apart(void **state)
{
    CUpti_ActivityKernel9 kernel = {
        .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .start = 5000, .end = 6000, .correlationId = 9, .name = "early"};
    const CUpti_ActivityAPI call = {
        .kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = 7500, .end = 7600, .correlationId = 9};
    unsigned char bytes[216] = {0};
    (void)state;
    begin("version=130001");
    open_recorder();
    memcpy(bytes, &kernel, sizeof kernel);
    twin.record(bytes, sizeof bytes);
    twin.record(&call, sizeof call);
    collect();
    assert_int_equal(told().skew_ns, 2500);
    assert_non_null(
        strstr(ckpt_recorder_describe(recorder, &arena), "clocks of host and device at least 2.50 us apart"));
    end();
}

static void test_kernels_that_still_run(void **state)
{
    (void)state;
    begin("running=1");
    open_recorder();
    tagged(7, "kernel slow 100; copy to_host 5 5");
    collect(); /* against the contract: the device was not waited for */
    assert_int_equal(count_of(CKPT_ACTIVITY_KERNEL), 0);
    assert_int_equal(count_of(CKPT_ACTIVITY_COPY), 1);
    assert_int_equal(told().odd, 1);
    end();
}

static void test_ranges_over_collects_threads_and_numbers(void **state)
{
    (void)state;
    begin("");
    open_recorder();
    twin.run("end; range a; range b"); /* one ends that began before the recording */
    collect();
    assert_int_equal(count_of(CKPT_ACTIVITY_RANGE), 0);
    twin.run("end; mark m; end");
    collect();
    assert_int_equal(count_of(CKPT_ACTIVITY_RANGE), 2);
    assert_string_equal(nth(CKPT_ACTIVITY_RANGE, 0)->name, "a");
    assert_string_equal(nth(CKPT_ACTIVITY_RANGE, 1)->name, "b");
    assert_true(nth(CKPT_ACTIVITY_RANGE, 0)->end_ns > nth(CKPT_ACTIVITY_RANGE, 1)->end_ns);
    end();
    /* Many open at once, ended in another order than begun, ends before starts: every one must find its own. */
    begin("reverse=1");
    open_recorder();
    enum { MANY = 1000 };
    CUpti_ActivityMarker2 marker = {.kind = CUPTI_ACTIVITY_KIND_MARKER};
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        const uint32_t n = i < MANY ? i * 77 % MANY : (i - MANY) * 31 % MANY;
        char name[16];
        snprintf(name, sizeof name, "%u", n);
        marker.flags = i < MANY ? CUPTI_ACTIVITY_FLAG_MARKER_START : CUPTI_ACTIVITY_FLAG_MARKER_END;
        marker.id = n * 64;
        marker.timestamp = i < MANY ? 1000 + n : 5000 + 2 * n;
        marker.name = i < MANY ? ckpt_arena_text(&arena, name) : NULL;
        twin.record(&marker, sizeof marker);
    }
    collect();
    assert_int_equal(got_count, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(got[i].start_ns, 1000 + i);
        assert_int_equal(got[i].end_ns, 5000 + 2 * i);
        assert_int_equal(strtol(got[i].name, NULL, 10), i);
    }
    end();
}

static void test_who_else_records(void **state)
{
    (void)state;
    begin("holder=Nsight Systems");
    refused("another tool records this process already: Nsight Systems");
    options.library = CKPT_BIN_DIR "/libcupti_double_old.so"; /* cannot tell who */
    assert_int_equal(setenv("CKPT_CUPTI_DOUBLE", "holder=somebody", 1), 0);
    refused("another tool records this process already: CUPTI serves one at a time");
    assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE"), 0);
    begin("");
    open_recorder();
    ckpt_err err = {0};
    ckpt_recorder *second = NULL;
    assert_int_equal(ckpt_recorder_open(&options, &second, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "this process is being recorded already: one recorder at a time");
    end();
    begin(""); /* and it is free again after a close */
    open_recorder();
    end();
}

static void test_what_cupti_refuses(void **state)
{
    static const struct {
        const char *controls, *wanted;
    } cases[] = {
        {"fail=cuptiActivityEnable:35", "NVreg_RestrictProfilingToAdminUsers=0"},
        {"fail=cuptiActivityEnable:40", "the hypervisor of this virtual GPU forbids it"},
        {"fail=cuptiSubscribe_v2:15", "starting to record"},
        {"fail=cuptiSubscribe_v2:999", "starting to record"},
        {"fail=cuptiActivityRegisterCallbacks:8", "giving it buffers failed: CUPTI_RESULT_8 (8)"},
        {"fail=cuptiActivityEnable:43", "recording kernels failed: CUPTI_RESULT_43 (43)"},
        {"fail=cuptiGetVersion:11", "CUPTI: asking for its version failed: CUPTI_RESULT_11 (11)"},
        {"version=17", "CUPTI API 17 is too old: that of CUDA 11.8 or later is needed"},
        {"version=140000", "CUPTI 14.0 is not known to this program"},
        {"version=1000", "is not known to this program"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(cases[i].controls);
        refused(cases[i].wanted);
        assert_int_equal(twin.enabled(), 0);
        assert_int_equal(twin.calls("cuptiSubscribe_v2") * (i != 2 && i != 3), twin.calls("cuptiUnsubscribe"));
    }
    begin("fail=cuptiActivityFlushAll:999");
    open_recorder();
    ckpt_err err = {0};
    assert_int_equal(ckpt_recorder_collect(recorder, &arena, &got, &got_count, &err), CKPT_DEVICE);
    assert_non_null(strstr(err.msg, "giving its records back"));
    assert_int_equal(ckpt_recorder_flush(recorder, &err), CKPT_DEVICE);
    end();
    begin("fail=cuptiActivityPushExternalCorrelationId:1; fail=cuptiActivityPopExternalCorrelationId:1");
    open_recorder();
    assert_int_equal(ckpt_recorder_push(recorder, 1, &err), CKPT_DEVICE);
    assert_int_equal(ckpt_recorder_pop(recorder, &err), CKPT_DEVICE);
    end();
    begin("fail=cuptiActivitySetAttribute:27"); /* confidential computing: it records, and takes of the GPU's memory */
    open_recorder();
    assert_int_equal(told().device_bytes, -1);
    assert_non_null(strstr(ckpt_recorder_describe(recorder, &arena), "an unknown part of the GPU's"));
    end();
}

static void test_libraries_that_are_none(void **state)
{
    (void)state;
    begin("");
    options.library = "/nowhere/libcupti.so";
    refused("no CUPTI: ");
    options.library = CKPT_BIN_DIR "/test_cupti_recorder"; /* no library */
    refused("no CUPTI: ");
    options.library = "libm.so.6";
    refused("this libcupti has no cuptiGetVersion");
    options.library = NULL;
    assert_int_equal(setenv("CKPT_CUPTI", "", 1), 0);
    refused("CUPTI is turned off (CKPT_CUPTI is empty)");
    assert_int_equal(setenv("CKPT_CUPTI", DOUBLE, 1), 0);
    open_recorder();
    assert_int_equal(unsetenv("CKPT_CUPTI"), 0);
    end();
}

static void test_names_of_versions(void **state)
{
    static const struct {
        const char *controls, *name;
    } cases[] = {{"version=18", "CUPTI 11.8"},       {"version=26", "CUPTI 12.8"},
                 {"version=28", "CUPTI 12.9.1"},     {"version=40", "CUPTI API 40"},
                 {"version=130000", "CUPTI 13.0"},   {"version=130001", "CUPTI 13.0.1"},
                 {"version=130202", "CUPTI 13.2.2"}, {"version=139900", "CUPTI 13.99"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(cases[i].controls);
        open_recorder();
        assert_string_equal(told().library, cases[i].name);
        assert_int_equal(told().device_bytes, 0);
        end();
    }
}

/* What a sink was given, as text. */
static void note_down(void *context, const ckpt_activity *activity)
{
    char *const text = context;
    const size_t length = strlen(text);
    assert_int_equal(activity->tag, 0);
    snprintf(text + length, 2000 - length, "%s %s %lld;", ckpt_activity_kind_name(activity->kind), activity->name,
             (long long)(activity->end_ns - activity->start_ns));
}

static void test_a_sink(void **state)
{
    char text[2000] = "";
    ckpt_err err = {0};
    (void)state;
    begin("");
    options.sink = note_down;
    options.context = text;
    options.calls = false;
    open_recorder();
    assert_int_equal(twin.enabled() & (1U << CUPTI_ACTIVITY_KIND_RUNTIME | 1U << CUPTI_ACTIVITY_KIND_DRIVER), 0);
    twin.run("range r; kernel a 10; end; fill 3 4");
    CHECK_OK(ckpt_recorder_flush(recorder, &err), err);
    assert_string_equal(text, "kernel a 10;range r 1100;fill  4;");
    text[0] = '\0';
    twin.run("copy host 3 5; range never");
    twin.control("running=1");
    twin.run("kernel runs 5");
    end();
    assert_string_equal(text, "copy  5;");
    begin("");
    text[0] = '\0';
    options.sink = note_down;
    options.context = text;
    open_recorder();
    twin.run("driver; kernel a 10");
    end();
    assert_string_equal(text, "call cuLaunchKernel 1000;kernel a 10;");
}

static void test_buffers_that_come_back_late(void **state)
{
    (void)state;
    begin("keep=1");
    open_recorder();
    tagged(7, "kernel k 5");
    collect();
    assert_int_equal(got_count, 0);
    close_recorder();
    ckpt_arena_fini(&arena);
    assert_int_equal(ckpt_memory_live(), 1); /* CUPTI may still write to it */
    twin.deliver();
    assert_int_equal(ckpt_memory_live(), 0);
    twin.run("kernel nobody 5"); /* and when no one records any more it gets no buffer */
    twin.control("keep=0");
    twin.deliver();
    end();
    begin("keep=1");
    open_recorder();
    tagged(7, "kernel old 5");
    collect();
    close_recorder();
    open_recorder(); /* another one, which the old buffer does not belong to */
    twin.control("keep=0");
    twin.deliver();
    tagged(8, "kernel fresh 5");
    collect();
    assert_int_equal(count_of(CKPT_ACTIVITY_KERNEL), 1);
    assert_string_equal(nth(CKPT_ACTIVITY_KERNEL, 0)->name, "fresh");
    end();
}

static ckpt_code record_something(void *context, ckpt_err *err)
{
    ckpt_arena out;
    ckpt_recorder *r = NULL;
    const ckpt_activity *all = NULL;
    int count = 0;
    twin.reset();
    twin.control(context);
    ckpt_arena_init(&out);
    ckpt_code code = ckpt_recorder_open(&options, &r, err);
    if (code == CKPT_OK) {
        for (int i = 0; i < 100 && code == CKPT_OK; i++) { /* all tables have to grow */
            char items[64];
            snprintf(items, sizeof items, "range r%d; kernel k%d 5", i, i);
            code = ckpt_recorder_push(r, (uint64_t)i + 1, err);
            if (code == CKPT_OK) {
                twin.run(items);
                code = ckpt_recorder_pop(r, err);
            }
        }
        code = code == CKPT_OK ? ckpt_recorder_collect(r, &out, &all, &count, err) : code;
        if (code == CKPT_OK && (count != 200 || ckpt_recorder_describe(r, &out) == NULL)) {
            code = CKPT_FAIL(err, count != 200 ? CKPT_BAD_INPUT : CKPT_NO_MEMORY, "%d activities", count);
        }
    }
    ckpt_recorder_close(r);
    ckpt_arena_fini(&out);
    return code;
}

static void test_too_little_memory(void **state)
{
    char controls[] = "buffer=4096";
    (void)state;
    begin("");
    assert_true(ckpt_test_starve(record_something, controls) > 10);
    end();
}

/* What the recorder must say of what was run, kept in the plainest way: by the number of the call that started it. */
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
    plain p = {.ns = (int64_t)(draw() % 1000), .bytes = (int64_t)(draw() % 100000)};
    switch (draw() % 4) {
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
        snprintf(p.name, sizeof p.name, "k%u", (unsigned)(draw() % 300));
        snprintf(items, size, "stream %u; kernel %s %lld", (unsigned)(draw() % 5), p.name, (long long)p.ns);
    }
    return p;
}

static void check_plain(plain *all, int from, int to)
{
    int wanted = to - from;
    for (int i = 0; i < got_count; i++) {
        const ckpt_activity *const a = &got[i];
        assert_true(i == 0 || got[i - 1].start_ns <= a->start_ns);
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
        snprintf(controls, sizeof controls, "version=%s; buffer=%u; reverse=%u; thread=%u", versions[draw() % 5],
                 (unsigned)(224 + draw() % 3000), (unsigned)(draw() % 2), (unsigned)(draw() % 8 == 0));
        begin(controls);
        options.calls = draw() % 2 == 0;
        open_recorder();
        for (int action = (int)(draw() % 200); action > 0; action--) {
            char items[64];
            const uint64_t what = draw() % 10;
            if (what < 2 && depth < 8) {
                tags[depth] = 1 + draw() % 50;
                CHECK_OK(ckpt_recorder_push(recorder, tags[depth++], &err), err);
            } else if (what < 4 && depth > 0) {
                depth--;
                CHECK_OK(ckpt_recorder_pop(recorder, &err), err);
            } else if (what == 4 && draw() % 8 == 0) {
                collect();
                check_plain(all, collected, count);
                collected = count;
            } else {
                all[count] = random_item(items, sizeof items);
                all[count++].tag = depth > 0 ? tags[depth - 1] : 0;
                CHECK(twin.run(items) == 0, "%s", items);
            }
        }
        for (; depth > 0; depth--) {
            CHECK_OK(ckpt_recorder_pop(recorder, &err), err);
        }
        collect();
        check_plain(all, collected, count);
        assert_int_equal(told().odd, 0);
        end();
    }
}

/* Whatever lies in a buffer: no crash, and what comes out has times one can draw. Pointers are CUPTI's word and are not
 * made up here: kinds with names are left to records that are whole. */
static void test_random_bytes(void **state)
{
    static const uint32_t kinds[] = {1, 2, 4, 5, 17, 22, 39, 49, 0, 6, 50, 99, UINT32_MAX};
    const uint64_t rounds = ckpt_test_rounds(400, 100);
    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        begin(draw() % 2 == 0 ? "" : "cut=1; version=26; buffer=300");
        open_recorder();
        for (int i = (int)(draw() % 20); i > 0; i--) {
            uint64_t words[32];
            for (int w = 0; w < 32; w++) {
                const uint64_t narrow = draw() % 64;
                const uint32_t kind = draw() % 8 == 0 ? kinds[draw() % 13] : (uint32_t)(draw() >> narrow % 32) | 64;
                words[w] = draw() >> narrow << 32 | kind;
            }
            words[0] = words[0] >> 32 << 32 | kinds[draw() % 13];
            twin.record(words, 8 * (uint32_t)(1 + draw() % 28));
        }
        twin.run("kernel whole 5; range r; mark m");
        collect();
        for (int i = 0; i < got_count; i++) {
            assert_true(got[i].start_ns > 0 && got[i].end_ns >= got[i].start_ns);
            assert_in_range(got[i].kind, 0, CKPT_ACTIVITY_KIND_COUNT - 1);
            assert_true(got[i].bytes >= 0);
            assert_non_null(got[i].name);
        }
        end();
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
        if (ckpt_recorder_push(recorder, first + i, &err) != CKPT_OK || twin.run(items) != 0 ||
            ckpt_recorder_pop(recorder, &err) != CKPT_OK ||
            (i % 16 == 0 && ckpt_recorder_flush(recorder, &err) != CKPT_OK)) {
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
    begin("thread=1; buffer=1000");
    options.calls = false;
    open_recorder();
    for (uint64_t i = 0; i < THREADS; i++) {
        first[i] = 1000 * (i + 1);
        assert_int_equal(pthread_create(&thread[i], NULL, work, &first[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    collect();
    assert_int_equal(got_count, THREADS * STEPS);
    for (int i = 0; i < got_count; i++) {
        assert_int_equal(got[i].tag, strtoull(got[i].name + 1, NULL, 10));
    }
    assert_int_equal(told().dropped, 0);
    end();
}

/* The same script, live and from files of two versions (CKPT_UPDATE_GOLDEN=1 writes them). */
static void test_streams_from_files(void **state)
{
    static const char *const versions[] = {"26", "130001"};
    const bool update = getenv("CKPT_UPDATE_GOLDEN") != NULL;
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[512];
        char control[32];
        ckpt_arena live;
        snprintf(path, sizeof path, "%s/tests/cupti_double/streams/step_%s.txt", CKPT_SOURCE_DIR, versions[i]);
        snprintf(control, sizeof control, "version=%s", versions[i]);
        assert_int_equal(setenv("CKPT_CUPTI_DOUBLE_WRITE", update ? path : "", 1), 0);
        begin(control);
        open_recorder();
        tagged(7, step);
        tagged(8, "kernel \"void f<int, 4>(float*)\" 99");
        collect();
        const ckpt_activity *const wanted = got;
        const int count = got_count;
        live = arena;
        close_recorder();
        assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE_WRITE"), 0);
        assert_int_equal(setenv("CKPT_CUPTI_DOUBLE_STREAM", path, 1), 0);
        begin("");
        assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE_STREAM"), 0);
        open_recorder();
        collect();
        assert_int_equal(got_count, count);
        for (int k = 0; k < count; k++) {
            const ckpt_activity *const a = &got[k];
            const ckpt_activity *const b = &wanted[k];
            assert_string_equal(a->name, b->name);
            assert_true(a->kind == b->kind && a->way == b->way && a->start_ns == b->start_ns &&
                        a->end_ns == b->end_ns && a->device == b->device && a->context == b->context &&
                        a->stream == b->stream && a->correlation == b->correlation && a->tag == b->tag &&
                        a->thread == b->thread && a->bytes == b->bytes && a->address == b->address);
        }
        ckpt_arena_fini(&live);
        end();
    }
}

/* In a process of its own, which ends without the destructors of NVIDIA's library: that of CUDA 13.2 crashes in them.
 * Its exit status; 77: nothing to see here. */
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
        options.library = reals[i];
        if (dlopen(reals[i], RTLD_LAZY) != NULL) {
            result = ckpt_recorder_open(&options, &none, &err) == CKPT_DEVICE &&
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
    (void)state;
    if (ckpt_cupti_driver()) {
        print_message("there is a driver\n");
        skip();
    }
    begin("");
    options.library = NULL;
    refused("no NVIDIA driver here: libcuda.so.1 is not found");
    const int result = apart(decline);
    CHECK(result == 0 || result == 77, "NVIDIA's libcupti was not declined");
    if (result == 77) {
        print_message("no libcupti of NVIDIA's here\n");
        skip();
    }
}

/* Where NVIDIA's library ends a record is where the double does, so that what it plays is as long as the real thing. */
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
        twin.reset();
        twin.control(control);
        if (ckpt_cupti_load(DOUBLE, &copy, &err) != CKPT_OK) {
            return 1;
        }
        result = result == 1;
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
    (void)state;
    begin("");
    const int result = apart(compare_sizes);
    CHECK(result == 0 || result == 77, "records of other sizes");
    end();
}

static int leave(void **state)
{
    (void)state;
    close_recorder(); /* of a test that failed */
    return 0;
}
#define TEST(test) cmocka_unit_test_teardown(test, leave)

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        TEST(test_a_step_with_everything),
        TEST(test_only_what_was_asked_for),
        TEST(test_the_innermost_tag),
        TEST(test_a_script_runs_where_a_tag_ends),
        TEST(test_what_is_lost_is_told),
        TEST(test_each_cut_buffer_is_counted),
        TEST(test_clocks_apart),
        TEST(test_kernels_that_still_run),
        TEST(test_ranges_over_collects_threads_and_numbers),
        TEST(test_who_else_records),
        TEST(test_what_cupti_refuses),
        TEST(test_libraries_that_are_none),
        TEST(test_names_of_versions),
        TEST(test_a_sink),
        TEST(test_buffers_that_come_back_late),
        TEST(test_too_little_memory),
        TEST(test_random_streams_against_a_plain_model),
        TEST(test_random_bytes),
        TEST(test_threads),
        TEST(test_streams_from_files),
        TEST(test_nvidias_library_without_a_driver),
        TEST(test_the_double_is_as_long_as_nvidias),
    };
    return cmocka_run_group_tests(tests, find_double, NULL);
}
#else
int main(void)
{
    return 77; /* this build has no CUPTI */
}
#endif
