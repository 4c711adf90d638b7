/* labels: unit */
/* Spools: everything written is read, wherever the file ends, and nothing else is accepted. Traces of activities
 * compared with a plain recomputation that tests for each range whether it contains each call. */
#include "tests/support/support_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "cupti/activity_trace.h"
#include "cupti/demangle.h"
#include "cupti/spool.h"
#include "programs/profile/command.h"

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static const char *folder; /* set by main */
static char path[600];

/* A spool in an empty folder; its path goes to `path`. */
static ckpt_spool *fresh(int64_t limit, int64_t reserve)
{
    const ckpt_spool_options options = {folder, "a \"program\"", limit, reserve};
    ckpt_spool *spool = NULL;
    ckpt_err err = {.msg = ""};
    mkdir(folder, 0777);
    for (int n = 0; n < 3; n++) {
        snprintf(path, sizeof path, "%s/%ld-%d.spool", folder, (long)getpid(), n);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/%ld-0.spool", folder, (long)getpid());
    CHECK_OK(ckpt_spool_create(&options, &spool, &err), err);
    return spool;
}

static ckpt_spool *fresh_spool(void)
{
    return fresh(0, 1);
}

static int64_t size_of_file(void)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

/* Not by ckpt_file_write or truncation: both wait for the disk. */
static void write_file(const char *bytes, size_t length)
{
    unlink(path);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* A random activity as from a recorder; it keeps `name`. */
static ckpt_activity random_activity(const char *name)
{
    const bool large = draw(8) == 0;
    const ckpt_ns start = (ckpt_ns)(large ? draw(UINT64_C(1) << 31) << 31 : UINT64_C(1000000000000) + draw(1000000));
    ckpt_activity made = {
        .kind = (ckpt_activity_kind)draw(CKPT_ACTIVITY_KIND_COUNT),
        .way = (ckpt_copy_way)draw(CKPT_COPY_ON_DEVICE + 1),
        .name = name,
        .start_ns = start,
        .end_ns = start + (ckpt_ns)draw(large ? UINT64_C(1) << 31 : 1000),
        .device = (uint32_t)draw(3),
        .context = (uint32_t)draw(3),
        .stream = large ? UINT32_MAX : (uint32_t)draw(20),
        .correlation = (uint32_t)draw(UINT32_MAX),
        .tag = large ? UINT64_MAX : draw(5),
        .process = (uint32_t)getpid(),
        .thread = (uint32_t)draw(100000),
        .bytes = (int64_t)draw(UINT64_C(1) << 40),
        .address = large ? UINT64_MAX : UINT64_C(0x7f0000000000) + draw(1000000),
    };
    return made;
}

static void same_activity(const ckpt_activity *a, const ckpt_activity *b, const char *where, int index)
{
    CHECK(strcmp(a->name, b->name) == 0, "%s %d: \"%s\", wanted \"%s\"", where, index, a->name, b->name);
    CHECK(a->kind == b->kind && a->way == b->way && a->start_ns == b->start_ns && a->end_ns == b->end_ns &&
              a->device == b->device && a->context == b->context && a->stream == b->stream &&
              a->correlation == b->correlation && a->tag == b->tag && a->process == b->process &&
              a->thread == b->thread && a->bytes == b->bytes && a->address == b->address,
          "%s %d is another activity than was written", where, index);
}

static void what_is_written_is_read(void **unused)
{
    (void)unused;
    enum { COUNT = 30000, NAMES = 700 };
    CKPT_TEST_ARENA(arena);
    ckpt_activity *const written = CKPT_NEW(&arena, ckpt_activity, COUNT);
    const char *name[NAMES];
    for (int i = 0; i < NAMES; i++) {
        name[i] = i == 0 ? "" : ckpt_arena_format(&arena, "_ZN%dkernel\xc3\xa4<%d>", i, i * i);
    }
    ckpt_spool *const spool = fresh_spool();
    ckpt_spool_say(spool, CKPT_SPOOL_RECORDER, "first");
    for (int i = 0; i < COUNT; i++) {
        errno = 77;
        written[i] = random_activity(name[draw(NAMES)]);
        ckpt_spool_add(spool, &written[i]);
        assert_int_equal(errno, 77);
        if (draw(1000) == 0) {
            ckpt_spool_flush(spool);
        }
    }
    ckpt_spool_say(spool, CKPT_SPOOL_RECORDER, "CUPTI 13.0.1, and more");
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
    ckpt_spool_content content;
    ckpt_err err = {.msg = ""};
    CHECK_OK(ckpt_spool_read(path, &arena, &content, &err), err);
    assert_int_equal(content.process, getpid());
    assert_string_equal(content.program, "a \"program\"");
    assert_string_equal(content.word[CKPT_SPOOL_RECORDER], "CUPTI 13.0.1, and more");
    assert_null(content.word[CKPT_SPOOL_ENDED]);
    assert_null(content.word[CKPT_SPOOL_STOPPED]);
    assert_false(content.cut);
    assert_int_equal(content.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        same_activity(&content.activity[i], &written[i], "activity", i);
    }
}

/* More names than the 8192 numbers; and names that are too long. */
static void names_may_be_many_and_long(void **unused)
{
    (void)unused;
    enum { COUNT = 20000, LONG = 9000 };
    CKPT_TEST_ARENA(arena);
    ckpt_spool *const spool = fresh_spool();
    char text[LONG + 1];
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "kernel %d", i % (COUNT / 2));
        const ckpt_activity one = {.name = text};
        ckpt_spool_add(spool, &one);
    }
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    memcpy(text + 8190, "\xc3\xa4", 2); /* the cut would go through it */
    for (int i = 0; i < 100; i++) {
        const ckpt_activity one = {.name = text};
        text[0] = (char)('a' + i % 26);
        ckpt_spool_add(spool, &one);
    }
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
    ckpt_spool_content content;
    ckpt_err err = {.msg = ""};
    CHECK_OK(ckpt_spool_read(path, &arena, &content, &err), err);
    assert_int_equal(content.count, COUNT + 100);
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "kernel %d", i % (COUNT / 2));
        assert_string_equal(content.activity[i].name, text);
    }
    for (int i = 0; i < 100; i++) {
        const char *const name = content.activity[COUNT + i].name;
        assert_int_equal(strlen(name), 8190);
        assert_int_equal(name[0], 'a' + i % 26);
    }
}

