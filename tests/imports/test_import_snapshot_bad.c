/* labels: unit */
/* Memory snapshots that are wrong, damaged or malicious: refused with file and place, without running their code, and
 * without costing more than their size. The seed is printed; a first argument replaces it. */
#include "tests/support/support_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"

enum { ROOM = 1 << 17, MUTANTS = 1200 };

static void test_refused(void **state)
{
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
         "device_traces[0][0]: found \"time_us\" 9223372036854775807, wanted an integer of 0 to 4611686018427387"},
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
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        CHECK(ckpt_test_snapshot_text(rows[i][0], &arena, &trace, &err) == CKPT_BAD_INPUT, "%s: was taken", rows[i][0]);
        const char *const at = strstr(err.msg, ".pickle: ");
        CHECK(at != NULL && strncmp(at + strlen(".pickle: "), rows[i][1], strlen(rows[i][1])) == 0, "%s: \"%s\"",
              rows[i][0], err.msg);
    }
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        CHECK(ckpt_test_snapshot_text(beyond[i], &arena, &trace, &err) == CKPT_OVERFLOW, "row %zu: code %d: %s", i,
              (int)err.code, err.msg);
        CHECK(strstr(err.msg, ".pickle") != NULL, "no file in: %s", err.msg);
    }
}

/* Both pickles would touch a file if Python loaded them. */
static void test_code_is_never_run(void **state)
{
    static const char global[] = "\x80\2cposix\nsystem\nX\x0c\0\0\0touch pwned1\x85R.";
    static const char stacked[] =
        "\x80\4\x95N\0\0\0\0\0\0\0}\x94(\x8c\x08segments\x94]\x94\x8c\rdevice_traces\x94]\x94]"
        "\x94\x8c\5posix\x94\x8c\6system\x94\x93\x94\x8c\x0ctouch pwned2\x94\x85\x94R\x94"
        "aau.";
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    assert_int_equal(chdir(ckpt_work_dir()), 0);
    unlink("pwned1");
    unlink("pwned2");
    ckpt_arena_init(&arena);
    CHECK(ckpt_test_snapshot_import(ckpt_test_file("evil.pickle", global, sizeof global - 1), &arena, &trace, &err) ==
              CKPT_BAD_INPUT,
          "was taken");
    assert_non_null(strstr(err.msg,
                           "evil.pickle: found opcode GLOBAL 'posix system' at byte 2: it names code, which is "
                           "never run; wanted data only"));
    CHECK(ckpt_test_snapshot_import(ckpt_test_file("evil.pickle", stacked, sizeof stacked - 1), &arena, &trace, &err) ==
              CKPT_BAD_INPUT,
          "was taken");
    assert_non_null(strstr(err.msg, "evil.pickle: found opcode STACK_GLOBAL 'posix system' at byte 64: it names code"));
    ckpt_arena_fini(&arena);
    CHECK(access("pwned1", F_OK) != 0 && access("pwned2", F_OK) != 0, "what the pickle says was run");
}

/* Values that contain themselves, or one value many times, must not hang or cost more than their size. */
static void test_bombs(void **state)
{
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
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        const ckpt_code code =
            ckpt_test_snapshot_import(ckpt_test_file("bomb.pickle", bytes, length), &arena, &trace, &err);
        CHECK(code == (rows[i].wanted != NULL ? CKPT_BAD_INPUT : CKPT_OK), "%s: code %d: %s", rows[i].what, (int)code,
              err.msg);
        CHECK(rows[i].wanted == NULL || strstr(err.msg, rows[i].wanted) != NULL, "%s: %s", rows[i].what, err.msg);
    }
}

/* Only the last 64 keys of a dict count: a dict of 100 000 that 100 000 entries share is not searched through. */
static void test_large_dicts_are_not_searched(void **state)
{
    static char text[4000];
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    for (int more = 63; more <= 64; more++) {
        int used = snprintf(text, sizeof text, "{'device_traces':[[" ALLOC(9, 1) "]]");
        for (int i = 0; i < more; i++) {
            used += snprintf(text + used, sizeof text - (size_t)used, ",'%d':N", i);
        }
        snprintf(text + used, sizeof text - (size_t)used, "}");
        const ckpt_code code = ckpt_test_snapshot_text(text, &arena, &trace, &err);
        CHECK(code == (more == 63 ? CKPT_OK : CKPT_BAD_INPUT), "%d more keys: code %d: %s", more, (int)code, err.msg);
    }
}

/* A real file with a few bytes changed, taken out or doubled. */
static void test_damaged_files(void **state)
{
    static char good[ROOM];
    static char mutant[ROOM];
    ckpt_arena arena;
    ckpt_err err = {0};
    const char *bytes = NULL;
    size_t length = 0;
    int accepted = 0;
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_file_read(SNAPSHOT("snapshot_ring.pickle"), &arena, &bytes, &length, &err), err);
    assert_true(length < ROOM - 100);
    memcpy(good, bytes, length);
    ckpt_arena_fini(&arena);
    const int mutants = (int)ckpt_test_rounds(MUTANTS, MUTANTS / 4);
    for (int i = 0; i < mutants; i++) {
        size_t now = length;
        memcpy(mutant, good, length);
        for (uint64_t k = 1 + ckpt_test_draw(4); k > 0; k--) {
            const size_t at = (size_t)ckpt_test_draw(now - 64);
            const size_t span = 1 + (size_t)ckpt_test_draw(60);
            switch (ckpt_test_draw(4)) {
            case 0: mutant[at] = (char)ckpt_test_draw(256); break;
            case 1: mutant[at] = (char)(mutant[at] ^ (1 << ckpt_test_draw(8))); break;
            case 2: memmove(mutant + at, mutant + at + span, now - at - span), now -= span; break;
            default: memmove(mutant + at, mutant + ckpt_test_draw(now - 64), span); break;
            }
        }
        now = ckpt_test_draw(8) == 0 ? (size_t)ckpt_test_draw(now) : now;
        ckpt_trace *trace = NULL;
        ckpt_arena_init(&arena);
        const ckpt_code code =
            ckpt_test_snapshot_import(ckpt_test_file("fuzz.pickle", mutant, now), &arena, &trace, &err);
        CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "mutant %d: code %d: %s", i,
              (int)code, err.msg);
        CHECK(code == CKPT_OK || (strstr(err.msg, "fuzz.pickle") != NULL && strpbrk(err.msg, "\n\r") == NULL),
              "mutant %d: %s", i, err.msg);
        if (code == CKPT_OK) {
            accepted++;
            ckpt_test_snapshot_sums(trace);
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
    const int64_t allocations = ckpt_test_starve(starved, (char *)SNAPSHOT("snapshot_training.pickle"));
    CHECK(allocations >= 9, "%lld allocations", (long long)allocations);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_code_is_never_run),
        cmocka_unit_test(test_bombs),         cmocka_unit_test(test_large_dicts_are_not_searched),
        cmocka_unit_test(test_damaged_files), cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
