/* From a model to a network: one pass over the layers in order, then ties, then the optimizer. */
#include "ops/lowering/network.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/lowering/network_impl.h"
#include "ops/ops_impl.h"
#include "ops/widened.h"

/* The layer field of the Philox counter has 24 bits. */
enum { LAYERS_MAX = 1 << 24 };

enum { CLIP_NORM, LOSS_SCALE, EMA, COMMON_COUNT };

const ckpt_attr_spec ckpt_optimizer_common[] = {
    [CLIP_NORM] = {.name = "clip_norm",
                   .kind = CKPT_FLOAT,
                   .help = "all gradients, as one vector, are shortened to this length; 0: never"},
    [LOSS_SCALE] = {.name = "loss_scale",
                    .kind = CKPT_FLOAT,
                    .real = 1,
                    .help = "the loss's gradient starts with this, which the update divides out again"},
    [EMA] = {.name = "ema",
             .kind = CKPT_FLOAT,
             .help = "share of itself that the moving average of the weights keeps in a step; 0: there is none"},
    {0},
};

typedef struct building {
    const ckpt_model *model;
    ckpt_arena *out;
    ckpt_node *node;
    ckpt_node_room room; /* of the node that is inferred */
    ckpt_value *value;
    int value_count, value_room;
    int threads;
    bool *pitchable; /* per layer, for a GPU; NULL: not */
} building;

static const char *op_name(int index)
{
    return ckpt_op_table[index] != NULL ? ckpt_op_table[index]->name : NULL;
}

static const char *optimizer_name(int index)
{
    return ckpt_optimizer_table[index] != NULL ? ckpt_optimizer_table[index]->name : NULL;
}

bool ckpt_node_learns(const ckpt_node *node)
{
    /* An opaque layer may state what its backward costs without saying what it learns. */
    return node->param_count > 0 || (node->op->planned_only && (node->backward_ns >= 0 || node->backward_flop > 0));
}

static ckpt_code add_value(building *b, const ckpt_value *value, ckpt_err *err)
{
    if (b->value_count == b->value_room) {
        const int room = b->value_room > 0 ? 2 * b->value_room : b->model->input_count + b->model->layer_count;
        ckpt_value *const wider = CKPT_NEW(b->out, ckpt_value, room);
        if (wider == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d values", room);
        }
        if (b->value_count > 0) {
            memcpy(wider, b->value, (size_t)b->value_count * sizeof *wider);
        }
        b->value = wider;
        b->value_room = room;
    }
    b->value[b->value_count++] = *value;
    return CKPT_OK;
}

static ckpt_code add_inputs(building *b, ckpt_err *err)
{
    for (int i = 0; i < b->model->input_count; i++) {
        const ckpt_tensor *const input = &b->model->input[i];
        ckpt_value value = {.name = input->name, .tensor = *input, .node = -1, .output = i, .storage = i};
        CKPT_TRY(ckpt_shape_check(&input->shape, input->dtype, err));
        if (ckpt_dtype_is_float(input->dtype)) {
            value.tensor.dtype = b->model->dtype; /* narrowed on its way to the device */
        }
        CKPT_TRY(add_value(b, &value, err));
    }
    return CKPT_OK;
}

/* ckpt_node.pitchable of all layers: output 0 is read, and every reader can read it with a pitch. */
static ckpt_code find_pitchable(building *b, ckpt_err *err)
{
    const ckpt_model *const model = b->model;
    bool *const refused = CKPT_NEW(b->out, bool, model->layer_count);
    b->pitchable = CKPT_NEW(b->out, bool, model->layer_count);
    if (refused == NULL || b->pitchable == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "readers of %d layers", model->layer_count);
    }
    for (int i = 0; i < model->layer_count; i++) {
        const ckpt_op *const op = ckpt_op_find(model->layer[i].op);
        for (int k = 0; k < model->layer[i].in_count; k++) {
            const ckpt_ref ref = model->layer[i].in[k];
            if (ref.layer >= 0 && ref.output == 0) {
                const bool can = op != NULL && k < CKPT_IN_MAX && (op->gpu_pitched_in >> k & 1) != 0;
                refused[ref.layer] = refused[ref.layer] || !can;
                b->pitchable[ref.layer] = !refused[ref.layer];
            }
        }
    }
    return CKPT_OK;
}

