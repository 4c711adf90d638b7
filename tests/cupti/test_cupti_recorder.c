/* labels: unit */
/* The whole recorder with the double of libcupti (tests/cupti_double): its calls, its results, and every failure. */
#include "tests/support/support_cupti.h"

#include <stdlib.h>
#include <string.h>

#include <stdio.h>

#ifdef CKPT_HAVE_CUPTI
#include <sys/wait.h>
#include <unistd.h>

#include "cupti/cupti_impl.h"

static const char step[] = "range step; allocate 4096 0x1000; kernel gemm 1000; stream 9; copy to_host 640 300; "
                           "driver; fill 64 50; runtime; host 10 0x5; mark here; overhead 70; call 20; "
                           "release 0x1000; end";

static void check_step(uint64_t tag)
{
    const ckpt_activity *const k = ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 0);
    assert_string_equal(k->name, "gemm");
    assert_int_equal(k->end_ns - k->start_ns, 1000);
    assert_int_equal(k->stream, 7);
    assert_int_equal(k->tag, tag);
    const ckpt_activity *const c = ckpt_rec_nth(CKPT_ACTIVITY_COPY, 0);
    assert_int_equal(c->way, CKPT_COPY_TO_HOST);
    assert_int_equal(c->bytes, 640);
    assert_int_equal(c->end_ns - c->start_ns, 300);
    assert_int_equal(c->stream, 9);
    assert_int_equal(c->tag, tag);
    const ckpt_activity *const f = ckpt_rec_nth(CKPT_ACTIVITY_FILL, 0);
    assert_int_equal(f->bytes, 64);
    assert_int_equal(f->tag, tag);
    assert_int_equal(
        ckpt_rec_nth(CKPT_ACTIVITY_OVERHEAD, 0)->end_ns - ckpt_rec_nth(CKPT_ACTIVITY_OVERHEAD, 0)->start_ns, 70);
}

static void test_a_step_with_everything(void **state)
{
    static const char *const controls[] = {
        "",          "version=18", "version=26", "version=130202",
        "reverse=1", "thread=1",   "buffer=224", "buffer=400; reverse=1; thread=1; version=28"};
    (void)state;
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        ckpt_rec_begin(controls[i]);
        ckpt_rec_open();
        ckpt_rec_tagged(7, step);
        ckpt_rec_collect();
        check_step(7);
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_ALLOCATE, 0)->address, 0x1000);
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_ALLOCATE, 0)->bytes, 4096);
        assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_ALLOCATE), 1); /* not the host's */
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_RELEASE, 0)->address, 0x1000);
        const ckpt_activity *const r = ckpt_rec_nth(CKPT_ACTIVITY_RANGE, 0);
        assert_string_equal(r->name, "step");
        assert_true(r->start_ns <= ckpt_rec_nth(CKPT_ACTIVITY_CALL, 0)->start_ns &&
                    r->end_ns > ckpt_rec_nth(CKPT_ACTIVITY_CALL, 6)->start_ns);
        assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_MARK, 0)->name, "here");
        assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_CALL, 0)->name, "cudaMalloc");
        assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_CALL, 3)->name, "cuMemsetD8Async");
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_CALL, 1)->tag, 7);
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_CALL, 0)->process, getpid());
        for (int k = 1; k < ckpt_rec.count; k++) {
            assert_true(ckpt_rec.got[k - 1].start_ns <= ckpt_rec.got[k].start_ns);
        }
        assert_int_equal(ckpt_rec_told().dropped, 0);
        assert_int_equal(ckpt_rec_told().odd, 0);
        assert_int_equal(ckpt_rec_told().skew_ns, 0);
        ckpt_rec_collect();
        assert_int_equal(ckpt_rec.count, 0);
        ckpt_rec_end();
    }
}

