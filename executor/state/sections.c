/* Whole sections, gathered from the ranks. Where one rank has all of a section in its plain form, the section is one
 * part; else a part is a parameter or statistic of one stage, or the piece of it in one replica's shard. */
#include <string.h>

#include "executor/state/sections_impl.h"

/* Gaps between rows and spare elements belong to one device's memory; files have neither. */
static ckpt_code close_gaps(ckpt_node *node, int node_count, ckpt_value *value, int value_count, ckpt_arena *out,
                            ckpt_err *err)
{
    for (int n = 0; n < node_count; n++) {
        ckpt_tensor *const in = CKPT_NEW(out, ckpt_tensor, node[n].in_count);
        if (in == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a network of %d layers", node_count);
        }
        for (int k = 0; k < node[n].in_count; k++) {
            in[k] = node[n].in[k];
            in[k].pitch = 0;
        }
        node[n].in = in;
        for (int k = 0; k < node[n].out_count; k++) {
            node[n].out[k].pitch = 0;
        }
        for (int k = 0; k < node[n].param_count; k++) {
            node[n].param[k].padding = 0;
        }
    }
    for (int v = 0; v < value_count; v++) {
        value[v].tensor.pitch = 0;
    }
    return CKPT_OK;
}

ckpt_code ckpt_whole_network(const ckpt_program *program, ckpt_arena *out, ckpt_network *network, ckpt_err *err)
{
    const ckpt_network *const mine = program->lowered->network;
    int *const stage_of = CKPT_NEW(out, int, mine->node_count);
    ckpt_node *const node = CKPT_NEW(out, ckpt_node, mine->node_count);
    ckpt_value *const value = CKPT_NEW(out, ckpt_value, mine->value_count);
    if (stage_of == NULL || node == NULL || value == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a network of %d layers", mine->node_count);
    }
    for (int n = 0; n < mine->node_count; n++) {
        node[n] = mine->node[n];
        CKPT_TRY(ckpt_node_own(&node[n], out, err));
    }
    memcpy(value, mine->value, (size_t)mine->value_count * sizeof *value);
    CKPT_TRY(close_gaps(node, mine->node_count, value, mine->value_count, out, err));
    for (int n = 0; n < mine->node_count; n++) {
        for (int k = 0; k < node[n].param_count; k++) {
            ckpt_param *const param = &node[n].param[k];
            const ckpt_param *const from = param->tied >= 0 ? &mine->node[param->tied].param[k] : param;
            param->tied = from->copy_of >= 0 ? from->copy_of : param->tied; /* what is a copy was tied before */
            param->copy_of = -1;
        }
    }
    *network = *mine;
    network->scheme = ckpt_scheme_alone;
    network->node = node;
    network->value = value;
    network->stage_of = stage_of;
    network->tied_group = NULL;
    network->tied_group_count = 0;
    return CKPT_OK;
}

/* In which bucket of its stage a parameter's gradient is, and from which element on; NULL: in none. */
typedef struct in_bucket {
    const ckpt_bucket *bucket;
    int64_t at;
} in_bucket;

typedef struct finding {
    const ckpt_program *program;
    ckpt_arena *out;
    ckpt_network plain;
    ckpt_static_layout layout;  /* of the plain network */
    const in_bucket *in_bucket; /* [node * CKPT_PARAM_MAX + k]; NULL: what is asked for is not sharded */
    int stage, replica;         /* of this rank */
    ckpt_section_part *part;
    int count, room;
} finding;

static ckpt_code add_part(finding *f, const ckpt_section_part *part, ckpt_err *err)
{
    if (f->count == f->room) {
        const int room = f->room > 0 ? 2 * f->room : 64;
        ckpt_section_part *const wider = CKPT_NEW(f->out, ckpt_section_part, room);
        if (wider == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d parts of a section", room);
        }
        if (f->count > 0) {
            memcpy(wider, f->part, (size_t)f->count * sizeof *wider);
        }
        f->part = wider;
        f->room = room;
    }
    f->part[f->count++] = *part;
    return CKPT_OK;
}

