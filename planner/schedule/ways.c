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
