/* From an ONNX file to layers and their weights: one pass over the nodes, which ONNX has in order. */
#include "ops/import/onnx/onnx.h"

#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/formats/safetensors.h"
#include "core/json/json_write.h"
#include "ops/import/model_file.h"
#include "ops/import/onnx/onnx_impl.h"
#include "ops/lowering/network_impl.h"

enum { OPSET_MIN = 13 }; /* where axes are inputs and Softmax has one dim */

ckpt_code onnx_no_memory(const onnx_importer *m)
{
    return CKPT_FAIL(m->err, CKPT_NO_MEMORY, "%.200s: no memory for its graph", m->source);
}

ckpt_code onnx_grow(onnx_importer *m, void **list, int count, int *room, size_t size)
{
    if (count < *room) {
        return CKPT_OK;
    }
    const int more = 2 * count + 16;
    char *const wider = ckpt_arena_take(m->out, (size_t)more, size);
    if (wider == NULL) {
        return onnx_no_memory(m);
    }
    if (count > 0) {
        memcpy(wider, *list, (size_t)count * size);
    }
    *list = wider;
    *room = more;
    return CKPT_OK;
}

/* ---- values ---- */

onnx_value *onnx_find(const onnx_importer *m, const char *name)
{
    const int at = ckpt_names_find(&m->names, name);
    return at < 0 ? NULL : m->value[at];
}

static ckpt_code add_value(onnx_importer *m, const char *name, const onnx_value *value)
{
    onnx_value *const kept = CKPT_NEW(m->out, onnx_value, 1);
    CKPT_TRY(onnx_grow(m, (void **)&m->value, m->value_count, &m->value_room, sizeof(onnx_value *)));
    const char *const own = ckpt_arena_text(m->out, name);
    if (kept == NULL || own == NULL) {
        return onnx_no_memory(m);
    }
    *kept = *value;
    kept->name = own;
    if (ckpt_names_add(&m->names, own, m->value_count) >= 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" is there twice", name);
    }
    m->value[m->value_count++] = kept;
    return CKPT_OK;
}

ckpt_code onnx_name(onnx_importer *m, int k, const onnx_value *value)
{
    return (size_t)k < m->node->n_output && m->node->output[k][0] != '\0' ? add_value(m, m->node->output[k], value)
                                                                          : CKPT_OK;
}

/* ---- tensors ---- */

static int64_t listed(const Onnx__TensorProto *t)
{
    switch (t->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT: return (int64_t)t->n_float_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE: return (int64_t)t->n_double_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64: return (int64_t)t->n_int64_data;
    default: return (int64_t)t->n_int32_data;
    }
}

static int bytes_of(int32_t type)
{
    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL: return 1;
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32: return 4;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64: return 8;
    default: return 0;
    }
}

ckpt_code onnx_tensor(onnx_importer *m, const char *name, const Onnx__TensorProto *t, bool initializer,
                      onnx_value *value)
{
    const int bytes = t->has_data_type ? bytes_of(t->data_type) : 0;
    int64_t count = 1;
    if (bytes == 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" has type %d, wanted 1 (float32), 7 (int64) or 6 (int32)",
                         name, t->has_data_type ? t->data_type : 0);
    }
    if (t->n_external_data > 0 ||
        (t->has_data_location && t->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" keeps its data in another file, wanted all in one", name);
    }
    if (t->n_dims > CKPT_RANK_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" has %zu dims, wanted at most %d", name, t->n_dims,
                         CKPT_RANK_MAX);
    }
    *value = (onnx_value){.shape = {.rank = (int)t->n_dims}, .constant = true, .tensor = t};
    for (int d = 0; d < value->shape.rank; d++) {
        const int64_t dim = t->dims[d];
        if (dim < 0 || (count > 0 && dim > ((int64_t)1 << 50) / count)) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" has dim %d of %lld", name, d, (long long)dim);
        }
        value->shape.dim[d] = dim;
        count *= dim;
    }
    const bool fits = t->has_raw_data ? (int64_t)t->raw_data.len == count * bytes : listed(t) == count;
    if (!fits) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.100s\" has %lld %s, wanted %lld elements", name,
                         t->has_raw_data ? (long long)t->raw_data.len : (long long)listed(t),
                         t->has_raw_data ? "bytes" : "elements", (long long)count);
    }
    const bool real =
        t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE;
    value->dtype = real ? CKPT_FLOAT32 : CKPT_INT32;
    value->learned = initializer && t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    return CKPT_OK;
}