static void test_only_what_was_asked_for(void **state)
{
    const uint64_t always = 1U << CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL | 1U << CUPTI_ACTIVITY_KIND_MEMCPY |
                            1U << CUPTI_ACTIVITY_KIND_MEMCPY2 | 1U << CUPTI_ACTIVITY_KIND_MEMSET |
                            1U << CUPTI_ACTIVITY_KIND_OVERHEAD;
    const uint64_t calls = 1U << CUPTI_ACTIVITY_KIND_RUNTIME | 1U << CUPTI_ACTIVITY_KIND_DRIVER;
    (void)state;
    ckpt_rec_begin("");
    ckpt_rec.options.memory = ckpt_rec.options.calls = ckpt_rec.options.ranges = false;
    ckpt_rec_open();
    assert_int_equal(ckpt_twin.enabled(), always | calls | 1ULL << CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    ckpt_rec_tagged(3, step);
    ckpt_rec_collect();
    check_step(3); /* tags come with calls, which the recorder does not return */
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_CALL), 0);
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_ALLOCATE), 0);
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_RANGE), 0);
    ckpt_rec_end();
    assert_int_equal(ckpt_twin.enabled(), 0);
}

static void test_the_innermost_tag(void **state)
{
    static const struct {
        const char *name;
        uint64_t tag;
    } wanted[] = {{"outside", 0}, {"one", 1}, {"two", 2}, {"one again", 1}, {"large", UINT64_MAX}, {"after", 0}};
    ckpt_err err = {0};
    (void)state;
    ckpt_rec_begin("reverse=1");
    ckpt_rec_open();
    ckpt_twin.run("kernel outside 5");
    CHECK_OK(ckpt_recorder_push(ckpt_rec.recorder, 1, &err), err);
    ckpt_twin.run("kernel one 5");
    ckpt_rec_tagged(2, "kernel two 5");
    ckpt_twin.run("kernel \"one again\" 5");
    CHECK_OK(ckpt_recorder_pop(ckpt_rec.recorder, &err), err);
    ckpt_rec_tagged(UINT64_MAX, "kernel large 5");
    ckpt_twin.run("kernel after 5");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, i)->name, wanted[i].name);
        assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, i)->tag, wanted[i].tag);
    }
    assert_int_equal(ckpt_recorder_pop(ckpt_rec.recorder, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "a tag ends that this thread did not begin");
    ckpt_rec_end();
}

static void test_a_script_runs_where_a_tag_ends(void **state)
{
    ckpt_rec_begin("");
    ckpt_twin.script("kernel warm 1\n*: kernel any 10\n8: kernel eight 20; kernel more 30");
    ckpt_rec_open();
    ckpt_rec_tagged(7, "");
    ckpt_rec_tagged(8, "");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 4);
    assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 0)->name, "warm");
    assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 1)->tag, 7);
    assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 2)->name, "eight");
    assert_int_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 3)->tag, 8);
    ckpt_rec_end();
}

static void test_what_is_lost_is_told(void **state)
{
    ckpt_rec_begin("drop=5; backwards=3; untimed=4; buffer=700; cut=2");
    ckpt_rec_open();
    for (int i = 0; i < 12; i++) {
        ckpt_rec_tagged(7, "kernel k 100");
    }
    ckpt_rec_collect();
    const ckpt_recorder_report report = ckpt_rec_told();
    assert_int_equal(report.dropped, 5);
    /* 24 kernels and calls and 12 tags; of the kernels 4 ran backwards and 2 more had no times; the rest was cut. */
    assert_true(report.odd >= 6);
    assert_true(ckpt_rec_count(CKPT_ACTIVITY_KERNEL) < 12 - 4);
    for (int i = 0; i < ckpt_rec.count; i++) {
        assert_true(ckpt_rec.got[i].start_ns > 0 && ckpt_rec.got[i].end_ns >= ckpt_rec.got[i].start_ns);
    }
    const char *const text = ckpt_recorder_describe(ckpt_rec.recorder, &ckpt_rec.arena);
    CHECK(strncmp(text, "CUPTI 13.", 9) == 0 && strstr(text, ", 5 records dropped, ") != NULL &&
              strstr(text, " left out that had no valid times or were cut off") != NULL,
          "%s", text);
    ckpt_rec_end();
}

