/* labels: unit */
/* Memory snapshots as traces: totals of PyTorch's files compared with those that a script computes backwards
 * (tests/imports/snapshot_expected.txt), every event compared with a plain recomputation, and small handmade
 * snapshots. */
#include "tests/support/support_snapshot.h"

#include <stdio.h>
#include <string.h>

static void check_totals(const char *name, const long long expected[5])
{
    char path[400];
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    snprintf(path, sizeof path, "%s/tests/imports/%s", ckpt_source_dir(), name);
    CHECK_OK(ckpt_test_snapshot_import(path, &arena, &trace, &err), err);
    ckpt_bytes before = 0;
    ckpt_bytes most = 0;
    int memory = 0;
    int before_count = 0;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        const ckpt_bytes reserved = ckpt_test_allocated(event) + event->bytes[CKPT_CAT_OUTSIDE];
        memory += ckpt_test_is_memory(event);
        most = reserved > most ? reserved : most;
    }
    char *const at = strstr(ckpt_test_notes, " bytes were allocated before the first entry");
    assert_non_null(at);
    char *start = at;
    while (start > ckpt_test_notes && start[-1] != '\n') {
        start--;
    }
    long long bytes = 0;
    assert_int_equal(sscanf(start, "%d blocks of %lld", &before_count, &bytes), 2);
    for (int i = 0; i < before_count; i++) {
        CHECK(trace->event[i].span == CKPT_SPAN_ALLOCATE, "%s: event %d is not from before", name, i);
        before += trace->event[i].size_bytes;
    }
    assert_int_equal(trace->peak_bytes, expected[0]);
    assert_int_equal(before, expected[1]);
    assert_int_equal(bytes, expected[1]);
    assert_int_equal(ckpt_test_allocated(&trace->event[trace->event_count - 1]), expected[2]);
    assert_int_equal(most, expected[3]);
    assert_int_equal(memory - before_count, expected[4]);
    ckpt_test_snapshot_sums(trace);
}

static void test_totals_are_those_worked_out_backwards(void **state)
{
    FILE *const file = fopen(SNAPSHOT("snapshot_expected.txt"), "r");
    char line[300];
    int rows = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char name[100];
        long long e[5];
        if (sscanf(line, "%99s %lld %lld %lld %lld %lld", name, &e[0], &e[1], &e[2], &e[3], &e[4]) == 6) {
            check_totals(name, e);
            rows++;
        }
    }
    fclose(file);
    assert_int_equal(rows, 3);
}

static const ckpt_event *find_event(const ckpt_trace *trace, const char *name, ckpt_span span)
{
    for (int i = 0; i < trace->event_count; i++) {
        if (trace->event[i].span == span && strcmp(trace->event[i].name, name) == 0) {
            return &trace->event[i];
        }
    }
    return NULL;
}

/* Names from stacks, layers from metadata, ranges from annotations, events of the allocator; categories if the file has
 * them. */
static void test_what_events_say(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_test_snapshot_import(SNAPSHOT("snapshot_training.pickle"), &arena, &trace, &err), err);
    const ckpt_event *event = find_event(trace, "make_snapshot.py:34 forward", CKPT_SPAN_ALLOCATE);
    assert_non_null(event);
    assert_string_equal(event->layer, "forward");
    assert_string_equal(event->stream, "stream 0");
    event = find_event(trace, "backward", CKPT_SPAN_OTHER);
    assert_non_null(event);
    assert_string_equal(event->stream, "annotations");
    CHECK(event->end_ns > event->start_ns, "an empty range");
    event = find_event(trace, "reserve a segment", CKPT_SPAN_OTHER);
    assert_non_null(event);
    assert_int_equal(event->size_bytes, 2 << 20);
    assert_string_equal(trace->recorder, "PyTorch memory snapshot, device 0");
    assert_string_equal(trace->name, "snapshot_training.pickle");
    assert_non_null(strstr(ckpt_test_notes, "2 entries of 1 other devices are left out; device 0 has the most"));
    CHECK_OK(ckpt_test_snapshot_import(SNAPSHOT("snapshot_profile.pickle"), &arena, &trace, &err), err);
    const ckpt_event *const peak = &trace->event[trace->peak_event];
    CHECK(peak->bytes[CKPT_CAT_INPUTS] > 0 && peak->bytes[CKPT_CAT_ACTIVATIONS] > 0 && peak->bytes[CKPT_CAT_SAVED] > 0,
          "categories of the profiler are lost");
    assert_non_null(strstr(ckpt_test_notes, "the entries have no times"));
    assert_non_null(strstr(ckpt_test_notes, "the segments are spans of addresses"));
    assert_int_equal(peak->bytes[CKPT_CAT_OUTSIDE], 0);
    CHECK(ckpt_test_snapshot_import(SNAPSHOT("snapshot_none.pickle"), &arena, &trace, &err) == CKPT_BAD_INPUT,
          "an empty snapshot was taken");
    assert_non_null(strstr(err.msg, "snapshot_none.pickle: found no allocation, wanted a snapshot taken after"));
}

