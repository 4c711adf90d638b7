/* labels: unit */
/* Every file of tests/malformed is refused with the message that expected.txt gives it, placed to the column. */
#include "tests/support/support_core.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 512, FILES_MAX = 400 };

typedef struct expectation {
    char file[80];
    char message[LINE_MAX_BYTES];
} expectation;

static expectation expected[FILES_MAX];
static int expected_count;

static int read_expected(void **state)
{
    FILE *const file = fopen("expected.txt", "r");
    char line[LINE_MAX_BYTES];
    if (file == NULL) {
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL && expected_count < FILES_MAX) {
        line[strcspn(line, "\n")] = '\0';
        char *const tab = strchr(line, '\t');
        if (line[0] != '#' && tab != NULL && tab - line < (int)sizeof expected[0].file) {
            expectation *const e = &expected[expected_count++];
            memcpy(e->file, line, (size_t)(tab - line));
            snprintf(e->message, sizeof e->message, "%s", tab + 1);
        }
    }
    return fclose(file);
}

static void test_each_is_refused_with_its_place(void **state)
{
    for (int i = 0; i < expected_count; i++) {
        const expectation *const e = &expected[i];
        const ckpt_test_format *const format = ckpt_test_format_of(e->file);
        CHECK(format != NULL, "%s: of no kind", e->file);
        ckpt_arena arena;
        ckpt_err err = {0};
        ckpt_arena_init(&arena);
        const ckpt_code code = format->read(e->file, &arena, &err);
        ckpt_arena_fini(&arena);
        CHECK(code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "%s: code %d", e->file, (int)code);
        CHECK(err.code == code, "%s: the record says code %d", e->file, (int)err.code);
        CHECK(ckpt_exit_code(code) == 2, "%s: exit code %d", e->file, ckpt_exit_code(code));
        char wanted[LINE_MAX_BYTES + 100];
        snprintf(wanted, sizeof wanted, "%.79s:%.511s", e->file, e->message);
        CHECK(strncmp(err.msg, wanted, strlen(wanted)) == 0, "\"%s\", wanted \"%s\"", err.msg, wanted);
        int line = 0;
        int column = 0;
        CHECK(sscanf(e->message, "%d:%d: ", &line, &column) == 2 && line > 0 && column > 0, "%s: no place expected",
              e->file);
        CHECK(strpbrk(err.msg, "\n\r") == NULL, "%s: more than one line", e->file);
        CHECK(ckpt_memory_live() == 0, "%s: leaks", e->file);
    }
}

/* The message must not depend on there being a record to write it to. */
static void test_no_record_is_fine(void **state)
{
    for (int i = 0; i < expected_count; i++) {
        ckpt_arena arena;
        ckpt_arena_init(&arena);
        const ckpt_code code = ckpt_test_format_of(expected[i].file)->read(expected[i].file, &arena, NULL);
        ckpt_arena_fini(&arena);
        CHECK(code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "%s: code %d", expected[i].file, (int)code);
    }
}

static bool is_expected(const char *path)
{
    for (int i = 0; i < expected_count; i++) {
        if (strcmp(expected[i].file, path) == 0) {
            return true;
        }
    }
    return false;
}

static void test_every_file_is_expected_and_they_are_many(void **state)
{
    int files = 0;
    int of_users = 0; /* models, profiles, plans */
    for (const ckpt_test_format *f = ckpt_test_formats; f->kind != NULL; f++) {
        DIR *const folder = opendir(f->kind);
        CHECK(folder != NULL, "no folder %s", f->kind);
        for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            char path[400];
            if (entry->d_name[0] == '.') {
                continue;
            }
            snprintf(path, sizeof path, "%s/%s", f->kind, entry->d_name);
            CHECK(is_expected(path), "%s is not in expected.txt", path);
            files++;
            of_users += strcmp(f->kind, "graph") != 0 && strcmp(f->kind, "trace") != 0;
        }
        closedir(folder);
    }
    assert_int_equal(files, expected_count);
    CHECK(of_users >= 60, "only %d malformed models, profiles and plans", of_users);
}

static void test_good_files_are_read(void **state)
{
    for (const ckpt_test_format *f = ckpt_test_formats; f->kind != NULL; f++) {
        char path[80];
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        snprintf(path, sizeof path, "good/%s.json", f->kind);
        CHECK_OK(f->read(path, &arena, &err), err);
    }
}

int main(void)
{
    if (chdir(ckpt_source_file("tests/malformed")) != 0) {
        perror(ckpt_source_file("tests/malformed"));
        return EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_refused_with_its_place),
        cmocka_unit_test(test_no_record_is_fine),
        cmocka_unit_test(test_every_file_is_expected_and_they_are_many),
        cmocka_unit_test(test_good_files_are_read),
    };
    return cmocka_run_group_tests(tests, read_expected, NULL);
}
