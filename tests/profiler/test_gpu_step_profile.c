/* labels: unit gpu */
/* A traced step that is recorded: what the device says it did is in the trace, step by step, and the training's bits
 * are those of a run nobody recorded. The device is the emulated one, what it "says" is scripted (cupti_double.h), so
 * the numbers wanted are known. */
#include "tests/support/support_test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "kernels/philox.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_train.h"

enum { MOST_KERNELS = 4, SCRIPT_SEED = 20261120 };

static ckpt_device *device;
static struct {
    void *handle;
    void (*reset)(void);
    int (*control)(const char *controls);
    int (*script)(const char *rules);
    int (*run)(const char *items);
} cupti;

/* What the script lets every step do. */
typedef struct told {
    int launches;
    ckpt_ns kernel_ns;
} told;

typedef struct session {
    test_train t;
    const ckpt_plan *plan;
    ckpt_executor *executor;
    ckpt_data *data;
    ckpt_trace *trace;
    ckpt_recorder *recorder;
    ckpt_text script;
    told *told;
    ckpt_arena arena; /* of the trace */
    char digest[CKPT_DIGEST_TEXT];
} session;

static uint32_t draw(uint32_t below, uint64_t at)
{
    uint32_t word[4];
    ckpt_philox_block(SCRIPT_SEED, 0, 0, 0, at, word);
    return word[0] % below;
}

/* Steps that run or copy start 0 to 3 things, some of them with a pause between; others nothing. */
static void write_script(session *s)
{
    static const char *const item[] = {"kernel gemm", "kernel \"void bias<float, 4>(float*)\"", "fill 64",
                                       "copy to_host 4096"};
    s->told = CKPT_NEW(&s->t.arena, told, s->plan->step_count);
    for (int i = 0; i < s->plan->step_count; i++) {
        if (s->plan->step[i].kind == CKPT_FREE) {
            continue;
        }
        ckpt_text_add(&s->script, "%d: stream %d", i + 1, s->plan->step[i].kind == CKPT_RUN ? 7 : 13);
        const int count = (int)draw(MOST_KERNELS, (uint64_t)i);
        for (int k = 0; k < count; k++) {
            const uint64_t at = (uint64_t)((i + 1) * MOST_KERNELS + k) << 8;
            const int ns = 2 + (int)draw(50, at); /* less than the emulated step takes */
            ckpt_text_add(&s->script, "; %s %d", item[draw(4, at + 1)], ns);
            ckpt_text_add(&s->script, draw(3, at + 2) == 0 ? "; gap 7" : "");
            s->told[i].launches++;
            s->told[i].kernel_ns += ns;
        }
        ckpt_text_add(&s->script, "\n");
    }
    assert_false(s->script.failed);
}

static void open_session(session *s)
{
    ckpt_err err = {0};
    memset(s, 0, sizeof *s);
    ckpt_text_init(&s->script);
    ckpt_arena_init(&s->arena);
    test_train_open_on(&s->t, device, "tests/models/fork.json", "", NULL);
    s->plan = test_train_hand_plan(&s->t, true, true);
    const ckpt_executor_options options = {.seed = 5, .poison = true, .record = true};
    s->executor = test_train_executor(&s->t, s->plan, &options);
    s->data = test_train_data(&s->t, 5);
    CHECK_OK(ckpt_executor_trace_create(s->executor, &s->arena, &s->trace, &err), err);
    write_script(s);
}

static void close_session(session *s)
{
    ckpt_recorder_close(s->recorder);
    ckpt_executor_destroy(s->executor);
    ckpt_data_close(s->data);
    ckpt_text_fini(&s->script);
    ckpt_arena_fini(&s->arena);
    test_train_close(&s->t);
}

static void open_recorder(session *s, const char *controls)
{
    ckpt_err err = {0};
    const ckpt_recorder_options options = {.library = ckpt_bin_file("libcupti_double.so")};
    cupti.reset();
    assert_int_equal(cupti.control(controls), 0);
    CHECK_OK(ckpt_recorder_open(&options, &s->recorder, &err), err);
    assert_int_equal(cupti.script(s->script.bytes), 0);
    ckpt_executor_trace_record(s->trace, s->recorder);
}

static ckpt_code step(session *s, bool traced, ckpt_err *err)
{
    float loss = 0;
    test_train_feed(&s->t, s->data, s->executor);
    CKPT_TRY(ckpt_executor_step(s->executor, &loss, traced ? s->trace : NULL, err));
    return ckpt_executor_digest(s->executor, CKPT_SECTION_WEIGHTS, s->digest, err);
}