/* A file cut anywhere gives the activities that are complete. */
static void a_cut_file_gives_what_is_whole(void **unused)
{
    (void)unused;
    enum { COUNT = 60 };
    CKPT_TEST_ARENA(arena);
    ckpt_activity written[COUNT];
    int64_t end[COUNT + 1];
    ckpt_spool *const spool = fresh_spool();
    ckpt_spool_say(spool, CKPT_SPOOL_RECORDER, "CUPTI");
    ckpt_spool_flush(spool);
    const int64_t head = size_of_file();
    for (int i = 0; i < COUNT; i++) {
        written[i] = random_activity(i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "");
        ckpt_spool_add(spool, &written[i]);
        ckpt_spool_flush(spool);
        end[i] = size_of_file();
    }
    end[COUNT] = INT64_MAX;
    ckpt_spool_destroy(spool);
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_err err = {.msg = ""};
    CHECK_OK(ckpt_file_read(path, &arena, &bytes, &length, &err), err);
    assert_int_equal(length, end[COUNT - 1]);
    int whole = 0;
    for (size_t n = 0; n <= length; n++) {
        const ckpt_mark mark = ckpt_arena_mark(&arena);
        ckpt_spool_content content;
        write_file(bytes, n);
        whole += (int64_t)n >= end[whole];
        CHECK(ckpt_spool_read(path, &arena, &content, &err) == CKPT_OK, "cut at %zu: %s", n, err.msg);
        CHECK(content.count == whole, "cut at %zu: %d activities, wanted %d", n, content.count, whole);
        for (int i = 0; i < whole; i++) {
            same_activity(&content.activity[i], &written[i], "activity", i);
        }
        if ((int64_t)n < head) {
            CHECK(content.cut || content.word[CKPT_SPOOL_RECORDER] == NULL, "cut at %zu: all is there", n);
        } else if (whole > 0 && (int64_t)n == end[whole - 1]) {
            CHECK(!content.cut, "cut at %zu: between two records", n);
        }
        ckpt_arena_rewind(&arena, mark);
    }
}

#define HEAD "ckptspol\x01\x05\x01p"

