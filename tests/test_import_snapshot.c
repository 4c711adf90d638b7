/* labels: unit */
/* Memory snapshots as traces: the totals of what PyTorch wrote against those worked out backwards by a script
 * (tests/imports/snapshot_expected.txt), every event against a plain recomputation, small snapshots by hand, and files
 * that mean harm. The seed is printed; a first argument replaces it. */
#include "tests/support_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "imports/import.h"

enum { ROOM = 1 << 17, NOTES_ROOM = 4096, MUTANTS = 1200 };
#define FOLDER CKPT_SOURCE_DIR "/tests/imports/"

static uint64_t seed = 20261120;
static char notes[NOTES_ROOM];

static uint64_t draw(uint64_t limit)
{
    static uint64_t s;
    s = s == 0 ? seed : s;
    s ^= s >> 12;
    s ^= s << 25;
    s ^= s >> 27;
    return (s * 2685821657736338717u >> 11) % limit;
}

static void take_note(const char *line)
{
    CHECK(strpbrk(line, "\n\r") == NULL, "a note of more than one line: %s", line);
    const size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", line);
}

static ckpt_code import(const char *path, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    notes[0] = '\0';
    return ckpt_import_snapshot(path, take_note, arena, trace, err);
}

static ckpt_bytes allocated(const ckpt_event *event)
{
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        sum += event->bytes[c];
    }
    return sum;
}

static bool is_memory(const ckpt_event *event)
{
    return event->span == CKPT_SPAN_ALLOCATE || event->span == CKPT_SPAN_FREE;
}

/* Every event's bytes against a list of what is allocated, searched from its start; the peak against all of them; and
 * the trace must be one that its own reader takes. */
static void check_sums(const ckpt_trace *trace)
{
    const ckpt_event **const live = calloc((size_t)trace->event_count, sizeof *live);
    int count = 0;
    ckpt_bytes peak = 0;
    assert_non_null(live);
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        ckpt_bytes sum = 0;
        if (is_memory(event)) {
            int k = 0;
            while (k < count && live[k]->address != event->address) {
                k++;
            }
            if (k < count) {
                live[k] = live[--count];
            }
            if (event->span == CKPT_SPAN_ALLOCATE) {
                live[count++] = event;
            }
        }
        for (int k = 0; k < count; k++) {
            sum += live[k]->size_bytes;
        }
        peak = sum > peak ? sum : peak;
        CHECK(allocated(event) == sum, "event %d: %lld bytes, wanted %lld", i, (long long)allocated(event),
              (long long)sum);
        CHECK(i == 0 || event->start_ns >= event[-1].start_ns, "event %d is before the one before it", i);
    }
    assert_int_equal(trace->peak_bytes, peak);
    free(live);
    ckpt_text text;
    ckpt_arena arena;
    ckpt_err err = {0};
    const ckpt_trace *again = NULL;
    ckpt_text_init(&text);
    ckpt_arena_init(&arena);
    ckpt_trace_write(trace, &text);
    const char *const path = ckpt_test_file("import_snapshot.json", text.bytes, text.length);
    CHECK_OK(ckpt_trace_read(path, &arena, &again, &err), err);
    ckpt_arena_fini(&arena);
    ckpt_text_fini(&text);
}

static void check_totals(const char *name, const long long expected[5])
{
    char path[400];
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    snprintf(path, sizeof path, FOLDER "%s", name);
    ckpt_arena_init(&arena);
    CHECK_OK(import(path, &arena, &trace, &err), err);
    ckpt_bytes before = 0;
    ckpt_bytes most = 0;
    int memory = 0;
    int before_count = 0;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        const ckpt_bytes reserved = allocated(event) + event->bytes[CKPT_CAT_OUTSIDE];
        memory += is_memory(event);
        most = reserved > most ? reserved : most;
    }
    char *const at = strstr(notes, " bytes were allocated before the first entry");
    assert_non_null(at);
    char *start = at;
    while (start > notes && start[-1] != '\n') {
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
    assert_int_equal(allocated(&trace->event[trace->event_count - 1]), expected[2]);
    assert_int_equal(most, expected[3]);
    assert_int_equal(memory - before_count, expected[4]);
    check_sums(trace);
    ckpt_arena_fini(&arena);
}

