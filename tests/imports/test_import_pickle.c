/* labels: unit */
/* Pickles as data. Python's pickles (tests/imports/pickles.txt) give the values that Python showed. Every opcode that
 * names or runs code is refused by name. No cut, damaged or invented pickle crashes the reader or costs more than its
 * size. The seed is printed; a first argument replaces it. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "imports/pickle_impl.h"

enum { ROOM = 4096, NAMES_ROOM = 1024, DEPTH_MAX = 16, DEEP = 300000, RANDOM = 20000 };

static void show(const ckpt_pickle_value *value, uint32_t *inside, int depth, ckpt_text *text);

static void show_hex(const ckpt_pickle_value *value, ckpt_text *text)
{
    ckpt_text_add(text, "%s'", value->type == CKPT_PICKLE_BYTES ? "b" : "");
    for (int i = 0; i < value->count; i++) {
        ckpt_text_add(text, "%02x", (unsigned char)value->as.bytes[i]);
    }
    ckpt_text_add(text, "'");
}

static void show_items(const ckpt_pickle_value *value, uint32_t *inside, int depth, ckpt_text *text)
{
    const char *const brackets = value->type == CKPT_PICKLE_LIST    ? "[]"
                                 : value->type == CKPT_PICKLE_TUPLE ? "()"
                                 : value->type == CKPT_PICKLE_DICT  ? "{}"
                                                                    : "<>";
    const int per_item = value->type == CKPT_PICKLE_DICT ? 2 : 1;
    ckpt_text_add(text, "%c", brackets[0]);
    for (int i = 0; i < per_item * value->count; i++) {
        ckpt_text_add(text, "%s", i == 0 ? "" : per_item == 2 && i % 2 == 1 ? ":" : ",");
        const ckpt_pickle_value item = ckpt_pickle_item(value, i);
        show(&item, inside, depth + 1, text);
    }
    ckpt_text_add(text, "%c", brackets[1]);
}

/* As make_pickles.py shows it. */
static void show(const ckpt_pickle_value *value, uint32_t *inside, int depth, ckpt_text *text)
{
    for (int i = 0; i < depth; i++) {
        if (inside[i] == value->place) {
            ckpt_text_add(text, "@");
            return;
        }
    }
    CHECK(depth < DEPTH_MAX, "deeper than any value of the test");
    inside[depth] = value->place;
    switch (value->type) {
    case CKPT_PICKLE_ABSENT: fail(); break;
    case CKPT_PICKLE_NONE: ckpt_text_add(text, "None"); break;
    case CKPT_PICKLE_BOOL: ckpt_text_add(text, value->as.integer != 0 ? "True" : "False"); break;
    case CKPT_PICKLE_INT: ckpt_text_add(text, "%lld", (long long)value->as.integer); break;
    case CKPT_PICKLE_REAL: ckpt_text_add(text, "%.17g", value->as.real); break;
    case CKPT_PICKLE_TEXT:
    case CKPT_PICKLE_BYTES: show_hex(value, text); break;
    case CKPT_PICKLE_LIST:
    case CKPT_PICKLE_TUPLE:
    case CKPT_PICKLE_DICT:
    case CKPT_PICKLE_SET: show_items(value, inside, depth, text); break;
    }
}

/* Reads from a copy of exactly that size, so that AddressSanitizer sees reads beyond it; returns the result, as text if
 * `wanted` is given. */
static ckpt_code read_bytes(const char *bytes, size_t length, const char *wanted, ckpt_err *err)
{
    ckpt_pickle pickle = {0};
    char *const copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    const int64_t live = ckpt_memory_live();
    const ckpt_code code = ckpt_pickle_read("file", copy, length, &pickle, err);
    if (code == CKPT_OK) {
        CHECK(pickle.value_count >= 0 && pickle.value_count <= (int64_t)length, "%lld values in %zu bytes",
              (long long)pickle.value_count, length);
        CHECK(pickle.word_count <= 8 * length + 8, "%zu words for %zu bytes", pickle.word_count, length);
    }
    if (code == CKPT_OK && wanted != NULL) {
        ckpt_text text;
        uint32_t inside[DEPTH_MAX];
        const ckpt_pickle_value root = ckpt_pickle_root(&pickle);
        ckpt_text_init(&text);
        show(&root, inside, 0, &text);
        CHECK(strcmp(text.bytes, wanted) == 0, "found %s, wanted %s", text.bytes, wanted);
        ckpt_text_fini(&text);
    }
    ckpt_pickle_fini(&pickle);
    assert_int_equal(ckpt_memory_live(), live);
    free(copy);
    if (code != CKPT_OK) {
        CHECK(code == CKPT_BAD_INPUT, "code %d: %s", (int)code, err->msg);
        CHECK(strncmp(err->msg, "file: ", 6) == 0 && strpbrk(err->msg, "\n\r") == NULL,
              "not one line with the file: %s", err->msg);
    }
    return code;
}

