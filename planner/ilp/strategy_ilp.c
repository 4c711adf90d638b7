/* Integer programs alone: small graphs whole, larger ones by neighbourhoods of the schedule that is known. */
#include "planner/ilp/ilp.h"
#include "planner/schedule/schedule.h"

/* Recomputations to choose from that still make a program to be solved whole, branchings, and work on
 * neighbourhoods. */
static const struct {
    int pairs, nodes, work;
} paid[] = {{400, 2000, 1000}, {600, 2000, 5000}, {2500, 1500, 100000}, {6000, 5000, 800000}};

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    const int effort = ckpt_effort(options);
    ckpt_candidates_incumbents(candidates, limit, options);
    /* without a solver this is all there is */
    CKPT_TRY(ckpt_order_keep_all(graph, limit, out, candidates, err));
    const int few = paid[CKPT_EFFORT_LOW].pairs;
    CKPT_TRY(ckpt_ilp_solve(graph, limit, few, paid[effort].nodes, options, out, candidates, err));
    CKPT_TRY(ckpt_ilp_improve(graph, limit, paid[effort].work, options, out, candidates, err));
    return effort > CKPT_EFFORT_LOW
               ? ckpt_ilp_solve(graph, limit, paid[effort].pairs, paid[effort].nodes, options, out, candidates, err)
               : CKPT_OK;
}

const ckpt_strategy ckpt_strategy_ilp = {
    .name = "ilp",
    .help = "integer programs over which ops are recomputed when: small graphs whole, else neighbourhoods of a known "
            "schedule",
    .source = "Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez: Checkmate, MLSys 2020, "
              "arXiv:1910.02653, section 4; Shah, Wu, Mohan, Chidambaram, Kraehenbuehl: Memory optimization for deep "
              "networks, ICLR 2021, arXiv:2010.14501",
    .budgeted = true,
    .plan = plan,
};
