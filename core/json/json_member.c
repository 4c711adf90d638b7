/* Members of an object by key, with a default or an error. */
#include <inttypes.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/json/json_member.h"

ckpt_code ckpt_need_text(const ckpt_item *object, const char *key, ckpt_arena *out, const char **text, ckpt_err *err)
{
    ckpt_item member;
    CKPT_TRY(ckpt_item_need(object, key, &member, err));
    return ckpt_item_text(&member, out, text, err);
}

ckpt_code ckpt_need_int(const ckpt_item *object, const char *key, int64_t min, int64_t max, int64_t *value,
                        ckpt_err *err)
{
    ckpt_item member;
    CKPT_TRY(ckpt_item_need(object, key, &member, err));
    return ckpt_item_int(&member, min, max, value, err);
}

ckpt_code ckpt_need_digest(const ckpt_item *object, const char *key, ckpt_arena *scratch, char digest[CKPT_DIGEST_TEXT],
                           ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const char *text = "";
    ckpt_item member;
    CKPT_TRY(ckpt_item_need(object, key, &member, err));
    CKPT_TRY(ckpt_item_text(&member, scratch, &text, err));
    if (strlen(text) != CKPT_DIGEST_TEXT - 1 || strspn(text, "0123456789abcdef") != CKPT_DIGEST_TEXT - 1) {
        return ckpt_item_fail(&member, err, "found \"%.80s\", wanted 64 of 0-9 a-f", text);
    }
    memcpy(digest, text, CKPT_DIGEST_TEXT);
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

ckpt_code ckpt_need_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count, ckpt_err *err)
{
    CKPT_TRY(ckpt_item_need(object, key, array, err));
    return ckpt_item_array(array, count, err);
}

ckpt_code ckpt_member_text(const ckpt_item *object, const char *key, const char *missing, ckpt_arena *out,
                           const char **text, ckpt_err *err)
{
    ckpt_item member;
    if (!ckpt_item_find(object, key, &member)) {
        *text = missing;
        return CKPT_OK;
    }
    return ckpt_item_text(&member, out, text, err);
}

ckpt_code ckpt_member_int(const ckpt_item *object, const char *key, int64_t min, int64_t max, int64_t missing,
                          int64_t *value, ckpt_err *err)
{
    ckpt_item member;
    if (!ckpt_item_find(object, key, &member)) {
        *value = missing;
        return CKPT_OK;
    }
    return ckpt_item_int(&member, min, max, value, err);
}

ckpt_code ckpt_member_bool(const ckpt_item *object, const char *key, bool missing, bool *value, ckpt_err *err)
{
    ckpt_item member;
    if (!ckpt_item_find(object, key, &member)) {
        *value = missing;
        return CKPT_OK;
    }
    return ckpt_item_bool(&member, value, err);
}

ckpt_code ckpt_member_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count, ckpt_err *err)
{
    if (!ckpt_item_find(object, key, array)) {
        *count = 0;
        return CKPT_OK;
    }
    return ckpt_item_array(array, count, err);
}

ckpt_code ckpt_member_target(const ckpt_item *object, ckpt_arena *out, bool *gpu, ckpt_err *err)
{
    ckpt_item member;
    const char *text = "cpu";
    if (ckpt_item_find(object, "target", &member)) {
        CKPT_TRY(ckpt_item_text(&member, out, &text, err));
    }
    *gpu = strcmp(text, "gpu") == 0;
    return *gpu || strcmp(text, "cpu") == 0 ? CKPT_OK
                                            : ckpt_item_fail(&member, err, "found \"%.40s\", wanted cpu or gpu", text);
}

ckpt_code ckpt_ns_list_read(const ckpt_item *array, int64_t *time, ckpt_err *err)
{
    const int count = ckpt_item_count(array);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(array, i, &item);
        CKPT_TRY(ckpt_item_int(&item, 0, INT64_MAX, &time[i], err));
        if (!ckpt_sum(sum, time[i], &sum)) {
            const ckpt_code code = CKPT_FAIL(err, CKPT_OVERFLOW, "the sum of times does not fit 63 bits");
            return ckpt_item_blame(&item, code, err);
        }
    }
    return CKPT_OK;
}
