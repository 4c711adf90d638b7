/* labels: unit */
/* Chrome traces: PyTorch's files compared with the expectations of a script, random traces compared with their
 * generator, and the many forms that tracers write. The seed is printed; a first argument replaces it. */
#include "tests/support/support_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "imports/import.h"

enum { ROOM = 1 << 18 };

static ckpt_code import_text(const char *text, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    ckpt_test_notes[0] = '\0';
    return ckpt_import_chrome(ckpt_test_file("chrome.json", text, strlen(text)), ckpt_test_take_note, arena, trace,
                              err);
}

static bool is_memory(const ckpt_event *event)
{
    return event->span == CKPT_SPAN_ALLOCATE || event->span == CKPT_SPAN_FREE;
}

static ckpt_bytes sum_of(const ckpt_event *event)
{
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        sum += event->bytes[c];
    }
    return sum;
}

static int64_t need_int(const ckpt_item *object, const char *key)
{
    ckpt_item member;
    ckpt_err err = {0};
    int64_t value = 0;
    CHECK_OK(ckpt_item_need(object, key, &member, &err), err);
    CHECK_OK(ckpt_item_int(&member, 0, INT64_MAX, &value, &err), err);
    return value;
}

/* One of "runs": [name, layer, phase, ns]. */
static void check_run(const ckpt_item *runs, int index, const ckpt_event *event)
{
    CKPT_TEST_ARENA(arena);
    ckpt_item run;
    ckpt_err err = {0};
    const char *wanted[3];
    ckpt_item_at(runs, index, &run);
    for (int k = 0; k < 3; k++) {
        ckpt_item item;
        ckpt_item_at(&run, k, &item);
        CHECK_OK(ckpt_item_text(&item, &arena, &wanted[k], &err), err);
    }
    ckpt_item item;
    int64_t ns = 0;
    ckpt_item_at(&run, 3, &item);
    CHECK_OK(ckpt_item_int(&item, 0, INT64_MAX, &ns, &err), err);
    assert_string_equal(event->name, wanted[0]);
    CHECK(strcmp(event->layer, wanted[1]) == 0, "run %d, %s: layer \"%s\", wanted \"%s\"", index, wanted[0],
          event->layer, wanted[1]);
    CHECK(strcmp(ckpt_span_name(event->span), wanted[2]) == 0, "run %d, %s: %s, wanted %s", index, wanted[0],
          ckpt_span_name(event->span), wanted[2]);
    assert_int_equal(event->end_ns - event->start_ns, ns);
}

static void check_recorded(const char *name)
{
    char path[400];
    CKPT_TEST_ARENA(arena);
    ckpt_trace *trace = NULL;
    ckpt_json *json = NULL;
    ckpt_item root;
    ckpt_item runs;
    ckpt_err err = {0};
    int count[3] = {0}; /* made, freed, of before */
    int run = 0;
    ckpt_ns lane_end = 0;
    ckpt_test_notes[0] = '\0';
    snprintf(path, sizeof path, "%s/tests/imports/kineto_%s.json", ckpt_source_dir(), name);
    CHECK_OK(ckpt_import_chrome(path, ckpt_test_take_note, &arena, &trace, &err), err);
    snprintf(path, sizeof path, "%s/tests/imports/kineto_%s.expected.json", ckpt_source_dir(), name);
    CHECK_OK(ckpt_json_open(path, NULL, &json, &root, &err), err);
    CHECK_OK(ckpt_item_need(&root, "runs", &runs, &err), err);
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const e = &trace->event[i];
        if (is_memory(e)) {
            const bool before = e->span == CKPT_SPAN_ALLOCATE && strcmp(e->name, "before the recording") == 0;
            CHECK(!before || e->start_ns == 0, "a block of before at %" PRId64 " ns", e->start_ns);
            count[before ? 2 : e->span == CKPT_SPAN_FREE]++;
            continue;
        }
        CHECK(run < ckpt_item_count(&runs), "more runs than the %d the script found", run);
        CHECK(e->start_ns >= lane_end, "%s overlaps what ran before it", e->name);
        check_run(&runs, run++, e);
        lane_end = e->end_ns;
    }
    assert_int_equal(run, ckpt_item_count(&runs));
    assert_int_equal(count[0], need_int(&root, "allocations"));
    assert_int_equal(count[1], need_int(&root, "frees"));
    assert_int_equal(count[2], need_int(&root, "freed_before") + 1); /* and one for memory that nobody frees */
    assert_int_equal(trace->peak_bytes, need_int(&root, "peak_bytes"));
    assert_int_equal(sum_of(&trace->event[trace->event_count - 1]), need_int(&root, "left_bytes"));
    char note[300];
    snprintf(note, sizeof note,
             "%d bytes were allocated before the recording began; %d of those blocks are freed in it\n"
             "%d operations inside others are left out\n",
             (int)need_int(&root, "before_bytes"), (int)need_int(&root, "freed_before"),
             (int)need_int(&root, "operations") - ckpt_item_count(&runs));
    assert_string_equal(ckpt_test_notes, note); /* the recorder's own totals agree, otherwise there is a note */
    assert_string_equal(trace->recorder, "Kineto");
    assert_false(trace->machine.gpu);
    ckpt_json_close(json);
}

