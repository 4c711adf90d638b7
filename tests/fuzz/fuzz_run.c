/* What must hold for every input: it is read, or refused on one line that says where; nothing leaks; what is written of
 * it is read again, and then written the same. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "tests/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/support_core.h"

/* A file in memory alone, which others open by its path. */
typedef struct memory_file {
    int fd;
    char path[32];
} memory_file;

static memory_file input, again;

int64_t fuzz_accepted;
const char *fuzz_refusal;

void fuzz_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", fuzz_the_reader.name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

static const char *write_file(memory_file *file, const void *bytes, size_t size)
{
    if (file->path[0] == '\0') {
        file->fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
    }
    /* Its pages are kept from input to input. */
    FUZZ_CHECK(pwrite(file->fd, bytes, size, 0) == (ssize_t)size && ftruncate(file->fd, (off_t)size) == 0,
               "cannot write %s", file->path);
    return file->path;
}

const char *fuzz_file(int k, const void *bytes, size_t size)
{
    static memory_file files[2];
    return write_file(&files[k], bytes, size);
}

static void check_refusal(ckpt_code code, const ckpt_err *err)
{
    int line = 0, column = 0;
    FUZZ_CHECK(code == CKPT_BAD_INPUT || code == CKPT_OVERFLOW, "code %d: %s", (int)code, err->msg);
    FUZZ_CHECK(err->code == code, "code %d, and the record says %d", (int)code, (int)err->code);
    FUZZ_CHECK(err->msg[0] != '\0', "no message");
    for (const char *c = err->msg; *c != '\0'; c++) {
        FUZZ_CHECK((unsigned char)*c >= 0x20, "a control character in: %s", err->msg);
    }
    if (fuzz_the_reader.placed) {
        const char *const place = strstr(err->msg, input.path);
        FUZZ_CHECK(place != NULL && sscanf(place + strlen(input.path), ":%d:%d: ", &line, &column) == 2 && line > 0 &&
                       column > 0,
                   "no place: %s", err->msg);
    }
}

static void check_written(ckpt_arena *arena, const ckpt_text *written)
{
    ckpt_err err = {0};
    ckpt_text twice;
    ckpt_text_init(&twice);
    write_file(&again, written->bytes, written->length);
    const ckpt_code code = ckpt_test_format_of(fuzz_the_reader.writes)->rewrite(again.path, arena, &twice, &err);
    FUZZ_CHECK(code == CKPT_OK, "was read, but not what was written of it: %s", err.msg);
    FUZZ_CHECK(twice.length == written->length && memcmp(twice.bytes, written->bytes, written->length) == 0,
               "is written otherwise the second time");
    ckpt_text_fini(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool begun;
    ckpt_arena arena;
    ckpt_text written;
    ckpt_err err = {0};
    if (!begun && fuzz_the_reader.begin != NULL) {
        fuzz_the_reader.begin();
    }
    begun = true;
    ckpt_arena_init(&arena);
    ckpt_text_init(&written);
    write_file(&input, bytes, size);
    const int64_t live = ckpt_memory_live();
    const ckpt_code code = fuzz_the_reader.read(input.path, &arena, &written, &err);
    if (code != CKPT_OK) {
        static ckpt_err last;
        last = err;
        fuzz_refusal = last.msg;
        check_refusal(code, &err);
    } else if (written.length > 0) {
        check_written(&arena, &written);
    }
    ckpt_text_fini(&written);
    ckpt_arena_fini(&arena);
    FUZZ_CHECK(ckpt_memory_live() == live, "%lld blocks leak", (long long)(ckpt_memory_live() - live));
    fuzz_accepted += code == CKPT_OK;
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate(fuzz_the_reader.split, bytes, size, room, NULL, 0, seed);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *to,
                                 size_t room, unsigned seed)
{
    const size_t size = a_size < room ? a_size : room;
    memcpy(to, a, size);
    return fuzz_mutate(fuzz_the_reader.split, to, size, room, b, b_size, seed);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t bytes[FUZZ_ROOM];
    const char *const folder = getenv("CKPT_FUZZ_SEEDS");
    (void)argc, (void)argv;
    for (int i = 0; folder != NULL && fuzz_the_reader.seed != NULL && i < FUZZ_SEEDS; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%d", folder, i);
        const size_t size = fuzz_the_reader.seed(bytes, sizeof bytes);
        FILE *const file = fopen(path, "wb");
        FUZZ_CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "cannot write %s", path);
    }
    if (folder != NULL) {
        exit(0);
    }
    return 0;
}
