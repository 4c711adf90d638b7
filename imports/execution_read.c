/* Reads the nodes of an ExecutionTrace. A tensor is [number, storage, offset, elements, element bytes, device]; shapes
 * and strides are in lists beside it, nested like the values. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "imports/execution_impl.h"

enum { LIST_DEPTH = 16, PYTORCH_LIST_LIMIT = 4096, DEVICES = 64 };

typedef struct reader {
    ckpt_et_trace *trace;
    ckpt_arena scratch; /* texts that are only compared */
    bool filling;       /* the second pass, which keeps tensors; the first only counts them */
    ckpt_err *err;
} reader;

static ckpt_code no_memory(const reader *r, const char *what)
{
    return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for its %s", r->trace->path, what);
}

static ckpt_code read_int(const reader *r, const ckpt_item *list, int index, int64_t min, int64_t *value)
{
    ckpt_item item;
    ckpt_item_at(list, index, &item);
    return ckpt_item_int(&item, min, INT64_MAX, value, r->err);
}

static ckpt_code find_device(reader *r, const ckpt_item *item, int *device)
{
    ckpt_et_trace *const t = r->trace;
    const ckpt_mark mark = ckpt_arena_mark(t->work);
    const char *name = "";
    CKPT_TRY(ckpt_item_text(item, t->work, &name, r->err));
    for (*device = 0; *device < t->device_count; (*device)++) {
        if (strcmp(t->device[*device], name) == 0) {
            ckpt_arena_rewind(t->work, mark);
            return CKPT_OK;
        }
    }
    if (t->device_count == DEVICES) {
        return ckpt_item_fail(item, r->err, "found \"%.40s\", a device more than %d", name, DEVICES);
    }
    t->device[t->device_count++] = name;
    return CKPT_OK;
}

/* Bytes of the storage up to the tensor's last element. */
static ckpt_code find_end(const reader *r, const ckpt_item *value, const ckpt_item *shape, const ckpt_item *stride,
                          int64_t offset, int64_t element_bytes, ckpt_bytes *end)
{
    const int rank = ckpt_item_count(shape);
    int64_t last = offset;
    for (int d = 0; d < rank; d++) {
        int64_t size = 0;
        int64_t step = 0;
        int64_t far = 0;
        CKPT_TRY(read_int(r, shape, d, 0, &size));
        CKPT_TRY(read_int(r, stride, d, 0, &step));
        if (size > 0 && (!ckpt_product(size - 1, step, &far) || !ckpt_sum(last, far, &last))) {
            return ckpt_item_fail(value, r->err, "found a tensor that ends beyond 2^63 elements");
        }
    }
    if (!ckpt_sum(last, 1, &last) || !ckpt_product(last, element_bytes, end)) {
        return ckpt_item_fail(value, r->err, "found a tensor that ends beyond 2^63 bytes");
    }
    return CKPT_OK;
}

static ckpt_code read_tensor(reader *r, const ckpt_item *value, const ckpt_item *shape, const ckpt_item *stride,
                             int argument)
{
    ckpt_et_tensor t = {.argument = argument, .end = -1};
    int64_t offset = 0;
    int64_t elements = 0;
    int64_t element_bytes = 0;
    ckpt_item device;
    CKPT_TRY(read_int(r, value, 0, 0, &t.number));
    CKPT_TRY(read_int(r, value, 1, 0, &t.storage));
    CKPT_TRY(read_int(r, value, 2, 0, &offset));
    CKPT_TRY(read_int(r, value, 3, 0, &elements));
    CKPT_TRY(read_int(r, value, 4, 0, &element_bytes));
    ckpt_item_at(value, 5, &device);
    CKPT_TRY(find_device(r, &device, &t.device));
    if (!ckpt_product(elements, element_bytes, &t.bytes)) {
        return ckpt_item_fail(value, r->err, "found a tensor of more than 2^63 bytes");
    }
    if (t.storage == 0 || t.bytes == 0) {
        t.storage = -1;
    } else if (shape != NULL && stride != NULL && ckpt_item_count(shape) == ckpt_item_count(stride)) {
        CKPT_TRY(find_end(r, value, shape, stride, offset, element_bytes, &t.end));
    }
    const bool shaped = shape != NULL && ckpt_item_count(shape) > 0;
    t.scalar = shape != NULL && !shaped && elements == 1;
    r->trace->sparse_count += t.number > 0 && shaped && element_bytes == 0; /* an undefined tensor has no shape */
    r->trace->tensor[r->trace->tensor_count++] = t;
    return CKPT_OK;
}

