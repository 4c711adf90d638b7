/* labels: unit */
/* A digest of the data is of their contents: whatever the files are called, however many threads hash them and in which order
 * they are named; a stamp changes with every touch of a file. */
#include "tests/support/support_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/data/data.h"
#include "tests/support/support_network.h"

static const int64_t limit[] = {256, 256};

static void write_all(const char *path, const void *bytes, size_t length)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(bytes, 1, length, file) == length);
    fclose(file);
}

/* Opens, hashes by `threads` and closes; gives the identity with its digest. */
static ckpt_data_identity identify(const char *what, const ckpt_model *model, int threads)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    CHECK_OK(ckpt_data_open(what, model, limit, 7, &data, &err), err);
    ckpt_data_identity found = *ckpt_data_identify(data);
    assert_string_equal(found.digest, "");
    CHECK_OK(ckpt_data_digest(data, threads, NULL, found.digest, &err), err);
    ckpt_data_close(data);
    return found;
}

static const char *named(const char *format, const char *name)
{
    static char text[4][700];
    static int next;
    char *const mine = text[next++ % 4];
    snprintf(mine, sizeof text[0], format, ckpt_work_file(name));
    return mine;
}

/* As the declaration says it, of one file. */
static void plainly(const unsigned char *bytes, size_t length, char digest[CKPT_DIGEST_TEXT])
{
    static char line[100][CKPT_DIGEST_TEXT];
    size_t count = 0;
    for (size_t at = 0; at < length; at += 1 << 16) {
        const size_t left = length - at;
        ckpt_digest_once(bytes + at, left < 1 << 16 ? left : 1 << 16, line[count]);
        line[count++][CKPT_DIGEST_TEXT - 1] = '\n';
    }
    ckpt_digest_once(line, count * CKPT_DIGEST_TEXT, digest);
    memcpy(line[0], digest, CKPT_DIGEST_TEXT - 1);
    ckpt_digest_once(line[0], CKPT_DIGEST_TEXT, digest);
}

static void a_digest_is_of_contents(void **state)
{
    static unsigned char bytes[3 << 16];
    test_model m;
    char wanted[CKPT_DIGEST_TEXT];
    test_model_init(&m);
    test_input(&m, "x", CKPT_INT32, 2, (int64_t[]){2, 8});
    test_input(&m, "y", CKPT_INT32, 2, (int64_t[]){2, 8});
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * i >> 7);
    }
    const size_t lengths[] = {9, 65535, 65536, 65537, sizeof bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_all(ckpt_work_file("a.txt"), bytes, lengths[i]);
        write_all(ckpt_work_file("b.txt"), bytes, lengths[i]);
        plainly(bytes, lengths[i], wanted);
        for (int threads = 1; threads < 4; threads++) {
            assert_string_equal(identify(named("text:%s", "a.txt"), &m.model, threads).digest, wanted);
        }
        assert_string_equal(identify(named("text:%s", "b.txt"), &m.model, 2).digest, wanted);
        bytes[lengths[i] - 1] ^= 1;
        write_all(ckpt_work_file("b.txt"), bytes, lengths[i]);
        assert_string_not_equal(identify(named("text:%s", "b.txt"), &m.model, 2).digest, wanted);
    }
    const ckpt_data_identity none = identify("synthetic", &m.model, 2);
    CHECK(none.digest[0] == '\0' && none.stamp[0] == '\0', "synthetic data have \"%s\", \"%s\"", none.digest,
          none.stamp);
    test_model_fini(&m);
}

#define NPY(type, shape) "\x93NUMPY\1\0\x3f\0{'descr': '" type "', 'fortran_order': False, 'shape': (" shape "), }\n"

/* Arrays are told apart by the inputs that they fill. */
static void arrays_count_in_the_order_of_inputs(void **state)
{
    static const char one[] = NPY("<i4", "2,     ") "\1\0\0\0\2\0\0\0",
                      two[] = NPY("<i4", "2,     ") "\3\0\0\0\4\0\0\0";
    char text[2][1200];
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_INT32, 1, (int64_t[]){2});
    test_input(&m, "y", CKPT_INT32, 1, (int64_t[]){2});
    write_all(ckpt_work_file("one.npy"), one, sizeof one - 1);
    write_all(ckpt_work_file("two.npy"), two, sizeof two - 1);
    const char *const a = named("%s", "one.npy"), *const b = named("%s", "two.npy");
    snprintf(text[0], sizeof text[0], "arrays:x=%s,y=%s", a, b);
    const ckpt_data_identity as_named = identify(text[0], &m.model, 2);
    snprintf(text[1], sizeof text[1], "arrays:y=%s,x=%s", b, a);
    assert_string_equal(identify(text[1], &m.model, 2).digest, as_named.digest);
    snprintf(text[1], sizeof text[1], "arrays:x=%s,y=%s", b, a);
    assert_string_not_equal(identify(text[1], &m.model, 2).digest, as_named.digest);
    test_model_fini(&m);
}

