/* labels: unit */
/* Good files, damaged at random: every reader must refuse or accept them, with a placed one-line message, without a
 * crash or a leak. The seed is printed; a first argument replaces it. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"

enum { MUTANTS = 3000, ROOM = 1 << 16 };

static void check_mutant(const ckpt_test_format *format, const char *path, int number, int *accepted)
{
    ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_text text;
    ckpt_arena_init(&arena);
    ckpt_text_init(&text);
    const ckpt_code code =
        format->rewrite != NULL ? format->rewrite(path, &arena, &text, &err) : format->read(path, &arena, &err);
    if (code == CKPT_OK) {
        (*accepted)++;
        if (format->rewrite != NULL) { /* what is written of an accepted file must be acceptable */
            const char *const recomputed = ckpt_test_file("fuzz_again.json", text.bytes, text.length);
            const ckpt_code second = format->read(recomputed, &arena, &err);
            CHECK(second == CKPT_OK, "%s mutant %d: was read, but not what was written of it: %s", format->kind, number,
                  err.msg);
        }
    } else {
        CHECK(code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "%s mutant %d: code %d: %s", format->kind, number,
              (int)code, err.msg);
        int line = 0;
        int column = 0;
        const char *const allocation = strstr(err.msg, "fuzz.json:");
        CHECK(allocation != NULL && sscanf(allocation, "fuzz.json:%d:%d: ", &line, &column) == 2 && line > 0 &&
                  column > 0,
              "%s mutant %d: no place: %s", format->kind, number, err.msg);
        CHECK(strpbrk(err.msg, "\n\r") == NULL, "%s mutant %d: more than one line", format->kind, number);
    }
    ckpt_text_fini(&text);
    ckpt_arena_fini(&arena);
    CHECK(ckpt_memory_live() == 0, "%s mutant %d: leaks", format->kind, number);
}

static void test_damaged_files_never_crash(void **state)
{
    static char mutant[ROOM];
    for (const ckpt_test_format *f = ckpt_test_formats; f->kind != NULL; f++) {
        char path[400];
        ckpt_arena arena;
        ckpt_err err = {0};
        const char *good = NULL;
        size_t length = 0;
        int accepted = 0;
        snprintf(path, sizeof path, "%s/tests/malformed/good/%s.json", ckpt_source_dir(), f->kind);
        ckpt_arena_init(&arena);
        CHECK_OK(ckpt_file_read(path, &arena, &good, &length, &err), err);
        char *const kept = malloc(length); /* outside our memory, so that leaks are counted from zero */
        assert_non_null(kept);
        memcpy(kept, good, length);
        ckpt_arena_fini(&arena);
        for (int i = 0; i < MUTANTS; i++) {
            memcpy(mutant, kept, length);
            const size_t bytes = ckpt_test_damage(mutant, length, ROOM);
            char file[512];
            snprintf(file, sizeof file, "%s", ckpt_test_file("fuzz.json", mutant, bytes));
            check_mutant(f, file, i, &accepted);
        }
        free(kept);
        printf("%s: %d of %d mutants accepted\n", f->kind, accepted, MUTANTS);
        CHECK(accepted < MUTANTS / 2, "%s: most damage goes unnoticed", f->kind);
    }
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged_files_never_crash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