static bool is_tensor(const ckpt_item *value)
{
    ckpt_item first;
    ckpt_item last;
    if (ckpt_item_count(value) != 6) {
        return false;
    }
    ckpt_item_at(value, 0, &first);
    ckpt_item_at(value, 5, &last);
    return ckpt_item_type(&first) == CKPT_JSON_INT && ckpt_item_type(&last) == CKPT_JSON_TEXT;
}

static const ckpt_item *element(const ckpt_item *list, int count, int index, ckpt_item *item)
{
    if (list == NULL || ckpt_item_type(list) != CKPT_JSON_ARRAY || ckpt_item_count(list) != count) {
        return NULL;
    }
    ckpt_item_at(list, index, item);
    return ckpt_item_type(item) == CKPT_JSON_ARRAY ? item : NULL;
}

/* Reads the tensors in a list of values and in its nested lists. `argument` -1: each value is an argument of its
 * own. */
static ckpt_code walk(reader *r, const ckpt_item *values, const ckpt_item *shapes, const ckpt_item *strides,
                      int argument, int depth)
{
    const int count = ckpt_item_count(values);
    if (depth > LIST_DEPTH) {
        return ckpt_item_fail(values, r->err, "found lists more than %d deep", LIST_DEPTH);
    }
    r->trace->cut_lists += !r->filling && depth > 0 && count > PYTORCH_LIST_LIMIT;
    for (int i = 0; i < count; i++) {
        ckpt_item value;
        ckpt_item shape_item;
        ckpt_item stride_item;
        ckpt_item_at(values, i, &value);
        if (ckpt_item_type(&value) != CKPT_JSON_ARRAY) {
            continue;
        }
        const ckpt_item *const shape = element(shapes, count, i, &shape_item);
        const ckpt_item *const stride = element(strides, count, i, &stride_item);
        const int owner = argument < 0 ? i : argument;
        if (!is_tensor(&value)) {
            CKPT_TRY(walk(r, &value, shape, stride, owner, depth + 1));
        } else if (r->filling) {
            CKPT_TRY(read_tensor(r, &value, shape, stride, owner));
        } else if (r->trace->tensor_count++ == INT_MAX / 4) {
            return ckpt_item_fail(&value, r->err, "found more than %d tensors", INT_MAX / 4);
        }
    }
    return CKPT_OK;
}

static ckpt_code walk_side(reader *r, const ckpt_item *node, const char *side, ckpt_item *object, ckpt_item *values)
{
    ckpt_item shapes;
    ckpt_item strides;
    int count = 0;
    CKPT_TRY(ckpt_item_need(node, side, object, r->err));
    CKPT_TRY(ckpt_item_object(object, r->err));
    CKPT_TRY(ckpt_item_need(object, "values", values, r->err));
    CKPT_TRY(ckpt_item_array(values, &count, r->err));
    const bool has_shapes = ckpt_item_find(object, "shapes", &shapes);
    const bool has_strides = ckpt_item_find(object, "strides", &strides);
    return walk(r, values, has_shapes ? &shapes : NULL, has_strides ? &strides : NULL, -1, 0);
}

/* Reads the attributes that the importer uses. */
static ckpt_code read_attributes(reader *r, const ckpt_item *object, ckpt_et_node *node)
{
    ckpt_item list;
    int count = 0;
    CKPT_TRY(ckpt_item_need(object, "attrs", &list, r->err));
    CKPT_TRY(ckpt_item_array(&list, &count, r->err));
    node->seq_id = -1;
    node->schema = "";
    for (int i = 0; i < count; i++) {
        ckpt_item attribute;
        ckpt_item key;
        ckpt_item value;
        const char *name = "";
        const char *backend = "";
        ckpt_item_at(&list, i, &attribute);
        CKPT_TRY(ckpt_item_need(&attribute, "name", &key, r->err));
        CKPT_TRY(ckpt_item_need(&attribute, "value", &value, r->err));
        const ckpt_mark mark = ckpt_arena_mark(&r->scratch);
        CKPT_TRY(ckpt_item_text(&key, &r->scratch, &name, r->err));
        if (strcmp(name, "rf_id") == 0) {
            CKPT_TRY(ckpt_item_int(&value, 0, INT64_MAX, &node->rf_id, r->err));
        } else if (strcmp(name, "seq_id") == 0) {
            CKPT_TRY(ckpt_item_int(&value, -1, INT64_MAX, &node->seq_id, r->err));
        } else if (strcmp(name, "scope") == 0) {
            CKPT_TRY(ckpt_item_int(&value, 0, INT64_MAX, &node->scope, r->err));
        } else if (strcmp(name, "op_schema") == 0) {
            CKPT_TRY(ckpt_item_text(&value, r->trace->work, &node->schema, r->err));
        } else if (strcmp(name, "kernel_backend") == 0) {
            CKPT_TRY(ckpt_item_text(&value, &r->scratch, &backend, r->err));
            node->compiled = node->compiled || strcmp(backend, "triton") == 0;
        }
        ckpt_arena_rewind(&r->scratch, mark);
    }
    return CKPT_OK;
}