typedef struct row {
    const char *what, *text;
    long long peak, before, last; /* allocated bytes: the most, at the first event of the file, at the end */
    const char *note;             /* NULL: only the note about times */
} row;

static void test_by_hand(void **state)
{
    static const row rows[] = {
        {"all is in the entries",
         "{'device_traces':[[" ALLOC(1000, 10) ALLOC(2000, 5) FREE(1000, 10) ASK(2000, 5) "]],'segments':[]}", 15, 10,
         5, NULL},
        {"freed, but allocated before: its request is not what ends it",
         "{'device_traces':[[" ALLOC(1000, 10) ASK(3000, 7) ALLOC(2000, 5) FREE(3000, 7) "]],'segments':[]}", 22, 17,
         15, "1 blocks of 7 bytes were allocated before"},
        {"in the segments and in no entry",
         "{'device_traces':[[" ALLOC(1000, 10) "]],'segments':[" SEGMENT(1000, 2048) USED(512, 10) UNUSED(512)
             USED(1024, 600) "]}]}",
         610, 610, 610, "1 blocks of 600 bytes were allocated before"},
        {"waiting for another stream at the end is still in use",
         "{'device_traces':[[" ALLOC(9000, 1) FREE(9000, 1) "]],'segments':["
                                                            "{'address':1024,'total_size':512,'blocks':[{'size':512,'"
                                                            "requested_size':3,'state':'active_pending_free'}]}]}",
         4, 4, 3, "1 blocks of 3 bytes were allocated before"},
        {"a block of the end lies where the trace ends with nothing",
         "{'device_traces':[[" ALLOC(1000, 10) FREE(1000, 10) ALLOC(5000, 2) "]],'segments':[" SEGMENT(1000, 512)
             USED(512, 10) "]}]}",
         10, 10, 2, "1 blocks of the segments were allocated after"},
        {"a block of the end lies across what the trace allocates",
         "{'device_traces':[[" ALLOC(1256, 10) FREE(1256, 10) ALLOC(5000, 2) "]],'segments':[" SEGMENT(1000, 512)
             USED(512, 10) "]}]}",
         10, 10, 2, "1 blocks of the segments were allocated after"},
        {"a block of the end lies in the larger of two allocations that begin before it",
         "{'device_traces':[[" ALLOC(1000, 100) FREE(1000, 100) ALLOC(1010, 10) FREE(1010, 10)
             ALLOC(5000, 2) "]],'segments':[" SEGMENT(1050, 10) USED(10, 10) "]}]}",
         100, 100, 2, "1 blocks of the segments were allocated after"},
        {"a key twice: the last counts",
         "{'device_traces':[[{'size':7,'action':'alloc','addr':1,'size':2}]],'device_traces':[["
         "{'size':7,'action':'alloc','addr':1,'size':3},]]}",
         3, 3, 3, NULL},
        {"requests count where no free is completed",
         "{'device_traces':[[" ALLOC(1000, 10) ASK(1000, 10) ALLOC(1000, 4) "]]}", 10, 10, 4, NULL},
        {"an allocation is missing between two frees",
         "{'device_traces':[[" ALLOC(1000, 10) FREE(1000, 10) FREE(1000, 10) ALLOC(7, 3) "]]}", 10, 10, 3,
         "1 frees of blocks whose allocation is not in the file"},
        {"a free is missing between two allocations",
         "{'device_traces':[[" ALLOC(1000, 10) ALLOC(1000, 6) ALLOC(2000, 1) "]]}", 10, 10, 7,
         "1 blocks were allocated where another was still in use"},
        {"two blocks of the end at one place",
         "{'device_traces':[[" ALLOC(1000, 10) "]],'segments':[" SEGMENT(1000, 10) USED(10, 10) "]}," SEGMENT(1000, 10)
             USED(10, 10) "]}]}",
         10, 10, 10, "1 blocks of the segments were allocated after"},
        {"a segment is no allocation",
         "{'device_traces':[[{'action':'segment_alloc','addr':1000,'size':20}," FREE(1000, 10) ALLOC(7, 3) "]]}", 10, 3,
         3, "1 blocks of 10 bytes were allocated before the first entry"},
        {"the device with the most entries",
         "{'device_traces':[[],[" ALLOC(1, 2) "],[" ALLOC(1, 5)
             ALLOC(2, 6) "]],'segments':["
                         "{'device':1,'address':64,'total_size':4,'blocks':[" USED(4, 4) "]}]}",
         11, 5, 11, "1 entries of 1 other devices are left out; device 2 has the most, 2"},
        {"segments alone", "[" SEGMENT(4096, 2048) USED(1024, 1000) UNUSED(512) USED(512, 1) "]}]", 1001, 1001, 1001,
         "no history was recorded"},
        {"blocks of old versions",
         "{'device_traces':[],'segments':[{'address':0,'total_size':512,'blocks':[{'size':512,'state':"
         "'active_allocated','history':[{'addr':0,'real_size':77,'frames':[]}]}]}]}",
         77, 77, 77, "no history was recorded"},
        {"blocks that are not their segment's",
         "{'device_traces':[[" ALLOC(9, 1) "]],'segments':[" SEGMENT(64, 2048) USED(1024, 1000) "]}]}", 1, 1, 1,
         "segments[0] is of 2048 bytes, its blocks of 1024: its 1 blocks in use are left out"},
        {"kinds nobody knows yet",
         "{'device_traces':[[" ALLOC(9,
                                     1) "{'action':'annotate','addr':9,'user_metadata':'x'},{'action':'snapshot'}]]}",
         1, 1, 1, "1 entries are of another kind, the first \"annotate\": left out"},
        {"nothing else", "{'device_traces':[[" ALLOC(9, 1) "]],'host_traces':[[" ALLOC(9, 1) "]]}", 1, 1, 1,
         "\"host_traces\", pinned memory of the host, is left out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        const ckpt_code code = ckpt_test_snapshot_text(rows[i].text, &arena, &trace, &err);
        CHECK(code == CKPT_OK, "%s: %s", rows[i].what, err.msg);
        int first = 0; /* of the file's own */
        while (first + 1 < trace->event_count && strcmp(trace->event[first].name, "allocation") != 0) {
            first++;
        }
        CHECK(trace->peak_bytes == rows[i].peak, "%s: peak %lld", rows[i].what, (long long)trace->peak_bytes);
        CHECK(ckpt_test_allocated(&trace->event[trace->event_count - 1]) == rows[i].last, "%s: %lld at the end",
              rows[i].what, (long long)ckpt_test_allocated(&trace->event[trace->event_count - 1]));
        CHECK(ckpt_test_allocated(&trace->event[first]) == rows[i].before, "%s: %lld with the first", rows[i].what,
              (long long)ckpt_test_allocated(&trace->event[first]));
        if (rows[i].note != NULL) {
            CHECK(strstr(ckpt_test_notes, rows[i].note) != NULL, "%s: ckpt_test_notes are:\n%s", rows[i].what,
                  ckpt_test_notes);
        } else {
            CHECK(strchr(ckpt_test_notes, '\n') == ckpt_test_notes + strlen(ckpt_test_notes) - 1,
                  "%s: ckpt_test_notes are:\n%s", rows[i].what, ckpt_test_notes);
        }
        ckpt_test_snapshot_sums(trace);
    }
}

/* Segments come and go: outside is reserved minus allocated, computed from the end. */
static void test_outside_is_reserved_and_unused(void **state)
{
    static const ckpt_bytes outside[] = {100 - 30, 300 - 30, 300 - 70, 300 - 70, 100 - 70, 100 - 30};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_test_snapshot_text("{'device_traces':[[{'action':'alloc','addr':1000,'size':30,'time_us':5},"
                                     "{'action':'segment_map','addr':2000,'size':200,'time_us':5},"
                                     "{'action':'alloc','addr':2000,'size':40,'time_us':6},"
                                     "{'action':'oom','size':4000,'device_free':12,'time_us':7},"
                                     "{'action':'segment_unmap','addr':2100,'size':200,'time_us':3},"
                                     "{'action':'free_completed','addr':2000,'size':40,'time_us':9}]],'segments':[" //
                                     SEGMENT(1000, 100) USED(100, 30) "]}]}",
                                     &arena, &trace, &err),
             err);
    assert_int_equal(trace->event_count, 6);
    for (int i = 0; i < trace->event_count; i++) {
        assert_int_equal(trace->event[i].bytes[CKPT_CAT_OUTSIDE], outside[i]);
    }
    assert_string_equal(trace->event[3].name, "out of memory: 4000 bytes wanted, 12 free");
    assert_int_equal(trace->event[4].start_ns, 2000); /* not before the previous entry */
    assert_int_equal(trace->time_ns, 4000);
    assert_int_equal(trace->peak_bytes, 70);
    assert_non_null(strstr(ckpt_test_notes, "1 entries have a time before that of the entry before them"));
}

