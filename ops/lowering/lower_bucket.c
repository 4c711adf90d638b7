/* Reductions over replicas, all-reduces of tied parameters over stages, the norm of all gradients, and the updates.
 *
 *     static      backward ............................. | reduce 0, 1, 2 | tied | norm | updates
 *     overlap     backward . start 0 .. reduce 0, start 1 .. | reduce 1 | ...
 *     fused       backward . reduce 0, updates of 0 ..... reduce 1, updates of 1 | tied | updates of copies
 *     both        . start 0 . reduce 0, start 1 . summed 0, updates of 0, reduce 1, start 2 .
 *     and sharded . start 0 . reduce 0, start 1, updates of 0, gather 0 . reduce 1, start 2 .
 *
 * The network does one thing after the other: a reduce-scatter that is started during an all-gather begins when that
 * ends. So lowering keeps a clock of the network, and an op that waits takes what is left by it. */
#include "ops/device_model.h"
#include "ops/lowering/lower_impl.h"
#include "ops/ops_impl.h"

static const ckpt_scheme *scheme_of(const ckpt_lowering *l)
{
    return &l->network->scheme;
}

/* Layers whose updates wait for the all-reduce of a tied group. */
static void find_late(ckpt_lowering *l)
{
    for (int i = 0; i < l->network->tied_group_count; i++) {
        const ckpt_tied_group *const group = &l->network->tied_group[i];
        for (int h = 0; h < group->holder_count; h++) {
            l->late[group->holder[h]] = true;
            l->has_late = l->has_late || ckpt_lower_here(l, group->holder[h]);
        }
    }
}

ckpt_code ckpt_lower_buckets(ckpt_lowering *l, ckpt_err *err)
{
    const int nodes = l->network->node_count;
    CKPT_TRY(ckpt_network_buckets(l->network, l->out, &l->bucket, &l->bucket_count, err));
    l->progress = CKPT_NEW(l->out, ckpt_bucket_progress, l->bucket_count);
    l->bucket_of = CKPT_NEW(l->out, int, nodes);
    l->late = CKPT_NEW(l->out, bool, nodes);
    if (l->progress == NULL || l->bucket_of == NULL || l->late == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d buckets", l->bucket_count);
    }
    for (int n = 0; n < nodes; n++) {
        l->bucket_of[n] = -1;
    }
    for (int b = 0; b < l->bucket_count; b++) {
        const ckpt_bucket *const bucket = &l->bucket[b];
        l->progress[b] = (ckpt_bucket_progress){.updates = bucket->node_count, .buffer = -1};
        for (int i = 0; i < bucket->node_count; i++) {
            l->progress[b].last = l->completes[bucket->node[i]]; /* they come in the order in which they are complete */
            l->bucket_of[bucket->node[i]] = b;
        }
    }
    find_late(l);
    return CKPT_OK;
}

/* Time that all ops so far take; the latest must have its. */
static ckpt_ns now(ckpt_lowering *l)
{
    for (; l->timed < l->op_count; l->timed++) {
        l->elapsed = ckpt_plus(l->elapsed, l->op[l->timed].time_ns);
    }
    return l->elapsed;
}

/* When the network has moved `bytes` that are given to it now. */
static ckpt_ns give_to_network(ckpt_lowering *l, ckpt_bytes bytes)
{
    const ckpt_ns from = now(l) > l->network_free ? now(l) : l->network_free;
    l->network_free = ckpt_plus(from, ckpt_lower_network_ns(l, bytes));
    return l->network_free;
}

/* The gradients of a bucket that are buffers. */
static ckpt_code list_gradients(const ckpt_lowering *l, const ckpt_bucket *bucket, ckpt_list *list, ckpt_err *err)
{
    int *const at = CKPT_NEW(l->out, int, CKPT_PARAM_MAX *(size_t)bucket->node_count);
    int count = 0;
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gradients of %d layers", bucket->node_count);
    }
    for (int i = 0; i < bucket->node_count; i++) {
        for (int k = 0; k < l->network->node[bucket->node[i]].param_count; k++) {
            const int buffer = l->param_grad_buffer[(size_t)bucket->node[i] * CKPT_PARAM_MAX + (size_t)k];
            if (buffer >= 0) {
                at[count++] = buffer;
            }
        }
    }
    *list = (ckpt_list){.at = at, .count = count};
    return CKPT_OK;
}

/* "@bucket.k/reduce" and the like. */
static ckpt_code reduce_op(ckpt_lowering *l, const char *kind, int number, ckpt_task task, const char *what,
                           ckpt_graph_op **op, ckpt_op_role **role, ckpt_err *err)
{
    const char *const label = ckpt_arena_format(l->out, "@%s.%d", kind, number);
    CKPT_TRY(ckpt_lower_op(l, label, label, what, CKPT_REDUCE, op, role, err));
    (*role)->task = task;
    (*op)->stage = scheme_of(l)->stages > 1 ? scheme_of(l)->stage + 1 : 0;
    (*op)->offload = CKPT_NO; /* what it writes is in use until another op says that it is not */
    return CKPT_OK;
}

