/* The graph whose schedules are no slower and no larger than those with any choice of variants, for lower bounds.
 *
 * Every op takes the time of its fastest way and the workspace of its smallest, reads what all its ways read, writes
 * what all write, and takes the place of whatever some way takes the place of; optional ops are not there. Take any
 * schedule with variants and leave out its optional runs: every run still finds what it reads, is no slower and needs no
 * more workspace, and every buffer lives no longer. So a bound for this graph is one for all choices. */
#include <string.h>

#include "planner/variants/variants.h"

typedef struct relaxer {
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    ckpt_bytes limit;
    ckpt_graph_op *op;
    bool *written; /* per buffer: by every way of its op */
    ckpt_arena *out;
    ckpt_err *err;
} relaxer;

/* Of `list` what `other` holds too, and what every way has written where that is asked. */
static ckpt_code keep_common(const relaxer *r, ckpt_list *list, const ckpt_list *other)
{
    int *const at = CKPT_NEW(r->out, int, list->count);
    if (at == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "graph of all ways");
    }
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        if (other != NULL ? ckpt_list_has(other, list->at[i]) : r->written[list->at[i]]) {
            at[count++] = list->at[i];
        }
    }
    *list = (ckpt_list){at, count};
    return CKPT_OK;
}

bool ckpt_way_possible(const ckpt_graph *graph, int run, ckpt_bytes limit, const ckpt_plan_options *options)
{
    const ckpt_graph_op *const way = &graph->op[run];
    ckpt_bytes bytes = way->workspace_bytes;
    for (int i = 0; i < way->writes.count; i++) {
        bytes += graph->buffer[way->writes.at[i]].bytes;
    }
    for (int i = 0; i < way->reads.count; i++) {
        bytes += graph->buffer[way->reads.at[i]].bytes;
    }
    for (int i = 0; i < way->inplace_count; i++) {
        bytes -= graph->buffer[way->inplace[i].in].bytes;
    }
    return ckpt_run_allowed(graph, run, options) && bytes <= limit;
}

/* Pairs of all ways. A buffer in two different pairs can be in one only: then the input is no longer read at all, which
 * leaves as much room. */
static ckpt_code join_inplace(const relaxer *r, const ckpt_graph_op *way, ckpt_graph_op *op)
{
    ckpt_inplace *const pair = CKPT_NEW(r->out, ckpt_inplace, (size_t)op->inplace_count + (size_t)way->inplace_count);
    if (pair == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "graph of all ways");
    }
    int count = op->inplace_count;
    if (count > 0) {
        memcpy(pair, op->inplace, (size_t)count * sizeof *pair);
    }
    for (int i = 0; i < way->inplace_count; i++) {
        const ckpt_inplace added = way->inplace[i];
        bool same = false;
        bool shared = false;
        for (int k = 0; k < count; k++) {
            same = same || (pair[k].out == added.out && pair[k].in == added.in);
            shared = shared || pair[k].out == added.out || pair[k].in == added.in;
        }
        if (shared && !same) {
            int *const at = CKPT_NEW(r->out, int, op->reads.count);
            if (at == NULL) {
                return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "graph of all ways");
            }
            int reads = 0;
            for (int k = 0; k < op->reads.count; k++) {
                if (op->reads.at[k] != added.in) {
                    at[reads++] = op->reads.at[k];
                }
            }
            op->reads = (ckpt_list){at, reads};
        } else if (!shared) {
            pair[count++] = added;
        }
    }
    op->inplace = pair;
    op->inplace_count = count;
    return CKPT_OK;
}

/* Pairs whose input is still read and whose output is still written. */
static void drop_pairs(const ckpt_graph_op *op, ckpt_inplace *pair, int *count)
{
    int kept = 0;
    for (int i = 0; i < *count; i++) {
        if (ckpt_list_has(&op->writes, pair[i].out) && ckpt_list_has(&op->reads, pair[i].in)) {
            pair[kept++] = pair[i];
        }
    }
    *count = kept;
}

static ckpt_code relax_op(const relaxer *r, int o)
{
    ckpt_graph_op *const op = &r->op[o];
    bool any = ckpt_way_possible(r->graph, o, r->limit, r->options);
    const ckpt_graph_op own = *op;
    for (int k = 0; k < own.variant_count; k++) {
        const int run = own.first_variant + k;
        const ckpt_graph_op *const way = &r->graph->op[run];
        if (!ckpt_way_possible(r->graph, run, r->limit, r->options)) {
            continue;
        }
        if (!any) { /* the op's own way is not possible */
            *op = *way;
            any = true;
            continue;
        }
        op->time_ns = way->time_ns < op->time_ns ? way->time_ns : op->time_ns;
        op->workspace_bytes = way->workspace_bytes < op->workspace_bytes ? way->workspace_bytes : op->workspace_bytes;
        CKPT_TRY(keep_common(r, &op->reads, &way->reads));
        CKPT_TRY(keep_common(r, &op->writes, &way->writes));
        CKPT_TRY(keep_common(r, &op->adds, &way->adds));
        CKPT_TRY(join_inplace(r, way, op));
    }
    op->optional = own.optional;
    for (int i = 0; i < op->writes.count && !op->optional; i++) {
        r->written[op->writes.at[i]] = true;
    }
    return CKPT_OK;
}

static ckpt_code relax(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *work,
                       ckpt_arena *out, const ckpt_graph **relaxed, ckpt_err *err)
{
    ckpt_graph all = *graph;
    relaxer r = {.graph = graph,
                 .options = options,
                 .limit = limit,
                 .op = CKPT_NEW(work, ckpt_graph_op, graph->op_count),
                 .written = CKPT_NEW(work, bool, graph->buffer_count),
                 .out = work,
                 .err = err};
    int *const way = CKPT_NEW(work, int, graph->op_count);
    if (r.op == NULL || r.written == NULL || way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of all ways of %d ops", graph->op_count);
    }
    memcpy(r.op, graph->op, (size_t)graph->op_count * sizeof *r.op);
    for (int o = 0; o < graph->op_count; o++) {
        CKPT_TRY(relax_op(&r, o));
        ckpt_graph_op *const op = &r.op[o];
        CKPT_TRY(keep_common(&r, &op->reads, NULL));
        CKPT_TRY(keep_common(&r, &op->adds, NULL));
        if (op->inplace_count > 0) {
            ckpt_inplace *const pair = CKPT_NEW(work, ckpt_inplace, op->inplace_count);
            if (pair == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph of all ways");
            }
            memcpy(pair, op->inplace, (size_t)op->inplace_count * sizeof *pair);
            drop_pairs(op, pair, &op->inplace_count);
            op->inplace = pair;
        }
        way[o] = op->optional ? -1 : o;
    }
    CKPT_TRY(keep_common(&r, &all.outputs, NULL));
    all.op = r.op;
    ckpt_selection selection;
    CKPT_TRY(ckpt_selection_make(&all, way, out, &selection, err));
    *relaxed = selection.graph;
    return CKPT_OK;
}

ckpt_code ckpt_variants_relax(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                              ckpt_arena *out, const ckpt_graph **relaxed, ckpt_err *err)
{
    if (!ckpt_graph_has_variants(graph)) {
        *relaxed = graph;
        return CKPT_OK;
    }
    ckpt_arena work;
    ckpt_arena_init(&work);
    const ckpt_code code = relax(graph, limit, options, &work, out, relaxed, err);
    ckpt_arena_fini(&work);
    return code;
}