static bool more_than_zero(const ckpt_item *value)
{
    double number = 0.0;
    const ckpt_json_type type = ckpt_item_type(value);
    return (type == CKPT_JSON_INT || type == CKPT_JSON_REAL) && ckpt_item_real(value, &number, NULL) == CKPT_OK &&
           number > 0.0;
}

static bool is_false(const ckpt_item *value)
{
    bool yes = true;
    return ckpt_item_type(value) == CKPT_JSON_BOOL && ckpt_item_bool(value, &yes, NULL) == CKPT_OK && !yes;
}

/* True if a generator was given. PyTorch writes "<None>" where it draws from the device's own. */
static ckpt_code is_generator(reader *r, const ckpt_item *value, bool *given)
{
    const char *text = "";
    if (ckpt_item_type(value) != CKPT_JSON_TEXT) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(&r->scratch);
    CKPT_TRY(ckpt_item_text(value, &r->scratch, &text, r->err));
    *given = strcmp(text, "<Generator>") == 0;
    ckpt_arena_rewind(&r->scratch, mark);
    return CKPT_OK;
}

/* True if the op draws random numbers: it takes a generator, makes a random tensor (aten::rand, randn, randperm) or
 * drops out. A composite op (aten::dropout) draws only through an op inside it. */
static bool is_random(const char *name, bool generator, bool drops, bool off)
{
    const bool fused = strcmp(name, "aten::native_dropout") == 0 || strcmp(name, "aten::_fused_dropout") == 0;
    return generator || strncmp(name, "aten::rand", strlen("aten::rand")) == 0 || ((fused || drops) && !off);
}

/* Marks what the node writes, and whether it draws random numbers, by its schema and arguments. Adds batch norm's
 * running statistics: native_batch_norm changes them although its schema does not say so. */
static ckpt_code apply_schema(reader *r, const ckpt_item *values, ckpt_et_node *node)
{
    const char *at = node->schema;
    const int count = ckpt_item_count(values);
    ckpt_et_argument argument;
    bool generator = false;
    bool drops = false;
    bool off = false;
    bool trains = false;
    int running[2] = {-1, -1};
    ckpt_et_tensor *const tensor = r->trace->tensor;
    int first = node->input;
    const int end = node->input + node->input_count;
    for (int i = 0; ckpt_et_next_argument(&at, &argument); i++) {
        const bool takes = strncmp(argument.type, "Generator", strlen("Generator")) == 0;
        generator = generator || takes;
        if (i >= count) {
            continue;
        }
        ckpt_item value;
        ckpt_item_at(values, i, &value);
        if (takes) {
            CKPT_TRY(is_generator(r, &value, &node->own_generator));
        }
        for (; first < end && tensor[first].argument <= i; first++) {
            tensor[first].written = argument.written && tensor[first].argument == i;
        }
        const bool train = ckpt_et_argument_is(&argument, "train");
        const bool training =
            train || ckpt_et_argument_is(&argument, "training") || ckpt_et_argument_is(&argument, "use_input_stats");
        drops = drops || ((ckpt_et_argument_is(&argument, "dropout_p") || ckpt_et_argument_is(&argument, "dropout")) &&
                          more_than_zero(&value));
        off = off || (train && is_false(&value));
        trains = trains || (training && ckpt_item_type(&value) == CKPT_JSON_BOOL && !is_false(&value));
        running[0] = ckpt_et_argument_is(&argument, "running_mean") ? i : running[0];
        running[1] = ckpt_et_argument_is(&argument, "running_var") ? i : running[1];
    }
    const bool backward = strstr(node->name, "backward") != NULL;
    for (int k = node->input; k < end && trains && !backward; k++) {
        const bool statistic = tensor[k].argument == running[0] || tensor[k].argument == running[1];
        tensor[k].written = tensor[k].written || statistic;
        tensor[k].statistic = statistic && strncmp(node->name, "aten::", strlen("aten::")) == 0;
    }
    node->random = node->schema[0] != '\0' && is_random(node->name, generator, drops, off);
    return CKPT_OK;
}

