/* The user's flags first: what they require is done. Where that does not fit the budget, `auto` plans the rest of the
 * graph around it. What they prefer is dropped where it does not fit. */
#include <string.h>

#include "planner/directives/flags.h"

/* The copies and runs of the unrolled graph are those of `graph`. */
static void map_back(const ckpt_unrolled *unrolled, const ckpt_sequence *sequence, ckpt_order *order)
{
    order->count = 0;
    for (int t = 0; t < sequence->count; t++) {
        int target = 0;
        const ckpt_step_kind kind = ckpt_sequence_kind(sequence->op[t], &target);
        ckpt_order_add(order,
                       kind == CKPT_RUN ? unrolled->op[target] : ckpt_sequence_copy(kind, unrolled->buffer[target]));
    }
}

/* `auto` on a graph that contains the required recomputations. `order` is scratch. */
static ckpt_code plan_rest(const ckpt_graph *graph, const ckpt_unrolled *unrolled, ckpt_bytes limit,
                           const ckpt_plan_options *options, ckpt_order *order, ckpt_arena *out,
                           ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_plan_options fresh = *options; /* schedules of `graph` are none of this one */
    fresh.incumbent = NULL;
    fresh.incumbent_count = 0;
    fresh.low_memo = NULL;
    ckpt_candidates *const rest = CKPT_NEW(out, ckpt_candidates, 1);
    if (rest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "candidates around what is set");
    }
    *rest = (ckpt_candidates){.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    CKPT_TRY(ckpt_strategy_find("auto")->plan(&unrolled->graph, limit, &fresh, out, rest, err));
    for (int i = 0; i < rest->count; i++) {
        map_back(unrolled, &rest->candidate[i].sequence, order);
        CKPT_TRY(ckpt_flags_copies(order, graph, options->host_bytes, err));
        CKPT_TRY(ckpt_order_offer(order, graph, limit, out, candidates, err));
    }
    if (rest->min_peak.sequence.op != NULL) {
        map_back(unrolled, &rest->min_peak.sequence, order);
        CKPT_TRY(ckpt_flags_copies(order, graph, options->host_bytes, err));
        CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
    }
    if (rest->has_bound && strcmp(rest->bound_scope, "all") == 0) {
        ckpt_candidates_bound(candidates, rest->bound_ns, rest->bound_how, "flagged");
    }
    return CKPT_OK;
}

static ckpt_code plan_set(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options,
                          ckpt_order *order, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(ckpt_flags_order(graph, true, order, err));
    CKPT_TRY(ckpt_flags_copies(order, graph, options->host_bytes, err));
    CKPT_TRY(ckpt_order_end(order, graph, limit, out, candidates, err));
    if (candidates->count > 0) {
        return CKPT_OK;
    }
    ckpt_unrolled unrolled;
    CKPT_TRY(ckpt_flags_order(graph, false, order, err));
    if (order->failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order->count);
    }
    CKPT_TRY(ckpt_flags_unroll(graph, &(ckpt_sequence){order->op, order->count}, out, &unrolled, err));
    return plan_rest(graph, &unrolled, limit, options, order, out, candidates, err);
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    ckpt_order order;
    ckpt_order_init(&order);
    const ckpt_code code = plan_set(graph, limit, options, &order, out, candidates, err);
    ckpt_order_fini(&order);
    return code;
}

const ckpt_strategy ckpt_strategy_flags = {
    .name = "flags",
    .help = "recompute, keep and offload what is set, in the model or on the command line; plan the rest around it",
    .source = "the checkpoint wrappers of PyTorch and others, with early stop",
    .budgeted = true,
    .flags = true,
    .plan = plan,
};
