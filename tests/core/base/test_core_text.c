/* labels: unit */
/* Growing texts, whole files, digests. */
#include "tests/support/support_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/digest.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/formats/machine.h"

/* A block that came and went between a mark and its rewind was zeroed whole each time: 36 s for the profiles of a million
 * layers, whose comparison takes a few bytes for each. What is taken is zero all the same, whatever the block held. */
static void test_arena_gives_zeros_from_blocks_that_were_used(void **state)
{
    enum { TAKEN = 5000, ROUNDS = 100 };
    CKPT_TEST_ARENA(arena);
    for (int i = 0; i < ROUNDS; i++) {
        const ckpt_mark mark = ckpt_arena_mark(&arena);
        for (size_t bytes = 1; bytes <= TAKEN; bytes *= 3) {
            unsigned char *const taken = ckpt_arena_take(&arena, bytes, 1);
            assert_non_null(taken);
            for (size_t k = 0; k < bytes; k++) {
                assert_int_equal(taken[k], 0);
            }
            memset(taken, 0xff, bytes);
        }
        ckpt_arena_rewind(&arena, mark);
    }
}

/* A state file whose first line had no } was quoted with its line end, which broke the message in two. */
static void test_message_is_one_line_whatever_it_quotes(void **state)
{
    ckpt_err err = {0};
    assert_int_equal(CKPT_FAIL(&err, CKPT_BAD_INPUT, "found \"%s\"", "a\nb\x7f\t"), CKPT_BAD_INPUT);
    assert_string_equal(err.msg, "found \"a b  \"");
    ckpt_err_at(&err, "%s", "x\ry");
    assert_string_equal(err.msg, "x y: found \"a b  \"");
}

static void test_text_escapes_json_and_xml(void **state)
{
    ckpt_err err = {0};
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_text_json(&text, "a\"b\\c\n\t\x01/\xc3\xa9");
    CHECK_OK(ckpt_text_end(&text, &err), err);
    assert_string_equal(text.bytes, "\"a\\\"b\\\\c\\n\\t\\u0001/\xc3\xa9\"");
    text.length = 0;
    ckpt_text_xml(&text, "<a b='c' d=\"e\">&\x01\n");
    assert_string_equal(text.bytes, "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp; \n");
    ckpt_text_fini(&text);
}

/* A plan that named a profile "p\xff.json" could not be read back: Jansson takes UTF-8 only. */
static void test_text_in_json_is_always_utf8(void **state)
{
    static const char *const whole[] = {"\x7f",         "\xc2\x80",         "\xe0\xa0\x80",    "\xed\x9f\xbf",
                                        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const broken[] = {"\xff",
                                         "\x80",
                                         "\xc1\xbf",
                                         "\xc3",
                                         "\xe0\x9f\x80",
                                         "\xe2\x82",
                                         "\xed\xa0\x80",
                                         "\xf0\x8f\xbf\xbf",
                                         "\xf4\x90\x80\x80",
                                         "\xf5\x80\x80\x80"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0] + sizeof broken / sizeof broken[0]; i++) {
        const bool good = i < sizeof whole / sizeof whole[0];
        const char *const bytes = good ? whole[i] : broken[i - sizeof whole / sizeof whole[0]];
        char wanted[16];
        snprintf(wanted, sizeof wanted, "\"%s!\"", good ? bytes : &"????"[4 - strlen(bytes)]);
        ckpt_text text;
        ckpt_text_init(&text);
        char with_tail[16];
        snprintf(with_tail, sizeof with_tail, "%s!", bytes);
        ckpt_text_json(&text, with_tail);
        CHECK(strcmp(text.bytes, wanted) == 0, "case %zu: found %s", i, text.bytes);
        ckpt_text_fini(&text);
    }
}

