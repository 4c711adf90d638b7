/* Ops, buffers and lists of the graph that is being written. */
#include <assert.h>
#include <string.h>

#include "ops/lowering/lower_impl.h"

const ckpt_buffer_role ckpt_lower_holds_nothing = {.value = -1, .node = -1, .saved = -1, .batch = -1, .bucket = -1};

bool ckpt_lower_here(const ckpt_lowering *l, int node)
{
    return l->network->stage_of[node] == l->network->scheme.stage;
}

void ckpt_lower_collect(ckpt_collected *list, int buffer)
{
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] == buffer) {
            return;
        }
    }
    assert(list->count < CKPT_COLLECTED_MAX);
    list->at[list->count++] = buffer;
}

ckpt_code ckpt_lower_list(const ckpt_lowering *l, const int *from, int count, ckpt_list *list, ckpt_err *err)
{
    int *const at = CKPT_NEW(l->out, int, count);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "list of %d buffers", count);
    }
    memcpy(at, from, (size_t)count * sizeof *at);
    *list = (ckpt_list){.at = at, .count = count};
    return CKPT_OK;
}

ckpt_code ckpt_lower_keep(const ckpt_lowering *l, const ckpt_collected *from, ckpt_list *list, ckpt_err *err)
{
    return ckpt_lower_list(l, from->at, from->count, list, err);
}

const char *ckpt_lower_label(const ckpt_lowering *l, const char *name)
{
    return l->network->scheme.micro_batches == 1 ? name : ckpt_arena_format(l->out, "%s@%d", name, l->batch);
}

const char *ckpt_lower_value_name(const ckpt_lowering *l, int value)
{
    const ckpt_value *const v = &l->network->value[value];
    if (l->network->scheme.micro_batches == 1) {
        return v->name;
    }
    const char *const layer = l->network->node[v->node].name;
    return v->output == 0 ? ckpt_arena_format(l->out, "%s@%d", layer, l->batch)
                          : ckpt_arena_format(l->out, "%s@%d:%d", layer, l->batch, v->output);
}

static size_t in_batch(const ckpt_lowering *l, int value)
{
    return (size_t)l->batch * (size_t)l->network->value_count + (size_t)l->network->value[value].storage;
}

int *ckpt_lower_value(const ckpt_lowering *l, int value)
{
    return &l->value_buffer[in_batch(l, value)];
}

int *ckpt_lower_grad(const ckpt_lowering *l, int value)
{
    return &l->grad_buffer[in_batch(l, value)];
}

int *ckpt_lower_saved(const ckpt_lowering *l, const ckpt_node *node, int k)
{
    const size_t at = (size_t)l->batch * (size_t)l->network->node_count + (size_t)node->index;
    return &l->saved_buffer[at * CKPT_SAVED_MAX + (size_t)k];
}

ckpt_code ckpt_lower_buffer(ckpt_lowering *l, const char *name, const char *suffix, ckpt_bytes bytes, ckpt_kind kind,
                            ckpt_buffer_role role, int *index, ckpt_err *err)
{
    const char *const full = name == NULL || suffix == NULL ? name : ckpt_arena_format(l->out, "%s/%s", name, suffix);
    if (full == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a buffer's name");
    }
    assert(l->buffer_count < l->buffer_capacity);
    *index = l->buffer_count++;
    l->buffer[*index] = (ckpt_buffer){.name = full, .bytes = ckpt_round_up(bytes, CKPT_ALIGN), .kind = kind};
    l->buffer_role[*index] = role;
    return CKPT_OK;
}

ckpt_code ckpt_lower_op(ckpt_lowering *l, const char *label, const char *prefix, const char *what, ckpt_phase phase,
                        ckpt_graph_op **op, ckpt_op_role **role, ckpt_err *err)
{
    assert(l->op_count < l->op_capacity);
    *op = &l->op[l->op_count];
    *role = &l->op_role[l->op_count];
    l->op_count++;
    **role = (ckpt_op_role){
        .node = -1, .batch = -1, .value = -1, .peer = -1, .bucket = -1, .tied_group = -1, .phase = phase};
    **op = (ckpt_graph_op){.phase = phase, .layer = label};
    if (label != NULL && prefix != NULL) {
        (*op)->name = what != NULL ? ckpt_arena_format(l->out, "%s/%s", prefix, what) : prefix;
    }
    return (*op)->name != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for an op's name");
}