static void test_each_cut_buffer_is_counted(void **state)
{
    ckpt_rec_begin("buffer=224; cut=1");
    ckpt_rec_open();
    ckpt_rec_tagged(7, "kernel a 1; kernel b 1"); /* 24 + 40 bytes, then 216 by themselves, twice */
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_told().odd, 4);
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 0);
    ckpt_rec_end();
}

static void test_clocks_apart(void **state)
{
    CUpti_ActivityKernel9 kernel = {
        .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .start = 5000, .end = 6000, .correlationId = 9, .name = "early"};
    const CUpti_ActivityAPI call = {
        .kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = 7500, .end = 7600, .correlationId = 9};
    unsigned char bytes[216] = {0};
    (void)state;
    ckpt_rec_begin("version=130001");
    ckpt_rec_open();
    memcpy(bytes, &kernel, sizeof kernel);
    ckpt_twin.record(bytes, sizeof bytes);
    ckpt_twin.record(&call, sizeof call);
    for (int i = 0; i < 20; i++) { /* among unrelated calls */
        CUpti_ActivityAPI other = call;
        other.correlationId = i < 8 ? (uint32_t)i : 10 + (uint32_t)i;
        other.start = 90000;
        other.end = 90001;
        ckpt_twin.record(&other, sizeof other);
    }
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_told().skew_ns, 2500);
    assert_non_null(strstr(ckpt_recorder_describe(ckpt_rec.recorder, &ckpt_rec.arena),
                           "clocks of host and device at least 2.50 us apart"));
    ckpt_rec_end();
}

static void test_kernels_that_still_run(void **state)
{
    ckpt_rec_begin("running=1");
    ckpt_rec_open();
    ckpt_rec_tagged(7, "kernel slow 100; copy to_host 5 5");
    ckpt_rec_collect(); /* against the contract: the device was not waited for */
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 0);
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_COPY), 1);
    assert_int_equal(ckpt_rec_told().odd, 1);
    ckpt_rec_end();
}

static void test_ranges_over_collects_threads_and_numbers(void **state)
{
    ckpt_rec_begin("");
    ckpt_rec_open();
    ckpt_twin.run("end; range a; range b"); /* one that began before the recording ends */
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_RANGE), 0);
    ckpt_twin.run("end; mark m; end");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_RANGE), 2);
    assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_RANGE, 0)->name, "a");
    assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_RANGE, 1)->name, "b");
    assert_true(ckpt_rec_nth(CKPT_ACTIVITY_RANGE, 0)->end_ns > ckpt_rec_nth(CKPT_ACTIVITY_RANGE, 1)->end_ns);
    ckpt_rec_end();
}

/* Many open ranges, ended in another order, ends before starts: each end must find its start, whether the numbers fall
 * on few slots of the table or on many. */
static void check_many_ranges(uint32_t factor)
{
    ckpt_rec_begin("reverse=1");
    ckpt_rec_open();
    enum { MANY = 1000 };
    CUpti_ActivityMarker2 marker = {.kind = CUPTI_ACTIVITY_KIND_MARKER};
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        const uint32_t n = i < MANY ? i * 77 % MANY : (i - MANY) * 31 % MANY;
        char name[16];
        snprintf(name, sizeof name, "%u", n);
        marker.flags = i < MANY ? CUPTI_ACTIVITY_FLAG_MARKER_START : CUPTI_ACTIVITY_FLAG_MARKER_END;
        marker.id = n * factor;
        marker.timestamp = i < MANY ? 1000 + n : 5000 + 2 * n;
        marker.name = i < MANY ? ckpt_arena_text(&ckpt_rec.arena, name) : NULL;
        ckpt_twin.record(&marker, sizeof marker);
    }
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec.count, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ckpt_rec.got[i].start_ns, 1000 + i);
        assert_int_equal(ckpt_rec.got[i].end_ns, 5000 + 2 * i);
        assert_int_equal(strtol(ckpt_rec.got[i].name, NULL, 10), i);
    }
    ckpt_rec_end();
}

