/* Drop what is cheapest to recompute per byte until the step fits.
 *
 * The order of dropping is fixed beforehand by each op's own time and bytes, as simple tools do; that making an op
 * again may drag its dropped inputs along is not foreseen, only paid. The peak that decides is the true one. Departure
 * from the paper: its memory saving per second is not updated while ops are dropped. */
#include <stdlib.h>

#include "planner/baselines/retain_impl.h"

enum { MEASURED_MAX = 1024 }; /* sets that are measured: of more ops several go at once */

/* Most bytes per nanosecond first; what costs nothing before all; of equals the later op, which is needed first. */
static int compare(const void *a, const void *b)
{
    const ckpt_retained *const x = a;
    const ckpt_retained *const y = b;
    const double left = (double)x->bytes * (double)y->time;
    const double right = (double)y->bytes * (double)x->time;
    return left != right ? (left > right ? -1 : 1) : y->op - x->op;
}

static ckpt_code drop_all(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                          ckpt_order *order, ckpt_arena *scratch, ckpt_arena *out, ckpt_candidates *candidates,
                          ckpt_err *err)
{
    (void)options;
    bool *const drop = CKPT_NEW(scratch, bool, graph->op_count);
    ckpt_retained *const item = CKPT_NEW(scratch, ckpt_retained, graph->op_count);
    int count = 0;
    if (drop == NULL || item == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "greedy choice among %d ops", graph->op_count);
    }
    CKPT_TRY(ckpt_retained_find(graph, scratch, item, &count, err));
    qsort(item, (size_t)count, sizeof *item, compare);
    const int stride = 1 + count / MEASURED_MAX;
    for (int k = 0; k < count;) {
        for (const int to = k + stride; k < count && k < to; k++) {
            drop[item[k].op] = true;
        }
        CKPT_TRY(ckpt_retain_write(graph, drop, scratch, order, err));
        CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    return ckpt_keep_or_drop(graph, limit, options, drop_all, out, candidates, err);
}

const ckpt_strategy ckpt_strategy_greedy = {
    .name = "greedy",
    .help = "drop what is cheapest to recompute per byte until the step fits",
    .source = "memory saving per second: Peng et al.: Capuchin: tensor-based GPU memory management for deep learning, "
              "ASPLOS 2020, section 4.4",
    .budgeted = true,
    .baseline = true,
    .plan = plan,
};
