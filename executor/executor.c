/* Training by a plan: set-up and what is asked of an executor. Every address (wire.c) and every wait (order.c) is known
 * before the first step; a step (step.c) is one walk over the actions. */
#include "executor/executor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "executor/executor_impl.h"

static ckpt_code refuse_unfit(const ckpt_device *device, const ckpt_lowered *lowered, const ckpt_plan *plan,
                              ckpt_err *err)
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
    CKPT_TRY(ckpt_device_check_dtype(device, network->model->dtype, network->model->source, err));
    for (int n = 0; n < network->node_count; n++) {
        if (network->node[n].op->planned_only) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s (%s) can be planned but not run",
                             network->model->source, network->node[n].name, network->node[n].op->name);
        }
    }
    return CKPT_OK;
}

/* Room for one input of one micro-batch, behind `*total`: what the caller fills, and what is uploaded where that is
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
static ckpt_code take_inputs(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    const int inputs = network->model->input_count, count = inputs * network->scheme.micro_batches;
    executor->input = CKPT_NEW(&executor->arena, void *, count);
    executor->upload = CKPT_NEW(&executor->arena, void *, count);
    executor->chunk = CKPT_NEW(&executor->arena, unsigned char, 2 * CKPT_CHUNK_BYTES);
    ckpt_bytes *const at = CKPT_NEW(&executor->arena, ckpt_bytes, 2 * (size_t)count);
    if (executor->input == NULL || executor->upload == NULL || executor->chunk == NULL || at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the inputs");
    }
    ckpt_bytes total = 0;
    for (int i = 0; i < count; i++) {
        const bool read = executor->layout.input[i] >= 0;
        if (read &&
            !add_input(&network->model->input[i % inputs], &network->value[i % inputs].tensor, &at[2 * i], &total)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "inputs do not fit 63 bits of bytes");
        }
    }
    void *base = NULL;
    CKPT_TRY_WHILE(err, executor->device->api->reserve_host(executor->device, total, &base, err),
                   "reserving the host's %lld bytes for the inputs", (long long)total);
    executor->feed = base;
    executor->feed_bytes = total;
    for (int i = 0; i < count; i++) {
        if (executor->layout.input[i] >= 0) {
            executor->input[i] = executor->feed + at[2 * i];
            executor->upload[i] = executor->feed + at[2 * i + 1];
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

/* Who this process is among the ranks of the scheme. */
static ckpt_code take_rank(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &executor->lowered->network->scheme;
    const int wanted = ckpt_scheme_ranks(scheme);
    if (wanted == 1) {
        return CKPT_OK;
    }
    const int count = executor->options.ranks != NULL ? ckpt_ranks_count(executor->options.ranks) : 1;
    if (count != wanted) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d process%s, wanted %d: replicas times stages",
                         executor->plan->source, count, count == 1 ? "" : "es", wanted);
    }
    executor->rank = ckpt_ranks_rank(executor->options.ranks);
    executor->replica = executor->rank / scheme->stages;
    if (executor->rank % scheme->stages != scheme->stage) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: rank %d has stage %d, and this is the plan of stage %d",
                         executor->plan->source, executor->rank, executor->rank % scheme->stages, scheme->stage);
    }
    return CKPT_OK;
}

static ckpt_code set_up(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_lowered *const lowered = executor->lowered;
    CKPT_TRY(refuse_unfit(executor->device, lowered, executor->plan, err));
    CKPT_TRY(take_rank(executor, err));
    CKPT_TRY(ckpt_network_statics(lowered->network, &executor->arena, &executor->layout, err));
    if (executor->layout.total != lowered->graph->static_bytes) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "static block: %lld bytes laid out, the graph says %lld",
                         (long long)executor->layout.total, (long long)lowered->graph->static_bytes);
    }
    CKPT_TRY(take_inputs(executor, err));
    CKPT_TRY(reserve(executor, err));
    CKPT_TRY(ckpt_executor_join(executor, err));
    CKPT_TRY(ckpt_executor_wire(executor, err));
    CKPT_TRY(executor->device->api->signals(executor->device, executor->signal_count, err));
    CKPT_TRY(ckpt_executor_rehearse(executor, err));
    CKPT_TRY(ckpt_executor_initialise(executor, err));
    CKPT_TRY(executor->device->api->finish(executor->device, err));
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
    (void)device->api->finish(device, NULL); /* a step that failed may have left work behind */
    if (executor->recorded != NULL) {
        device->api->capture_release(device, executor->recorded);
    }
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
    if (executor->slab != NULL) {
        device->api->release_host(device, executor->slab, executor->slab_bytes);
    }
    if (executor->feed != NULL) {
        device->api->release_host(device, executor->feed, executor->feed_bytes);
    }
    if (executor->post != NULL) {
        device->api->release_host(device, executor->post, executor->post_bytes);
    }
    ckpt_arena_fini(&executor->arena);
    ckpt_memory_put(executor);
}

void *ckpt_executor_input(ckpt_executor *executor, int i)
{
    const ckpt_network *const network = executor->lowered->network;
    assert(i >= 0 && i < network->model->input_count * network->scheme.micro_batches);
    (void)network;
    return executor->input[i];
}

uint64_t ckpt_executor_batch(const ckpt_executor *executor, int j)
{
    const ckpt_scheme *const scheme = &executor->lowered->network->scheme;
    const uint64_t of_all = executor->steps * (uint64_t)scheme->replicas + (uint64_t)executor->replica;
    return of_all * (uint64_t)scheme->micro_batches + (uint64_t)j;
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

float *ckpt_executor_param_at(const ckpt_executor *executor, ckpt_bytes section, int node, int k)
{
    return (float *)(void *)(executor->statics + section + executor->layout.param[node * CKPT_PARAM_MAX + k]);
}

/* Every parameter has the same place in the copy, at half the distance. */
void *ckpt_executor_param16_at(const ckpt_executor *executor, int node, int k)
{
    const ckpt_static_layout *const layout = &executor->layout;
    return layout->scales == layout->weights16
               ? NULL
               : executor->statics + layout->weights16 + layout->param[node * CKPT_PARAM_MAX + k] / 2;
}

ckpt_code ckpt_executor_narrow(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_static_layout *const layout = &executor->layout;
    if (layout->scales == layout->weights16) {
        return CKPT_OK;
    }
    return executor->device->api->narrow(executor->device, executor->statics + layout->weights16,
                                         (const float *)(const void *)(executor->statics + layout->weights),
                                         layout->weight_bytes / (ckpt_bytes)sizeof(float), err);
}

double ckpt_executor_base_scale(const ckpt_executor *executor)
{
    const ckpt_network *const network = executor->lowered->network;
    return 1.0 / ((double)network->scheme.micro_batches * network->scheme.replicas * network->loss_scale);
}

float *ckpt_executor_scale_at(const ckpt_executor *executor, int i)
{
    const ckpt_static_layout *const layout = &executor->layout;
    return layout->total == layout->scales ? NULL : (float *)(void *)(executor->statics + layout->scales) + i;
}

int ckpt_executor_host_threads(const ckpt_executor *executor)
{
    return executor->device->threads > 0 ? executor->device->threads : ckpt_machine_threads();
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
    CKPT_TRY(executor->device->api->upload(executor->device,
                                           ckpt_executor_param_at(executor, executor->layout.weights, node, k), host,
                                           param_bytes(executor, node, k), err));
    return ckpt_executor_narrow(executor, err);
}

ckpt_code ckpt_executor_grad(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    if (network->scheme.fused) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: gradients are fused with the updates, and gone after a step",
                         network->model->source);
    }
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