static void what_no_writer_writes_is_refused(void **unused)
{
    (void)unused;
#define CASE(text, wanted)                                                                                             \
    {                                                                                                                  \
        text, sizeof text - 1, wanted                                                                                  \
    }
#define NAMED HEAD "\x03\x20\x07k"
    static const struct {
        const char *bytes;
        size_t length;
        const char *wanted; /* NULL: it is read */
    } table[] = {
        CASE("ckptspoX\x01\x05\x01p", "no spool"),
        CASE("{}", "no spool"),
        CASE("ckptspol\x02\x05\x01p", "byte 9: version 2, wanted 1"),
        CASE("ckptspol\x01\xff\xff\xff\xff\x0f\x01p", "process 4294967295"),
        CASE("ckptspol\x01\x05\xff\xff\x7f", "name of bytes: 2097151"),
        CASE("ckptspol\x01\x05\x03p\0p", "text with byte 0"),
        CASE(HEAD "\x01\x28", "record of kind 40"),
        CASE(HEAD "\x01\x44", "record of kind 68"),
        CASE(HEAD "\x01\xff", "record of kind 255"),
        CASE(HEAD "\x00", "record of bytes: 0"),
        CASE(HEAD "\xff\xff\x01", "record of bytes: 32767"),
        CASE(HEAD "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "length of bytes: 11"),
        CASE(HEAD "\x04\x20\x80\x40z", "name's number 8192"),
        CASE(HEAD "\x02\x20\x80", "name's number that ends"),
        CASE(HEAD "\x04\x20\x07\x00k", "text with byte 0"),
        CASE(HEAD "\x03\x41\x00k", "text with byte 0"),
        CASE(NAMED, NULL),
        CASE(NAMED "\x0d\x00\x00\x07\0\0\0\0\0\0\0\0\0\0", NULL),
        CASE(HEAD "\x0d\x00\x00\x07\0\0\0\0\0\0\0\0\0\0", "activity with name 7"),
        CASE(NAMED "\x0d\x00\x00\x08\0\0\0\0\0\0\0\0\0\0", "activity with name 8"),
        CASE(NAMED "\x0c\x00\x00\x07\0\0\0\0\0\0\0\0\0", "ends after number 11"),
        CASE(NAMED "\x0e\x00\x00\x07\0\0\0\0\0\0\0\0\0\0\0", "with more bytes: 1"),
        CASE(NAMED "\x0d\x00\x04\x07\0\0\0\0\0\0\0\0\0\0", "number of an activity: 4"),
        CASE(NAMED "\x0d\x00\x00\x07\x01\0\0\0\0\0\0\0\0\0", "time: 18446744073709551615"),
        CASE(NAMED "\x11\x00\x00\x07\0\0\xff\xff\xff\xff\x7f\0\0\0\0\0\0\0", "number of an activity: 34359738367"),
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_spool_content content = {.count = -1};
        ckpt_err err = {.msg = ""};
        snprintf(path, sizeof path, "%s/%ld-0.spool", folder, (long)getpid());
        write_file(table[i].bytes, table[i].length);
        const ckpt_code code = ckpt_spool_read(path, &arena, &content, &err);
        if (table[i].wanted == NULL) {
            CHECK(code == CKPT_OK, "case %zu: %s", i, err.msg);
        } else {
            CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, table[i].wanted) != NULL && content.count == -1,
                  "case %zu: code %d \"%s\", wanted \"%s\"", i, (int)code, err.msg, table[i].wanted);
        }
    }
#undef NAMED
#undef CASE
}

/* With any byte changed a file is read or refused; AddressSanitizer would report errors. */
static void a_broken_byte_does_no_harm(void **unused)
{
    (void)unused;
    enum { COUNT = 40 };
    CKPT_TEST_ARENA(arena);
    ckpt_spool *const spool = fresh_spool();
    for (int i = 0; i < COUNT; i++) {
        const ckpt_activity one = random_activity(i % 2 == 0 ? "kernel" : "another");
        ckpt_spool_add(spool, &one);
    }
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_err err = {.msg = ""};
    CHECK_OK(ckpt_file_read(path, &arena, &bytes, &length, &err), err);
    const uint64_t rounds = ckpt_test_rounds(4000, 1000);
    for (uint64_t round = 0; round < rounds; round++) {
        const ckpt_mark mark = ckpt_arena_mark(&arena);
        char *const broken = ckpt_arena_take(&arena, length, 1);
        ckpt_spool_content content;
        memcpy(broken, bytes, length);
        for (uint64_t i = 0; i <= draw(3); i++) {
            broken[draw(length)] = (char)draw(256);
        }
        write_file(broken, length);
        const ckpt_code code = ckpt_spool_read(path, &arena, &content, &err);
        CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT, "round %llu: code %d: %s", (unsigned long long)round,
              (int)code, err.msg);
        for (int i = 0; code == CKPT_OK && i < content.count; i++) {
            const ckpt_activity *const one = &content.activity[i];
            CHECK(one->end_ns >= one->start_ns && one->start_ns >= 0 && one->bytes >= 0 && one->name != NULL,
                  "round %llu: activity %d breaks its own rules", (unsigned long long)round, i);
        }
        ckpt_arena_rewind(&arena, mark);
    }
}

