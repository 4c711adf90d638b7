/* One layer ready to be measured: its tensors in one block of device memory, each at its own address, and everything
 * that its kernels read filled with random numbers. */
#include "kernels/philox.h"
#include "profiler/profiler_impl.h"

enum {
    FOR_INPUT = 0x100, /* random streams, by what they fill */
    FOR_PARAM = 0x200,
    FOR_GRAD = 0x300,
};

static bool bit(uint64_t mask, int k)
{
    return (mask >> k & 1u) != 0;
}

static ckpt_bytes most(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

/* Allocate one tensor; the first pass (block NULL) only counts bytes. */
static void *take(ckpt_bench *bench, ckpt_bytes bytes, ckpt_bytes *used)
{
    void *const at = bench->block != NULL ? bench->block + *used : NULL;
    *used += ckpt_round_up(bytes > 0 ? bytes : 1, CKPT_ALIGN);
    return at;
}

/* Products of a bfloat16 model read bfloat16 copies of the parameters. */
static bool narrows(const ckpt_node *node)
{
    return node->dtype == CKPT_BFLOAT16;
}

static void *take_all(ckpt_bench *bench, const ckpt_node_role *role, int slots, ckpt_bytes *used)
{
    const ckpt_node *const node = bench->node;
    const ckpt_network *const network = bench->lowered->network;
    const int *const grad_buffer = bench->lowered->grad_buffer;
    /* its backward op reads a gradient that nothing gives */
    const bool ends_without_loss = role->backward && network->loss_node < 0 && node->index == network->node_count - 1;
    for (int k = 0; k < node->in_count; k++) {
        bench->in[k] = take(bench, ckpt_tensor_bytes(&node->in[k]), used);
        bench->grad_in[k] = NULL;
        for (int j = 0; bit(node->grad_in, k) && j < k && bench->grad_in[k] == NULL; j++) {
            if (bit(node->grad_in, j) && grad_buffer[node->in_value[j]] == grad_buffer[node->in_value[k]]) {
                bench->grad_in[k] = bench->grad_in[j];
            }
        }
        if (bit(node->grad_in, k) && bench->grad_in[k] == NULL) {
            bench->grad_in[k] = take(bench, ckpt_tensor_bytes(&node->in[k]), used);
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        bench->out[k] = take(bench, ckpt_tensor_bytes(&node->out[k]), used);
        const bool wanted = grad_buffer[node->out_value[k]] >= 0 || ends_without_loss;
        bench->grad_out[k] = wanted ? take(bench, ckpt_tensor_bytes(&node->out[k]), used) : NULL;
    }
    for (int k = 0; k < node->saved_count; k++) {
        bench->saved[k] = take(bench, ckpt_tensor_bytes(&node->saved[k]), used);
    }
    for (int k = 0; k < node->param_count; k++) {
        const ckpt_bytes bytes = ckpt_param_bytes(&node->param[k]);
        bench->param[k] = take(bench, bytes, used);
        bench->param16[k] = narrows(node) ? take(bench, bytes / 2, used) : NULL;
        bench->grad_param[k] = take(bench, bytes, used);
    }
    for (int k = 0; k < node->stat_count; k++) {
        bench->stat[k] = take(bench, ckpt_tensor_bytes(&node->stat[k].tensor), used);
    }
    for (int i = 0; i < slots; i++) {
        ckpt_bytes largest = 0;
        for (int k = 0; k < node->param_count; k++) {
            largest = most(largest, ckpt_network_slot_bytes(network, node->index, k, i));
        }
        bench->slot[i] = take(bench, largest, used);
    }
    const ckpt_bytes update = role->update ? ckpt_network_update_bytes(network, node) : 0;
    ckpt_bytes workspace = most(update, most(bench->forward_bytes, bench->backward_bytes));
    for (int i = 0; i < node->way_count; i++) {
        const ckpt_bytes staging = ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds);
        workspace = most(workspace, staging + ckpt_bench_way_workspace(bench, &node->way[i]));
    }
    return take(bench, workspace, used);
}

/* Elements done .. done + now - 1 of a tensor of floating-point numbers, of its type. */
static ckpt_code upload_floats(const ckpt_bench *bench, void *to, ckpt_dtype dtype, int64_t done, int64_t now,
                               ckpt_err *err)
{
    const ckpt_bytes size = ckpt_dtype_bytes(dtype);
    const void *from = bench->chunk;
    if (dtype == CKPT_BFLOAT16) {
        for (int64_t i = 0; i < now; i++) {
            bench->chunk16[i] = ckpt_bfloat16_of(bench->chunk[i]);
        }
        from = bench->chunk16;
    }
    return bench->device->api->upload(bench->device, (char *)to + done * size, from, now * size, err);
}

/* Random numbers wherever a kernel reads: around 1 in absolute value, never exactly 0. */
static ckpt_code fill_floats(const ckpt_bench *bench, const void *to, ckpt_dtype dtype, int64_t count, int use,
                             ckpt_err *err)
{
    for (int64_t done = 0; done < count; done += CKPT_BENCH_CHUNK) {
        const int64_t now = count - done < CKPT_BENCH_CHUNK ? count - done : CKPT_BENCH_CHUNK;
        for (int64_t i = 0; i < now; i += 4) {
            uint32_t word[4];
            ckpt_philox_block(1, (uint64_t)use, 0, 0, (uint64_t)((done + i) / 4), word);
            for (int64_t j = i; j < now && j < i + 4; j++) {
                bench->chunk[j] = 2.0f * ckpt_philox_uniform(word[j - i]) - 1.0f;
            }
        }
        CKPT_TRY(upload_floats(bench, (void *)(uintptr_t)to, dtype, done, now, err));
    }
    return CKPT_OK;
}

/* Token ids and class numbers over the whole range that the layer takes, so that runs read many rows. */
static ckpt_code fill_integers(const ckpt_bench *bench, void *to, int k, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    const int64_t limit = ckpt_node_limit(node, k);
    const int64_t count = ckpt_shape_count(&node->in[k].shape);
    int32_t *const chunk = (int32_t *)(void *)bench->chunk;
    for (int64_t done = 0; done < count; done += CKPT_BENCH_CHUNK) {
        const int64_t now = count - done < CKPT_BENCH_CHUNK ? count - done : CKPT_BENCH_CHUNK;
        for (int64_t i = 0; i < now; i++) {
            chunk[i] = (int32_t)((uint64_t)(done + i) * 2654435761u % (uint64_t)(limit > 0 ? limit : 1));
        }
        CKPT_TRY(bench->device->api->upload(bench->device, (int32_t *)to + done, chunk,
                                            now * (ckpt_bytes)sizeof chunk[0], err));
    }
    return CKPT_OK;
}

static ckpt_code fill_all(const ckpt_bench *bench, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    for (int k = 0; k < node->in_count; k++) {
        const ckpt_tensor *const x = &node->in[k];
        CKPT_TRY(x->dtype == CKPT_INT32
                     ? fill_integers(bench, (void *)(uintptr_t)bench->in[k], k, err)
                     : fill_floats(bench, bench->in[k], x->dtype, ckpt_tensor_room(x), FOR_INPUT + k, err));
    }
    for (int k = 0; k < node->param_count; k++) {
        const int64_t count = ckpt_param_bytes(&node->param[k]) / (ckpt_bytes)sizeof(float);
        CKPT_TRY(fill_floats(bench, bench->param[k], CKPT_FLOAT32, count, FOR_PARAM + k, err));
        if (bench->param16[k] != NULL) {
            CKPT_TRY(bench->device->api->narrow(bench->device, (void *)(uintptr_t)bench->param16[k], bench->param[k],
                                                count, err));
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        const ckpt_tensor *const y = &node->out[k];
        if (bench->grad_out[k] != NULL) {
            CKPT_TRY(fill_floats(bench, bench->grad_out[k], y->dtype, ckpt_tensor_room(y), FOR_GRAD + k, err));
        }
    }
    return CKPT_OK;
}

static void set_args(ckpt_bench *bench, const ckpt_node_role *role, void *workspace)
{
    bench->args = (ckpt_kernel_args){
        .node = bench->node,
        .state = bench->bound.state,
        .in = bench->in,
        .out = bench->out,
        .saved = bench->saved,
        .param = bench->param,
        .param16 = bench->param16,
        .stat = bench->stat,
        .grad_out = bench->grad_out,
        .grad_in = bench->grad_in,
        .grad_param = bench->grad_param,
        .grad_in_adds = role->grad_in_adds,
        .grad_param_adds = role->grad_param_adds,
        .workspace = workspace,
    };
}

static ckpt_code run_update(const ckpt_bench *bench, ckpt_err *err)
{
    const ckpt_network *const network = bench->lowered->network;
    const int slots = ckpt_network_slots(network);
    ckpt_update_args args[CKPT_PARAM_MAX];
    ckpt_numbers numbers;
    int count = 0;
    for (int k = 0; k < bench->node->param_count; k++) {
        const ckpt_param *const param = &bench->node->param[k];
        if (param->tied < 0) {
            args[count++] = (ckpt_update_args){.hyper = network->hyper,
                                               .group = param->group,
                                               .decay = param->decay,
                                               .matrix = ckpt_matrix_of(param),
                                               .count = ckpt_shape_count(&param->tensor.shape),
                                               .param = (float *)(uintptr_t)bench->param[k],
                                               .param16 = (void *)(uintptr_t)bench->param16[k],
                                               .grad = bench->grad_param[k],
                                               .slot = bench->slot,
                                               .average = network->ema > 0 ? bench->slot[slots - 1] : NULL,
                                               .workspace = bench->args.workspace};
        }
    }
    ckpt_network_numbers(network, 1, &numbers);
    return ckpt_device_update(bench->device, network->optimizer, &numbers, args, count, err);
}

ckpt_bytes ckpt_bench_way_workspace(const ckpt_bench *bench, const ckpt_way *way)
{
    return way->measured               ? bench->bound.kernel->way_workspace(bench->node, bench->bound.state, way)
           : way->workspace_bytes >= 0 ? way->workspace_bytes
           : way->backward             ? bench->bound.backward_workspace_bytes
                                       : bench->bound.forward_workspace_bytes;
}

/* Of a run in a way that states its workspace, else `own`. */
static ckpt_bytes workspace_of(const ckpt_bench *bench, ckpt_bytes own)
{
    const ckpt_way *const way = bench->args.way;
    const ckpt_bytes staging = ckpt_staging_bytes(bench->node, bench->args.grad_in_adds, bench->args.grad_param_adds);
    return way == NULL || (way->workspace_bytes < 0 && !way->measured)
               ? own
               : ckpt_bench_way_workspace(bench, way) + (way->backward ? staging : 0);
}

ckpt_code ckpt_bench_start(ckpt_bench *bench, ckpt_direction direction, ckpt_err *err)
{
    if (direction == CKPT_DIRECTION_FORWARD) {
        bench->args.workspace_bytes = workspace_of(bench, bench->forward_bytes);
        return ckpt_device_forward(bench->device, &bench->bound, &bench->args, err);
    }
    if (direction == CKPT_DIRECTION_BACKWARD) {
        bench->args.workspace_bytes = workspace_of(bench, bench->backward_bytes);
        return ckpt_device_backward(bench->device, &bench->bound, &bench->args, err);
    }
    return run_update(bench, err);
}

static ckpt_bytes staging_of(const ckpt_bench *bench, const ckpt_node_role *role)
{
    return ckpt_staging_bytes(bench->node, role->grad_in_adds, role->grad_param_adds);
}

static void use_workspaces(ckpt_bench *bench, const ckpt_node_role *role)
{
    bench->forward_bytes = bench->bound.forward_workspace_bytes;
    bench->backward_bytes = bench->bound.backward_workspace_bytes + staging_of(bench, role);
}

ckpt_code ckpt_bench_open(ckpt_bench *bench, const ckpt_profiling *profiling, const ckpt_node *node, ckpt_err *err)
{
    const ckpt_network *const network = profiling->lowered->network;
    const ckpt_node_role *const role = &profiling->role[node->index];
    const int slots = role->update ? ckpt_network_slots(network) : 0;
    *bench = (ckpt_bench){.device = profiling->device,
                          .node = node,
                          .lowered = profiling->lowered,
                          .chunk = profiling->chunk,
                          .chunk16 = profiling->chunk16};
    CKPT_TRY(ckpt_device_bind(profiling->device, node, -1, -1, NULL, &bench->bound, err));
    use_workspaces(bench, role);
    if (profiling->tuning_on) { /* room for any algorithm, behind the staging */
        bench->forward_bytes = most(bench->forward_bytes, node->forward_workspace_bytes);
        bench->backward_bytes = most(bench->backward_bytes, staging_of(bench, role) + node->backward_workspace_bytes);
    }
    void *base = NULL;
    ckpt_bytes needed = 0, used = 0;
    take_all(bench, role, slots, &needed);
    CKPT_TRY(bench->device->api->reserve(bench->device, needed, &base, err));
    bench->block = base;
    bench->bytes = needed;
    set_args(bench, role, take_all(bench, role, slots, &used));
    return fill_all(bench, err);
}

/* Candidates overwrite the outputs, so a forward run comes before those of backward are timed. */
ckpt_code ckpt_bench_tune(ckpt_bench *bench, ckpt_profiling *profiling, ckpt_err *err)
{
    const ckpt_node_role *const role = &profiling->role[bench->node->index];
    if (!profiling->tuning_on || bench->bound.kernel->tune == NULL) {
        return CKPT_OK;
    }
    const ckpt_bytes backward_room = bench->backward_bytes - staging_of(bench, role);
    bench->args.workspace_bytes = bench->forward_bytes;
    CKPT_TRY(ckpt_device_tune(bench->device, &bench->bound, &bench->args, false, &profiling->tuning, err));
    if (role->backward) {
        CKPT_TRY(ckpt_bench_start(bench, CKPT_DIRECTION_FORWARD, err));
        bench->args.workspace_bytes = backward_room;
        CKPT_TRY(ckpt_device_tune(bench->device, &bench->bound, &bench->args, true, &profiling->tuning, err));
    }
    use_workspaces(bench, role);
    return CKPT_OK;
}

void ckpt_bench_close(ckpt_bench *bench)
{
    if (bench->block != NULL) {
        bench->device->api->release(bench->device, bench->block, bench->bytes);
    }
    ckpt_device_unbind(&bench->bound);
    *bench = (ckpt_bench){0};
}