static char python[1 << 17];  /* pickles.txt */
static char seen[NAMES_ROOM]; /* ",PROTO,STOP," of the opcodes that were read */

static void see(const char *names)
{
    const char *at = names;
    while (*at != '\0') {
        const int length = (int)strcspn(at, ",\n");
        char name[40];
        snprintf(name, sizeof name, ",%.*s,", length, at);
        if (strstr(seen, name) == NULL) {
            const size_t used = strlen(seen);
            snprintf(seen + (used > 0 ? used - 1 : 0), sizeof seen - used, "%s", name);
        }
        at += length + (at[length] != '\0');
    }
}

static size_t from_hex(const char *hex, char *bytes)
{
    size_t length = 0;
    unsigned byte = 0;
    while (sscanf(hex + 2 * length, "%2x", &byte) == 1 && hex[2 * length] != '\t') {
        CHECK(length < ROOM, "a line too long for the test");
        bytes[length++] = (char)byte;
    }
    return length;
}

/* The lines of pickles.txt, one by one; NULL at the end. */
static const char *next_line(const char *line)
{
    const char *const end = strchr(line, '\n');
    return end != NULL && end[1] != '\0' ? end + 1 : NULL;
}

static void test_what_python_pickled(void **state)
{
    static char wanted[1 << 14];
    int lines = 0;
    for (const char *line = python; line != NULL; line = next_line(line)) {
        char bytes[ROOM];
        ckpt_err err = {0};
        const size_t length = from_hex(line, bytes);
        const char *const value = strchr(line, '\t') + 1;
        snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(value, "\t"), value);
        CHECK_OK(read_bytes(bytes, length, wanted, &err), err);
        const char *const names = strchr(value, '\t') + 1;
        char list[ROOM];
        snprintf(list, sizeof list, "%.*s", (int)strcspn(names, "\n"), names);
        see(list);
        lines++;
    }
    CHECK(lines > 200, "%d lines", lines);
}

typedef struct row {
    const char *names, *bytes;
    size_t length;
    const char *wanted; /* the value, or a part of the message */
} row;
#define ROW(names, bytes, wanted)                                                                                      \
    {                                                                                                                  \
        names, bytes, sizeof(bytes) - 1, wanted                                                                        \
    }