static void test_text_grows_past_every_buffer(void **state)
{
    ckpt_err err = {0};
    ckpt_text text;
    ckpt_text_init(&text);
    char long_word[1000];
    memset(long_word, 'x', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    for (int i = 0; i < 300; i++) {
        ckpt_text_add(&text, "%d,%s;", i, long_word);
    }
    CHECK_OK(ckpt_text_end(&text, &err), err);
    assert_int_equal(text.length, strlen(text.bytes));
    assert_int_equal(text.length, 10 + 90 * 2 + 200 * 3 + 300 * (2 + 999));
    assert_memory_equal(text.bytes + text.length - 5, "xxxx;", 5);
    ckpt_text_fini(&text);
    ckpt_text_put(&text, "", 0); /* an empty text is still a text */
    assert_string_equal(text.bytes, "");
    ckpt_text_fini(&text);
}

static void test_reals_read_back_as_the_same_number(void **state)
{
    static const double values[] = {0.0,       1.0,   -2.5,   0.1,         3e-4,
                                    1.0 / 3.0, 1e300, 5e-324, 123456789.0, 0.30000000000000004};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        ckpt_text text;
        ckpt_text_init(&text);
        ckpt_text_real(&text, values[i]);
        CHECK(strtod(text.bytes, NULL) == values[i], "%.17g was written as %s", values[i], text.bytes);
        CHECK(strpbrk(text.bytes, ".e") != NULL, "%s reads back as an integer", text.bytes);
        ckpt_text_fini(&text);
    }
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_text_real(&text, 0.1);
    assert_string_equal(text.bytes, "0.1");
    ckpt_text_fini(&text);
}

/* In other locales: cli_libckpt. */
static void test_numbers_as_text_and_back(void **state)
{
    static const struct {
        const char *text;
        double value;
        size_t read;
    } parsed[] = {{"1.5", 1.5, 3},   {"12", 12, 2},  {" .5e1x", 5, 5}, {"1,5", 1, 1},
                  {"1.5.2", 1.5, 3}, {"x1", 0, 0},   {"20%", 20, 2},   {"1e-3 s", 1e-3, 4},
                  {"", 0, 0},        {"-2.", -2, 3}, {"0x1p4", 16, 5}, {"1. 5", 1, 2}};
    char number[CKPT_REAL_TEXT];
    for (size_t i = 0; i < sizeof parsed / sizeof *parsed; i++) {
        const char *end = NULL;
        const double value = ckpt_real_parse(parsed[i].text, &end);
        CHECK(value == parsed[i].value && end == parsed[i].text + parsed[i].read, "%s: %g, %td bytes", parsed[i].text,
              value, end - parsed[i].text);
    }
    assert_string_equal(ckpt_real_fixed(-1234567.125, 2, number), "-1234567.12");
    assert_string_equal(ckpt_real_fixed(2.5, 0, number), "2");
    assert_string_equal(ckpt_real_general(1e300, 6, number), "1e+300");
    assert_string_equal(ckpt_real_general(0.00012345678, 6, number), "0.000123457");
    assert_int_equal(strlen(ckpt_real_fixed(-1.7976931348623157e308, 6, number)), 317);
}

static ckpt_code build_text(void *context, ckpt_text *text, ckpt_err *err)
{
    (void)context;
    for (int i = 0; i < 50; i++) {
        ckpt_text_add(text, "%0300d", i);
        ckpt_text_json(text, "name");
    }
    return ckpt_text_end(text, err);
}

static void test_text_without_memory(void **state)
{
    CHECK(ckpt_test_starve_text(build_text, NULL) > 3, "too few allocations to mean anything");
}

