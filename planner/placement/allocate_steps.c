/* Offsets for the buffers of a plan's steps: an in-place output and its input are one for the packer. */
#include "planner/placement/allocate.h"

/* Per allocation: the allocation whose address it has, itself for most. An in-place output lies where its input lay,
 * which may lie where another did: the first of them stands for all. */
static void find_roots(const ckpt_graph *graph, const ckpt_plan *plan, int *held, int *root)
{
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        const ckpt_step *const step = &plan->step[allocation->from];
        root[i] = i;
        if (allocation->buffer < 0) {
            continue;
        }
        const ckpt_graph_op *const op = step->kind == CKPT_RUN && step->inplace ? ckpt_step_op(graph, step) : NULL;
        for (int p = 0; op != NULL && p < op->inplace_count; p++) {
            if (op->inplace[p].out == allocation->buffer) {
                root[i] = root[held[op->inplace[p].in]];
            }
        }
        held[allocation->buffer] = i;
    }
}

ckpt_code ckpt_sequence_pack(const ckpt_graph *graph, ckpt_plan *plan, ckpt_bytes enough,
                             const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_allocation *const allocation =
        (ckpt_allocation *)plan->allocation; /* made by ckpt_sequence_steps, not yet shown to anyone */
    ckpt_allocation *const joined = CKPT_NEW(scratch, ckpt_allocation, plan->allocation_count);
    int *const root = CKPT_NEW(scratch, int, plan->allocation_count);
    int *const held = CKPT_NEW(scratch, int, graph->buffer_count);
    int *const to = CKPT_NEW(scratch, int, plan->allocation_count); /* per root: its number among the joined */
    if (joined == NULL || root == NULL || held == NULL || to == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "packing of %d allocations", plan->allocation_count);
    }
    find_roots(graph, plan, held, root);
    int count = 0;
    for (int i = 0; i < plan->allocation_count; i++) {
        if (root[i] == i) {
            to[i] = count;
            joined[count++] = allocation[i];
        } else {
            joined[to[root[i]]].to = allocation[i].to;
        }
    }
    CKPT_TRY(ckpt_allocations_pack(joined, count, enough, options, scratch, &plan->arena_bytes, err));
    for (int i = 0; i < plan->allocation_count; i++) {
        allocation[i].offset = joined[to[root[i]]].offset;
    }
    return CKPT_OK;
}
