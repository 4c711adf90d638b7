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
    for (void *i = NULL; ckpt_item_next(&root, &i, &item); k++) {
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
    assert_true(ckpt_test_starve(open_sample, path) >= 3); /* the document, its text, Jansson's tree */
}

/* Jansson asserts that it could keep each digit of a number: it used to end the program where it could not. */
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

/* Jansson has one allocator for the process, which is not ours to set: what the rest of the process makes and frees
 * there outlives our documents. */
static void test_others_may_use_jansson(void **state)
{
    json_malloc_t get = NULL;
    json_free_t put = NULL;
    ckpt_item root;
    char path[512];
    snprintf(path, sizeof path, "%s", ckpt_test_file("others.json", sample, strlen(sample)));
    (void)ckpt_test_starve(open_sample, path); /* it last ended without memory, too */
    assert_int_equal(ckpt_memory_live(), 0);
    ckpt_json *const json = open_text(sample, &root);
    json_get_alloc_funcs(&get, &put);
    assert_true(get == malloc && put == free);
    json_t *const theirs = json_pack("{s:[i,i,s]}", "list", 1, 2, "three");
    assert_non_null(theirs);
    ckpt_json_close(json);
    assert_string_equal(json_string_value(json_array_get(json_object_get(theirs, "list"), 2)), "three");
    char *const text = json_dumps(theirs, JSON_COMPACT);
    assert_string_equal(text, "{\"list\":[1,2,\"three\"]}");
    json_decref(theirs);
    free(text);
    assert_int_equal(ckpt_memory_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_are_of_the_value),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_files_that_are_not_there),
        cmocka_unit_test(test_parsing_without_memory),
        cmocka_unit_test(test_long_numbers_without_memory),
        cmocka_unit_test(test_others_may_use_jansson),
        cmocka_unit_test(test_every_element_of_a_long_array_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
