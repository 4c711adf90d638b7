/* Jansson parses, and we keep the text. A value's line and column are found only for an error, by walking the text along the value's path. The text is valid JSON by then and Jansson keeps members in file order, so the walk counts members and compares no keys. */
#include "core/json/json.h"

#include <jansson.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/json/json_member.h"

struct ckpt_json {
    ckpt_arena arena;
    const char *source;
    const char *text;
    size_t length;
    json_t *root;
};

/* Jansson's memory is the C library's: its allocator is the whole process's, so it is not ours to change. When a small
 * allocation fails Jansson drops characters or asserts, so room for a common tree is asked for first. */
static bool has_room(const ckpt_json *json)
{
    void *const room = ckpt_memory_get(4 * json->length);
    ckpt_memory_put(room);
    return room != NULL;
}

/* Messages are one line: what a file quotes must not break it. */
static void flatten(char *message)
{
    for (char *c = message; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = ' ';
        }
    }
}

/* The value for "found ...": short ones as they are, others by type. */
typedef struct description {
    char text[72];
} description;

static description describe(const json_t *value)
{
    description d;
    switch (json_typeof(value)) {
    case JSON_OBJECT: snprintf(d.text, sizeof d.text, "an object"); break;
    case JSON_ARRAY: snprintf(d.text, sizeof d.text, "an array"); break;
    case JSON_STRING: snprintf(d.text, sizeof d.text, "the text \"%.48s\"", json_string_value(value)); break;
    case JSON_INTEGER: snprintf(d.text, sizeof d.text, "%" PRId64, (int64_t)json_integer_value(value)); break;
    case JSON_REAL: snprintf(d.text, sizeof d.text, "the real number %.9g", json_real_value(value)); break;
    case JSON_TRUE: snprintf(d.text, sizeof d.text, "true"); break;
    case JSON_FALSE: snprintf(d.text, sizeof d.text, "false"); break;
    default: snprintf(d.text, sizeof d.text, "null"); break;
    }
    return d;
}

/* The member's key before what is wrong with it: "\"bytes\": ". */
static description key_of(const ckpt_item *item)
{
    description d = {""};
    if (item->key != NULL) {
        snprintf(d.text, sizeof d.text, "\"%.60s\": ", item->key);
    }
    return d;
}

/* A position in the text; moves forward only. */
typedef struct walker {
    const char *at;
    int line;
    const char *line_start;
} walker;

static ckpt_position position(const walker *w)
{
    int column = 1;
    for (const char *c = w->line_start; c < w->at; c++) {
        column += ((unsigned char)*c & 0xc0) != 0x80; /* characters, not bytes */
    }
    return (ckpt_position){w->line, column};
}

static ckpt_code fail_at(const ckpt_json *json, ckpt_position at, const char *what, ckpt_err *err)
{
    const ckpt_code code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s:%d:%d: %s", json->source, at.line, at.column, what);
    if (err != NULL) {
        err->text_line = at.line;
        err->text_column = at.column;
    }
    return code;
}

/* Jansson overlooks a NUL byte after a number; our walks over the text would end there. */
static ckpt_code check_bytes(const ckpt_json *json, ckpt_err *err)
{
    const char *const nul = memchr(json->text, '\0', json->length);
    if (nul == NULL) {
        return CKPT_OK;
    }
    walker w = {nul, 1, json->text};
    for (const char *c = json->text; c < nul; c++) {
        if (*c == '\n') {
            w.line++;
            w.line_start = c + 1;
        }
    }
    const ckpt_position at = position(&w);
    return fail_at(json, at, "found a NUL byte, wanted JSON text", err);
}

