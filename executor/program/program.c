/* Addresses and numbers that set-up, run and state all need. */
#include "executor/program/program_impl.h"

float *ckpt_program_param(const ckpt_program *program, ckpt_bytes section, int node, int k)
{
    return (float *)(void *)(program->memory.statics.at + section + program->layout.param[node * CKPT_PARAM_MAX + k]);
}

/* A parameter's offset in the copy is half of its offset in the weights. */
void *ckpt_program_param16(const ckpt_program *program, int node, int k)
{
    const ckpt_static_layout *const layout = &program->layout;
    return layout->scales == layout->weights16
               ? NULL
               : program->memory.statics.at + layout->weights16 + layout->param[node * CKPT_PARAM_MAX + k] / 2;
}

float *ckpt_program_statistic(const ckpt_program *program, int node, int k)
{
    const ckpt_static_layout *const layout = &program->layout;
    return (float *)(void *)(program->memory.statics.at + layout->statistics + layout->stat[node * CKPT_STAT_MAX + k]);
}

float *ckpt_program_scale(const ckpt_program *program, int i)
{
    const ckpt_static_layout *const layout = &program->layout;
    return layout->total == layout->scales ? NULL : (float *)(void *)(program->memory.statics.at + layout->scales) + i;
}

double ckpt_program_base_scale(const ckpt_program *program)
{
    const ckpt_network *const network = program->lowered->network;
    return 1.0 / ((double)network->scheme.micro_batches * network->scheme.replicas * network->loss_scale);
}

/* slot -1: the weights. */
static void touch(const ckpt_program *program, int slot)
{
    const ckpt_network *const network = program->lowered->network;
    const ckpt_static_layout *const layout = &program->layout;
    const int row = network->node_count * CKPT_PARAM_MAX;
    const ckpt_bytes *const at = slot < 0 ? layout->param : layout->slot + (ptrdiff_t)slot * row;
    unsigned char *const section = program->memory.statics.at + (slot < 0 ? layout->weights : layout->optimizer);
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < network->node[n].param_count; k++) {
            const ckpt_param *const param = &network->node[n].param[k];
            const ckpt_bytes start = param->tied < 0 ? at[n * CKPT_PARAM_MAX + k] : -1;
            if (start >= 0) {
                program->device->api->touch(program->device, section + start,
                                            slot < 0 ? ckpt_tensor_bytes(&param->tensor)
                                                     : ckpt_network_slot_bytes(network, n, k, slot));
            }
        }
    }
}

void ckpt_program_touch_weights(const ckpt_program *program)
{
    if (program->device->api->touch != NULL) {
        touch(program, -1);
    }
}

void ckpt_program_touch_slots(const ckpt_program *program)
{
    const bool plain = program->device->api->touch != NULL && program->layout.slot != NULL;
    for (int i = 0; plain && i < ckpt_network_slots(program->lowered->network); i++) {
        touch(program, i);
    }
}

ckpt_code ckpt_program_narrow(const ckpt_program *program, ckpt_err *err)
{
    const ckpt_static_layout *const layout = &program->layout;
    unsigned char *const statics = program->memory.statics.at;
    if (layout->scales == layout->weights16) {
        return CKPT_OK;
    }
    return program->device->api->narrow(program->device, statics + layout->weights16,
                                        (const float *)(const void *)(statics + layout->weights),
                                        layout->weight_bytes / (ckpt_bytes)sizeof(float), err);
}

uint64_t ckpt_program_batch(const ckpt_program *program, uint64_t steps, int j)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    const uint64_t of_all = steps * (uint64_t)scheme->replicas + (uint64_t)program->replica;
    return of_all * (uint64_t)scheme->micro_batches + (uint64_t)j;
}

int ckpt_program_threads(const ckpt_program *program)
{
    return program->device->threads > 0 ? program->device->threads : ckpt_machine_threads();
}
