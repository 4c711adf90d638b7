/* Runs every distinct layer of a network by itself and times it. Layers are the same when their kernels cannot tell
 * them apart: op, attributes, shapes, wanted gradients, which of them are added to, threads. Inputs are random and
 * warm: caches are not flushed between repeats, because in training a layer finds its input where the layer before
 * left it. */
#include "profiler/profiler.h"

#include <stdlib.h>
#include <string.h>

#include "core/cli.h"
#include "kernels/philox.h"
#include "profiler/profiler_impl.h"

enum {
    REPEATS = 15, /* default */
    REPEATS_MAX = 1000,
    REPEATS_MIN = 3,
    WARMUP = 1,
    CHUNK_FLOATS = 1 << 16,
    FOR_INPUT = 0x100, /* random streams, by what they fill */
    FOR_PARAM = 0x200,
    FOR_GRAD = 0x300,
};

#define SPEND_NS ((ckpt_ns)400 * 1000 * 1000) /* default: longest time for the repeats of one direction */

/* One layer being measured: every tensor at its own address in one block of device memory. */
typedef struct ckpt_bench {
    ckpt_device *device;
    const ckpt_node *node;
    const ckpt_lowered *lowered;
    ckpt_bound bound;
    unsigned char *block;
    float *chunk;      /* CHUNK_FLOATS of host memory */
    uint16_t *chunk16; /* and as many bfloat16 */
    const void *in[CKPT_IN_MAX];
    void *out[CKPT_OUT_MAX], *saved[CKPT_SAVED_MAX];
    const float *param[CKPT_PARAM_MAX];
    const void *param16[CKPT_PARAM_MAX];
    float *stat[CKPT_STAT_MAX];
    const void *grad_out[CKPT_OUT_MAX];
    void *grad_in[CKPT_IN_MAX];
    float *grad_param[CKPT_PARAM_MAX];
    float *slot[CKPT_HYPER_MAX];
    ckpt_bytes forward_bytes, backward_bytes; /* workspaces, staging included */
    ckpt_kernel_args args;
} ckpt_bench;

/* What lowering said about a node. */
typedef struct ckpt_node_role {
    bool forward, backward, update;
    uint64_t grad_in_adds, grad_param_adds;
    const ckpt_op_role *op[CKPT_DIRECTION_COUNT]; /* NULL: it has none of that direction */
} ckpt_node_role;

typedef struct ckpt_profiling {
    ckpt_device *device;
    const ckpt_lowered *lowered;
    ckpt_profiler_options options;
    const ckpt_node_role *role; /* per node */
    float *chunk;
    uint16_t *chunk16;
    ckpt_ns *sample; /* options.repeats */
} ckpt_profiling;

static bool bit(uint64_t mask, int k)
{
    return (mask >> k & 1u) != 0;
}

