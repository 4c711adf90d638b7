/* Training by a plan. Everything is decided and every address computed before the first step (wire.c); a step is one
 * walk over the actions. */
#include "executor/executor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/cli.h"
#include "executor/executor_impl.h"

static ckpt_code refuse_unfit(const ckpt_lowered *lowered, const ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_network *const network = lowered->network;
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

/* The host memory of the inputs: what the caller fills, and what every step uploads. */
static ckpt_code take_inputs(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_model *const model = executor->lowered->network->model;
    executor->input = CKPT_NEW(&executor->arena, void *, model->input_count);
    executor->chunk = CKPT_NEW(&executor->arena, unsigned char, CKPT_CHUNK_BYTES);
    if (executor->input == NULL || executor->chunk == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the inputs");
    }
    for (int i = 0; i < model->input_count; i++) {
        executor->input[i] = CKPT_NEW(&executor->arena, unsigned char, ckpt_tensor_bytes(&model->input[i]));
        if (executor->input[i] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for input %s", model->input[i].name);
        }
    }
    return CKPT_OK;
}

static ckpt_code reserve(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    char static_text[CKPT_UNITS_TEXT], arena_text[CKPT_UNITS_TEXT];
    void *base = NULL;
    CKPT_TRY_WHILE(err, device->api->reserve(device, executor->layout.total, &base, err),
                   "reserving the static block of %s", ckpt_bytes_show(executor->layout.total, static_text));
    executor->statics = base;
    CKPT_TRY_WHILE(err, device->api->reserve(device, executor->plan->arena_bytes, &base, err),
                   "reserving the arena of %s beside the static block of %s",
                   ckpt_bytes_show(executor->plan->arena_bytes, arena_text),
                   ckpt_bytes_show(executor->layout.total, static_text));
    executor->block = base;
    return CKPT_OK;
}

static ckpt_code set_up(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_lowered *const lowered = executor->lowered;
    CKPT_TRY(refuse_unfit(lowered, executor->plan, err));
    CKPT_TRY(ckpt_network_statics(lowered->network, &executor->arena, &executor->layout, err));
    if (executor->layout.total != lowered->graph->static_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "static block: %lld bytes laid out, the graph says %lld",
                         (long long)executor->layout.total, (long long)lowered->graph->static_bytes);
    }
    CKPT_TRY(take_inputs(executor, err));
    CKPT_TRY(reserve(executor, err));
    CKPT_TRY(ckpt_executor_wire(executor, err));
    CKPT_TRY(ckpt_executor_initialise(executor, err));
    if (executor->options.poison && executor->plan->arena_bytes > 0) {
        CKPT_TRY(
            executor->device->api->fill(executor->device, executor->block, 0xFF, executor->plan->arena_bytes, err));
    }
    executor->heap_bytes = -1;
    return CKPT_OK;
}

ckpt_code ckpt_executor_create(ckpt_device *device, const ckpt_lowered *lowered, const ckpt_plan *plan,
                               const ckpt_executor_options *options, ckpt_executor **executor, ckpt_err *err)
{
    ckpt_executor *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an executor");
    }
    ckpt_arena_init(&made->arena);
    made->device = device;
    made->lowered = lowered;
    made->plan = plan;
    made->options = options != NULL ? *options : (ckpt_executor_options){0};
    made->seed = made->options.seed;
    const ckpt_code code = set_up(made, err);
    if (code != CKPT_OK) {
        ckpt_executor_destroy(made);
        return code;
    }
    *executor = made;
    return CKPT_OK;
}

void ckpt_executor_destroy(ckpt_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    ckpt_device *const device = executor->device;
    if (executor->bound != NULL) {
        for (int n = 0; n < executor->lowered->network->node_count; n++) {
            if (executor->bound[n].kernel != NULL) {
                ckpt_device_unbind(&executor->bound[n]);
            }
        }
    }
    if (executor->block != NULL) {
        device->api->release(device, executor->block, executor->plan->arena_bytes);
    }
    if (executor->statics != NULL) {
        device->api->release(device, executor->statics, executor->layout.total);
    }
    ckpt_arena_fini(&executor->arena);
    ckpt_memory_put(executor);
}