/* The value a reference means. */
static ckpt_code find_value(const building *b, int reader, int k, int *value, ckpt_err *err)
{
    const ckpt_ref ref = b->model->layer[reader].in[k];
    if (ref.layer < 0) {
        assert(-1 - ref.layer < b->model->input_count);
        *value = -1 - ref.layer;
        return CKPT_OK;
    }
    assert(ref.layer < reader);
    const ckpt_node *const from = &b->node[ref.layer];
    if (ref.output < 0 || ref.output >= from->out_count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "reads %s:%d, but %s (%s) has %d output%s", from->name, ref.output,
                         from->name, from->op->name, from->out_count, from->out_count == 1 ? "" : "s, counted from 0");
    }
    *value = from->out_value[ref.output];
    return CKPT_OK;
}

static ckpt_code resolve_inputs(building *b, ckpt_node *node, ckpt_err *err)
{
    const ckpt_op *const op = node->op;
    const int count = node->layer->in_count;
    if (count < op->in_min || count > op->in_max) {
        return op->in_min == op->in_max
                   ? CKPT_FAIL(err, CKPT_BAD_INPUT, "%d input%s, wanted %d", count, count == 1 ? "" : "s", op->in_min)
                   : CKPT_FAIL(err, CKPT_BAD_INPUT, "%d input%s, wanted %d to %d", count, count == 1 ? "" : "s",
                               op->in_min, op->in_max);
    }
    int *const ids = CKPT_NEW(b->out, int, count);
    ckpt_tensor *const tensors = CKPT_NEW(b->out, ckpt_tensor, count);
    if (ids == NULL || tensors == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d inputs", count);
    }
    for (int k = 0; k < count; k++) {
        CKPT_TRY(find_value(b, node->index, k, &ids[k], err));
        tensors[k] = b->value[ids[k]].tensor;
        if (b->value[ids[k]].needs_grad) {
            node->grad_in |= (uint64_t)1 << k;
        }
    }
    node->in_count = count;
    node->in_value = ids;
    node->in = tensors;
    return CKPT_OK;
}

static ckpt_code add_outputs(building *b, ckpt_node *node, ckpt_err *err)
{
    const bool learns = ckpt_node_learns(node) || node->grad_in != 0;
    node->out_value = CKPT_NEW(b->out, int, node->out_count);
    if (node->out_value == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d outputs", node->out_count);
    }
    for (int k = 0; k < node->out_count; k++) {
        const char *const name = k == 0 ? node->name : ckpt_arena_format(b->out, "%s:%d", node->name, k);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of output %d", k);
        }
        node->out[k].name = name;
        node->out_value[k] = b->value_count;
        const ckpt_value value = {
            .name = name,
            .tensor = node->out[k],
            .node = node->index,
            .output = k,
            .storage = node->alias ? b->value[node->in_value[0]].storage : b->value_count,
            .needs_grad = learns && ckpt_dtype_is_float(node->out[k].dtype),
        };
        CKPT_TRY(add_value(b, &value, err));
    }
    return CKPT_OK;
}

/* What an op promises (ops/op.h); only an op's author can break it. */
static void assert_promises(const ckpt_node *node)
{
    assert(node->out_count > 0);
    assert(node->in_count == CKPT_IN_MAX || node->backward_in >> node->in_count == 0);
    assert(node->backward_out >> node->out_count == 0);
    assert((node->backward_saved >> node->saved_count | (node->backward_saved & node->way_saved)) == 0);
    for (int i = 0; i < node->way_count; i++) {
        const ckpt_way *const way = &node->way[i];
        assert(way->saved >> node->saved_count == 0 && way->out >> node->out_count == 0);
        assert(node->in_count == CKPT_IN_MAX || way->in >> node->in_count == 0);
        (void)way;
    }
    assert(!node->alias || (node->in_count == 1 && node->out_count == 1 && node->saved_count == 0 &&
                            node->param_count == 0 && node->stat_count == 0));
    (void)node;
}

/* What infer allowed is the CPU's. */
static void allow_gpu_workspace(ckpt_node *node)
{
    ckpt_bytes forward = 0, backward = 0;
    if (node->op->gpu_workspace != NULL) {
        node->op->gpu_workspace(node, &forward, &backward);
    }
    node->forward_workspace_bytes = forward;
    node->backward_workspace_bytes = backward;
}

