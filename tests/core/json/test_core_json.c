/* labels: unit */
/* The JSON cursor: values, places, and what is refused. */
#include "tests/support/support_core.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"

static const char *const sample =
    "{ \"name\": \"caf\xc3\xa9\", \"list\": [ 1, [2, {\"k\" : \"]},\\\"\"}],\n"
    "\t3 ],\n"
    "  \"caf\xc3\xa9\": { \"a\\u0041\": true, \"deep\": { \"x\": -1.5e3, \"y\": null } } }\n";

static ckpt_json *open_text(const char *text, ckpt_item *root)
{
    ckpt_err err = {0};
    ckpt_json *json = NULL;
    CHECK_OK(ckpt_json_open(ckpt_test_file("cursor.json", text, strlen(text)), NULL, &json, root, &err), err);
    return json;
}

static void check_at(const ckpt_item *item, int line, int column)
{
    const ckpt_position at = ckpt_item_position(item);
    CHECK(at.line == line && at.column == column, "%s[%d]: %d:%d, wanted %d:%d", item->key != NULL ? item->key : "",
          item->index, at.line, at.column, line, column);
}

static void test_places_are_of_the_value(void **state)
{
    ckpt_item root;
    ckpt_item list;
    ckpt_item item;
    ckpt_item inner;
    ckpt_item deeper;
    ckpt_item deepest;
    ckpt_json *const json = open_text(sample, &root);
    check_at(&root, 1, 1);
    assert_true(ckpt_item_find(&root, "name", &item));
    check_at(&item, 1, 11);
    assert_true(ckpt_item_find(&root, "list", &list));
    check_at(&list, 1, 27); /* characters, not bytes: one of the name has two */
    ckpt_item_at(&list, 0, &item);
    check_at(&item, 1, 29);
    ckpt_item_at(&list, 1, &item);
    check_at(&item, 1, 32);
    ckpt_item_at(&item, 1, &inner);
    check_at(&inner, 1, 36);
    assert_true(ckpt_item_find(&inner, "k", &deeper));
    check_at(&deeper, 1, 43);
    ckpt_item_at(&list, 2, &item);
    check_at(&item, 2, 2);
    assert_true(ckpt_item_find(&root, "caf\xc3\xa9", &item));
    check_at(&item, 3, 11);
    assert_true(ckpt_item_find(&item, "aA", &inner)); /* written with an escape */
    check_at(&inner, 3, 24);
    assert_true(ckpt_item_find(&item, "deep", &deeper));
    assert_true(ckpt_item_find(&deeper, "y", &deepest));
    check_at(&deepest, 3, 58);
    ckpt_json_close(json);
}

