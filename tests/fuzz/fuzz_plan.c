/* Plans, and what becomes of their names in a graph. */
#include "tests/fuzz/fuzz.h"

#include "core/formats/graph.h"
#include "core/formats/plan.h"
#include "tests/support/support_paths.h"

static const ckpt_graph *graph; /* corpus/plan.json is of it */

static void read_graph(void)
{
    static ckpt_arena arena;
    ckpt_err err = {0};
    ckpt_arena_init(&arena);
    FUZZ_CHECK(ckpt_graph_read(ckpt_source_file("tests/fuzz/corpus/graph.json"), &arena, &graph, &err) == CKPT_OK, "%s",
               err.msg);
}

static ckpt_code read_plan(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    ckpt_err other = {0};
    CKPT_TRY(ckpt_plan_read(path, arena, &plan, err));
    ckpt_plan_write(plan, written);
    CKPT_TRY(ckpt_text_end(written, err));
    const ckpt_code code = ckpt_plan_bind(plan, graph, &other);
    FUZZ_CHECK(code == CKPT_OK || code == CKPT_BAD_INPUT, "code %d: %s", (int)code, other.msg);
    for (int i = 0; code == CKPT_OK && i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int count = step->kind == CKPT_RUN ? graph->op_count : graph->buffer_count;
        FUZZ_CHECK(step->target >= 0 && step->target < count, "step %d is of number %d", i, step->target);
    }
    for (int i = 0; code == CKPT_OK && i < plan->allocation_count; i++) {
        FUZZ_CHECK(plan->allocation[i].buffer >= -1 && plan->allocation[i].buffer < graph->buffer_count,
                   "allocation %d is of buffer %d", i, plan->allocation[i].buffer);
    }
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {
    .name = "plan", .split = fuzz_split_text, .placed = true, .writes = "plan", .read = read_plan, .begin = read_graph};
