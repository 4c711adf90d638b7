/* ckpt-model/1 from a file: vars, inputs, entries, optimizer. Unrolling is model_expand.c's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/text.h"
#include "core/formats/expression_impl.h"
#include "core/formats/model_impl.h"

typedef struct reader {
    ckpt_arena *out, *scratch;
    const char *const *set;
    int set_count;
    ckpt_model *model;
    ckpt_err *err;
} reader;

static ckpt_code no_memory(const reader *r, const char *what)
{
    return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %s", r->model->source, what);
}

/* An integer, or a text that is an expression over the vars so far. */
static ckpt_code read_number(const reader *r, const ckpt_item *item, int64_t min, int64_t max, int64_t *value)
{
    if (ckpt_item_type(item) != CKPT_JSON_TEXT) {
        return ckpt_item_int(item, min, max, value, r->err);
    }
    const ckpt_mark mark = ckpt_arena_mark(r->scratch);
    const char *text = "";
    int64_t found = 0;
    CKPT_TRY(ckpt_item_text(item, r->scratch, &text, r->err));
    const ckpt_code code = ckpt_model_eval(r->model, text, &found, r->err);
    if (code != CKPT_OK) {
        return ckpt_item_blame(item, code, r->err);
    }
    if (found < min || found > max) {
        return ckpt_item_fail(item, r->err, "\"%.60s\" is %" PRId64 ", wanted %" PRId64 " or %s", text, found,
                              found < min ? min : max, found < min ? "more" : "less");
    }
    ckpt_arena_rewind(r->scratch, mark);
    *value = found;
    return CKPT_OK;
}

/* Names that can stand in "in": letters, digits, _ . - */
static ckpt_code read_name(const reader *r, const ckpt_item *object, const char **name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    ckpt_item item;
    CKPT_TRY(ckpt_item_need(object, "name", &item, r->err));
    CKPT_TRY(ckpt_item_text(&item, r->out, name, r->err));
    const size_t length = strlen(*name);
    if (length == 0 || length > CKPT_NAME_MAX || strspn(*name, allowed) != length) {
        return ckpt_item_fail(&item, r->err, "found name \"%.60s\", wanted 1 to %d of A-Z a-z 0-9 _ . -", *name,
                              CKPT_NAME_MAX);
    }
    return CKPT_OK;
}

/* The last "--set" for this var, as the text after "="; NULL: none. */
static const char *find_set(const reader *r, const char *name)
{
    const size_t length = strlen(name);
    for (int i = r->set_count - 1; i >= 0; i--) {
        if (strncmp(r->set[i], name, length) == 0 && r->set[i][length] == '=') {
            return r->set[i] + length + 1;
        }
    }
    return NULL;
}

static ckpt_code eval_var(const reader *r, const char *text, ckpt_var *var)
{
    ckpt_number number = {0};
    CKPT_TRY(ckpt_expression_eval(text, r->model->var, r->model->var_count, -1, &number, r->err));
    var->value = number.integer;
    var->real = number.real;
    var->is_real = number.is_real;
    return CKPT_OK;
}

/* A number, true, false, or an expression over the vars so far. */
static ckpt_code read_value(const reader *r, const ckpt_item *item, ckpt_var *var)
{
    bool flag = false;
    switch (ckpt_item_type(item)) {
    case CKPT_JSON_REAL: var->is_real = true; return ckpt_item_real(item, &var->real, r->err);
    case CKPT_JSON_BOOL:
        CKPT_TRY(ckpt_item_bool(item, &flag, r->err));
        var->value = flag ? 1 : 0;
        return CKPT_OK;
    case CKPT_JSON_TEXT: {
        const char *text = "";
        CKPT_TRY(ckpt_item_text(item, r->scratch, &text, r->err));
        const ckpt_code code = eval_var(r, text, var);
        return code == CKPT_OK ? code : ckpt_item_blame(item, code, r->err);
    }
    case CKPT_JSON_INT:
    case CKPT_JSON_NULL:
    case CKPT_JSON_ARRAY:
    case CKPT_JSON_OBJECT: break;
    }
    return ckpt_item_int(item, INT64_MIN, INT64_MAX, &var->value, r->err);
}