static void test_what_pytorch_recorded(void **state)
{
    check_recorded("training");
    check_recorded("modules");
}

typedef struct wanted_event {
    const char *name, *layer, *stream;
    ckpt_span span;
    ckpt_ns start_ns, end_ns;
    ckpt_bytes sum, size;
} wanted_event;

static void check_events(const ckpt_trace *trace, const wanted_event *wanted, int count)
{
    assert_int_equal(trace->event_count, count);
    for (int i = 0; i < count; i++) {
        const ckpt_event *const e = &trace->event[i];
        const wanted_event *const w = &wanted[i];
        CHECK(strcmp(e->name, w->name) == 0 && strcmp(e->layer, w->layer) == 0 && strcmp(e->stream, w->stream) == 0,
              "event %d: %s, layer \"%s\", %s; wanted %s, \"%s\", %s", i, e->name, e->layer, e->stream, w->name,
              w->layer, w->stream);
        CHECK(e->span == w->span && e->start_ns == w->start_ns && e->end_ns == w->end_ns,
              "event %d, %s: %s %" PRId64 " to %" PRId64, i, e->name, ckpt_span_name(e->span), e->start_ns, e->end_ns);
        CHECK(sum_of(e) == w->sum && e->size_bytes == w->size && e->bytes[CKPT_CAT_OTHER] == w->sum,
              "event %d, %s: %" PRId64 " bytes in memory, size %" PRId64, i, e->name, sum_of(e), e->size_bytes);
    }
}

static void gpu_path(char path[400])
{
    snprintf(path, 400, "%s/tests/imports/kineto_gpu_by_hand.json", ckpt_source_dir());
}