/* Adds far more than the limit; the file has the first of them and the reason of its end. */
static void add_and_read(ckpt_spool *spool, const char *wanted_word, int least, int most)
{
    enum { COUNT = 50000 };
    CKPT_TEST_ARENA(arena);
    for (int i = 0; i < COUNT; i++) {
        const ckpt_activity one = {.name = "k", .start_ns = 1000 + i, .end_ns = 1000 + i, .correlation = (uint32_t)i};
        errno = 5;
        ckpt_spool_add(spool, &one);
        assert_int_equal(errno, 5);
    }
    ckpt_spool_flush(spool);
    ckpt_spool_say(spool, CKPT_SPOOL_ENDED, "");
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
    ckpt_spool_content content;
    ckpt_err err = {.msg = ""};
    CHECK_OK(ckpt_spool_read(path, &arena, &content, &err), err);
    CHECK(content.count >= least && content.count <= most, "%d activities, wanted %d to %d", content.count, least,
          most);
    for (int i = 0; i < content.count; i++) {
        assert_int_equal(content.activity[i].correlation, i);
    }
    if (wanted_word != NULL) {
        const char *const word = content.word[CKPT_SPOOL_STOPPED];
        CHECK(word != NULL && strstr(word, wanted_word) != NULL, "it says \"%s\", wanted \"%s\"",
              word != NULL ? word : "nothing", wanted_word);
    }
    assert_null(content.word[CKPT_SPOOL_ENDED]);
}

