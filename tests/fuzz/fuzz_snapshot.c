/* PyTorch's memory snapshots, pickles: a trace is made of them, which our own reader takes. */
#include "tests/fuzz/fuzz.h"

#include "core/formats/trace.h"
#include "imports/import.h"
#include "tests/support/support_core.h"

static ckpt_code read_snapshot(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_trace *trace = NULL;
    ckpt_test_notes[0] = '\0';
    CKPT_TRY(ckpt_import_snapshot(path, ckpt_test_take_note, arena, &trace, err));
    ckpt_trace_write(trace, written);
    return ckpt_text_end(written, err);
}

const fuzz_reader fuzz_the_reader = {
    .name = "snapshot", .split = fuzz_split_pickle, .writes = "trace", .read = read_snapshot};