static ckpt_code bucket_op(ckpt_lowering *l, int bucket, ckpt_task task, const char *what, ckpt_graph_op **op,
                           ckpt_op_role **role, ckpt_err *err)
{
    CKPT_TRY(reduce_op(l, "bucket", bucket, task, what, op, role, err));
    (*role)->bucket = bucket;
    return CKPT_OK;
}

/* Bytes of one chunk; the others have as many for this rank together as staging_bytes. */
static ckpt_bytes chunk_bytes(const ckpt_bucket *bucket)
{
    return ckpt_times(bucket->chunk, (int64_t)sizeof(float));
}

static ckpt_code lower_start(ckpt_lowering *l, int number, ckpt_err *err)
{
    const ckpt_bucket *const bucket = &l->bucket[number];
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(bucket_op(l, number, CKPT_TASK_REDUCE_START, "start", &op, &role, err));
    ckpt_buffer_role held = ckpt_lower_holds_nothing;
    held.holds = CKPT_HOLDS_BUCKET;
    held.bucket = number;
    CKPT_TRY(ckpt_lower_buffer(l, op->layer, NULL, bucket->staging_bytes, CKPT_GRADIENT, held,
                               &l->progress[number].buffer, err));
    CKPT_TRY(list_gradients(l, bucket, &op->reads, err));
    CKPT_TRY(ckpt_lower_list(l, &l->progress[number].buffer, 1, &op->writes, err));
    l->progress[number].scattered = give_to_network(l, bucket->staging_bytes);
    return CKPT_OK;
}

static ckpt_code lower_reduce(ckpt_lowering *l, int number, ckpt_err *err)
{
    const ckpt_bucket *const bucket = &l->bucket[number];
    ckpt_bucket_progress *const progress = &l->progress[number];
    const bool overlap = scheme_of(l)->overlap;
    const ckpt_ns come = overlap ? progress->scattered : give_to_network(l, bucket->staging_bytes);
    const ckpt_ns wait = come > now(l) ? come - now(l) : 0;
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(bucket_op(l, number, CKPT_TASK_REDUCE, "reduce", &op, &role, err));
    CKPT_TRY(list_gradients(l, bucket, &op->adds, err));
    if (overlap) {
        CKPT_TRY(ckpt_lower_list(l, &progress->buffer, 1, &op->reads, err));
    } else {
        op->workspace_bytes = ckpt_round_up(bucket->staging_bytes, CKPT_ALIGN);
    }
    role->flop = bucket->staging_bytes / (int64_t)sizeof(float);
    role->moved_bytes = ckpt_plus(bucket->staging_bytes, ckpt_times(2, chunk_bytes(bucket)));
    op->time_ns = ckpt_plus(
        wait, ckpt_roofline_ns(l->device, NULL, CKPT_DIRECTION_UPDATE, CKPT_FLOAT32, role->flop, role->moved_bytes));
    if (!scheme_of(l)->shard_optimizer && overlap) {
        progress->gathered = give_to_network(l, bucket->staging_bytes);
    } else if (!scheme_of(l)->shard_optimizer) {
        op->time_ns = ckpt_plus(op->time_ns, ckpt_lower_network_ns(l, bucket->staging_bytes));
    }
    progress->reduced = true;
    return CKPT_OK;
}

/* Before the first update of a bucket. */
static ckpt_code lower_summed(ckpt_lowering *l, int number, ckpt_err *err)
{
    ckpt_bucket_progress *const progress = &l->progress[number];
    if (!scheme_of(l)->overlap || scheme_of(l)->shard_optimizer || progress->summed) {
        return CKPT_OK;
    }
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    const ckpt_ns at = now(l);
    CKPT_TRY(bucket_op(l, number, CKPT_TASK_REDUCE_END, "summed", &op, &role, err));
    CKPT_TRY(list_gradients(l, &l->bucket[number], &op->adds, err));
    op->time_ns = progress->gathered > at ? progress->gathered - at : 0;
    progress->summed = true;
    return CKPT_OK;
}

static ckpt_code lower_gather(ckpt_lowering *l, int number, ckpt_err *err)
{
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    const ckpt_ns at = now(l), come = give_to_network(l, l->bucket[number].staging_bytes);
    CKPT_TRY(bucket_op(l, number, CKPT_TASK_ALL_GATHER, "gather", &op, &role, err));
    op->time_ns = come - at;
    return CKPT_OK;
}