static ckpt_code read_var(const reader *r, const ckpt_item *item, ckpt_var *var)
{
    if (!ckpt_expression_name(item->key)) {
        return ckpt_item_fail(item, r->err, "found var \"%.60s\", wanted a letter or _, then letters, digits, _",
                              item->key);
    }
    var->name = ckpt_arena_text(r->out, item->key);
    if (var->name == NULL) {
        return no_memory(r, "a var");
    }
    CKPT_TRY(read_value(r, item, var));
    const char *const set = find_set(r, item->key);
    if (set != NULL) {
        CKPT_TRY_WHILE(r->err, eval_var(r, set, var), "setting %.60s", item->key);
    }
    return CKPT_OK;
}

static ckpt_code check_sets(const reader *r)
{
    for (int i = 0; i < r->set_count; i++) {
        const size_t length = strcspn(r->set[i], "=");
        if (length == 0 || r->set[i][length] == '\0') {
            return CKPT_FAIL(r->err, CKPT_BAD_INPUT, "--set \"%.60s\": wanted var=number", r->set[i]);
        }
        bool known = false;
        char names[160] = "";
        for (int k = 0; k < r->model->var_count; k++) {
            const char *const name = r->model->var[k].name;
            known = known || (strncmp(name, r->set[i], length) == 0 && name[length] == '\0');
            if (strlen(names) + strlen(name) + 3 < sizeof names) {
                strcat(strcat(names, k > 0 ? ", " : ""), name);
            }
        }
        if (!known) {
            return CKPT_FAIL(r->err, CKPT_BAD_INPUT, "--set \"%.60s\": %.120s has no such var; it has %s", r->set[i],
                             r->model->source, r->model->var_count > 0 ? names : "none");
        }
    }
    return CKPT_OK;
}

static ckpt_code read_vars(const reader *r, const ckpt_item *root)
{
    ckpt_item vars;
    if (ckpt_item_find(root, "vars", &vars)) {
        CKPT_TRY(ckpt_item_object(&vars, r->err));
        ckpt_var *const var = CKPT_NEW(r->out, ckpt_var, ckpt_item_count(&vars));
        if (var == NULL) {
            return no_memory(r, "vars");
        }
        r->model->var = var;
        ckpt_item item;
        for (int i = 0; ckpt_item_next(&vars, &i, &item);) {
            CKPT_TRY(read_var(r, &item, &var[r->model->var_count]));
            r->model->var_count++; /* only now: a var is an expression over the ones before it */
        }
    }
    return check_sets(r);
}

/* "dtype": float32 or `other`; absent: float32. */
static ckpt_code read_dtype(const reader *r, const ckpt_item *object, ckpt_dtype other, ckpt_dtype *dtype)
{
    ckpt_item item;
    const char *text = "";
    *dtype = CKPT_FLOAT32;
    if (!ckpt_item_find(object, "dtype", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_text(&item, r->scratch, &text, r->err));
    if (strcmp(text, ckpt_dtype_name(other)) == 0) {
        *dtype = other;
    } else if (strcmp(text, ckpt_dtype_name(CKPT_FLOAT32)) != 0) {
        return ckpt_item_fail(&item, r->err, "found dtype \"%.40s\", wanted float32 or %s", text,
                              ckpt_dtype_name(other));
    }
    return CKPT_OK;
}

static ckpt_code read_input(const reader *r, const ckpt_item *item, ckpt_tensor *input)
{
    ckpt_item shape;
    int rank = 0;
    CKPT_TRY(ckpt_item_object(item, r->err));
    CKPT_TRY(read_name(r, item, &input->name));
    CKPT_TRY(read_dtype(r, item, CKPT_INT32, &input->dtype));
    CKPT_TRY(ckpt_need_array(item, "shape", &shape, &rank, r->err));
    if (rank > CKPT_RANK_MAX) {
        return ckpt_item_fail(&shape, r->err, "found a shape of %d dimensions, wanted at most %d", rank, CKPT_RANK_MAX);
    }
    input->shape.rank = rank;
    for (int d = 0; d < rank; d++) {
        ckpt_item dim;
        ckpt_item_at(&shape, d, &dim);
        CKPT_TRY(read_number(r, &dim, 1, INT64_MAX, &input->shape.dim[d]));
    }
    const ckpt_code code = ckpt_shape_check(&input->shape, input->dtype, r->err);
    return code == CKPT_OK ? code : ckpt_item_blame(&shape, code, r->err);
}

static ckpt_code read_inputs(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    int count = 0;
    CKPT_TRY(ckpt_member_array(root, "inputs", &array, &count, r->err));
    ckpt_tensor *const input = CKPT_NEW(r->out, ckpt_tensor, count);
    if (input == NULL) {
        return no_memory(r, "inputs");
    }
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_input(r, &item, &input[i]));
        for (int k = 0; k < i; k++) {
            if (strcmp(input[k].name, input[i].name) == 0) {
                return ckpt_item_fail(&item, r->err, "inputs %d and %d are both named \"%.60s\"", k, i, input[i].name);
            }
        }
    }
    r->model->input = input;
    r->model->input_count = count;
    return CKPT_OK;
}

