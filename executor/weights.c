/* Weights by name between files and the static block. */
#include <assert.h>

#include "executor/executor_impl.h"

/* Room for the largest parameter or statistic; NULL: no memory. */
static float *largest(const ckpt_network *network)
{
    int64_t most = 1;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
            most = count > most ? count : most;
        }
        for (int k = 0; k < node->stat_count; k++) {
            const int64_t count = ckpt_shape_count(&node->stat[k].tensor.shape);
            most = count > most ? count : most;
        }
    }
    return ckpt_memory_get((size_t)most * sizeof(float));
}

static ckpt_code set_node(ckpt_program *program, const ckpt_weights *weights, int n, float *host, ckpt_err *err)
{
    const ckpt_node *const node = &program->lowered->network->node[n];
    ckpt_device *const device = program->device;
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied < 0) {
            CKPT_TRY(ckpt_weights_param(weights, n, k, host, err));
            CKPT_TRY(device->api->upload(device, ckpt_program_param(program, program->layout.weights, n, k), host,
                                         ckpt_tensor_bytes(&node->param[k].tensor), err));
        }
    }
    for (int k = 0; k < node->stat_count; k++) {
        CKPT_TRY(ckpt_weights_statistic(weights, n, k, host, err));
        CKPT_TRY(device->api->upload(device, ckpt_program_statistic(program, n, k), host,
                                     ckpt_tensor_bytes(&node->stat[k].tensor), err));
    }
    return CKPT_OK;
}

ckpt_code ckpt_executor_weights_set(ckpt_executor *executor, const ckpt_weights *weights, ckpt_err *err)
{
    ckpt_program *const program = &executor->program;
    const ckpt_network *const network = program->lowered->network;
    float *const host = largest(network);
    ckpt_code code = host != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the largest parameter");
    for (int n = 0; n < network->node_count && code == CKPT_OK; n++) {
        if (network->stage_of[n] == network->scheme.stage) {
            code = set_node(program, weights, n, host, err);
        }
    }
    ckpt_memory_put(host);
    return code == CKPT_OK ? ckpt_program_narrow(program, err) : code;
}

static ckpt_code fetch(void *context, int node, int k, bool statistic, float *to, ckpt_err *err)
{
    return statistic ? ckpt_executor_statistic(context, node, k, to, err)
                     : ckpt_executor_param(context, node, k, to, err);
}

ckpt_code ckpt_executor_weights_write(ckpt_executor *executor, const char *path, ckpt_dtype dtype, ckpt_err *err)
{
    const ckpt_network *const network = executor->program.lowered->network;
    assert(network->scheme.stages == 1);
    return executor->program.rank == 0 ? ckpt_weights_write(network, path, dtype, fetch, executor, err) : CKPT_OK;
}
