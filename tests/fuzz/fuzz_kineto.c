/* Times of Kineto for a PyTorch execution trace, which stays the same. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/formats/graph.h"
#include "tests/support/support_execution.h"

static ckpt_code read_times(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    static char trace[CKPT_TEST_TRACE_ROOM];
    static size_t length;
    if (length == 0) {
        const char *const text = ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
        memcpy(trace, text, length);
    }
    ckpt_graph *graph = NULL;
    ckpt_test_notes[0] = '\0';
    CKPT_TRY(ckpt_import_execution(fuzz_file(0, trace, length), path, 1e9, ckpt_test_take_note, arena, &graph, err));
    ckpt_graph_write(graph, written);
    return ckpt_text_end(written, err);
}

static size_t make_times(uint8_t *bytes, size_t room)
{
    const size_t length = strlen(ckpt_test_kernels);
    FUZZ_CHECK(length <= room, "no room for %zu bytes", length);
    memcpy(bytes, ckpt_test_kernels, length);
    return length;
}

const fuzz_reader fuzz_the_reader = {
    .name = "kineto", .split = fuzz_split_text, .writes = "graph", .read = read_times, .seed = make_times};
