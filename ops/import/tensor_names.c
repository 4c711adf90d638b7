/* Patterns of names: # is a number, * any text without a point. What stood for them in "layer.parameter" stands for them
 * in the tensor's name, in the same order; % there counts the first dim. */
#include "ops/import/tensor_names_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "ops/import/family_impl.h"

enum { WILD_MAX = 8, STACK_MAX = 4096 };

/* What the wild characters of a pattern stood for. */
typedef struct match {
    const char *at[WILD_MAX];
    size_t length[WILD_MAX];
    char sign[WILD_MAX];
    int count;
} match;

static bool matches(const char *pattern, const char *text, match *m)
{
    m->count = 0;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '#' && *pattern != '*') {
            if (*text++ != *pattern) {
                return false;
            }
            continue;
        }
        const size_t length = *pattern == '#' ? strspn(text, "0123456789") : strcspn(text, ".");
        if (length == 0 || m->count == WILD_MAX) {
            return false;
        }
        m->at[m->count] = text;
        m->length[m->count] = length;
        m->sign[m->count++] = *pattern;
        text += length;
    }
    return *text == '\0';
}

static ckpt_code no_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for names of tensors");
}

static ckpt_code substitute(const char *pattern, const match *m, int64_t number, ckpt_arena *arena, const char **name,
                            ckpt_err *err)
{
    ckpt_text text;
    int used[2] = {0, 0};
    ckpt_text_init(&text);
    for (const char *c = pattern; *c != '\0'; c++) {
        if (*c == '%') {
            ckpt_text_int(&text, number);
        } else if (*c == '#' || *c == '*') {
            int *const next = &used[*c == '#' ? 0 : 1];
            while (*next < m->count && m->sign[*next] != *c) {
                (*next)++;
            }
            if (*next < m->count) {
                ckpt_text_put(&text, m->at[*next], m->length[*next]);
                (*next)++;
            }
        } else {
            ckpt_text_put(&text, c, 1);
        }
    }
    *name = text.failed || text.bytes == NULL ? NULL : ckpt_arena_text(arena, text.bytes);
    ckpt_text_fini(&text);
    return *name != NULL ? CKPT_OK : no_memory(err);
}

/* `value`: a pattern or a list of patterns. */
static ckpt_code fill(ckpt_tensor_namer *namer, const ckpt_item *value, const match *m, int64_t rows,
                      ckpt_tensor_names *names, ckpt_err *err)
{
    const bool list = ckpt_item_type(value) == CKPT_JSON_ARRAY;
    const char *pattern = "";
    if (!list) {
        CKPT_TRY(ckpt_item_text(value, &namer->arena, &pattern, err));
        names->stacked = strchr(pattern, '%') != NULL && rows <= STACK_MAX;
    }
    names->count = list ? ckpt_item_count(value) : names->stacked ? (int)rows : 1;
    names->name = CKPT_NEW(&namer->arena, const char *, names->count);
    if (names->name == NULL) {
        return no_memory(err);
    }
    for (int i = 0; i < names->count; i++) {
        ckpt_item element = *value;
        if (list) {
            ckpt_item_at(value, i, &element);
            CKPT_TRY(ckpt_item_text(&element, &namer->arena, &pattern, err));
        }
        CKPT_TRY(substitute(pattern, m, i, &namer->arena, &names->name[i], err));
    }
    return CKPT_OK;
}

static ckpt_code own_name(ckpt_tensor_namer *namer, const char *text, ckpt_tensor_names *names, ckpt_err *err)
{
    names->name = CKPT_NEW(&namer->arena, const char *, 1);
    if (names->name == NULL) {
        return no_memory(err);
    }
    names->name[0] = text;
    names->count = 1;
    return CKPT_OK;
}

ckpt_code ckpt_tensor_names_find(ckpt_tensor_namer *namer, const char *layer, const char *param, int64_t rows,
                                 ckpt_tensor_names *names, ckpt_err *err)
{
    const char *const text = ckpt_arena_format(&namer->arena, "%s.%s", layer, param);
    ckpt_item entry, value, flag;
    match m;
    *names = (ckpt_tensor_names){.count = 0};
    if (text == NULL) {
        return no_memory(err);
    }
    if (namer->json == NULL) {
        return own_name(namer, text, names, err);
    }
    for (int i = 0; ckpt_item_next(&namer->tensors, &i, &entry);) {
        if (!matches(entry.key, text, &m)) {
            continue;
        }
        value = entry;
        if (ckpt_item_type(&entry) == CKPT_JSON_OBJECT) {
            CKPT_TRY(ckpt_item_need(&entry, "name", &value, err));
            CKPT_TRY(ckpt_item_find(&entry, "transposed", &flag) ? ckpt_item_bool(&flag, &names->transposed, err)
                                                                 : CKPT_OK);
        }
        return fill(namer, &value, &m, rows, names, err);
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no name is known for %s in weight files", ckpt_json_source(namer->json),
                     text);
}

