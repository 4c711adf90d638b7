/* Where everything in the arena lies, read from the addresses that kernels, copies and frees are given, not from the
 * plan that those were worked out from. A buffer lies where a step first touches it; a step that is given it elsewhere
 * begins a new allocation of the same buffer. */
#include "executor/run/run_impl.h"

typedef struct walker {
    const ckpt_program *program;
    ckpt_trace_allocation *allocation; /* NULL: only count */
    int count;
    int *open;          /* per buffer: its allocation now; -1: not in memory */
    ckpt_bytes *offset; /* per buffer that is in memory */
    int step;
    ckpt_err *err;
} walker;

static ckpt_code add(walker *w, const char *name, ckpt_category category, ckpt_bytes bytes, const void *address,
                     ckpt_bytes *offset)
{
    const ckpt_bytes at = (ckpt_bytes)((intptr_t)address - (intptr_t)w->program->memory.arena.at);
    if (at < 0 || at > w->program->plan->arena_bytes - bytes) {
        return CKPT_FAIL(w->err, CKPT_DEVICE,
                         "step %d: \"%.80s\" of %lld bytes lies %lld bytes from the start of the arena of %lld bytes",
                         w->step, name, (long long)bytes, (long long)at, (long long)w->program->plan->arena_bytes);
    }
    if (w->allocation != NULL) {
        w->allocation[w->count] = (ckpt_trace_allocation){name, category, w->step, w->step, at, bytes};
    }
    w->count++;
    *offset = at;
    return CKPT_OK;
}

static void shut(walker *w, int buffer, int to)
{
    if (w->allocation != NULL && w->open[buffer] >= 0) {
        w->allocation[w->open[buffer]].to = to;
    }
    w->open[buffer] = -1;
}

/* `buffer` -1 or `address` NULL: nothing that lies in the arena, or nothing that this step is told. */
static ckpt_code touch(walker *w, int buffer, const void *address)
{
    if (buffer < 0 || address == NULL) {
        return CKPT_OK;
    }
    const intptr_t at = (intptr_t)address - (intptr_t)w->program->memory.arena.at;
    if (w->open[buffer] >= 0 && w->offset[buffer] == (ckpt_bytes)at) {
        return CKPT_OK;
    }
    shut(w, buffer, w->step - 1);
    w->open[buffer] = w->count;
    const ckpt_buffer *const b = &w->program->lowered->graph->buffer[buffer];
    return add(w, b->name, ckpt_kind_category(b->kind), b->bytes, address, &w->offset[buffer]);
}

static ckpt_code touch_layer(walker *w, const ckpt_action *action)
{
    const ckpt_lowered *const lowered = w->program->lowered;
    const ckpt_network *const network = lowered->network;
    const ckpt_kernel_args *const args = &action->args;
    const ckpt_node *const node = args->node;
    const bool backward = action->phase == CKPT_BACKWARD;
    const size_t batch = (size_t)action->batch, nodes = (size_t)network->node_count;
    const int *const value_buffer = &lowered->value_buffer[batch * (size_t)network->value_count];
    const int *const grad_buffer = &lowered->grad_buffer[batch * (size_t)network->value_count];
    const int *const saved_buffer = &lowered->saved_buffer[(batch * nodes + (size_t)node->index) * CKPT_SAVED_MAX];
    for (int k = 0; k < node->in_count; k++) {
        CKPT_TRY(touch(w, value_buffer[node->in_value[k]], args->in[k]));
        CKPT_TRY(backward ? touch(w, grad_buffer[node->in_value[k]], args->grad_in[k]) : CKPT_OK);
    }
    for (int k = 0; k < node->out_count; k++) {
        CKPT_TRY(touch(w, value_buffer[node->out_value[k]], args->out[k]));
        CKPT_TRY(backward ? touch(w, grad_buffer[node->out_value[k]], args->grad_out[k]) : CKPT_OK);
    }
    for (int k = 0; k < node->saved_count; k++) {
        CKPT_TRY(touch(w, saved_buffer[k], args->saved[k]));
    }
    return CKPT_OK;
}

static ckpt_code walk_run(walker *w, const ckpt_step *step, const ckpt_action *action)
{
    const ckpt_graph_op *const op = ckpt_step_op(w->program->lowered->graph, step);
    if (action->task == CKPT_TASK_LAYER && action->phase != CKPT_UPDATE) {
        CKPT_TRY(touch_layer(w, action));
    }
    for (int i = 0; i < action->touch_count; i++) {
        CKPT_TRY(touch(w, action->touch[i].buffer, action->touch[i].address));
    }
    for (int i = 0; step->inplace && i < op->inplace_count; i++) {
        shut(w, op->inplace[i].in, w->step - 1);
    }
    ckpt_bytes offset = 0;
    return action->args.workspace_bytes == 0
               ? CKPT_OK
               : add(w, "workspace", CKPT_CAT_WORKSPACE, action->args.workspace_bytes, action->args.workspace, &offset);
}

static ckpt_code walk(walker *w)
{
    const ckpt_plan *const plan = w->program->plan;
    const int buffers = w->program->lowered->graph->buffer_count;
    w->count = 0;
    for (int b = 0; b < buffers; b++) {
        w->open[b] = -1;
    }
    for (w->step = 0; w->step < plan->step_count; w->step++) {
        const ckpt_step *const step = &plan->step[w->step];
        const ckpt_action *const action = &w->program->action[w->step];
        if (step->kind == CKPT_RUN) {
            CKPT_TRY(walk_run(w, step, action));
            continue;
        }
        CKPT_TRY(touch(w, step->target, action->allocation));
        if (step->kind == CKPT_FREE) {
            shut(w, step->target, w->step);
        }
    }
    for (int b = 0; b < buffers; b++) {
        shut(w, b, plan->step_count - 1);
    }
    return CKPT_OK;
}

ckpt_code ckpt_measured_allocations(const ckpt_program *program, ckpt_arena *out,
                                    const ckpt_trace_allocation **allocation, int *count, ckpt_err *err)
{
    const int buffers = program->lowered->graph->buffer_count;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    walker w = {.program = program,
                .open = CKPT_NEW(&scratch, int, buffers),
                .offset = CKPT_NEW(&scratch, ckpt_bytes, buffers),
                .err = err};
    ckpt_code code = w.open != NULL && w.offset != NULL ? walk(&w) : CKPT_NO_MEMORY;
    if (code == CKPT_OK) {
        w.allocation = CKPT_NEW(out, ckpt_trace_allocation, w.count);
        code = w.allocation != NULL ? walk(&w) : CKPT_NO_MEMORY;
    }
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK) {
        *allocation = w.allocation;
        *count = w.count;
    }
    return code == CKPT_NO_MEMORY
               ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the allocations of %d steps", program->plan->step_count)
               : code;
}