static ckpt_code parse(ckpt_json *json, ckpt_err *err)
{
    CKPT_TRY(check_bytes(json, err));
    if (!has_room(json)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to parse %zu bytes", json->source, json->length);
    }
    json_error_t error;
    json->root = json_loadb(json->text, json->length, JSON_REJECT_DUPLICATES, &error);
    if (json->root != NULL) {
        return CKPT_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to parse %zu bytes", json->source, json->length);
    }
    const ckpt_position at = {error.line > 0 ? error.line : 1, error.column > 0 ? error.column : 1};
    const ckpt_code code = fail_at(json, at, error.text, err);
    if (err != NULL) {
        /* Jansson's message for these is for programmers. */
        char *const hint = strstr(err->msg, " without JSON_ALLOW_NUL");
        if (hint != NULL) {
            *hint = '\0';
        }
        flatten(err->msg);
    }
    return code;
}

ckpt_code ckpt_json_check_format(const ckpt_item *root, const char *kind, ckpt_err *err)
{
    CKPT_TRY(ckpt_item_object(root, err));
    if (kind == NULL) {
        return CKPT_OK;
    }
    ckpt_item format;
    if (!ckpt_item_find(root, "format", &format)) {
        return ckpt_item_fail(root, err, "found no \"format\", wanted \"format\": \"%s/1\"", kind);
    }
    if (!json_is_string(format.value)) {
        return ckpt_item_fail(&format, err, "found %s, wanted \"%s/1\"", describe(format.value).text, kind);
    }
    const char *const found = json_string_value(format.value);
    const size_t length = strlen(kind);
    if (strncmp(found, kind, length) == 0 && strcmp(found + length, "/1") == 0) {
        return CKPT_OK;
    }
    return ckpt_item_fail(&format, err, "found format \"%.60s\", wanted \"%s/1\"%s", found, kind,
                          strncmp(found, kind, length) == 0 && found[length] == '/' ? ", the only version known here"
                                                                                    : "");
}

static ckpt_code take_text(ckpt_json *json, const char *text, size_t length, ckpt_err *err)
{
    char *const copy = ckpt_arena_take(&json->arena, length + 1, 1); /* terminated: walks end there */
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to keep %zu bytes", json->source, length);
    }
    json->text = length > 0 ? memcpy(copy, text, length) : copy;
    json->length = length;
    return CKPT_OK;
}

/* `text` NULL: the file of that name. */
static ckpt_code open_json(const char *name, const char *text, size_t length, const char *kind, ckpt_json **json,
                           ckpt_item *root, ckpt_err *err)
{
    ckpt_json *const opened = ckpt_memory_get(sizeof *opened);
    if (opened == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to open it", name);
    }
    ckpt_arena_init(&opened->arena);
    opened->source = ckpt_arena_text(&opened->arena, text == NULL && strcmp(name, "-") == 0 ? "standard input" : name);
    ckpt_code code = opened->source == NULL ? CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to open it", name)
                     : text != NULL         ? take_text(opened, text, length, err)
                                            : ckpt_file_read(name, &opened->arena, &opened->text, &opened->length, err);
    if (code == CKPT_OK) {
        code = parse(opened, err);
    }
    const ckpt_item whole = {opened, opened->root, NULL, NULL, 0};
    if (code == CKPT_OK) {
        code = ckpt_json_check_format(&whole, kind, err);
    }
    if (code != CKPT_OK) {
        ckpt_json_close(opened);
        return code;
    }
    *json = opened;
    *root = whole;
    return CKPT_OK;
}

ckpt_code ckpt_json_open(const char *path, const char *kind, ckpt_json **json, ckpt_item *root, ckpt_err *err)
{
    return open_json(path, NULL, 0, kind, json, root, err);
}

ckpt_code ckpt_json_open_text(const char *name, const char *text, size_t length, const char *kind, ckpt_json **json,
                              ckpt_item *root, ckpt_err *err)
{
    return open_json(name, text != NULL ? text : "", length, kind, json, root, err);
}

void ckpt_json_close(ckpt_json *json)
{
    if (json != NULL) {
        json_decref(json->root); /* NULL is fine */
        ckpt_arena_fini(&json->arena);
        ckpt_memory_put(json);
    }
}

const char *ckpt_json_source(const ckpt_json *json)
{
    return json->source;
}

