/* A configuration becomes assignments to the vars of its family's template: those of its type, then those it gives
 * itself, then the user's. The last one for a var counts, as with --set. */
#include <string.h>

#include "ops/import/family_impl.h"
#include "ops/import/model_file.h"

typedef struct importer {
    const ckpt_item *config, *family, *type;
    ckpt_arena *scratch;
    const char **set;
    int set_count;
    ckpt_err *err;
} importer;

bool ckpt_config_is(const ckpt_item *root)
{
    ckpt_item item;
    return !ckpt_item_find(root, "format", &item) && ckpt_item_find(root, "model_type", &item);
}

static ckpt_code no_memory(const importer *m)
{
    return CKPT_FAIL(m->err, CKPT_NO_MEMORY, "%.200s: no memory for its vars", ckpt_json_source(m->config->json));
}

/* "rope_parameters.rope_theta": a member of a member. "#id2label": how many members it has. */
static ckpt_code find_path(const importer *m, const ckpt_item *path, ckpt_item *item, bool *found, bool *counted)
{
    const char *text = "";
    CKPT_TRY(ckpt_item_text(path, m->scratch, &text, m->err));
    *counted = text[0] == '#';
    text += *counted ? 1 : 0;
    *item = *m->config;
    *found = true;
    while (*found && text != NULL) {
        const ckpt_item inside = *item;
        const size_t length = strcspn(text, ".");
        const char *const key = ckpt_arena_format(m->scratch, "%.*s", (int)length, text); /* the item points to it */
        if (key == NULL) {
            return no_memory(m);
        }
        *found = ckpt_item_find(&inside, key, item);
        text = text[length] == '.' ? text + length + 1 : NULL;
    }
    return CKPT_OK;
}

/* A number, true or false as a text; in a list or object, or of a text: an error. */
static ckpt_code show_number(const importer *m, const ckpt_item *item, ckpt_text *text)
{
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    switch (ckpt_item_type(item)) {
    case CKPT_JSON_INT:
        CKPT_TRY(ckpt_item_int(item, INT64_MIN, INT64_MAX, &whole, m->err));
        ckpt_text_int(text, whole);
        return CKPT_OK;
    case CKPT_JSON_BOOL:
        CKPT_TRY(ckpt_item_bool(item, &flag, m->err));
        ckpt_text_add(text, "%d", flag ? 1 : 0);
        return CKPT_OK;
    case CKPT_JSON_REAL:
    case CKPT_JSON_NULL:
    case CKPT_JSON_TEXT:
    case CKPT_JSON_ARRAY:
    case CKPT_JSON_OBJECT: break;
    }
    CKPT_TRY(ckpt_item_real(item, &real, m->err));
    ckpt_text_real(text, real);
    return CKPT_OK;
}

/* The number of a word, which is a member of `words`; true, false and numbers are words too. */
static ckpt_code find_word(const importer *m, const ckpt_item *item, const char *key, const ckpt_item *words,
                           ckpt_item *found)
{
    ckpt_item known;
    const char *word = "";
    if (ckpt_item_type(item) == CKPT_JSON_BOOL) {
        bool flag = false;
        CKPT_TRY(ckpt_item_bool(item, &flag, m->err));
        word = flag ? "true" : "false";
    } else if (ckpt_item_type(item) == CKPT_JSON_INT || ckpt_item_type(item) == CKPT_JSON_REAL) {
        char number[CKPT_REAL_TEXT];
        double real = 0;
        CKPT_TRY(ckpt_item_real(item, &real, m->err));
        word = ckpt_arena_text(m->scratch, ckpt_real_general(real, 17, number));
        if (word == NULL) {
            return no_memory(m);
        }
    } else {
        CKPT_TRY(ckpt_item_text(item, m->scratch, &word, m->err));
    }
    if (ckpt_item_find(words, word, found)) {
        return CKPT_OK;
    }
    char list[300] = "";
    for (int i = 0; ckpt_item_next(words, &i, &known);) {
        const size_t used = strlen(list), more = strlen(known.key);
        if (used + more + 3 < sizeof list) {
            strcat(strcat(list, used > 0 ? ", " : ""), known.key);
        }
    }
    return ckpt_item_fail(item, m->err, "\"%.60s\": found %.60s, wanted %s: no other is supported", key, word, list);
}

