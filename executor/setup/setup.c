/* Set-up: reserve all memory and write the program, so that a step has nothing left to find out. */
#include "executor/setup/setup_impl.h"

#include "executor/setup/memory_impl.h"
#include "executor/setup/wire_impl.h"

static ckpt_code refuse_unfit(const ckpt_program *program, ckpt_err *err)
{
    const ckpt_network *const network = program->lowered->network;
    const ckpt_plan *const plan = program->plan;
    if (plan->verdict != CKPT_FITS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the plan says that nothing fits its budget; there is nothing to run",
                         plan->source);
    }
    if (network->loss_node < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: the last layer is no loss, so there is nothing to train",
                         network->model->source);
    }
    for (int n = 0; n < network->node_count; n++) {
        if (network->node[n].op->planned_only) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s (%s) can be planned but not run",
                             network->model->source, network->node[n].name, network->node[n].op->name);
        }
    }
    return CKPT_OK;
}

/* Bytes for one input of one micro-batch, behind `*total`: what the caller fills, and what is uploaded where that is
 * something else. */
static bool add_input(const ckpt_tensor *file, const ckpt_tensor *device, ckpt_bytes at[2], ckpt_bytes *total)
{
    const ckpt_bytes uploaded = device->dtype == file->dtype ? 0 : ckpt_round_up(ckpt_tensor_bytes(device), CKPT_ALIGN);
    at[0] = *total;
    const bool fits = ckpt_sum(*total, ckpt_round_up(ckpt_tensor_bytes(file), CKPT_ALIGN), total);
    at[1] = uploaded > 0 ? *total : at[0];
    return fits && ckpt_sum(*total, uploaded, total);
}

/* The host memory of the inputs: what the caller fills, and what every step uploads. One page-locked block, so that
 * uploads run at the link's full speed. */
static ckpt_code place_inputs(ckpt_program *program, ckpt_err *err)
{
    const ckpt_network *const network = program->lowered->network;
    const int inputs = network->model->input_count, count = inputs * network->scheme.micro_batches;
    program->input = CKPT_NEW(&program->arena, void *, count);
    program->upload = CKPT_NEW(&program->arena, void *, count);
    program->memory.chunk = CKPT_NEW(&program->arena, unsigned char, 2 * CKPT_CHUNK_BYTES);
    ckpt_bytes *const at = CKPT_NEW(&program->arena, ckpt_bytes, 2 * (size_t)count);
    if (program->input == NULL || program->upload == NULL || program->memory.chunk == NULL || at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the inputs");
    }
    ckpt_bytes total = 0;
    for (int i = 0; i < count; i++) {
        const bool read = program->layout.input[i] >= 0;
        if (read &&
            !add_input(&network->model->input[i % inputs], &network->value[i % inputs].tensor, &at[2 * i], &total)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "inputs do not fit 63 bits of bytes");
        }
    }
    CKPT_TRY(ckpt_reserve_host(program->device, total, "the inputs", &program->memory.feed, err));
    for (int i = 0; i < count; i++) {
        if (program->layout.input[i] >= 0) {
            program->input[i] = program->memory.feed.at + at[2 * i];
            program->upload[i] = program->memory.feed.at + at[2 * i + 1];
        }
    }
    return CKPT_OK;
}

/* Who this process is among the ranks of the scheme. */
static ckpt_code find_rank(ckpt_program *program, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    const int wanted = ckpt_scheme_ranks(scheme);
    program->rank = program->ranks != NULL ? ckpt_ranks_rank(program->ranks) : 0;
    if (wanted == 1) {
        return CKPT_OK;
    }
    const int count = program->ranks != NULL ? ckpt_ranks_count(program->ranks) : 1;
    if (count != wanted) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d process%s, wanted %d: replicas times stages",
                         program->plan->source, count, count == 1 ? "" : "es", wanted);
    }
    program->replica = program->rank / scheme->stages;
    if (program->rank % scheme->stages != scheme->stage) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: rank %d has stage %d, and this is the plan of stage %d",
                         program->plan->source, program->rank, program->rank % scheme->stages, scheme->stage);
    }
    return CKPT_OK;
}

ckpt_code ckpt_program_init(ckpt_program *program, ckpt_err *err)
{
    const ckpt_lowered *const lowered = program->lowered;
    ckpt_arena_init(&program->arena);
    CKPT_TRY(refuse_unfit(program, err));
    CKPT_TRY(find_rank(program, err));
    CKPT_TRY(ckpt_network_statics(lowered->network, &program->arena, &program->layout, err));
    if (program->layout.total != lowered->graph->static_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "static block: %lld bytes laid out, the graph says %lld",
                         (long long)program->layout.total, (long long)lowered->graph->static_bytes);
    }
    CKPT_TRY(place_inputs(program, err));
    CKPT_TRY(ckpt_reserve_device(program, err));
    CKPT_TRY(ckpt_wire(program, err));
    return program->device->api->signals(program->device, program->signal_count, err);
}

void ckpt_program_fini(ckpt_program *program)
{
    for (int n = 0; program->bound != NULL && n < program->lowered->network->node_count; n++) {
        if (program->bound[n].kernel != NULL) {
            ckpt_device_unbind(&program->bound[n]);
        }
    }
    ckpt_release(program->device, &program->memory);
    ckpt_arena_fini(&program->arena);
}
