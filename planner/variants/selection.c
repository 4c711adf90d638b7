/* A selection as a graph of its own, and back. */
#include <string.h>

#include "planner/variants/variants.h"

/* Buffers that a selected way writes get numbers. */
static void number_buffers(const ckpt_graph *graph, const int *way, int *number, int *buffer, int *count)
{
    memset(number, 0xFF, (size_t)graph->buffer_count * sizeof *number); /* -1 */
    for (int o = 0; o < graph->op_count; o++) {
        for (int i = 0; way[o] >= 0 && i < graph->op[way[o]].writes.count; i++) {
            number[graph->op[way[o]].writes.at[i]] = 0;
        }
    }
    *count = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        if (number[b] == 0) {
            number[b] = *count;
            buffer[(*count)++] = b;
        }
    }
}

static ckpt_code copy_list(const ckpt_list *from, const int *number, ckpt_arena *out, ckpt_list *to, ckpt_err *err)
{
    int *const at = CKPT_NEW(out, int, from->count);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of selected ways");
    }
    for (int i = 0; i < from->count; i++) {
        at[i] = number[from->at[i]];
        if (at[i] < 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "a selected way reads buffer %d, which none writes", from->at[i]);
        }
    }
    *to = (ckpt_list){at, from->count};
    return CKPT_OK;
}

static ckpt_code copy_op(const ckpt_graph_op *from, const int *number, ckpt_arena *out, ckpt_graph_op *to,
                         ckpt_err *err)
{
    *to = *from;
    to->variant = NULL;
    to->inexact = to->optional = false;
    to->base = to->first_variant = to->variant_count = 0;
    CKPT_TRY(copy_list(&from->reads, number, out, &to->reads, err));
    CKPT_TRY(copy_list(&from->writes, number, out, &to->writes, err));
    CKPT_TRY(copy_list(&from->adds, number, out, &to->adds, err));
    ckpt_inplace *const inplace = CKPT_NEW(out, ckpt_inplace, from->inplace_count);
    if (inplace == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of selected ways");
    }
    for (int i = 0; i < from->inplace_count; i++) {
        inplace[i] = (ckpt_inplace){number[from->inplace[i].out], number[from->inplace[i].in]};
    }
    to->inplace = inplace;
    return CKPT_OK;
}

ckpt_code ckpt_selection_make(const ckpt_graph *graph, const int *way, ckpt_arena *out, ckpt_selection *selection,
                              ckpt_err *err)
{
    ckpt_graph *const made = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(out, ckpt_graph_op, graph->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(out, ckpt_buffer, graph->buffer_count);
    int *const run = CKPT_NEW(out, int, graph->op_count);
    int *const whole = CKPT_NEW(out, int, graph->buffer_count);
    int *const number = CKPT_NEW(out, int, graph->buffer_count);
    if (made == NULL || op == NULL || buffer == NULL || run == NULL || whole == NULL || number == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of selected ways of %d ops", graph->op_count);
    }
    *made = *graph;
    made->op = op;
    made->op_count = made->variant_count = 0;
    made->buffer = buffer;
    number_buffers(graph, way, number, whole, &made->buffer_count);
    for (int b = 0; b < made->buffer_count; b++) {
        buffer[b] = graph->buffer[whole[b]];
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (way[o] >= 0) {
            run[made->op_count] = way[o];
            CKPT_TRY(copy_op(&graph->op[way[o]], number, out, &op[made->op_count++], err));
        }
    }
    CKPT_TRY(copy_list(&graph->outputs, number, out, &made->outputs, err));
    CKPT_TRY(ckpt_graph_check(made, out, err));
    *selection = (ckpt_selection){made, run, whole};
    return CKPT_OK;
}

ckpt_code ckpt_selection_lift(const ckpt_selection *selection, ckpt_arena *out, ckpt_candidate *candidate,
                              ckpt_err *err)
{
    const ckpt_sequence from = candidate->sequence;
    int *const op = CKPT_NEW(out, int, from.count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d entries", from.count);
    }
    for (int t = 0; t < from.count; t++) {
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(from.op[t], &target);
        op[t] = kind == CKPT_RUN ? selection->run[target] : ckpt_sequence_copy(kind, selection->buffer[target]);
    }
    candidate->sequence.op = op;
    return CKPT_OK;
}