static void test_totals_are_those_worked_out_backwards(void **state)
{
    (void)state;
    FILE *const file = fopen(FOLDER "snapshot_expected.txt", "r");
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

/* Names from stacks, layers from metadata, ranges from annotations, what the allocator did; categories where the file
 * has them. */
static void test_what_events_say(void **state)
{
    (void)state;
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    ckpt_arena_init(&arena);
    CHECK_OK(import(FOLDER "snapshot_training.pickle", &arena, &trace, &err), err);
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
    assert_non_null(strstr(notes, "2 entries of 1 other devices are left out; device 0 has the most"));
    CHECK_OK(import(FOLDER "snapshot_profile.pickle", &arena, &trace, &err), err);
    const ckpt_event *const peak = &trace->event[trace->peak_event];
    CHECK(peak->bytes[CKPT_CAT_INPUTS] > 0 && peak->bytes[CKPT_CAT_ACTIVATIONS] > 0 && peak->bytes[CKPT_CAT_SAVED] > 0,
          "categories of the profiler are lost");
    assert_non_null(strstr(notes, "the entries have no times"));
    assert_non_null(strstr(notes, "the segments are spans of addresses"));
    assert_int_equal(peak->bytes[CKPT_CAT_OUTSIDE], 0);
    CHECK(import(FOLDER "snapshot_none.pickle", &arena, &trace, &err) == CKPT_BAD_INPUT, "an empty snapshot was taken");
    assert_non_null(strstr(err.msg, "snapshot_none.pickle: found no allocation, wanted a snapshot taken after"));
    ckpt_arena_fini(&arena);
}

/* A pickle of what looks like Python: {'a': [1, 'x', N]}. */
static size_t pickle_of(const char *text, char *bytes)
{
    size_t length = 2;
    memcpy(bytes, "\x80\2", 2);
    for (const char *at = text; *at != '\0';) {
        char *end = NULL;
        const long long number = strtoll(at, &end, 10);
        CHECK(length + 300 < ROOM, "too long for the test");
        if (end != at && strchr("-0123456789", *at) != NULL) {
            memcpy(bytes + length, "\x8a\x08", 2);
            memcpy(bytes + length + 2, &number, 8); /* little-endian, as the machines we run on */
            length += 10;
            at = end;
            continue;
        }
        if (*at == '\'') {
            const size_t size = strcspn(at + 1, "'");
            bytes[length++] = 'U';
            bytes[length++] = (char)size;
            memcpy(bytes + length, at + 1, size);
            length += size;
            at += size + 2;
            continue;
        }
        const char *const is = strchr("{}[]N", *at);
        const char *const becomes = is == NULL ? "" : (const char *[]){"}(", "u", "](", "e", "N"}[is - "{}[]N"];
        memcpy(bytes + length, becomes, strlen(becomes));
        length += strlen(becomes);
        at++;
    }
    bytes[length++] = '.';
    return length;
}

static ckpt_code import_text(const char *text, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    static char bytes[ROOM];
    const size_t length = pickle_of(text, bytes);
    return import(ckpt_test_file("snapshot.pickle", bytes, length), arena, trace, err);
}

#define ALLOC(address, size)    "{'action':'alloc','addr':" #address ",'size':" #size "},"
#define FREE(address, size)     "{'action':'free_completed','addr':" #address ",'size':" #size "},"
#define ASK(address, size)      "{'action':'free_requested','addr':" #address ",'size':" #size "},"
#define SEGMENT(address, total) "{'address':" #address ",'total_size':" #total ",'allocated_size':1,'blocks':["
#define USED(size, asked)       "{'size':" #size ",'requested_size':" #asked ",'state':'active_allocated'},"
#define UNUSED(size)            "{'size':" #size ",'requested_size':0,'state':'inactive'},"

typedef struct row {
    const char *what, *text;
    long long peak, before, last; /* bytes allocated: most, at the first event of the file, at the end */
    const char *note;             /* NULL: none at all but that of times */
} row;

static void test_by_hand(void **state)
{
    (void)state;
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
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        const ckpt_code code = import_text(rows[i].text, &arena, &trace, &err);
        CHECK(code == CKPT_OK, "%s: %s", rows[i].what, err.msg);
        int first = 0; /* of the file's own */
        while (first + 1 < trace->event_count && strcmp(trace->event[first].name, "allocation") != 0) {
            first++;
        }
        CHECK(trace->peak_bytes == rows[i].peak, "%s: peak %lld", rows[i].what, (long long)trace->peak_bytes);
        CHECK(allocated(&trace->event[trace->event_count - 1]) == rows[i].last, "%s: %lld at the end", rows[i].what,
              (long long)allocated(&trace->event[trace->event_count - 1]));
        CHECK(allocated(&trace->event[first]) == rows[i].before, "%s: %lld with the first", rows[i].what,
              (long long)allocated(&trace->event[first]));
        if (rows[i].note != NULL) {
            CHECK(strstr(notes, rows[i].note) != NULL, "%s: notes are:\n%s", rows[i].what, notes);
        } else {
            CHECK(strchr(notes, '\n') == notes + strlen(notes) - 1, "%s: notes are:\n%s", rows[i].what, notes);
        }
        check_sums(trace);
        ckpt_arena_fini(&arena);
    }
}