/* Made by hand: kernels with their calls, one GPU of two, blocks from before. */
static void test_a_trace_of_a_gpu(void **state)
{
    static const wanted_event wanted[] = {
        {"before the recording", "", "compute", CKPT_SPAN_ALLOCATE, 0, 0, 40000, 40000},
        {"before the recording", "", "compute", CKPT_SPAN_ALLOCATE, 0, 0, 100000, 60000},
        {"aten::to", "", "compute", CKPT_SPAN_ALLOCATE, 0, 0, 108192, 8192},
        {"Memcpy HtoD (Pageable -> Device)", "", "stream 7", CKPT_SPAN_COPY, 13000, 17125, 108192, 8192},
        {"aten::linear", "Linear_0", "compute", CKPT_SPAN_ALLOCATE, 50000, 50000, 110240, 2048},
        {"Memset (Device)", "Linear_0", "stream 7", CKPT_SPAN_FORWARD, 62000, 63000, 110240, 512},
        {"void gemm<float, 128, 64>(Params<float>)", "Linear_0", "stream 7", CKPT_SPAN_FORWARD, 69000, 89250, 110240,
         0},
        {"AddmmBackward0", "Linear_0", "compute", CKPT_SPAN_ALLOCATE, 198000, 198000, 126624, 16384},
        {"void gemm_nt<float, 64, 64>(Params<float>)", "Linear_0", "stream 7", CKPT_SPAN_BACKWARD, 208000, 243000,
         126624, 0},
        {"aten::linear", "Linear_0", "compute", CKPT_SPAN_FREE, 234000, 234000, 124576, 2048},
        {"Memset (Device)", "", "stream 7", CKPT_SPAN_BACKWARD, 264000, 265000, 124576, 64}, /* only by its thread */
        {"void multi_tensor_apply_kernel()", "", "stream 13", CKPT_SPAN_UPDATE, 418000, 423500, 124576, 0},
        {"ncclDevKernel_AllReduce()", "", "stream 20", CKPT_SPAN_OTHER, 428000, 443000, 124576, 0},
        {"before the recording", "", "compute", CKPT_SPAN_FREE, 438000, 438000, 84576, 40000},
    };
    char path[400];
    CKPT_TEST_ARENA(arena);
    ckpt_trace *trace = NULL;
    ckpt_err err = {0};
    gpu_path(path);
    ckpt_test_notes[0] = '\0';
    CHECK_OK(ckpt_import_chrome(path, ckpt_test_take_note, &arena, &trace, &err), err);
    check_events(trace, wanted, (int)(sizeof wanted / sizeof wanted[0]));
    assert_int_equal(trace->peak_bytes, 126624);
    assert_string_equal(trace->machine.device, "Hand-made GPU 0");
    assert_true(trace->machine.gpu);
    assert_string_equal(trace->name, "kineto_gpu_by_hand.json");
    assert_string_equal(ckpt_test_notes,
                        "2 memory events of other devices are left out: the trace has the memory of CUDA device 0\n"
                        "1 kernels, copies and fills of other GPUs are left out: the trace is of GPU 0\n"
                        "100000 bytes were allocated before the recording began; 1 of those blocks are freed in it\n"
                        "7 operations of the CPU are left out: the trace has what ran on the GPU\n");
}

/* Texts of events, written to a file in any order. */
typedef struct lines {
    char text[600][220];
    int count;
} lines;

static void add_line(lines *all, const char *format, ...) CKPT_PRINTF(2, 3);

static void add_line(lines *all, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(all->text[all->count++], sizeof all->text[0], format, args);
    va_end(args);
}

enum { BLOCKS = 9, CHANGES = 120, OPS_MOST = 200 };

/* A simulated allocator, and what the trace must have of it. */
typedef struct simulated {
    ckpt_bytes total[CHANGES]; /* of the device after each change */
    ckpt_ns at[CHANGES];
    int count;
    ckpt_bytes before; /* allocated when the recording begins */
} simulated;

static void simulate_memory(lines *all, simulated *s)
{
    ckpt_bytes held[BLOCKS] = {0};
    ckpt_bytes total = (ckpt_bytes)ckpt_test_draw(2) * 5000; /* that nobody frees */
    ckpt_ns now = 1000000;
    for (int b = 0; b < BLOCKS; b++) {
        held[b] = ckpt_test_draw(3) == 0 ? 1 + (ckpt_bytes)ckpt_test_draw(900) : 0;
        total += held[b];
    }
    *s = (simulated){.count = 1 + (int)ckpt_test_draw(CHANGES), .before = total};
    for (int i = 0; i < s->count; i++) {
        const int b = (int)ckpt_test_draw(BLOCKS);
        const ckpt_bytes change = held[b] > 0 ? -held[b] : 1 + (ckpt_bytes)ckpt_test_draw(900);
        held[b] += change;
        s->total[i] = total += change;
        s->at[i] = now += 1 + (ckpt_ns)ckpt_test_draw(3000);
        add_line(all,
                 "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 1, \"ts\": %" PRId64 ".%03" PRId64
                 ", \"args\": {\"Device Type\": 1, \"Device Id\": 3, \"Addr\": %d, \"Bytes\": %" PRId64
                 ", \"Total Allocated\": %" PRId64 "}}",
                 now / 1000, now % 1000, 512 * (b + 1), change, total);
    }
}

