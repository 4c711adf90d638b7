/* Adding layers: each is inferred at once, by the op itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/import/onnx/onnx_impl.h"
#include "ops/lowering/network_impl.h"

static ckpt_attr *next_attr(onnx_call *call, const char *name, ckpt_attr_kind kind)
{
    ckpt_attr *const attr = &call->attr[call->attr_count++];
    *attr = (ckpt_attr){.name = name, .kind = kind};
    return attr;
}

void onnx_call_int(onnx_call *call, const char *name, int64_t value)
{
    ckpt_attr *const attr = next_attr(call, name, CKPT_INT);
    attr->integer = value;
    attr->real = (double)value;
}

void onnx_call_real(onnx_call *call, const char *name, double value)
{
    next_attr(call, name, CKPT_FLOAT)->real = value;
}

void onnx_call_flag(onnx_call *call, const char *name, bool value)
{
    next_attr(call, name, CKPT_BOOL)->integer = value;
}

void onnx_call_word(onnx_call *call, const char *name, const char *value)
{
    next_attr(call, name, CKPT_STRING)->string = value;
}

ckpt_code onnx_call_ints(onnx_importer *m, onnx_call *call, const char *name, const int64_t *value, int count)
{
    int64_t *const own = CKPT_NEW(m->out, int64_t, count);
    if (own == NULL) {
        return onnx_no_memory(m);
    }
    memcpy(own, value, (size_t)count * sizeof *own);
    ckpt_attr *const attr = next_attr(call, name, CKPT_INTS);
    attr->ints = own;
    attr->int_count = count;
    return CKPT_OK;
}

/* ---- names ---- */

static bool is_taken(const onnx_importer *m, const char *name)
{
    for (int i = 0; i < m->layer_count; i++) {
        if (strcmp(m->layer[i].layer.name, name) == 0) {
            return true;
        }
    }
    for (int i = 0; i < m->input_count; i++) {
        if (strcmp(m->input[i].name, name) == 0) {
            return true;
        }
    }
    return strcmp(name, "labels") == 0 || strcmp(name, "target") == 0 || strcmp(name, "loss") == 0;
}

enum { NAME_ROOM = 200 };

/* "/block/fc1/MatMul" becomes "block.fc1.MatMul", and "block.fc1" for the layer that has the parameters. */
static void plain_name(const char *from, bool owner, char *to)
{
    size_t used = 0;
    from += from[0] == '/' ? 1 : 0;
    for (; *from != '\0' && used + 1 < NAME_ROOM; from++) {
        const bool fine = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') ||
                          (*from >= '0' && *from <= '9') || *from == '_' || *from == '-';
        to[used++] = fine ? *from : *from == '/' || *from == '.' ? '.' : '_';
    }
    to[used] = '\0';
    char *const last = owner ? strrchr(to, '.') : NULL;
    if (last != NULL && last > to && last[1] >= 'A' && last[1] <= 'Z') {
        *last = '\0';
    }
}

static ckpt_code name_layer(onnx_importer *m, const char *from, bool owner, const char **name)
{
    char base[NAME_ROOM + 20];
    plain_name(from, owner, base);
    const size_t length = strlen(base);
    for (int i = 2; is_taken(m, base) || base[0] == '\0'; i++) {
        snprintf(base + length, sizeof base - length, "%s_%d", length == 0 ? "layer" : "", i);
    }
    *name = ckpt_arena_text(m->out, base);
    return *name != NULL ? CKPT_OK : onnx_no_memory(m);
}

/* ---- layers ---- */

static const ckpt_tensor *tensor_of(const onnx_importer *m, ckpt_ref ref)
{
    return ref.layer < 0 ? &m->input[-1 - ref.layer] : &m->layer[ref.layer].out[ref.output];
}

