/* One training step: a walk over the actions, or the replay of a walk that was recorded. Both do the same things in the
 * same order on the same addresses, so they leave the same bits.
 *
 *     before   inputs to the device, seed and step to the kernels        never part of a recording
 *     walk     wait - act - account - signal, for every step of the plan
 *     after    all streams empty, the losses to the host and to the other ranks */
#include <string.h>

#include "executor/run/run_impl.h"

/* Kernels of a GPU draw from what the device was told last. `step` counts batches; the optimizer's numbers are those of
 * the training step, whatever its batch. */
static ckpt_code begin_anew(ckpt_run *run, uint64_t step, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_network_numbers(program->lowered->network, run->steps + 1, &run->numbers);
    run->begun = step;
    return program->device->api->begin(program->device, run->seed, step, &run->numbers, err);
}

static ckpt_code begin(ckpt_run *run, uint64_t step, ckpt_err *err)
{
    return run->begun == step ? CKPT_OK : begin_anew(run, step, err);
}

static ckpt_code run_update(ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const bool own = run->apart || !program->device->api->gpu;
    CKPT_TRY(begin(run, run->steps, err));
    return ckpt_device_update(program->device, program->lowered->network->optimizer, &run->numbers,
                              own ? action->update : action->joined, own ? action->update_count : action->joined_count,
                              err);
}

static ckpt_code run_layer(ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    if (action->phase == CKPT_UPDATE) {
        return run_update(run, action, err);
    }
    ckpt_device *const device = run->program->device;
    ckpt_kernel_args args = action->args;
    args.seed = run->seed;
    args.step = ckpt_program_batch(run->program, run->steps, action->batch);
    args.evaluating = run->evaluating;
    CKPT_TRY(begin(run, args.step, err));
    return action->phase == CKPT_FORWARD ? ckpt_device_forward(device, action->bound, &args, err)
                                         : ckpt_device_backward(device, action->bound, &args, err);
}

static ckpt_code run_task(ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    switch (action->task) {
    case CKPT_TASK_LAYER: return run_layer(run, action, err);
    case CKPT_TASK_NORM: return ckpt_run_norm(run, action, err);
    case CKPT_TASK_SEND:
    case CKPT_TASK_SENT:
    case CKPT_TASK_RECEIVE:
    case CKPT_TASK_REDUCE_START:
    case CKPT_TASK_REDUCE:
    case CKPT_TASK_REDUCE_END:
    case CKPT_TASK_ALL_GATHER:
    case CKPT_TASK_REDUCE_TIED: break;
    }
    return ckpt_run_exchange(run->program, action, err);
}

/* Fill what is free with NaN, so that a read of freed memory shows. */
static ckpt_code poison(const ckpt_program *program, void *allocation, ckpt_bytes bytes, ckpt_err *err)
{
    if (!program->poison || bytes == 0) {
        return CKPT_OK;
    }
    return program->device->api->fill(program->device, allocation, 0xFF, bytes, err);
}

static ckpt_code act(ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    switch (action->kind) {
    case CKPT_RUN: return run_task(run, action, err);
    case CKPT_FREE: return poison(program, action->allocation, action->bytes, err);
    case CKPT_OFFLOAD: return device->api->offload(device, action->host, action->allocation, action->bytes, err);
    case CKPT_FETCH: return device->api->fetch(device, action->allocation, action->host, action->bytes, err);
    }
    return CKPT_OK;
}

/* What is in memory, the static block counted: the same sum that a trace shows. */
static void account(ckpt_run *run, const ckpt_action *action)
{
    ckpt_bytes total = action->args.workspace_bytes;
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        run->live[c] += action->allocated[c] - action->freed[c];
        total += run->live[c];
    }
    run->peak_bytes = total > run->peak_bytes ? total : run->peak_bytes;
}

static void account_statics(ckpt_run *run)
{
    const ckpt_program *const program = run->program;
    const ckpt_static_layout *const layout = &program->layout;
    memset(run->live, 0, sizeof run->live);
    run->live[CKPT_CAT_WEIGHTS] = layout->gradients - layout->weights + (layout->scales - layout->weights16);
    run->live[CKPT_CAT_GRADIENTS] = layout->optimizer - layout->gradients;
    run->live[CKPT_CAT_OPTIMIZER] = layout->statistics - layout->optimizer;
    run->live[CKPT_CAT_INPUTS] = layout->weights16 - layout->statistics + (layout->total - layout->scales);
}