/* Where pictures lie says their class. */
static void pictures_count_with_their_classes(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "image", CKPT_FLOAT32, 4, (int64_t[]){1, 3, 8, 8});
    test_input(&m, "labels", CKPT_INT32, 1, (int64_t[]){1});
    mkdir(ckpt_work_file("pictures"), 0777);
    mkdir(ckpt_work_file("pictures/a"), 0777);
    mkdir(ckpt_work_file("pictures/b"), 0777);
    write_all(ckpt_work_file("pictures/a/1.png"), "first", 5); /* contents are looked at in batches alone */
    write_all(ckpt_work_file("pictures/a/2.png"), "second", 6);
    write_all(ckpt_work_file("pictures/b/1.png"), "third", 5);
    remove(ckpt_work_file("pictures/b/0.png"));
    const ckpt_data_identity before = identify(named("images:%s", "pictures"), &m.model, 1);
    assert_string_equal(identify(named("images:%s", "pictures"), &m.model, 3).digest, before.digest);
    char from[700];
    snprintf(from, sizeof from, "%s", ckpt_work_file("pictures/a/2.png"));
    assert_int_equal(rename(from, ckpt_work_file("pictures/b/0.png")), 0); /* the same order, another class */
    assert_string_not_equal(identify(named("images:%s", "pictures"), &m.model, 3).digest, before.digest);
    test_model_fini(&m);
}

static void a_stamp_changes_with_every_touch(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_INT32, 2, (int64_t[]){2, 8});
    write_all(ckpt_work_file("touched.txt"), "so many bytes it has", 20);
    const ckpt_data_identity before = identify(named("text:%s", "touched.txt"), &m.model, 1);
    assert_string_equal(identify(named("text:%s", "touched.txt"), &m.model, 1).stamp, before.stamp);
    const struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 1}, {.tv_sec = 1000, .tv_nsec = 2}};
    assert_int_equal(utimensat(AT_FDCWD, ckpt_work_file("touched.txt"), times, 0), 0);
    const ckpt_data_identity after = identify(named("text:%s", "touched.txt"), &m.model, 1);
    assert_string_not_equal(after.stamp, before.stamp);
    assert_string_equal(after.digest, before.digest);
    assert_string_equal(after.about, before.about);
    test_model_fini(&m);
}

static int shown;

static void show(ckpt_bytes done, ckpt_bytes all)
{
    shown++;
    assert_true(done > 0 && done < all);
}

static bool stop(void)
{
    return shown == 2;
}

/* More than is hashed at once: how far it is can be seen, and it can be stopped. */
static void a_long_digest_can_be_stopped(void **state)
{
    const char *const path = ckpt_work_file("long.txt");
    test_model m;
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    char digest[CKPT_DIGEST_TEXT] = "untouched";
    test_model_init(&m);
    test_input(&m, "x", CKPT_INT32, 2, (int64_t[]){2, 8});
    write_all(path, "", 0);
    assert_int_equal(truncate(path, (off_t)3 << 26), 0); /* zeros that take no room on the disk */
    CHECK_OK(ckpt_data_open(named("text:%s", "long.txt"), &m.model, limit, 7, &data, &err), err);
    const ckpt_data_watch watch = {.progress = show, .stopped = stop};
    assert_int_equal(ckpt_data_digest(data, 2, &watch, digest, &err), CKPT_INTERRUPTED);
    assert_string_equal(digest, "untouched");
    assert_int_equal(shown, 2);
    ckpt_data_close(data);
    remove(path);
    test_model_fini(&m);
}

static const ckpt_data *opened;

static ckpt_code digest_once(void *context, ckpt_err *err)
{
    char digest[CKPT_DIGEST_TEXT];
    (void)context;
    return ckpt_data_digest(opened, 1, NULL, digest, err);
}

static void a_digest_without_memory(void **state)
{
    const char *const what[] = {named("text:%s", "starved.txt"), named("images:%s", "starved")};
    test_model m[2];
    ckpt_err err = {0};
    write_all(ckpt_work_file("starved.txt"), "so many bytes it has", 20);
    mkdir(ckpt_work_file("starved"), 0777);
    mkdir(ckpt_work_file("starved/a"), 0777);
    write_all(ckpt_work_file("starved/a/1.png"), "first", 5);
    test_model_init(&m[0]);
    test_input(&m[0], "x", CKPT_INT32, 2, (int64_t[]){2, 8});
    test_model_init(&m[1]);
    test_input(&m[1], "image", CKPT_FLOAT32, 4, (int64_t[]){1, 3, 8, 8});
    for (int i = 0; i < 2; i++) {
        ckpt_data *data = NULL;
        CHECK_OK(ckpt_data_open(what[i], &m[i].model, limit, 7, &data, &err), err);
        opened = data;
        assert_true(ckpt_test_starve(digest_once, NULL) >= 3);
        ckpt_data_close(data);
        test_model_fini(&m[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_is_of_contents),           cmocka_unit_test(arrays_count_in_the_order_of_inputs),
        cmocka_unit_test(pictures_count_with_their_classes), cmocka_unit_test(a_stamp_changes_with_every_touch),
        cmocka_unit_test(a_long_digest_can_be_stopped),      cmocka_unit_test(a_digest_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
