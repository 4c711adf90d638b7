/* The static block: parameters, their gradients, the optimizer's state, statistics and inputs, at fixed offsets.
 * A bfloat16 network's copy of the parameters comes behind them, and then the scales. */
#include <string.h>

#include "ops/lowering/network.h"

enum { SCALES_HEAD = 64 }; /* the two floats, up to where the squares begin */

typedef struct section {
    ckpt_bytes end;
    bool overflow;
} section;

/* An offset at the end of a section, which grows by the tensor rounded up to CKPT_ALIGN. */
static ckpt_bytes append(section *to, ckpt_bytes bytes)
{
    const ckpt_bytes offset = to->end;
    /* A tensor has at most 2^62 bytes, so rounding them is safe. */
    if (!ckpt_sum(to->end, ckpt_round_up(bytes, CKPT_ALIGN), &to->end)) {
        to->overflow = true;
    }
    return offset;
}

typedef struct laying {
    const ckpt_network *network;
    ckpt_bytes *param, *stat, *input;
    section weights, stats, inputs;
} laying;

static bool is_here(const laying *l, int node)
{
    return l->network->stage_of[node] == l->network->scheme.stage;
}

static void lay_nodes(laying *l)
{
    const int count = l->network->node_count;
    for (int n = 0; n < count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0) {
                l->param[n * CKPT_PARAM_MAX + k] =
                    is_here(l, n) ? append(&l->weights, ckpt_param_bytes(&node->param[k])) : -1;
            }
        }
        for (int k = 0; k < node->stat_count; k++) {
            l->stat[n * CKPT_STAT_MAX + k] =
                is_here(l, n) ? append(&l->stats, ckpt_tensor_bytes(&node->stat[k].tensor)) : -1;
        }
    }
    /* After all owners: a layer may be tied to a later one. */
    for (int n = 0; n < count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                l->param[n * CKPT_PARAM_MAX + k] = l->param[node->param[k].tied * CKPT_PARAM_MAX + k];
            }
        }
    }
}

/* `input` of the first micro-batch is 0 where a layer of this stage reads it, else -1. With one stage all inputs have
 * an offset, read or not. */
static void find_inputs(laying *l)
{
    const ckpt_network *const network = l->network;
    for (int i = 0; i < network->model->input_count; i++) {
        l->input[i] = network->scheme.stages == 1 ? 0 : -1;
    }
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->in_count && !node->alias && is_here(l, n); k++) {
            const int storage = network->value[node->in_value[k]].storage;
            if (network->value[storage].node < 0) {
                l->input[network->value[storage].output] = 0;
            }
        }
    }
}

static void lay_inputs(laying *l)
{
    const int count = l->network->model->input_count;
    find_inputs(l);
    for (int j = 0; j < l->network->scheme.micro_batches; j++) {
        for (int i = 0; i < count; i++) {
            l->input[(size_t)j * (size_t)count + (size_t)i] =
                l->input[i] < 0 ? -1 : append(&l->inputs, ckpt_tensor_bytes(&l->network->value[i].tensor));
        }
    }
}

/* One slot of a sharded optimizer. */
static ckpt_code shard_bytes(const laying *l, ckpt_arena *out, ckpt_bytes *bytes, ckpt_err *err)
{
    const ckpt_bucket *bucket = NULL;
    int count = 0;
    *bytes = 0;
    CKPT_TRY(ckpt_network_buckets(l->network, out, &bucket, &count, err));
    for (int i = 0; i < count; i++) {
        *bytes += bucket[i].chunk * 4; /* no more than the weights and a few elements per bucket */
    }
    return CKPT_OK;
}

/* Slot by slot, all parameters in order. */
static ckpt_code lay_slots(const laying *l, ckpt_arena *out, ckpt_static_layout *layout, section *all, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    const size_t row = (size_t)network->node_count * CKPT_PARAM_MAX;
    const int slots = ckpt_network_slots(network);
    layout->slot_bytes = l->weights.end;
    if (network->scheme.shard_optimizer) {
        CKPT_TRY(shard_bytes(l, out, &layout->slot_bytes, err));
        all->overflow = !ckpt_product(slots, layout->slot_bytes, &all->end);
        return CKPT_OK;
    }
    ckpt_bytes *const at = CKPT_NEW(out, ckpt_bytes, row * (size_t)slots);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "optimizer's state of %d layers", network->node_count);
    }
    for (int i = 0; i < slots; i++) {
        for (int n = 0; n < network->node_count; n++) {
            for (int k = 0; k < network->node[n].param_count; k++) {
                const int tied = network->node[n].param[k].tied;
                ckpt_bytes *const mine = &at[(size_t)i * row + (size_t)(n * CKPT_PARAM_MAX + k)];
                *mine = -1;
                if (tied < 0 && is_here(l, n)) {
                    *mine = append(all, ckpt_network_slot_bytes(network, n, k, i));
                }
            }
        }
    }
    layout->slot = at;
    return CKPT_OK;
}

static bool has_scales(const ckpt_network *network)
{
    return network->scheme.micro_batches > 1 || network->scheme.replicas > 1 || network->clip_norm > 0 ||
           network->loss_scale != 1;
}

ckpt_code ckpt_network_statics(const ckpt_network *network, ckpt_arena *out, ckpt_static_layout *layout, ckpt_err *err)
{
    const size_t count = (size_t)network->node_count;
    const size_t inputs = (size_t)network->model->input_count * (size_t)network->scheme.micro_batches;
    laying l = {.network = network,
                .param = CKPT_NEW(out, ckpt_bytes, count * CKPT_PARAM_MAX),
                .stat = CKPT_NEW(out, ckpt_bytes, count * CKPT_STAT_MAX),
                .input = CKPT_NEW(out, ckpt_bytes, inputs)};
    if (l.param == NULL || l.stat == NULL || l.input == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "static layout of %d layers", network->node_count);
    }
    lay_nodes(&l);
    lay_inputs(&l);
    ckpt_static_layout made = {.weight_bytes = l.weights.end, .param = l.param, .stat = l.stat, .input = l.input};
    bool fits = !l.weights.overflow && !l.stats.overflow && !l.inputs.overflow;
    section slots = {.end = 0};
    if (fits) {
        CKPT_TRY(lay_slots(&l, out, &made, &slots, err));
    }
    const bool narrow = network->model->dtype == CKPT_BFLOAT16;
    const ckpt_bytes copy = narrow ? ckpt_round_up(l.weights.end / 2, CKPT_ALIGN) : 0;
    const ckpt_bytes scales =
        has_scales(network) ? ckpt_round_up(SCALES_HEAD + (ckpt_bytes)(count * sizeof(double)), CKPT_ALIGN) : 0;
    fits = fits && !slots.overflow && ckpt_sum(made.weights, l.weights.end, &made.gradients) &&
           ckpt_sum(made.gradients, network->scheme.fused ? 0 : l.weights.end, &made.optimizer) &&
           ckpt_sum(made.optimizer, slots.end, &made.statistics) &&
           ckpt_sum(made.statistics, l.stats.end, &made.inputs) &&
           ckpt_sum(made.inputs, l.inputs.end, &made.weights16) && ckpt_sum(made.weights16, copy, &made.scales) &&
           ckpt_sum(made.scales, scales, &made.total);
    if (!fits) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%s: weights, optimizer state and inputs are beyond 63 bits of bytes",
                         network->model->source);
    }
    *layout = made;
    return CKPT_OK;
}