/* The update of a node, with what its bucket wants before its first and behind its last. */
static ckpt_code lower_update(ckpt_lowering *l, int node, ckpt_err *err)
{
    const int bucket = l->bucket_of[node];
    if (bucket < 0) {
        return ckpt_lower_update(l, &l->network->node[node], -1, err);
    }
    CKPT_TRY(lower_summed(l, bucket, err));
    CKPT_TRY(ckpt_lower_update(l, &l->network->node[node], bucket, err));
    const bool last = --l->progress[bucket].updates == 0;
    return last && scheme_of(l)->shard_optimizer ? lower_gather(l, bucket, err) : CKPT_OK;
}

/* Fused: the updates of a bucket that is reduced. */
static ckpt_code settle(ckpt_lowering *l, int number, ckpt_err *err)
{
    CKPT_TRY(lower_summed(l, number, err));
    for (int i = 0; i < l->bucket[number].node_count; i++) {
        const int node = l->bucket[number].node[i];
        if (!l->late[node]) {
            CKPT_TRY_WHILE(err, lower_update(l, node, err), "lowering layer %s of %s", l->network->node[node].name,
                           l->network->model->source);
        }
    }
    return CKPT_OK;
}

/* Reduce a bucket whose reduce-scatter is under way. The updates of the bucket before it come first: its all-gather has
 * had that long to end. */
static ckpt_code reduce_started(ckpt_lowering *l, int number, ckpt_err *err)
{
    if (scheme_of(l)->fused && !scheme_of(l)->shard_optimizer && number > 0) {
        CKPT_TRY(settle(l, number - 1, err));
    }
    return lower_reduce(l, number, err);
}

/* The gradients of the next bucket are complete. */
static ckpt_code complete_bucket(ckpt_lowering *l, ckpt_err *err)
{
    const int number = l->completed++;
    const bool fused = scheme_of(l)->fused;
    if (!scheme_of(l)->overlap && fused) {
        CKPT_TRY(lower_reduce(l, number, err));
        return settle(l, number, err);
    }
    if (!scheme_of(l)->overlap) {
        return CKPT_OK; /* at the end */
    }
    if (number > 0) {
        CKPT_TRY(reduce_started(l, number - 1, err));
    }
    CKPT_TRY(lower_start(l, number, err));
    /* A sharded optimizer needs no all-gather of the sums. */
    return number > 0 && fused && scheme_of(l)->shard_optimizer ? settle(l, number - 1, err) : CKPT_OK;
}

/* Fused and one replica: the owner of those it is tied to before itself. */
static ckpt_code update_behind(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    int done = -1;
    for (int k = 0; k < node->param_count; k++) {
        const int owner = node->param[k].tied >= 0 ? node->param[k].tied : node->index;
        if (owner != done && l->completes[owner] == node->index && !l->late[owner]) {
            CKPT_TRY(lower_update(l, owner, err));
        }
        done = owner;
    }
    return CKPT_OK;
}

ckpt_code ckpt_lower_completed(ckpt_lowering *l, const ckpt_node *node, ckpt_err *err)
{
    while (l->completed < l->bucket_count && l->progress[l->completed].last >= node->index) {
        CKPT_TRY(complete_bucket(l, err));
    }
    return scheme_of(l)->fused && scheme_of(l)->replicas == 1 ? update_behind(l, node, err) : CKPT_OK;
}

/* The reductions that are left at the end of backward. */
static ckpt_code reduce_rest(ckpt_lowering *l, ckpt_err *err)
{
    for (int b = 0; b < l->bucket_count; b++) {
        if (!l->progress[b].reduced) {
            CKPT_TRY(scheme_of(l)->overlap ? reduce_started(l, b, err) : lower_reduce(l, b, err));
        }
    }
    if (scheme_of(l)->fused && scheme_of(l)->overlap && l->bucket_count > 0) {
        CKPT_TRY(settle(l, l->bucket_count - 1, err));
    }
    for (int b = 0; b < l->bucket_count && (l->has_late || l->network->clip_norm > 0); b++) {
        CKPT_TRY(lower_summed(l, b, err)); /* their sums are read next */
    }
    return CKPT_OK;
}