static ckpt_code infer(onnx_importer *m, onnx_layer *l)
{
    static const ckpt_model none = {.source = ""};
    ckpt_node_room room = {0};
    ckpt_node *const node = &l->node;
    ckpt_tensor *const in = CKPT_NEW(m->out, ckpt_tensor, l->layer.in_count);
    if (in == NULL) {
        return onnx_no_memory(m);
    }
    for (int k = 0; k < l->layer.in_count; k++) {
        in[k] = *tensor_of(m, l->layer.in[k]);
    }
    *node = (ckpt_node){.name = l->layer.name,
                        .op = ckpt_op_find(l->layer.op),
                        .layer = &l->layer,
                        .threads = 1,
                        .dtype = CKPT_FLOAT32,
                        .in_count = l->layer.in_count,
                        .in = in,
                        .forward_ns = -1,
                        .backward_ns = -1};
    CKPT_TRY(
        ckpt_attrs_resolve(&none, node->op->attrs, l->layer.attr, l->layer.attr_count, m->out, &node->attr, m->err));
    ckpt_node_open(node, &room);
    CKPT_TRY(node->op->infer(node, m->out, m->err));
    CKPT_TRY(ckpt_node_own(node, m->out, m->err));
    l->out = node->out;
    l->out_count = node->out_count;
    return CKPT_OK;
}

ckpt_code onnx_add(onnx_importer *m, const onnx_call *call, onnx_value *y)
{
    const char *from = m->node != NULL && m->node->name != NULL ? m->node->name : "";
    from = from[0] == '\0' && m->node != NULL && m->node->op_type != NULL ? m->node->op_type : from;
    ckpt_ref *const in = CKPT_NEW(m->out, ckpt_ref, call->in_count);
    ckpt_attr *const attr = CKPT_NEW(m->out, ckpt_attr, call->attr_count);
    CKPT_TRY(onnx_grow(m, (void **)&m->layer, m->layer_count, &m->layer_room, sizeof *m->layer));
    onnx_layer *const l = &m->layer[m->layer_count];
    *l = (onnx_layer){.needed = false};
    if (in == NULL || attr == NULL) {
        return onnx_no_memory(m);
    }
    for (int k = 0; k < call->in_count; k++) {
        in[k] = call->in[k].ref;
    }
    memcpy(attr, call->attr, (size_t)call->attr_count * sizeof *attr);
    for (int i = 0; i < call->attr_count; i++) {
        if (!isfinite(attr[i].real)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%s\" becomes %g", attr[i].name, attr[i].real);
        }
    }
    l->layer = (ckpt_layer){.op = call->op,
                            .in = in,
                            .in_count = call->in_count,
                            .attr = attr,
                            .attr_count = call->attr_count,
                            .tie = -1,
                            .stage = -1};
    CKPT_TRY(name_layer(m, from, call->owner, &l->layer.name));
    CKPT_TRY(infer(m, l));
    const onnx_value made = {.made = true, .ref = {m->layer_count++, 0}};
    *y = onnx_output_of(m, &made, 0);
    return CKPT_OK;
}

onnx_value onnx_output_of(const onnx_importer *m, const onnx_value *y, int k)
{
    const ckpt_ref ref = {y->ref.layer, k};
    const ckpt_tensor *const tensor = tensor_of(m, ref);
    return (onnx_value){.name = "", .shape = tensor->shape, .dtype = tensor->dtype, .made = true, .ref = ref};
}

/* The layer that makes x, if it is of that op; NULL: another. */
static const onnx_layer *maker(const onnx_importer *m, const onnx_value *x, const char *op)
{
    return x->ref.layer >= 0 && strcmp(m->layer[x->ref.layer].layer.op, op) == 0 ? &m->layer[x->ref.layer] : NULL;
}

static onnx_value input_of(const onnx_importer *m, const onnx_layer *l)
{
    const ckpt_ref ref = l->layer.in[0];
    const onnx_value at = {.ref = ref};
    return onnx_output_of(m, &at, ref.output);
}