static ckpt_code add_initializers(onnx_importer *m)
{
    for (size_t i = 0; i < m->graph->n_initializer; i++) {
        const Onnx__TensorProto *const t = m->graph->initializer[i];
        const char *const name = t->name != NULL ? t->name : "";
        onnx_value value;
        CKPT_TRY(onnx_tensor(m, name, t, true, &value));
        CKPT_TRY(add_value(m, name, &value));
    }
    return m->graph->n_sparse_initializer == 0 ? CKPT_OK : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "has sparse initializers");
}

/* ---- inputs ---- */

/* Letters, digits and _ . - of a name; a var's name has no . and -. */
static ckpt_code clean(onnx_importer *m, const char *name, bool var, const char **own)
{
    char *const text = ckpt_arena_text(m->out, name);
    if (text == NULL) {
        return onnx_no_memory(m);
    }
    for (char *c = text; *c != '\0'; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        *c = letter || (!var && (*c == '.' || *c == '-')) ? *c : '_';
    }
    if (text[0] == '\0' || strlen(text) > 200 || (var && text[0] >= '0' && text[0] <= '9')) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "\"%.60s\" is no name", name);
    }
    *own = text;
    return CKPT_OK;
}

/* The value of a size with a name: the last that `set` gives it, else 1. */
static ckpt_code read_var(onnx_importer *m, const char *name, const char *const *set, int set_count, int64_t *value)
{
    const char *own = NULL;
    CKPT_TRY(clean(m, name, true, &own));
    for (int i = 0; i < m->var_count; i++) {
        if (strcmp(m->var[i].name, own) == 0) {
            *value = m->var[i].value;
            return CKPT_OK;
        }
    }
    const ckpt_model known = {.source = m->source, .var = m->var, .var_count = m->var_count};
    const size_t length = strlen(own);
    *value = 1;
    for (int i = 0; i < set_count; i++) {
        if (strncmp(set[i], own, length) == 0 && set[i][length] == '=') {
            CKPT_TRY_WHILE(m->err, ckpt_model_eval(&known, set[i] + length + 1, value, m->err), "reading --set %.100s",
                           set[i]);
        }
    }
    m->var[m->var_count++] = (ckpt_var){.name = own, .value = *value, .real = (double)*value};
    return CKPT_OK;
}

static ckpt_code read_shape(onnx_importer *m, const char *name, const Onnx__TensorShapeProto *from,
                            const char *const *set, int set_count, ckpt_shape *shape)
{
    if (from == NULL || from->n_dim > CKPT_RANK_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input \"%.100s\" has no shape of at most %d dims", name,
                         CKPT_RANK_MAX);
    }
    *shape = (ckpt_shape){.rank = (int)from->n_dim};
    for (int d = 0; d < shape->rank; d++) {
        const Onnx__TensorShapeProto__Dimension *const dim = from->dim[d];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) {
            CKPT_TRY(read_var(m, dim->dim_param, set, set_count, &shape->dim[d]));
        } else if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            shape->dim[d] = dim->dim_value;
        }
        if (shape->dim[d] < 1) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "input \"%.100s\" has dim %d of %lld, wanted at least 1", name, d,
                             (long long)shape->dim[d]);
        }
    }
    return CKPT_OK;
}

