/* What libckpt_inject.so leaves of a program, and the trace that is made of it. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cupti/activity_trace.h"
#include "cupti/spool.h"

static ckpt_code read_spool(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_spool_content content;
    ckpt_activity_summary summary;
    ckpt_trace *trace = NULL;
    CKPT_TRY(ckpt_spool_read(path, arena, &content, err));
    CKPT_TRY(ckpt_activity_trace(content.activity, content.count, "program", arena, &trace, &summary, err));
    ckpt_trace_write(trace, written);
    return ckpt_text_end(written, err);
}

/* A range, an allocation, a call, and the kernel and the copy that it started. */
static void fill(ckpt_spool *spool)
{
    static const ckpt_activity activity[] = {
        {.kind = CKPT_ACTIVITY_RANGE, .name = "step", .start_ns = 1000, .end_ns = 9000, .process = 7, .thread = 1},
        {.kind = CKPT_ACTIVITY_ALLOCATE, .name = "", .start_ns = 1500, .end_ns = 1500, .bytes = 4096, .address = 65536},
        {.kind = CKPT_ACTIVITY_CALL, .name = "launch", .start_ns = 2000, .end_ns = 2500, .correlation = 3, .thread = 1},
        {.kind = CKPT_ACTIVITY_KERNEL, .name = "_Z3addPf", .start_ns = 3000, .end_ns = 5000, .correlation = 3},
        {.kind = CKPT_ACTIVITY_COPY,
         .way = CKPT_COPY_TO_HOST,
         .name = "",
         .start_ns = 5000,
         .end_ns = 6000,
         .bytes = 9},
        {.kind = CKPT_ACTIVITY_RELEASE, .name = "", .start_ns = 8000, .end_ns = 8000, .bytes = 4096, .address = 65536},
    };
    for (size_t i = 0; i < sizeof activity / sizeof *activity; i++) {
        ckpt_spool_add(spool, &activity[i]);
    }
    ckpt_spool_say(spool, CKPT_SPOOL_ENDED, "yes");
    ckpt_spool_flush(spool);
    ckpt_spool_destroy(spool);
}

static size_t make_spool(uint8_t *bytes, size_t room)
{
    static uint8_t made[1000]; /* once: it takes a file */
    static size_t size;
    if (size > 0) {
        memcpy(bytes, made, size);
        return size;
    }
    char folder[] = "/tmp/ckpt_fuzz_XXXXXX", path[80];
    ckpt_spool *spool = NULL;
    FUZZ_CHECK(mkdtemp(folder) != NULL, "cannot make %s", folder);
    const ckpt_spool_options options = {.folder = folder, .program = "p", .reserve_bytes = 1};
    FUZZ_CHECK(ckpt_spool_create(&options, &spool, NULL) == CKPT_OK, "no spool");
    fill(spool);
    snprintf(path, sizeof path, "%s/%ld-0.spool", folder, (long)getpid());
    FILE *const file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL, "cannot open %s", path);
    size = fread(made, 1, sizeof made, file);
    fclose(file);
    unlink(path);
    rmdir(folder);
    memcpy(bytes, made, size);
    return size;
}

const fuzz_reader fuzz_the_reader = {
    .name = "spool", .split = fuzz_split_spool, .writes = "trace", .read = read_spool, .seed = make_spool};