bool onnx_beneath(const onnx_importer *m, const onnx_value *x, onnx_value *source)
{
    const onnx_layer *const before = x->shape.rank == 4 ? maker(m, x, "reshape") : NULL;
    if (before != NULL) {
        *source = input_of(m, before);
    }
    return before != NULL && source->shape.rank != 4 && source->shape.rank > 0;
}

/* Element by element, so below a reshape that moves elements. */
static ckpt_code add_below(onnx_importer *m, onnx_call *call, onnx_value *y)
{
    const ckpt_shape shape = call->in[0].shape;
    onnx_value source;
    if (onnx_beneath(m, &call->in[0], &source)) {
        call->in[0] = source;
    }
    CKPT_TRY(onnx_add(m, call, y));
    return onnx_reshape(m, y, &shape, y);
}

ckpt_code onnx_plain(onnx_importer *m, const char *op, const onnx_value *x, onnx_value *y)
{
    onnx_call call = {.op = op, .in = {*x}, .in_count = 1};
    const bool image = strcmp(op, "global_avgpool") == 0;
    return image ? onnx_add(m, &call, y) : add_below(m, &call, y);
}

ckpt_code onnx_real(onnx_importer *m, const char *op, const char *attr, double value, const onnx_value *x,
                    onnx_value *y)
{
    onnx_call call = {.op = op, .in = {*x}, .in_count = 1};
    onnx_call_real(&call, attr, value);
    return add_below(m, &call, y);
}

ckpt_code onnx_scale(onnx_importer *m, double factor, double offset, const onnx_value *x, onnx_value *y)
{
    onnx_call call = {.op = "scale", .in = {*x}, .in_count = 1};
    onnx_call_real(&call, "factor", factor);
    onnx_call_real(&call, "offset", offset);
    return add_below(m, &call, y);
}

ckpt_code onnx_reshape(onnx_importer *m, const onnx_value *x, const ckpt_shape *shape, onnx_value *y)
{
    const onnx_layer *const before = maker(m, x, "reshape");
    const onnx_value from = before != NULL ? input_of(m, before) : *x;
    if (ckpt_shape_equal(&from.shape, shape)) {
        *y = from;
        return CKPT_OK;
    }
    onnx_call call = {.op = "reshape", .in = {from}, .in_count = 1};
    CKPT_TRY(onnx_call_ints(m, &call, "shape", shape->dim, shape->rank));
    return onnx_add(m, &call, y);
}

/* Rank 4 moves elements whenever it is reshaped, so what only passes through it goes another way: an image whose channels
 * come last is a sequence of pixels and back, and what was reshaped to rank 4 is transposed in rank 5. */
static ckpt_code transpose_four(onnx_importer *m, const onnx_value *x, const int *perm, bool *done, onnx_value *y)
{
    static const int last[] = {0, 2, 3, 1}, first[] = {0, 3, 1, 2};
    const int64_t *const dim = x->shape.dim;
    ckpt_shape shape = {.rank = 4};
    onnx_value source;
    for (int d = 0; d < 4; d++) {
        shape.dim[d] = dim[perm[d]];
    }
    const bool plain = onnx_beneath(m, x, &source);
    *done = plain || memcmp(perm, last, sizeof last) == 0;
    if (!*done) {
        return CKPT_OK;
    }
    if (!plain) {
        const onnx_call call = {.op = "tokens", .in = {*x}, .in_count = 1};
        CKPT_TRY(onnx_add(m, &call, y));
        return onnx_reshape(m, y, &shape, y);
    }
    if (memcmp(perm, first, sizeof first) == 0) {
        const ckpt_shape pixels = {3, {dim[0], dim[1] * dim[2], dim[3]}};
        onnx_call call = {.op = "image", .in_count = 1};
        CKPT_TRY(onnx_reshape(m, &source, &pixels, &call.in[0]));
        onnx_call_int(&call, "height", dim[1]);
        onnx_call_int(&call, "width", dim[2]);
        return onnx_add(m, &call, y);
    }
    const ckpt_shape five = {5, {1, dim[0], dim[1], dim[2], dim[3]}};
    const int wide[] = {0, perm[0] + 1, perm[1] + 1, perm[2] + 1, perm[3] + 1};
    CKPT_TRY(onnx_reshape(m, &source, &five, y));
    CKPT_TRY(onnx_transpose(m, y, wide, y));
    return onnx_reshape(m, y, &shape, y);
}

