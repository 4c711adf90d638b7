/* Runs every distinct layer of a network by itself and times it. Layers are the same when their kernels cannot tell
 * them apart: op, attributes, shapes, wanted gradients, which of them are added to, threads. Inputs are random. On the
 * CPU they are warm, because in training a layer finds its input where the layer before left it; on a GPU whose cache
 * can be overwritten they are cold, as between large layers, unless options.warm. */
#include "profiler/profiler.h"

#include <string.h>

#include "core/base/clock.h"
#include "profiler/profiler_impl.h"

enum {
    REPEATS = 15, /* default */
    WARMUP = 1,
    FLUSH_TIMES = 2, /* the cache's size */
};

#define MIN_NS   ((ckpt_ns)5 * 1000 * 1000)   /* default: shortest time for the repeats of one direction */
#define SPEND_NS ((ckpt_ns)400 * 1000 * 1000) /* default: longest */

static bool same_tensor(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->pitch == b->pitch && ckpt_shape_equal(&a->shape, &b->shape);
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

/* One input read twice is another layer than two inputs of that shape: its gradients are in one buffer. */
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
    for (int k = 0; k < a->out_count; k++) { /* inputs and attributes give all of an output but its pitch */
        if (a->out[k].pitch != b->out[k].pitch) {
            return false;
        }
    }
    return same_attrs(a, b) && same_sharing(a, b);
}

/* What a row says of a layer, whoever measured its times. */
static void count_bytes(const ckpt_profiling *profiling, const ckpt_node *node, ckpt_profile_row *row)
{
    const ckpt_network *const network = profiling->lowered->network;
    for (int k = 0; k < node->out_count; k++) {
        row->output_bytes += ckpt_tensor_bytes(&node->out[k]);
    }
    row->saved_bytes = ckpt_node_saved_bytes(node);
    for (int k = 0; k < node->param_count; k++) {
        if (node->param[k].tied < 0) {
            row->parameter_bytes += ckpt_tensor_bytes(&node->param[k].tensor);
            for (int i = 0; i < ckpt_network_slots(network); i++) {
                row->optimizer_bytes += ckpt_network_slot_bytes(network, node->index, k, i);
            }
        }
    }
    row->gradient_bytes = row->parameter_bytes;
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

/* The first node that is the same layer as node n: n itself when it is new. */
static int find_first(const ckpt_profiling *profiling, const int *row_of, const ckpt_profile_row *row, int n)
{
    const ckpt_network *const network = profiling->lowered->network;
    for (int m = 0; m < n; m++) {
        if (profiling->role[m].forward && row[row_of[m]].same_as[0] == '\0' &&
            same_layer(profiling, &network->node[n], &network->node[m])) {
            return m;
        }
    }
    return n;
}

/* A row for every node that runs (an alias does not), without what is measured. row_of[n]: of node n; -1: none. Gives the
 * number of distinct layers. */
static int write_rows(const ckpt_profiling *profiling, ckpt_profile_row *row, int *row_of, int *rows)
{
    const ckpt_network *const network = profiling->lowered->network;
    int distinct = 0;
    *rows = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        row_of[n] = -1;
        if (!profiling->role[n].forward) {
            continue;
        }
        ckpt_profile_row *const mine = &row[*rows];
        const int first = find_first(profiling, row_of, row, n);
        *mine = (ckpt_profile_row){.layer = node->name, .op = node->op->name, .same_as = "", .algorithms = ""};
        mine->same_as = first != n ? network->node[first].name : "";
        count_bytes(profiling, node, mine);
        row_of[n] = (*rows)++;
        distinct += first == n;
    }
    return distinct;
}

static ckpt_code measure_layer(ckpt_profiling *profiling, const ckpt_node *node, int index, ckpt_profile_row *row,
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
    ckpt_bench bench = {0};
    ckpt_code code = ckpt_bench_open(&bench, profiling, node, err);
    code = code == CKPT_OK ? ckpt_bench_tune(&bench, profiling, err) : code;
    if (code == CKPT_OK) {
        row->algorithms = ckpt_arena_text(profiling->out, ckpt_device_choice(&bench.bound));
        code = row->algorithms != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for names of algorithms");
    }
    if (code == CKPT_OK) {
        const char *const why = ckpt_device_remark(&bench.bound);
        if (why[0] != '\0' && profiling->options.remark != NULL) {
            profiling->options.remark(profiling->options.context, node->name, why);
        }
        row->forward_workspace_bytes = bench.bound.forward_workspace_bytes;
        row->backward_workspace_bytes = bench.bound.backward_workspace_bytes;
        code = ckpt_profile_time(profiling, &bench, index, row, err);
    }
    ckpt_bench_close(&bench);
    return code;
}

