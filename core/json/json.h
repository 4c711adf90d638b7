/* Reads JSON so that every error names file, line and column. A document is its text and an index of it, 8 bytes a value;
 * an item is a cursor. Values are converted, and line and column counted, only where they are asked for. */
#ifndef CKPT_CORE_JSON_JSON_H
#define CKPT_CORE_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/status.h"

typedef struct ckpt_position {
    int line, column; /* from 1; 0: unknown */
} ckpt_position;

/* A document. Strings it gives are copied into the arena of the call that asks. */
typedef struct ckpt_json ckpt_json;

/* One value inside a document. Lives on the caller's stack. */
typedef struct ckpt_item {
    const ckpt_json *json;
    uint32_t at, inner; /* of the document: where the value starts in the text, and its contents in the index */
    const char *key;    /* in an object; NULL in an array */
    int index;          /* in an array */
} ckpt_item;

/* Parse a whole file. Duplicate keys, integers beyond 63 bits and anything after the end are errors.
 *   kind   "ckpt-graph": the file must say "format": "ckpt-graph/1"; NULL: any JSON object
 * Errors: CKPT_BAD_INPUT "file:line:column: ...", CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_json_open(const char *path, const char *kind, ckpt_json **json, ckpt_item *root,
                                       ckpt_err *err);
/* The same for a text in memory, which is copied. `name` stands for the file in messages. */
CKPT_MUST_USE ckpt_code ckpt_json_open_text(const char *name, const char *text, size_t length, const char *kind,
                                            ckpt_json **json, ckpt_item *root, ckpt_err *err);
void ckpt_json_close(ckpt_json *json); /* NULL is fine */
/* What `kind` asks of a document that was opened with NULL. */
CKPT_MUST_USE ckpt_code ckpt_json_check_format(const ckpt_item *root, const char *kind, ckpt_err *err);
const char *ckpt_json_source(const ckpt_json *json);

/* Member `key` of an object: find says whether it is there, need complains when it is not. Cost: O(members). */
bool ckpt_item_find(const ckpt_item *item, const char *key, ckpt_item *member);
CKPT_MUST_USE ckpt_code ckpt_item_need(const ckpt_item *item, const char *key, ckpt_item *member, ckpt_err *err);

/* Elements of an array or members of an object, in file order; ckpt_item_count is 0 for anything else. */
int ckpt_item_count(const ckpt_item *item);
void ckpt_item_at(const ckpt_item *array, int index, ckpt_item *element);
CKPT_MUST_USE ckpt_code ckpt_item_array(const ckpt_item *item, int *count, ckpt_err *err); /* or complain */
CKPT_MUST_USE ckpt_code ckpt_item_object(const ckpt_item *item, ckpt_err *err);            /* or complain */
/* Walk members: *next 0 at the start; false at the end. */
bool ckpt_item_next(const ckpt_item *object, int *next, ckpt_item *member);

/* Values, or "found ..., wanted ...". Integers must be written as integers and lie in min..max. */
CKPT_MUST_USE ckpt_code ckpt_item_int(const ckpt_item *item, int64_t min, int64_t max, int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_item_real(const ckpt_item *item, double *value, ckpt_err *err); /* integers too; finite */
CKPT_MUST_USE ckpt_code ckpt_item_bool(const ckpt_item *item, bool *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_item_text(const ckpt_item *item, ckpt_arena *out, const char **text, ckpt_err *err);

typedef enum ckpt_json_type {
    CKPT_JSON_NULL,
    CKPT_JSON_BOOL,
    CKPT_JSON_INT,
    CKPT_JSON_REAL,
    CKPT_JSON_TEXT,
    CKPT_JSON_ARRAY,
    CKPT_JSON_OBJECT
} ckpt_json_type;
ckpt_json_type ckpt_item_type(const ckpt_item *item);

/* Fill err with "file:line:column: <formatted>" for this item's place. Gives CKPT_BAD_INPUT. Cost: O(file). */
ckpt_code ckpt_item_fail(const ckpt_item *item, ckpt_err *err, const char *format, ...) CKPT_PRINTF(3, 4);
ckpt_position ckpt_item_position(const ckpt_item *item);

#endif