static bool is_here(const finding *f, int stage, int replica)
{
    return stage == f->stage && (replica < 0 || replica == f->replica);
}

/* The buckets of all stages: a rank knows those of its own, and the others' follow from the same network. */
static ckpt_code find_buckets(finding *f, ckpt_err *err)
{
    const ckpt_network *const network = f->program->lowered->network;
    in_bucket *const found = CKPT_NEW(f->out, in_bucket, (size_t)network->node_count * CKPT_PARAM_MAX);
    if (found == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the shards of %d layers", network->node_count);
    }
    for (int stage = 0; stage < network->scheme.stages; stage++) {
        ckpt_network of_stage = *network;
        of_stage.scheme.stage = stage;
        const ckpt_bucket *bucket = NULL;
        int count = 0;
        CKPT_TRY(ckpt_network_buckets(&of_stage, f->out, &bucket, &count, err));
        for (int b = 0; b < count; b++) {
            ckpt_piece piece = {.node = -1};
            while (ckpt_bucket_next(&of_stage, &bucket[b], 0, bucket[b].count, &piece)) {
                found[piece.node * CKPT_PARAM_MAX + piece.param] =
                    (in_bucket){.bucket = &bucket[b], .at = piece.at - piece.first};
            }
        }
    }
    f->in_bucket = found;
    return CKPT_OK;
}

/* A parameter in pieces, each of the replica that has its chunk. `slot` -1: gradients, which lie at their usual
 * offsets; else a slot of the optimizer, which has the own chunks alone. */
static ckpt_code add_shards(finding *f, int node, int k, int slot, ckpt_bytes at, ckpt_err *err)
{
    const ckpt_static_layout *const mine = &f->program->layout;
    const ckpt_network *const network = f->program->lowered->network;
    const int which = node * CKPT_PARAM_MAX + k, stage = network->stage_of[node];
    const ckpt_bucket *const bucket = f->in_bucket[which].bucket;
    const int64_t count = ckpt_shape_count(&network->node[node].param[k].tensor.shape);
    const int64_t first = f->in_bucket[which].at;
    for (int64_t done = 0; done < count;) {
        const int64_t replica = (first + done) / bucket->chunk, end = (replica + 1) * bucket->chunk - first;
        const int64_t now = (end < count ? end : count) - done;
        const ckpt_bytes in_chunk = (first + done - replica * bucket->chunk) * (ckpt_bytes)sizeof(float);
        ckpt_section_part part = {
            at + done * (ckpt_bytes)sizeof(float), now * (ckpt_bytes)sizeof(float), stage, (int)replica, -1, false};
        if (is_here(f, stage, part.replica)) {
            part.local = slot < 0 ? mine->gradients + mine->param[which] + done * (ckpt_bytes)sizeof(float)
                                  : mine->optimizer + slot * mine->slot_bytes + bucket->shard + in_chunk;
        }
        CKPT_TRY(add_part(f, &part, err));
        done += now;
    }
    return CKPT_OK;
}

/* `slot` -1: as parameters lie from `local` on in this rank's block; else a slot of the optimizer, not sharded. */
static ckpt_code add_one(finding *f, int node, int k, int slot, ckpt_bytes at, ckpt_bytes local, bool copy,
                         ckpt_err *err)
{
    const ckpt_network *const network = f->program->lowered->network;
    const ckpt_static_layout *const mine = &f->program->layout;
    const int stage = network->stage_of[node], which = node * CKPT_PARAM_MAX + k;
    ckpt_section_part part = {at, ckpt_tensor_bytes(&network->node[node].param[k].tensor), stage, -1, -1, copy};
    if (slot >= 0) {
        part.bytes = ckpt_network_slot_bytes(&f->plain, node, k, slot);
    }
    if (is_here(f, stage, -1)) {
        part.local =
            slot < 0 ? local + mine->param[which]
                     : local + mine->slot[(size_t)slot * (size_t)network->node_count * CKPT_PARAM_MAX + (size_t)which];
    }
    return part.bytes > 0 ? add_part(f, &part, err) : CKPT_OK;
}

