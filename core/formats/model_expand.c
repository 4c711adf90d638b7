/* Unrolls repeated blocks and resolves what each layer reads. A name is looked up in the innermost copy first, then
 * outwards, then as an absolute name; only what stands before a layer can be found. */
#include <stdio.h>
#include <string.h>

#include "core/base/names.h"
#include "core/formats/expression_impl.h"
#include "core/formats/model_impl.h"

enum { TEXT_MAX = 2 * CKPT_NAME_MAX + 2 };

/* The copy of a block that is being unrolled. */
typedef struct scope {
    const struct scope *outer;    /* NULL: the top */
    char name[CKPT_NAME_MAX + 1]; /* "h.0"; "" at the top */
    int64_t copy;
    int entry; /* the layer before this copy, whose value `^` is; -1: the first input */
    ckpt_choice checkpoint, offload;
    const char *segment;
    int stage;
} scope;

typedef struct expander {
    ckpt_model *model;
    ckpt_layer *layer;
    ckpt_names names; /* inputs as their number, layers as input_count + their number */
    ckpt_arena *out;
    ckpt_err *err;
} expander;

static ckpt_code count_layers(const ckpt_entry *entry, int count, int64_t copies, int64_t *total, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        int64_t inner = copies;
        if (entry[i].op == NULL) {
            /* Every product is at most 10^12 and every block holds a layer, so the sum is caught in time. */
            inner = copies * entry[i].repeat;
            if (inner <= CKPT_LAYERS_MAX) {
                CKPT_TRY(count_layers(entry[i].entry, entry[i].entry_count, inner, total, err));
                continue;
            }
        }
        *total += inner;
        if (*total > CKPT_LAYERS_MAX) {
            return ckpt_item_fail(&entry[i].item, err, "the model has more than %d layers once its blocks are repeated",
                                  CKPT_LAYERS_MAX);
        }
    }
    return CKPT_OK;
}

/* The place of in[k], or of the layer when it has no "in". */
static ckpt_code fail_in(const expander *x, const ckpt_entry *entry, int k, const char *message)
{
    ckpt_item in;
    ckpt_item text;
    if (k < 0 || !ckpt_item_find(&entry->item, k < entry->in_count ? "in" : "tie", &in)) {
        return ckpt_item_fail(&entry->item, x->err, "%s", message);
    }
    if (k >= entry->in_count) {
        return ckpt_item_fail(&in, x->err, "%s", message);
    }
    ckpt_item_at(&in, k, &text);
    return ckpt_item_fail(&text, x->err, "%s", message);
}

/* `text` with every # replaced by `number`; -1: there is none. */
static ckpt_code fill_number(const expander *x, const ckpt_entry *entry, int k, int64_t number, const char *text,
                             char filled[TEXT_MAX])
{
    size_t length = 0;
    char message[200];
    filled[0] = '\0';
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '#' && number < 0) {
            snprintf(message, sizeof message, "found # in \"%.60s\", which has a meaning only in a repeated block",
                     text);
            return fail_in(x, entry, k, message);
        }
        if (length + 20 >= TEXT_MAX) {
            snprintf(message, sizeof message, "found \"%.40s...\", wanted a name of at most %d bytes", text,
                     CKPT_NAME_MAX);
            return fail_in(x, entry, k, message);
        }
        if (*c == '#') {
            length += (size_t)snprintf(filled + length, TEXT_MAX - length, "%lld", (long long)number);
        } else {
            filled[length++] = *c;
            filled[length] = '\0';
        }
    }
    return CKPT_OK;
}

/* Cut ":k" off `text`. False: what follows ':' is no number. */
static bool split_output(char *text, int *output)
{
    char *const colon = strchr(text, ':');
    *output = 0;
    if (colon == NULL) {
        return true;
    }
    *colon = '\0';
    const char *digit = colon + 1;
    for (; *digit >= '0' && *digit <= '9' && *output <= CKPT_OUTPUT_NUMBER_MAX; digit++) {
        *output = 10 * *output + (*digit - '0');
    }
    return *digit == '\0' && digit > colon + 1 && *output <= CKPT_OUTPUT_NUMBER_MAX;
}

/* Number in x->names of `name` as seen from `s`; -1: not there. */
static int look_up(const expander *x, const scope *s, const char *name)
{
    char full[CKPT_NAME_MAX + 1 + TEXT_MAX];
    for (; s != NULL; s = s->outer) {
        snprintf(full, sizeof full, "%s%s%s", s->name, s->outer != NULL ? "." : "", name);
        const int found = ckpt_names_find(&x->names, full);
        if (found >= 0) {
            return found;
        }
    }
    return -1;
}