/* The same of a list, all words of which must be one. */
static ckpt_code find_words(const importer *m, const ckpt_item *list, const char *key, const ckpt_item *words,
                            ckpt_item *found)
{
    const int count = ckpt_item_count(list);
    for (int i = 0; i < count; i++) {
        ckpt_item element, own;
        ckpt_item_at(list, i, &element);
        CKPT_TRY(find_word(m, &element, key, words, &own));
        if (i > 0 && strcmp(own.key, found->key) != 0) {
            return ckpt_item_fail(&element, m->err, "\"%.40s\" is not the same for all layers, which is not supported",
                                  key);
        }
        *found = own;
    }
    return count > 0 ? CKPT_OK : ckpt_item_fail(list, m->err, "\"%.40s\" is empty, wanted a word for each layer", key);
}

static ckpt_code add_set(importer *m, const char *var, const ckpt_item *value, const ckpt_item *words)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_text_add(&text, "%s=", var);
    ckpt_item number = *value;
    ckpt_code code = words == NULL                              ? CKPT_OK
                     : ckpt_item_type(value) == CKPT_JSON_ARRAY ? find_words(m, value, value->key, words, &number)
                                                                : find_word(m, value, value->key, words, &number);
    code = code == CKPT_OK ? show_number(m, &number, &text) : code;
    code = code == CKPT_OK ? ckpt_text_end(&text, m->err) : code;
    if (code == CKPT_OK) {
        m->set[m->set_count] = ckpt_arena_text(m->scratch, text.bytes);
        code = m->set[m->set_count++] != NULL ? CKPT_OK : no_memory(m);
    }
    ckpt_text_fini(&text);
    return code;
}

/* What the family says itself: a number, or an expression over the vars before. */
static ckpt_code add_fixed(importer *m, const char *var, const ckpt_item *value)
{
    const char *text = "";
    if (ckpt_item_type(value) != CKPT_JSON_TEXT) {
        return add_set(m, var, value, NULL);
    }
    CKPT_TRY(ckpt_item_text(value, m->scratch, &text, m->err));
    m->set[m->set_count] = ckpt_arena_format(m->scratch, "%s=%s", var, text);
    return m->set[m->set_count++] != NULL ? CKPT_OK : no_memory(m);
}

static ckpt_code add_type(importer *m, const ckpt_item *vars)
{
    ckpt_item item;
    for (int i = 0; ckpt_item_next(vars, &i, &item);) {
        CKPT_TRY(add_fixed(m, item.key, &item));
    }
    return CKPT_OK;
}

/* The member for this var of the family's member `table`. */
static bool find_for(const importer *m, const char *table, const char *var, ckpt_item *member)
{
    ckpt_item all;
    return ckpt_item_find(m->family, table, &all) && ckpt_item_find(&all, var, member);
}

/* A value of a configuration for a var. null is as good as absent, where the family does not say what it means. */
static ckpt_code add_value(importer *m, const char *var, const ckpt_item *value, bool counted, bool *taken)
{
    ckpt_item meant, words;
    *taken = ckpt_item_type(value) != CKPT_JSON_NULL || find_for(m, "nulls", var, &meant);
    if (counted && *taken) {
        CKPT_TRY(ckpt_item_object(value, m->err));
        m->set[m->set_count] = ckpt_arena_format(m->scratch, "%s=%d", var, ckpt_item_count(value));
        return m->set[m->set_count++] != NULL ? CKPT_OK : no_memory(m);
    }
    if (ckpt_item_type(value) == CKPT_JSON_NULL) {
        return *taken ? add_fixed(m, var, &meant) : CKPT_OK;
    }
    return add_set(m, var, value, find_for(m, "words", var, &words) ? &words : NULL);
}

/* "reads": var by var the configuration's key, or several of which the first that is there counts. */
static ckpt_code add_read(importer *m, const ckpt_item *reads)
{
    ckpt_item var, path, value;
    for (int i = 0; ckpt_item_next(reads, &i, &var);) {
        const bool list = ckpt_item_type(&var) == CKPT_JSON_ARRAY;
        bool taken = false;
        for (int k = 0; !taken && k < (list ? ckpt_item_count(&var) : 1); k++) {
            bool found = false, counted = false;
            path = var;
            if (list) {
                ckpt_item_at(&var, k, &path);
            }
            CKPT_TRY(find_path(m, &path, &value, &found, &counted));
            CKPT_TRY(found ? add_value(m, var.key, &value, counted, &taken) : CKPT_OK);
        }
    }
    return CKPT_OK;
}

