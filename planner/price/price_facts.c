/* Readers of buffers and gaps of ops. */
#include "planner/price/price_impl.h"
#include "planner/schedule/readers.h"

enum { LONG_PART = 8 }; /* a gap of so many parts of the step is worth a thought wherever it lies */

static ckpt_code take(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_price_facts *f, ckpt_err *err)
{
    const size_t ops = (size_t)graph->op_count;
    *f = (ckpt_price_facts){
        .graph = graph,
        .fixed = CKPT_NEW(scratch, bool, ops),
        .gap_from = CKPT_NEW(scratch, int, ops),
        .gap_to = CKPT_NEW(scratch, int, ops),
        .last = CKPT_NEW(scratch, int, ops),
        .bytes = CKPT_NEW(scratch, ckpt_bytes, ops),
        .held = CKPT_NEW(scratch, ckpt_bytes, ops),
    };
    return f->fixed != NULL && f->gap_from != NULL && f->gap_to != NULL && f->last != NULL && f->bytes != NULL &&
                   f->held != NULL
               ? ckpt_readers_find(graph, scratch, &f->reader_from, &f->reader, err)
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "gaps of %d ops", graph->op_count);
}

/* What is added to has another value when it is read again, and so has what an op made of it before. */
static ckpt_code find_fixed(ckpt_price_facts *f, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    int *const added = CKPT_NEW(scratch, int, graph->buffer_count); /* last op that adds to it */
    if (added == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gaps of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        f->fixed[o] = f->fixed[o] || !graph->op[o].recompute || graph->op[o].adds.count > 0;
        for (int i = 0; i < graph->op[o].adds.count; i++) {
            added[graph->op[o].adds.at[i]] = o;
            f->fixed[graph->writer[graph->op[o].adds.at[i]]] = true;
        }
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_list *const reads = &graph->op[o].reads;
        for (int i = 0; i < reads->count; i++) {
            f->fixed[o] = f->fixed[o] || added[reads->at[i]] > o;
        }
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

static int last_reader(const ckpt_price_facts *f, int b)
{
    const int end = f->reader_from[b + 1];
    return end > f->reader_from[b] ? f->reader[end - 1] : f->graph->writer[b];
}

/* The first use of an output of op v behind moment `now`, at the latest the last one. */
static int next_use(const ckpt_price_facts *f, int v, int now)
{
    const ckpt_list *const writes = &f->graph->op[v].writes;
    int next = f->last[v];
    for (int i = 0; i < writes->count; i++) {
        const int end = f->reader_from[writes->at[i] + 1];
        int low = f->reader_from[writes->at[i]];
        for (int high = end; low < high;) {
            const int middle = (low + high) / 2;
            const bool behind = f->reader[middle] > now;
            high = behind ? middle : high;
            low = behind ? low : middle + 1;
        }
        next = low < end && f->reader[low] < next ? f->reader[low] : next;
    }
    return next;
}

/* The stretch without a use that lies around moment `top`, where most is in memory; where there is none, the longest if
 * that is a good part of the step. */
static void find_gap(ckpt_price_facts *f, int v, int top)
{
    const ckpt_list *const writes = &f->graph->op[v].writes;
    f->last[v] = v;
    for (int i = 0; i < writes->count; i++) {
        const int last = last_reader(f, writes->at[i]);
        f->last[v] = last > f->last[v] ? last : f->last[v];
        f->bytes[v] += f->graph->buffer[writes->at[i]].bytes;
    }
    int from = v, to = v;
    for (int now = v; !f->fixed[v] && now < f->last[v];) {
        const int next = next_use(f, v, now);
        const bool around = now < top && top < next;
        if (around || next - now > to - from) {
            from = now;
            to = next;
        }
        now = around ? f->last[v] : next;
    }
    const bool around = from < top && top < to;
    for (int i = 0; i < writes->count && to - from > 1; i++) {
        f->held[v] += last_reader(f, writes->at[i]) > from ? f->graph->buffer[writes->at[i]].bytes : 0;
    }
    if (f->held[v] > 0 && (around || to - from > f->graph->op_count / LONG_PART)) {
        f->gap_from[v] = from;
        f->gap_to[v] = to;
    }
}

ckpt_code ckpt_price_facts_find(const ckpt_graph *graph, const ckpt_bytes *live, ckpt_arena *scratch,
                                ckpt_price_facts *facts, ckpt_err *err)
{
    CKPT_TRY(take(graph, scratch, facts, err));
    CKPT_TRY(find_fixed(facts, scratch, err));
    int top = 0;
    for (int j = 0; j < graph->op_count; j++) {
        top = live[j] > live[top] ? j : top;
    }
    for (int v = 0; v < graph->op_count; v++) {
        find_gap(facts, v, top);
    }
    return CKPT_OK;
}