#define RANGE(stage, name, time) "{'stage':'" stage "','name':'" name "','time_us':" #time "},"

static void test_annotations(void **state)
{
    static const struct {
        const char *name;
        ckpt_ns start_ns, end_ns;
    } wanted[] = {{"open before", 0, 2000},
                  {"a", 4000, 10000},
                  {"a", 5000, 6000},
                  {"b", 7000, 20000}, /* not closed in order */
                  {"open at the end", 30000, 40000},
                  {"ends after", 31000, 40000}};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_test_snapshot_text(
                 "{'device_traces':[[{'action':'alloc','addr':1,'size':3,'time_us':100},"
                 "{'action':'free','addr':1,'size':3,'time_us':140}]],'external_annotations':[" RANGE("END", "gone", 99)
                     RANGE("END", "open before", 102) RANGE("START", "a", 104) RANGE("START", "a", 105)
                         RANGE("END", "a", 106) RANGE("START", "b", 107) RANGE("END", "a", 110) RANGE("END", "b", 120)
                             RANGE("START", "open at the end", 130) RANGE("START", "ends after", 131)
                                 RANGE("END", "ends after", 150)
                                     RANGE("START", "late",
                                           141) "{'stage':'START','name':'other device','time_us':110,'device':1},7]}",
                 &arena, &trace, &err),
             err);
    size_t found = 0;
    for (int i = 0; i < trace->event_count; i++) {
        if (strcmp(trace->event[i].stream, "annotations") == 0) {
            CHECK(found < sizeof wanted / sizeof wanted[0], "one too many: %s", trace->event[i].name);
            assert_string_equal(trace->event[i].name, wanted[found].name);
            assert_int_equal(trace->event[i].start_ns, wanted[found].start_ns);
            assert_int_equal(trace->event[i].end_ns, wanted[found].end_ns);
            found++;
        }
    }
    assert_int_equal(found, sizeof wanted / sizeof wanted[0]);
    assert_non_null(strstr(ckpt_test_notes, "3 of \"external_annotations\" are outside the entries' time"));
}