static void test_many_open_ranges(void **state)
{
    check_many_ranges(1);
    check_many_ranges(64);
    check_many_ranges(77777777);
}

static void test_who_else_records(void **state)
{
    ckpt_rec_begin("holder=Nsight Systems");
    ckpt_rec_declined("another tool records this process already: Nsight Systems");
    ckpt_rec.options.library = ckpt_bin_file("libcupti_double_old.so"); /* does not know who */
    assert_int_equal(setenv("CKPT_CUPTI_DOUBLE", "holder=somebody", 1), 0);
    ckpt_rec_declined("another tool records this process already: CUPTI serves one at a time");
    assert_int_equal(unsetenv("CKPT_CUPTI_DOUBLE"), 0);
    ckpt_rec_begin("");
    ckpt_rec_open();
    ckpt_err err = {0};
    ckpt_recorder *second = NULL;
    assert_int_equal(ckpt_recorder_open(&ckpt_rec.options, &second, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "this process is being recorded already: one recorder at a time");
    ckpt_rec_end();
    ckpt_rec_begin(""); /* available after a close */
    ckpt_rec_open();
    ckpt_rec_end();
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
        ckpt_rec_begin(cases[i].controls);
        ckpt_rec_declined(cases[i].wanted);
        assert_int_equal(ckpt_twin.enabled(), 0);
        assert_int_equal(ckpt_twin.calls("cuptiSubscribe_v2") * (i != 2 && i != 3),
                         ckpt_twin.calls("cuptiUnsubscribe"));
    }
    ckpt_rec_begin("fail=cuptiActivityFlushAll:999");
    ckpt_rec_open();
    ckpt_err err = {0};
    assert_int_equal(ckpt_recorder_collect(ckpt_rec.recorder, &ckpt_rec.arena, &ckpt_rec.got, &ckpt_rec.count, &err),
                     CKPT_DEVICE);
    assert_non_null(strstr(err.msg, "giving its records back"));
    assert_int_equal(ckpt_recorder_flush(ckpt_rec.recorder, &err), CKPT_DEVICE);
    ckpt_rec_end();
    ckpt_rec_begin("fail=cuptiActivityPushExternalCorrelationId:1; fail=cuptiActivityPopExternalCorrelationId:1");
    ckpt_rec_open();
    assert_int_equal(ckpt_recorder_push(ckpt_rec.recorder, 1, &err), CKPT_DEVICE);
    assert_int_equal(ckpt_recorder_pop(ckpt_rec.recorder, &err), CKPT_DEVICE);
    ckpt_rec_end();
    ckpt_rec_begin(
        "fail=cuptiActivitySetAttribute:27"); /* confidential computing: it records, and uses the GPU's memory */
    ckpt_rec_open();
    assert_int_equal(ckpt_rec_told().device_bytes, -1);
    assert_non_null(strstr(ckpt_recorder_describe(ckpt_rec.recorder, &ckpt_rec.arena), "an unknown part of the GPU's"));
    ckpt_rec_end();
}