static ckpt_code read_ints(const reader *r, const ckpt_item *item, ckpt_attr *attr)
{
    int64_t *const ints = CKPT_NEW(r->out, int64_t, ckpt_item_count(item));
    if (ints == NULL) {
        return no_memory(r, "a list");
    }
    attr->kind = CKPT_INTS;
    attr->ints = ints;
    attr->int_count = ckpt_item_count(item);
    for (int i = 0; i < attr->int_count; i++) {
        ckpt_item element;
        ckpt_item_at(item, i, &element);
        CKPT_TRY(read_number(r, &element, INT64_MIN, INT64_MAX, &ints[i]));
    }
    return CKPT_OK;
}

static ckpt_code read_attr(const reader *r, const ckpt_item *item, ckpt_attr *attr)
{
    bool flag = false;
    attr->name = ckpt_arena_text(r->out, item->key);
    if (attr->name == NULL) {
        return no_memory(r, "an attribute");
    }
    switch (ckpt_item_type(item)) {
    case CKPT_JSON_INT:
        attr->kind = CKPT_INT;
        CKPT_TRY(ckpt_item_int(item, INT64_MIN, INT64_MAX, &attr->integer, r->err));
        attr->real = (double)attr->integer;
        return CKPT_OK;
    case CKPT_JSON_REAL: attr->kind = CKPT_FLOAT; return ckpt_item_real(item, &attr->real, r->err);
    case CKPT_JSON_BOOL:
        attr->kind = CKPT_BOOL;
        CKPT_TRY(ckpt_item_bool(item, &flag, r->err));
        attr->integer = flag ? 1 : 0;
        return CKPT_OK;
    case CKPT_JSON_TEXT: attr->kind = CKPT_STRING; return ckpt_item_text(item, r->out, &attr->string, r->err);
    case CKPT_JSON_ARRAY: return read_ints(r, item, attr);
    case CKPT_JSON_NULL:
    case CKPT_JSON_OBJECT: break;
    }
    return ckpt_item_fail(item, r->err,
                          "attribute \"%.60s\" is %s, wanted a number, true, false, a text or a list of integers",
                          item->key, ckpt_item_type(item) == CKPT_JSON_NULL ? "null" : "an object");
}

/* All members but the `known` ones, as attributes. */
static ckpt_code read_attrs(const reader *r, const ckpt_item *object, const char *const *known, const ckpt_attr **attrs,
                            int *count)
{
    ckpt_attr *const attr = CKPT_NEW(r->out, ckpt_attr, ckpt_item_count(object));
    ckpt_item item;
    int used = 0;
    if (attr == NULL) {
        return no_memory(r, "attributes");
    }
    for (int i = 0; ckpt_item_next(object, &i, &item);) {
        bool skip = false;
        for (const char *const *k = known; *k != NULL; k++) {
            skip = skip || strcmp(*k, item.key) == 0;
        }
        if (!skip) {
            CKPT_TRY(read_attr(r, &item, &attr[used]));
            used++;
        }
    }
    *attrs = attr;
    *count = used;
    return CKPT_OK;
}