/* Segments come and go: outside is what is reserved and not allocated, worked out from the end. */
static void test_outside_is_reserved_and_unused(void **state)
{
    (void)state;
    static const ckpt_bytes outside[] = {100 - 30, 300 - 30, 300 - 70, 300 - 70, 100 - 70, 100 - 30};
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    ckpt_arena_init(&arena);
    CHECK_OK(import_text("{'device_traces':[[{'action':'alloc','addr':1000,'size':30,'time_us':5},"
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
    assert_int_equal(trace->event[4].start_ns, 2000); /* not before the entry before it */
    assert_int_equal(trace->time_ns, 4000);
    assert_int_equal(trace->peak_bytes, 70);
    assert_non_null(strstr(notes, "1 entries have a time before that of the entry before them"));
    ckpt_arena_fini(&arena);
}

#define RANGE(stage, name, time) "{'stage':'" stage "','name':'" name "','time_us':" #time "},"

static void test_annotations(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ckpt_ns start_ns, end_ns;
    } wanted[] = {{"open before", 0, 2000},
                  {"a", 4000, 10000},
                  {"a", 5000, 6000},
                  {"b", 7000, 20000}, /* not closed in order */
                  {"open at the end", 30000, 40000}};
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    ckpt_arena_init(&arena);
    CHECK_OK(import_text("{'device_traces':[[{'action':'alloc','addr':1,'size':3,'time_us':100},"
                         "{'action':'free','addr':1,'size':3,'time_us':140}]],'external_annotations':[" RANGE(
                             "END", "gone", 99) RANGE("END", "open before", 102) RANGE("START", "a", 104)
                             RANGE("START", "a", 105) RANGE("END", "a", 106) RANGE("START", "b", 107)
                                 RANGE("END", "a", 110) RANGE("END", "b", 120) RANGE("START", "open at the end", 130)
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
    assert_non_null(strstr(notes, "3 of \"external_annotations\" are outside the entries' time"));
    ckpt_arena_fini(&arena);
}

#define FRAME(file, line, name) "{'filename':'" file "','line':" #line ",'name':'" name "'},"

static void test_names(void **state)
{
    (void)state;
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
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        snprintf(text, sizeof text,
                 "{'device_traces':[[{'action':'alloc','addr':8,'size':1,'frames':[%s]},"
                 "{'action':'free','addr':8,'size':1,'frames':[" FRAME("z.py", 1, "z") "]}]]}",
                 rows[i][0]);
        CHECK_OK(import_text(text, &arena, &trace, &err), err);
        assert_string_equal(trace->event[0].name, rows[i][1]);
        assert_string_equal(trace->event[1].name, rows[i][1]); /* of what was freed */
        ckpt_arena_fini(&arena);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"7", "found an integer without them, wanted a dict with \"segments\" and \"device_traces\""},
        {"{'traces':[]}", "found a dict without them, wanted"},
        {"{'device_traces':{}}", "found \"device_traces\", a dict, wanted a list"},
        {"{'segments':N}", "found \"segments\", None, wanted a list"},
        {"{'device_traces':[7]}", "device_traces[0]: found an integer, wanted a list of entries"},
        {"{'device_traces':[[],[7]]}", "device_traces[1][0]: found an integer, wanted a dict"},
        {"{'device_traces':[[{}]]}", "device_traces[0][0]: found no \"action\", wanted a text"},
        {"{'device_traces':[[{'action':3}]]}", "device_traces[0][0]: found \"action\" 3, wanted a text"},
        {"{'device_traces':[[" ALLOC(1, 1) "{'action':'alloc','size':4}]]}",
         "device_traces[0][1]: found no \"addr\", wanted an integer of 0 or more"},
        {"{'device_traces':[[" ALLOC(1, -4) "]]}", "device_traces[0][0]: found \"size\" -4, wanted an integer of 0"},
        {"{'device_traces':[[" ALLOC('1', 4) "]]}", "device_traces[0][0]: found \"addr\", a text, wanted an integer"},
        {"{'device_traces':[[{'action':'alloc','addr':1,'size':4,'time_us':9223372036854775807}]]}",
         "device_traces[0][0]: found \"time_us\" 9223372036854775807, wanted an integer in range"},
        {"{'segments':[3]}", "segments[0]: found an integer, wanted a dict"},
        {"{'segments':[{'blocks':3}]}", "segments[0]: found \"blocks\" 3, wanted a list"},
        {"{'segments':[{'blocks':[]}]}", "segments[0]: found no \"address\", wanted an integer of 0 or more"},
        {"[" SEGMENT(0, 8) "3]}]", "segments[0].blocks[0]: found an integer, wanted a dict"},
        {"[" SEGMENT(0, 8) "{'size':8}]}]", "segments[0].blocks[0]: found no \"state\", wanted a text"},
        {"[" SEGMENT(9223372036854775807, 8) USED(8, 8) "]}]",
         "segments[0].blocks[0]: found \"size\" 8, wanted an end within 63 bits"},
        {"{'device_traces':[]}", "found no allocation, wanted a snapshot taken after _record_memory_history()"},
    };
    static const char *const beyond[] = {
        "{'device_traces':[[" ALLOC(9223372036854775807, 8) "]]}",
        "{'device_traces':[[" ALLOC(0, 9223372036854775807) ALLOC(1, 9223372036854775806) "]]}",
        "{'device_traces':[[" FREE(0, 9223372036854775807) FREE(1, 9223372036854775806) "]]}",
        "{'device_traces':[[" ALLOC(9, 1) "]],'segments':[" SEGMENT(0, 9223372036854775807) "]}," SEGMENT(0, 1) "]}]}",
        "{'device_traces':[[" ALLOC(9, 1) "{'action':'segment_alloc','addr':0,'size':9223372036854775807},"
                                          "{'action':'segment_alloc','addr':0,'size':9223372036854775807}]]}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        CHECK(import_text(rows[i][0], &arena, &trace, &err) == CKPT_BAD_INPUT, "%s: was taken", rows[i][0]);
        const char *const at = strstr(err.msg, "snapshot.pickle: ");
        CHECK(at != NULL && strncmp(at + strlen("snapshot.pickle: "), rows[i][1], strlen(rows[i][1])) == 0,
              "%s: \"%s\"", rows[i][0], err.msg);
        ckpt_arena_fini(&arena);
    }
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        CHECK(import_text(beyond[i], &arena, &trace, &err) == CKPT_OVERFLOW, "row %zu: code %d: %s", i, (int)err.code,
              err.msg);
        CHECK(strstr(err.msg, "snapshot.pickle") != NULL, "no file in: %s", err.msg);
        ckpt_arena_fini(&arena);
    }
}

