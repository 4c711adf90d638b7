/* Where buffers are used, and what an op cannot be without. */
#include "planner/bound/bound_impl.h"

static void note_use(const ckpt_uses *uses, const ckpt_list *list, int op)
{
    for (int i = 0; i < list->count; i++) {
        int *const last = &uses->last[list->at[i]];
        *last = op > *last ? op : *last;
    }
}

ckpt_code ckpt_uses_find(const ckpt_graph *graph, ckpt_arena *out, ckpt_uses *uses, ckpt_err *err)
{
    *uses = (ckpt_uses){.graph = graph, .last = CKPT_NEW(out, int, graph->buffer_count)};
    if (uses->last == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a bound over %d ops", graph->op_count);
    }
    for (int i = 0; i < graph->buffer_count; i++) {
        uses->last[i] = graph->writer[i];
    }
    for (int o = 0; o < graph->op_count; o++) {
        note_use(uses, &graph->op[o].reads, o);
        note_use(uses, &graph->op[o].adds, o);
    }
    note_use(uses, &graph->outputs, graph->op_count);
    return CKPT_OK;
}

bool ckpt_uses_fixed(const ckpt_uses *uses, int buffer)
{
    return !uses->graph->has_link && !uses->graph->op[uses->graph->writer[buffer]].recompute;
}

void ckpt_uses_changes(const ckpt_uses *uses, ckpt_bytes *change)
{
    const ckpt_graph *const g = uses->graph;
    for (int i = 0; i < g->buffer_count; i++) {
        if (ckpt_uses_fixed(uses, i)) {
            change[g->writer[i]] += g->buffer[i].bytes;
            change[uses->last[i] + 1] -= g->buffer[i].bytes;
        }
    }
}

ckpt_bytes ckpt_uses_inplace(const ckpt_uses *uses, int op)
{
    const ckpt_graph_op *const it = &uses->graph->op[op];
    ckpt_bytes bytes = 0;
    for (int i = 0; i < it->inplace_count; i++) {
        const int in = it->inplace[i].in;
        bytes += ckpt_uses_fixed(uses, in) && uses->last[in] > op ? 0 : uses->graph->buffer[in].bytes;
    }
    return bytes;
}

ckpt_bytes ckpt_uses_beside(const ckpt_uses *uses, int op)
{
    const ckpt_graph_op *const it = &uses->graph->op[op];
    const ckpt_list *const lists[] = {&it->reads, &it->writes};
    ckpt_bytes bytes = it->workspace_bytes - ckpt_uses_inplace(uses, op);
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < lists[l]->count; i++) {
            const int buffer = lists[l]->at[i];
            bytes += ckpt_uses_fixed(uses, buffer) ? 0 : uses->graph->buffer[buffer].bytes;
        }
    }
    return bytes;
}

ckpt_code ckpt_uses_peak(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    ckpt_uses uses;
    CKPT_TRY(ckpt_uses_find(graph, scratch, &uses, err));
    ckpt_bytes *const change = CKPT_NEW(scratch, ckpt_bytes, graph->op_count + 2);
    if (change == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a bound over %d ops", graph->op_count);
    }
    ckpt_uses_changes(&uses, change);
    ckpt_bytes fixed = 0;
    *peak = 0;
    for (int o = 0; o < graph->op_count; o++) {
        fixed += change[o];
        const ckpt_bytes bytes = fixed + ckpt_uses_beside(&uses, o);
        *peak = bytes > *peak ? bytes : *peak;
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}
