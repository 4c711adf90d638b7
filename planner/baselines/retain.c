/* Writes the order of runs for a set of dropped outputs.
 *
 * What the forward section let go without any later reader counts as gone as well: when a dropped op reads it, its
 * writer is recomputed too, unless it may not. What may not be recomputed is never gone: a later run that reads it is
 * what keeps it in memory. */
#include "planner/baselines/retain_impl.h"

#include <stdlib.h>

static int forward_end(const ckpt_graph *graph)
{
    int end = 0;
    while (end < graph->op_count && graph->op[end].phase == CKPT_FORWARD) {
        end++;
    }
    return end;
}

/* Which buffers ops behind the forward section use, or the end of the step. */
static bool *find_later(const ckpt_graph *graph, int end, ckpt_arena *scratch)
{
    bool *const later = CKPT_NEW(scratch, bool, graph->buffer_count);
    for (int o = end; later != NULL && o < graph->op_count; o++) {
        for (int i = 0; i < graph->op[o].reads.count; i++) {
            later[graph->op[o].reads.at[i]] = true;
        }
        for (int i = 0; i < graph->op[o].adds.count; i++) {
            later[graph->op[o].adds.at[i]] = true;
        }
    }
    for (int i = 0; later != NULL && i < graph->outputs.count; i++) {
        later[graph->outputs.at[i]] = true;
    }
    return later;
}

ckpt_code ckpt_retained_find(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_retained *item, int *count,
                             ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const int end = forward_end(graph);
    const bool *const later = find_later(graph, end, scratch);
    if (later == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "what backward reads of %d buffers", graph->buffer_count);
    }
    *count = 0;
    for (int o = 0; o < end; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        ckpt_bytes bytes = 0;
        for (int i = 0; i < op->writes.count; i++) {
            bytes += later[op->writes.at[i]] ? graph->buffer[op->writes.at[i]].bytes : 0;
        }
        if (op->recompute && bytes > 0) {
            item[(*count)++] = (ckpt_retained){o, bytes, op->time_ns};
        }
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

typedef struct retain {
    const ckpt_graph *graph;
    bool *gone;      /* per buffer: not in memory, and to be recomputed when it is read */
    int *stack;      /* ops whose runs are wanted; each op goes through it once */
    int *recomputed; /* those runs */
    bool *taken;
} retain;

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a;
    const int y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Push the writers of what is gone in `list`. Gives the new top. */
static int want(retain *r, const ckpt_list *list, int top)
{
    for (int i = 0; i < list->count; i++) {
        const int writer = r->graph->writer[list->at[i]];
        if (r->gone[list->at[i]] && !r->taken[writer]) {
            r->taken[writer] = true;
            r->stack[top++] = writer;
        }
    }
    return top;
}

/* Recompute, in reference order, what op `o` needs. */
static void restore(retain *r, int o, ckpt_order *order)
{
    int top = want(r, &r->graph->op[o].reads, 0);
    int count = 0;
    while (top > 0) {
        const int recomputed = r->stack[--top];
        r->recomputed[count++] = recomputed;
        top = want(r, &r->graph->op[recomputed].reads, top);
    }
    if (count > 1) {
        qsort(r->recomputed, (size_t)count, sizeof *r->recomputed, compare_ints);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_list *const writes = &r->graph->op[r->recomputed[i]].writes;
        ckpt_order_add(order, r->recomputed[i]);
        for (int k = 0; k < writes->count; k++) {
            r->gone[writes->at[k]] = false;
        }
    }
}

ckpt_code ckpt_retain_write(const ckpt_graph *graph, const bool *drop, ckpt_arena *scratch, ckpt_order *order,
                            ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const int end = forward_end(graph);
    const bool *const later = find_later(graph, end, scratch);
    retain r = {
        .graph = graph,
        .gone = CKPT_NEW(scratch, bool, graph->buffer_count),
        .stack = CKPT_NEW(scratch, int, graph->op_count),
        .recomputed = CKPT_NEW(scratch, int, graph->op_count),
        .taken = CKPT_NEW(scratch, bool, graph->op_count),
    };
    if (later == NULL || r.gone == NULL || r.stack == NULL || r.recomputed == NULL || r.taken == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "recomputations of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        if (o >= end) {
            restore(&r, o, order);
        }
        ckpt_order_add(order, o);
        bool needed = false;
        for (int i = 0; i < op->writes.count; i++) {
            needed = needed || later[op->writes.at[i]];
        }
        for (int i = 0; o < end && op->recompute && (drop[o] || !needed) && i < op->writes.count; i++) {
            r.gone[op->writes.at[i]] = true;
        }
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

ckpt_code ckpt_keep_or_drop(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                            ckpt_dropper drop, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_order_range(&order, 0, graph->op_count);
    ckpt_code code = ckpt_order_end(&order, graph, limit, out, candidates, err);
    if (code == CKPT_OK && candidates->count == 0) {
        code = drop(graph, limit, options, &order, &scratch, out, candidates, err);
    }
    ckpt_order_fini(&order);
    ckpt_arena_fini(&scratch);
    return code;
}