static void skip_space(walker *w)
{
    for (;; w->at++) {
        if (*w->at == '\n') {
            w->line++;
            w->line_start = w->at + 1;
        } else if (*w->at != ' ' && *w->at != '\t' && *w->at != '\r') {
            return;
        }
    }
}

static void skip_string(walker *w)
{
    for (w->at++; *w->at != '"'; w->at++) {
        if (*w->at == '\\') {
            w->at++;
        }
    }
    w->at++;
}

static void skip_value(walker *w)
{
    int64_t depth = 0;
    do {
        skip_space(w);
        switch (*w->at) {
        case '"': skip_string(w); break;
        case '{':
        case '[':
            depth++;
            w->at++;
            break;
        case '}':
        case ']':
            depth--;
            w->at++;
            break;
        case ',':
        case ':': w->at++; break;
        default: w->at += strcspn(w->at, ",:]} \t\r\n"); break;
        }
    } while (depth > 0);
}

/* From the opening bracket to the value of element or member 0. */
static void enter(walker *w, bool object)
{
    w->at++;
    skip_space(w);
    if (object) {
        skip_string(w);
        skip_space(w);
        w->at++; /* ':' */
        skip_space(w);
    }
}

/* From a value to the next one of the same array or object. */
static void next_value(walker *w, bool object)
{
    skip_value(w);
    skip_space(w);
    enter(w, object); /* over the ',' as over a bracket */
}

static int ordinal(const ckpt_item *item)
{
    if (item->key == NULL) {
        return item->index;
    }
    json_t *const object = (json_t *)item->parent->value; /* iterators are not const-correct; nothing changes */
    int k = 0;
    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i), k++) {
        if (strcmp(json_object_iter_key(i), item->key) == 0) {
            return k;
        }
    }
    return 0;
}

static walker walk_to(const ckpt_item *item)
{
    if (item->parent == NULL) {
        walker w = {item->json->text, 1, item->json->text};
        skip_space(&w);
        return w;
    }
    walker w = walk_to(item->parent);
    const bool object = json_is_object(item->parent->value);
    enter(&w, object);
    for (int k = ordinal(item); k > 0; k--) {
        next_value(&w, object);
    }
    return w;
}

ckpt_position ckpt_item_position(const ckpt_item *item)
{
    const walker w = walk_to(item);
    return position(&w);
}

void ckpt_item_positions(const ckpt_item *array, ckpt_position *at)
{
    const int count = ckpt_item_count(array);
    if (count == 0) {
        return;
    }
    walker w = walk_to(array);
    enter(&w, false);
    for (int i = 0;; i++) {
        at[i] = position(&w);
        if (i + 1 == count) {
            return;
        }
        next_value(&w, false);
    }
}

ckpt_code ckpt_item_blame(const ckpt_item *item, ckpt_code code, ckpt_err *err)
{
    if (err != NULL && code != CKPT_NO_MEMORY) {
        const ckpt_position at = ckpt_item_position(item);
        ckpt_err_at(err, "%.200s:%d:%d", item->json->source, at.line, at.column);
        flatten(err->msg);
        err->text_line = at.line;
        err->text_column = at.column;
    }
    return code;
}

ckpt_code ckpt_item_fail(const ckpt_item *item, ckpt_err *err, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return ckpt_item_blame(item, CKPT_FAIL(err, CKPT_BAD_INPUT, "%s", message), err);
}

static void set_member(const ckpt_item *object, const char *key, const json_t *value, ckpt_item *member)
{
    *member = (ckpt_item){object->json, value, object, key, 0};
}

bool ckpt_item_find(const ckpt_item *item, const char *key, ckpt_item *member)
{
    const json_t *const value = json_object_get(item->value, key);
    if (value == NULL) {
        return false;
    }
    set_member(item, key, value, member);
    return true;
}

ckpt_code ckpt_item_need(const ckpt_item *item, const char *key, ckpt_item *member, ckpt_err *err)
{
    CKPT_TRY(ckpt_item_object(item, err));
    if (!ckpt_item_find(item, key, member)) {
        return ckpt_item_fail(item, err, "found no \"%s\", which must be there", key);
    }
    return CKPT_OK;
}