static void test_libraries_that_are_none(void **state)
{
    ckpt_rec_begin("");
    ckpt_rec.options.library = "/nowhere/libcupti.so";
    ckpt_rec_declined("no CUPTI: ");
    ckpt_rec.options.library = ckpt_source_file("README.md"); /* no library */
    ckpt_rec_declined("no CUPTI: ");
    ckpt_rec.options.library = "libm.so.6";
    ckpt_rec_declined("this libcupti has no cuptiGetVersion");
    ckpt_rec.options.library = NULL;
    assert_int_equal(setenv("CKPT_CUPTI", "", 1), 0);
    ckpt_rec_declined("CUPTI is turned off (CKPT_CUPTI is empty)");
    assert_int_equal(setenv("CKPT_CUPTI", CKPT_TEST_DOUBLE, 1), 0);
    ckpt_rec_open();
    ckpt_rec_close();
    ckpt_rec.options.library = CKPT_TEST_DOUBLE; /* the caller's choice precedes the variable */
    assert_int_equal(setenv("CKPT_CUPTI", "/nowhere", 1), 0);
    ckpt_rec_open();
    assert_int_equal(unsetenv("CKPT_CUPTI"), 0);
    ckpt_rec_end();
}

static void test_names_of_versions(void **state)
{
    static const struct {
        const char *controls, *name;
    } cases[] = {
        {"version=18", "CUPTI 11.8"},       {"version=26", "CUPTI 12.8"},       {"version=28", "CUPTI 12.9.1"},
        {"version=29", "CUPTI API 29"},     {"version=40", "CUPTI API 40"},     {"version=130000", "CUPTI 13.0"},
        {"version=130001", "CUPTI 13.0.1"}, {"version=130202", "CUPTI 13.2.2"}, {"version=139900", "CUPTI 13.99"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_rec_begin(cases[i].controls);
        ckpt_rec_open();
        assert_string_equal(ckpt_rec_told().library, cases[i].name);
        assert_int_equal(ckpt_rec_told().device_bytes, 0);
        ckpt_rec_end();
    }
}

/* Everything passed to a sink, as text. */
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
    ckpt_rec_begin("");
    ckpt_rec.options.sink = note_down;
    ckpt_rec.options.context = text;
    ckpt_rec.options.calls = false;
    ckpt_rec_open();
    assert_int_equal(ckpt_twin.enabled() & (1U << CUPTI_ACTIVITY_KIND_RUNTIME | 1U << CUPTI_ACTIVITY_KIND_DRIVER), 0);
    ckpt_twin.run("range r; kernel a 10; end; fill 3 4");
    CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
    assert_string_equal(text, "kernel a 10;range r 1100;fill  4;");
    text[0] = '\0';
    assert_int_equal(ckpt_twin.enabled() >> CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION & 1, 0); /* nor tags */
    ckpt_twin.control("running=1");
    ckpt_twin.run("kernel runs 5");
    CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
    assert_int_equal(ckpt_rec_told().odd, 0); /* it stays until it is done, or is dropped at the end */
    CHECK_OK(ckpt_recorder_flush_last(ckpt_rec.recorder, &err), err);
    assert_int_equal(ckpt_rec_told().odd, 1);
    assert_string_equal(text, "");
    ckpt_twin.run("copy host 3 5; range never");
    ckpt_twin.control("running=1");
    ckpt_twin.run("kernel runs 5");
    ckpt_rec_end();
    assert_string_equal(text, "copy  5;");
    ckpt_rec_begin("");
    text[0] = '\0';
    ckpt_rec.options.sink = note_down;
    ckpt_rec.options.context = text;
    ckpt_rec_open();
    ckpt_twin.run("driver; kernel a 10");
    ckpt_rec_end();
    assert_string_equal(text, "call cuLaunchKernel 1000;kernel a 10;");
}

/* The sink is called while a lock of the recorder is held, as a fork by another thread may find it. */
static void fork_here(void *context, const ckpt_activity *activity)
{
    (void)activity;
    ckpt_recorder_report report;
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        ckpt_recorder_tell(ckpt_rec.recorder, &report);
        _exit(5);
    }
    assert_int_equal(waitpid(child, context, 0), child);
}

static void test_a_child_waits_for_no_lock_of_its_parent(void **state)
{
    int status = 0;
    ckpt_err err = {0};
    (void)state;
    ckpt_rec_begin("");
    ckpt_rec.options.sink = fork_here;
    ckpt_rec.options.context = &status;
    ckpt_rec.options.calls = false;
    ckpt_rec_open();
    ckpt_twin.run("kernel a 10");
    CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
    ckpt_rec_end();
}

