/* What the steps of a plan do to each layer, as one word. Knows plans and graphs, no strategy. */
#include <stdlib.h>
#include <string.h>

#include "planner/replay/clock.h"

int ckpt_named_compare(const void *a, const void *b)
{
    const ckpt_named *const x = a;
    const ckpt_named *const y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->op > y->op) - (x->op < y->op);
}

static int compare_ops(const void *a, const void *b)
{
    return ((const ckpt_named *)a)->op - ((const ckpt_named *)b)->op;
}

/* A layer that is recomputed and offloaded counts as recomputed, which costs more. */
static ckpt_decision stronger(ckpt_decision a, ckpt_decision b)
{
    return a == CKPT_RECOMPUTE || b == CKPT_RECOMPUTE ? CKPT_RECOMPUTE : a == CKPT_KEEP ? b : a;
}

ckpt_code ckpt_layers_decide(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                             ckpt_layer_decision **made, int *made_count, ckpt_err *err)
{
    ckpt_layer_decision *const layer = CKPT_NEW(out, ckpt_layer_decision, graph->op_count);
    const ckpt_mark mark = ckpt_arena_mark(out);
    ckpt_named *const list = CKPT_NEW(out, ckpt_named, graph->op_count);
    ckpt_decision *const decision = CKPT_NEW(out, ckpt_decision, graph->op_count); /* zeroed: keep */
    if (layer == NULL || list == NULL || decision == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d ops", graph->op_count);
    }
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        if (step->kind == CKPT_RUN && step->recomputed) {
            decision[step->target] = CKPT_RECOMPUTE;
        } else if (step->kind == CKPT_OFFLOAD) {
            ckpt_decision *const writer = &decision[graph->writer[step->target]];
            *writer = stronger(*writer, CKPT_OFFLOADED);
        }
    }
    int count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].phase == CKPT_FORWARD && graph->op[o].layer != NULL && graph->op[o].layer[0] != '\0') {
            list[count++] = (ckpt_named){graph->op[o].layer, o};
        }
    }
    qsort(list, (size_t)count, sizeof *list, ckpt_named_compare);
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        if (distinct > 0 && strcmp(list[distinct - 1].name, list[i].name) == 0) {
            ckpt_decision *const whole = &decision[list[distinct - 1].op];
            *whole = stronger(*whole, decision[list[i].op]);
        } else {
            list[distinct++] = list[i];
        }
    }
    qsort(list, (size_t)distinct, sizeof *list, compare_ops);
    for (int i = 0; i < distinct; i++) {
        layer[i] = (ckpt_layer_decision){list[i].name, decision[list[i].op]};
    }
    ckpt_arena_rewind(out, mark);
    *made = layer;
    *made_count = distinct;
    return CKPT_OK;
}