static ckpt_code await(ckpt_device *device, const ckpt_action *action, ckpt_err *err)
{
    for (int w = 0; w < action->wait_count; w++) {
        CKPT_TRY(device->api->wait(device, action->wait[w], action->stream, err));
    }
    return CKPT_OK;
}

static ckpt_code set_signal(ckpt_device *device, const ckpt_action *action, ckpt_err *err)
{
    return action->signal < 0 ? CKPT_OK : device->api->record(device, action->signal, action->stream, err);
}

static ckpt_code walk_step(ckpt_run *run, int s, ckpt_measured *measured, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const ckpt_action *const action = &program->action[s];
    CKPT_TRY(await(program->device, action, err));
    CKPT_TRY(ckpt_measured_before(program, measured, s, err));
    CKPT_TRY_WHILE(err, act(run, action, err), "running step %d (%s)", s, action->name);
    account(run, action);
    CKPT_TRY(ckpt_measured_after(run, measured, s, err));
    CKPT_TRY(poison(program, action->args.workspace, action->args.workspace_bytes, err));
    return set_signal(program->device, action, err);
}

static ckpt_code walk(ckpt_run *run, ckpt_measured *measured, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    account_statics(run);
    CKPT_TRY(poison(program, program->memory.arena.at, program->plan->arena_bytes, err));
    for (int s = 0; s < program->plan->step_count; s++) {
        CKPT_TRY(walk_step(run, s, measured, err));
    }
    return CKPT_OK;
}

/* A float32 input of a bfloat16 model is narrowed on the host: the device has memory for one of the two. */
static void narrow_input(const ckpt_program *program, int i)
{
    const float *const from = program->input[i];
    uint16_t *const to = program->upload[i];
    const ckpt_model *const model = program->lowered->network->model;
    const int64_t count = ckpt_shape_count(&model->input[i % model->input_count].shape);
    const int threads = ckpt_program_threads(program);
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > 1 << 16)
    for (int64_t k = 0; k < count; k++) {
        to[k] = ckpt_bfloat16_of(from[k]);
    }
}

static ckpt_code before(ckpt_run *run, uint64_t seed, uint64_t steps, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    run->seed = seed;
    run->steps = steps;
    ckpt_device *const device = program->device;
    const ckpt_network *const network = program->lowered->network;
    if (program->poison && program->memory.slab.at != NULL) {
        memset(program->memory.slab.at, 0xFF, (size_t)program->memory.slab.bytes); /* all streams are empty now */
    }
    const int inputs = network->model->input_count;
    for (int i = 0; i < inputs * network->scheme.micro_batches; i++) {
        if (program->input[i] == NULL) {
            continue;
        }
        if (program->upload[i] != program->input[i]) {
            narrow_input(program, i);
        }
        CKPT_TRY(device->api->upload(device,
                                     program->memory.statics.at + program->layout.inputs + program->layout.input[i],
                                     program->upload[i], ckpt_tensor_bytes(&network->value[i % inputs].tensor), err));
    }
    return begin_anew(run, ckpt_program_batch(program, run->steps, 0), err);
}

/* The sum of this rank's losses, in the order of micro-batches; 0 where another stage has them. */
static ckpt_code sum_losses(const ckpt_program *program, double *sum, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    *sum = 0;
    for (int j = 0; program->loss != NULL && j < program->lowered->network->scheme.micro_batches; j++) {
        float loss = 0;
        CKPT_TRY(device->api->download(device, &loss, program->loss[j], (ckpt_bytes)sizeof loss, err));
        *sum = j == 0 ? (double)loss : *sum + (double)loss;
    }
    return CKPT_OK;
}

