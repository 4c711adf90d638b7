/* Recomputations that the user asked for, as ops of a larger graph, so that no plan can leave them out. */
#include <string.h>

#include "planner/directives/flags.h"

typedef struct unroller {
    const ckpt_graph *graph;
    ckpt_unrolled *to;
    int *version; /* per buffer of `graph`: the buffer that holds it now */
    bool *twice;  /* likewise: it is written more than once */
    ckpt_arena *out;
    ckpt_err *err;
} unroller;

static ckpt_code map_list(const unroller *u, const ckpt_list *from, ckpt_list *to)
{
    int *const at = CKPT_NEW(u->out, int, from->count);
    if (at == NULL) {
        return CKPT_FAIL(u->err, CKPT_NO_MEMORY, "buffers of an op");
    }
    for (int i = 0; i < from->count; i++) {
        at[i] = u->version[from->at[i]];
    }
    *to = (ckpt_list){at, from->count};
    return CKPT_OK;
}

/* An op's in-place input is the version of the buffer from before this op writes. */
static ckpt_code map_inplace(const unroller *u, const ckpt_graph_op *from, const ckpt_list *reads, ckpt_graph_op *to)
{
    ckpt_inplace *const pair = CKPT_NEW(u->out, ckpt_inplace, from->inplace_count);
    if (pair == NULL) {
        return CKPT_FAIL(u->err, CKPT_NO_MEMORY, "in-place pairs of an op");
    }
    for (int p = 0; p < from->inplace_count; p++) {
        pair[p].out = u->version[from->inplace[p].out];
        for (int i = 0; i < from->reads.count; i++) {
            pair[p].in = from->reads.at[i] == from->inplace[p].in ? reads->at[i] : pair[p].in;
        }
    }
    to->inplace = pair;
    return CKPT_OK;
}

static bool touches_twice(const unroller *u, const ckpt_graph_op *op)
{
    bool any = false;
    for (int i = 0; i < op->reads.count; i++) {
        any = any || u->twice[op->reads.at[i]];
    }
    for (int i = 0; i < op->writes.count; i++) {
        any = any || u->twice[op->writes.at[i]];
    }
    return any;
}

static ckpt_code add_run(const unroller *u, int run, bool recomputed, ckpt_buffer *buffer, int *writer)
{
    ckpt_graph *const made = &u->to->graph;
    const ckpt_graph_op *const from = &u->graph->op[run];
    ckpt_graph_op *const op = (ckpt_graph_op *)(uintptr_t)&made->op[made->op_count]; /* ours, and still being made */
    *op = *from;
    CKPT_TRY(map_list(u, &from->reads, &op->reads));
    CKPT_TRY(map_list(u, &from->adds, &op->adds));
    for (int i = 0; i < from->writes.count; i++) {
        const int b = from->writes.at[i];
        if (recomputed) {
            u->to->buffer[made->buffer_count] = b;
            buffer[made->buffer_count] = u->graph->buffer[b];
            u->version[b] = made->buffer_count++;
        }
        writer[u->version[b]] = made->op_count;
    }
    CKPT_TRY(map_list(u, &from->writes, &op->writes));
    CKPT_TRY(map_inplace(u, from, &op->reads, op));
    op->phase = recomputed ? CKPT_BACKWARD : from->phase;
    op->recompute = !recomputed && from->recompute && from->checkpoint != CKPT_NO && from->policy != CKPT_MUST_SAVE &&
                    !touches_twice(u, from);
    u->to->op[made->op_count++] = run;
    return CKPT_OK;
}

/* ckpt_graph_check has checked the sums of the graph's ops; these are the sums with recomputations. */
static ckpt_code check_sums(const ckpt_graph *graph, ckpt_err *err)
{
    int64_t bytes = graph->static_bytes, time = 0, during = 0;
    bool fits = true;
    for (int b = 0; b < graph->buffer_count && fits; b++) {
        fits = ckpt_sum(bytes, graph->buffer[b].bytes, &bytes);
    }
    for (int o = 0; o < graph->op_count && fits; o++) {
        fits = ckpt_sum(bytes, graph->op[o].workspace_bytes, &during) && ckpt_sum(time, graph->op[o].time_ns, &time);
    }
    return fits ? CKPT_OK : CKPT_FAIL(err, CKPT_OVERFLOW, "with recomputations the sums do not fit 63 bits");
}

ckpt_code ckpt_flags_unroll(const ckpt_graph *graph, const ckpt_sequence *order, ckpt_arena *out,
                            ckpt_unrolled *unrolled, ckpt_err *err)
{
    int *const runs = CKPT_NEW(out, int, graph->op_count);
    int *const version = CKPT_NEW(out, int, graph->buffer_count);
    bool *const twice = CKPT_NEW(out, bool, graph->buffer_count);
    if (runs == NULL || version == NULL || twice == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "runs of %d ops", graph->op_count);
    }
    int64_t buffers = graph->buffer_count;
    for (int t = 0; t < order->count; t++) {
        const ckpt_list *const writes = &graph->op[order->op[t]].writes;
        const bool recomputed = runs[order->op[t]]++ > 0;
        buffers += recomputed ? writes->count : 0;
        for (int i = 0; recomputed && i < writes->count; i++) {
            twice[writes->at[i]] = true;
        }
    }
    if (buffers > INT32_MAX / 2) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "recomputations write %lld buffers", (long long)buffers);
    }
    ckpt_graph_op *const op = CKPT_NEW(out, ckpt_graph_op, order->count);
    ckpt_buffer *const buffer = CKPT_NEW(out, ckpt_buffer, buffers);
    int *const writer = CKPT_NEW(out, int, buffers);
    *unrolled =
        (ckpt_unrolled){.graph = *graph, .op = CKPT_NEW(out, int, order->count), .buffer = CKPT_NEW(out, int, buffers)};
    if (op == NULL || buffer == NULL || writer == NULL || unrolled->op == NULL || unrolled->buffer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d runs", order->count);
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        version[b] = unrolled->buffer[b] = b;
        buffer[b] = graph->buffer[b];
    }
    memset(runs, 0, (size_t)graph->op_count * sizeof *runs);
    ckpt_graph *const made = &unrolled->graph;
    made->op = op;
    made->op_count = 0;
    made->buffer = buffer;
    made->writer = writer;
    const unroller u = {graph, unrolled, version, twice, out, err};
    for (int t = 0; t < order->count; t++) {
        const int run = order->op[t];
        CKPT_TRY(add_run(&u, run, runs[run]++ > 0, buffer, writer));
    }
    CKPT_TRY(check_sums(made, err));
    return map_list(&u, &graph->outputs, &made->outputs);
}