void ckpt_profile_repeat(const ckpt_profile_row *from, ckpt_profile_row *row)
{
    row->forward = from->forward;
    row->backward = from->backward;
    row->update = from->update;
    row->recompute = from->recompute;
    row->way = from->way;
    row->way_count = from->way_count;
}

/* All but the kernels, which are listed once. */
static void copy_measured(const ckpt_profile_row *from, ckpt_profile_row *row)
{
    ckpt_profile_repeat(from, row);
    row->algorithms = from->algorithms;
    row->forward_workspace_bytes = from->forward_workspace_bytes;
    row->backward_workspace_bytes = from->backward_workspace_bytes;
}

static ckpt_code measure_all(ckpt_profiling *profiling, ckpt_profile *made, ckpt_profile_row *row, int *row_of,
                             ckpt_err *err)
{
    const ckpt_network *const network = profiling->lowered->network;
    const int total = write_rows(profiling, row, row_of, &made->row_count);
    const ckpt_ns start = ckpt_clock_ns();
    int done = 0;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        ckpt_profile_row *const mine = row_of[n] >= 0 ? &row[row_of[n]] : NULL;
        if (mine == NULL) {
            continue;
        }
        if (mine->same_as[0] != '\0') {
            copy_measured(ckpt_profile_find(made, mine->same_as), mine);
            continue;
        }
        CKPT_TRY_WHILE(err, measure_layer(profiling, node, row_of[n], mine, err), "profiling layer %s (%s)", node->name,
                       node->op->name);
        done++;
        if (profiling->options.progress != NULL) {
            profiling->options.progress(profiling->options.context, done, total, ckpt_clock_ns() - start);
        }
    }
    return CKPT_OK;
}

static ckpt_profiler_options with_defaults(const ckpt_profiler_options *options)
{
    enum { MIN = CKPT_PROFILE_REPEATS_MIN, MAX = CKPT_PROFILE_REPEATS_MAX };
    ckpt_profiler_options with = options != NULL ? *options : (ckpt_profiler_options){0};
    with.repeats = with.repeats <= 0 ? REPEATS : with.repeats > MAX ? MAX : with.repeats;
    with.repeats = with.repeats < MIN ? MIN : with.repeats;
    with.warmup = with.warmup <= 0 ? WARMUP : with.warmup;
    with.spend_ns = with.spend_ns <= 0 ? SPEND_NS : with.spend_ns;
    return with;
}

/* Memory to overwrite the cache with, and how long that takes. The cache then holds bytes that are still to be written
 * to memory, as in a step after the layer before. */
static ckpt_code prepare_flush(ckpt_profiling *profiling, ckpt_err *err)
{
    ckpt_device *const device = profiling->device;
    const ckpt_device_api *const api = device->api;
    profiling->flush_bytes = FLUSH_TIMES * device->cache_bytes;
    CKPT_TRY(api->reserve(device, profiling->flush_bytes, &profiling->flush, err));
    for (int warm = 0; warm < 2; warm++) {
        CKPT_TRY(api->stamp(device, 0, CKPT_STREAM_COMPUTE, err));
        CKPT_TRY(api->fill(device, profiling->flush, 0, profiling->flush_bytes, err));
        CKPT_TRY(api->stamp(device, 1, CKPT_STREAM_COMPUTE, err));
        CKPT_TRY(api->finish(device, err));
        CKPT_TRY(api->stamp_ns(device, 1, &profiling->flush_ns, err));
    }
    profiling->flush_ns = profiling->flush_ns > 0 ? profiling->flush_ns : 1;
    return CKPT_OK;
}