/* Both files touch a file when Python loads them. */
static void test_code_is_never_run(void **state)
{
    (void)state;
    static const char global[] = "\x80\2cposix\nsystem\nX\x0c\0\0\0touch pwned1\x85R.";
    static const char stacked[] =
        "\x80\4\x95N\0\0\0\0\0\0\0}\x94(\x8c\x08segments\x94]\x94\x8c\rdevice_traces\x94]\x94]"
        "\x94\x8c\5posix\x94\x8c\6system\x94\x93\x94\x8c\x0ctouch pwned2\x94\x85\x94R\x94"
        "aau.";
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    assert_int_equal(chdir(CKPT_WORK_DIR), 0);
    unlink("pwned1");
    unlink("pwned2");
    ckpt_arena_init(&arena);
    CHECK(import(ckpt_test_file("evil.pickle", global, sizeof global - 1), &arena, &trace, &err) == CKPT_BAD_INPUT,
          "was taken");
    assert_non_null(strstr(err.msg,
                           "evil.pickle: found opcode GLOBAL 'posix system' at byte 2: it names code, which is "
                           "never run; wanted data only"));
    CHECK(import(ckpt_test_file("evil.pickle", stacked, sizeof stacked - 1), &arena, &trace, &err) == CKPT_BAD_INPUT,
          "was taken");
    assert_non_null(strstr(err.msg, "evil.pickle: found opcode STACK_GLOBAL 'posix system' at byte 64: it names code"));
    ckpt_arena_fini(&arena);
    CHECK(access("pwned1", F_OK) != 0 && access("pwned2", F_OK) != 0, "what the pickle says was run");
}