static ckpt_code add_input(onnx_importer *m, const Onnx__ValueInfoProto *input, const char *const *set, int set_count)
{
    const char *const name = input->name != NULL ? input->name : "";
    const Onnx__TypeProto__Tensor *const type =
        input->type != NULL && input->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? input->type->tensor_type
                                                                                              : NULL;
    if (onnx_find(m, name) != NULL) {
        return CKPT_OK; /* an initializer */
    }
    const int element = type != NULL && type->has_elem_type ? type->elem_type : 0;
    const bool real = element == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    if (!real && element != ONNX__TENSOR_PROTO__DATA_TYPE__INT32 && element != ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "input \"%.100s\" has type %d, wanted 1 (float32), 6 (int32) or 7 (int64)", name, element);
    }
    ckpt_tensor *const tensor = &m->input[m->input_count];
    *tensor = (ckpt_tensor){.dtype = real ? CKPT_FLOAT32 : CKPT_INT32};
    CKPT_TRY(clean(m, name, false, &tensor->name));
    CKPT_TRY(read_shape(m, name, type->shape, set, set_count, &tensor->shape));
    CKPT_TRY(ckpt_shape_check(&tensor->shape, tensor->dtype, m->err));
    m->input_count++;
    const onnx_value value = {
        .shape = tensor->shape, .dtype = tensor->dtype, .made = true, .ref = {-m->input_count, 0}};
    return add_value(m, name, &value);
}

static ckpt_code refuse_var(const onnx_importer *m, const char *assignment)
{
    char known[200] = "no sizes with names";
    for (int i = 0; i < m->var_count; i++) {
        const size_t used = i == 0 ? 0 : strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "the sizes " : ", ", m->var[i].name);
    }
    return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "--set %.60s: the graph has %s", assignment, known);
}

static ckpt_code add_inputs(onnx_importer *m, const char *const *set, int set_count, bool strict)
{
    size_t dims = 0;
    for (size_t i = 0; i < m->graph->n_input; i++) {
        const Onnx__TypeProto *const type = m->graph->input[i]->type;
        const bool tensor = type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
        dims += tensor && type->tensor_type->shape != NULL ? type->tensor_type->shape->n_dim : 0;
    }
    m->var = CKPT_NEW(m->out, ckpt_var, dims);
    m->input = CKPT_NEW(m->out, ckpt_tensor, m->graph->n_input + 1); /* and the loss's */
    if (m->var == NULL || m->input == NULL) {
        return onnx_no_memory(m);
    }
    for (size_t i = 0; i < m->graph->n_input; i++) {
        CKPT_TRY(add_input(m, m->graph->input[i], set, set_count));
    }
    for (int i = 0; strict && i < set_count; i++) {
        bool known = false;
        for (int k = 0; k < m->var_count; k++) {
            const size_t length = strlen(m->var[k].name);
            known = known || (strncmp(set[i], m->var[k].name, length) == 0 && set[i][length] == '=');
        }
        CKPT_TRY(known ? CKPT_OK : refuse_var(m, set[i]));
    }
    return CKPT_OK;
}

/* ---- nodes ---- */

static const onnx_rule *const tables[] = {onnx_layer_rules, onnx_point_rules, onnx_move_rules};
enum { TABLES = sizeof tables / sizeof tables[0] };

static const char *rule_name(int index)
{
    for (int t = 0; t < TABLES; t++) {
        int count = 0;
        while (tables[t][count].op != NULL) {
            count++;
        }
        if (index < count) {
            return tables[t][index].op;
        }
        index -= count;
    }
    return NULL;
}

static ckpt_code lower_constant(onnx_importer *m)
{
    const Onnx__AttributeProto *const attr = m->node->n_attribute == 1 ? m->node->attribute[0] : NULL;
    onnx_value value = {.constant = true};
    double *number = NULL;
    if (attr != NULL && attr->t != NULL) {
        CKPT_TRY(onnx_tensor(m, m->node->output[0], attr->t, false, &value));
        return onnx_name(m, 0, &value);
    }
    const size_t count = attr == NULL ? 0 : attr->n_ints > 0 ? attr->n_ints : attr->n_floats > 0 ? attr->n_floats : 1;
    const bool one = attr != NULL && attr->n_ints == 0 && attr->n_floats == 0;
    if (attr == NULL || (one && !attr->has_i && !attr->has_f)) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "has no value that is a number or a tensor");
    }
    value.dtype = attr->n_ints > 0 || (one && attr->has_i) ? CKPT_INT32 : CKPT_FLOAT32;
    value.shape = one ? (ckpt_shape){.rank = 0} : (ckpt_shape){1, {(int64_t)count}};
    number = CKPT_NEW(m->out, double, count);
    if (number == NULL) {
        return onnx_no_memory(m);
    }
    for (size_t i = 0; i < count; i++) {
        number[i] = attr->n_ints > 0     ? (double)attr->ints[i]
                    : attr->n_floats > 0 ? (double)attr->floats[i]
                    : attr->has_i        ? (double)attr->i
                                         : (double)attr->f;
    }
    value.number = number;
    return onnx_name(m, 0, &value);
}