static ckpt_code check_refused(const importer *m)
{
    ckpt_item refused, path, value;
    if (!ckpt_item_find(m->family, "refuses", &refused)) {
        return CKPT_OK;
    }
    for (int i = 0; i < ckpt_item_count(&refused); i++) {
        bool found = false, counted = false;
        ckpt_item_at(&refused, i, &path);
        CKPT_TRY(find_path(m, &path, &value, &found, &counted));
        if (found && ckpt_item_type(&value) != CKPT_JSON_NULL) {
            return ckpt_item_fail(&value, m->err, "\"%.60s\" is not supported", value.key);
        }
    }
    return CKPT_OK;
}

static ckpt_code collect(importer *m, const char *const *set, int set_count)
{
    ckpt_item fixed, common, own;
    const bool has_fixed = ckpt_item_find(m->type, "vars", &fixed);
    const bool has_common = ckpt_item_find(m->family, "reads", &common),
               has_own = ckpt_item_find(m->type, "reads", &own);
    const int room = (has_fixed ? ckpt_item_count(&fixed) : 0) + (has_common ? ckpt_item_count(&common) : 0) +
                     (has_own ? ckpt_item_count(&own) : 0) + set_count;
    m->set = CKPT_NEW(m->scratch, const char *, room);
    if (m->set == NULL) {
        return no_memory(m);
    }
    CKPT_TRY(check_refused(m));
    CKPT_TRY(has_fixed ? add_type(m, &fixed) : CKPT_OK);
    CKPT_TRY(has_common ? add_read(m, &common) : CKPT_OK);
    CKPT_TRY(has_own ? add_read(m, &own) : CKPT_OK);
    for (int i = 0; i < set_count; i++) {
        m->set[m->set_count++] = set[i];
    }
    return CKPT_OK;
}

static ckpt_code fill(importer *m, const char *model_type, const char *const *set, int set_count, ckpt_arena *out,
                      const ckpt_model **model)
{
    ckpt_item type, template;
    CKPT_TRY(ckpt_family_type(m->family, model_type, &type, m->err));
    m->type = &type;
    CKPT_TRY(ckpt_item_need(m->family, "model", &template, m->err));
    CKPT_TRY(collect(m, set, set_count));
    const ckpt_model *filled = NULL;
    CKPT_TRY(ckpt_model_item(&template, m->set, m->set_count, out, &filled, m->err));
    ckpt_model *const named = CKPT_NEW(out, ckpt_model, 1);
    if (named == NULL) {
        return no_memory(m);
    }
    *named = *filled;
    named->family = ckpt_arena_text(out, model_type);
    named->name = named->family;
    *model = named;
    return named->family != NULL ? CKPT_OK : no_memory(m);
}

static ckpt_code fail_type(const ckpt_item *item, const char *model_type, ckpt_err *err)
{
    ckpt_text known;
    ckpt_text_init(&known);
    ckpt_code code = ckpt_family_list(&known, err);
    if (code == CKPT_OK) {
        code = ckpt_item_fail(item, err, "found model_type \"%.60s\", wanted one of %.300s", model_type, known.bytes);
    }
    ckpt_text_fini(&known);
    return code;
}

static ckpt_code import(const ckpt_item *root, const char *const *set, int set_count, ckpt_arena *scratch,
                        ckpt_arena *out, const ckpt_model **model, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item item, family;
    const char *model_type = "";
    CKPT_TRY(ckpt_item_need(root, "model_type", &item, err));
    CKPT_TRY(ckpt_item_text(&item, scratch, &model_type, err));
    const char *const source = ckpt_arena_format(scratch, "%s as %s", ckpt_json_source(root->json), model_type);
    CKPT_TRY(source != NULL ? ckpt_family_open(model_type, source, &json, &family, err)
                            : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file name"));
    if (json == NULL) {
        return fail_type(&item, model_type, err);
    }
    importer m = {.config = root, .family = &family, .scratch = scratch, .err = err};
    const ckpt_code code = fill(&m, model_type, set, set_count, out, model);
    ckpt_json_close(json);
    return code;
}

ckpt_code ckpt_config_item(const ckpt_item *root, const char *const *set, int set_count, ckpt_arena *out,
                           const ckpt_model **model, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = import(root, set, set_count, &scratch, out, model, err);
    ckpt_arena_fini(&scratch);
    return code;
}

ckpt_code ckpt_model_file_read(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                               const ckpt_model **model, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_code code = CKPT_OK;
    if (ckpt_config_is(&root)) {
        code = ckpt_config_item(&root, set, set_count, out, model, err);
    } else {
        code = ckpt_json_check_format(&root, "ckpt-model", err);
        code = code == CKPT_OK ? ckpt_model_item(&root, set, set_count, out, model, err) : code;
    }
    ckpt_json_close(json);
    return code;
}
