/* The user's own choice: what is flagged "checkpoint": true is dropped after its forward and recomputed as a unit
 * when backward first needs something of it; what leaves the unit is kept.
 *
 * Only the ops that backward still needs run again (what PyTorch calls early stop). */
#include <stdlib.h>
#include <string.h>

#include "planner/planner_impl.h"
#include "planner/replay_impl.h"

typedef struct flags {
    const ckpt_graph *graph;
    int *unit;        /* per op: its flagged unit; -1: none */
    int *first;       /* per unit: where its ops start in `member` */
    int *member;      /* ops by unit, rising */
    bool *leaves;     /* per buffer: some forward op outside its unit reads it */
    bool *recomputed; /* per unit */
    int *last_use;    /* per buffer: last op that reads it */
    bool *wanted;     /* per buffer, scratch */
    bool *again;      /* per op, scratch */
    int units;
} flags;

static bool flagged(const ckpt_graph_op *op)
{
    return op->checkpoint == CKPT_YES && op->phase == CKPT_FORWARD && op->recompute;
}

static ckpt_code find_units(flags *f, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    ckpt_named *const list = CKPT_NEW(scratch, ckpt_named, graph->op_count);
    f->unit = CKPT_NEW(scratch, int, graph->op_count);
    f->first = CKPT_NEW(scratch, int, graph->op_count + 1);
    f->member = CKPT_NEW(scratch, int, graph->op_count);
    f->again = CKPT_NEW(scratch, bool, graph->op_count);
    f->recomputed = CKPT_NEW(scratch, bool, graph->op_count);
    f->leaves = CKPT_NEW(scratch, bool, graph->buffer_count);
    f->wanted = CKPT_NEW(scratch, bool, graph->buffer_count);
    f->last_use = CKPT_NEW(scratch, int, graph->buffer_count);
    if (list == NULL || f->unit == NULL || f->first == NULL || f->member == NULL || f->again == NULL ||
        f->recomputed == NULL || f->leaves == NULL || f->wanted == NULL || f->last_use == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "flagged units of %d ops", graph->op_count);
    }
    int count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        f->unit[o] = -1;
        if (flagged(op)) { /* without a segment an op is a unit of its own */
            list[count++] = (ckpt_named){op->segment != NULL ? op->segment : op->name, o};
        }
    }
    qsort(list, (size_t)count, sizeof *list, ckpt_named_compare);
    for (int i = 0; i < count; i++) {
        if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0) {
            f->first[f->units++] = i;
        }
        f->member[i] = list[i].op;
        f->unit[list[i].op] = f->units - 1;
    }
    f->first[f->units] = count;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        for (int i = 0; i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            f->last_use[b] = o;
            if (op->phase == CKPT_FORWARD && f->unit[o] != f->unit[graph->writer[b]]) {
                f->leaves[b] = true;
            }
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        f->leaves[graph->outputs.at[i]] = true;
    }
    return CKPT_OK;
}

/* Recompute what ops from `now` on still read of the unit and what did not leave it. */
static void recompute(flags *f, int unit, int now, ckpt_order *order)
{
    const ckpt_graph *const graph = f->graph;
    f->recomputed[unit] = true;
    for (int m = f->first[unit + 1] - 1; m >= f->first[unit]; m--) {
        const ckpt_graph_op *const op = &graph->op[f->member[m]];
        bool needed = false;
        for (int i = 0; i < op->writes.count; i++) {
            const int b = op->writes.at[i];
            needed = needed || f->wanted[b] || (f->last_use[b] >= now && !f->leaves[b]);
        }
        f->again[f->member[m]] = needed;
        for (int i = 0; needed && i < op->reads.count; i++) {
            f->wanted[op->reads.at[i]] = !f->leaves[op->reads.at[i]];
        }
    }
    for (int m = f->first[unit]; m < f->first[unit + 1]; m++) {
        if (f->again[f->member[m]]) {
            ckpt_order_add(order, f->member[m]);
        }
    }
}

static ckpt_code write_order(flags *f, ckpt_arena *scratch, ckpt_order *order, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    CKPT_TRY(find_units(f, scratch, err));
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        for (int i = 0; op->phase != CKPT_FORWARD && i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            const int unit = f->unit[graph->writer[b]];
            if (unit >= 0 && !f->leaves[b] && !f->recomputed[unit]) {
                recompute(f, unit, o, order);
            }
        }
        ckpt_order_add(order, o);
    }
    return CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_answer *answer, ckpt_err *err)
{
    (void)options;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_order order;
    ckpt_order_init(&order);
    flags f = {.graph = graph};
    ckpt_code code = write_order(&f, &scratch, &order, err);
    code = code == CKPT_OK ? ckpt_order_end(&order, graph, limit, out, answer, err) : code;
    ckpt_order_fini(&order);
    ckpt_arena_fini(&scratch);
    return code;
}

const ckpt_strategy ckpt_strategy_flags = {
    .name = "flags",
    .help = "recompute what the model flags with \"checkpoint\": true, as units",
    .source = "the checkpoint wrappers of PyTorch and others, with early stop",
    .flags = true,
    .plan = plan,
};