/* A parameter, and behind it the copies that other stages or layers have. */
static ckpt_code add_param(finding *f, int node, int k, int slot, ckpt_bytes at, ckpt_bytes local, ckpt_err *err)
{
    const ckpt_network *const network = f->program->lowered->network;
    CKPT_TRY(add_one(f, node, k, slot, at, local, false, err));
    for (int i = 0; i < network->tied_group_count; i++) {
        const ckpt_tied_group *const group = &network->tied_group[i];
        const bool mine = group->owner == node && group->param == k;
        for (int h = 0; mine && h < group->holder_count; h++) {
            if (group->holder[h] != node) {
                CKPT_TRY(add_one(f, group->holder[h], k, slot, at, local, true, err));
            }
        }
    }
    return CKPT_OK;
}

/* All parameters: weights or gradients (`slot` -1), which lie from `local` on in this rank's block, or a slot of the
 * optimizer. */
static ckpt_code add_params(finding *f, ckpt_bytes local, int slot, ckpt_err *err)
{
    const bool sharded = f->in_bucket != NULL;
    const size_t row = (size_t)f->plain.node_count * CKPT_PARAM_MAX;
    for (int n = 0; n < f->plain.node_count; n++) {
        const ckpt_node *const node = &f->plain.node[n];
        for (int k = 0; k < node->param_count; k++) {
            const int which = n * CKPT_PARAM_MAX + k;
            const ckpt_bytes at =
                slot < 0 ? f->layout.param[which] : f->layout.slot[(size_t)slot * row + (size_t)which];
            if (node->param[k].tied >= 0) {
                continue;
            }
            if (sharded && f->in_bucket[which].bucket != NULL) {
                CKPT_TRY(add_shards(f, n, k, slot, at, err));
            } else if (!sharded || slot < 0) { /* without a gradient there is no state in a shard: zeros */
                CKPT_TRY(add_param(f, n, k, slot, at, local, err));
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code add_stats(finding *f, ckpt_err *err)
{
    const ckpt_network *const network = f->program->lowered->network;
    const ckpt_static_layout *const mine = &f->program->layout;
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < network->node[n].stat_count; k++) {
            const int which = n * CKPT_STAT_MAX + k, stage = network->stage_of[n];
            const ckpt_section_part part = {f->layout.stat[which],
                                            ckpt_tensor_bytes(&network->node[n].stat[k].tensor),
                                            stage,
                                            -1,
                                            is_here(f, stage, -1) ? mine->statistics + mine->stat[which] : -1,
                                            false};
            CKPT_TRY(add_part(f, &part, err));
        }
    }
    return CKPT_OK;
}

static ckpt_code add_slots(finding *f, ckpt_err *err)
{
    for (int slot = 0; slot < ckpt_network_slots(f->program->lowered->network); slot++) {
        CKPT_TRY(add_params(f, f->program->layout.optimizer, slot, err));
    }
    return CKPT_OK;
}

static ckpt_bytes section_start(const ckpt_static_layout *layout, ckpt_section section)
{
    const ckpt_bytes edge[] = {layout->weights, layout->gradients, layout->optimizer, layout->statistics,
                               layout->inputs};
    return edge[section];
}

static ckpt_code find_parts(finding *f, ckpt_section section, ckpt_bytes bytes, ckpt_err *err)
{
    const ckpt_static_layout *const mine = &f->program->layout;
    const ckpt_network *const network = f->program->lowered->network;
    const bool sharded =
        network->scheme.shard_optimizer && (section == CKPT_SECTION_OPTIMIZER || section == CKPT_SECTION_GRADIENTS);
    const bool gapless = mine->weight_bytes == f->layout.weight_bytes; /* no parameter has spare elements */
    if (network->scheme.stages == 1 && network->tied_group_count == 0 && !sharded && gapless) {
        const ckpt_section_part all = {0, bytes, 0, -1, section_start(mine, section), false};
        return bytes > 0 ? add_part(f, &all, err) : CKPT_OK;
    }
    if (sharded) {
        CKPT_TRY(find_buckets(f, err));
    }
    switch (section) {
    case CKPT_SECTION_WEIGHTS: return add_params(f, mine->weights, -1, err);
    case CKPT_SECTION_GRADIENTS: return add_params(f, mine->gradients, -1, err);
    case CKPT_SECTION_OPTIMIZER: return add_slots(f, err);
    case CKPT_SECTION_STATISTICS: break;
    }
    return add_stats(f, err);
}

ckpt_code ckpt_whole_section(const ckpt_program *program, ckpt_section section, ckpt_arena *out, ckpt_whole *whole,
                             ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    if (section == CKPT_SECTION_GRADIENTS && scheme->fused) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "fused gradients are gone when the step is over");
    }
    finding f = {.program = program, .out = out, .stage = scheme->stage, .replica = program->rank / scheme->stages};
    CKPT_TRY(ckpt_whole_network(program, out, &f.plain, err));
    CKPT_TRY(ckpt_network_statics(&f.plain, out, &f.layout, err));
    const ckpt_bytes bytes = section_start(&f.layout, (ckpt_section)(section + 1)) - section_start(&f.layout, section);
    CKPT_TRY(find_parts(&f, section, bytes, err));
    *whole = (ckpt_whole){.bytes = bytes, .part = f.part, .part_count = f.count};
    return CKPT_OK;
}