static void test_values(void **state)
{
    ckpt_err err = {0};
    ckpt_arena arena;
    ckpt_item root;
    ckpt_item item;
    ckpt_item list;
    ckpt_item inner;
    int64_t integer = 0;
    double real = 0.0;
    bool flag = false;
    const char *text = NULL;
    int count = 0;
    ckpt_arena_init(&arena);
    ckpt_json *const json = open_text(sample, &root);
    assert_false(ckpt_item_find(&root, "missing", &item));
    assert_int_equal(ckpt_item_need(&root, "missing", &item, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, ":1:1: found no \"missing\""));
    assert_true(ckpt_item_find(&root, "name", &item));
    CHECK_OK(ckpt_item_text(&item, &arena, &text, &err), err);
    assert_string_equal(text, "caf\xc3\xa9");
    assert_int_equal(ckpt_item_type(&item), CKPT_JSON_TEXT);
    assert_true(ckpt_item_find(&root, "list", &list));
    CHECK_OK(ckpt_item_array(&list, &count, &err), err);
    assert_int_equal(count, 3);
    ckpt_item_at(&list, 2, &item);
    CHECK_OK(ckpt_item_int(&item, 3, 3, &integer, &err), err);
    assert_int_equal(integer, 3);
    CHECK_OK(ckpt_item_real(&item, &real, &err), err);
    assert_true(real == 3.0);
    assert_int_equal(ckpt_item_int(&item, 4, 9, &integer, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, ":2:2: found 3, wanted 4 or more"));
    assert_int_equal(ckpt_item_int(&item, 0, 2, &integer, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "wanted 2 or less"));
    assert_int_equal(ckpt_item_bool(&item, &flag, &err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_item_text(&item, &arena, &text, &err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_item_array(&item, &count, &err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_item_object(&item, &err), CKPT_BAD_INPUT);
    assert_int_equal(ckpt_item_count(&item), 0);
    assert_true(ckpt_item_find(&root, "caf\xc3\xa9", &item));
    ckpt_item deep;
    assert_true(ckpt_item_find(&item, "deep", &deep));
    assert_true(ckpt_item_find(&deep, "x", &inner));
    CHECK_OK(ckpt_item_real(&inner, &real, &err), err);
    assert_true(real == -1500.0);
    assert_int_equal(ckpt_item_int(&inner, -9999, 0, &integer, &err), CKPT_BAD_INPUT);
    /* Members come in file order. */
    const char *const keys[] = {"name", "list", "caf\xc3\xa9"};
    int k = 0;
    for (int i = 0; ckpt_item_next(&root, &i, &item); k++) {
        assert_string_equal(item.key, keys[k]);
    }
    assert_int_equal(k, 3);
    ckpt_json_close(json);
    ckpt_json_close(NULL);
    ckpt_arena_fini(&arena);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_files_that_are_not_there(void **state)
{
    ckpt_err err = {0};
    ckpt_json *json = NULL;
    ckpt_item root;
    assert_int_equal(ckpt_json_open(ckpt_work_file("none.json"), NULL, &json, &root, &err), CKPT_IO);
    assert_null(json);
    assert_int_equal(ckpt_memory_live(), 0);
}

static ckpt_code open_sample(void *context, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    const ckpt_code code = ckpt_json_open(context, NULL, &json, &root, err);
    ckpt_json_close(code == CKPT_OK ? json : NULL);
    return code;
}

static void test_parsing_without_memory(void **state)
{
    char path[512];
    snprintf(path, sizeof path, "%s", ckpt_test_file("starved.json", sample, strlen(sample)));
    assert_true(ckpt_test_starve(open_sample, path) >= 4); /* the document, its text, two parts of the index */
}

/* A number of more digits than are converted in place. */
static void test_long_numbers_without_memory(void **state)
{
    enum { DIGITS = 100000 };
    static char text[DIGITS + 100];
    char path[512];
    const size_t head = (size_t)snprintf(text, sizeof text, "{ \"none\": 0.");
    memset(text + head, '1', DIGITS);
    snprintf(text + head + DIGITS, sizeof text - head - DIGITS, " }");
    snprintf(path, sizeof path, "%s", ckpt_test_file("starved.json", text, strlen(text)));
    assert_true(ckpt_test_starve(open_sample, path) > 3);
}

/* Positions counted by a plain scan of a generated file of odd spacing. */
static void test_every_element_of_a_long_array_is_found(void **state)
{
    enum { COUNT = 500 };
    static char text[COUNT * 40];
    int line[COUNT];
    int column[COUNT];
    size_t length = (size_t)snprintf(text, sizeof text, "{\"a\":[");
    int row = 1;
    int col = 7;
    for (int i = 0; i < COUNT; i++) {
        line[i] = row;
        column[i] = col;
        const int n = snprintf(text + length, sizeof text - length, i % 3 == 0 ? "\"x\\\\\"" : "{\"k\":[%d,\"]\"]}", i);
        length += (size_t)n;
        col += n;
        const char *const space = i + 1 == COUNT ? "]}" : i % 7 == 0 ? ",\n  " : i % 5 == 0 ? " , " : ",";
        length += (size_t)snprintf(text + length, sizeof text - length, "%s", space);
        row += i % 7 == 0;
        col = i % 7 == 0 ? 3 : col + (int)strlen(space);
    }
    ckpt_item root;
    ckpt_item array;
    ckpt_json *const json = open_text(text, &root);
    assert_true(ckpt_item_find(&root, "a", &array));
    assert_int_equal(ckpt_item_count(&array), COUNT);
    for (int i = 0; i < COUNT; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        check_at(&item, line[i], column[i]);
    }
    ckpt_json_close(json);
}

/* ---- the same as Jansson says ---- */

static void check_same(const ckpt_item *item, const json_t *wanted)
{
    ckpt_err err = {0};
    CKPT_TEST_ARENA(arena);
    const char *text = NULL;
    int64_t integer = 0;
    double real = 0;
    bool flag = false;
    switch (json_typeof(wanted)) {
    case JSON_OBJECT: {
        assert_int_equal(ckpt_item_type(item), CKPT_JSON_OBJECT);
        assert_int_equal(ckpt_item_count(item), json_object_size(wanted));
        ckpt_item member;
        for (int i = 0; ckpt_item_next(item, &i, &member);) {
            const json_t *const value = json_object_get(wanted, member.key);
            CHECK(value != NULL, "no member %s", member.key);
            check_same(&member, value);
            assert_true(ckpt_item_find(item, member.key, &member));
            check_same(&member, value);
        }
        break;
    }
    case JSON_ARRAY:
        assert_int_equal(ckpt_item_type(item), CKPT_JSON_ARRAY);
        assert_int_equal(ckpt_item_count(item), json_array_size(wanted));
        for (int i = 0; i < ckpt_item_count(item); i++) {
            ckpt_item element;
            ckpt_item_at(item, i, &element);
            check_same(&element, json_array_get(wanted, (size_t)i));
        }
        break;
    case JSON_STRING:
        CHECK_OK(ckpt_item_text(item, &arena, &text, &err), err);
        assert_string_equal(text, json_string_value(wanted));
        break;
    case JSON_INTEGER:
        CHECK_OK(ckpt_item_int(item, INT64_MIN, INT64_MAX, &integer, &err), err);
        assert_int_equal(integer, json_integer_value(wanted));
        break;
    case JSON_REAL:
        CHECK_OK(ckpt_item_real(item, &real, &err), err);
        CHECK(real == json_real_value(wanted), "%.17g, wanted %.17g", real, json_real_value(wanted));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        CHECK_OK(ckpt_item_bool(item, &flag, &err), err);
        assert_int_equal(flag, json_is_true(wanted));
        break;
    case JSON_NULL: assert_int_equal(ckpt_item_type(item), CKPT_JSON_NULL); break;
    }
}

/* "file:line:column: message" as Jansson has it, without its words for programmers. */
static void check_same_message(const char *found, json_error_t *error, const char *text, size_t length)
{
    static const char words[] = " without JSON_ALLOW_NUL";
    char wanted[300];
    char *const hint = strstr(error->text, words);
    if (hint != NULL) {
        memmove(hint, hint + strlen(words), strlen(hint + strlen(words)) + 1);
    }
    snprintf(wanted, sizeof wanted, "same.json:%d:%d: %s", error->line > 0 ? error->line : 1,
             error->column > 0 ? error->column : 1, error->text);
    for (char *c = wanted; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
    }
    CHECK(strncmp(found, wanted, 255) == 0, "\"%s\", wanted \"%s\", for: %.*s", found, wanted, (int)length, text);
}

static void check_text(const char *text, size_t length, int *accepted)
{
    ckpt_err err = {0};
    json_error_t error;
    ckpt_json *json = NULL;
    ckpt_item root;
    json_t *const wanted = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    const ckpt_code code = ckpt_json_open_text("same.json", text, length, NULL, &json, &root, &err);
    if (memchr(text, '\0', length) != NULL) { /* Jansson overlooks one after a number */
        assert_int_equal(code, CKPT_BAD_INPUT);
    } else if (wanted == NULL) {
        CHECK(code == CKPT_BAD_INPUT, "code %d for: %.*s", (int)code, (int)length, text);
        check_same_message(err.msg, &error, text, length);
    } else if (json_is_object(wanted)) {
        CHECK_OK(code, err);
        check_same(&root, wanted);
        ++*accepted;
    }
    ckpt_json_close(json);
    json_decref(wanted);
    assert_int_equal(ckpt_memory_live(), 0);
}

static void test_every_text_is_read_as_jansson_reads_it(void **state)
{
    static const char *const texts[] = {
        sample,
        "{\"a\": [], \"b\": {}, \"c\": [[[]], {\"\": \"\"}], \"n\": -0, \"t\": [true,false,null] }",
        "{\"\\u00e9\": 1, \"\\ud834\\udd1e\": \"\\ud834\\udd1e\", \"\\/\\b\\f\\n\\r\\t\\\\\\\"\": \"\\u0041\\u20ac\"}",
        "{\"x\": [9223372036854775807, -9223372036854775808, 1e308, 0.25e-3, 4.9e-324, 12345678901234567890.5]}",
        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10,\"k\":11,\"l\":12,\"m\":13}",
        "{\"utf\": \"\xc2\xa2 \xe2\x82\xac \xf0\x9f\x98\x80\",\r\n\t \"end\" : \"\xed\x9f\xbf\"}",
    };
    int accepted = 0;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        check_text(texts[t], strlen(texts[t]), &accepted);
        assert_int_equal(accepted, t + 1);
    }
}

/* Jansson's limits, and an object of so many members that a table finds the second of a name. */
static void test_deep_and_wide_texts(void **state)
{
    static char text[1 << 16];
    int accepted = 0;
    for (int depth = 2046; depth < 2050; depth++) {
        size_t length = (size_t)snprintf(text, sizeof text, "{\"a\":");
        memset(text + length, '[', (size_t)depth);
        memset(text + length + depth, ']', (size_t)depth);
        text[length + 2 * (size_t)depth] = '}';
        check_text(text, length + 2 * (size_t)depth + 1, &accepted);
    }
    assert_int_equal(accepted, 2);
    for (int twice = 0; twice < 2; twice++) {
        size_t length = (size_t)snprintf(text, sizeof text, "{");
        for (int i = 0; i < 1000; i++) {
            length += (size_t)snprintf(text + length, sizeof text - length, "\"k%d\": [%d],\n ", i, i);
        }
        length += (size_t)snprintf(text + length, sizeof text - length, "\"%s\": 1}", twice ? "\\u006b77" : "last");
        check_text(text, length, &accepted);
        assert_int_equal(accepted, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_are_of_the_value),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_files_that_are_not_there),
        cmocka_unit_test(test_parsing_without_memory),
        cmocka_unit_test(test_long_numbers_without_memory),
        cmocka_unit_test(test_every_text_is_read_as_jansson_reads_it),
        cmocka_unit_test(test_deep_and_wide_texts),
        cmocka_unit_test(test_every_element_of_a_long_array_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