/* The name with the prefix cut off; NULL: it does not begin with it. */
static const char *without_prefix(const ckpt_tensor_namer *namer, const char *name)
{
    const size_t length = strlen(namer->prefix);
    return length > 0 && strncmp(name, namer->prefix, length) == 0 ? name + length : NULL;
}

/* The name with its end replaced as the first row of "renamed" that fits says; NULL: none fits. */
static ckpt_code old_name(ckpt_tensor_namer *namer, const char *name, const char **old, ckpt_err *err)
{
    ckpt_item row;
    *old = NULL;
    for (int i = 0; namer->renames && ckpt_item_next(&namer->renamed, &i, &row);) {
        const size_t length = strlen(name), end = strlen(row.key);
        const char *text = "";
        if (length > end && strcmp(name + length - end, row.key) == 0) {
            CKPT_TRY(ckpt_item_text(&row, &namer->arena, &text, err));
            *old = ckpt_arena_format(&namer->arena, "%.*s%s", (int)(length - end), name, text);
            return *old != NULL ? CKPT_OK : no_memory(err);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_tensor_name_other(ckpt_tensor_namer *namer, const char *name, int i, const char **other, ckpt_err *err)
{
    const char *name_of[3] = {without_prefix(namer, name), NULL, NULL};
    int count = name_of[0] != NULL ? 1 : 0;
    CKPT_TRY(old_name(namer, name, &name_of[count], err));
    if (name_of[count] != NULL) {
        name_of[count + 1] = without_prefix(namer, name_of[count]);
    }
    *other = i < 3 ? name_of[i] : NULL;
    return CKPT_OK;
}

ckpt_code ckpt_tensor_name_original(ckpt_tensor_namer *namer, const char *name, const char **original, ckpt_err *err)
{
    ckpt_item item;
    *original = NULL;
    return namer->copied && ckpt_item_find(&namer->copies, name, &item)
               ? ckpt_item_text(&item, &namer->arena, original, err)
               : CKPT_OK;
}

bool ckpt_tensor_name_ignored(const ckpt_tensor_namer *namer, const char *name)
{
    match m;
    for (int i = 0; namer->ignores && i < ckpt_item_count(&namer->ignored); i++) {
        ckpt_arena scratch;
        ckpt_item item;
        const char *pattern = "";
        bool found = false;
        ckpt_arena_init(&scratch);
        ckpt_item_at(&namer->ignored, i, &item);
        if (ckpt_item_text(&item, &scratch, &pattern, NULL) == CKPT_OK) {
            const char *const inner = without_prefix(namer, pattern);
            found = matches(pattern, name, &m) || (inner != NULL && matches(inner, name, &m));
        }
        ckpt_arena_fini(&scratch);
        if (found) {
            return true;
        }
    }
    return false;
}

ckpt_code ckpt_tensor_namer_init(ckpt_tensor_namer *namer, const ckpt_model *model, ckpt_err *err)
{
    ckpt_item family;
    *namer = (ckpt_tensor_namer){.prefix = ""};
    ckpt_arena_init(&namer->arena);
    if (model->family == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_family_open(model->family, model->family, &namer->json, &family, err));
    if (namer->json == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no such family", model->family);
    }
    namer->ignores = ckpt_item_find(&family, "ignored", &namer->ignored);
    namer->copied = ckpt_item_find(&family, "copies", &namer->copies);
    namer->renames = ckpt_item_find(&family, "renamed", &namer->renamed);
    ckpt_code code = ckpt_member_text(&family, "prefix", "", &namer->arena, &namer->prefix, err);
    code = code == CKPT_OK ? ckpt_item_need(&family, "tensors", &namer->tensors, err) : code;
    if (code != CKPT_OK) {
        ckpt_tensor_namer_fini(namer);
    }
    return code;
}

void ckpt_tensor_namer_fini(ckpt_tensor_namer *namer)
{
    ckpt_json_close(namer->json);
    namer->json = NULL;
    ckpt_arena_fini(&namer->arena);
}