/* Zeros up to `to`: what lies between tensors, each of which begins at a multiple of CKPT_ALIGN. */
static ckpt_code pad(const ckpt_program *program, ckpt_bytes from, ckpt_bytes to, ckpt_whole_take take, void *context,
                     ckpt_err *err)
{
    for (ckpt_bytes at = from; at < to && program->rank == 0; at += CKPT_CHUNK_BYTES) {
        const ckpt_bytes now = to - at < CKPT_CHUNK_BYTES ? to - at : CKPT_CHUNK_BYTES;
        memset(program->memory.chunk, 0, (size_t)now);
        CKPT_TRY(take(context, program->memory.chunk, now, err));
    }
    return CKPT_OK;
}

static ckpt_code hand_out(const ckpt_program *program, const ckpt_section_part *part, ckpt_whole_take take,
                          void *context, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    const int stages = program->lowered->network->scheme.stages, rank = program->rank;
    const int owner = (part->replica < 0 ? 0 : part->replica) * stages + part->stage;
    for (ckpt_bytes done = 0; done < part->bytes; done += CKPT_CHUNK_BYTES) {
        const ckpt_bytes left = part->bytes - done, now = left < CKPT_CHUNK_BYTES ? left : CKPT_CHUNK_BYTES;
        if (rank == owner) {
            CKPT_TRY(device->api->download(device, program->memory.chunk,
                                           program->memory.statics.at + part->local + done, now, err));
        }
        if (owner != 0) { /* what rank 0 owns, nobody else needs */
            CKPT_TRY(ckpt_ranks_broadcast(program->ranks, owner, program->memory.chunk, now, err));
        }
        if (rank == 0) {
            CKPT_TRY(take(context, program->memory.chunk, now, err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_whole_walk(const ckpt_program *program, const ckpt_whole *whole, ckpt_whole_take take, void *context,
                          ckpt_err *err)
{
    ckpt_bytes at = 0;
    for (int i = 0; i < whole->part_count; i++) {
        const ckpt_section_part *const part = &whole->part[i];
        if (part->copy) {
            continue;
        }
        CKPT_TRY(pad(program, at, part->at, take, context, err));
        CKPT_TRY(hand_out(program, part, take, context, err));
        at = part->at + part->bytes;
    }
    return pad(program, at, whole->bytes, take, context, err);
}