static void test_digest_is_sha256(void **state)
{
    /* FIPS 180-4's examples. */
    char text[CKPT_DIGEST_TEXT];
    ckpt_digest *digest = ckpt_digest_create();
    ckpt_digest_add(digest, "a", 1);
    ckpt_digest_add(digest, "bc", 2);
    ckpt_digest_end(digest, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest = ckpt_digest_create();
    ckpt_digest_end(digest, text);
    assert_string_equal(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    ckpt_digest_once(two_blocks, sizeof two_blocks - 1, text);
    assert_string_equal(text, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    for (size_t piece = 1; piece < 300; piece = 3 * piece + 1) { /* pieces that end within, at and beyond blocks */
        digest = ckpt_digest_create();
        for (size_t at = 0; at < sizeof million; at += piece) {
            ckpt_digest_add(digest, million + at, at + piece < sizeof million ? piece : sizeof million - at);
        }
        ckpt_digest_end(digest, text);
        assert_string_equal(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    assert_int_equal(ckpt_memory_live(), 0);
}

static void write_ok(const char *path, const char *bytes)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_file_write(path, bytes, strlen(bytes), &err), err);
}

static void check_holds(const char *path, const char *wanted)
{
    ckpt_err err = {0};
    CKPT_TEST_ARENA(arena);
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_OK(ckpt_file_read(path, &arena, &bytes, &length, &err), err);
    assert_int_equal(length, strlen(wanted));
    assert_string_equal(bytes, wanted);
}

static void test_files_are_replaced_whole(void **state)
{
    mkdir(ckpt_work_file("core_text"), 0777);
    const char *const path = ckpt_work_file("core_text/file.txt");
    write_ok(path, "first");
    check_holds(path, "first");
    assert_int_equal(chmod(path, 0640), 0);
    write_ok(path, "second, longer");
    check_holds(path, "second, longer");
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    write_ok(path, "");
    check_holds(path, "");
    const char *const link = ckpt_work_file("core_text/link.txt");
    unlink(link);
    assert_int_equal(symlink("file.txt", link), 0);
    assert_int_equal(stat(path, &status), 0);
    const ino_t before = status.st_ino;
    write_ok(link, "through a link");
    check_holds(path, "through a link");
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_ino != before); /* another file was renamed over it: it was never half written */
    assert_int_equal(lstat(link, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    write_ok("/dev/null", "gone");
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
}

static void test_what_is_thrown_away_leaves_nothing(void **state)
{
    const char *const path = ckpt_work_file("core_text/pieces.txt"),
                      *const link = ckpt_work_file("core_text/nowhere.txt"),
                      *const folder = ckpt_work_file("core_text/pieces");
    ckpt_err err = {0};
    ckpt_file *file = NULL;
    rmdir(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    write_ok(path, "old");
    CHECK_OK(ckpt_file_begin(path, &file, &err), err);
    CHECK_OK(ckpt_file_add(file, "ne", 2, &err), err);
    check_holds(path, "old");
    CHECK_OK(ckpt_file_add(file, "w", 1, &err), err);
    CHECK_OK(ckpt_file_end(file, true, &err), err);
    check_holds(path, "new");
    CHECK_OK(ckpt_file_begin(ckpt_work_file("core_text/pieces/gone"), &file, &err), err);
    CHECK_OK(ckpt_file_add(file, "x", 1, &err), err);
    CHECK_OK(ckpt_file_end(file, false, &err), err);
    CHECK_OK(ckpt_file_probe(ckpt_work_file("core_text/pieces/probed"), 0, &err), err);
    CHECK_OK(ckpt_file_probe(path, 0, &err), err);
    check_holds(path, "new");
    CHECK_OK(ckpt_file_probe("/dev/null", 0, &err), err);
    unlink(link);
    assert_int_equal(symlink("pieces/not-yet", link), 0);
    CHECK_OK(ckpt_file_probe(link, 0, &err), err);
    CHECK(ckpt_file_same(path, path) && !ckpt_file_same(path, link), "one file, and a link to nothing");
    CHECK(ckpt_file_same(link, ckpt_work_file("core_text/pieces/not-yet")), "a link to nothing, and what it names");
    unlink(link);
    assert_int_equal(symlink("pieces.txt", link), 0);
    CHECK(ckpt_file_same(path, link) && ckpt_file_same(link, path), "a file and a link to it");
    CHECK(ckpt_file_same("not-yet", "not-yet") && !ckpt_file_same("not-yet", "nor-this"), "files that are not there");
    CHECK(ckpt_file_same("./not-yet", "not-yet") && ckpt_file_same("/not-yet", "//not-yet") &&
              ckpt_file_same(ckpt_work_file("core_text/pieces/../not-yet"), ckpt_work_file("core_text/not-yet")) &&
              !ckpt_file_same(ckpt_work_file("core_text/pieces/not-yet"), ckpt_work_file("core_text/not-yet")),
          "files that are not there, by other names");
    CHECK(!ckpt_file_same("/dev/null", "/dev/null") && !ckpt_file_same("-", "-") && !ckpt_file_same(NULL, path),
          "what nothing replaces");
    unlink(link);
    ckpt_err no_file = {0};
    assert_int_equal(ckpt_file_probe(folder, 0, &no_file), CKPT_IO); /* a folder is no file */
    assert_int_equal(rmdir(folder), 0);                              /* nothing was left in it */
    assert_int_equal(ckpt_file_probe(ckpt_work_file("core_text/no/such/folder"), 0, &err), CKPT_IO);
}

/* A refusal of memory said "search over 3 ops", and nothing else. */
static void test_refused_memory_is_called_so(void **state)
{
    ckpt_err err = {0};
    ckpt_memory_fail_after(0);
    void *const none = ckpt_memory_get(1000);
    ckpt_memory_fail_after(-1);
    assert_null(none);
    CKPT_FAIL(&err, CKPT_NO_MEMORY, "search over %d ops", 3);
    assert_string_equal(err.msg, "no memory: search over 3 ops (1000 bytes were refused)");
    CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for %d layers", 3); /* that one has been said */
    assert_string_equal(err.msg, "no memory for 3 layers");
}

static bool is_there(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* What a killed program was writing goes with the next write of the same file; what another one is writing stays, and the
 * last of them is there in the end, whole. */
static void test_temporary_files_of_killed_programs_go(void **state)
{
    const char *const path = ckpt_work_file("core_text/shared.txt");
    const char *const first = ckpt_work_file("core_text/shared.txt.ckpt-0.part");
    const char *const second = ckpt_work_file("core_text/shared.txt.ckpt-1.part");
    ckpt_err err = {0};
    ckpt_file *slow = NULL, *fast = NULL;
    write_ok(ckpt_work_file("core_text/shared.txt"), "old");
    CHECK_OK(ckpt_file_begin(path, &slow, &err), err);
    CHECK_OK(ckpt_file_add(slow, "the slow", 8, &err), err);
    CHECK(is_there(first), "%s", first);
    CHECK_OK(ckpt_file_begin(path, &fast, &err), err);
    CHECK(is_there(first) && is_there(second), "two programs write the file");
    CHECK_OK(ckpt_file_add(fast, "fast", 4, &err), err);
    CHECK_OK(ckpt_file_end(fast, true, &err), err);
    check_holds(path, "fast");
    CHECK_OK(ckpt_file_add(slow, " one", 4, &err), err);
    CHECK_OK(ckpt_file_end(slow, true, &err), err);
    check_holds(path, "the slow one");
    CHECK(!is_there(first) && !is_there(second), "both are done");
    write_ok(first, "half"); /* nobody has their locks */
    write_ok(second, "half");
    CHECK_OK(ckpt_file_probe(path, 0, &err), err);
    CHECK(!is_there(first) && !is_there(second), "what was left is still there");
    check_holds(path, "the slow one");
    assert_int_equal(symlink("shared.txt", first), 0); /* somebody else's: not followed, not removed */
    write_ok(path, "beside a link");
    check_holds(path, "beside a link");
    CHECK(is_there(first), "a link is gone");
    unlink(first);
}

/* What cannot be written is known before it is made. */
static void test_files_that_will_not_fit(void **state)
{
    const char *const path = ckpt_work_file("core_text/large.txt");
    const struct rlimit small = {1000, RLIM_INFINITY};
    struct rlimit usual;
    ckpt_err err = {0};
    assert_int_equal(ckpt_file_probe(path, INT64_MAX, &err), CKPT_IO);
    CHECK(strstr(err.msg, "large.txt: cannot write: it will have 9.22 EB, and the disk has ") != NULL, "%s", err.msg);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_OK(ckpt_file_probe(path, 1000, &err), err);
    assert_int_equal(ckpt_file_probe(path, 1001, &err), CKPT_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    CHECK(strstr(err.msg, "it will have 1.00 kB, and files may have 1.00 kB (ulimit -f)") != NULL, "%s", err.msg);
    CHECK(!is_there(path), "a probe leaves nothing");
    assert_int_equal(ckpt_file_probe("", 0, &err), CKPT_IO);
    CHECK(strstr(err.msg, "name of the file is empty") != NULL, "%s", err.msg);
    if (is_there("/dev/full")) {
        assert_int_equal(ckpt_file_probe("/dev/full", 0, &err), CKPT_IO);
        CHECK(strstr(err.msg, "No space") != NULL, "%s", err.msg);
    }
}

static void test_files_that_cannot_be(void **state)
{
    ckpt_err err = {0};
    CKPT_TEST_ARENA(arena);
    const char *bytes = NULL;
    size_t length = 0;
    assert_int_equal(ckpt_file_read(ckpt_work_file("core_text/missing"), &arena, &bytes, &length, &err), CKPT_IO);
    assert_non_null(strstr(err.msg, "/missing: No such file"));
    assert_int_equal(ckpt_file_read(ckpt_work_dir(), &arena, &bytes, &length, &err), CKPT_IO);
    assert_non_null(strstr(err.msg, "directory"));
    assert_int_equal(ckpt_file_write(ckpt_work_file("core_text/no/such/folder"), "x", 1, &err), CKPT_IO);
    assert_int_equal(ckpt_file_write(ckpt_work_dir(), "x", 1, &err), CKPT_IO);
    assert_int_equal(ckpt_file_write("/dev/full", "x", 1, &err), CKPT_IO);
    assert_non_null(strstr(err.msg, "No space"));
    assert_int_equal(ckpt_file_write("", "x", 1, &err), CKPT_IO);
}

static ckpt_code write_and_read(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const char *const path = context;
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_code code = ckpt_file_write(path, "hungry", 6, err);
    if (code == CKPT_OK) {
        code = ckpt_file_read(path, arena, &bytes, &length, err);
    }
    return code;
}

static ckpt_code describe_machine(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    static char program[] = "/usr/bin/ckpt-test";
    static char argument[] = "--x=\xff\n";
    char *const argv[] = {program, argument, NULL};
    ckpt_machine machine;
    const ckpt_code code = ckpt_machine_read(2, "oneDNN 1", 2, argv, arena, &machine, err);
    if (code == CKPT_OK) {
        assert_string_equal(machine.command, "ckpt-test --x=??");
        assert_string_equal(machine.libraries, "oneDNN 1");
        assert_int_equal(machine.threads, 2);
        assert_int_equal(strlen(machine.date), strlen("2026-01-01T00:00:00Z"));
        assert_true(strncmp(machine.device, "cpu: ", 5) == 0);
    }
    return code;
}

static void test_files_and_machine_without_memory(void **state)
{
    assert_true(ckpt_test_starve_arena(write_and_read, (char *)ckpt_work_file("core_text/starved.txt")) >= 3);
    assert_true(ckpt_test_starve_arena(describe_machine, NULL) >= 1);
}

static void test_exit_codes(void **state)
{
    assert_int_equal(ckpt_exit_code(CKPT_OK), 0);
    assert_int_equal(ckpt_exit_code(CKPT_BAD_INPUT), 2);
    assert_int_equal(ckpt_exit_code(CKPT_OVERFLOW), 2);
    assert_int_equal(ckpt_exit_code(CKPT_IO), 2);
    assert_int_equal(ckpt_exit_code(CKPT_DEVICE), 3);
    ckpt_err err = {0};
    assert_int_equal(CKPT_FAIL(&err, CKPT_IO, "of %d", 3), CKPT_IO);
    ckpt_err_at(&err, "f:%d", 1);
    ckpt_err_while(&err, "reading");
    assert_string_equal(err.msg, "while reading: f:1: of 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_is_one_line_whatever_it_quotes),
        cmocka_unit_test(test_arena_gives_zeros_from_blocks_that_were_used),
        cmocka_unit_test(test_text_escapes_json_and_xml),
        cmocka_unit_test(test_text_in_json_is_always_utf8),
        cmocka_unit_test(test_text_grows_past_every_buffer),
        cmocka_unit_test(test_numbers_as_text_and_back),
        cmocka_unit_test(test_reals_read_back_as_the_same_number),
        cmocka_unit_test(test_text_without_memory),
        cmocka_unit_test(test_digest_is_sha256),
        cmocka_unit_test(test_files_are_replaced_whole),
        cmocka_unit_test(test_what_is_thrown_away_leaves_nothing),
        cmocka_unit_test(test_temporary_files_of_killed_programs_go),
        cmocka_unit_test(test_files_that_will_not_fit),
        cmocka_unit_test(test_refused_memory_is_called_so),
        cmocka_unit_test(test_files_that_cannot_be),
        cmocka_unit_test(test_files_and_machine_without_memory),
        cmocka_unit_test(test_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
