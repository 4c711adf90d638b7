/* The cursor over a parsed document. A value's line and column are found only for an error, by counting the characters of
 * the text before it. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/json/json_impl.h"
#include "core/json/json_member.h"

static const char *value_of(const ckpt_item *item)
{
    return item->json->text + item->at;
}

static bool is_integer(const char *value)
{
    value += *value == '-';
    const size_t digits = strspn(value, "0123456789");
    return digits > 0 && value[digits] != '.' && value[digits] != 'e' && value[digits] != 'E';
}

ckpt_json_type ckpt_item_type(const ckpt_item *item)
{
    switch (*value_of(item)) {
    case '{': return CKPT_JSON_OBJECT;
    case '[': return CKPT_JSON_ARRAY;
    case '"': return CKPT_JSON_TEXT;
    case 't':
    case 'f': return CKPT_JSON_BOOL;
    case 'n': return CKPT_JSON_NULL;
    default: return is_integer(value_of(item)) ? CKPT_JSON_INT : CKPT_JSON_REAL;
    }
}

static int64_t integer_of(const ckpt_item *item)
{
    return strtoll(value_of(item), NULL, 10); /* the parser has seen that it fits */
}

static double real_of(const ckpt_item *item)
{
    const char *end = NULL;
    return ckpt_real_parse(value_of(item), &end);
}

/* The value for "found ...": short ones as they are, others by type. */
typedef struct description {
    char text[72];
} description;

static description describe(const ckpt_item *item)
{
    description d;
    char string[49];
    switch (ckpt_item_type(item)) {
    case CKPT_JSON_OBJECT: snprintf(d.text, sizeof d.text, "an object"); break;
    case CKPT_JSON_ARRAY: snprintf(d.text, sizeof d.text, "an array"); break;
    case CKPT_JSON_TEXT:
        ckpt_json_decode(value_of(item), string, sizeof string);
        snprintf(d.text, sizeof d.text, "the text \"%s\"", string);
        break;
    case CKPT_JSON_INT: snprintf(d.text, sizeof d.text, "%" PRId64, integer_of(item)); break;
    case CKPT_JSON_REAL: snprintf(d.text, sizeof d.text, "the real number %.9g", real_of(item)); break;
    case CKPT_JSON_BOOL: snprintf(d.text, sizeof d.text, "%s", *value_of(item) == 't' ? "true" : "false"); break;
    case CKPT_JSON_NULL: snprintf(d.text, sizeof d.text, "null"); break;
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

void ckpt_json_count(const ckpt_json *json, size_t *from, ckpt_position *place, size_t at)
{
    for (const char *c = json->text + *from; c < json->text + at; c++) {
        if (*c == '\n') {
            place->line++;
            place->column = 1;
        } else {
            place->column += ((unsigned char)*c & 0xc0) != 0x80; /* characters, not bytes */
        }
    }
    *from = at;
}

ckpt_code ckpt_json_fail_at(const ckpt_json *json, ckpt_position at, const char *what, ckpt_err *err)
{
    const ckpt_code code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s:%d:%d: %s", json->source, at.line, at.column, what);
    if (err != NULL) {
        err->text_line = at.line;
        err->text_column = at.column;
    }
    return code;
}

/* A text has no 0 byte: its end is marked by one. */
static ckpt_code check_bytes(const ckpt_json *json, ckpt_err *err)
{
    const char *const nul = memchr(json->text, '\0', json->length);
    if (nul == NULL) {
        return CKPT_OK;
    }
    size_t counted = 0;
    ckpt_position at = {1, 1};
    ckpt_json_count(json, &counted, &at, (size_t)(nul - json->text));
    return ckpt_json_fail_at(json, at, "found a NUL byte, wanted JSON text", err);
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
    if (ckpt_item_type(&format) != CKPT_JSON_TEXT) {
        return ckpt_item_fail(&format, err, "found %s, wanted \"%s/1\"", describe(&format).text, kind);
    }
    char found[80];
    ckpt_json_decode(value_of(&format), found, sizeof found);
    const size_t length = strlen(kind);
    if (strncmp(found, kind, length) == 0 && strcmp(found + length, "/1") == 0) {
        return CKPT_OK;
    }
    return ckpt_item_fail(&format, err, "found format \"%.60s\", wanted \"%s/1\"%s", found, kind,
                          strncmp(found, kind, length) == 0 && found[length] == '/' ? ", the only version known here"
                                                                                    : "");
}

static ckpt_code take_text(ckpt_json *json, const char *text, size_t length, const char **bytes, ckpt_err *err)
{
    char *const copy = ckpt_arena_take(&json->arena, length + 1, 1); /* terminated: the parser ends there */
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to keep %zu bytes", json->source, length);
    }
    *bytes = length > 0 ? memcpy(copy, text, length) : copy;
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
    const char *bytes = NULL;
    ckpt_code code = opened->source == NULL ? CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory to open it", name)
                     : text != NULL         ? take_text(opened, text, length, &bytes, err)
                                            : ckpt_file_read(name, &opened->arena, &bytes, &opened->length, err);
    opened->text = (char *)bytes; /* in the document's own arena */
    if (code == CKPT_OK) {
        code = check_bytes(opened, err);
    }
    if (code == CKPT_OK) {
        code = ckpt_json_parse(opened, err);
    }
    const ckpt_item whole = {opened, opened->root.at, opened->root.inner, NULL, 0};
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
        ckpt_memory_put(json->entry);
        ckpt_memory_put(json->escaped);
        ckpt_arena_fini(&json->arena);
        ckpt_memory_put(json);
    }
}

