/* One training step: a walk over the actions, or the replay of a walk that was recorded. Both do the same things in the
 * same order on the same addresses, so they leave the same bits.
 *
 *     before   inputs to the device, seed and step to the kernels        never part of a recording
 *     walk     wait - act - account - signal, for every step of the plan
 *     after    all streams empty, the losses to the host and to the other ranks */
#include <string.h>

#include "executor/executor_impl.h"

/* Kernels of a GPU draw from what the device was told last. `step` counts batches; the optimizer's numbers are those of
 * the training step, whatever its batch. */
static ckpt_code begin_anew(ckpt_executor *executor, uint64_t step, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    float numbers[CKPT_STEP_NUMBERS] = {0};
    if (network->optimizer->numbers != NULL) {
        network->optimizer->numbers(network->hyper, executor->steps + 1, numbers);
    }
    executor->begun = step;
    return executor->device->api->begin(executor->device, executor->seed, step, numbers, err);
}

static ckpt_code begin(ckpt_executor *executor, uint64_t step, ckpt_err *err)
{
    return executor->begun == step ? CKPT_OK : begin_anew(executor, step, err);
}

static ckpt_code run_update(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    const bool own = executor->apart || !executor->device->api->gpu;
    CKPT_TRY(begin(executor, executor->steps, err));
    return ckpt_device_update(executor->device, executor->lowered->network->optimizer, executor->steps + 1,
                              own ? action->update : action->joined, own ? action->update_count : action->joined_count,
                              err);
}

static ckpt_code run_layer(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    if (action->phase == CKPT_UPDATE) {
        return run_update(executor, action, err);
    }
    action->args.seed = executor->seed;
    action->args.step = ckpt_executor_batch(executor, action->batch);
    CKPT_TRY(begin(executor, action->args.step, err));
    return action->phase == CKPT_FORWARD ? ckpt_device_forward(executor->device, action->bound, &action->args, err)
                                         : ckpt_device_backward(executor->device, action->bound, &action->args, err);
}

static ckpt_code run(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    switch (action->task) {
    case CKPT_TASK_LAYER: return run_layer(executor, action, err);
    case CKPT_TASK_NORM: return ckpt_executor_norm(executor, action, err);
    case CKPT_TASK_SEND:
    case CKPT_TASK_SENT:
    case CKPT_TASK_RECEIVE:
    case CKPT_TASK_BUCKET:
    case CKPT_TASK_REDUCE:
    case CKPT_TASK_SUMMED:
    case CKPT_TASK_GATHER:
    case CKPT_TASK_SHARED: break;
    }
    return ckpt_executor_exchange(executor, action, err);
}

/* A freed place must not be read again: with NaN in it, it cannot be without showing. */
static ckpt_code poison(const ckpt_executor *executor, void *allocation, ckpt_bytes bytes, ckpt_err *err)
{
    if (!executor->options.poison || bytes == 0) {
        return CKPT_OK;
    }
    return executor->device->api->fill(executor->device, allocation, 0xFF, bytes, err);
}

static ckpt_code act(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    switch (action->kind) {
    case CKPT_RUN: return run(executor, action, err);
    case CKPT_FREE: return poison(executor, action->allocation, action->bytes, err);
    case CKPT_OFFLOAD: return device->api->offload(device, action->host, action->allocation, action->bytes, err);
    case CKPT_FETCH: return device->api->fetch(device, action->allocation, action->host, action->bytes, err);
    }
    return CKPT_OK;
}

/* What is in memory, the static block counted: the same sum that a trace shows. */
static void account(ckpt_executor *executor, const ckpt_action *action)
{
    ckpt_bytes total = action->args.workspace_bytes;
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        executor->live[c] += action->born[c] - action->died[c];
        total += executor->live[c];
    }
    executor->peak_bytes = total > executor->peak_bytes ? total : executor->peak_bytes;
}

static void account_statics(ckpt_executor *executor)
{
    const ckpt_static_layout *const layout = &executor->layout;
    memset(executor->live, 0, sizeof executor->live);
    executor->live[CKPT_CAT_WEIGHTS] = layout->gradients - layout->weights + (layout->scales - layout->weights16);
    executor->live[CKPT_CAT_GRADIENTS] = layout->optimizer - layout->gradients;
    executor->live[CKPT_CAT_OPTIMIZER] = layout->statistics - layout->optimizer;
    executor->live[CKPT_CAT_INPUTS] = layout->weights16 - layout->statistics + (layout->total - layout->scales);
}