ckpt_code onnx_transpose(onnx_importer *m, const onnx_value *x, const int *perm, onnx_value *y)
{
    const onnx_layer *const before = maker(m, x, "transpose");
    const int rank = x->shape.rank;
    bool same = true, undoes = before != NULL;
    int64_t list[CKPT_RANK_MAX];
    for (int d = 0; d < rank; d++) {
        same = same && perm[d] == d;
        undoes = undoes && before->layer.attr[0].ints[perm[d]] == d;
        list[d] = perm[d];
    }
    if (same || undoes) {
        *y = same ? *x : input_of(m, before);
        return CKPT_OK;
    }
    bool done = false;
    CKPT_TRY(rank == 4 ? transpose_four(m, x, perm, &done, y) : CKPT_OK);
    if (done) {
        return CKPT_OK;
    }
    onnx_call call = {.op = "transpose", .in = {*x}, .in_count = 1};
    CKPT_TRY(onnx_call_ints(m, &call, "perm", list, rank));
    return onnx_add(m, &call, y);
}

/* ---- parameters ---- */

static const ckpt_shape *find_param(const ckpt_node *node, const char *name, int *k)
{
    for (int i = 0; i < node->param_count; i++) {
        if (strcmp(node->param[i].tensor.name, name) == 0) {
            *k = i;
            return &node->param[i].tensor.shape;
        }
    }
    for (int i = 0; i < node->stat_count; i++) {
        if (strcmp(node->stat[i].tensor.name, name) == 0) {
            *k = -1;
            return &node->stat[i].tensor.shape;
        }
    }
    return NULL;
}

/* A matrix that a layer before has too, in the same way: the layers share all their parameters. Vectors are copied,
 * because exporters keep one of several that happen to be equal, such as those of norms before training. */
static ckpt_code share(onnx_importer *m, int layer, const char *param, const onnx_value *value, int k, bool *shared)
{
    ckpt_layer *const own = &m->layer[layer].layer;
    for (int i = 0; i < m->weight_count; i++) {
        const onnx_weight *const other = &m->weight[i];
        if (other->value->tensor != value->tensor || value->tensor == NULL || other->layer == layer ||
            (value->shape.rank < 2 && own->tie != other->layer)) {
            continue;
        }
        int place = -1;
        const ckpt_shape *const theirs = find_param(&m->layer[other->layer].node, other->param, &place);
        const bool same = k >= 0 && place == k && other->value->turned == value->turned;
        const ckpt_shape *const mine = find_param(&m->layer[layer].node, param, &place);
        if (!same || (k > 0 && own->tie != other->layer) || !ckpt_shape_equal(theirs, mine)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "its \"%.80s\" is that of layer %.80s too, in another way",
                             value->name, m->layer[other->layer].layer.name);
        }
        own->tie = other->layer;
        *shared = true;
        return CKPT_OK;
    }
    return CKPT_OK;
}

