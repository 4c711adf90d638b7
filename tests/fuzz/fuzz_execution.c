/* PyTorch's execution traces: a graph is made of them, which our own reader takes. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/formats/graph.h"
#include "tests/support/support_execution.h"

static ckpt_code read_execution(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_graph *graph = NULL;
    ckpt_test_notes[0] = '\0';
    CKPT_TRY(ckpt_import_execution(path, NULL, 1e9, ckpt_test_take_note, arena, &graph, err));
    ckpt_graph_write(graph, written);
    return ckpt_text_end(written, err);
}

/* Parts of a step, which are short and so read often, and the whole step. The backward of a weight makes a step of any. */
static size_t make_trace(uint8_t *bytes, size_t room)
{
    enum { PART = 6, PARTS = 4, WEIGHT = PART * PARTS, WEIGHT_NODES = 3 };
    static int next;
    const int k = next++ % (PARTS + 1);
    ckpt_test_node part[PART + WEIGHT_NODES];
    size_t length = 0;
    memcpy(part, ckpt_test_by_hand + k % PARTS * PART, PART * sizeof *part);
    memcpy(part + PART, ckpt_test_by_hand + WEIGHT, WEIGHT_NODES * sizeof *part);
    const char *const text = k < PARTS ? ckpt_test_trace(part, PART + WEIGHT_NODES, &length)
                                       : ckpt_test_trace(ckpt_test_by_hand, CKPT_TEST_BY_HAND, &length);
    FUZZ_CHECK(length <= room, "no room for %zu bytes", length);
    memcpy(bytes, text, length);
    return length;
}

const fuzz_reader fuzz_the_reader = {
    .name = "execution", .split = fuzz_split_text, .writes = "graph", .read = read_execution, .seed = make_trace};