/* The all-reduce of one tied group. */
static ckpt_code reduce_tied(ckpt_lowering *l, int number, ckpt_err *err)
{
    const ckpt_tied_group *const group = &l->network->tied_group[number];
    const ckpt_bytes bytes = ckpt_tensor_bytes(&l->network->node[group->owner].param[group->param].tensor);
    int *const adds = CKPT_NEW(l->out, int, group->holder_count); /* layers that are apart can be many */
    int here = 0, buffers = 0;
    if (adds == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d copies of a parameter", group->holder_count);
    }
    for (int h = 0; h < group->holder_count; h++) {
        const int buffer = l->param_grad_buffer[(size_t)group->holder[h] * CKPT_PARAM_MAX + (size_t)group->param];
        here += ckpt_lower_here(l, group->holder[h]);
        if (buffer >= 0) {
            adds[buffers++] = buffer;
        }
    }
    if (here == 0) {
        return CKPT_OK;
    }
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(reduce_op(l, "shared", number, CKPT_TASK_REDUCE_TIED, "reduce", &op, &role, err));
    op->adds = (ckpt_list){.at = adds, .count = buffers};
    role->tied_group = number;
    op->workspace_bytes = ckpt_times(group->holder_count - 1, ckpt_round_up(bytes, CKPT_ALIGN));
    role->flop = ckpt_times(group->holder_count - 1, bytes / (int64_t)sizeof(float));
    role->moved_bytes = ckpt_times(group->holder_count + here, bytes);
    op->time_ns = ckpt_plus(
        ckpt_lower_network_ns(l, ckpt_times(group->holder_count - here, bytes)),
        ckpt_roofline_ns(l->device, NULL, CKPT_DIRECTION_UPDATE, CKPT_FLOAT32, role->flop, role->moved_bytes));
    return CKPT_OK;
}

/* What a GPU's sums of squares take: a layer's parameters are summed up in one go, what lies between them too; with
 * replicas in pieces, of which a smaller one may have more parts, but none more than these. */
static ckpt_bytes norm_workspace(const ckpt_lowering *l)
{
    const int64_t most_parts = 1024 * ckpt_gpu_square_part(1); /* elements that make as many parts as there may be */
    ckpt_bytes most = 0;
    for (int n = 0; n < l->network->node_count && l->network->threads == CKPT_ON_GPU; n++) {
        const ckpt_node *const node = &l->network->node[n];
        ckpt_bytes bytes = 0;
        for (int k = 0; k < node->param_count && ckpt_lower_here(l, n); k++) {
            const bool counts = node->param[k].copy_of < 0 && node->param[k].tied < 0;
            const ckpt_bytes own = ckpt_round_up(ckpt_tensor_bytes(&node->param[k].tensor), CKPT_ALIGN);
            bytes = counts ? ckpt_plus(bytes, own) : bytes;
        }
        const int64_t count = bytes / (ckpt_bytes)sizeof(float);
        const ckpt_bytes wanted = ckpt_gpu_square_workspace(count < most_parts ? count : most_parts);
        most = bytes > 0 && wanted > most ? wanted : most;
    }
    return ckpt_round_up(most, CKPT_ALIGN);
}

/* Every gradient is read once, of a sharded optimizer those of the own chunks. */
static ckpt_code lower_norm(ckpt_lowering *l, ckpt_err *err)
{
    ckpt_bytes bytes = 0;
    for (int n = 0; n < l->network->node_count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        for (int k = 0; k < node->param_count && ckpt_lower_here(l, n); k++) {
            const bool counts = node->param[k].copy_of < 0 && node->param[k].tied < 0 &&
                                l->param_written[(size_t)n * CKPT_PARAM_MAX + (size_t)k];
            bytes = counts ? ckpt_plus(bytes, ckpt_tensor_bytes(&node->param[k].tensor)) : bytes;
        }
    }
    ckpt_graph_op *op = NULL;
    ckpt_op_role *role = NULL;
    CKPT_TRY(ckpt_lower_op(l, "@norm", "@norm", NULL, CKPT_REDUCE, &op, &role, err));
    role->task = CKPT_TASK_NORM;
    op->workspace_bytes = norm_workspace(l);
    role->moved_bytes = scheme_of(l)->shard_optimizer ? bytes / scheme_of(l)->replicas : bytes;
    role->flop = role->moved_bytes / 2; /* a product and a sum of 4 bytes */
    op->time_ns = ckpt_roofline_ns(l->device, NULL, CKPT_DIRECTION_UPDATE, CKPT_FLOAT32, role->flop, role->moved_bytes);
    op->stage = scheme_of(l)->stages > 1 ? scheme_of(l)->stage + 1 : 0;
    return CKPT_OK;
}

ckpt_code ckpt_lower_updates(ckpt_lowering *l, ckpt_err *err)
{
    CKPT_TRY(reduce_rest(l, err));
    for (int i = 0; i < l->network->tied_group_count; i++) {
        CKPT_TRY(reduce_tied(l, i, err));
    }
    if (l->network->clip_norm > 0) {
        CKPT_TRY(lower_norm(l, err));
    }
    for (int n = 0; n < l->network->node_count; n++) {
        if (ckpt_lower_here(l, n) && (!scheme_of(l)->fused || l->late[n])) {
            CKPT_TRY_WHILE(err, lower_update(l, n, err), "lowering layer %s of %s", l->network->node[n].name,
                           l->network->model->source);
        }
    }
    return CKPT_OK;
}