/* Their mean over all ranks that have losses, on all ranks. */
static ckpt_code mean_loss(const ckpt_run *run, float *loss, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    double sum = 0;
    CKPT_TRY(sum_losses(program, &sum, err));
    if (run->losses != NULL) {
        CKPT_TRY(ckpt_ranks_allgather(program->ranks, &sum, run->losses, (ckpt_bytes)sizeof sum, err));
        sum = run->losses[scheme->stages - 1];
        for (int r = 1; r < scheme->replicas; r++) {
            sum += run->losses[(r + 1) * scheme->stages - 1];
        }
    }
    *loss = (float)(sum / ((double)scheme->micro_batches * scheme->replicas));
    return CKPT_OK;
}

ckpt_code ckpt_run_step(ckpt_run *run, uint64_t seed, uint64_t steps, ckpt_measured *measured, float *loss,
                        ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    run->apart = measured != NULL;
    CKPT_TRY(before(run, seed, steps, err));
    ckpt_outside_start(run);
    if (run->recorded != NULL && measured == NULL) {
        CKPT_TRY(device->api->replay(device, run->recorded, err));
    } else {
        CKPT_TRY(ckpt_measured_start(program, measured, err));
        CKPT_TRY(walk(run, measured, err));
    }
    CKPT_TRY(device->api->finish(device, err)); /* copies that nothing waited for end with the step */
    CKPT_TRY(ckpt_measured_end(program, measured, err));
    if (measured == NULL || measured->recorder == NULL) {
        ckpt_outside_look(run);
    }
    return mean_loss(run, loss, err);
}

/* Shows a loss over classes to who watches, when all that it reads is there. */
static ckpt_code show(const ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    ckpt_device *const device = run->program->device;
    const bool loss = action->needed && action->kind == CKPT_RUN && action->task == CKPT_TASK_LAYER &&
                      action->phase == CKPT_FORWARD && ckpt_predictions_are(action->args.node);
    if (run->watcher == NULL || !loss) {
        return CKPT_OK;
    }
    CKPT_TRY(device->api->finish(device, err));
    return run->watcher->look(run->watcher->context, device, &action->args, err);
}

/* A step of an evaluation. What is left out keeps its waits and its signal: others count on all of a stream being in
 * order up to there. */
static ckpt_code evaluate_step(ckpt_run *run, int s, ckpt_err *err)
{
    ckpt_device *const device = run->program->device;
    const ckpt_action *const action = &run->program->action[s];
    CKPT_TRY(await(device, action, err));
    CKPT_TRY(show(run, action, err));
    CKPT_TRY_WHILE(err, action->needed ? act(run, action, err) : CKPT_OK, "evaluating: step %d (%s)", s, action->name);
    return set_signal(device, action, err);
}

static ckpt_code evaluate(ckpt_run *run, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    CKPT_TRY(poison(program, program->memory.arena.at, program->memory.arena.bytes, err));
    for (int s = 0; s < program->forward_count; s++) {
        CKPT_TRY(evaluate_step(run, s, err));
    }
    return program->device->api->finish(program->device, err);
}

ckpt_code ckpt_run_evaluate(ckpt_run *run, uint64_t seed, uint64_t steps, const ckpt_watcher *watcher, float *loss,
                            ckpt_err *err)
{
    CKPT_TRY(before(run, seed, steps, err));
    run->evaluating = true;
    run->watcher = watcher;
    const ckpt_code code = evaluate(run, err);
    run->evaluating = false;
    run->watcher = NULL;
    CKPT_TRY(code);
    return mean_loss(run, loss, err);
}

/* A walk of which all streams end on compute. */
static ckpt_code walk_and_join(ckpt_run *run, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    CKPT_TRY(walk(run, NULL, err));
    for (int i = 0; i < program->join_count; i++) {
        CKPT_TRY(device->api->wait(device, program->join[i], CKPT_STREAM_COMPUTE, err));
    }
    return CKPT_OK;
}

static ckpt_code record(ckpt_run *run, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    CKPT_TRY_WHILE(err, device->api->capture_begin(device, err), "beginning to record a step");
    const ckpt_code code = walk_and_join(run, err);
    /* A recording that failed must be ended too; the first message stands. */
    const ckpt_code end = device->api->capture_end(device, &run->recorded, code == CKPT_OK ? err : NULL);
    if (code != CKPT_OK || end != CKPT_OK) {
        ckpt_err_while(err, "recording a step");
    }
    return code != CKPT_OK ? code : end;
}

