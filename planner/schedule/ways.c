#include "planner/schedule/ways.h"

int ckpt_way_count(const ckpt_graph *graph, int op)
{
    return 1 + graph->op[op].variant_count;
}

int ckpt_way_run(const ckpt_graph *graph, int op, int k)
{
    return k == 0 ? op : graph->op[op].first_variant + k - 1;
}

bool ckpt_run_allowed(const ckpt_graph *graph, int run, const ckpt_plan_options *options)
{
    return options->allow_inexact || !graph->op[run].inexact;
}

/* Of an op's variants, those before the last inexact ones. */
static int exact_ways(const ckpt_graph *graph, const ckpt_graph_op *op)
{
    int count = op->variant_count;
    while (count > 0 && graph->op[op->first_variant + count - 1].inexact) {
        count--;
    }
    return count;
}

ckpt_code ckpt_ways_allowed(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                            const ckpt_graph **allowed, ckpt_err *err)
{
    int left = 0;
    bool all = true;
    for (int o = 0; o < graph->op_count; o++) {
        const int count = exact_ways(graph, &graph->op[o]);
        left += count;
        all = all && count == graph->op[o].variant_count;
    }
    *allowed = graph;
    if (options->allow_inexact || all) {
        return CKPT_OK;
    }
    ckpt_graph *const copy = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, out);
    if (copy == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "exact variants of %d ops", graph->op_count);
    }
    *copy = *graph;
    copy->op = op;
    copy->variant_count = left > 0 ? graph->variant_count : 0;
    for (int o = 0; o < graph->op_count; o++) {
        op[o].variant_count = exact_ways(graph, &op[o]);
    }
    *allowed = copy;
    return CKPT_OK;
}

bool ckpt_runs_agree(const ckpt_graph *graph, int a, int b)
{
    return a == b || (!graph->op[a].inexact && !graph->op[b].inexact);
}

/* 0: the op need not run. */
static ckpt_ns fastest_way(const ckpt_graph *graph, int op, const ckpt_plan_options *options)
{
    ckpt_ns least = graph->op[op].optional ? 0 : graph->op[op].time_ns;
    for (int k = 1; k < ckpt_way_count(graph, op); k++) {
        const int run = ckpt_way_run(graph, op, k);
        if (ckpt_run_allowed(graph, run, options) && graph->op[run].time_ns < least) {
            least = graph->op[run].time_ns;
        }
    }
    return least;
}

ckpt_ns ckpt_least_time(const ckpt_graph *graph, const ckpt_plan_options *options)
{
    ckpt_ns least = 0;
    for (int o = 0; o < graph->op_count; o++) {
        least += fastest_way(graph, o, options); /* sums were checked with the graph */
    }
    return least;
}