static ckpt_ref make_ref(const expander *x, int number, int output)
{
    const int inputs = x->model->input_count;
    return number < inputs ? (ckpt_ref){-1 - number, output} : (ckpt_ref){number - inputs, output};
}

/* The number that # stands for. */
static int64_t copy_of(const scope *s)
{
    return s->outer != NULL ? s->copy : -1;
}

static ckpt_code resolve(const expander *x, const ckpt_entry *entry, int k, const scope *s, int64_t copy, ckpt_ref *ref)
{
    const char *const name = entry->in[k].name;
    char text[TEXT_MAX];
    char message[200];
    int output = 0;
    int number = -1;
    CKPT_TRY(fill_number(x, entry, k, copy, name, text));
    if (!split_output(text, &output)) {
        snprintf(message, sizeof message,
                 "found \"%.60s\", wanted \"name\" or \"name:k\" with k the number of an output", name);
        return fail_in(x, entry, k, message);
    }
    if (strcmp(text, "^") == 0) {
        if (s->outer == NULL) {
            return fail_in(x, entry, k, "found ^, which has a meaning only in a repeated block");
        }
        if (s->entry < 0 && x->model->input_count == 0) {
            return fail_in(x, entry, k, "found ^, but no layer stands before the block and the model has no input");
        }
        number = s->entry < 0 ? 0 : x->model->input_count + s->entry;
    } else {
        number = look_up(x, s, text);
    }
    if (number < 0) {
        snprintf(message, sizeof message, "found \"%.60s\", wanted an input or a layer that stands before %.60s", text,
                 entry->name);
        return fail_in(x, entry, k, message);
    }
    *ref = make_ref(x, number, output);
    if (ref->layer < 0 && output > 0) {
        snprintf(message, sizeof message, "found \"%.60s\", but an input has no output number", name);
        return fail_in(x, entry, k, message);
    }
    return CKPT_OK;
}

/* Is the element or entry `item` there in this copy? */
static ckpt_code holds(const expander *x, const ckpt_item *item, const char *when, const scope *s, bool *yes)
{
    ckpt_number value = {.integer = 1};
    ckpt_item text;
    if (when != NULL) {
        const ckpt_code code =
            ckpt_expression_eval(when, x->model->var, x->model->var_count, copy_of(s), &value, x->err);
        if (code != CKPT_OK) {
            return ckpt_item_find(item, "when", &text) ? ckpt_item_blame(&text, code, x->err) : code;
        }
    }
    *yes = value.is_real ? value.real != 0 : value.integer != 0;
    return CKPT_OK;
}

/* What in[k] stands for: one input, none, or as many as its "repeat" says. */
static ckpt_code resolve_element(const expander *x, const ckpt_entry *entry, int k, const scope *s, ckpt_ref *in,
                                 int *count)
{
    const ckpt_entry_in *const element = &entry->in[k];
    ckpt_item array, item;
    bool there = true;
    if (element->when != NULL && ckpt_item_find(&entry->item, "in", &array)) {
        ckpt_item_at(&array, k, &item);
        CKPT_TRY(holds(x, &item, element->when, s, &there));
    }
    const int repeat = !there ? 0 : element->repeat < 0 ? 1 : element->repeat;
    for (int j = 0; j < repeat; j++) {
        CKPT_TRY(resolve(x, entry, k, s, element->repeat < 0 ? copy_of(s) : j, &in[*count]));
        (*count)++;
    }
    return CKPT_OK;
}

static ckpt_code resolve_all(const expander *x, const ckpt_entry *entry, const scope *s, ckpt_layer *layer)
{
    int64_t room = entry->in != NULL ? 0 : 1;
    for (int k = 0; k < entry->in_count; k++) {
        room += entry->in[k].repeat < 0 ? 1 : entry->in[k].repeat;
    }
    ckpt_ref *const in = CKPT_NEW(x->out, ckpt_ref, room);
    if (in == NULL) {
        return CKPT_FAIL(x->err, CKPT_NO_MEMORY, "%.200s: no memory for %lld inputs", x->model->source,
                         (long long)room);
    }
    layer->in = in;
    layer->in_count = 0;
    for (int k = 0; k < entry->in_count; k++) {
        CKPT_TRY(resolve_element(x, entry, k, s, in, &layer->in_count));
    }
    if (entry->in == NULL) {
        if (x->model->layer_count == 0 && x->model->input_count == 0) {
            return fail_in(x, entry, -1, "the first layer has no \"in\", and the model no input it could read");
        }
        in[0] = (ckpt_ref){x->model->layer_count - 1, 0}; /* -1: the first input */
        layer->in_count = 1;
    }
    return CKPT_OK;
}