static void test_opcodes_python_does_not_write(void **state)
{
    static const row rows[] = {
        ROW("BINUNICODE8", "\x80\x04\x8d\x02\0\0\0\0\0\0\0hi.", "'6869'"),
        ROW("BINBYTES8", "\x80\x04\x8e\x02\0\0\0\0\0\0\0hi.", "b'6869'"),
        ROW("SHORT_BINSTRING", "\x80\x02U\x02hi.", "'6869'"),
        ROW("BINSTRING", "\x80\x02T\x02\0\0\0hi.", "'6869'"),
        ROW("LONG4", "\x80\x02\x8b\x01\0\0\0\xff.", "-1"),
        ROW("LONG4", "\x80\x02\x8b\x0a\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-2"),
        ROW("LONG1", "\x80\x02\x8a\0.", "0"),
        ROW("LONG1", "\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\0.", "9223372036854775807"),
        ROW("LONG_BINGET", "\x80\x02](Uaaq\1j\1\0\0\0e.", NULL),
        ROW("LONG_BINGET", "\x80\x02](U\1aq\1j\1\0\0\0e.", "['61','61']"),
        ROW("DUP",
            "\x80\x02](K\7"
            "2e.",
            "[7,7]"),
        ROW("POP",
            "\x80\x02K\1(K\2"
            "00.",
            "1"), /* the second removes the mark */
        ROW("SETITEMS", "\x80\x02}(K\1K\2K\1K\3u.", "{1:2,1:3}"),
        /* MEMOIZE uses the number of entries, not the highest number plus one */
        ROW("MEMOIZE", "\x80\4(K\7q\5q\5K\x08\x94h\1t.", "(7,8,8)"),
        ROW("STOP", "\x80\x02N.and what follows", "None"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ckpt_err err = {0};
        if (rows[i].wanted != NULL) {
            CHECK_OK(read_bytes(rows[i].bytes, rows[i].length, rows[i].wanted, &err), err);
            see(rows[i].names);
        } else {
            CHECK(read_bytes(rows[i].bytes, rows[i].length, NULL, &err) == CKPT_BAD_INPUT, "row %zu was read", i);
        }
    }
}

/* Each of the 256 bytes is read somewhere above, or refused here with its name and place. */
static void test_every_opcode(void **state)
{
    int refused = 0;
    for (int code = 0; code < 256; code++) {
        const ckpt_opcode *const opcode = &ckpt_opcodes[code];
        char bytes[] = "\x80\x04U\2osU\6system?name\nof it\n....";
        char wanted[200];
        ckpt_err err = {0};
        bytes[14] = (char)code;
        if (opcode->does != CKPT_DO_UNKNOWN && opcode->does < CKPT_DO_OLD) {
            snprintf(wanted, sizeof wanted, ",%s,", opcode->name);
            CHECK(strstr(seen, wanted) != NULL, "opcode %s is read by no row of this test", opcode->name);
            continue;
        }
        CHECK(read_bytes(bytes, sizeof bytes - 1, NULL, &err) == CKPT_BAD_INPUT, "byte %d was taken", code);
        const char *const named = opcode->does == CKPT_DO_REFUSE_NAMED     ? " 'name of it'"
                                  : opcode->does == CKPT_DO_REFUSE_STACKED ? " 'os system'"
                                                                           : "";
        if (opcode->does == CKPT_DO_UNKNOWN) {
            snprintf(wanted, sizeof wanted, "file: found 0x%02x at byte 14, wanted a pickle opcode", (unsigned)code);
        } else {
            snprintf(wanted, sizeof wanted, "file: found opcode %s%s at byte 14: %s", opcode->name, named,
                     opcode->does == CKPT_DO_OLD ? "of protocol 0 or 1; wanted a pickle of protocol 2 to 5"
                     : named[0] != '\0'          ? "it names code, which is never run; wanted data only"
                                                 : "it names or runs code, which is never done; wanted data only");
        }
        CHECK(strncmp(err.msg, wanted, strlen(wanted)) == 0, "\"%s\", wanted \"%s\"", err.msg, wanted);
        refused += opcode->does != CKPT_DO_UNKNOWN;
    }
    assert_int_equal(refused, 24); /* 15 of code, 9 of protocol 0 */
}

static void test_refused(void **state)
{
    static const row rows[] = {
        ROW("empty", "", "found no opcode PROTO at byte 0, wanted a pickle of protocol 2 to 5"),
        ROW("protocol 0", "(lp0\n.", "found no opcode PROTO at byte 0"),
        ROW("protocol 1", "\x80\1N.", "found a pickle of protocol 1, wanted 2 to 5"),
        ROW("protocol 6", "\x80\6N.", "found a pickle of protocol 6, wanted 2 to 5"),
        ROW("nothing", "\x80\2.", "found 0 values and 0 open marks at STOP, byte 2, wanted one value"),
        ROW("two values", "\x80\2NN.", "found 2 values and 0 open marks at STOP, byte 4"),
        ROW("an open mark", "\x80\2(N.", "found 1 values and 1 open marks at STOP, byte 4"),
        ROW("no STOP", "\x80\2N", "the pickle ends at byte 3 without opcode STOP"),
        ROW("no mark", "\x80\2Nt.", "found opcode TUPLE at byte 3: no mark was set for it"),
        ROW("nothing to append", "\x80\2]a.", "found opcode APPEND at byte 3: it takes more values"),
        ROW("below a mark", "\x80\2]N(a.", "found opcode APPEND at byte 5: it takes more values"),
        ROW("pop of nothing",
            "\x80\2"
            "0.",
            "found opcode POP at byte 2: it takes more values"),
        ROW("pairs", "\x80\2}(Nu.", "found opcode SETITEMS at byte 5: a key without a value"),
        ROW("into a dict", "\x80\2}Na.", "found opcode APPEND at byte 4: it puts values into a dict, wanted a list"),
        ROW("into None", "\x80\2N(Nu.", "found opcode SETITEMS at byte 5: it puts values into None, wanted a dict"),
        ROW("into True", "\x80\2\x88NNs.", "found opcode SETITEM at byte 5: it puts values into a bool"),
        ROW("into nothing", "\x80\2(Ne.", "found opcode APPENDS at byte 4: there is nothing to put its values into"),
        ROW("unknown memo", "\x80\2h\5.", "found opcode BINGET at byte 2: nothing was put under number 5"),
        ROW("memo bomb", "\x80\2Nr\xff\xff\xff\xff.",
            "found opcode LONG_BINPUT at byte 3 with number 4294967295, wanted less than the file's 9 bytes"),
        ROW("memo of nothing", "\x80\2\x94.", "found opcode MEMOIZE at byte 2: it takes more values"),
        ROW("64 bits", "\x80\2\x8a\x09\0\0\0\0\0\0\0\x80\0.",
            "found opcode LONG1 at byte 2: an integer beyond 63 bits"),
        ROW("72 bits", "\x80\2\x8a\x09\0\0\0\0\0\0\0\0\1.", "found opcode LONG1 at byte 2: an integer beyond 63 bits"),
        ROW("-65 bits", "\x80\2\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff.",
            "found opcode LONG1 at byte 2: an integer beyond 63 bits"),
        ROW("negative length", "\x80\2\x8b\xff\xff\xff\xff.", "found opcode LONG4 at byte 2: its length is negative"),
        ROW("long", "\x80\2\x8b\xff\xff\xff\x7f.",
            "found opcode LONG4 at byte 2 with 2147483647 bytes to follow, but the file ends after 1"),
        ROW("text", "\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
            "found opcode BINUNICODE8 at byte 2 with 18446744073709551615 bytes to follow, but the file ends after 1"),
        ROW("bytes", "\x80\4\x8e\0\0\0\0\0\0\0\x80.",
            "found opcode BINBYTES8 at byte 2 with 9223372036854775808 bytes to follow, but the file ends after 1"),
        ROW("frame", "\x80\4\x95\xff\0\0\0\0\0\0\0N.", "found opcode FRAME at byte 2 with 255 bytes to follow"),
        ROW("half a number", "\x80\2J\1\2", "found opcode BININT at byte 2 with 4 bytes to follow"),
        ROW("a global cut off", "\x80\2cos", "found opcode GLOBAL 'os ' at byte 2"),
        ROW("a global of control bytes", "\x80\2c\x1b[2J\n\xff\n.", "found opcode GLOBAL '?[2J ?' at byte 2"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ckpt_err err = {0};
        CHECK(read_bytes(rows[i].bytes, rows[i].length, NULL, &err) == CKPT_BAD_INPUT, "%s: was read", rows[i].names);
        CHECK(strncmp(err.msg + strlen("file: "), rows[i].wanted, strlen(rows[i].wanted)) == 0, "%s: \"%s\"",
              rows[i].names, err.msg);
    }
}

/* A pickle cut off anywhere before its STOP is refused. */
static void test_cut_off_at_every_byte(void **state)
{
    for (const char *line = python; line != NULL; line = next_line(line)) {
        char bytes[ROOM];
        const size_t length = from_hex(line, bytes);
        for (size_t cut = 0; cut < length; cut++) {
            ckpt_err err = {0};
            CHECK(read_bytes(bytes, cut, NULL, &err) == CKPT_BAD_INPUT, "%zu of %zu bytes were read", cut, length);
        }
    }
}

/* Random bytes, most of them valid opcodes; and Python's pickles with a few bytes changed. */
static void test_random_and_damaged(void **state)
{
    static const char telling[] = "(()]}NNK\1M..euastq\0h\0\x88\x89\x85\x86\x87\x8f\x90\x91\x94\x94"
                                  "012\x8a\1\x8c\1";
    const int rounds = (int)ckpt_test_rounds(RANDOM, RANDOM / 4);
    const char *line = python;
    int accepted = 0;
    for (int i = 0; i < rounds; i++) {
        char bytes[ROOM];
        size_t length = 2 + (size_t)ckpt_test_draw(100);
        ckpt_err err = {0};
        if (i % 2 == 0) {
            memcpy(bytes, "\x80\4", 2);
            for (size_t k = 2; k < length; k++) {
                bytes[k] =
                    ckpt_test_draw(8) == 0 ? (char)ckpt_test_draw(256) : telling[ckpt_test_draw(sizeof telling - 1)];
            }
        } else {
            length = from_hex(line, bytes);
            for (uint64_t k = 1 + ckpt_test_draw(3); k > 0; k--) {
                bytes[ckpt_test_draw(length)] =
                    ckpt_test_draw(2) == 0 ? (char)ckpt_test_draw(256) : telling[ckpt_test_draw(sizeof telling - 1)];
            }
            line = next_line(line) != NULL ? next_line(line) : python;
        }
        accepted += read_bytes(bytes, length, NULL, &err) == CKPT_OK;
    }
    print_message("%d of %d accepted\n", accepted, rounds);
    CHECK(accepted > rounds / 100 && accepted < rounds / 2, "%d of %d accepted", accepted, rounds);
}

/* 61 lists, each twice in the next, all in one tuple: 2^60 values as a tree, 61 as a graph. */
static void test_shared_references_stay_shared(void **state)
{
    enum { LISTS = 61 };
    char bytes[ROOM] = "\x80\2(]q";
    size_t length = 6; /* BINPUT 0 */
    for (int i = 1; i < LISTS; i++) {
        const char list[] = {']', '(', 'h', (char)(i - 1), 'h', (char)(i - 1), 'e', 'q', (char)i};
        memcpy(bytes + length, list, sizeof list);
        length += sizeof list;
    }
    memcpy(bytes + length, "t.", 2);
    ckpt_err err = {0};
    ckpt_pickle pickle;
    CHECK_OK(ckpt_pickle_read("file", bytes, length + 2, &pickle, &err), err);
    assert_int_equal(pickle.value_count, LISTS + 1);
    const ckpt_pickle_value root = ckpt_pickle_root(&pickle);
    ckpt_pickle_value at = ckpt_pickle_item(&root, LISTS - 1);
    for (int i = 1; i < LISTS; i++) {
        const ckpt_pickle_value items[] = {ckpt_pickle_item(&at, 0), ckpt_pickle_item(&at, 1)};
        assert_int_equal(at.count, 2);
        assert_int_equal(items[0].place, items[1].place);
        at = items[0];
    }
    assert_int_equal(at.count, 0);
    ckpt_pickle_fini(&pickle);
}

/* Python adds 1000 items at a time, and one alone by another opcode. Whatever the steps, items keep their order, the last
 * value of a key counts, and what is taken is a small multiple of the items. */
static void test_containers_that_grow(void **state)
{
    enum { ITEMS = 30000 };
    char *const bytes = malloc(20 * ITEMS + 100);
    assert_non_null(bytes);
    for (int round = 0; round < 20; round++) {
        size_t length = 3;
        int items = 0;
        const bool dict = round % 2 == 1;
        memcpy(bytes, dict ? "\x80\2}" : "\x80\2]", 3);
        while (items < ITEMS) {
            const uint64_t count =
                ckpt_test_draw(3) == 0 ? 0 : ckpt_test_draw(round < 10 ? 2500 : 3); /* 0: one alone */
            bytes[length] = '(';
            length += count > 0;
            for (uint64_t i = 0; i < (count > 0 ? count : 1) && items < ITEMS; i++, items++) {
                const char item[] = {'J', (char)items, (char)(items >> 8), 0, 0};
                for (int twice = 0; twice < 1 + dict; twice++) { /* i: i */
                    memcpy(bytes + length, item, sizeof item);
                    length += sizeof item;
                }
            }
            bytes[length++] = count > 0 ? (dict ? 'u' : 'e') : (dict ? 's' : 'a');
        }
        if (dict) {
            memcpy(bytes + length, "U\1aK\1sU\1aK\2s", 12);
            length += 12;
        }
        bytes[length++] = '.';
        ckpt_err err = {0};
        ckpt_pickle pickle;
        CHECK_OK(ckpt_pickle_read("file", bytes, length, &pickle, &err), err);
        const ckpt_pickle_value root = ckpt_pickle_root(&pickle);
        assert_int_equal(root.count, ITEMS + 2 * dict);
        for (int i = 0; i < (1 + dict) * ITEMS; i++) {
            const ckpt_pickle_value item = ckpt_pickle_item(&root, i);
            CHECK(item.type == CKPT_PICKLE_INT && item.as.integer == i / (1 + dict), "item %d is %lld", i,
                  (long long)item.as.integer);
        }
        const ckpt_pickle_value last = ckpt_pickle_find(&root, "a");
        CHECK(last.type == (dict ? CKPT_PICKLE_INT : CKPT_PICKLE_ABSENT) && (!dict || last.as.integer == 2), "type %d",
              (int)last.type);
        CHECK(pickle.word_count < (size_t)3 * (1 + dict) * ITEMS, "%zu words", pickle.word_count);
        ckpt_pickle_fini(&pickle);
    }
    free(bytes);
}

static void test_deep_nesting(void **state)
{
    char *const bytes = malloc(2 * DEEP + 4);
    ckpt_err err = {0};
    assert_non_null(bytes);
    memcpy(bytes, "\x80\2", 2);
    memset(bytes + 2, ']', DEEP);
    memset(bytes + 2 + DEEP, 'a', DEEP - 1);
    bytes[2 * DEEP + 1] = '.';
    CHECK_OK(read_bytes(bytes, 2 * DEEP + 2, NULL, &err), err);
    memset(bytes + 2, '(', 2 * DEEP);
    CHECK(read_bytes(bytes, 2 * DEEP + 2, NULL, &err) == CKPT_BAD_INPUT, "marks alone were read");
    memset(bytes + 2 + DEEP, 't', DEEP);
    bytes[2 * DEEP + 2] = '.';
    CHECK_OK(read_bytes(bytes, 2 * DEEP + 3, NULL, &err), err);
    free(bytes);
}

static ckpt_code starved(void *context, ckpt_err *err)
{
    const row *const r = context;
    ckpt_pickle pickle = {0};
    const ckpt_code code = ckpt_pickle_read("file", r->bytes, r->length, &pickle, err);
    ckpt_pickle_fini(&pickle);
    return code;
}

/* So much of everything that each array grows several times. */
static void test_starved(void **state)
{
    enum { COUNT = 20000 };
    char *const bytes = malloc(32 * COUNT);
    size_t length = 2;
    assert_non_null(bytes);
    memcpy(bytes, "\x80\4", 2);
    for (int i = 0; i < COUNT; i++) {
        memcpy(bytes + length, "(]\x94(K\1K\2G\0\0\0\0\0\0\0\0e}\x94K\1Ns", 23);
        length += 23;
    }
    memset(bytes + length, 't', COUNT);
    length += COUNT;
    bytes[length++] = '.';
    row r = {"", bytes, length, NULL};
    const int64_t allocations = ckpt_test_starve(starved, &r);
    CHECK(allocations > 10, "%lld allocations", (long long)allocations);
    free(bytes);
}

static int read_python(void **state)
{
    ckpt_arena arena;
    ckpt_err err = {0};
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_arena_init(&arena);
    const ckpt_code code = ckpt_file_read(ckpt_source_file("tests/imports/pickles.txt"), &arena, &bytes, &length, &err);
    if (code == CKPT_OK && length < sizeof python) {
        memcpy(python, bytes, length);
    }
    ckpt_arena_fini(&arena);
    return code == CKPT_OK && python[0] != '\0' ? 0 : -1;
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_python_pickled),
        cmocka_unit_test(test_opcodes_python_does_not_write),
        cmocka_unit_test(test_every_opcode),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut_off_at_every_byte),
        cmocka_unit_test(test_random_and_damaged),
        cmocka_unit_test(test_shared_references_stay_shared),
        cmocka_unit_test(test_containers_that_grow),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, read_python, NULL);
}
