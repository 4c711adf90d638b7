/* Every block of the chain keeps only its input and is recomputed before its backward. */
#include "planner/baselines/segments_impl.h"

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_chain *chain = NULL;
    ckpt_code code = ckpt_chain_build(graph, false, &scratch, &chain, err);
    if (code == CKPT_OK) {
        int end[CKPT_CHAIN_MAX];
        for (int k = 1; k <= chain->count; k++) {
            end[k - 1] = k;
        }
        ckpt_order order;
        ckpt_order_init(&order);
        ckpt_segments_write(chain, end, chain->count, &order);
        code = ckpt_order_end(&order, graph, limit, out, candidates, err);
        ckpt_order_fini(&order);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

const ckpt_strategy ckpt_strategy_recompute_all = {
    .name = "recompute-all",
    .help = "keep only what enters each block, recompute each block before its backward",
    .source = "Chen, Xu, Zhang, Guestrin: Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016, "
              "algorithm 1 with every block dropped",
    .baseline = true,
    .plan = plan,
};