static ckpt_code walk_step(ckpt_executor *executor, int s, ckpt_measured *measured, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    ckpt_action *const action = &executor->action[s];
    for (int w = 0; w < action->wait_count; w++) {
        CKPT_TRY(device->api->wait(device, action->wait[w], action->stream, err));
    }
    CKPT_TRY(ckpt_measured_before(executor, measured, s, err));
    CKPT_TRY_WHILE(err, act(executor, action, err), "running step %d (%s)", s, action->name);
    account(executor, action);
    CKPT_TRY(ckpt_measured_after(executor, measured, s, err));
    CKPT_TRY(poison(executor, action->args.workspace, action->args.workspace_bytes, err));
    return action->signal < 0 ? CKPT_OK : device->api->record(device, action->signal, action->stream, err);
}

static ckpt_code walk(ckpt_executor *executor, ckpt_measured *measured, ckpt_err *err)
{
    account_statics(executor);
    CKPT_TRY(poison(executor, executor->block, executor->plan->arena_bytes, err));
    for (int s = 0; s < executor->plan->step_count; s++) {
        CKPT_TRY(walk_step(executor, s, measured, err));
    }
    return CKPT_OK;
}

/* A float32 input of a bfloat16 model is narrowed here, on the host: the device has no room for both. */
static void narrow_input(const ckpt_executor *executor, int i)
{
    const float *const from = executor->input[i];
    uint16_t *const to = executor->upload[i];
    const ckpt_model *const model = executor->lowered->network->model;
    const int64_t count = ckpt_shape_count(&model->input[i % model->input_count].shape);
    const int threads = ckpt_executor_host_threads(executor);
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > 1 << 16)
    for (int64_t k = 0; k < count; k++) {
        to[k] = ckpt_bfloat16_of(from[k]);
    }
}

static ckpt_code before(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    const ckpt_network *const network = executor->lowered->network;
    if (executor->options.poison && executor->slab != NULL) {
        memset(executor->slab, 0xFF, (size_t)executor->slab_bytes); /* all streams are empty now */
    }
    const int inputs = network->model->input_count;
    for (int i = 0; i < inputs * network->scheme.micro_batches; i++) {
        if (executor->input[i] == NULL) {
            continue;
        }
        if (executor->upload[i] != executor->input[i]) {
            narrow_input(executor, i);
        }
        CKPT_TRY(device->api->upload(device, executor->statics + executor->layout.inputs + executor->layout.input[i],
                                     executor->upload[i], ckpt_tensor_bytes(&network->value[i % inputs].tensor), err));
    }
    return begin_anew(executor, ckpt_executor_batch(executor, 0), err);
}

/* The sum of this rank's losses, in the order of micro-batches; 0 where another stage has them. */
static ckpt_code sum_losses(const ckpt_executor *executor, double *sum, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    *sum = 0;
    for (int j = 0; executor->loss != NULL && j < executor->lowered->network->scheme.micro_batches; j++) {
        float loss = 0;
        CKPT_TRY(device->api->download(device, &loss, executor->loss[j], (ckpt_bytes)sizeof loss, err));
        *sum = j == 0 ? (double)loss : *sum + (double)loss;
    }
    return CKPT_OK;
}

/* Their mean over all ranks that have losses, on all ranks. */
static ckpt_code mean_loss(ckpt_executor *executor, float *loss, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &executor->lowered->network->scheme;
    double sum = 0;
    CKPT_TRY(sum_losses(executor, &sum, err));
    if (executor->losses != NULL) {
        CKPT_TRY(ckpt_ranks_allgather(executor->options.ranks, &sum, executor->losses, (ckpt_bytes)sizeof sum, err));
        sum = executor->losses[scheme->stages - 1];
        for (int r = 1; r < scheme->replicas; r++) {
            sum += executor->losses[(r + 1) * scheme->stages - 1];
        }
    }
    *loss = (float)(sum / ((double)scheme->micro_batches * scheme->replicas));
    return CKPT_OK;
}

ckpt_code ckpt_executor_step(ckpt_executor *executor, float *loss, ckpt_trace *trace, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    ckpt_measured *const measured = (ckpt_measured *)trace;
    CKPT_TRY(before(executor, err));
    ckpt_executor_outside_start(executor);
    if (executor->recorded != NULL && measured == NULL) {
        CKPT_TRY(device->api->replay(device, executor->recorded, err));
    } else {
        CKPT_TRY(ckpt_measured_start(executor, measured, err));
        executor->apart = measured != NULL;
        CKPT_TRY(walk(executor, measured, err));
        executor->apart = false;
    }
    CKPT_TRY(device->api->finish(device, err)); /* copies that nothing waited for end with the step */
    CKPT_TRY(ckpt_measured_end(executor, measured, err));
    if (measured == NULL || measured->recorder == NULL) {
        ckpt_executor_outside_look(executor);
    }
    float value = 0;
    CKPT_TRY(mean_loss(executor, &value, err));
    executor->steps++;
    executor->last_loss = value;
    *loss = value;
    return CKPT_OK;
}