static void test_stopped_is_not_closed(void **state)
{
    char text[2000] = "";
    (void)state;
    ckpt_rec_begin("");
    ckpt_rec.options.sink = note_down;
    ckpt_rec.options.context = text;
    ckpt_rec.options.calls = false;
    ckpt_rec_open();
    ckpt_twin.run("kernel a 10");
    ckpt_recorder_stop(ckpt_rec.recorder);
    assert_int_equal(ckpt_twin.enabled(), 0);
    ckpt_twin.run("kernel b 10");
    ckpt_rec_end();
    assert_string_equal(text, "kernel a 10;");
    ckpt_rec_begin("version=130000"); /* which deadlocks */
    ckpt_rec_open();
    ckpt_recorder_stop(ckpt_rec.recorder);
    assert_int_not_equal(ckpt_twin.enabled(), 0);
    ckpt_rec_end();
}

static void test_buffers_that_come_back_late(void **state)
{
    ckpt_rec_begin("keep=1");
    ckpt_rec_open();
    ckpt_rec_tagged(7, "kernel k 5");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec.count, 0);
    ckpt_rec_close();
    ckpt_arena_fini(&ckpt_rec.arena);
    assert_int_equal(ckpt_memory_live(), 1); /* CUPTI may still write to it */
    ckpt_twin.deliver();
    assert_int_equal(ckpt_memory_live(), 0);
    ckpt_twin.run("kernel nobody 5"); /* after the end of recording it gets no buffer */
    ckpt_twin.control("keep=0");
    ckpt_twin.deliver();
    ckpt_rec_end();
    ckpt_rec_begin("keep=1");
    ckpt_rec_open();
    ckpt_rec_tagged(7, "kernel old 5");
    ckpt_rec_collect();
    ckpt_rec_close();
    ckpt_rec_open(); /* another session, to which the old buffer does not belong */
    ckpt_twin.control("keep=0");
    ckpt_twin.deliver();
    ckpt_rec_tagged(8, "kernel fresh 5");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 1);
    assert_string_equal(ckpt_rec_nth(CKPT_ACTIVITY_KERNEL, 0)->name, "fresh");
    ckpt_rec_end();
}

/* Before CUDA 12.9 CUPTI crashed without a buffer, and so does the double. */
static void test_an_old_library_gets_a_buffer_when_nobody_records(void **state)
{
    ckpt_rec_begin("version=26");
    ckpt_rec_open();
    ckpt_rec_close();
    ckpt_twin.record(&(CUpti_ActivityAPI){.kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = 5, .end = 6}, 40);
    ckpt_twin.deliver();
    assert_int_equal(ckpt_memory_live(), 0);
    ckpt_rec_open();
    ckpt_rec_tagged(7, "kernel k 5");
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 1);
    ckpt_rec_end();
}

/* Handmade starts and ends: a number twice, an end before its start, missing names, and equal starts. */
static void mark(uint32_t id, bool start, uint64_t at, const char *name)
{
    const CUpti_ActivityMarker2 marker = {.kind = CUPTI_ACTIVITY_KIND_MARKER,
                                          .flags =
                                              start ? CUPTI_ACTIVITY_FLAG_MARKER_START : CUPTI_ACTIVITY_FLAG_MARKER_END,
                                          .timestamp = at,
                                          .id = id,
                                          .name = name};
    ckpt_twin.record(&marker, sizeof marker);
}