static ckpt_code read_name(const reader *r, const ckpt_item *item, const char **name)
{
    CKPT_TRY(ckpt_item_text(item, r->trace->work, name, r->err));
    const size_t length = strlen(*name);
    const size_t kept = ckpt_import_cut(*name, length, CKPT_IMPORT_NAME_MAX);
    if (kept < length) {
        *name = ckpt_arena_format(r->trace->work, "%.*s", (int)kept, *name);
    }
    return *name != NULL ? CKPT_OK : no_memory(r, "names");
}

static ckpt_code read_node(reader *r, const ckpt_item *object, ckpt_et_node *node)
{
    ckpt_et_trace *const t = r->trace;
    ckpt_item item;
    ckpt_item side;
    ckpt_item values;
    CKPT_TRY(ckpt_item_need(object, "id", &item, r->err));
    CKPT_TRY(ckpt_item_int(&item, 0, INT64_MAX, &node->id, r->err));
    CKPT_TRY(ckpt_item_need(object, "ctrl_deps", &item, r->err));
    CKPT_TRY(ckpt_item_int(&item, 0, INT64_MAX, &node->parent_id, r->err));
    if (node->parent_id > node->id) {
        return ckpt_item_fail(&item, r->err, "found node %lld inside node %lld, wanted one that began before it",
                              (long long)node->id, (long long)node->parent_id);
    }
    CKPT_TRY(ckpt_item_need(object, "name", &item, r->err));
    CKPT_TRY(read_name(r, &item, &node->name));
    static const char compiled[] = "## Call CompiledFxGraph"; /* Inductor's, as PyTorch 2.15 writes it */
    node->compiled =
        strncmp(node->name, compiled, strlen(compiled)) == 0 || strcmp(node->name, "CompiledFunction") == 0;
    CKPT_TRY(read_attributes(r, object, node));
    node->output = t->tensor_count;
    CKPT_TRY(walk_side(r, object, "outputs", &side, &values));
    node->output_count = t->tensor_count - node->output;
    node->input = t->tensor_count;
    CKPT_TRY(walk_side(r, object, "inputs", &side, &values));
    node->input_count = t->tensor_count - node->input;
    return apply_schema(r, &values, node);
}

static int by_id(const void *a, const void *b)
{
    return ckpt_import_compare(((const ckpt_et_node *)a)->id, ((const ckpt_et_node *)b)->id);
}

static int by_value(const void *a, const void *b)
{
    return ckpt_import_compare(*(const int64_t *)a, *(const int64_t *)b);
}

static ckpt_code link_nodes(const reader *r, const ckpt_item *nodes)
{
    ckpt_et_trace *const t = r->trace;
    qsort(t->node, (size_t)t->node_count, sizeof *t->node, by_id);
    for (int i = 0; i < t->node_count; i++) {
        ckpt_et_node *const node = &t->node[i];
        if (i > 0 && node[-1].id == node->id) {
            ckpt_item item;
            ckpt_item_at(nodes, node->position > node[-1].position ? node->position : node[-1].position, &item);
            return ckpt_item_fail(&item, r->err, "found a second node %lld", (long long)node->id);
        }
        const ckpt_et_node key = {.id = node->parent_id};
        const ckpt_et_node *const parent = bsearch(&key, t->node, (size_t)t->node_count, sizeof key, by_id);
        node->parent = parent == NULL || parent == node ? -1 : (int)(parent - t->node);
    }
    return CKPT_OK;
}

