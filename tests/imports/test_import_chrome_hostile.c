/* labels: unit */
/* Chrome traces that are broken, hostile, cut off, or read with too little memory. */
#include "tests/support/support_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "imports/import.h"

enum { ROOM = 1 << 18 };

static ckpt_code import_text(const char *text, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    ckpt_test_notes[0] = '\0';
    return ckpt_import_chrome(ckpt_test_file("chrome_bad.json", text, strlen(text)), ckpt_test_take_note, arena, trace,
                              err);
}

static void gpu_path(char path[400])
{
    snprintf(path, 400, "%s/tests/imports/kineto_gpu_by_hand.json", ckpt_source_dir());
}

#define OP(name, tid, ts, dur)                                                                                         \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":" tid ",\"ts\":" ts ",\"dur\":" dur "}"
#define MEMORY(ts, bytes, address, more)                                                                               \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":" ts ",\"args\":{\"Bytes\":" bytes                 \
    ",\"Addr\":" address more "}}"

typedef struct refusal {
    const char *text;
    ckpt_code code;
    const char *message; /* after the file's name */
} refusal;

static const refusal refusals[] = {
    {"", CKPT_BAD_INPUT, ":1:1: the file ends here, wanted an object"},
    {"7", CKPT_BAD_INPUT, ":1:1: found \"7\", wanted an object"},
    {"{}", CKPT_BAD_INPUT, ":1:1: found no \"traceEvents\""},
    {"{\"traceEvents\":{}}", CKPT_BAD_INPUT, ":1:16: found \"{}}\", wanted an array"},
    {"[]", CKPT_BAD_INPUT, ": found 0 events, but no \"[memory]\""},
    {"{\"traceEvents\":[{\"ph\":\"M\"}],\"a\":1", CKPT_BAD_INPUT, ": found 1 events, but no \"[memory]\""},
    {"[1, 2]", CKPT_BAD_INPUT, ":1:2: found an array of numbers, wanted events: a memory timeline of PyTorch"},
    {"[[1, 2], [[3]]]", CKPT_BAD_INPUT, ":1:2: found an array of numbers, wanted events: a memory timeline of PyTorch"},
    {"[" OP("a", "1", "1", "2") "] x", CKPT_BAD_INPUT, ":1:71: found more after the end"},
    {"[\n  {\"name\": \"a \"quoted\" text\"}]", CKPT_BAD_INPUT,
     ":2:16: found \"quoted\" text\"}]\", wanted ',' or '}'"},
    {"[\n{\"ph\" \"X\"}]", CKPT_BAD_INPUT, ":2:7: found \"\"X\"}]\", wanted ':'"},
    {"[{ph: \"X\"}]", CKPT_BAD_INPUT, ":1:3: found \"ph: \"X\"}]\", wanted a key"},
    {"[{\"ph\": X}]", CKPT_BAD_INPUT, ":1:9: found \"X}]\", wanted a value"},
    {"[{\"ph\": 'X'}]", CKPT_BAD_INPUT, ":1:9: found \"'X'}]\", wanted a value"},
    {"[{}]", CKPT_BAD_INPUT, ":1:2: an event without \"ph\""},
    {"[\"X\"]", CKPT_BAD_INPUT, ":1:2: found \"\"X\"]\", wanted an object"},
    {"[\n{\"ph\":\"X\",\"ts\":1}]", CKPT_BAD_INPUT, ":2:1: an event without \"dur\""},
    {"[\n{\"ph\":\"X\",\"dur\":1,\"ts\":null}]", CKPT_BAD_INPUT, ":2:1: an event without \"ts\""},
    {"[" OP("a", "1", "nan", "2") "]", CKPT_BAD_INPUT,
     ":1:59: \"ts\": found nan, wanted a number below 2^62 of nanoseconds"},
    {"[" OP("a", "1", "1e15", "2e300") "]", CKPT_BAD_INPUT, ":1:70: \"dur\": found 2e300, wanted a number"},
    {"[" OP("a", "1", "4611686018427387.904", "2") "]", CKPT_BAD_INPUT, ":1:59: \"ts\": found 4611686018427387.904"},
    {"[" OP("a", "1", "[1]", "2") "]", CKPT_BAD_INPUT, ":1:59: \"ts\": found [1], wanted a number"},
    {"[" OP("a", "1", "\"later\"", "2") "]", CKPT_BAD_INPUT, ":1:59: \"ts\": found \"later\", wanted a number"},
    {"[" MEMORY("1", "1.5e99", "16", "") "]", CKPT_BAD_INPUT, ":1:69: \"Bytes\": found 1.5e99, wanted a number"},
    {"[" MEMORY("1", "null", "16", "") "]", CKPT_BAD_INPUT, ":1:2: an event without \"Bytes\""},
    {"[" MEMORY("1", "8", "\"0x10\"", "") "]", CKPT_BAD_INPUT, ":1:78: \"Addr\": found \"0x10\", wanted a number"},
    {"[" MEMORY("1", "4611686018427387903", "1", "") "," MEMORY("1", "4611686018427387903", "2",
                                                                "") "," MEMORY("1", "2", "3", "") "]",
     CKPT_OVERFLOW, ": \"[memory]\" of 2 bytes: the sum of all that is allocated does not"},
    {"[" MEMORY("1", "-4611686018427387903", "1", "") "," MEMORY("1", "-4611686018427387903", "2", "") "," MEMORY(
         "1", "-4611686018427387903", "3", "") "]",
     CKPT_OVERFLOW, ": the sum of bytes freed does not fit 63 bits"},
    {"[" OP("a", "1", "-4611686018427387", "1") "," OP("b", "1", "4611686018427387", "1000") "]", CKPT_OVERFLOW,
     ": \"b\" ends at 4611686018428387000 ns and the first event starts at -4611686018427387000 ns"},
};