const char *ckpt_json_source(const ckpt_json *json)
{
    return json->source;
}

ckpt_position ckpt_item_position(const ckpt_item *item)
{
    size_t counted = 0;
    ckpt_position at = {1, 1};
    ckpt_json_count(item->json, &counted, &at, item->at);
    return at;
}

void ckpt_item_positions(const ckpt_item *array, ckpt_position *at)
{
    const int count = ckpt_item_count(array);
    size_t counted = 0;
    ckpt_position place = {1, 1};
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(array, i, &item);
        ckpt_json_count(array->json, &counted, &place, item.at);
        at[i] = place;
    }
}

ckpt_code ckpt_item_blame(const ckpt_item *item, ckpt_code code, ckpt_err *err)
{
    if (err != NULL && code != CKPT_NO_MEMORY) {
        const ckpt_position at = ckpt_item_position(item);
        ckpt_err_at(err, "%.200s:%d:%d", item->json->source, at.line, at.column);
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

/* The contents of an array or object: *count entries. Of anything else: none. */
static const ckpt_json_entry *contents(const ckpt_item *item, size_t *count)
{
    *count = 0;
    if (*value_of(item) != '{' && *value_of(item) != '[') {
        return NULL;
    }
    const ckpt_json_entry *const head = item->json->entry + item->inner;
    *count = head->at;
    return head + 1;
}

uint32_t ckpt_json_key_at(const ckpt_json *json, const ckpt_json_entry *member)
{
    return member->at < json->length ? member->at : json->escaped[member->at - json->length].at;
}

const char *ckpt_json_key(const ckpt_json *json, const ckpt_json_entry *member)
{
    return member->at < json->length ? json->text + member->at + 1 : json->escaped[member->at - json->length].plain;
}

static void set_member(const ckpt_item *object, const char *key, const ckpt_json_entry *entry, ckpt_item *member)
{
    const char *const text = object->json->text;
    const char *c = text + ckpt_json_key_at(object->json, entry);
    c += strlen(c) + 1;
    c += strspn(c, " \n\r\t") + 1; /* ':' */
    c += strspn(c, " \n\r\t");
    *member = (ckpt_item){object->json, (uint32_t)(c - text), entry->inner, key, 0};
}

bool ckpt_item_find(const ckpt_item *item, const char *key, ckpt_item *member)
{
    size_t count = 0;
    const ckpt_json_entry *const entry = contents(item, &count);
    for (size_t i = 0; i < count && *value_of(item) == '{'; i++) {
        if (strcmp(ckpt_json_key(item->json, &entry[i]), key) == 0) {
            set_member(item, key, &entry[i], member);
            return true;
        }
    }
    return false;
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
    size_t count = 0;
    (void)contents(item, &count);
    return (int)count; /* CKPT_FILE_MAX keeps it below 2^31 */
}

void ckpt_item_at(const ckpt_item *array, int index, ckpt_item *element)
{
    size_t count = 0;
    const ckpt_json_entry *const entry = contents(array, &count) + index;
    *element = (ckpt_item){array->json, entry->at, entry->inner, NULL, index};
}

ckpt_code ckpt_item_array(const ckpt_item *item, int *count, ckpt_err *err)
{
    if (ckpt_item_type(item) != CKPT_JSON_ARRAY) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an array", key_of(item).text, describe(item).text);
    }
    *count = ckpt_item_count(item);
    return CKPT_OK;
}

ckpt_code ckpt_item_object(const ckpt_item *item, ckpt_err *err)
{
    if (ckpt_item_type(item) != CKPT_JSON_OBJECT) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an object", key_of(item).text, describe(item).text);
    }
    return CKPT_OK;
}

bool ckpt_item_next(const ckpt_item *object, int *next, ckpt_item *member)
{
    size_t count = 0;
    const ckpt_json_entry *const entry = contents(object, &count);
    if ((size_t)*next >= count) {
        return false;
    }
    set_member(object, ckpt_json_key(object->json, &entry[*next]), &entry[*next], member);
    ++*next;
    return true;
}

ckpt_code ckpt_item_int(const ckpt_item *item, int64_t min, int64_t max, int64_t *value, ckpt_err *err)
{
    if (ckpt_item_type(item) != CKPT_JSON_INT) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted an integer", key_of(item).text, describe(item).text);
    }
    const int64_t found = integer_of(item);
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
    const ckpt_json_type type = ckpt_item_type(item);
    if (type != CKPT_JSON_INT && type != CKPT_JSON_REAL) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted a number", key_of(item).text, describe(item).text);
    }
    *value =
        type == CKPT_JSON_INT ? (double)integer_of(item) : real_of(item); /* the parser has seen that it is finite */
    return CKPT_OK;
}

ckpt_code ckpt_item_bool(const ckpt_item *item, bool *value, ckpt_err *err)
{
    if (ckpt_item_type(item) != CKPT_JSON_BOOL) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted true or false", key_of(item).text, describe(item).text);
    }
    *value = *value_of(item) == 't';
    return CKPT_OK;
}

ckpt_code ckpt_item_text(const ckpt_item *item, ckpt_arena *out, const char **text, ckpt_err *err)
{
    if (ckpt_item_type(item) != CKPT_JSON_TEXT) {
        return ckpt_item_fail(item, err, "%sfound %s, wanted a text", key_of(item).text, describe(item).text);
    }
    const size_t room = strlen(value_of(item)) + 1;
    char *const copy = ckpt_arena_take(out, room, 1);
    if (copy == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for a text", item->json->source);
    }
    ckpt_json_decode(value_of(item), copy, room);
    *text = copy;
    return CKPT_OK;
}
