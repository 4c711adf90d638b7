/* Where buffers, values and gradients lie at the step that the walk over the plan has come to. */
#include <string.h>

#include "executor/setup/wire_impl.h"

ckpt_code ckpt_wire_no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the plan's addresses");
}

void *ckpt_wire_allocation(const ckpt_program *program, const ckpt_allocation *allocation)
{
    return allocation == NULL ? NULL : program->memory.arena.at + allocation->offset;
}

ckpt_code ckpt_wire_buffer(const ckpt_wiring *wiring, int buffer, int step, void **address, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    *address = buffer < 0 ? NULL : ckpt_wire_allocation(program, wiring->held[buffer]);
    if (buffer >= 0 && *address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         program->plan->source, step, program->lowered->graph->buffer[buffer].name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire_value(const ckpt_wiring *wiring, int batch, int v, int step, void **address, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_network *const network = program->lowered->network;
    const ckpt_value *const storage = &network->value[network->value[v].storage];
    if (storage->node < 0) {
        const ckpt_bytes offset = program->layout.input[batch * network->model->input_count + storage->output];
        *address = offset < 0 ? NULL : program->memory.statics.at + program->layout.inputs + offset;
    } else {
        const int buffer = program->lowered->value_buffer[batch * network->value_count + v];
        *address = buffer < 0 ? NULL : ckpt_wire_allocation(program, wiring->held[buffer]);
    }
    if (*address == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: step %d needs %s, which is not in memory then",
                         program->plan->source, step, storage->name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_wire_touch(const ckpt_wiring *wiring, ckpt_action *action, int buffer, const void *address,
                          ckpt_err *err)
{
    if (buffer < 0 || address == NULL) {
        return CKPT_OK;
    }
    if (action->touch_count == action->touch_capacity) {
        const int room = 2 * action->touch_capacity + 4;
        ckpt_touch *const wider = CKPT_NEW(wiring->out, ckpt_touch, room);
        if (wider == NULL) {
            return ckpt_wire_no_memory(err);
        }
        if (action->touch_count > 0) {
            memcpy(wider, action->touch, (size_t)action->touch_count * sizeof *wider);
        }
        action->touch = wider;
        action->touch_capacity = room;
    }
    action->touch[action->touch_count++] = (ckpt_touch){buffer, address};
    return CKPT_OK;
}

ckpt_code ckpt_wire_gradient(const ckpt_wiring *wiring, int node, int k, int step, int *buffer, float **address,
                             ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_lowered *const lowered = program->lowered;
    const int tied = lowered->network->node[node].param[k].tied;
    const int owner = tied >= 0 ? tied : node;
    *buffer = lowered->network->scheme.fused ? lowered->param_grad_buffer[owner * CKPT_PARAM_MAX + k] : -1;
    if (*buffer >= 0) {
        void *allocation = NULL;
        CKPT_TRY(ckpt_wire_buffer(wiring, *buffer, step, &allocation, err));
        *address = allocation;
        return CKPT_OK;
    }
    *address = lowered->network->scheme.fused ? NULL : ckpt_program_param(program, program->layout.gradients, node, k);
    return CKPT_OK;
}