/* Nothing of the rehearsal may show in the first step. */
static ckpt_code wipe(const ckpt_program *program, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    CKPT_TRY(device->api->fill(device, program->memory.statics.at, 0, program->layout.total, err));
    CKPT_TRY(device->api->fill(device, program->memory.arena.at, 0, program->plan->arena_bytes, err));
    CKPT_TRY(device->api->finish(device, err));
    if (program->memory.slab.at != NULL) {
        memset(program->memory.slab.at, 0, (size_t)program->memory.slab.bytes);
    }
    return CKPT_OK;
}

static ckpt_launches launched(const ckpt_device *device)
{
    ckpt_launches launches = {0};
    device->api->launches(device, NULL, &launches);
    return launches;
}

/* The step as it will run, counted; and each layer's update by itself, as a traced step will start it. */
static ckpt_code walk_counted(ckpt_run *run, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const ckpt_launches before_it = launched(program->device);
    CKPT_TRY(walk(run, NULL, err));
    run->launches = launched(program->device);
    run->launches.kernels -= before_it.kernels;
    run->launches.copies -= before_it.copies;
    run->apart = true;
    for (int s = 0; s < program->plan->step_count; s++) {
        const ckpt_action *const action = &program->action[s];
        if (action->update_count > 0) {
            CKPT_TRY(run_update(run, action, err));
        }
    }
    run->apart = false;
    return CKPT_OK;
}

/* What the host does in between, and the other step number of each micro-batch, cannot be recorded. */
static bool can_record(const ckpt_program *program)
{
    const ckpt_network *const network = program->lowered->network;
    return network->scheme.micro_batches == 1 && ckpt_scheme_ranks(&network->scheme) == 1 &&
           network->tied_group_count == 0 && program->device->api->capture_begin != NULL;
}

ckpt_code ckpt_run_rehearse(ckpt_run *run, uint64_t seed, bool wanted, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    ckpt_device *const device = program->device;
    const bool recorded = wanted && can_record(program);
    if (!device->api->gpu) {
        run->seed = seed;
        return recorded ? record(run, err) : CKPT_OK;
    }
    double loss = 0;
    CKPT_TRY(before(run, seed, 0, err));
    CKPT_TRY_WHILE(err, walk_counted(run, err), "rehearsing a step");
    CKPT_TRY_WHILE(err, device->api->finish(device, err), "rehearsing a step");
    if (recorded) {
        CKPT_TRY(record(run, err));
        CKPT_TRY_WHILE(err, device->api->replay(device, run->recorded, err), "rehearsing a replay");
        CKPT_TRY_WHILE(err, device->api->finish(device, err), "rehearsing a replay");
    }
    CKPT_TRY(sum_losses(program, &loss, err));
    return wipe(program, err);
}

/* Sums of losses of all ranks; sums of squares of this one, of one replica at a time, and of all ranks. */
ckpt_code ckpt_run_init(const ckpt_program *program, ckpt_arena *arena, ckpt_run *run, ckpt_err *err)
{
    const ckpt_network *const network = program->lowered->network;
    const size_t ranks = (size_t)ckpt_scheme_ranks(&network->scheme), sums = (size_t)network->node_count * (ranks + 2);
    *run = (ckpt_run){.program = program, .heap_bytes = -1};
    if (ranks == 1) {
        return CKPT_OK;
    }
    run->losses = CKPT_NEW(arena, double, ranks);
    run->squares = network->clip_norm > 0 ? CKPT_NEW(arena, double, sums) : NULL;
    return run->losses == NULL || (network->clip_norm > 0 && run->squares == NULL)
               ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the sums of %zu ranks", ranks)
               : CKPT_OK;
}

void ckpt_run_fini(ckpt_run *run)
{
    ckpt_device *const device = run->program->device;
    (void)device->api->finish(device, NULL); /* a step that failed may have left work behind */
    if (run->recorded != NULL) {
        device->api->capture_release(device, run->recorded);
    }
}
