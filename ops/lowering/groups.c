/* What the model says of some parameters: groups by patterns of names; and the numbers of a step that follow from
 * groups, schedules and the optimizer. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "ops/lowering/network_impl.h"

enum { NAME_TEXT = 512 };

/* By "layer/parameter", or with PyTorch's point between the two. */
static bool matches(const char *pattern, const ckpt_node *node, const ckpt_param *param)
{
    char slash[NAME_TEXT], point[NAME_TEXT];
    snprintf(slash, sizeof slash, "%s/%s", node->name, param->tensor.name);
    snprintf(point, sizeof point, "%s.%s", node->name, param->tensor.name);
    return fnmatch(pattern, slash, 0) == 0 || fnmatch(pattern, point, 0) == 0;
}

/* Layers whose output a loss reads, seen through aliases. */
static void find_heads(const ckpt_network *network, bool *head)
{
    for (int n = network->node_count - 1; n >= 0; n--) {
        const ckpt_node *const node = &network->node[n];
        const bool leads = node->op->loss || (node->alias && head[n]);
        head[n] = head[n] || node->op->loss;
        for (int k = 0; leads && k < node->in_count; k++) {
            const int from = network->value[node->in_value[k]].node;
            if (from >= 0) {
                head[from] = true;
            }
        }
    }
}

/* Weights of hidden layers are matrices that decay, no tables, of layers that read floating-point values and whose output
 * no loss reads. */
static bool is_hidden(const ckpt_node *node, const ckpt_param *param, bool head)
{
    const bool reads = node->in_count > 0 && ckpt_dtype_is_float(node->in[0].dtype);
    return param->decay && !param->table && param->tensor.shape.rank >= 2 && reads && !head;
}

static void join_group(const ckpt_model_group *group, int index, ckpt_param *param)
{
    param->group = index;
    param->decay = group->weight_decay >= 0 ? group->weight_decay > 0 : param->decay;
    param->hidden = group->matrix != CKPT_UNSET ? group->matrix == CKPT_YES : param->hidden;
}

static ckpt_code fill_group(const ckpt_network *network, int index, ckpt_param_group *group, ckpt_err *err)
{
    const ckpt_attr_spec *const attrs = network->optimizer->attrs;
    *group = (ckpt_param_group){.rate = 1};
    memcpy(group->hyper, network->hyper, sizeof group->hyper);
    if (index == 0) {
        return CKPT_OK;
    }
    const ckpt_model_group *const from = &network->model->group[index - 1];
    group->rate = from->lr;
    bool found = from->weight_decay < 0;
    for (int i = 0; attrs[i].name != NULL; i++) {
        if (from->weight_decay >= 0 && strcmp(attrs[i].name, "weight_decay") == 0) {
            group->hyper[i] = from->weight_decay;
            found = true;
        }
    }
    return found ? CKPT_OK
                 : CKPT_FAIL(err, CKPT_BAD_INPUT, "group \"%s\" has a weight_decay, which %s has not", from->match,
                             network->optimizer->name);
}

/* Where each parameter belongs; *used: how many belong to each group of the model. A tied one follows its owner. */
static void join_groups(const ckpt_network *network, ckpt_node *node, const bool *head, int *used)
{
    const ckpt_model *const model = network->model;
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < node[n].param_count; k++) {
            ckpt_param *const param = &node[n].param[k];
            param->hidden = is_hidden(&node[n], param, head[n]);
            int g = 0;
            while (g < model->group_count && !matches(model->group[g].match, &node[n], param)) {
                g++;
            }
            if (g < model->group_count) {
                join_group(&model->group[g], g + 1, param);
                used[g] += param->tied < 0;
            }
        }
    }
}

/* The weight of a head may be tied: then its owner is no hidden layer's. */
static void share_heads(const ckpt_network *network, ckpt_node *node)
{
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < node[n].param_count; k++) {
            const ckpt_param *const param = &node[n].param[k];
            if (param->tied >= 0 && param->group == 0 && !param->hidden && node[param->tied].param[k].group == 0) {
                node[param->tied].param[k].hidden = false;
            }
        }
    }
    for (int n = 0; n < network->node_count; n++) {
        for (int k = 0; k < node[n].param_count; k++) {
            ckpt_param *const param = &node[n].param[k];
            if (param->tied >= 0) {
                const ckpt_param *const owner = &node[param->tied].param[k];
                param->hidden = owner->hidden;
                param->group = owner->group;
                param->decay = owner->decay;
            }
        }
    }
}

ckpt_code ckpt_network_group(ckpt_network *network, ckpt_node *node, ckpt_arena *out, ckpt_err *err)
{
    const ckpt_model *const model = network->model;
    const int count = model->group_count + 1;
    if (count > CKPT_GROUP_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%d groups, wanted at most %d", count - 1, CKPT_GROUP_MAX - 1);
    }
    ckpt_param_group *const group = CKPT_NEW(out, ckpt_param_group, count);
    bool *const head = CKPT_NEW(out, bool, network->node_count);
    if (group == NULL || head == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "groups of parameters");
    }
    for (int g = 0; g < count; g++) {
        CKPT_TRY(fill_group(network, g, &group[g], err));
    }
    int used[CKPT_GROUP_MAX] = {0};
    find_heads(network, head);
    join_groups(network, node, head, used);
    share_heads(network, node);
    for (int g = 0; g < model->group_count; g++) {
        if (used[g] == 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT,
                             "group \"%s\" matches no parameter that no group before it matches and that is not tied "
                             "to another; names are layer/parameter",
                             model->group[g].match);
        }
    }
    network->group = group;
    network->group_count = count;
    return CKPT_OK;
}

void ckpt_network_numbers(const ckpt_network *network, uint64_t step, ckpt_numbers *numbers)
{
    const double rate = ckpt_schedule_at(&network->model->schedule, step);
    *numbers = (ckpt_numbers){.average = step == 1 ? 1.0f : (float)(1.0 - network->ema),
                              .clip = ckpt_schedule_at(&network->model->clip_schedule, step)};
    for (int g = 0; g < network->group_count; g++) {
        const ckpt_param_group *const group = &network->group[g];
        network->optimizer->numbers(group->hyper, rate * group->rate, step, numbers->of[g]);
    }
}

int ckpt_network_slots(const ckpt_network *network)
{
    return network->optimizer->slots(network->hyper) + (network->ema > 0 ? 1 : 0);
}

ckpt_bytes ckpt_network_slot_bytes(const ckpt_network *network, int node, int k, int slot)
{
    const ckpt_param *const param = &network->node[node].param[k];
    return slot < network->optimizer->slots(network->hyper) ? ckpt_optimizer_slot_bytes(network->optimizer, param, slot)
                                                            : ckpt_param_bytes(param);
}

ckpt_bytes ckpt_network_update_bytes(const ckpt_network *network, const ckpt_node *node)
{
    ckpt_bytes most = 0;
    for (int k = 0; k < node->param_count; k++) {
        const ckpt_bytes bytes =
            ckpt_optimizer_workspace(network->optimizer, &node->param[k], network->threads == CKPT_ON_GPU);
        most = node->param[k].tied < 0 && bytes > most ? bytes : most;
    }
    return most;
}
