/* Each unit of the model's sequence keeps its input and is recomputed as a whole: what people wrap by hand, whatever
 * the user has flagged. A unit is a copy of a repeated block, or what lies between narrow cuts
 * (planner/directives/units.h). */
#include "planner/directives/flags.h"
#include "planner/directives/units.h"
#include "planner/schedule/batches.h"

/* The units of a graph without micro-batches, whatever is set there. */
static ckpt_code flag_units(const ckpt_graph *graph, ckpt_arena *scratch, const ckpt_graph **set, ckpt_err *err)
{
    ckpt_graph *const flagged = CKPT_NEW(scratch, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(scratch, ckpt_graph_op, graph->op_count);
    if (flagged == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "blocks of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        op[o] = graph->op[o];
        op[o].checkpoint = CKPT_UNSET;
        op[o].policy = CKPT_NO_POLICY;
    }
    *flagged = *graph;
    flagged->op = op;
    *set = flagged;
    return ckpt_units_flag(flagged, op, scratch, err);
}

static ckpt_code write_order(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_order *order, ckpt_err *err)
{
    const bool several = ckpt_batch_count(graph) > 0;
    const ckpt_graph *set = graph;
    CKPT_TRY(several ? ckpt_batch_first(graph, scratch, &set, err) : CKPT_OK);
    CKPT_TRY(flag_units(set, scratch, &set, err));
    CKPT_TRY(several ? ckpt_batch_spread(graph, set, scratch, &set, err) : CKPT_OK);
    return ckpt_flags_order(set, false, order, err);
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_code code = write_order(graph, &scratch, &order, err);
    code = code == CKPT_OK ? ckpt_order_end(&order, graph, limit, out, candidates, err) : code;
    ckpt_order_fini(&order);
    ckpt_arena_fini(&scratch);
    return code;
}

const ckpt_strategy ckpt_strategy_each_block = {
    .name = "each-block",
    .help = "keep only what enters and leaves each repeated block of the model, recompute each as a whole",
    .source = "torch.utils.checkpoint around every block, as the documentation of PyTorch and of others shows it",
    .baseline = true,
    .plan = plan,
};
