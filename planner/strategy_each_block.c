/* Each repeated block of the network keeps its input and is recomputed as a whole: what people wrap by hand.
 *
 * A block is what the graph's layer names say: all forward ops whose layer has the same name up to its last copy number
 * ("h.3" of "h.3.mlp.up"). Where no layer has one, the blocks are the stretches between narrow cuts (planner/chain.c).
 * The order itself is that of the user's own flags (planner/flags_order.c), on a copy of the graph that has these
 * blocks flagged. */
#include <ctype.h>
#include <string.h>

#include "planner/chain_impl.h"
#include "planner/flags_impl.h"

/* How many characters of a layer's name say which copy of a repeated block it is in; 0: in none. */
static int copy_length(const char *layer)
{
    int length = 0;
    int start = 0;
    bool number = true;
    for (int i = 0; layer[i] != '\0'; i++) {
        if (layer[i] == '.') {
            length = number && i > start && start > 0 ? i : length;
            start = i + 1;
            number = true;
        } else {
            number = number && isdigit((unsigned char)layer[i]);
        }
    }
    return length;
}

/* Flag the ops of repeated blocks. Gives whether there are any. */
static ckpt_code flag_copies(ckpt_graph_op *op, int count, ckpt_arena *scratch, bool *any, ckpt_err *err)
{
    *any = false;
    for (int o = 0; o < count; o++) {
        const int length = op[o].layer != NULL && op[o].phase == CKPT_FORWARD ? copy_length(op[o].layer) : 0;
        op[o].checkpoint = CKPT_UNSET;
        if (length > 0) {
            op[o].checkpoint = CKPT_YES;
            op[o].segment = ckpt_arena_format(scratch, "%.*s", length, op[o].layer);
            if (op[o].segment == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a block");
            }
            *any = true;
        }
    }
    return CKPT_OK;
}

static ckpt_code flag_chain(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_chain *chain = NULL;
    CKPT_TRY(ckpt_chain_build(graph, false, scratch, &chain, err));
    for (int k = 1; k <= chain->count; k++) {
        const char *const name = ckpt_arena_format(scratch, "%d", k);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a block");
        }
        for (int o = chain->block[k].from; o < chain->block[k].to; o++) {
            op[o].checkpoint = CKPT_YES;
            op[o].segment = name;
        }
    }
    return CKPT_OK;
}

static ckpt_code plan_flagged(const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *scratch, ckpt_arena *out,
                              ckpt_answer *answer, ckpt_err *err)
{
    ckpt_graph_op *const op = CKPT_NEW(scratch, ckpt_graph_op, graph->op_count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "blocks of %d ops", graph->op_count);
    }
    if (graph->op_count > 0) {
        memcpy(op, graph->op, (size_t)graph->op_count * sizeof *op);
    }
    bool any = false;
    CKPT_TRY(flag_copies(op, graph->op_count, scratch, &any, err));
    if (!any) {
        CKPT_TRY(flag_chain(graph, op, scratch, err));
    }
    ckpt_graph flagged = *graph;
    flagged.op = op;
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_code code = ckpt_flags_order(&flagged, true, &order, err);
    code = code == CKPT_OK ? ckpt_order_end(&order, graph, limit, out, answer, err) : code;
    ckpt_order_fini(&order);
    return code;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = plan_flagged(graph, limit, &scratch, out, answer, err);
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