static void recording_stops_where_there_is_no_room(void **unused)
{
    (void)unused;
    add_and_read(fresh(300 << 10, 1), "reached the limit", 5000, 49999);
    assert_true(size_of_file() <= 302 << 10);
    add_and_read(fresh(0, INT64_MAX / 2), "disk is nearly full", 0, 0);

    /* A process may have a limit of file sizes, beyond which the system sends a fatal signal. */
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit low = {300 << 10, before.rlim_max};
    ckpt_spool *const limited = fresh_spool();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    add_and_read(limited, "RLIMIT_FSIZE", 5000, 49999);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* The program may change the folder: removed files stay removed, replaced ones are not written. */
static void a_file_that_is_not_ours_any_more_is_left_alone(void **unused)
{
    (void)unused;
    ckpt_err err = {.msg = ""};
    const ckpt_activity one = {.name = "k"};
    ckpt_spool *spool = fresh_spool();
    ckpt_spool_flush(spool);
    assert_int_equal(unlink(path), 0);
    ckpt_spool_add(spool, &one);
    ckpt_spool_flush(spool);
    assert_int_not_equal(access(path, F_OK), 0);
    ckpt_spool_destroy(spool);

    spool = fresh_spool();
    ckpt_spool_flush(spool);
    write_file("theirs", 6); /* another file of that name */
    ckpt_spool_add(spool, &one);
    ckpt_spool_flush(spool);
    assert_int_equal(size_of_file(), 6);
    ckpt_spool_destroy(spool);

    /* The same process after an exec gets a new file. */
    ckpt_spool *second = NULL;
    const ckpt_spool_options options = {folder, "again", 0, 1};
    spool = fresh_spool();
    const int64_t head = size_of_file();
    CHECK_OK(ckpt_spool_create(&options, &second, &err), err);
    ckpt_spool_add(second, &one);
    ckpt_spool_flush(second);
    assert_int_equal(size_of_file(), head);
    ckpt_spool_destroy(second);
    ckpt_spool_destroy(spool);

    const ckpt_spool_options nowhere = {ckpt_work_file("no/such/folder"), "p", 0, 1};
    assert_int_equal(ckpt_spool_create(&nowhere, &second, &err), CKPT_IO);
    CHECK(strstr(err.msg, "no/such/folder") != NULL, "%s", err.msg);
}

static void ignore(const char *line)
{
    (void)line;
}

static ckpt_code starve_create(void *context, ckpt_err *err)
{
    ckpt_spool *spool = NULL;
    const ckpt_spool_options *const options = context;
    CKPT_TRY(ckpt_spool_create(options, &spool, err));
    ckpt_spool_destroy(spool);
    return CKPT_OK;
}

static ckpt_code starve_read(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    ckpt_spool_content content;
    ckpt_activity_summary summary;
    ckpt_trace *trace = NULL;
    ckpt_code code = ckpt_spool_read(path, arena, &content, err);
    if (code == CKPT_OK) {
        code = ckpt_activity_trace(content.activity, content.count, "starved", arena, &trace, &summary, err);
    }
    return code;
}

static void too_little_memory(void **unused)
{
    (void)unused;
    ckpt_spool_options options = {folder, "p", 0, 1};
    ckpt_spool *const spool = fresh_spool();
    ckpt_memory_fail_after(0); /* a writer without memory goes on and writes names repeatedly */
    for (int i = 0; i < 300; i++) {
        ckpt_activity one = random_activity(i % 2 == 0 ? "kernel" : "another");
        one.address &= INT64_MAX;
        ckpt_spool_add(spool, &one);
    }
    ckpt_spool_flush(spool);
    ckpt_memory_fail_after(-1);
    ckpt_spool_destroy(spool);
    assert_true(ckpt_test_starve_arena(starve_read, NULL) > 2);
    assert_true(ckpt_test_starve(starve_create, &options) >= 2);
}

/* ckpt_command_record with a command that leaves the spool at `path`. */
static ckpt_code starve_command(void *context, ckpt_err *err)
{
    const ckpt_command *const command = context;
    bool ran = false;
    int exit_code = -1;
    unlink(command->output);
    const ckpt_code code = ckpt_command_record(command, ignore, &ran, &exit_code, err);
    CHECK(ran == (exit_code == 3), "ran %d, exit code %d", (int)ran, exit_code);
    CHECK((access(command->output, F_OK) == 0) == (code == CKPT_OK), "code %d, and the output is (not) there",
          (int)code);
    return code;
}

static void too_little_memory_hides_no_exit_code(void **unused)
{
    (void)unused;
    char copy[sizeof path + 80];
    char *argv[] = {"sh", "-c", copy, NULL};
    const ckpt_command command = {argv, ckpt_work_file("spools/starved.json"),
                                  ckpt_bin_file("../lib/libckpt_inject.so"), 1, argv};
    ckpt_spool *const spool = fresh_spool();
    for (int i = 0; i < 20; i++) {
        ckpt_activity one = random_activity("kernel");
        one.address &= INT64_MAX;
        ckpt_spool_add(spool, &one);
    }
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
    snprintf(copy, sizeof copy, "cp %s $CKPT_INJECT_SPOOL/1-0.spool; exit 3", path);
    if (access(command.library, R_OK) != 0) {
        skip(); /* a build without CUPTI */
    }
    assert_true(ckpt_test_starve(starve_command, (void *)&command) > 10);
}

static bool told_what_is_missing;

static void look_for_missing(const char *line)
{
    told_what_is_missing =
        told_what_is_missing || (strstr(line, "only the first 1") != NULL &&
                                 strstr(line, " us are recorded: its file reached the limit") != NULL);
}

static void a_recording_that_stopped_says_how_long_it_is(void **unused)
{
    (void)unused;
    char copy[sizeof path + 80];
    char *argv[] = {"sh", "-c", copy, NULL};
    const ckpt_command command = {argv, ckpt_work_file("spools/part.json"), ckpt_bin_file("../lib/libckpt_inject.so"),
                                  1, argv};
    ckpt_err err = {.msg = ""};
    bool ran = false;
    int exit_code = -1;
    if (access(command.library, R_OK) != 0) {
        skip(); /* a build without CUPTI */
    }
    add_and_read(fresh(300 << 10, 1), "reached the limit", 10000, 19999); /* 1 ns apart */
    snprintf(copy, sizeof copy, "cp %s $CKPT_INJECT_SPOOL/1-0.spool", path);
    CHECK_OK(ckpt_command_record(&command, look_for_missing, &ran, &exit_code, &err), err);
    assert_true(told_what_is_missing);
}

/* --- Traces ----------------------------------------------------------------------------------------------------- */

enum { CALLS = 120, RANGES = 60, LAYER = 4000 };

typedef struct story {
    ckpt_activity activity[4 * CALLS + RANGES];
    int count;
    char name[4 * CALLS + RANGES][16];
} story;

static ckpt_activity *add(story *s, ckpt_activity_kind kind, ckpt_ns start, ckpt_ns end)
{
    ckpt_activity *const one = &s->activity[s->count];
    snprintf(s->name[s->count], sizeof s->name[0], "%s%d", ckpt_activity_kind_name(kind), s->count);
    *one = (ckpt_activity){.kind = kind, .name = s->name[s->count], .start_ns = start, .end_ns = end};
    s->count++;
    return one;
}

/* Threads that open ranges and make calls. Most calls start work, some of it on another device; some start nothing.
 * Ranges of a thread may overlap without nesting (started and ended), begin and end with calls, or be empty. */
static void tell_story(story *s)
{
    s->count = 0;
    const uint64_t devices = 1 + draw(2), times = draw(2) == 0 ? 30 : 100000;
    for (int i = 0; i < RANGES; i++) {
        const ckpt_ns start = (ckpt_ns)draw(times);
        add(s, CKPT_ACTIVITY_RANGE, start, start + (ckpt_ns)draw(times / 3))->thread = (uint32_t)draw(3);
    }
    for (int i = 0; i < CALLS; i++) {
        static const ckpt_activity_kind starts[] = {CKPT_ACTIVITY_KERNEL, CKPT_ACTIVITY_KERNEL, CKPT_ACTIVITY_COPY,
                                                    CKPT_ACTIVITY_FILL, CKPT_ACTIVITY_ALLOCATE};
        const ckpt_ns start = (ckpt_ns)draw(times);
        const uint32_t correlation = (uint32_t)(1 + i) * UINT32_C(2654435761); /* no two alike */
        ckpt_activity *const call = add(s, CKPT_ACTIVITY_CALL, start, start + 2);
        call->thread = (uint32_t)draw(3);
        call->correlation = correlation;
        for (uint64_t k = draw(3); k > 0; k--) {
            const ckpt_ns from = (ckpt_ns)(draw(times) + (uint64_t)start);
            ckpt_activity *const one = add(s, starts[draw(5)], from, from + (ckpt_ns)draw(50));
            one->correlation = draw(9) > 0 ? correlation : 0;
            one->device = (uint32_t)draw(devices);
            one->stream = (uint32_t)draw(4);
            one->way = (ckpt_copy_way)draw(4);
            one->bytes = 1000 + s->count; /* tells them apart */
            one->address = (uint64_t)s->count << 20;
        }
    }
    for (int i = s->count - 1; i > 0; i--) { /* in any order */
        const int other = (int)draw((uint64_t)i + 1);
        const ckpt_activity kept = s->activity[i];
        s->activity[i] = s->activity[other];
        s->activity[other] = kept;
    }
}

/* The ranges around the call that started `one`, by testing every range. */
static void plain_layer(const story *s, const ckpt_activity *one, char *layer)
{
    const ckpt_activity *call = NULL;
    const ckpt_activity *around[RANGES];
    int count = 0;
    layer[0] = '\0';
    for (int i = 0; i < s->count && one->correlation != 0; i++) {
        if (s->activity[i].kind == CKPT_ACTIVITY_CALL && s->activity[i].correlation == one->correlation) {
            call = &s->activity[i];
        }
    }
    for (int i = 0; i < s->count && call != NULL; i++) {
        const ckpt_activity *const range = &s->activity[i];
        if (range->kind == CKPT_ACTIVITY_RANGE && range->thread == call->thread && range->start_ns <= call->start_ns &&
            call->start_ns < range->end_ns) {
            around[count++] = range;
        }
    }
    for (int left = count; left > 0; left--) { /* the one that began first; of two, the one that ends last */
        const ckpt_activity **first = NULL;
        for (int i = 0; i < count; i++) {
            if (around[i] != NULL && (first == NULL || around[i]->start_ns < (*first)->start_ns ||
                                      (around[i]->start_ns == (*first)->start_ns &&
                                       (around[i]->end_ns > (*first)->end_ns ||
                                        (around[i]->end_ns == (*first)->end_ns && around[i] < *first))))) {
                first = &around[i];
            }
        }
        snprintf(layer + strlen(layer), LAYER - strlen(layer), "%s%s", layer[0] != '\0' ? "/" : "", (*first)->name);
        *first = NULL;
    }
}

static void plain_stream(const ckpt_activity *one, int devices, char stream[32])
{
    const bool copy = one->kind == CKPT_ACTIVITY_COPY;
    char gpu[16] = "", lane[16];
    snprintf(gpu, sizeof gpu, "gpu %u ", one->device);
    snprintf(lane, sizeof lane, "stream %u", one->stream);
    snprintf(stream, 32, "%s%s", devices > 1 ? gpu : "",
             copy && one->way == CKPT_COPY_TO_HOST     ? "d2h"
             : copy && one->way == CKPT_COPY_TO_DEVICE ? "h2d"
                                                       : lane);
}

/* The event of an activity, found by its bytes, or a kernel's by its name. */
static const ckpt_event *event_of(const ckpt_trace *trace, const ckpt_activity *one)
{
    const ckpt_event *found = NULL;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        if (one->kind == CKPT_ACTIVITY_KERNEL ? strcmp(event->name, one->name) == 0 : event->size_bytes == one->bytes) {
            assert_null(found);
            found = event;
        }
    }
    return found;
}

