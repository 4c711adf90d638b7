/* JSON against Jansson: the same texts are JSON, and the same values are in them. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "core/base/file.h"
#include "core/json/json.h"

static void check_same(const ckpt_item *item, const json_t *wanted)
{
    ckpt_arena arena;
    const char *text = NULL;
    int64_t integer = 0;
    double real = 0;
    bool flag = false;
    int next = 0;
    ckpt_item inner;
    ckpt_arena_init(&arena);
    switch (json_typeof(wanted)) {
    case JSON_OBJECT:
        FUZZ_CHECK(ckpt_item_type(item) == CKPT_JSON_OBJECT && ckpt_item_count(item) == (int)json_object_size(wanted),
                   "another object");
        while (ckpt_item_next(item, &next, &inner)) {
            FUZZ_CHECK(json_object_get(wanted, inner.key) != NULL, "no member %s", inner.key);
            check_same(&inner, json_object_get(wanted, inner.key));
        }
        break;
    case JSON_ARRAY:
        FUZZ_CHECK(ckpt_item_type(item) == CKPT_JSON_ARRAY && ckpt_item_count(item) == (int)json_array_size(wanted),
                   "another array");
        for (int i = 0; i < ckpt_item_count(item); i++) {
            ckpt_item_at(item, i, &inner);
            check_same(&inner, json_array_get(wanted, (size_t)i));
        }
        break;
    case JSON_STRING:
        FUZZ_CHECK(ckpt_item_text(item, &arena, &text, NULL) == CKPT_OK && strcmp(text, json_string_value(wanted)) == 0,
                   "another text: %s", text);
        break;
    case JSON_INTEGER:
        FUZZ_CHECK(ckpt_item_int(item, INT64_MIN, INT64_MAX, &integer, NULL) == CKPT_OK &&
                       integer == json_integer_value(wanted),
                   "another integer: %lld", (long long)integer);
        break;
    case JSON_REAL:
        FUZZ_CHECK(ckpt_item_real(item, &real, NULL) == CKPT_OK && real == json_real_value(wanted),
                   "another number: %.17g", real);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        FUZZ_CHECK(ckpt_item_bool(item, &flag, NULL) == CKPT_OK && flag == json_is_true(wanted), "another flag");
        break;
    case JSON_NULL: FUZZ_CHECK(ckpt_item_type(item) == CKPT_JSON_NULL, "no null"); break;
    }
    ckpt_arena_fini(&arena);
}

static ckpt_code read_json(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const char *text = NULL;
    size_t length = 0;
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_file_read(path, arena, &text, &length, err));
    json_t *const wanted = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    const ckpt_code code = ckpt_json_open(path, NULL, &json, &root, err);
    const bool nul = memchr(text, '\0', length) != NULL; /* Jansson overlooks one after a number */
    FUZZ_CHECK(nul || (code == CKPT_OK) == (wanted != NULL && json_is_object(wanted)), "Jansson says otherwise: %s",
               err->msg);
    if (code == CKPT_OK) {
        check_same(&root, wanted);
    }
    ckpt_json_close(json);
    json_decref(wanted);
    return code;
}

const fuzz_reader fuzz_the_reader = {.name = "json", .split = fuzz_split_text, .placed = true, .read = read_json};