static ckpt_code read_choice(const reader *r, const ckpt_item *object, const char *key, ckpt_choice *choice)
{
    ckpt_item item;
    bool yes = false;
    if (ckpt_item_find(object, key, &item)) {
        CKPT_TRY(ckpt_item_bool(&item, &yes, r->err));
        *choice = yes ? CKPT_YES : CKPT_NO;
    }
    return CKPT_OK;
}

/* "when": an expression, true or false. */
static ckpt_code read_when(const reader *r, const ckpt_item *object, const char **when)
{
    ckpt_item item;
    bool yes = true;
    if (!ckpt_item_find(object, "when", &item)) {
        return CKPT_OK;
    }
    if (ckpt_item_type(&item) == CKPT_JSON_TEXT) {
        return ckpt_item_text(&item, r->scratch, when, r->err);
    }
    CKPT_TRY(ckpt_item_bool(&item, &yes, r->err));
    *when = yes ? NULL : "0";
    return CKPT_OK;
}

/* A name, or an object with one. */
static ckpt_code read_in(const reader *r, const ckpt_item *item, ckpt_entry_in *in)
{
    ckpt_item repeat;
    int64_t count = -1;
    in->repeat = -1;
    if (ckpt_item_type(item) != CKPT_JSON_OBJECT) {
        return ckpt_item_text(item, r->scratch, &in->name, r->err);
    }
    CKPT_TRY(ckpt_need_text(item, "name", r->scratch, &in->name, r->err));
    CKPT_TRY(read_when(r, item, &in->when));
    if (ckpt_item_find(item, "repeat", &repeat)) {
        CKPT_TRY(read_number(r, &repeat, 0, CKPT_IN_REPEAT_MAX, &count));
    }
    in->repeat = (int)count;
    return CKPT_OK;
}

static ckpt_code read_layer(const reader *r, ckpt_entry *entry)
{
    static const char *const known[] = {"name", "op", "in", "tie", "when", "checkpoint", "offload", "stage", NULL};
    ckpt_item array;
    CKPT_TRY(ckpt_need_text(&entry->item, "op", r->out, &entry->op, r->err));
    CKPT_TRY(ckpt_member_text(&entry->item, "tie", NULL, r->scratch, &entry->tie, r->err));
    if (ckpt_item_find(&entry->item, "in", &array)) {
        CKPT_TRY(ckpt_item_array(&array, &entry->in_count, r->err));
        ckpt_entry_in *const in = CKPT_NEW(r->scratch, ckpt_entry_in, entry->in_count);
        if (in == NULL) {
            return no_memory(r, "a list");
        }
        for (int k = 0; k < entry->in_count; k++) {
            ckpt_item item;
            ckpt_item_at(&array, k, &item);
            CKPT_TRY(read_in(r, &item, &in[k]));
        }
        entry->in = in;
    }
    return read_attrs(r, &entry->item, known, &entry->attr, &entry->attr_count);
}

static ckpt_code read_entries(const reader *r, const ckpt_item *parent, int depth, const ckpt_entry **entries,
                              int *count);

static ckpt_code read_block(const reader *r, const ckpt_item *repeat, int depth, ckpt_entry *entry)
{
    ckpt_item op;
    if (ckpt_item_find(&entry->item, "op", &op)) {
        return ckpt_item_fail(&op, r->err, "found \"op\" beside \"repeat\", wanted either a layer or a repeated block");
    }
    if (depth >= CKPT_BLOCK_DEPTH_MAX) {
        return ckpt_item_fail(&entry->item, r->err, "blocks are nested deeper than %d", CKPT_BLOCK_DEPTH_MAX);
    }
    CKPT_TRY(read_number(r, repeat, 0, CKPT_LAYERS_MAX, &entry->repeat));
    return read_entries(r, &entry->item, depth + 1, &entry->entry, &entry->entry_count);
}

