/* The files of ours in JSON, a program each: FUZZ_FORMAT is "graph", "plan", ... */
#include "tests/fuzz/fuzz.h"
#include "tests/support/support_core.h"

static ckpt_code read_format(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const ckpt_test_format *const format = ckpt_test_format_of(FUZZ_FORMAT);
    return format->rewrite != NULL ? format->rewrite(path, arena, written, err) : format->read(path, arena, err);
}

const fuzz_reader fuzz_the_reader = {
    .name = FUZZ_FORMAT, .split = fuzz_split_text, .placed = true, .writes = FUZZ_FORMAT, .read = read_format};