void *ckpt_executor_input(ckpt_executor *executor, int i)
{
    assert(i >= 0 && i < executor->lowered->network->model->input_count);
    return executor->input[i];
}

uint64_t ckpt_executor_steps(const ckpt_executor *executor)
{
    return executor->steps;
}

uint64_t ckpt_executor_seed(const ckpt_executor *executor)
{
    return executor->seed;
}

float ckpt_executor_loss(const ckpt_executor *executor)
{
    return executor->last_loss;
}

void ckpt_executor_data_set(ckpt_executor *executor, const char *about)
{
    assert(strlen(about) < sizeof executor->data);
    snprintf(executor->data, sizeof executor->data, "%s", about);
}

const char *ckpt_executor_data(const ckpt_executor *executor)
{
    return executor->data;
}

static ckpt_code run(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    action->args.seed = executor->seed;
    action->args.step = executor->steps;
    switch (action->phase) {
    case CKPT_FORWARD: return ckpt_device_forward(device, action->bound, &action->args, err);
    case CKPT_BACKWARD: return ckpt_device_backward(device, action->bound, &action->args, err);
    case CKPT_UPDATE:
    case CKPT_REDUCE: break;
    }
    const ckpt_network *const network = executor->lowered->network;
    for (int i = 0; i < action->update_count; i++) {
        action->update[i].step = executor->steps + 1;
        CKPT_TRY(ckpt_device_update(device, network->optimizer, &action->update[i], err));
    }
    return CKPT_OK;
}

/* A freed place must not be read again: with NaN in it, it cannot be without showing. */
static ckpt_code poison(const ckpt_executor *executor, void *place, ckpt_bytes bytes, ckpt_err *err)
{
    if (!executor->options.poison || bytes == 0) {
        return CKPT_OK;
    }
    return executor->device->api->fill(executor->device, place, 0xFF, bytes, err);
}

static ckpt_code act(ckpt_executor *executor, ckpt_action *action, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    switch (action->kind) {
    case CKPT_RUN: return run(executor, action, err);
    case CKPT_FREE: return poison(executor, action->place, action->bytes, err);
    case CKPT_OFFLOAD: return device->api->download(device, action->host, action->place, action->bytes, err);
    case CKPT_FETCH: return device->api->upload(device, action->place, action->host, action->bytes, err);
    }
    return CKPT_OK;
}

static ckpt_code begin(ckpt_executor *executor, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    const ckpt_model *const model = executor->lowered->network->model;
    for (int i = 0; i < model->input_count; i++) {
        CKPT_TRY(device->api->upload(device, executor->statics + executor->layout.inputs + executor->layout.input[i],
                                     executor->input[i], ckpt_tensor_bytes(&model->input[i]), err));
    }
    if (executor->steps > 0) {
        CKPT_TRY(poison(executor, executor->block, executor->plan->arena_bytes, err));
    }
    if (executor->heap_bytes < 0) {
        executor->heap_bytes = ckpt_heap_bytes();
    }
    const ckpt_static_layout *const layout = &executor->layout;
    memset(executor->live, 0, sizeof executor->live);
    executor->live[CKPT_CAT_WEIGHTS] = layout->gradients - layout->weights;
    executor->live[CKPT_CAT_GRADIENTS] = layout->optimizer - layout->gradients;
    executor->live[CKPT_CAT_OPTIMIZER] = layout->statistics - layout->optimizer;
    executor->live[CKPT_CAT_INPUTS] = layout->total - layout->statistics;
    return CKPT_OK;
}

