/* Nothing is recomputed: the reference order. */
#include "planner/schedule/schedule.h"

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    (void)options;
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_order_range(&order, 0, graph->op_count);
    const ckpt_code code = ckpt_order_end(&order, graph, limit, out, candidates, err);
    ckpt_order_fini(&order);
    return code;
}

const ckpt_strategy ckpt_strategy_keep_all = {
    .name = "keep-all",
    .help = "recompute nothing",
    .source = "what frameworks do by default",
    .baseline = true,
    .plan = plan,
};