static ckpt_code lower_node(onnx_importer *m)
{
    const Onnx__NodeProto *const node = m->node;
    bool done = false;
    if (node->domain != NULL && node->domain[0] != '\0' && strcmp(node->domain, "ai.onnx") != 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "is of the domain \"%.60s\", wanted ONNX's own", node->domain);
    }
    if (node->n_output < 1) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "has no output");
    }
    if (strcmp(node->op_type, "Constant") == 0) {
        return lower_constant(m);
    }
    CKPT_TRY(onnx_fold(m, &done));
    for (int t = 0; t < TABLES && !done; t++) {
        for (const onnx_rule *rule = tables[t]; rule->op != NULL; rule++) {
            if (strcmp(rule->op, node->op_type) == 0) {
                return rule->lower(m);
            }
        }
    }
    char text[CKPT_NAMES_TEXT];
    return done ? CKPT_OK
                : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "no such operator is supported%s",
                            ckpt_names_near(node->op_type, rule_name, text));
}

/* "model.onnx: node /conv1/Conv (Conv): " before what went wrong. */
static ckpt_code at_node(const onnx_importer *m, const Onnx__NodeProto *node, ckpt_code code)
{
    if (code != CKPT_OK) {
        const bool named = node->name != NULL && node->name[0] != '\0';
        ckpt_err_at(m->err, "%.150s: node %.80s (%.40s)", m->source,
                    named                ? node->name
                    : node->n_output > 0 ? node->output[0]
                                         : "without a name",
                    node->op_type);
    }
    return code;
}

/* Constants first: what looks ahead wants them. */
static ckpt_code lower_nodes(onnx_importer *m)
{
    for (size_t n = 0; n < m->graph->n_node; n++) {
        const Onnx__NodeProto *const node = m->graph->node[n];
        if (node->op_type == NULL) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: node %zu has no operator", m->source, n);
        }
    }
    for (size_t n = 0; n < m->graph->n_node; n++) {
        const Onnx__NodeProto *const node = m->graph->node[n];
        m->node = node;
        m->skipped[n] = strcmp(node->op_type, "Constant") == 0;
        CKPT_TRY(at_node(m, node, m->skipped[n] ? lower_node(m) : CKPT_OK));
    }
    for (size_t n = 0; n < m->graph->n_node; n++) {
        const Onnx__NodeProto *const node = m->graph->node[n];
        m->node = node;
        m->node_index = (int)n;
        CKPT_TRY(at_node(m, node, m->skipped[n] ? CKPT_OK : lower_node(m)));
    }
    m->node = NULL;
    return CKPT_OK;
}

/* ---- the loss ---- */

/* Logits get labels and cross_entropy, another output a target and mse, a single number is the loss itself. */
static ckpt_code add_loss(onnx_importer *m)
{
    Onnx__NodeProto named = ONNX__NODE_PROTO__INIT;
    char name[] = "loss_";
    const onnx_value *const x =
        m->graph->n_output == 1 && m->graph->output[0]->name != NULL ? onnx_find(m, m->graph->output[0]->name) : NULL;
    if (x == NULL || !x->made || x->dtype != CKPT_FLOAT32) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: has %zu outputs, wanted one that is computed and of floats",
                         m->source, m->graph->n_output);
    }
    const int rank = x->shape.rank, dim = rank == 4 ? 1 : rank - 1;
    const bool logits = rank >= 2 && rank <= 4 && x->shape.dim[dim] > 1;
    onnx_call call = {.op = rank == 0 ? "total" : logits ? "cross_entropy" : "mse", .in = {*x}, .in_count = 1};
    if (rank > 0) {
        ckpt_tensor *const target = &m->input[m->input_count++];
        *target = (ckpt_tensor){
            .name = logits ? "labels" : "target", .dtype = logits ? CKPT_INT32 : CKPT_FLOAT32, .shape = x->shape};
        for (int i = 0; i < m->input_count - 1; i++) {
            if (strcmp(m->input[i].name, target->name) == 0) {
                return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                                 "%.200s: has an input \"%s\", which is the name of the loss's own", m->source,
                                 target->name);
            }
        }
        for (int d = dim; logits && d < rank - 1; d++) {
            target->shape.dim[d] = target->shape.dim[d + 1];
        }
        target->shape.rank -= logits ? 1 : 0;
        call.in[1] =
            (onnx_value){.shape = target->shape, .dtype = target->dtype, .made = true, .ref = {-m->input_count, 0}};
        call.in_count = 2;
    }
    onnx_value y;
    named.name = name;
    m->node = &named;
    const ckpt_code code = onnx_add(m, &call, &y);
    m->node = NULL;
    CKPT_TRY_WHILE(m->err, code, "adding the loss of %.200s", m->source);
    m->layer[y.ref.layer].layer.name = "loss";
    return CKPT_OK;
}

