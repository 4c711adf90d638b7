/* What is recomputed for a later backward op does not stand between gradients and their reduction: other ranks wait for
 * them. Strategies place a recomputation by what it costs here, where the two orders cost the same. */
#include <string.h>

#include "planner/schedule/schedule.h"

static bool touches(const ckpt_graph_op *op, int buffer)
{
    return ckpt_list_has(&op->reads, buffer) || ckpt_list_has(&op->writes, buffer) || ckpt_list_has(&op->adds, buffer);
}

/* May recomputation `again` stand behind `reduce` as well as before it? */
static bool apart(const ckpt_graph_op *recomputed, const ckpt_graph_op *reduce)
{
    for (int i = 0; i < recomputed->writes.count; i++) {
        if (touches(reduce, recomputed->writes.at[i])) {
            return false;
        }
    }
    for (int i = 0; i < recomputed->reads.count; i++) {
        if (ckpt_list_has(&reduce->writes, recomputed->reads.at[i])) {
            return false;
        }
    }
    return true;
}

/* Entries [from, to) recompute, [to, end) reduce: can they be swapped? */
static bool may_swap(const ckpt_graph *graph, const int *op, int from, int to, int end)
{
    for (int a = from; a < to; a++) {
        for (int r = to; r < end; r++) {
            if (!apart(&graph->op[op[a]], &graph->op[op[r]])) {
                return false;
            }
        }
    }
    return from < to && to < end;
}

/* recomputed[] moves along. `first_recomputed`: the entries that come to the front recompute; else those behind do. */
static void swap(int *op, bool *recomputed, int from, int to, int end, bool first_recomputed, int *scratch)
{
    const int middle = from + (end - to);
    memcpy(scratch, op + from, (size_t)(to - from) * sizeof *op);
    memmove(op + from, op + to, (size_t)(end - to) * sizeof *op);
    memcpy(op + middle, scratch, (size_t)(to - from) * sizeof *op);
    for (int t = from; t < end; t++) {
        recomputed[t] = (t < middle) == first_recomputed;
    }
}

/* The next run of reductions with something that is recomputed right before it, from entry *end on: [*from, *to) and
 * [*to, *end). */
static bool find(const ckpt_graph *graph, const int *op, const bool *recomputed, int count, int *from, int *to,
                 int *end)
{
    for (int t = *end; t < count; t++) {
        if (op[t] < 0 || graph->op[op[t]].phase != CKPT_REDUCE) {
            continue;
        }
        *to = *from = *end = t;
        while (*from > 0 && recomputed[*from - 1]) {
            --*from;
        }
        while (*end < count && op[*end] >= 0 && graph->op[op[*end]].phase == CKPT_REDUCE) {
            ++*end;
        }
        if (may_swap(graph, op, *from, *to, *end)) {
            return true;
        }
        t = *end - 1;
    }
    return false;
}

static bool reduces(const ckpt_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].phase == CKPT_REDUCE) {
            return true;
        }
    }
    return false;
}

/* recomputed[t]: entry t is not the first run of its op, nor a copy. */
static void mark_recomputed(const int *op, int count, bool *ran, bool *recomputed)
{
    for (int t = 0; t < count; t++) {
        recomputed[t] = op[t] >= 0 && ran[op[t]];
        if (op[t] >= 0) {
            ran[op[t]] = true;
        }
    }
}

ckpt_code ckpt_sequence_reduce_first(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *out,
                                     ckpt_sequence *moved, ckpt_err *err)
{
    *moved = *sequence;
    if (!reduces(graph)) {
        return CKPT_OK;
    }
    const size_t count = (size_t)sequence->count;
    int *const op = CKPT_NEW(out, int, count), *const scratch = CKPT_NEW(out, int, count);
    bool *const ran = CKPT_NEW(out, bool, graph->op_count), *const recomputed = CKPT_NEW(out, bool, count);
    if (op == NULL || scratch == NULL || ran == NULL || recomputed == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d entries", sequence->count);
    }
    memcpy(op, sequence->op, count * sizeof *op);
    mark_recomputed(op, sequence->count, ran, recomputed);
    *moved = (ckpt_sequence){op, sequence->count};
    ckpt_bytes most = 0;
    ckpt_ns longest = 0; /* with copies it may take longer in another order */
    CKPT_TRY(ckpt_sequence_measure(graph, moved, out, &most, &longest, err));
    int from = 0, to = 0, end = 0;
    while (find(graph, op, recomputed, sequence->count, &from, &to, &end)) {
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        const ckpt_mark mark = ckpt_arena_mark(out);
        swap(op, recomputed, from, to, end, false, scratch);
        CKPT_TRY(ckpt_sequence_measure(graph, moved, out, &peak, &time, err));
        ckpt_arena_rewind(out, mark);
        if (peak > most || time > longest) { /* what arrives would lie beside what is recomputed: memory first */
            swap(op, recomputed, from, from + (end - to), end, true, scratch);
        }
    }
    return CKPT_OK;
}