static bool same_tensor(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->dtype == b->dtype && ckpt_shape_equal(&a->shape, &b->shape);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_attrs(const ckpt_node *a, const ckpt_node *b)
{
    for (int i = 0; a->op->attrs != NULL && a->op->attrs[i].name != NULL; i++) {
        const ckpt_attr *const x = &a->attr[i], *const y = &b->attr[i];
        if (x->kind != y->kind || x->integer != y->integer || x->real < y->real || x->real > y->real ||
            !same_text(x->string, y->string) || x->int_count != y->int_count ||
            (x->int_count > 0 && memcmp(x->ints, y->ints, (size_t)x->int_count * sizeof x->ints[0]) != 0)) {
            return false;
        }
    }
    return true;
}

/* The same input read twice is another layer than two inputs of that shape: their gradients share a buffer. */
static bool same_sharing(const ckpt_node *a, const ckpt_node *b)
{
    for (int i = 0; i < a->in_count; i++) {
        for (int k = 0; k < i; k++) {
            if ((a->in_value[i] == a->in_value[k]) != (b->in_value[i] == b->in_value[k])) {
                return false;
            }
        }
    }
    return true;
}

static bool same_layer(const ckpt_profiling *profiling, const ckpt_node *a, const ckpt_node *b)
{
    const ckpt_node_role *const p = &profiling->role[a->index], *const q = &profiling->role[b->index];
    if (a->op != b->op || a->in_count != b->in_count || a->grad_in != b->grad_in || a->threads != b->threads ||
        a->param_count != b->param_count || p->backward != q->backward || p->update != q->update ||
        p->grad_in_adds != q->grad_in_adds || p->grad_param_adds != q->grad_param_adds) {
        return false;
    }
    for (int k = 0; k < a->in_count; k++) {
        if (!same_tensor(&a->in[k], &b->in[k])) {
            return false;
        }
    }
    for (int k = 0; k < a->param_count; k++) {
        if ((a->param[k].tied < 0) != (b->param[k].tied < 0)) {
            return false;
        }
    }
    return same_attrs(a, b) && same_sharing(a, b);
}

/* Take room for one tensor; the first pass (block NULL) only counts. */
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
    const int *const grad_buffer = bench->lowered->grad_buffer;
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
        const bool wanted = grad_buffer[node->out_value[k]] >= 0;
        bench->grad_out[k] = wanted ? take(bench, ckpt_tensor_bytes(&node->out[k]), used) : NULL;
    }
    for (int k = 0; k < node->saved_count; k++) {
        bench->saved[k] = take(bench, ckpt_tensor_bytes(&node->saved[k]), used);
    }
    for (int k = 0; k < node->param_count; k++) {
        bench->param[k] = take(bench, ckpt_tensor_bytes(&node->param[k].tensor), used);
        bench->param16[k] = narrows(node) ? take(bench, ckpt_tensor_bytes(&node->param[k].tensor) / 2, used) : NULL;
        bench->grad_param[k] = take(bench, ckpt_tensor_bytes(&node->param[k].tensor), used);
    }
    for (int k = 0; k < node->stat_count; k++) {
        bench->stat[k] = take(bench, ckpt_tensor_bytes(&node->stat[k].tensor), used);
    }
    ckpt_bytes largest = 0;
    for (int k = 0; role->update && k < node->param_count; k++) {
        const ckpt_bytes bytes = ckpt_tensor_bytes(&node->param[k].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    for (int i = 0; i < slots; i++) {
        bench->slot[i] = take(bench, largest, used);
    }
    const ckpt_bytes workspace =
        bench->forward_bytes > bench->backward_bytes ? bench->forward_bytes : bench->backward_bytes;
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

/* Small random numbers everywhere a kernel reads: around 1 in absolute value, never exactly 0. */
static ckpt_code fill_floats(const ckpt_bench *bench, void *to, const ckpt_tensor *tensor, int use, ckpt_err *err)
{
    const int64_t count = ckpt_shape_count(&tensor->shape);
    for (int64_t done = 0; done < count; done += CHUNK_FLOATS) {
        const int64_t now = count - done < CHUNK_FLOATS ? count - done : CHUNK_FLOATS;
        for (int64_t i = 0; i < now; i += 4) {
            uint32_t word[4];
            ckpt_philox_block(1, (uint64_t)use, 0, 0, (uint64_t)((done + i) / 4), word);
            for (int64_t j = i; j < now && j < i + 4; j++) {
                bench->chunk[j] = 2.0f * ckpt_philox_uniform(word[j - i]) - 1.0f;
            }
        }
        CKPT_TRY(upload_floats(bench, to, tensor->dtype, done, now, err));
    }
    return CKPT_OK;
}

/* Token ids and class numbers: spread over what the layer takes, so that rows are not all the same one. */
static ckpt_code fill_integers(const ckpt_bench *bench, void *to, int k, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    const int64_t limit = ckpt_node_limit(node, k);
    const int64_t count = ckpt_shape_count(&node->in[k].shape);
    int32_t *const chunk = (int32_t *)(void *)bench->chunk;
    for (int64_t done = 0; done < count; done += CHUNK_FLOATS) {
        const int64_t now = count - done < CHUNK_FLOATS ? count - done : CHUNK_FLOATS;
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
        void *const to = (void *)(uintptr_t)bench->in[k];
        CKPT_TRY(node->in[k].dtype == CKPT_INT32 ? fill_integers(bench, to, k, err)
                                                 : fill_floats(bench, to, &node->in[k], FOR_INPUT + k, err));
    }
    for (int k = 0; k < node->param_count; k++) {
        const ckpt_tensor *const tensor = &node->param[k].tensor;
        CKPT_TRY(fill_floats(bench, (void *)(uintptr_t)bench->param[k], tensor, FOR_PARAM + k, err));
        if (bench->param16[k] != NULL) {
            CKPT_TRY(bench->device->api->narrow(bench->device, (void *)(uintptr_t)bench->param16[k], bench->param[k],
                                                ckpt_shape_count(&tensor->shape), err));
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        if (bench->grad_out[k] != NULL) {
            CKPT_TRY(fill_floats(bench, (void *)(uintptr_t)bench->grad_out[k], &node->out[k], FOR_GRAD + k, err));
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
    for (int k = 0; k < bench->node->param_count; k++) {
        const ckpt_param *const param = &bench->node->param[k];
        if (param->tied < 0) {
            const ckpt_update_args args = {.hyper = network->hyper,
                                           .decay = param->decay,
                                           .step = 1,
                                           .count = ckpt_shape_count(&param->tensor.shape),
                                           .param = (float *)(uintptr_t)bench->param[k],
                                           .param16 = (void *)(uintptr_t)bench->param16[k],
                                           .grad = bench->grad_param[k],
                                           .slot = bench->slot};
            CKPT_TRY(ckpt_device_update(bench->device, network->optimizer, &args, err));
        }
    }
    return CKPT_OK;
}

static ckpt_code start_once(ckpt_bench *bench, ckpt_direction direction, ckpt_err *err)
{
    if (direction == CKPT_DIRECTION_FORWARD) {
        bench->args.workspace_bytes = bench->forward_bytes;
        return ckpt_device_forward(bench->device, &bench->bound, &bench->args, err);
    }
    if (direction == CKPT_DIRECTION_BACKWARD) {
        bench->args.workspace_bytes = bench->backward_bytes;
        return ckpt_device_backward(bench->device, &bench->bound, &bench->args, err);
    }
    return run_update(bench, err);
}

/* Work between two stamps of the device: what starting and waiting costs the host is not in it. Without stamps the
 * host's clock, where calls come back when the work is done. */
static ckpt_code run_once(ckpt_bench *bench, ckpt_direction direction, ckpt_ns *time, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    const bool stamps = device->api->stamps != NULL;
    const ckpt_ns start = ckpt_clock_ns();
    if (stamps) {
        CKPT_TRY(device->api->stamp(device, 0, CKPT_STREAM_COMPUTE, err));
    }
    CKPT_TRY(start_once(bench, direction, err));
    if (stamps) {
        CKPT_TRY(device->api->stamp(device, 1, CKPT_STREAM_COMPUTE, err));
    }
    CKPT_TRY(device->api->finish(device, err));
    *time = ckpt_clock_ns() - start;
    return stamps ? device->api->stamp_ns(device, 1, time, err) : CKPT_OK;
}

static int compare_ns(const void *a, const void *b)
{
    const ckpt_ns x = *(const ckpt_ns *)a, y = *(const ckpt_ns *)b;
    return (x > y) - (x < y);
}

static ckpt_code time_direction(const ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction,
                                ckpt_timing *timing, ckpt_err *err)
{
    ckpt_ns time = 0;
    for (int i = 0; i < profiling->options.warmup; i++) {
        CKPT_TRY(run_once(bench, direction, &time, err));
    }
    const ckpt_ns start = ckpt_clock_ns();
    int count = 0;
    while (count < profiling->options.repeats &&
           (count < REPEATS_MIN || ckpt_clock_ns() - start < profiling->options.spend_ns)) {
        CKPT_TRY(run_once(bench, direction, &profiling->sample[count], err));
        count++;
    }
    qsort(profiling->sample, (size_t)count, sizeof profiling->sample[0], compare_ns);
    *timing = (ckpt_timing){
        .median_ns = profiling->sample[count / 2],
        .spread_ns = profiling->sample[3 * count / 4] - profiling->sample[count / 4],
        .repeats = count,
    };
    return CKPT_OK;
}

static ckpt_code time_all(const ckpt_profiling *profiling, ckpt_bench *bench, ckpt_profile_row *row, ckpt_err *err)
{
    const ckpt_node_role *const role = &profiling->role[bench->node->index];
    CKPT_TRY(time_direction(profiling, bench, CKPT_DIRECTION_FORWARD, &row->forward, err));
    if (role->backward) {
        CKPT_TRY(time_direction(profiling, bench, CKPT_DIRECTION_BACKWARD, &row->backward, err));
    }
    if (role->update) {
        CKPT_TRY(time_direction(profiling, bench, CKPT_DIRECTION_UPDATE, &row->update, err));
    }
    return CKPT_OK;
}

static ckpt_code run_bench(const ckpt_profiling *profiling, ckpt_bench *bench, ckpt_profile_row *row, ckpt_err *err)
{
    const ckpt_network *const network = profiling->lowered->network;
    const ckpt_node_role *const role = &profiling->role[bench->node->index];
    const int slots = role->update ? network->optimizer->slots(network->hyper) : 0;
    row->forward_workspace_bytes = bench->bound.forward_workspace_bytes;
    row->backward_workspace_bytes = bench->bound.backward_workspace_bytes;
    bench->forward_bytes = row->forward_workspace_bytes;
    bench->backward_bytes =
        row->backward_workspace_bytes + ckpt_staging_bytes(bench->node, role->grad_in_adds, role->grad_param_adds);
    ckpt_bytes needed = 0, used = 0;
    take_all(bench, role, slots, &needed);
    void *base = NULL;
    CKPT_TRY(profiling->device->api->reserve(profiling->device, needed, &base, err));
    bench->block = base;
    set_args(bench, role, take_all(bench, role, slots, &used));
    ckpt_code code = fill_all(bench, err);
    if (code == CKPT_OK) {
        code = time_all(profiling, bench, row, err);
    }
    profiling->device->api->release(profiling->device, base, needed);
    return code;
}

/* What the op table says a run does: the figures that lowering gives the roofline. */
static void count_work(const ckpt_op_role *op, ckpt_timing *timing)
{
    if (op != NULL) {
        timing->flop = op->flop;
        timing->moved_bytes = op->moved_bytes;
    }
}

static ckpt_code measure_layer(const ckpt_profiling *profiling, const ckpt_node *node, ckpt_profile_row *row,
                               ckpt_err *err)
{
    if (node->op->planned_only) {
        if (node->forward_ns < 0 || node->backward_ns < 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "it is opaque and states no forward_ns and backward_ns");
        }
        row->forward.median_ns = node->forward_ns;
        row->backward.median_ns = node->backward_ns;
        row->forward_workspace_bytes = node->forward_workspace_bytes;
        row->backward_workspace_bytes = node->backward_workspace_bytes;
        return CKPT_OK;
    }
    ckpt_bench bench = {.device = profiling->device,
                        .node = node,
                        .lowered = profiling->lowered,
                        .chunk = profiling->chunk,
                        .chunk16 = profiling->chunk16};
    CKPT_TRY(ckpt_device_bind(profiling->device, node, -1, -1, &bench.bound, err));
    const char *const why = ckpt_device_remark(&bench.bound);
    if (why[0] != '\0' && profiling->options.remark != NULL) {
        profiling->options.remark(profiling->options.context, node->name, why);
    }
    const ckpt_code code = run_bench(profiling, &bench, row, err);
    ckpt_device_unbind(&bench.bound);
    CKPT_TRY(code);
    const ckpt_op_role *const *const op = profiling->role[node->index].op;
    count_work(op[CKPT_DIRECTION_FORWARD], &row->forward);
    count_work(op[CKPT_DIRECTION_BACKWARD], &row->backward);
    count_work(op[CKPT_DIRECTION_UPDATE], &row->update);
    return CKPT_OK;
}

/* What a layer holds, whoever measured its times. */
static void count_bytes(const ckpt_profiling *profiling, const ckpt_node *node, ckpt_profile_row *row)
{
    const ckpt_network *const network = profiling->lowered->network;
    for (int k = 0; k < node->out_count; k++) {
        row->output_bytes += ckpt_tensor_bytes(&node->out[k]);
    }
    for (int k = 0; k < node->saved_count; k++) {
        row->saved_bytes += ckpt_tensor_bytes(&node->saved[k]);
    }
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied < 0) {
            row->parameter_bytes += ckpt_tensor_bytes(&node->param[k].tensor);
        }
    }
    row->gradient_bytes = row->parameter_bytes;
    row->optimizer_bytes = row->parameter_bytes * network->optimizer->slots(network->hyper);
}

static ckpt_code read_roles(ckpt_profiling *profiling, ckpt_arena *out, ckpt_err *err)
{
    const ckpt_lowered *const lowered = profiling->lowered;
    ckpt_node_role *const role = CKPT_NEW(out, ckpt_node_role, lowered->network->node_count);
    if (role == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile");
    }
    for (int i = 0; i < lowered->graph->op_count; i++) {
        const ckpt_op_role *const op = &lowered->op_role[i];
        ckpt_node_role *const mine = &role[op->node];
        switch (op->phase) {
        case CKPT_FORWARD:
            mine->forward = true;
            mine->op[CKPT_DIRECTION_FORWARD] = op;
            break;
        case CKPT_BACKWARD:
            mine->backward = true;
            mine->grad_in_adds = op->grad_in_adds;
            mine->grad_param_adds = op->grad_param_adds;
            mine->op[CKPT_DIRECTION_BACKWARD] = op;
            break;
        case CKPT_UPDATE:
            mine->update = true;
            mine->op[CKPT_DIRECTION_UPDATE] = op;
            break;
        case CKPT_REDUCE: break;
        }
    }
    profiling->role = role;
    return CKPT_OK;
}

/* first[n] = the first node that is the same layer as node n (n itself when it is new); counts the distinct ones. */
static int find_distinct(const ckpt_profiling *profiling, int *first)
{
    const ckpt_network *const network = profiling->lowered->network;
    int distinct = 0;
    for (int n = 0; n < network->node_count; n++) {
        first[n] = n;
        for (int m = 0; m < n && first[n] == n; m++) {
            if (first[m] == m && profiling->role[m].forward &&
                same_layer(profiling, &network->node[n], &network->node[m])) {
                first[n] = m;
            }
        }
        distinct += profiling->role[n].forward && first[n] == n;
    }
    return distinct;
}

static void copy_measured(const ckpt_profile_row *from, ckpt_profile_row *row)
{
    row->same_as = from->layer;
    row->forward = from->forward;
    row->backward = from->backward;
    row->update = from->update;
    row->forward_workspace_bytes = from->forward_workspace_bytes;
    row->backward_workspace_bytes = from->backward_workspace_bytes;
}

static ckpt_code measure_all(const ckpt_profiling *profiling, ckpt_profile_row *row, int *row_count, int *first,
                             int *row_of, ckpt_err *err)
{
    const ckpt_network *const network = profiling->lowered->network;
    const int total = find_distinct(profiling, first);
    const ckpt_ns start = ckpt_clock_ns();
    int done = 0, rows = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        if (!profiling->role[n].forward) {
            continue; /* an alias runs nothing */
        }
        ckpt_profile_row *const mine = &row[rows];
        *mine = (ckpt_profile_row){.layer = node->name, .op = node->op->name, .same_as = ""};
        count_bytes(profiling, node, mine);
        row_of[n] = rows++;
        if (first[n] != n) {
            copy_measured(&row[row_of[first[n]]], mine);
            continue;
        }
        CKPT_TRY_WHILE(err, measure_layer(profiling, node, mine, err), "profiling layer %s (%s)", node->name,
                       node->op->name);
        done++;
        if (profiling->options.progress != NULL) {
            profiling->options.progress(profiling->options.context, done, total, ckpt_clock_ns() - start);
        }
    }
    *row_count = rows;
    return CKPT_OK;
}

static ckpt_profiler_options with_defaults(const ckpt_profiler_options *options)
{
    ckpt_profiler_options with = options != NULL ? *options : (ckpt_profiler_options){0};
    with.repeats = with.repeats <= 0 ? REPEATS : with.repeats > REPEATS_MAX ? REPEATS_MAX : with.repeats;
    with.repeats = with.repeats < REPEATS_MIN ? REPEATS_MIN : with.repeats;
    with.warmup = with.warmup <= 0 ? WARMUP : with.warmup;
    with.spend_ns = with.spend_ns <= 0 ? SPEND_NS : with.spend_ns;
    return with;
}

ckpt_code ckpt_profile_run(ckpt_device *device, const ckpt_lowered *lowered, const ckpt_profiler_options *options,
                           ckpt_arena *out, ckpt_profile **profile, ckpt_err *err)
{
    const ckpt_network *const network = lowered->network;
    ckpt_profiling profiling = {.device = device, .lowered = lowered, .options = with_defaults(options)};
    ckpt_profile *const made = CKPT_NEW(out, ckpt_profile, 1);
    ckpt_profile_row *const row = CKPT_NEW(out, ckpt_profile_row, network->node_count);
    const ckpt_mark mark = ckpt_arena_mark(out); /* above this line is workspace */
    profiling.chunk = CKPT_NEW(out, float, CHUNK_FLOATS);
    profiling.chunk16 = CKPT_NEW(out, uint16_t, CHUNK_FLOATS);
    profiling.sample = CKPT_NEW(out, ckpt_ns, profiling.options.repeats);
    int *const first = CKPT_NEW(out, int, network->node_count);
    int *const row_of = CKPT_NEW(out, int, network->node_count);
    if (made == NULL || row == NULL || profiling.chunk == NULL || profiling.chunk16 == NULL ||
        profiling.sample == NULL || first == NULL || row_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", network->node_count);
    }
    CKPT_TRY(ckpt_device_check_dtype(device, network->model->dtype, network->model->source, err));
    if (device->api->stamps != NULL) {
        CKPT_TRY(device->api->stamps(device, 2, err));
    }
    CKPT_TRY(read_roles(&profiling, out, err));
    *made = (ckpt_profile){.source = "", .recorder = "", .model = network->model->name, .row = row};
    CKPT_TRY(measure_all(&profiling, row, &made->row_count, first, row_of, err));
    CKPT_TRY_WHILE(err, ckpt_profile_link(device, made, err), "measuring the link");
    ckpt_arena_rewind(out, mark);
    *profile = made;
    return CKPT_OK;
}