ckpt_code ckpt_executor_step(ckpt_executor *executor, float *loss, ckpt_trace *trace, ckpt_err *err)
{
    ckpt_device *const device = executor->device;
    ckpt_recording *const recording = (ckpt_recording *)trace;
    CKPT_TRY(begin(executor, err));
    ckpt_recording_start(executor, recording);
    for (int s = 0; s < executor->plan->step_count; s++) {
        ckpt_action *const action = &executor->action[s];
        const ckpt_ns start_ns = recording != NULL ? ckpt_clock_ns() : 0;
        CKPT_TRY_WHILE(err, act(executor, action, err), "running step %d (%s)", s, action->name);
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            executor->live[c] += action->born[c] - action->died[c];
        }
        if (recording != NULL) {
            CKPT_TRY(device->api->finish(device, err));
            ckpt_recording_add(executor, recording, s, start_ns, ckpt_clock_ns(), action->args.workspace_bytes);
        }
        if (action->args.workspace_bytes > 0) {
            CKPT_TRY(poison(executor, action->args.workspace, action->args.workspace_bytes, err));
        }
    }
    CKPT_TRY(device->api->finish(device, err));
    ckpt_recording_end(recording);
    float value = 0;
    CKPT_TRY(device->api->download(device, &value, executor->loss, (ckpt_bytes)sizeof value, err));
    executor->steps++;
    executor->last_loss = value;
    *loss = value;
    return CKPT_OK;
}

void ckpt_executor_section(const ckpt_executor *executor, ckpt_section section, ckpt_bytes *start, ckpt_bytes *bytes)
{
    const ckpt_static_layout *const layout = &executor->layout;
    const ckpt_bytes edge[] = {layout->weights, layout->gradients, layout->optimizer, layout->statistics,
                               layout->inputs};
    *start = edge[section];
    *bytes = edge[section + 1] - edge[section];
}

ckpt_code ckpt_executor_digest(ckpt_executor *executor, ckpt_section section, char text[CKPT_DIGEST_TEXT],
                               ckpt_err *err)
{
    ckpt_bytes start = 0, bytes = 0;
    ckpt_executor_section(executor, section, &start, &bytes);
    ckpt_digest *const digest = ckpt_digest_create();
    if (digest == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a digest");
    }
    ckpt_code code = CKPT_OK;
    for (ckpt_bytes done = 0; done < bytes && code == CKPT_OK; done += CKPT_CHUNK_BYTES) {
        const ckpt_bytes now = bytes - done < CKPT_CHUNK_BYTES ? bytes - done : CKPT_CHUNK_BYTES;
        code = executor->device->api->download(executor->device, executor->chunk, executor->statics + start + done, now,
                                               err);
        ckpt_digest_add(digest, executor->chunk, (size_t)now);
    }
    char found[CKPT_DIGEST_TEXT];
    ckpt_digest_end(digest, found);
    if (code == CKPT_OK) {
        memcpy(text, found, sizeof found);
    }
    return code;
}

float *ckpt_executor_param_at(const ckpt_executor *executor, ckpt_bytes section, int node, int k)
{
    return (float *)(void *)(executor->statics + section + executor->layout.param[node * CKPT_PARAM_MAX + k]);
}

static ckpt_bytes param_bytes(const ckpt_executor *executor, int node, int k)
{
    const ckpt_network *const network = executor->lowered->network;
    assert(node >= 0 && node < network->node_count && k >= 0 && k < network->node[node].param_count);
    return ckpt_tensor_bytes(&network->node[node].param[k].tensor);
}

ckpt_code ckpt_executor_param(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    return executor->device->api->download(executor->device, host,
                                           ckpt_executor_param_at(executor, executor->layout.weights, node, k),
                                           param_bytes(executor, node, k), err);
}

ckpt_code ckpt_executor_param_set(ckpt_executor *executor, int node, int k, const float *host, ckpt_err *err)
{
    return executor->device->api->upload(executor->device,
                                         ckpt_executor_param_at(executor, executor->layout.weights, node, k), host,
                                         param_bytes(executor, node, k), err);
}

ckpt_code ckpt_executor_grad(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    return executor->device->api->download(executor->device, host,
                                           ckpt_executor_param_at(executor, executor->layout.gradients, node, k),
                                           param_bytes(executor, node, k), err);
}

ckpt_code ckpt_executor_statistic(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    assert(node >= 0 && node < network->node_count && k >= 0 && k < network->node[node].stat_count);
    const ckpt_static_layout *const layout = &executor->layout;
    return executor->device->api->download(
        executor->device, host, executor->statics + layout->statistics + layout->stat[node * CKPT_STAT_MAX + k],
        ckpt_tensor_bytes(&network->node[node].stat[k].tensor), err);
}
