/* Nothing is recomputed: the reference order. */
#include "planner/schedule/schedule.h"

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    (void)options;
    return ckpt_order_keep_all(graph, limit, out, candidates, err);
}

const ckpt_strategy ckpt_strategy_keep_all = {
    .name = "keep-all",
    .help = "recompute nothing",
    .source = "what frameworks do by default",
    .baseline = true,
    .plan = plan,
};