/* What stands beside the rows: stamps, the memory that flushes the cache, the processor's counters. */
static ckpt_code prepare(ckpt_profiling *profiling, ckpt_err *err)
{
    ckpt_device *const device = profiling->device;
    if (device->api->stamps != NULL) {
        CKPT_TRY(device->api->stamps(device, 2, err));
    }
    if (!device->api->gpu) {
        CKPT_TRY(ckpt_counters_create(&profiling->counters, err));
    }
    if (device->cache_bytes > 0 && device->api->stamps != NULL && !profiling->options.warm) {
        CKPT_TRY_WHILE(err, prepare_flush(profiling, err), "overwriting the cache");
    }
    return CKPT_OK;
}

static ckpt_code take_tables(ckpt_profiling *profiling, int **row_of, ckpt_err *err)
{
    const int nodes = profiling->lowered->network->node_count;
    profiling->chunk = CKPT_NEW(profiling->scratch, float, CKPT_BENCH_CHUNK);
    profiling->chunk16 = CKPT_NEW(profiling->scratch, uint16_t, CKPT_BENCH_CHUNK);
    profiling->sample = CKPT_NEW(profiling->scratch, int64_t, CKPT_PROFILE_REPEATS_MAX);
    *row_of = CKPT_NEW(profiling->scratch, int, nodes);
    if (profiling->chunk == NULL || profiling->chunk16 == NULL || profiling->sample == NULL || *row_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", nodes);
    }
    return CKPT_OK;
}

static ckpt_code fill_profile(ckpt_profiling *profiling, ckpt_profile *made, ckpt_profile_row *row, ckpt_err *err)
{
    int *row_of = NULL;
    CKPT_TRY(take_tables(profiling, &row_of, err));
    CKPT_TRY(read_roles(profiling, profiling->scratch, err));
    CKPT_TRY(prepare(profiling, err));
    profiling->tuning.flush = profiling->flush;
    profiling->tuning.flush_bytes = profiling->flush_bytes;
    CKPT_TRY(measure_all(profiling, made, row, row_of, err));
    ckpt_profile_note_end(profiling);
    made->flushed = profiling->flush != NULL;
    CKPT_TRY_WHILE(err, ckpt_profile_link(profiling->device, made, err), "measuring the link");
    if (profiling->options.recorder != NULL) {
        made->recorder = ckpt_recorder_describe(profiling->options.recorder, profiling->out);
    }
    return made->recorder != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for what was recorded");
}

ckpt_code ckpt_profile_run(ckpt_device *device, const ckpt_lowered *lowered, const ckpt_profiler_options *options,
                           ckpt_arena *out, ckpt_profile **profile, ckpt_err *err)
{
    const ckpt_network *const network = lowered->network;
    ckpt_profile *const made = CKPT_NEW(out, ckpt_profile, 1);
    ckpt_profile_row *const row = CKPT_NEW(out, ckpt_profile_row, network->node_count);
    if (made == NULL || row == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", network->node_count);
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_profiling profiling = {
        .device = device, .lowered = lowered, .options = with_defaults(options), .out = out, .scratch = &scratch};
    profiling.recording = profiling.options.recorder != NULL;
    profiling.tuning_on = device->api->gpu && !profiling.options.no_tune;
    profiling.min_ns = options != NULL && options->repeats > 0 ? 0 : MIN_NS;
    *made = (ckpt_profile){.source = "", .recorder = "", .model = network->model->name, .row = row};
    const ckpt_code code = fill_profile(&profiling, made, row, err);
    if (profiling.flush != NULL) {
        device->api->release(device, profiling.flush, profiling.flush_bytes);
    }
    ckpt_counters_destroy(profiling.counters);
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK) {
        *profile = made;
    }
    return code;
}

/* As ops and ways state them; of a way that must be measured nobody knows it before. */
static void state_workspaces(const ckpt_node *node, ckpt_profile_row *row)
{
    row->forward_workspace_bytes = node->forward_workspace_bytes;
    row->backward_workspace_bytes = node->backward_workspace_bytes;
    for (int i = 0; i < 2 * node->way_count; i++) { /* those of forward first, as they are measured */
        const ckpt_way *const way = &node->way[i % node->way_count];
        if (!way->measured && way->backward == (i >= node->way_count)) {
            row->way[row->way_count++] =
                (ckpt_profile_way){.direction = way->backward ? CKPT_DIRECTION_BACKWARD : CKPT_DIRECTION_FORWARD,
                                   .name = way->name,
                                   .workspace_bytes = way->workspace_bytes >= 0 ? way->workspace_bytes
                                                      : way->backward           ? node->backward_workspace_bytes
                                                                                : node->forward_workspace_bytes};
        }
    }
}