/* Streams run in order, times are from the start of the step, and the step ends with its last event. */
static void check_order(const session *s)
{
    ckpt_ns last[CKPT_STREAM_COUNT] = {0}, end = 0;
    assert_int_equal(s->trace->event_count, s->plan->step_count);
    for (int i = 0; i < s->trace->event_count; i++) {
        const ckpt_event *const event = &s->trace->event[i];
        ckpt_ns *const before = &last[strcmp(event->stream, "compute") == 0 ? 0 : event->stream[0] == 'd' ? 1 : 2];
        CHECK(event->start_ns >= *before && event->end_ns >= event->start_ns,
              "step %d (%s) runs from %lld to %lld, its stream was busy until %lld", i, event->name,
              (long long)event->start_ns, (long long)event->end_ns, (long long)*before);
        *before = event->end_ns;
        end = event->end_ns > end ? event->end_ns : end;
    }
    assert_true(s->trace->time_ns == end && end > 0);
}

/* Every step has its own records and no others: neither those of before the step nor untagged ones. */
static void steps_have_what_was_recorded(void **state)
{
    ckpt_err err = {0};
    session s, plain;
    open_session(&s);
    open_session(&plain);
    open_recorder(&s, "");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(cupti.run("kernel foreign 123456; allocate 4096 0x7000"), 0);
        CHECK_OK(ckpt_recorder_push(s.recorder, 1, &err), err); /* somebody's tag 1 is not step 0 */
        CHECK_OK(ckpt_recorder_pop(s.recorder, &err), err);
        CHECK_OK(step(&s, round != 1, &err), err);
        CHECK_OK(step(&plain, round == 2, &err), err);
        assert_string_equal(s.digest, plain.digest);
        if (round == 1) {
            continue; /* a step that is replayed */
        }
        assert_null(ckpt_executor_trace_lost(s.trace));
        assert_non_null(strstr(s.trace->recorder, "CUPTI"));
        check_order(&s);
        for (int i = 0; i < s.plan->step_count; i++) {
            const ckpt_event *const event = &s.trace->event[i];
            CHECK(event->launches == s.told[i].launches && event->kernel_ns == s.told[i].kernel_ns,
                  "step %d (%s): %d launches of %lld ns, wanted %d of %lld", i, event->name, event->launches,
                  (long long)event->kernel_ns, s.told[i].launches, (long long)s.told[i].kernel_ns);
            const ckpt_ns length = event->end_ns - event->start_ns;
            CHECK(event->launches > 0 ? length >= event->kernel_ns : length == 0, "step %d (%s) takes %lld ns", i,
                  event->name, (long long)length);
        }
    }
    assert_true(plain.trace->event[0].launches == 0 && plain.trace->recorder[0] == '\0');
    check_order(&plain);
    close_session(&plain);
    close_session(&s);
}

/* Whatever goes wrong with recording, the step is done, with the same bits, and its trace has the stamps' times. */
static void recording_that_fails_stops_nothing(void **state)
{
    static const struct {
        const char *controls, *words;
    } failure[] = {{"fail=cuptiActivityPushExternalCorrelationId:999", "beginning a tag"},
                   {"fail=cuptiActivityPopExternalCorrelationId:999", "ending a tag"},
                   {"fail=cuptiActivityFlushAll:999", "giving its records back"}};
    session plain;
    ckpt_err err = {0};
    open_session(&plain);
    CHECK_OK(step(&plain, false, &err), err);
    for (size_t f = 0; f <= sizeof failure / sizeof failure[0]; f++) {
        const bool silent = f == sizeof failure / sizeof failure[0]; /* it hears of nothing */
        session s;
        open_session(&s);
        if (silent) {
            ckpt_text_fini(&s.script);
            ckpt_text_init(&s.script);
            ckpt_text_add(&s.script, "100000: kernel never 1\n");
        }
        open_recorder(&s, silent ? "" : failure[f].controls);
        CHECK_OK(step(&s, true, &err), err);
        assert_string_equal(s.digest, plain.digest);
        const char *const lost = ckpt_executor_trace_lost(s.trace);
        CHECK(lost != NULL && strstr(lost, silent ? "none belongs to a step" : failure[f].words) != NULL,
              "found \"%s\", wanted \"%s\"", lost != NULL ? lost : "", silent ? "none belongs" : failure[f].words);
        assert_string_equal(s.trace->recorder, "");
        check_order(&s);
        for (int i = 0; i < s.trace->event_count; i++) {
            assert_int_equal(s.trace->event[i].launches, 0);
        }
        close_session(&s);
    }
    close_session(&plain);
}

