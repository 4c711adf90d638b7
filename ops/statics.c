/* The static block: parameters, their gradients, the optimizer's state, statistics and inputs, at fixed offsets.
 * A bfloat16 network's copy of the parameters comes last. */
#include <string.h>

#include "ops/network.h"

typedef struct section {
    ckpt_bytes end;
    bool overflow;
} section;

/* The place of one tensor at the end of a section, rounded up so that the next one is aligned too. */
static ckpt_bytes append(section *to, const ckpt_tensor *tensor)
{
    const ckpt_bytes offset = to->end;
    /* ckpt_tensor_bytes is at most 2^62, so rounding it is safe. */
    if (!ckpt_sum(to->end, ckpt_round_up(ckpt_tensor_bytes(tensor), CKPT_ALIGN), &to->end)) {
        to->overflow = true;
    }
    return offset;
}

ckpt_code ckpt_network_statics(const ckpt_network *network, ckpt_arena *out, ckpt_static_layout *layout, ckpt_err *err)
{
    const int count = network->node_count;
    ckpt_bytes *const param = CKPT_NEW(out, ckpt_bytes, (size_t)count * CKPT_PARAM_MAX);
    ckpt_bytes *const stat = CKPT_NEW(out, ckpt_bytes, (size_t)count * CKPT_STAT_MAX);
    ckpt_bytes *const input = CKPT_NEW(out, ckpt_bytes, network->model->input_count);
    if (param == NULL || stat == NULL || input == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "static layout of %d layers", count);
    }
    section weights = {0};
    section stats = {0};
    section inputs = {0};
    for (int n = 0; n < count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0) {
                param[n * CKPT_PARAM_MAX + k] = append(&weights, &node->param[k].tensor);
            }
        }
        for (int k = 0; k < node->stat_count; k++) {
            stat[n * CKPT_STAT_MAX + k] = append(&stats, &node->stat[k].tensor);
        }
    }
    /* After all owners: a layer may be tied to a later one. */
    for (int n = 0; n < count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                param[n * CKPT_PARAM_MAX + k] = param[node->param[k].tied * CKPT_PARAM_MAX + k];
            }
        }
    }
    for (int i = 0; i < network->model->input_count; i++) {
        input[i] = append(&inputs, &network->value[i].tensor);
    }
    ckpt_static_layout made = {.weight_bytes = weights.end, .param = param, .stat = stat, .input = input};
    ckpt_bytes optimizer = 0;
    const bool narrow = network->model->dtype == CKPT_BFLOAT16;
    const ckpt_bytes copy = narrow ? ckpt_round_up(weights.end / 2, CKPT_ALIGN) : 0;
    const bool fits = !weights.overflow && !stats.overflow && !inputs.overflow &&
                      ckpt_product(network->optimizer->slots(network->hyper), weights.end, &optimizer) &&
                      ckpt_sum(made.weights, weights.end, &made.gradients) &&
                      ckpt_sum(made.gradients, weights.end, &made.optimizer) &&
                      ckpt_sum(made.optimizer, optimizer, &made.statistics) &&
                      ckpt_sum(made.statistics, stats.end, &made.inputs) &&
                      ckpt_sum(made.inputs, inputs.end, &made.weights16) && ckpt_sum(made.weights16, copy, &made.scales);
    if (!fits) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "%s: weights, optimizer state and inputs are beyond 63 bits of bytes",
                         network->model->source);
    }
    made.slot_bytes = weights.end;
    made.total = made.scales;
    *layout = made;
    return CKPT_OK;
}