int ckpt_item_count(const ckpt_item *item)
{
    const size_t count = json_is_array(item->value) ? json_array_size(item->value) : json_object_size(item->value);
    return count < INT32_MAX ? (int)count : INT32_MAX; /* CKPT_FILE_MAX keeps real files below */
}

void ckpt_item_at(const ckpt_item *array, int index, ckpt_item *element)
{
    *element = (ckpt_item){array->json, json_array_get(array->value, (size_t)index), array, NULL, index};
}

ckpt_code ckpt_item_array(const ckpt_item *item, int *count, ckpt_err *err)
{
    if (!json_is_array(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an array", key_of(item).text, describe(item->value).text);
    }
    *count = ckpt_item_count(item);
    return CKPT_OK;
}

ckpt_code ckpt_item_object(const ckpt_item *item, ckpt_err *err)
{
    if (!json_is_object(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an object", key_of(item).text, describe(item->value).text);
    }
    return CKPT_OK;
}

bool ckpt_item_next(const ckpt_item *object, void **iterator, ckpt_item *member)
{
    json_t *const value = (json_t *)object->value; /* iterators are not const-correct; nothing changes */
    *iterator = *iterator == NULL ? json_object_iter(value) : json_object_iter_next(value, *iterator);
    if (*iterator == NULL) {
        return false;
    }
    set_member(object, json_object_iter_key(*iterator), json_object_iter_value(*iterator), member);
    return true;
}

ckpt_code ckpt_item_int(const ckpt_item *item, int64_t min, int64_t max, int64_t *value, ckpt_err *err)
{
    if (!json_is_integer(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an integer", key_of(item).text,
                              describe(item->value).text);
    }
    const int64_t found = json_integer_value(item->value);
    if (found < min) {
        return ckpt_item_fail(item, err, "%sfound %" PRId64 ", wanted %" PRId64 " or more", key_of(item).text, found,
                              min);
    }
    if (found > max) {
        return ckpt_item_fail(item, err, "%sfound %" PRId64 ", wanted %" PRId64 " or less", key_of(item).text, found,
                              max);
    }
    *value = found;
    return CKPT_OK;
}

ckpt_code ckpt_item_real(const ckpt_item *item, double *value, ckpt_err *err)
{
    if (!json_is_number(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted a number", key_of(item).text, describe(item->value).text);
    }
    const double found = json_number_value(item->value);
    if (!isfinite(found)) {
        return ckpt_item_fail(item, err, "%sfound a number that is not finite", key_of(item).text);
    }
    *value = found;
    return CKPT_OK;
}

ckpt_code ckpt_item_bool(const ckpt_item *item, bool *value, ckpt_err *err)
{
    if (!json_is_boolean(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted true or false", key_of(item).text,
                              describe(item->value).text);
    }
    *value = json_is_true(item->value);
    return CKPT_OK;
}

ckpt_code ckpt_item_text(const ckpt_item *item, ckpt_arena *out, const char **text, ckpt_err *err)
{
    if (!json_is_string(item->value)) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted a text", key_of(item).text, describe(item->value).text);
    }
    char *const copy = ckpt_arena_text(out, json_string_value(item->value));
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for a text", item->json->source);
    }
    *text = copy;
    return CKPT_OK;
}

ckpt_json_type ckpt_item_type(const ckpt_item *item)
{
    switch (json_typeof(item->value)) {
    case JSON_OBJECT: return CKPT_JSON_OBJECT;
    case JSON_ARRAY: return CKPT_JSON_ARRAY;
    case JSON_STRING: return CKPT_JSON_TEXT;
    case JSON_INTEGER: return CKPT_JSON_INT;
    case JSON_REAL: return CKPT_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return CKPT_JSON_BOOL;
    case JSON_NULL: return CKPT_JSON_NULL;
    }
    return CKPT_JSON_NULL;
}