/* What the loss needs. */
static void find_needed(onnx_importer *m)
{
    m->layer[m->layer_count - 1].needed = true;
    for (int i = m->layer_count - 1; i >= 0; i--) {
        const ckpt_layer *const layer = &m->layer[i].layer;
        for (int k = 0; m->layer[i].needed && k < layer->in_count; k++) {
            if (layer->in[k].layer >= 0) {
                m->layer[layer->in[k].layer].needed = true;
            }
        }
        if (m->layer[i].needed && layer->tie >= 0) {
            m->layer[layer->tie].needed = true;
        }
    }
}

/* ---- the whole ---- */

/* `context`: whether it once found none. */
static void *take(void *context, size_t size)
{
    void *const memory = ckpt_memory_get(size);
    *(bool *)context = *(bool *)context || memory == NULL;
    return memory;
}

static void put(void *context, void *memory)
{
    (void)context;
    ckpt_memory_put(memory);
}

static ckpt_code check_opset(const onnx_importer *m, const Onnx__ModelProto *model)
{
    int64_t version = 0;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *const set = model->opset_import[i];
        if (set->domain == NULL || set->domain[0] == '\0' || strcmp(set->domain, "ai.onnx") == 0) {
            version = set->version;
        }
    }
    return version >= OPSET_MIN ? CKPT_OK
                                : CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: has operator set %lld, wanted %d or later",
                                            m->source, (long long)version, OPSET_MIN);
}

static ckpt_code read_graph(onnx_importer *m, const char *const *set, int set_count, bool strict)
{
    size_t names = m->graph->n_initializer + m->graph->n_input;
    for (size_t n = 0; n < m->graph->n_node; n++) {
        names += m->graph->node[n]->n_output;
    }
    if (names > INT32_MAX / 4) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "%.200s: has too many values", m->source);
    }
    CKPT_TRY(ckpt_names_init(&m->names, (int)names, m->out, m->err));
    m->skipped = CKPT_NEW(m->out, bool, m->graph->n_node);
    if (m->skipped == NULL) {
        return onnx_no_memory(m);
    }
    ckpt_code code = add_initializers(m);
    code = code == CKPT_OK ? add_inputs(m, set, set_count, strict) : code;
    if (code != CKPT_OK) {
        ckpt_err_at(m->err, "%.200s", m->source);
        return code;
    }
    CKPT_TRY(lower_nodes(m));
    CKPT_TRY(add_loss(m));
    find_needed(m);
    return CKPT_OK;
}

/* What is to be made of the graph, in m->out. */
typedef ckpt_code onnx_use(const onnx_importer *m, void *context);