/* A step of an evaluation. What is left out keeps its waits and its signal: others count on all of a stream being in
 * order up to there. */
static ckpt_code evaluate_step(ckpt_executor *executor, int s, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    ckpt_action *const action = &executor->action[s];
    for (int w = 0; w < action->wait_count; w++) {
        CKPT_TRY(device->api->wait(device, action->wait[w], action->stream, err));
    }
    if (action->needed) {
        action->args.evaluating = true;
        const ckpt_code code = act(executor, action, err);
        action->args.evaluating = false;
        CKPT_TRY_WHILE(err, code, "evaluating: step %d (%s)", s, action->name);
    }
    return action->signal < 0 ? CKPT_OK : device->api->record(device, action->signal, action->stream, err);
}

ckpt_code ckpt_executor_evaluate(ckpt_executor *executor, float *loss, ckpt_err *err)
{
    CKPT_TRY(before(executor, err));
    CKPT_TRY(poison(executor, executor->block, executor->plan->arena_bytes, err));
    for (int s = 0; s < executor->forward_count; s++) {
        CKPT_TRY(evaluate_step(executor, s, err));
    }
    CKPT_TRY(executor->device->api->finish(executor->device, err));
    return mean_loss(executor, loss, err);
}

/* Work on compute that the other streams have entered and left again. */
static ckpt_code walk_and_join(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    CKPT_TRY(walk(executor, NULL, err));
    for (int i = 0; i < executor->join_count; i++) {
        CKPT_TRY(device->api->wait(device, executor->join[i], CKPT_STREAM_COMPUTE, err));
    }
    return CKPT_OK;
}

static ckpt_code record(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    CKPT_TRY_WHILE(err, device->api->capture_begin(device, err), "beginning to record a step");
    const ckpt_code code = walk_and_join(executor, err);
    /* A recording that went wrong must be ended too; what was said first is what went wrong. */
    const ckpt_code end = device->api->capture_end(device, &executor->recorded, code == CKPT_OK ? err : NULL);
    if (code != CKPT_OK || end != CKPT_OK) {
        ckpt_err_while(err, "recording a step");
    }
    return code != CKPT_OK ? code : end;
}

/* Nothing of the rehearsal may show in the first step. */
static ckpt_code wipe(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    CKPT_TRY(device->api->fill(device, executor->statics, 0, executor->layout.total, err));
    CKPT_TRY(device->api->fill(device, executor->block, 0, executor->plan->arena_bytes, err));
    CKPT_TRY(device->api->finish(device, err));
    if (executor->slab != NULL) {
        memset(executor->slab, 0, (size_t)executor->slab_bytes);
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
static ckpt_code walk_counted(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_launches before_it = launched(executor->device);
    CKPT_TRY(walk(executor, NULL, err));
    executor->launches = launched(executor->device);
    executor->launches.kernels -= before_it.kernels;
    executor->launches.copies -= before_it.copies;
    executor->apart = true;
    for (int s = 0; s < executor->plan->step_count; s++) {
        ckpt_action *const action = &executor->action[s];
        if (action->update_count > 0) {
            CKPT_TRY(run_update(executor, action, err));
        }
    }
    executor->apart = false;
    return CKPT_OK;
}

bool ckpt_executor_launches(const ckpt_executor *executor, ckpt_launches *launches, bool *replayed)
{
    const ckpt_device_api *const api = executor->device->api;
    *replayed = executor->recorded != NULL;
    *launches = executor->launches;
    if (api->launches != NULL && *replayed) {
        api->launches(executor->device, executor->recorded, launches);
    }
    return api->launches != NULL;
}

ckpt_code ckpt_executor_rehearse(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    /* What the host does in between, and another step for the kernels of every micro-batch, cannot be recorded. */
    const ckpt_scheme *const scheme = &executor->lowered->network->scheme;
    const bool one =
        scheme->micro_batches == 1 && ckpt_scheme_ranks(scheme) == 1 && executor->lowered->network->shared_count == 0;
    const bool recorded = one && executor->options.record && device->api->capture_begin != NULL;
    if (!device->api->gpu) {
        return recorded ? record(executor, err) : CKPT_OK;
    }
    double loss = 0;
    CKPT_TRY(before(executor, err));
    CKPT_TRY_WHILE(err, walk_counted(executor, err), "rehearsing a step");
    CKPT_TRY_WHILE(err, device->api->finish(device, err), "rehearsing a step");
    if (recorded) {
        CKPT_TRY(record(executor, err));
        CKPT_TRY_WHILE(err, device->api->replay(device, executor->recorded, err), "rehearsing a replay");
        CKPT_TRY_WHILE(err, device->api->finish(device, err), "rehearsing a replay");
    }
    CKPT_TRY(sum_losses(executor, &loss, err));
    return wipe(executor, err);
}