static ckpt_code infer_node(building *b, int index, ckpt_err *err)
{
    const ckpt_layer *const layer = &b->model->layer[index];
    ckpt_node *const node = &b->node[index];
    node->name = layer->name;
    node->layer = layer;
    node->index = index;
    node->threads = b->threads;
    node->dtype = b->model->dtype;
    node->forward_ns = -1;
    node->backward_ns = -1;
    node->pitchable = b->pitchable != NULL && b->pitchable[index];
    node->op = ckpt_op_find(layer->op);
    if (node->op == NULL) {
        char text[CKPT_NAMES_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "no such op%s", ckpt_names_near(layer->op, op_name, text));
    }
    CKPT_TRY(ckpt_attrs_resolve(b->model, node->op->attrs, layer->attr, layer->attr_count, b->out, &node->attr, err));
    CKPT_TRY(resolve_inputs(b, node, err));
    ckpt_node_open(node, &b->room);
    CKPT_TRY(node->op->infer(node, b->out, err));
    CKPT_TRY(ckpt_node_own(node, b->out, err));
    assert_promises(node);
    if (node->threads == CKPT_ON_GPU) {
        allow_gpu_workspace(node);
    } else if (ckpt_node_widens(node)) {
        ckpt_widened_allow(node);
    }
    ckpt_node_fill_moved(node);
    return add_outputs(b, node, err);
}

/* Parameters follow ties to the layer that owns them. */
static ckpt_code tie_node(building *b, int index, ckpt_err *err)
{
    ckpt_node *const node = &b->node[index];
    int owner = node->layer->tie;
    if (owner < 0) {
        return CKPT_OK;
    }
    const char *const named = b->node[owner].name;
    for (int hops = 0; b->node[owner].layer->tie >= 0; hops++) {
        owner = b->node[owner].layer->tie;
        if (owner == index || hops == b->model->layer_count) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "its tie to %s leads back to a layer that is tied itself", named);
        }
    }
    const ckpt_node *const from = &b->node[owner];
    if (owner == index || from->param_count == 0 || node->param_count == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "is tied to %s, but %s", named,
                         owner == index           ? "that is the layer itself"
                         : node->param_count == 0 ? "has no parameters"
                                                  : "that layer has no parameters");
    }
    for (int k = 0; k < node->param_count && k < from->param_count; k++) {
        const ckpt_tensor *const mine = &node->param[k].tensor;
        const ckpt_tensor *const theirs = &from->param[k].tensor;
        if (!ckpt_shape_equal(&mine->shape, &theirs->shape)) {
            char a[CKPT_SHAPE_TEXT];
            char c[CKPT_SHAPE_TEXT];
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "is tied to %s, but its %s is %s and that layer's %s is %s", named,
                             mine->name, ckpt_shape_show(&mine->shape, a), theirs->name,
                             ckpt_shape_show(&theirs->shape, c));
        }
        node->param[k].tied = owner;
        if (node->param[k].padding > b->node[owner].param[k].padding) {
            b->node[owner].param[k].padding = node->param[k].padding;
        }
    }
    return CKPT_OK;
}

/* A tied parameter has the owner's padding, also where stages have copies of it. */
static void share_spare(const building *b)
{
    for (int i = 0; i < b->model->layer_count; i++) {
        ckpt_node *const node = &b->node[i];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                node->param[k].padding = b->node[node->param[k].tied].param[k].padding;
            }
        }
    }
}

/* "model.json:41:9: layer h.0.qkv (linear): " before what went wrong. */
static ckpt_code at_layer(const building *b, int index, ckpt_code code, ckpt_err *err)
{
    const ckpt_layer *const layer = &b->model->layer[index];
    if (code != CKPT_OK && layer->at.line > 0) {
        ckpt_err_at(err, "%s:%d:%d: layer %s (%s)", b->model->source, layer->at.line, layer->at.column, layer->name,
                    layer->op);
    } else if (code != CKPT_OK) {
        ckpt_err_at(err, "%s: layer %s (%s)", b->model->source, layer->name, layer->op);
    }
    return code;
}

