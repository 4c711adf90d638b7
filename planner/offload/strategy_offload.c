/* Keep, recompute or offload, chosen together; and each of the two alone, to compare with. */
#include "planner/offload/offload.h"
#include "planner/schedule/schedule.h"
#include "planner/search/search.h"

static ckpt_code copies_only(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                             ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(ckpt_order_keep_all(graph, limit, out, candidates, err));
    return ckpt_offload_improve(graph, limit, CKPT_OFFLOAD_COPIES, ckpt_offload_tries(graph, options), options, out,
                                candidates, err);
}

/* All that auto can do when there is no link. Its bounds are of schedules without copies, and not handed on. */
static ckpt_code recompute_only(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                                ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_graph alone = *graph;
    alone.has_link = false;
    ckpt_plan_options fresh = *options; /* what is known already may copy */
    fresh.incumbent_count = 0;
    fresh.own_ways_known = false;
    fresh.low_memo = NULL;
    CKPT_TRY(ckpt_strategy_find("auto")->plan(&alone, limit, &fresh, out, candidates, err));
    for (int i = 0; i < candidates->count; i++) {
        candidates->candidate[i].by = NULL;
    }
    candidates->min_peak.by = NULL;
    candidates->has_bound = false;
    return ckpt_offload_improve(&alone, limit, CKPT_OFFLOAD_RECOMPUTE, ckpt_offload_tries(graph, options), options, out,
                                candidates, err);
}

/* Nothing is faster than everything once. */
static bool cannot_improve(const ckpt_graph *graph, const ckpt_candidates *candidates)
{
    ckpt_ns once = 0;
    for (int o = 0; o < graph->op_count; o++) {
        once += graph->op[o].time_ns; /* sums were checked with the graph */
    }
    return candidates->count > 0 && candidates->candidate[0].time <= once;
}

/* Starts from both and offers both, and so is never slower. What is known already stands for recomputation alone. */
static ckpt_code joint(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                       ckpt_candidates *candidates, ckpt_err *err)
{
    if (!graph->has_link) {
        return ckpt_order_keep_all(graph, limit, out, candidates, err);
    }
    ckpt_candidates_incumbents(candidates, limit, options);
    CKPT_TRY(copies_only(graph, limit, options, out, candidates, err));
    if (cannot_improve(graph, candidates)) {
        return CKPT_OK;
    }
    ckpt_candidates both = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    ckpt_candidates_incumbents(&both, limit, options);
    if (both.count == 0 && (options->incumbent == NULL || options->incumbent_count > 0)) { /* auto has tried */
        CKPT_TRY(recompute_only(graph, limit, options, out, &both, err));
    }
    CKPT_TRY(ckpt_offload_improve(graph, limit, CKPT_OFFLOAD_JOINT, ckpt_offload_tries(graph, options), options, out,
                                  &both, err));
    for (int i = 0; i < both.count; i++) {
        ckpt_candidates_add(candidates, &both.candidate[i]);
    }
    return CKPT_OK;
}

const ckpt_strategy ckpt_strategy_offload_only = {
    .name = "offload-only",
    .help = "nothing is recomputed; what does not fit goes to the host and back",
    .source = "Rhu et al.: vDNN, MICRO 2016, with the choice and the times by simulation",
    .budgeted = true,
    .link = true,
    .baseline = true,
    .plan = copies_only,
};

const ckpt_strategy ckpt_strategy_recompute_only = {
    .name = "recompute-only",
    .help = "what auto does without a link: nothing is copied",
    .source = "the sources of auto",
    .budgeted = true,
    .baseline = true,
    .plan = recompute_only,
};

const ckpt_strategy ckpt_strategy_joint = {
    .name = "joint",
    .help = "keep, recompute or offload each buffer, chosen together against the simulator; needs a link",
    .source = "after Beaumont, Eyraud-Dubois, Shilova: Efficient combination of rematerialization and offloading for "
              "training DNNs, NeurIPS 2021",
    .budgeted = true,
    .link = true,
    .plan = joint,
};