static void check_event(const story *s, const ckpt_trace *trace, const ckpt_activity *one, ckpt_ns first, int devices)
{
    char layer[LAYER], stream[32];
    const ckpt_event *const event = event_of(trace, one);
    CHECK(event != NULL, "no event of %s", one->name);
    plain_layer(s, one, layer);
    plain_stream(one, devices, stream);
    const bool instant = one->kind == CKPT_ACTIVITY_ALLOCATE;
    CHECK(strcmp(event->layer, layer) == 0, "%s: layer \"%s\", wanted \"%s\"", one->name, event->layer, layer);
    CHECK(strcmp(event->stream, stream) == 0, "%s: stream \"%s\", wanted \"%s\"", one->name, event->stream, stream);
    assert_int_equal(event->start_ns, one->start_ns - first);
    assert_int_equal(event->end_ns, (instant ? one->start_ns : one->end_ns) - first);
    assert_int_equal(event->span, one->kind == CKPT_ACTIVITY_COPY       ? CKPT_SPAN_COPY
                                  : one->kind == CKPT_ACTIVITY_ALLOCATE ? CKPT_SPAN_ALLOCATE
                                                                        : CKPT_SPAN_OTHER);
    assert_int_equal(event->address, instant ? (int64_t)one->address : 0);
}