static void test_refusals(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *const r = &refusals[i];
        ckpt_arena arena;
        ckpt_trace *trace = NULL;
        ckpt_err err = {0};
        ckpt_arena_init(&arena);
        const ckpt_code code = import_text(r->text, &arena, &trace, &err);
        CHECK(code == r->code, "%.80s: code %d, wanted %d: %s", r->text, (int)code, (int)r->code, err.msg);
        const char *const after = strstr(err.msg, "chrome_bad.json");
        CHECK(after != NULL && strncmp(after + strlen("chrome_bad.json"), r->message, strlen(r->message)) == 0,
              "%s\nwanted ...%s", err.msg, r->message);
        assert_null(trace);
        ckpt_arena_fini(&arena);
        assert_int_equal(ckpt_memory_live(), 0);
    }
    char deep[400];
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "[{\"args\":", 9);
    deep[sizeof deep - 1] = '\0';
    ckpt_arena arena;
    ckpt_trace *trace = NULL;
    ckpt_err err = {0};
    ckpt_arena_init(&arena);
    assert_int_equal(import_text(deep, &arena, &trace, &err), CKPT_BAD_INPUT);
    CHECK(strstr(err.msg, ":1:74: nested deeper than 64") != NULL, "%s", err.msg);
    ckpt_arena_fini(&arena);
    ckpt_test_notes[0] = '\0';
    assert_int_equal(ckpt_import_chrome("/nowhere/trace.json", NULL, &arena, &trace, &err), CKPT_IO);
}

/* A file has a name once, a trace with each event: a megabyte of it would become gigabytes. */
static void test_a_long_name_is_cut(void **state)
{
    enum { LONG = 100000 };
    static char text[LONG + 1000];
    int used = snprintf(text, sizeof text,
                        "[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"pid\":1,\"tid\":1,"
                        "\"ts\":0,\"dur\":9,\"name\":\"x");
    for (int i = 0; i < LONG / 2; i++) {
        memcpy(text + used, "\xc3\xa9", 2);
        used += 2;
    }
    snprintf(text + used, sizeof text - (size_t)used,
             "\"}," OP("first", "1", "1", "1") "," OP("second", "1", "2", "1") "]");
    CKPT_TEST_ARENA(arena);
    ckpt_trace *trace = NULL;
    ckpt_err err = {0};
    CHECK_OK(import_text(text, &arena, &trace, &err), err);
    assert_int_equal(trace->event_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(strlen(trace->event[i].layer), 1999); /* x and 999 characters of 2 bytes: 2000 cuts one */
        assert_memory_equal(trace->event[i].layer + 1997, "\xc3\xa9", 3);
    }
}

/* Cut after each byte: only whole events are imported. */
static void test_cut_files(void **state)
{
    char path[400], text[9000];
    int most = 0;
    gpu_path(path);
    FILE *const from = fopen(path, "rb");
    assert_non_null(from);
    const size_t length = fread(text, 1, sizeof text, from);
    fclose(from);
    for (size_t cut = 0; cut <= length; cut += cut + 1 < length ? 1 + ckpt_test_draw(4) : 1) {
        CKPT_TEST_ARENA(arena);
        ckpt_trace *trace = NULL;
        ckpt_err err = {0};
        const ckpt_code code =
            ckpt_import_chrome(ckpt_test_file("chrome_cut.json", text, cut), NULL, &arena, &trace, &err);
        CHECK(code == CKPT_OK ? trace->event_count >= most && err.msg[0] == '\0' : code == CKPT_BAD_INPUT && most == 0,
              "cut at %zu: %s", cut, err.msg);
        most = code == CKPT_OK ? trace->event_count : 0;
    }
    assert_int_equal(most, 14);
}

static const char begins_and_ends[] =
    "[{\"ph\":\"B\",\"name\":\"a\",\"tid\":1,\"ts\":1},{\"ph\":\"B\",\"name\":\"b\",\"tid\":1,\"ts\":2},"
    "{\"ph\":\"E\",\"tid\":1,\"ts\":3},{\"ph\":\"E\",\"tid\":1,\"ts\":5}]";

static ckpt_code import_once(void *context, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_trace *trace = NULL;
    return ckpt_import_chrome(context, NULL, arena, &trace, err);
}

static void test_starved(void **state)
{
    char path[400];
    gpu_path(path);
    CHECK(ckpt_test_starve_arena(import_once, path) > 10, "it takes more than that");
    snprintf(path, sizeof path, "%s", ckpt_test_file("chrome_starved.json", begins_and_ends, strlen(begins_and_ends)));
    CHECK(ckpt_test_starve_arena(import_once, path) > 7, "it takes more than that");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_long_name_is_cut),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