static ckpt_code resolve_tie(const expander *x, const ckpt_entry *entry, const scope *s, ckpt_layer *layer)
{
    char text[TEXT_MAX];
    char message[200];
    layer->tie = -1;
    if (entry->tie == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(fill_number(x, entry, entry->in_count, copy_of(s), entry->tie, text));
    const ckpt_ref ref = make_ref(x, look_up(x, s, text), 0);
    if (look_up(x, s, text) < 0 || ref.layer < 0) {
        snprintf(message, sizeof message, "found \"%.60s\", wanted a layer that stands before %.60s", text,
                 entry->name);
        return fail_in(x, entry, entry->in_count, message);
    }
    const ckpt_layer *const owner = &x->layer[ref.layer];
    if (owner->tie >= 0) {
        snprintf(message, sizeof message, "found \"%.60s\", which is itself tied: wanted \"%.60s\"", text,
                 x->layer[owner->tie].name);
        return fail_in(x, entry, entry->in_count, message);
    }
    layer->tie = ref.layer;
    return CKPT_OK;
}

static ckpt_code full_name(const expander *x, const ckpt_entry *entry, const scope *s, const char **name)
{
    char *const text = ckpt_arena_format(x->out, "%s%s%s", s->name, s->outer != NULL ? "." : "", entry->name);
    if (text == NULL) {
        return CKPT_FAIL(x->err, CKPT_NO_MEMORY, "%.200s: no memory for a layer", x->model->source);
    }
    if (strlen(text) > CKPT_NAME_MAX) {
        return ckpt_item_fail(&entry->item, x->err, "the full name \"%.40s...\" has more than %d bytes", text,
                              CKPT_NAME_MAX);
    }
    if (strcmp(text, "workspace") == 0) {
        return ckpt_item_fail(&entry->item, x->err,
                              "a layer cannot be named \"workspace\", which means scratch in plans");
    }
    *name = text;
    return CKPT_OK;
}

/* The unit of that name; inside a block that is recomputed behind that one's. */
static ckpt_code nested_segment(expander *x, const scope *around, const char *name, const char **segment)
{
    const bool nested = around->checkpoint == CKPT_YES;
    *segment = nested ? ckpt_arena_format(x->out, "%s/%s", around->segment, name) : ckpt_arena_text(x->out, name);
    return *segment != NULL ? CKPT_OK
                            : CKPT_FAIL(x->err, CKPT_NO_MEMORY, "%.200s: no memory for a segment", x->model->source);
}

/* `text` with every # replaced by `number`; NULL: no memory. */
static const char *with_number(ckpt_arena *out, const char *text, int64_t number)
{
    const char *filled = "";
    for (const char *sign = strchr(text, '#'); sign != NULL && filled != NULL; sign = strchr(text, '#')) {
        filled = ckpt_arena_format(out, "%s%.*s%lld", filled, (int)(sign - text), text, (long long)number);
        text = sign + 1;
    }
    return filled != NULL ? ckpt_arena_format(out, "%s%s", filled, text) : NULL;
}

/* The layer's attributes: the entry's, and a copy of them where a text has the number of the copy in it. */
static ckpt_code fill_attributes(const expander *x, const ckpt_entry *entry, int64_t copy, ckpt_layer *layer)
{
    ckpt_attr *own = NULL;
    layer->attr = entry->attr;
    layer->attr_count = entry->attr_count;
    for (int i = 0; copy >= 0 && i < entry->attr_count; i++) {
        if (entry->attr[i].kind != CKPT_STRING || strchr(entry->attr[i].string, '#') == NULL) {
            continue;
        }
        if (own == NULL && (own = CKPT_NEW(x->out, ckpt_attr, entry->attr_count)) != NULL) {
            memcpy(own, entry->attr, (size_t)entry->attr_count * sizeof *own);
        }
        const char *const text = own != NULL ? with_number(x->out, entry->attr[i].string, copy) : NULL;
        if (text == NULL) {
            return CKPT_FAIL(x->err, CKPT_NO_MEMORY, "%.200s: no memory for attributes", x->model->source);
        }
        own[i].string = text;
        layer->attr = own;
    }
    return CKPT_OK;
}

static ckpt_code add_layer(expander *x, const ckpt_entry *entry, const scope *s)
{
    ckpt_layer *const layer = &x->layer[x->model->layer_count];
    CKPT_TRY(full_name(x, entry, s, &layer->name));
    CKPT_TRY(resolve_all(x, entry, s, layer));
    CKPT_TRY(resolve_tie(x, entry, s, layer));
    const int number = x->model->input_count + x->model->layer_count;
    const int first = ckpt_names_add(&x->names, layer->name, number);
    if (first >= 0) {
        return ckpt_item_fail(&entry->item, x->err, "the name \"%.80s\" is already that of %s", layer->name,
                              first < x->model->input_count ? "an input" : "another layer");
    }
    const bool own = entry->checkpoint != CKPT_UNSET;
    layer->op = entry->op;
    CKPT_TRY(fill_attributes(x, entry, copy_of(s), layer));
    layer->checkpoint = own ? entry->checkpoint : s->checkpoint;
    CKPT_TRY(own ? nested_segment(x, s, layer->name, &layer->segment) : CKPT_OK);
    layer->segment = own ? layer->segment : s->segment;
    layer->offload = entry->offload != CKPT_UNSET ? entry->offload : s->offload;
    layer->stage = entry->stage >= 0 ? entry->stage : s->stage;
    layer->at = entry->at;
    x->model->layer_count++;
    return CKPT_OK;
}

static ckpt_code expand(expander *x, const ckpt_entry *entry, int count, const scope *s);

static ckpt_code expand_copy(expander *x, const ckpt_entry *block, int64_t copy, const scope *outer)
{
    scope s = *outer;
    s.outer = outer;
    s.copy = copy;
    s.entry = x->model->layer_count - 1;
    const int length = snprintf(s.name, sizeof s.name, "%s%s%s.%lld", outer->name, outer->outer != NULL ? "." : "",
                                block->name, (long long)copy);
    if (length > CKPT_NAME_MAX) {
        return ckpt_item_fail(&block->item, x->err, "the full name of copy %lld has more than %d bytes",
                              (long long)copy, CKPT_NAME_MAX);
    }
    if (block->checkpoint != CKPT_UNSET) {
        CKPT_TRY(nested_segment(x, outer, s.name, &s.segment));
        s.checkpoint = block->checkpoint;
    }
    s.offload = block->offload != CKPT_UNSET ? block->offload : s.offload;
    s.stage = block->stage >= 0 ? block->stage : s.stage;
    return expand(x, block->entry, block->entry_count, &s);
}

static ckpt_code expand(expander *x, const ckpt_entry *entry, int count, const scope *s)
{
    for (int i = 0; i < count; i++) {
        bool there = true;
        CKPT_TRY(holds(x, &entry[i].item, entry[i].when, s, &there));
        if (!there) {
            continue;
        }
        if (entry[i].op != NULL) {
            CKPT_TRY(add_layer(x, &entry[i], s));
            continue;
        }
        for (int64_t copy = 0; copy < entry[i].repeat; copy++) {
            CKPT_TRY(expand_copy(x, &entry[i], copy, s));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_model_expand(ckpt_model *model, const ckpt_entry *entry, int entry_count, ckpt_arena *scratch,
                            ckpt_arena *out, ckpt_err *err)
{
    int64_t total = 0;
    CKPT_TRY(count_layers(entry, entry_count, 1, &total, err));
    expander x = {.model = model, .layer = CKPT_NEW(out, ckpt_layer, total), .out = out, .err = err};
    if (x.layer == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %lld layers", model->source, (long long)total);
    }
    model->layer = x.layer;
    CKPT_TRY(ckpt_names_init(&x.names, model->input_count + (int)total, scratch, err));
    for (int i = 0; i < model->input_count; i++) {
        ckpt_names_add(&x.names, model->input[i].name, i); /* unique: the reader has seen to it */
    }
    const scope top = {.entry = -1, .stage = -1};
    CKPT_TRY(expand(&x, entry, entry_count, &top));
    return model->layer_count > 0 ? CKPT_OK
                                  : ckpt_item_fail(&entry[0].item, err, "no layer is left by \"when\" and \"repeat\"");
}