/* Renumbers tensors and storages from 0, and leaves out storages on other devices than the one that holds most. */
static ckpt_code number_tensors(const reader *r)
{
    ckpt_et_trace *const t = r->trace;
    int64_t *const number = CKPT_NEW(t->work, int64_t, 2 * (int64_t)t->tensor_count);
    double *const held = CKPT_NEW(t->work, double, DEVICES);
    if (number == NULL || held == NULL) {
        return no_memory(r, "tensors");
    }
    size_t count = 0;
    for (int i = 0; i < t->tensor_count; i++) {
        number[count++] = t->tensor[i].number;
        number[count++] = t->tensor[i].storage;
        held[t->tensor[i].device] += t->tensor[i].storage >= 0 ? (double)t->tensor[i].bytes : 0.0;
    }
    qsort(number, count, sizeof *number, by_value);
    t->number_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (t->number_count == 0 || number[t->number_count - 1] != number[i]) {
            number[t->number_count++] = number[i];
        }
    }
    for (int d = 1; d < t->device_count; d++) {
        t->main_device = held[d] > held[t->main_device] ? d : t->main_device;
    }
    for (int i = 0; i < t->tensor_count; i++) {
        ckpt_et_tensor *const tensor = &t->tensor[i];
        const size_t dense = (size_t)t->number_count;
        const int64_t *const own = bsearch(&tensor->number, number, dense, sizeof *number, by_value);
        const int64_t *const storage = bsearch(&tensor->storage, number, dense, sizeof *number, by_value);
        const bool elsewhere = tensor->device != t->main_device;
        t->other_device_count += elsewhere && tensor->storage >= 0;
        tensor->number = own - number;
        tensor->storage = tensor->storage < 0 || elsewhere ? -1 : storage - number;
    }
    return CKPT_OK;
}

static ckpt_code check_schema(reader *r, const ckpt_item *root)
{
    ckpt_item schema;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(root, "schema", &schema, r->err));
    CKPT_TRY(ckpt_item_text(&schema, &r->scratch, &text, r->err));
    if (strncmp(text, "1.", 2) != 0 || strstr(text, "-chakra") == NULL) {
        return ckpt_item_fail(&schema, r->err, "found \"%.40s\", wanted 1.x-chakra, such as 1.1.1-chakra.0.0.4", text);
    }
    return CKPT_OK;
}

/* Two passes over the nodes: count the tensors, then keep them. */
static ckpt_code read_nodes(reader *r, const ckpt_item *root)
{
    ckpt_et_trace *const t = r->trace;
    ckpt_item nodes;
    CKPT_TRY(check_schema(r, root));
    CKPT_TRY(ckpt_item_need(root, "nodes", &nodes, r->err));
    CKPT_TRY(ckpt_item_array(&nodes, &t->node_count, r->err));
    t->node = CKPT_NEW(t->work, ckpt_et_node, t->node_count);
    t->device = CKPT_NEW(t->work, const char *, DEVICES);
    if (t->node == NULL || t->device == NULL) {
        return no_memory(r, "nodes");
    }
    for (int i = 0; i < t->node_count; i++) {
        ckpt_item node;
        ckpt_item side;
        ckpt_item values;
        ckpt_item_at(&nodes, i, &node);
        CKPT_TRY(ckpt_item_object(&node, r->err));
        CKPT_TRY(walk_side(r, &node, "outputs", &side, &values));
        CKPT_TRY(walk_side(r, &node, "inputs", &side, &values));
    }
    t->tensor = CKPT_NEW(t->work, ckpt_et_tensor, t->tensor_count);
    if (t->tensor == NULL) {
        return no_memory(r, "tensors");
    }
    r->filling = true;
    t->tensor_count = 0;
    for (int i = 0; i < t->node_count; i++) {
        ckpt_item node;
        ckpt_item_at(&nodes, i, &node);
        t->node[i].position = i;
        CKPT_TRY(read_node(r, &node, &t->node[i]));
    }
    CKPT_TRY(link_nodes(r, &nodes));
    return number_tensors(r);
}

ckpt_code ckpt_et_read(const char *path, ckpt_arena *work, ckpt_et_trace *trace, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    *trace = (ckpt_et_trace){.path = ckpt_import_shown(path), .work = work};
    reader r = {.trace = trace, .err = err};
    ckpt_arena_init(&r.scratch);
    const ckpt_code code = read_nodes(&r, &root);
    ckpt_arena_fini(&r.scratch);
    ckpt_json_close(json);
    return code;
}