/* Nested spans; a lane shows those at depth 0. Returns the earliest begin of the next one. */
static ckpt_ns simulate_ops(lines *all, int tid, ckpt_ns start, int depth, ckpt_ns *shown, int *shown_count)
{
    ckpt_ns end = start + (ckpt_ns)ckpt_test_draw(3) *
                              (ckpt_ns)ckpt_test_draw(20); /* the begin of the first inner span, perhaps at once */
    for (uint64_t k = depth < 4 ? ckpt_test_draw(3) : 0; k > 0 && all->count < OPS_MOST; k--) {
        end = simulate_ops(all, tid, end, depth + 1, NULL, NULL) + (ckpt_ns)ckpt_test_draw(2);
    }
    end += end == start;
    add_line(all,
             "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"op%d\", \"pid\": 1, \"tid\": %d, \"ts\": %" PRId64
             ".%03" PRId64 ", \"dur\": %" PRId64 "e-3}",
             depth, tid, start / 1000, start % 1000, end - start);
    if (shown != NULL) {
        *shown += end - start;
        ++*shown_count;
    }
    return end;
}

static const char *shuffled(lines *all)
{
    static char text[ROOM];
    size_t length = (size_t)snprintf(text, sizeof text, "{\"traceEvents\": [");
    for (int i = all->count; i > 0; i--) {
        const int k = (int)ckpt_test_draw((uint64_t)i);
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%s", i < all->count ? ",\n" : "", all->text[k]);
        memmove(all->text[k], all->text[i - 1], sizeof all->text[0]);
    }
    snprintf(text + length, sizeof text - length, "]}");
    return text;
}

/* The trace has the allocator's total after each change, and the number and time of the outermost spans. */
static void test_random_traces(void **state)
{
    static lines all;
    for (uint64_t round = ckpt_test_rounds(300, 60); round > 0; round--) {
        simulated s;
        CKPT_TEST_ARENA(arena);
        ckpt_trace *trace = NULL;
        ckpt_err err = {0};
        ckpt_ns shown = 0;
        int shown_count = 0;
        all.count = 0;
        for (int tid = 1; tid <= 3; tid++) {
            ckpt_ns now = (ckpt_ns)ckpt_test_draw(1000);
            for (uint64_t k = ckpt_test_draw(8); k > 0 && all.count < OPS_MOST; k--) {
                now = simulate_ops(&all, tid, now, 0, &shown, &shown_count) + (ckpt_ns)ckpt_test_draw(20);
            }
        }
        simulate_memory(&all, &s);
        CHECK_OK(import_text(shuffled(&all), &arena, &trace, &err), err);
        ckpt_bytes peak = s.before;
        int change = 0;
        for (int i = 0; i < trace->event_count; i++) {
            const ckpt_event *const e = &trace->event[i];
            if (!is_memory(e)) {
                shown -= e->end_ns - e->start_ns;
                shown_count--;
            } else if (strcmp(e->name, "before the recording") != 0 || e->span == CKPT_SPAN_FREE) {
                assert_int_equal(sum_of(e), s.total[change]);
                assert_int_equal(e->start_ns - trace->event[trace->event_count - 1].start_ns,
                                 s.at[change] - s.at[s.count - 1]);
                peak = s.total[change] > peak ? s.total[change] : peak;
                change++;
            }
        }
        assert_int_equal(change, s.count);
        assert_int_equal(trace->peak_bytes, peak);
        assert_int_equal(shown, 0);
        assert_int_equal(shown_count, 0);
        CHECK(strstr(ckpt_test_notes, "totals differ") == NULL, "%s", ckpt_test_notes);
    }
}

#define OP(name, tid, ts, dur)                                                                                         \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":" tid ",\"ts\":" ts ",\"dur\":" dur "}"
#define MEMORY(ts, bytes, address, more)                                                                               \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":" ts ",\"args\":{\"Bytes\":" bytes                 \
    ",\"Addr\":" address more "}}"

typedef struct form {
    const char *why;
    const char *text;
    const char *events; /* "name@stream start-end sum; ..." of all events */
    const char *note;   /* a part of ckpt_test_notes; NULL: no notes */
} form;