static ckpt_code read_entry(const reader *r, int depth, ckpt_entry *entry)
{
    ckpt_item item;
    int64_t stage = -1;
    CKPT_TRY(ckpt_item_object(&entry->item, r->err));
    CKPT_TRY(read_name(r, &entry->item, &entry->name));
    CKPT_TRY(read_when(r, &entry->item, &entry->when));
    CKPT_TRY(read_choice(r, &entry->item, "checkpoint", &entry->checkpoint));
    CKPT_TRY(read_choice(r, &entry->item, "offload", &entry->offload));
    if (ckpt_item_find(&entry->item, "stage", &item)) {
        CKPT_TRY(read_number(r, &item, 0, INT32_MAX - 1, &stage));
    }
    entry->stage = (int)stage;
    if (ckpt_item_find(&entry->item, "repeat", &item)) {
        return read_block(r, &item, depth, entry);
    }
    return read_layer(r, entry);
}

static ckpt_code read_entries(const reader *r, const ckpt_item *parent, int depth, const ckpt_entry **entries,
                              int *count)
{
    ckpt_item *const array = CKPT_NEW(r->scratch, ckpt_item, 1);
    if (array == NULL) {
        return no_memory(r, "layers");
    }
    CKPT_TRY(ckpt_need_array(parent, "layers", array, count, r->err));
    if (*count == 0) {
        return ckpt_item_fail(array, r->err, "found no layer, wanted at least one");
    }
    ckpt_entry *const entry = CKPT_NEW(r->scratch, ckpt_entry, *count);
    ckpt_position *const at = CKPT_NEW(r->scratch, ckpt_position, *count);
    if (entry == NULL || at == NULL) {
        return no_memory(r, "layers");
    }
    ckpt_item_positions(array, at);
    for (int i = 0; i < *count; i++) {
        entry[i].at = at[i];
        ckpt_item_at(array, i, &entry[i].item);
        CKPT_TRY(read_entry(r, depth, &entry[i]));
    }
    *entries = entry;
    return CKPT_OK;
}

static ckpt_code read_group(const reader *r, const ckpt_item *item, ckpt_model_group *group)
{
    static const char *const known[] = {"match", "lr", "weight_decay", "matrix"};
    *group = (ckpt_model_group){.lr = 1, .weight_decay = -1};
    ckpt_item member;
    CKPT_TRY(ckpt_item_object(item, r->err));
    CKPT_TRY(ckpt_need_text(item, "match", r->out, &group->match, r->err));
    for (int i = 0; ckpt_item_next(item, &i, &member);) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            found = found || strcmp(member.key, known[k]) == 0;
        }
        if (!found) {
            return ckpt_item_fail(&member, r->err, "found \"%.60s\", wanted match, lr, weight_decay or matrix",
                                  member.key);
        }
    }
    if (ckpt_item_find(item, "lr", &member)) {
        CKPT_TRY(ckpt_item_real(&member, &group->lr, r->err));
        if (!(group->lr >= 0)) {
            return ckpt_item_fail(&member, r->err, "found lr %g, wanted a factor that is not negative", group->lr);
        }
    }
    if (ckpt_item_find(item, "weight_decay", &member)) {
        CKPT_TRY(ckpt_item_real(&member, &group->weight_decay, r->err));
        if (!(group->weight_decay >= 0)) {
            return ckpt_item_fail(&member, r->err, "found weight_decay %g, wanted none that is negative",
                                  group->weight_decay);
        }
    }
    return read_choice(r, item, "matrix", &group->matrix);
}

static ckpt_code read_groups(const reader *r, const ckpt_item *optimizer)
{
    ckpt_item array;
    if (!ckpt_item_find(optimizer, "groups", &array)) {
        return CKPT_OK;
    }
    int count = 0;
    CKPT_TRY(ckpt_need_array(optimizer, "groups", &array, &count, r->err));
    ckpt_model_group *const group = CKPT_NEW(r->out, ckpt_model_group, count);
    ckpt_position *const at = CKPT_NEW(r->scratch, ckpt_position, count);
    if (group == NULL || at == NULL) {
        return no_memory(r, "groups of parameters");
    }
    ckpt_item_positions(&array, at);
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_group(r, &item, &group[i]));
        group[i].at = at[i];
    }
    r->model->group = group;
    r->model->group_count = count;
    return CKPT_OK;
}