static void traces_are_what_plain_recomputation_says(void **unused)
{
    (void)unused;
    const uint64_t rounds = ckpt_test_rounds(200, 40);
    static story s;
    for (uint64_t round = 0; round < rounds; round++) {
        state = round + 1;
        tell_story(&s);
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {.msg = ""};
        ckpt_trace *trace = NULL;
        ckpt_activity_summary summary;
        CHECK(ckpt_activity_trace(s.activity, s.count, "story", &arena, &trace, &summary, &err) == CKPT_OK,
              "seed %llu: %s", (unsigned long long)state, err.msg);
        int events = 0;
        bool seen[2] = {false};
        int64_t live = 0;
        ckpt_ns first = INT64_MAX;
        for (int i = 0; i < s.count; i++) {
            const ckpt_activity *const one = &s.activity[i];
            if (one->kind <= CKPT_ACTIVITY_RELEASE) {
                events++;
                seen[one->device] = true;
                first = one->start_ns < first ? one->start_ns : first;
                live += one->kind == CKPT_ACTIVITY_ALLOCATE ? one->bytes : 0;
            }
        }
        assert_int_equal(trace->event_count, events);
        assert_int_equal(summary.kernels + summary.copies + summary.fills + summary.allocations, events);
        assert_int_equal(summary.other, s.count - events);
        assert_int_equal(summary.devices, seen[0] + seen[1]);
        assert_int_equal(trace->peak_bytes, live); /* nothing is released here */
        assert_string_equal(trace->name, "story");
        for (int i = 0; i < s.count; i++) {
            if (s.activity[i].kind <= CKPT_ACTIVITY_RELEASE) {
                check_event(&s, trace, &s.activity[i], first, summary.devices);
            }
        }
    }
}

static void memory_comes_and_goes(void **unused)
{
    (void)unused;
    const ckpt_activity table[] = {
        {.kind = CKPT_ACTIVITY_RELEASE, .name = "", .start_ns = 5, .end_ns = 5, .address = 7, .bytes = 1},
        {.kind = CKPT_ACTIVITY_CALL, .name = "cudaMalloc", .start_ns = 9, .end_ns = 11, .correlation = 1},
        {.kind = CKPT_ACTIVITY_ALLOCATE,
         .name = "",
         .start_ns = 10,
         .end_ns = 10,
         .address = 64,
         .bytes = 100,
         .correlation = 1},
        {.kind = CKPT_ACTIVITY_ALLOCATE, .name = "", .start_ns = 20, .end_ns = 20, .address = 512, .bytes = 50},
        {.kind = CKPT_ACTIVITY_RELEASE, .name = "", .start_ns = 30, .end_ns = 30, .address = 64, .bytes = 100},
        {.kind = CKPT_ACTIVITY_OVERHEAD, .name = "", .start_ns = 30, .end_ns = 35},
        {.kind = CKPT_ACTIVITY_MARK, .name = "here", .start_ns = 31, .end_ns = 31},
        {.kind = CKPT_ACTIVITY_ALLOCATE, .name = "", .start_ns = 40, .end_ns = 40, .address = 64, .bytes = 20},
    };
    static const struct {
        const char *name;
        ckpt_span span;
        ckpt_bytes live;
    } wanted[] = {{"cudaMalloc", CKPT_SPAN_ALLOCATE, 100},
                  {"allocate", CKPT_SPAN_ALLOCATE, 150},
                  {"free", CKPT_SPAN_FREE, 50},
                  {"allocate", CKPT_SPAN_ALLOCATE, 70}};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {.msg = ""};
    ckpt_trace *trace = NULL;
    ckpt_activity_summary summary;
    CHECK_OK(ckpt_activity_trace(table, sizeof table / sizeof *table, "memory", &arena, &trace, &summary, &err), err);
    assert_int_equal(trace->event_count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(trace->event[i].name, wanted[i].name);
        assert_int_equal(trace->event[i].span, wanted[i].span);
        assert_int_equal(trace->event[i].bytes[CKPT_CAT_OTHER], wanted[i].live);
    }
    assert_int_equal(trace->event[2].size_bytes, 100);
    assert_int_equal(trace->peak_bytes, 150);
    assert_int_equal(summary.timeline.unknown_frees, 1);
    assert_int_equal(summary.overhead_ns, 5);
    assert_int_equal(summary.allocations, 3);
    assert_int_equal(summary.releases, 2);
}

