/* Reads members of JSON objects, with the same messages for all formats. */
#ifndef CKPT_CORE_JSON_JSON_MEMBER_H
#define CKPT_CORE_JSON_JSON_MEMBER_H

#include "core/base/digest.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/json/json.h"

/* Put "file:line:column: " of the item before the message that is there, and hand `code` on. */
ckpt_code ckpt_item_blame(const ckpt_item *item, ckpt_code code, ckpt_err *err);

/* Line and column of every element of an array, in one walk. Cost: O(file). */
void ckpt_item_positions(const ckpt_item *array, ckpt_position *at);

/* Optional members: `missing` when the key is absent. */
CKPT_MUST_USE ckpt_code ckpt_member_text(const ckpt_item *object, const char *key, const char *missing, ckpt_arena *out,
                                         const char **text, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_member_int(const ckpt_item *object, const char *key, int64_t min, int64_t max,
                                        int64_t missing, int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_member_bool(const ckpt_item *object, const char *key, bool missing, bool *value,
                                         ckpt_err *err);

/* "target": "gpu" or "cpu"; absent: "cpu". */
CKPT_MUST_USE ckpt_code ckpt_member_target(const ckpt_item *object, ckpt_arena *out, bool *gpu, ckpt_err *err);

/* Members that must be there. */
CKPT_MUST_USE ckpt_code ckpt_need_text(const ckpt_item *object, const char *key, ckpt_arena *out, const char **text,
                                       ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_need_int(const ckpt_item *object, const char *key, int64_t min, int64_t max,
                                      int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_need_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count,
                                        ckpt_err *err);
/* 64 of 0-9 a-f. */
CKPT_MUST_USE ckpt_code ckpt_need_digest(const ckpt_item *object, const char *key, ckpt_arena *scratch,
                                         char digest[CKPT_DIGEST_TEXT], ckpt_err *err);
/* An optional array: *count 0 when the key is absent. */
CKPT_MUST_USE ckpt_code ckpt_member_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count,
                                          ckpt_err *err);

/* Times of 0 or more whose sum fits 63 bits; `time` has room for the array's elements. */
CKPT_MUST_USE ckpt_code ckpt_ns_list_read(const ckpt_item *array, int64_t *time, ckpt_err *err);

#endif