static ckpt_code read_schedule(const reader *r, const ckpt_item *optimizer, const char *key, ckpt_schedule *schedule)
{
    ckpt_item item;
    return ckpt_item_find(optimizer, key, &item) ? ckpt_schedule_item(&item, r->scratch, schedule, r->err) : CKPT_OK;
}

static ckpt_code read_optimizer(const reader *r, const ckpt_item *root)
{
    static const char *const known[] = {"name", "groups", "schedule", "clip_schedule", NULL};
    ckpt_item item;
    r->model->optimizer = "sgd";
    if (!ckpt_item_find(root, "optimizer", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_need_text(&item, "name", r->out, &r->model->optimizer, r->err));
    CKPT_TRY(read_groups(r, &item));
    CKPT_TRY(read_schedule(r, &item, "schedule", &r->model->schedule));
    CKPT_TRY(read_schedule(r, &item, "clip_schedule", &r->model->clip_schedule));
    return read_attrs(r, &item, known, &r->model->optimizer_attr, &r->model->optimizer_attr_count);
}

static ckpt_code read_model(const reader *r, const ckpt_item *root)
{
    ckpt_model *const model = r->model;
    const ckpt_entry *entry = NULL;
    int entry_count = 0;
    model->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (model->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_need_text(root, "name", r->out, &model->name, r->err));
    CKPT_TRY(read_vars(r, root));
    CKPT_TRY(read_dtype(r, root, CKPT_BFLOAT16, &model->dtype));
    CKPT_TRY(read_inputs(r, root));
    CKPT_TRY(read_entries(r, root, 0, &entry, &entry_count));
    CKPT_TRY(ckpt_model_expand(model, entry, entry_count, r->scratch, r->out, r->err));
    return read_optimizer(r, root);
}

ckpt_code ckpt_model_item(const ckpt_item *root, const char *const *set, int set_count, ckpt_arena *out,
                          const ckpt_model **model, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const reader r = {out, &scratch, set, set_count, CKPT_NEW(out, ckpt_model, 1), err};
    const ckpt_code code = r.model != NULL
                               ? read_model(&r, root)
                               : CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    ckpt_arena_fini(&scratch);
    if (code == CKPT_OK) {
        *model = r.model;
    }
    return code;
}

ckpt_code ckpt_model_read(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                          const ckpt_model **model, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-model", &json, &root, err));
    const ckpt_code code = ckpt_model_item(&root, set, set_count, out, model, err);
    ckpt_json_close(json);
    return code;
}

ckpt_code ckpt_model_with_dtype(const ckpt_model *model, const char *name, ckpt_arena *out, const ckpt_model **changed,
                                ckpt_err *err)
{
    if (name == NULL) {
        *changed = model;
        return CKPT_OK;
    }
    const bool narrow = strcmp(name, ckpt_dtype_name(CKPT_BFLOAT16)) == 0;
    if (!narrow && strcmp(name, ckpt_dtype_name(CKPT_FLOAT32)) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found dtype \"%.40s\", wanted float32 or bfloat16", name);
    }
    ckpt_model *const copy = CKPT_NEW(out, ckpt_model, 1);
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", model->source);
    }
    *copy = *model;
    copy->dtype = narrow ? CKPT_BFLOAT16 : CKPT_FLOAT32;
    *changed = copy;
    return CKPT_OK;
}

static bool is_common(const char *name)
{
    static const char *const common[] = {"lr", "weight_decay", "clip_norm", "loss_scale", "ema"};
    bool found = false;
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        found = found || strcmp(common[i], name) == 0;
    }
    return found;
}