static void names_are_read_as_written(void **unused)
{
    (void)unused;
    static const char *const table[][2] = {
        {"_Z4gemmIfEvi", "void gemm<float>(int)"},
        {"_ZN2at6native4copyEPKfl", "at::native::copy(float const*, long)"},
        {"_Znonsense of nobody", "_Znonsense of nobody"},
        {"sm90_xmma_gemm_f32", "sm90_xmma_gemm_f32"},
        {"", ""},
    };
    CKPT_TEST_ARENA(arena);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ckpt_err err = {.msg = ""};
        ckpt_trace *trace = NULL;
        ckpt_activity_summary summary;
        const ckpt_activity kernel = {.kind = CKPT_ACTIVITY_KERNEL, .name = table[i][0]};
        CHECK_OK(ckpt_activity_trace(&kernel, 1, "names", &arena, &trace, &summary, &err), err);
        const char *const name = trace->event[0].name;
        if (ckpt_demangle(table[0][0], &arena) != table[0][0]) { /* else there is no libstdc++ */
            assert_string_equal(name, table[i][1]);
        } else {
            assert_string_equal(name, table[i][0]);
        }
    }
}

/* At most 64 nested ranges, none of them twice. */
static void deep_ranges_are_cut(void **unused)
{
    (void)unused;
    enum { DEEP = 200 };
    ckpt_activity table[DEEP + 2];
    for (int i = 0; i < DEEP; i++) {
        table[i] = (ckpt_activity){.kind = CKPT_ACTIVITY_RANGE, .name = "r", .start_ns = i, .end_ns = 1000 - i};
    }
    table[DEEP] = (ckpt_activity){.kind = CKPT_ACTIVITY_CALL, .name = "launch", .start_ns = 500, .correlation = 3};
    table[DEEP + 1] =
        (ckpt_activity){.kind = CKPT_ACTIVITY_KERNEL, .name = "k", .start_ns = 501, .end_ns = 502, .correlation = 3};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {.msg = ""};
    ckpt_trace *trace = NULL;
    ckpt_activity_summary summary;
    CHECK_OK(ckpt_activity_trace(table, DEEP + 2, "deep", &arena, &trace, &summary, &err), err);
    assert_int_equal(strlen(trace->event[0].layer), 2 * 64 - 1);
    CHECK_OK(ckpt_activity_trace(NULL, 0, "empty", &arena, &trace, &summary, &err), err);
    assert_int_equal(trace->event_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(names_may_be_many_and_long),
        cmocka_unit_test(a_cut_file_gives_what_is_whole),
        cmocka_unit_test(what_no_writer_writes_is_refused),
        cmocka_unit_test(a_broken_byte_does_no_harm),
        cmocka_unit_test(recording_stops_where_there_is_no_room),
        cmocka_unit_test(a_file_that_is_not_ours_any_more_is_left_alone),
        cmocka_unit_test(too_little_memory),
        cmocka_unit_test(too_little_memory_hides_no_exit_code),
        cmocka_unit_test(a_recording_that_stopped_says_how_long_it_is),
        cmocka_unit_test(traces_are_what_plain_recomputation_says),
        cmocka_unit_test(memory_comes_and_goes),
        cmocka_unit_test(names_are_read_as_written),
        cmocka_unit_test(deep_ranges_are_cut),
    };
    folder = ckpt_work_file("spools");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
