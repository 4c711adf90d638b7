/* Local search from keep-all, on any graph. */
#include "planner/schedule/schedule.h"
#include "planner/search/search.h"

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    /* About 0.002, 0.4, 4 and 30 s for 400 ops. */
    static const int64_t moves[] = {10000, 2000000, 20000000, 150000000};
    const int effort = ckpt_effort(options);
    return (options->only_min_peak ? ckpt_search_min_peak : ckpt_search_improve)(graph, limit, moves[effort], options,
                                                                                 out, candidates, err);
}

const ckpt_strategy ckpt_strategy_search = {
    .name = "search",
    .help = "simulated annealing over which ops are recomputed before which op, on any graph",
    .source =
        "Kirkpatrick, Gelatt, Vecchi: Optimization by simulated annealing, Science 220, 1983; stages of runs as in "
        "Jain et al.: Checkmate, MLSys 2020",
    .budgeted = true,
    .plan = plan,
};