#define FRAME(file, line, name) "{'filename':'" file "','line':" #line ",'name':'" name "'},"

static void test_names(void **state)
{
    static const char *const rows[][2] = {
        {"", "allocation"},
        {FRAME("??", 0, "at::empty") FRAME("/home/u/train.py", 42, "forward") FRAME("/home/u/train.py", 9, "main"),
         "train.py:42 forward"},
        {FRAME("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125, "forward") FRAME("net.py", 3, "f"),
         "net.py:3 f"},
        {FRAME("/v/site-packages/torch/nn/modules/linear.py", 125, "forward"), "linear.py:125 forward"},
        {FRAME("a.cpp", 1, "c10::x") FRAME("b.cpp", 2, "torch::autograd::generated::MmBackward0::apply(int)"),
         "MmBackward0"},
        {FRAME("C:\\work\\net.py", 7, "run"), "net.py:7 run"},
        {FRAME("none", 0, "torch/nn/modules/module.py(1791): _call_impl") FRAME("none", 0, "nets/a.py(12): forward"),
         "a.py:12 forward"},
        {FRAME("none", 0, "nets/a.py(12: forward"), "allocation"},
        {"{'filename':3,'line':'x'},N,", "allocation"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[2000];
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        snprintf(text, sizeof text,
                 "{'device_traces':[[{'action':'alloc','addr':8,'size':1,'frames':[%s]},"
                 "{'action':'free','addr':8,'size':1,'frames':[" FRAME("z.py", 1, "z") "]}]]}",
                 rows[i][0]);
        CHECK_OK(ckpt_test_snapshot_text(text, &arena, &trace, &err), err);
        assert_string_equal(trace->event[0].name, rows[i][1]);
        assert_string_equal(trace->event[1].name, rows[i][1]); /* of what was freed */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals_are_those_worked_out_backwards),
        cmocka_unit_test(test_what_events_say),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_outside_is_reserved_and_unused),
        cmocka_unit_test(test_annotations),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