/* What refers to itself or to one thing many times must neither hang nor cost more than its size. */
static void test_bombs(void **state)
{
    (void)state;
    enum { TIMES = 20000 };
    static char bytes[ROOM];
    static const struct {
        const char *what, *begin, *each, *end;
        size_t begin_length, each_length, end_length;
        const char *wanted; /* NULL: taken */
    } rows[] = {
#define BOMB(what, begin, each, end, wanted)                                                                           \
    {what, begin, each, end, sizeof begin - 1, sizeof each - 1, sizeof end - 1, wanted}
        BOMB("a list of traces that is its own trace", "\x80\2}U\rdevice_traces]q\1(", "h\1", "es.",
             "device_traces[0][0]: found a list, wanted a dict"),
        BOMB("segments that share all their blocks",
             "\x80\2](}(U\7"
             "addressK\0U\ntotal_sizeK\1U\6"
             "blocks](NNNNeuq\1",
             "h\1", "e.", "segments[2]: found \"blocks\", a list, wanted blocks of its own"),
        BOMB("one entry many times",
             "\x80\2}U\rdevice_traces](](}(U\6"
             "actionU\5"
             "allocU\4"
             "addrK\1U\4sizeK\1uq\1",
             "h\1", "ees.", NULL),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = rows[i].begin_length;
        memcpy(bytes, rows[i].begin, length);
        for (int k = 0; k < TIMES; k++) {
            memcpy(bytes + length, rows[i].each, rows[i].each_length);
            length += rows[i].each_length;
        }
        memcpy(bytes + length, rows[i].end, rows[i].end_length);
        length += rows[i].end_length;
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        const ckpt_code code = import(ckpt_test_file("bomb.pickle", bytes, length), &arena, &trace, &err);
        CHECK(code == (rows[i].wanted != NULL ? CKPT_BAD_INPUT : CKPT_OK), "%s: code %d: %s", rows[i].what, (int)code,
              err.msg);
        CHECK(rows[i].wanted == NULL || strstr(err.msg, rows[i].wanted) != NULL, "%s: %s", rows[i].what, err.msg);
        ckpt_arena_fini(&arena);
    }
}