static ckpt_code check_common(const ckpt_network *network, ckpt_err *err)
{
    if (!(network->clip_norm >= 0 && isfinite(network->clip_norm))) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "clip_norm %g: wanted a length, or 0 for none", network->clip_norm);
    }
    const ckpt_schedule *const clip = &network->model->clip_schedule;
    if (network->clip_norm == 0 && (clip->kind != CKPT_SCHEDULE_CONSTANT || clip->warmup > 0)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found clip_schedule, and no clip_norm that it would change");
    }
    const float scale = (float)network->loss_scale;
    if (!(scale > 0 && isfinite(scale) && isfinite(1 / scale))) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "loss_scale %g: wanted more than 0, and that it and its reciprocal are "
                         "numbers in float32",
                         network->loss_scale);
    }
    if (!(network->ema >= 0 && network->ema < 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "ema %g: wanted at least 0 and less than 1", network->ema);
    }
    return CKPT_OK;
}

static ckpt_code choose_optimizer(const building *b, ckpt_network *network, ckpt_err *err)
{
    const ckpt_model *const model = b->model;
    const ckpt_attr *attr = NULL;
    network->optimizer = ckpt_optimizer_find(model->optimizer);
    if (network->optimizer == NULL) {
        char text[CKPT_NAMES_TEXT];
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "no such optimizer%s",
                         ckpt_names_near(model->optimizer, optimizer_name, text));
    }
    const ckpt_attr_spec *const own = network->optimizer->attrs;
    ckpt_attr_spec specs[CKPT_HYPER_MAX + COMMON_COUNT + 1] = {0};
    int count = 0;
    for (; own[count].name != NULL; count++) {
        assert(count < CKPT_HYPER_MAX);
        specs[count] = own[count];
    }
    memcpy(&specs[count], ckpt_optimizer_common, COMMON_COUNT * sizeof *specs);
    CKPT_TRY(ckpt_attrs_resolve(model, specs, model->optimizer_attr, model->optimizer_attr_count, b->out, &attr, err));
    for (int i = 0; i < count; i++) {
        network->hyper[i] = specs[i].kind == CKPT_BOOL ? (double)attr[i].integer : attr[i].real;
    }
    network->clip_norm = attr[count + CLIP_NORM].real;
    network->loss_scale = attr[count + LOSS_SCALE].real;
    network->ema = attr[count + EMA].real;
    CKPT_TRY(check_common(network, err));
    CKPT_TRY(network->optimizer->check(network->hyper, err));
    return ckpt_network_group(network, b->node, b->out, err);
}

ckpt_code ckpt_network_infer(const ckpt_model *model, int threads, ckpt_arena *out, const ckpt_network **network,
                             ckpt_err *err)
{
    assert(threads >= 1 || threads == CKPT_ON_GPU);
    assert(ckpt_dtype_is_float(model->dtype));
    const int count = model->layer_count;
    if (count < 1 || count > LAYERS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d layers, wanted 1 to %d", model->source, count, LAYERS_MAX);
    }
    building b = {.model = model, .out = out, .node = CKPT_NEW(out, ckpt_node, count), .threads = threads};
    ckpt_network *const made = CKPT_NEW(out, ckpt_network, 1);
    if (b.node == NULL || made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%s: network of %d layers", model->source, count);
    }
    CKPT_TRY(add_inputs(&b, err));
    if (threads == CKPT_ON_GPU) {
        CKPT_TRY(find_pitchable(&b, err));
    }
    for (int i = 0; i < count; i++) {
        CKPT_TRY(at_layer(&b, i, infer_node(&b, i, err), err));
    }
    for (int i = 0; i < count; i++) {
        CKPT_TRY(at_layer(&b, i, tie_node(&b, i, err), err));
    }
    share_spare(&b);
    made->model = model;
    made->node = b.node;
    made->node_count = count;
    made->value = b.value;
    made->value_count = b.value_count;
    const ckpt_code code = choose_optimizer(&b, made, err);
    if (code != CKPT_OK) {
        ckpt_err_at(err, "%s: optimizer %s", model->source, model->optimizer);
        return code;
    }
    made->loss_node = b.node[count - 1].op->loss ? count - 1 : -1;
    made->threads = threads;
    made->scheme = ckpt_scheme_alone;
    made->stage_of = CKPT_NEW(out, int, count);
    if (made->stage_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stages of %d layers", count);
    }
    *network = made;
    return CKPT_OK;
}
