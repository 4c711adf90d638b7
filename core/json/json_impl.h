/* A parsed document: its text, and an index of the values in it. */
#ifndef CKPT_CORE_JSON_JSON_IMPL_H
#define CKPT_CORE_JSON_JSON_IMPL_H

#include "core/json/json.h"

/* An element of an array, or a member of an object. What it is stands in the text. */
typedef struct ckpt_json_entry {
    uint32_t at;    /* of an element: where its value starts in the text; of a member: where its key does, or
                     * `length` + k for key k of those written with escapes */
    uint32_t inner; /* of an array or object: its contents; else 0 */
} ckpt_json_entry;

typedef struct ckpt_json_escaped {
    const char *plain; /* without the escapes */
    uint32_t at;       /* in the text */
} ckpt_json_escaped;

/* The text stays as it was but for the closing quote of each string, which is a 0 byte now. The contents of an array or
 * object are consecutive entries, in the order of the file, after one whose `at` is their number:
 *
 *     entry: ... [count][0][1]...[count - 1] ...
 */
struct ckpt_json {
    ckpt_arena arena; /* of the file's name, the text, and keys that are written with escapes */
    const char *source;
    char *text; /* `length` bytes and a 0 */
    size_t length;
    ckpt_json_entry *entry;     /* of ckpt_memory_get, as the next */
    ckpt_json_escaped *escaped; /* keys */
    size_t escaped_count;
    ckpt_json_entry root;
};

/* Parses json->text. */
CKPT_MUST_USE ckpt_code ckpt_json_parse(ckpt_json *json, ckpt_err *err);

/* A string of the text, from its opening quote, without escapes: up to `room` - 1 bytes of it, and a 0. */
void ckpt_json_decode(const char *string, char *to, size_t room);

/* A member's key, and where it starts in the text. */
const char *ckpt_json_key(const ckpt_json *json, const ckpt_json_entry *member);
uint32_t ckpt_json_key_at(const ckpt_json *json, const ckpt_json_entry *member);

/* CKPT_BAD_INPUT "file:line:column: what". */
ckpt_code ckpt_json_fail_at(const ckpt_json *json, ckpt_position at, const char *what, ckpt_err *err);
/* The line and column at which text[at] stands, counted from `from` onwards, whose place is *place. Cost: O(at - from). */
void ckpt_json_count(const ckpt_json *json, size_t *from, ckpt_position *place, size_t at);

#endif