static ckpt_code with_file(const char *path, const char *const *set, int set_count, bool strict, onnx_use *use,
                           void *context, ckpt_err *err)
{
    ckpt_arena scratch;
    onnx_importer m = {.source = path, .out = &scratch, .err = err};
    const char *bytes = NULL;
    size_t length = 0;
    bool starved = false;
    ProtobufCAllocator memory = {.alloc = take, .free = put, .allocator_data = &starved};
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_file_read(path, &scratch, &bytes, &length, err);
    Onnx__ModelProto *const model =
        code == CKPT_OK ? onnx__model_proto__unpack(&memory, length, (const uint8_t *)bytes) : NULL;
    if (code == CKPT_OK && (model == NULL || model->graph == NULL)) {
        code = starved ? onnx_no_memory(&m)
                       : CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: is no ONNX model, damaged or cut off", path);
    }
    if (code == CKPT_OK) {
        m.graph = model->graph;
        code = check_opset(&m, model);
    }
    code = code == CKPT_OK ? read_graph(&m, set, set_count, strict) : code;
    code = code == CKPT_OK ? use(&m, context) : code;
    if (model != NULL) {
        onnx__model_proto__free_unpacked(model, &memory);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

/* ---- as text ---- */

static void put_attr(ckpt_json_writer *w, const ckpt_attr *attr)
{
    switch (attr->kind) {
    case CKPT_INT: ckpt_json_put_int(w, attr->name, attr->integer); break;
    case CKPT_FLOAT: ckpt_json_put_real(w, attr->name, attr->real); break;
    case CKPT_BOOL: ckpt_json_put_bool(w, attr->name, attr->integer != 0); break;
    case CKPT_STRING: ckpt_json_put_text(w, attr->name, attr->string); break;
    case CKPT_INTS: ckpt_json_put_int_list(w, attr->name, attr->ints, attr->int_count); break;
    }
}

static ckpt_code put_layer(const onnx_importer *m, ckpt_json_writer *w, const ckpt_layer *layer)
{
    const char *names[ONNX_IN_MAX];
    for (int k = 0; k < layer->in_count; k++) {
        const ckpt_ref ref = layer->in[k];
        names[k] = ref.layer < 0     ? m->input[-1 - ref.layer].name
                   : ref.output == 0 ? m->layer[ref.layer].layer.name
                                     : ckpt_arena_format(m->out, "%s:%d", m->layer[ref.layer].layer.name, ref.output);
        if (names[k] == NULL) {
            return onnx_no_memory(m);
        }
    }
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(w, "name", layer->name);
    ckpt_json_put_text(w, "op", layer->op);
    ckpt_json_put_texts(w, "in", names, layer->in_count);
    for (int i = 0; i < layer->attr_count; i++) {
        put_attr(w, &layer->attr[i]);
    }
    if (layer->tie >= 0) {
        ckpt_json_put_text(w, "tie", m->layer[layer->tie].layer.name);
    }
    ckpt_json_end(w);
    return CKPT_OK;
}

static ckpt_code put_model(const onnx_importer *m, ckpt_json_writer *w)
{
    const char *const slash = strrchr(m->source, '/');
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(w, "format", "ckpt-model/1");
    ckpt_json_put_text(w, "name", slash != NULL ? slash + 1 : m->source);
    ckpt_json_begin_object(w, "vars", CKPT_JSON_LINE);
    for (int i = 0; i < m->var_count; i++) {
        ckpt_json_put_int(w, m->var[i].name, m->var[i].value);
    }
    ckpt_json_end(w);
    ckpt_json_begin_array(w, "inputs", CKPT_JSON_LINES);
    for (int i = 0; i < m->input_count; i++) {
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "name", m->input[i].name);
        ckpt_json_put_int_list(w, "shape", m->input[i].shape.dim, m->input[i].shape.rank);
        ckpt_json_put_text(w, "dtype", ckpt_dtype_name(m->input[i].dtype));
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
    ckpt_json_begin_array(w, "layers", CKPT_JSON_LINES);
    for (int i = 0; i < m->layer_count; i++) {
        CKPT_TRY(m->layer[i].needed ? put_layer(m, w, &m->layer[i].layer) : CKPT_OK);
    }
    ckpt_json_end(w);
    ckpt_json_begin_object(w, "optimizer", CKPT_JSON_LINE);
    ckpt_json_put_text(w, "name", "adamw");
    ckpt_json_put_real(w, "lr", 0.001);
    ckpt_json_end(w);
    ckpt_json_end(w);
    return CKPT_OK;
}

typedef struct onnx_bytes {
    ckpt_arena *out;
    const char *bytes;
    size_t length;
} onnx_bytes;

static ckpt_code make_text(const onnx_importer *m, void *context)
{
    onnx_bytes *const to = context;
    ckpt_json_writer w;
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_json_begin(&w, &text);
    ckpt_code code = put_model(m, &w);
    code = code == CKPT_OK ? ckpt_text_end(&text, m->err) : code;
    if (code == CKPT_OK) {
        to->bytes = ckpt_arena_text(to->out, text.bytes);
        to->length = text.length;
        code = to->bytes != NULL ? CKPT_OK : onnx_no_memory(m);
    }
    ckpt_text_fini(&text);
    return code;
}

ckpt_code ckpt_onnx_text(const char *path, const char *const *set, int set_count, ckpt_arena *out, const char **text,
                         size_t *length, ckpt_err *err)
{
    onnx_bytes made = {.out = out};
    if (!ckpt_onnx_is(path)) {
        return CKPT_OK;
    }
    CKPT_TRY(with_file(path, set, set_count, true, make_text, &made, err));
    *text = made.bytes;
    *length = made.length;
    return CKPT_OK;
}

ckpt_code ckpt_onnx_model(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                          const ckpt_model **model, ckpt_err *err)
{
    const char *text = NULL;
    size_t length = 0;
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_onnx_text(path, set, set_count, out, &text, &length, err));
    if (text == NULL) {
        return ckpt_model_file_read(path, set, set_count, out, model, err);
    }
    CKPT_TRY(ckpt_json_open_text(path, text, length, "ckpt-model", &json, &root, err));
    const ckpt_code code = ckpt_model_item(&root, set, set_count, out, model, err);
    ckpt_json_close(json);
    return code;
}

/* ---- as weights ---- */

static ckpt_code make_weights(const onnx_importer *m, void *context)
{
    onnx_bytes *const to = context;
    ckpt_safetensor *const tensor = CKPT_NEW(m->out, ckpt_safetensor, m->weight_count);
    ckpt_text header;
    int count = 0;
    int64_t floats = 0;
    if (tensor == NULL) {
        return onnx_no_memory(m);
    }
    for (int i = 0; i < m->weight_count; i++) {
        const onnx_weight *const weight = &m->weight[i];
        if (m->layer[weight->layer].needed) {
            const int64_t elements = ckpt_shape_count(&weight->shape);
            ckpt_safetensor *const t = &tensor[count++];
            *t = (ckpt_safetensor){
                .name = ckpt_arena_format(m->out, "%s.%s", m->layer[weight->layer].layer.name, weight->param),
                .type = "F32",
                .rank = weight->shape.rank,
                .dim = weight->shape.dim,
                .count = elements,
                .bytes = 4 * elements};
            floats += elements;
            if (t->name == NULL) {
                return onnx_no_memory(m);
            }
        }
    }
    ckpt_text_init(&header);
    ckpt_safetensors_header(tensor, count, &header);
    ckpt_code code = ckpt_text_end(&header, m->err);
    char *const bytes = code == CKPT_OK ? ckpt_arena_take(to->out, header.length + 4 * (size_t)floats, 1) : NULL;
    if (bytes != NULL) {
        memcpy(bytes, header.bytes, header.length);
        char *at = bytes + header.length;
        for (int i = 0; i < m->weight_count; i++) {
            const onnx_weight *const weight = &m->weight[i];
            const int64_t elements = m->layer[weight->layer].needed ? ckpt_shape_count(&weight->shape) : 0;
            for (int64_t k = 0; k < elements; k++, at += sizeof(float)) {
                const float value = onnx_float(weight, k);
                memcpy(at, &value, sizeof value);
            }
        }
        to->bytes = bytes;
        to->length = header.length + 4 * (size_t)floats;
    } else {
        code = code == CKPT_OK ? onnx_no_memory(m) : code;
    }
    ckpt_text_fini(&header);
    return code;
}

ckpt_code ckpt_onnx_weights(const ckpt_network *network, const char *path, const char *const *set, int set_count,
                            ckpt_arena *out, ckpt_weights **weights, ckpt_err *err)
{
    onnx_bytes made = {.out = out};
    if (!ckpt_onnx_is(path)) {
        return ckpt_weights_open(network, path, weights, err);
    }
    CKPT_TRY(with_file(path, set, set_count, false, make_weights, &made, err));
    return ckpt_weights_open_bytes(network, path, made.bytes, made.length, weights, err);
}