static const form forms[] = {
    {"an array", "[" OP("a", "1", "1.5", "2") "]", "a@thread 1 0-2000 0; ", NULL},
    {"an array that never ends, as its format allows", "[" OP("a", "1", "1.5", "2") ",\n", "a@thread 1 0-2000 0; ",
     "the file ends in the middle, at line 2: 1 whole events were read"},
    {"a program that died", "{\"traceEvents\":[" OP("a", "1", "1", "2") ",{\"ph\":\"X\",\"name\":\"b",
     "a@thread 1 0-2000 0; ", "the file ends in the middle, at line 1: 1 whole events were read"},
    {"a comma too many", "[" OP("a", "1", "1", "2") ",]", "a@thread 1 0-2000 0; ", NULL},
    {"a byte order mark", "\xef\xbb\xbf[" OP("a", "1", "1", "2") "]", "a@thread 1 0-2000 0; ", NULL},
    {"NaN and infinities where nobody looks",
     "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"tid\":1,\"ts\":1,\"dur\":2,\"args\":{\"x\":NaN,\"y\":-inf,"
     "\"z\":[Infinity,nan,1e999,99999999999999999999999]}}]",
     "a@thread 1 0-2000 0; ", NULL},
    {"control characters, no UTF-8, backslashes that escape nothing",
     "[" OP("\x01\n \xff C:\\\\Users\\x\\u12", "1", "1", "2") "]", "   \xff C:\\Users\\x\\u12@thread 1 0-2000 0; ",
     NULL},
    {"escapes", "[" OP("\\\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\ud83d\\t\\/", "1", "1", "2") "]",
     "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80? /@thread 1 0-2000 0; ", NULL},
    {"a key twice: the last counts",
     "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"name\":\"b\",\"tid\":1,\"ts\":1,\"dur\":5,\"dur\":2}]",
     "b@thread 1 0-2000 0; ", NULL},
    {"numbers as texts", "[" OP("a", "\"one\"", "\"10\"", "\"2.0\"") "," OP("b", "\"one\"", "\"1.2e1\"", "1") "]",
     "a@thread one 0-2000 0; b@thread one 2000-3000 0; ", NULL},
    {"microseconds since 1970, to the nanosecond",
     "[" OP("a", "1", "1790857026123456.789", "0.001") "," OP("b", "1", "1790857026123456.790", "0.001") "]",
     "a@thread 1 0-1 0; b@thread 1 1-2 0; ", NULL},
    {"negative times and durations", "[" OP("a", "1", "-5.5", "1") "," OP("b", "1", "2", "-3") "]",
     "a@thread 1 0-1000 0; b@thread 1 7500-7500 0; ", "1 durations below 0 count as 0"},
    {"named threads",
     "[{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"main\"}},"
     "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"worker 2\"}}," OP(
         "a", "1", "1", "2") "," OP("b", "2", "1", "2") "]",
     "a@main 1 0-2000 0; b@worker 2 0-2000 0; ", NULL},
    {"what ends too late, and what comes after",
     "[" OP("a", "1", "0", "10") "," OP("b", "1", "5", "10") "," OP("c", "1", "12", "1") "]",
     "a@thread 1 0-10000 0; c@thread 1 12000-13000 0; ", "1 operations inside others are left out"},
    {"another tool's, with begins and ends",
     "[{\"ph\":\"B\",\"name\":\"a\",\"tid\":1,\"ts\":1},{\"ph\":\"B\",\"name\":\"b\",\"tid\":1,\"ts\":2},"
     "{\"ph\":\"E\",\"tid\":1,\"ts\":3},{\"ph\":\"E\",\"tid\":1,\"ts\":5},{\"ph\":\"B\",\"name\":\"c\",\"tid\":2,"
     "\"ts\":4},"
     "{\"ph\":\"E\",\"tid\":3,\"ts\":9},{\"ph\":\"C\",\"name\":\"n\",\"ts\":4,\"args\":{\"n\":1}}]",
     "a@thread 1 0-4000 0; c@thread 2 3000-8000 0; ",
     "1 events that begin and never end last to the end; 1 that end and never began are left out"},
    {"memory and a free of before",
     "[" MEMORY("1", "100", "16", ",\"Total Allocated\":350") "," MEMORY("2", "-200", "32", "") "]",
     "before the recording@compute 0-0 200; before the recording@compute 0-0 250; [memory]@compute 0-0 350; "
     "before the recording@compute 1000-1000 150; ",
     "250 bytes were allocated before the recording began; 1 of those blocks are freed in it"},
    {"totals that do not agree",
     "[" MEMORY("1", "100", "16", ",\"Total Allocated\":100") "," MEMORY("2", "50", "32",
                                                                         ",\"Total Allocated\":160") "]",
     "[memory]@compute 0-0 100; [memory]@compute 1000-1000 150; ",
     "the recorder's own totals differ from the sum of its events at 1 of 2"},
    {"allocated twice, freed twice",
     "[" MEMORY("1", "100", "16", "") "," MEMORY("2", "50", "16", "") "," MEMORY("3", "-50", "16", "") "," MEMORY(
         "4", "-50", "16", "") "]",
     "[memory]@compute 0-0 100; [memory]@compute 1000-1000 50; [memory]@compute 2000-2000 0; ",
     "1 frees of blocks that were freed already are left out"},
    {"memory at the moment an operation ends",
     "[" OP("a", "1", "1", "2") "," OP("b", "1", "4", "1") "," MEMORY("3", "8", "16", "") "," MEMORY(
         "3.5", "8", "32", "") "," MEMORY("4", "8", "48", "") "]",
     "a@thread 1 0-2000 0; a@compute 2000-2000 8; [memory]@compute 2500-2500 16; b@thread 1 3000-4000 16; "
     "b@compute 3000-3000 24; ",
     NULL},
    {"addresses with the sign bit",
     "[" MEMORY("1", "100", "-281474976710656", "") "," MEMORY("2", "-100", "-281474976710656", "") "]",
     "[memory]@compute 0-0 100; [memory]@compute 1000-1000 0; ", NULL},
    {"no address: PyTorch 1.8", "[" MEMORY("1", "100", "0", "") "," OP("a", "1", "1", "2") "]", "a@thread 1 0-2000 0; ",
     "1 memory events without an address are left out"},
    {"the GPU's memory, and not the CPU's, which is more",
     "[" MEMORY("1", "900", "16", ",\"Device Type\":0") "," MEMORY("2", "5", "16", ",\"Device Type\":1") "," MEMORY(
         "3", "7", "16", ",\"Device Type\":1,\"Device Id\":2") "]",
     "[memory]@compute 0-0 7; ",
     "2 memory events of other devices are left out: the trace has the memory of CUDA device 2"},
    {"PyTorch 1.8's categories",
     "[{\"ph\":\"X\",\"cat\":\"Kernel\",\"name\":\"k\",\"pid\":0,\"tid\":\"stream "
     "7\",\"ts\":1,\"dur\":1,\"args\":{\"device\":0,"
     "\"stream\":7,\"correlation\":3}},{\"ph\":\"X\",\"cat\":\"Memcpy\",\"name\":\"m\",\"tid\":7,\"ts\":2,\"dur\":1}]",
     "k@stream 7 0-1000 0; m@stream 7 1000-2000 0; ", NULL},
};