/* Of the way in which a step of a plan runs, where the row keeps it; NULL: an update, or no run of a layer. */
static ckpt_bytes *workspace_at(const ckpt_lowered *lowered, const ckpt_step *step, ckpt_profile_row *row,
                                const int *row_of)
{
    const ckpt_op_role *const role = step->kind == CKPT_RUN ? &lowered->op_role[step->target] : NULL;
    if (role == NULL || role->task != CKPT_TASK_LAYER || role->phase == CKPT_UPDATE) {
        return NULL;
    }
    ckpt_profile_row *const mine = &row[row_of[role->node]];
    const bool backward = role->phase == CKPT_BACKWARD;
    const ckpt_direction direction = backward ? CKPT_DIRECTION_BACKWARD : CKPT_DIRECTION_FORWARD;
    if (step->variant == NULL) {
        return backward ? &mine->backward_workspace_bytes : &mine->forward_workspace_bytes;
    }
    int k = 0;
    while (k < mine->way_count &&
           (mine->way[k].direction != direction || strcmp(mine->way[k].name, step->variant) != 0)) {
        k++;
    }
    if (k == mine->way_count) { /* one that was measured: there is room for all ways of the node */
        mine->way[mine->way_count++] = (ckpt_profile_way){.direction = direction, .name = step->variant};
    }
    return &mine->way[k].workspace_bytes;
}

static void plan_workspaces(const ckpt_lowered *lowered, const ckpt_plan *plan, ckpt_profile_row *row,
                            const int *row_of)
{
    for (int s = 0; s < plan->step_count; s++) {
        ckpt_bytes *const at = workspace_at(lowered, &plan->step[s], row, row_of);
        if (at != NULL) {
            *at = 0;
        }
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const a = &plan->allocation[i];
        ckpt_bytes *const at = a->buffer < 0 ? workspace_at(lowered, &plan->step[a->from], row, row_of) : NULL;
        if (at != NULL) {
            const ckpt_op_role *const role = &lowered->op_role[plan->step[a->from].target];
            *at =
                a->bytes - (role->phase == CKPT_BACKWARD ? ckpt_staging_bytes(&lowered->network->node[role->node],
                                                                              role->grad_in_adds, role->grad_param_adds)
                                                         : 0);
        }
    }
}

ckpt_code ckpt_profile_outline(const ckpt_lowered *lowered, const ckpt_plan *plan, ckpt_arena *out,
                               ckpt_profile **profile, ckpt_err *err)
{
    const ckpt_network *const network = lowered->network;
    ckpt_profile *const made = CKPT_NEW(out, ckpt_profile, 1);
    ckpt_profile_row *const row = CKPT_NEW(out, ckpt_profile_row, network->node_count);
    int *const row_of = CKPT_NEW(out, int, network->node_count);
    ckpt_profiling profiling = {.lowered = lowered, .out = out};
    if (made == NULL || row == NULL || row_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", network->node_count);
    }
    CKPT_TRY(read_roles(&profiling, out, err));
    *made = (ckpt_profile){.source = "", .recorder = "", .model = network->model->name, .row = row};
    (void)write_rows(&profiling, row, row_of, &made->row_count);
    for (int n = 0; n < network->node_count; n++) {
        ckpt_profile_row *const mine = row_of[n] >= 0 ? &row[row_of[n]] : NULL;
        if (mine == NULL) {
            continue;
        }
        mine->way = CKPT_NEW(out, ckpt_profile_way, network->node[n].way_count);
        if (mine->way == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the variants of %s", mine->layer);
        }
        state_workspaces(&network->node[n], mine);
    }
    plan_workspaces(lowered, plan, row, row_of);
    *profile = made;
    return CKPT_OK;
}