ckpt_code onnx_bind_blocks(onnx_importer *m, const onnx_value *y, const char *param, onnx_value *value,
                           const int *order, int64_t block, int64_t first)
{
    const int layer = y->ref.layer;
    int k = -1;
    const ckpt_shape *const shape = find_param(&m->layer[layer].node, param, &k);
    bool shared = false;
    char a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    if (shape == NULL || !value->constant || value->dtype != CKPT_FLOAT32 ||
        (block == 0 ? ckpt_shape_count(shape) != onnx_count(value)
                    : ckpt_shape_count(shape) + first > onnx_count(value))) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.80s\" has shape %s, wanted floats of shape %s", value->name,
                         ckpt_shape_show(&value->shape, a), shape != NULL ? ckpt_shape_show(shape, b) : "");
    }
    if (block == 0) {
        CKPT_TRY(share(m, layer, param, value, k, &shared));
    }
    const int owner = m->layer[layer].layer.tie;
    if (shared) {
        return CKPT_OK;
    }
    if (owner >= 0 && k >= 0 && k < m->layer[owner].node.param_count) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "shares its weight with layer %.80s, but not its %s",
                         m->layer[owner].layer.name, param);
    }
    CKPT_TRY(onnx_grow(m, (void **)&m->weight, m->weight_count, &m->weight_room, sizeof *m->weight));
    m->weight[m->weight_count++] = (onnx_weight){.layer = layer,
                                                 .param = param,
                                                 .shape = *shape,
                                                 .value = value,
                                                 .order = order,
                                                 .block = block,
                                                 .first = first};
    return CKPT_OK;
}

ckpt_code onnx_bind(onnx_importer *m, const onnx_value *y, const char *param, onnx_value *value)
{
    return onnx_bind_blocks(m, y, param, value, NULL, 0, 0);
}

ckpt_code onnx_weight_input(onnx_importer *m, int k, int rank, onnx_value **value)
{
    char text[CKPT_SHAPE_TEXT];
    CKPT_TRY(onnx_input(m, k, value));
    const onnx_value *const v = *value;
    if (!v->constant || v->dtype != CKPT_FLOAT32 || (rank > 0 && v->shape.rank != rank) || onnx_count(v) < 1) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input %d, \"%.80s\", is %s %s, wanted an initializer of floats", k,
                         v->name, v->constant ? "a constant of shape" : "computed and of shape",
                         ckpt_shape_show(&v->shape, text));
    }
    return CKPT_OK;
}

/* Parameters lie as written, values of rank 4 channels last: those go through rank 3. */
ckpt_code onnx_as_layer(onnx_importer *m, onnx_value *value, onnx_value *y)
{
    static const int turn[] = {1, 0};
    if (value->made) {
        const onnx_value at = {.ref = value->ref};
        *y = onnx_output_of(m, &at, value->ref.output);
        return CKPT_OK;
    }
    char text[CKPT_SHAPE_TEXT];
    if (!value->learned || onnx_count(value) < 1) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "\"%.80s\" is a constant of shape %s: as an input only initializers of floats are supported",
                         value->name, ckpt_shape_show(&value->shape, text));
    }
    ckpt_shape shape = value->shape;
    if (shape.rank == 4) {
        shape = (ckpt_shape){.rank = 3, .dim = {shape.dim[0] * shape.dim[1], shape.dim[2], shape.dim[3]}};
    }
    onnx_value plain = *value;
    if (value->turned) {
        shape = (ckpt_shape){.rank = 2, .dim = {shape.dim[1], shape.dim[0]}};
    }
    onnx_call call = {.op = "parameter", .owner = true};
    CKPT_TRY(onnx_call_ints(m, &call, "shape", shape.dim, shape.rank));
    const Onnx__NodeProto *const node = m->node;
    Onnx__NodeProto named = *node;
    named.name = (char *)(uintptr_t)value->name;
    m->node = &named;
    ckpt_code code = onnx_add(m, &call, y);
    m->node = node;
    CKPT_TRY(code);
    onnx_value *const kept = CKPT_NEW(m->out, onnx_value, 1);
    if (kept == NULL) {
        return onnx_no_memory(m);
    }
    plain.turned = false;
    plain.shape = shape;
    *kept = plain;
    CKPT_TRY(onnx_bind(m, y, "weight", kept));
    CKPT_TRY(value->turned ? onnx_transpose(m, y, turn, y) : onnx_reshape(m, y, &value->shape, y));
    value->made = true;
    value->ref = y->ref;
    return CKPT_OK;
}

ckpt_code onnx_operand(onnx_importer *m, int k, onnx_value *y)
{
    onnx_value *value = NULL;
    CKPT_TRY(onnx_input(m, k, &value));
    return onnx_as_layer(m, value, y);
}