/* Where records were lost, a step without any may have run all the same: it keeps its stamps. Where none was, it ran
 * nothing. */
static void lost_records_leave_the_stamps(void **state)
{
    for (int lost = 0; lost < 2; lost++) {
        ckpt_err err = {0};
        session s;
        open_session(&s);
        open_recorder(&s, lost != 0 ? "backwards=2" : "");
        assert_int_equal(cupti.script(lost != 0 ? "1: kernel first 5; kernel second 5" : "1: kernel first 5"), 0);
        CHECK_OK(step(&s, true, &err), err);
        assert_true((strstr(s.trace->recorder, "left out") != NULL) == (lost != 0));
        check_order(&s);
        int stamped = 0;
        for (int i = 1; i < s.trace->event_count; i++) {
            assert_int_equal(s.trace->event[i].launches, 0);
            stamped += s.trace->event[i].end_ns > s.trace->event[i].start_ns;
        }
        assert_true((stamped > 0) == (lost != 0));
        assert_true(s.trace->event[0].launches == 1 && s.trace->event[0].kernel_ns == 5);
        close_session(&s);
    }
}

/* Two kernels of one step on two streams: the time in kernels is that in which at least one ran. */
static void what_overlaps_counts_once(void **state)
{
    ckpt_err err = {0};
    session s;
    open_session(&s);
    open_recorder(&s, "");
    assert_int_equal(cupti.script("1: kernel long 900000; stream 8; kernel inside 5; stream 9; kernel beyond 950000"),
                     0);
    CHECK_OK(step(&s, true, &err), err);
    const ckpt_event *const event = &s.trace->event[0];
    assert_int_equal(event->launches, 3);
    assert_true(event->kernel_ns > 950000 && event->kernel_ns < 1800000);
    assert_int_equal(event->kernel_ns, event->end_ns - event->start_ns);
    close_session(&s);
}

static ckpt_code starved_step(session *s, int64_t allowed)
{
    ckpt_err err = {0};
    ckpt_memory_fail_after(allowed);
    const ckpt_code code = step(s, true, &err);
    ckpt_memory_fail_after(-1);
    return code;
}

/* Steps go on when the recorder or the trace finds no memory; only the digest of the test itself may refuse. */
static void recording_without_memory_stops_nothing(void **state)
{
    session s, plain;
    ckpt_err err = {0};
    open_session(&s);
    open_session(&plain);
    open_recorder(&s, "");
    bool recorded = false;
    for (int64_t allowed = 0; !recorded && allowed < 200; allowed++) {
        const uint64_t before = ckpt_executor_steps(s.executor);
        (void)starved_step(&s, allowed);
        assert_true(ckpt_executor_steps(s.executor) == before + 1);
        recorded = s.trace->recorder[0] != '\0';
        assert_true(recorded == (ckpt_executor_trace_lost(s.trace) == NULL));
        check_order(&s);
        CHECK_OK(step(&plain, false, &err), err);
    }
    assert_true(recorded);
    CHECK_OK(ckpt_executor_digest(s.executor, CKPT_SECTION_WEIGHTS, s.digest, &err), err);
    assert_string_equal(s.digest, plain.digest);
    close_session(&plain);
    close_session(&s);
}

static void *symbol(const char *name)
{
    void *const found = dlsym(cupti.handle, name);
    CHECK(found != NULL, "the double has no %s", name);
    return found;
}

static int open_device(void **state)
{
    ckpt_err err = {0};
    ckpt_emulated_guard(false);
    CHECK_OK(ckpt_device_emulated.open(0, 1, &device, &err), err);
    *(void **)&cupti.reset = symbol("ckpt_cupti_double_reset");
    *(void **)&cupti.control = symbol("ckpt_cupti_double_control");
    *(void **)&cupti.script = symbol("ckpt_cupti_double_script");
    *(void **)&cupti.run = symbol("ckpt_cupti_double_run");
    return 0;
}

static int close_device(void **state)
{
    ckpt_device_close(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_what_was_recorded),           cmocka_unit_test(recording_that_fails_stops_nothing),
        cmocka_unit_test(lost_records_leave_the_stamps),          cmocka_unit_test(what_overlaps_counts_once),
        cmocka_unit_test(recording_without_memory_stops_nothing),
    };
    cupti.handle = dlopen(ckpt_bin_file("libcupti_double.so"), RTLD_NOW);
    if (cupti.handle == NULL) {
        printf("no CUPTI in this build: %s\n", dlerror());
        return 77;
    }
    return cmocka_run_group_tests(tests, open_device, close_device);
}