/* Of a dict the last 64 keys are looked at: one of 100 000 that 100 000 entries share is not searched through. */
static void test_large_dicts_are_not_searched(void **state)
{
    (void)state;
    static char text[4000];
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    ckpt_arena_init(&arena);
    for (int more = 63; more <= 64; more++) {
        int used = snprintf(text, sizeof text, "{'device_traces':[[" ALLOC(9, 1) "]]");
        for (int i = 0; i < more; i++) {
            used += snprintf(text + used, sizeof text - (size_t)used, ",'%d':N", i);
        }
        snprintf(text + used, sizeof text - (size_t)used, "}");
        const ckpt_code code = import_text(text, &arena, &trace, &err);
        CHECK(code == (more == 63 ? CKPT_OK : CKPT_BAD_INPUT), "%d more keys: code %d: %s", more, (int)code, err.msg);
    }
    ckpt_arena_fini(&arena);
}

/* A real file with a few bytes changed, taken out or doubled. */
static void test_damaged_files(void **state)
{
    (void)state;
    static char good[ROOM];
    static char mutant[ROOM];
    ckpt_arena arena;
    ckpt_err err = {0};
    const char *bytes = NULL;
    size_t length = 0;
    int accepted = 0;
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_file_read(FOLDER "snapshot_ring.pickle", &arena, &bytes, &length, &err), err);
    assert_true(length < ROOM - 100);
    memcpy(good, bytes, length);
    ckpt_arena_fini(&arena);
    const int mutants = (int)ckpt_test_rounds(MUTANTS, MUTANTS / 4);
    for (int i = 0; i < mutants; i++) {
        size_t now = length;
        memcpy(mutant, good, length);
        for (uint64_t k = 1 + draw(4); k > 0; k--) {
            const size_t at = (size_t)draw(now - 64);
            const size_t span = 1 + (size_t)draw(60);
            switch (draw(4)) {
            case 0: mutant[at] = (char)draw(256); break;
            case 1: mutant[at] = (char)(mutant[at] ^ (1 << draw(8))); break;
            case 2: memmove(mutant + at, mutant + at + span, now - at - span), now -= span; break;
            default: memmove(mutant + at, mutant + draw(now - 64), span); break;
            }
        }
        now = draw(8) == 0 ? (size_t)draw(now) : now;
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        const ckpt_code code = import(ckpt_test_file("fuzz.pickle", mutant, now), &arena, &trace, &err);
        CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "mutant %d: code %d: %s", i,
              (int)code, err.msg);
        CHECK(code == CKPT_OK || (strstr(err.msg, "fuzz.pickle") != NULL && strpbrk(err.msg, "\n\r") == NULL),
              "mutant %d: %s", i, err.msg);
        if (code == CKPT_OK) {
            accepted++;
            check_sums(trace);
        }
        ckpt_arena_fini(&arena);
        CHECK(ckpt_memory_live() == 0, "mutant %d: leaks", i);
    }
    print_message("%d of %d mutants accepted\n", accepted, mutants);
    CHECK(accepted > 0 && accepted < mutants / 2, "%d of %d accepted", accepted, mutants);
}

static ckpt_code starved(void *context, ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_trace *trace = NULL;
    ckpt_arena_init(&arena);
    const ckpt_code code = ckpt_import_snapshot(context, NULL, &arena, &trace, err);
    ckpt_arena_fini(&arena);
    return code;
}

static void test_starved(void **state)
{
    (void)state;
    static char path[] = FOLDER "snapshot_training.pickle";
    const int64_t allocations = ckpt_test_starve(starved, path);
    CHECK(allocations > 10, "%lld allocations", (long long)allocations);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals_are_those_worked_out_backwards),
        cmocka_unit_test(test_what_events_say),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_outside_is_reserved_and_unused),
        cmocka_unit_test(test_annotations),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_code_is_never_run),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_large_dicts_are_not_searched),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