static const char no_memory_event[] = "no memory event has an address: record with profile_memory=True to see memory\n";

static void test_forms_that_are_read(void **state)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char found[600] = "";
        size_t length = 0;
        CKPT_TEST_ARENA(arena);
        ckpt_trace *trace = NULL;
        ckpt_err err = {0};
        const ckpt_code code = import_text(forms[i].text, &arena, &trace, &err);
        CHECK(code == CKPT_OK, "%s: code %d: %s", forms[i].why, (int)code, err.msg);
        ckpt_import_kind kind = CKPT_IMPORT_EXECUTION;
        CHECK_OK(ckpt_import_recognise(trace->source, &kind, &err), err);
        assert_int_equal(kind, CKPT_IMPORT_CHROME);
        for (int k = 0; k < trace->event_count && length < sizeof found; k++) {
            const ckpt_event *const e = &trace->event[k];
            length +=
                (size_t)snprintf(found + length, sizeof found - length, "%s@%s %" PRId64 "-%" PRId64 " %" PRId64 "; ",
                                 e->name, e->stream, e->start_ns, e->end_ns, sum_of(e));
        }
        CHECK(strcmp(found, forms[i].events) == 0, "%s: %s\nwanted: %s", forms[i].why, found, forms[i].events);
        CHECK(forms[i].note != NULL ? strstr(ckpt_test_notes, forms[i].note) != NULL
                                    : strcmp(ckpt_test_notes, no_memory_event) == 0 || ckpt_test_notes[0] == '\0',
              "%s: notes: %s", forms[i].why, ckpt_test_notes);
    }
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pytorch_recorded),
        cmocka_unit_test(test_a_trace_of_a_gpu),
        cmocka_unit_test(test_random_traces),
        cmocka_unit_test(test_forms_that_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