static void test_odd_ranges(void **state)
{
    char name[] = "passing";
    ckpt_err err = {0};
    (void)state;
    ckpt_rec_begin("");
    ckpt_rec_open();
    mark(5, true, 100, "first");
    mark(5, true, 200, "second");
    mark(5, false, 300, NULL);
    mark(5, false, 400, NULL);
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_RANGE), 2);
    mark(6, true, 500, "backwards");
    mark(6, false, 450, NULL);
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec.count, 0);
    assert_int_equal(ckpt_rec_told().odd, 1);
    mark(7, true, 600, name);
    CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
    memset(name, 'x', sizeof name - 1);
    mark(7, false, 700, NULL);
    mark(8, true, 600, "longer");
    mark(8, false, 900, NULL);
    ckpt_rec_collect();
    assert_int_equal(ckpt_rec.count, 2);
    assert_string_equal(ckpt_rec.got[0].name, "longer");
    assert_string_equal(ckpt_rec.got[1].name, "passing");
    ckpt_rec_end();
}

static void test_kinds_that_a_library_does_not_have(void **state)
{
    ckpt_rec_begin("refuse=49");
    ckpt_rec_declined("recording memory failed: CUPTI_RESULT_14 (14)");
    assert_int_equal(ckpt_twin.enabled(), 0); /* kernels and copies are disabled */
    ckpt_twin.record(&(CUpti_ActivityAPI){.kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = 5, .end = 6}, 40);
    ckpt_twin.deliver(); /* and no buffers are handed out any more */
    assert_int_equal(ckpt_memory_live(), 0);
    ckpt_rec.options.memory = false;
    ckpt_rec_open();
    ckpt_rec_end();
    ckpt_rec_begin(""); /* recorded but never collected: dropped */
    ckpt_rec_open();
    ckpt_rec_tagged(1, step);
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_flush(ckpt_rec.recorder, &err), err);
    ckpt_rec_end();
    ckpt_rec_begin("refuse=17"); /* overhead is not worth failing for */
    ckpt_rec_open();
    ckpt_rec_end();
}

static void test_a_record_nobody_knows(void **state)
{
    const uint64_t strange[4] = {4711};
    (void)state;
    ckpt_rec_begin("");
    ckpt_rec_open();
    ckpt_rec_tagged(1, "kernel before 5");
    ckpt_twin.record(strange, sizeof strange);
    ckpt_rec_tagged(2, "kernel behind 5");
    ckpt_rec_collect(); /* its end is unknown too: the rest of the buffer is lost */
    assert_int_equal(ckpt_rec_count(CKPT_ACTIVITY_KERNEL), 1);
    assert_int_equal(ckpt_rec_told().odd, 1);
    ckpt_rec_end();
}

static void test_host_memory_is_told(void **state)
{
    ckpt_rec_begin("");
    ckpt_rec_open();
    assert_int_equal(ckpt_rec_told().host_bytes, 0);
    ckpt_rec_tagged(1, "kernel k 5");
    ckpt_rec_collect();
    const int64_t one = ckpt_rec_told().host_bytes;
    assert_in_range(one, 1 << 20, 10 << 20);
    for (int i = 0; i < 3; i++) { /* buffers are reused */
        ckpt_rec_tagged(1, "kernel k 5");
        ckpt_rec_collect();
    }
    assert_int_equal(ckpt_rec_told().host_bytes, one);
    ckpt_rec_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_step_with_everything, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_only_what_was_asked_for, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_the_innermost_tag, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_a_script_runs_where_a_tag_ends, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_what_is_lost_is_told, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_each_cut_buffer_is_counted, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_clocks_apart, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_kernels_that_still_run, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_ranges_over_collects_threads_and_numbers, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_many_open_ranges, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_who_else_records, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_what_cupti_refuses, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_libraries_that_are_none, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_names_of_versions, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_a_sink, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_a_child_waits_for_no_lock_of_its_parent, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_stopped_is_not_closed, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_buffers_that_come_back_late, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_an_old_library_gets_a_buffer_when_nobody_records, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_odd_ranges, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_kinds_that_a_library_does_not_have, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_a_record_nobody_knows, ckpt_rec_leave),
        cmocka_unit_test_teardown(test_host_memory_is_told, ckpt_rec_leave),
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
