/* Binding a plan to a graph, and the words plans use. */
#include "core/formats/plan.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/base/names.h"
#include "core/formats/plan_impl.h"

const char *ckpt_step_kind_name(ckpt_step_kind kind)
{
    switch (kind) {
    case CKPT_RUN: return "run";
    case CKPT_FREE: return "free";
    case CKPT_OFFLOAD: return "offload";
    case CKPT_FETCH: return "fetch";
    }
    return "unknown";
}

const char *ckpt_decision_name(ckpt_decision decision)
{
    switch (decision) {
    case CKPT_KEEP: return "keep";
    case CKPT_RECOMPUTE: return "recompute";
    case CKPT_OFFLOADED: return "offload";
    }
    return "unknown";
}

typedef struct binder {
    const ckpt_graph *graph;
    ckpt_names ops, buffers;
    int *step_target, *place_buffer;
    ckpt_err *err;
} binder;

static ckpt_code index_names(binder *b, ckpt_arena *scratch)
{
    const ckpt_graph *const g = b->graph;
    CKPT_TRY(ckpt_names_init(&b->ops, g->op_count, scratch, b->err));
    for (int i = 0; i < g->op_count; i++) {
        ckpt_names_add(&b->ops, g->op[i].name, i);
    }
    CKPT_TRY(ckpt_names_init(&b->buffers, g->buffer_count, scratch, b->err));
    for (int i = 0; i < g->buffer_count; i++) {
        ckpt_names_add(&b->buffers, g->buffer[i].name, i);
    }
    return CKPT_OK;
}

static ckpt_code find_steps(const binder *b, const ckpt_plan *plan)
{
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const bool run = step->kind == CKPT_RUN;
        b->step_target[i] = ckpt_names_find(run ? &b->ops : &b->buffers, step->name);
        if (b->step_target[i] < 0) {
            return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                             "step %d: %s \"%.80s\", which graph \"%.60s\" does not have: the plan is of another model",
                             i, ckpt_step_kind_name(step->kind), step->name, b->graph->name);
        }
    }
    return CKPT_OK;
}

static ckpt_code find_places(const binder *b, const ckpt_plan *plan)
{
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        b->place_buffer[i] = -1;
        if (strcmp(allocation->name, "workspace") == 0) {
            continue;
        }
        const int buffer = ckpt_names_find(&b->buffers, allocation->name);
        if (buffer < 0) {
            return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                             "place %d: \"%.80s\", which graph \"%.60s\" does not have: the plan is of another model",
                             i, allocation->name, b->graph->name);
        }
        if (allocation->bytes != b->graph->buffer[buffer].bytes) {
            return CKPT_FAIL(b->err, CKPT_BAD_INPUT,
                             "place %d: \"%.80s\" has %" PRId64 " bytes in the plan and %" PRId64
                             " in the graph: made for another batch, dtype or other vars?",
                             i, allocation->name, allocation->bytes, b->graph->buffer[buffer].bytes);
        }
        b->place_buffer[i] = buffer;
    }
    return CKPT_OK;
}

static ckpt_code bind(binder *b, ckpt_plan *plan, ckpt_arena *scratch)
{
    char digest[CKPT_DIGEST_TEXT];
    if (strcmp(plan->graph_name, b->graph->name) != 0) {
        return CKPT_FAIL(b->err, CKPT_BAD_INPUT, "the plan is of graph \"%.80s\", this is \"%.80s\"", plan->graph_name,
                         b->graph->name);
    }
    b->step_target = CKPT_NEW(scratch, int, plan->step_count);
    b->place_buffer = CKPT_NEW(scratch, int, plan->allocation_count);
    if (b->step_target == NULL || b->place_buffer == NULL) {
        return CKPT_FAIL(b->err, CKPT_NO_MEMORY, "no memory to bind a plan of %d steps", plan->step_count);
    }
    CKPT_TRY(index_names(b, scratch));
    CKPT_TRY(find_steps(b, plan));
    CKPT_TRY(find_places(b, plan));
    /* Last, because the reasons above say more. */
    CKPT_TRY(ckpt_graph_digest(b->graph, digest, b->err));
    if (strcmp(plan->graph_sha256, digest) != 0) {
        return CKPT_FAIL(
            b->err, CKPT_BAD_INPUT,
            "the plan is of a graph \"%.60s\" of another structure (SHA-256 %.12s..., this one is %.12s...): "
            "other vars, or a changed model?",
            plan->graph_name, plan->graph_sha256, digest);
    }
    return ckpt_outline_compare(&plan->outline, b->graph, b->err);
}

ckpt_code ckpt_plan_bind(ckpt_plan *plan, const ckpt_graph *graph, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    binder b = {.graph = graph, .err = err};
    const ckpt_code code = bind(&b, plan, &scratch);
    if (code == CKPT_OK) {
        /* The caller owns the plan and hands it over to be changed; its arrays are const to readers only. */
        ckpt_step *const step = (ckpt_step *)plan->step;
        ckpt_allocation *const allocation = (ckpt_allocation *)plan->allocation;
        for (int i = 0; i < plan->step_count; i++) {
            step[i].target = b.step_target[i];
        }
        for (int i = 0; i < plan->allocation_count; i++) {
            allocation[i].buffer = b.place_buffer[i];
        }
    } else if (code != CKPT_NO_MEMORY && plan->source != NULL && plan->source[0] != '\0') {
        ckpt_err_at(err, "%.200s", plan->source);
    }
    ckpt_arena_fini(&scratch);
    return code;
}