/* "key=0.9" or "key=true" as an attribute. */
static ckpt_code read_hyper(char *word, ckpt_attr *attr, ckpt_err *err)
{
    char *const equals = strchr(word, '=');
    const char *end = NULL;
    if (equals == NULL || equals == word) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--optimizer: \"%.40s\", wanted NAME:KEY=NUMBER,...", word);
    }
    *equals = '\0';
    *attr = (ckpt_attr){.name = word, .kind = CKPT_FLOAT};
    if (strcmp(equals + 1, "true") == 0 || strcmp(equals + 1, "false") == 0) {
        attr->kind = CKPT_BOOL;
        attr->integer = equals[1] == 't';
        return CKPT_OK;
    }
    attr->real = ckpt_real_parse(equals + 1, &end);
    return end != equals + 1 && *end == '\0' && isfinite(attr->real)
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "--optimizer: %.40s is \"%.40s\", wanted a number, true or false", word,
                           equals + 1);
}

ckpt_code ckpt_model_with_optimizer(const ckpt_model *model, const char *text, ckpt_arena *out,
                                    const ckpt_model **changed, ckpt_err *err)
{
    if (text == NULL) {
        *changed = model;
        return CKPT_OK;
    }
    ckpt_model *const copy = CKPT_NEW(out, ckpt_model, 1);
    char *const name = ckpt_arena_text(out, text);
    ckpt_attr *const attr = CKPT_NEW(out, ckpt_attr, (size_t)model->optimizer_attr_count + strlen(text));
    if (copy == NULL || name == NULL || attr == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", model->source);
    }
    int count = 0;
    char *const colon = strchr(name, ':');
    for (char *word = colon != NULL ? colon + 1 : NULL, *next = NULL; word != NULL; word = next) {
        char *const comma = strchr(word, ',');
        next = comma != NULL ? comma + 1 : NULL;
        if (comma != NULL) {
            *comma = '\0';
        }
        CKPT_TRY(read_hyper(word, &attr[count++], err));
    }
    if (colon != NULL) {
        *colon = '\0';
    }
    const int given = count;
    for (int i = 0; i < model->optimizer_attr_count; i++) {
        bool again = !is_common(model->optimizer_attr[i].name);
        for (int k = 0; k < given; k++) {
            again = again || strcmp(attr[k].name, model->optimizer_attr[i].name) == 0;
        }
        if (!again) {
            attr[count++] = model->optimizer_attr[i];
        }
    }
    *copy = *model;
    copy->optimizer = name;
    copy->optimizer_attr = attr;
    copy->optimizer_attr_count = count;
    *changed = copy;
    return CKPT_OK;
}

/* The optimizer's attributes with another "lr". */
static ckpt_code change_lr(ckpt_model *model, const char *text, ckpt_arena *out, ckpt_err *err)
{
    const char *end = NULL;
    const double lr = ckpt_real_parse(text, &end);
    if (end == text || *end != '\0' || !isfinite(lr)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--lr \"%.40s\": wanted a number", text);
    }
    ckpt_attr *const attr = CKPT_NEW(out, ckpt_attr, model->optimizer_attr_count + 1);
    if (attr == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", model->source);
    }
    int count = 0;
    for (int i = 0; i < model->optimizer_attr_count; i++) {
        if (strcmp(model->optimizer_attr[i].name, "lr") != 0) {
            attr[count++] = model->optimizer_attr[i];
        }
    }
    attr[count++] = (ckpt_attr){.name = "lr", .kind = CKPT_FLOAT, .real = lr};
    model->optimizer_attr = attr;
    model->optimizer_attr_count = count;
    return CKPT_OK;
}

ckpt_code ckpt_model_with_rate(const ckpt_model *model, const char *lr, const char *schedule, ckpt_arena *out,
                               const ckpt_model **changed, ckpt_err *err)
{
    ckpt_model *const copy = CKPT_NEW(out, ckpt_model, 1);
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", model->source);
    }
    *copy = *model;
    if (lr != NULL) {
        CKPT_TRY(change_lr(copy, lr, out, err));
    }
    if (schedule != NULL) {
        CKPT_TRY_WHILE(err, ckpt_schedule_parse(schedule, &copy->schedule, err), "reading --schedule");
    }
    *changed = copy;
    return CKPT_OK;
}
