/* labels: unit */
/* Device models: the table, a JSON file of one's own, and the roofline. */
#include "tests/support_test.h"

#include <string.h>

#include "core/file.h"
#include "ops/device_model.h"

static void test_table(void **state)
{
    (void)state;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    int count = 0;
    for (const ckpt_device_model *model = ckpt_device_models; model->name != NULL; model++, count++) {
        const ckpt_device_model *found = NULL;
        CHECK_OK(ckpt_device_model_find(model->name, &arena, &found, &err), err);
        CHECK(found == model, "%s is there twice", model->name);
        CHECK(model->memory_bytes > 0 && model->flop_per_s > 0 && model->bytes_per_s > 0 && model->launch_ns > 0 &&
                  model->flop_per_s16 >= model->flop_per_s && model->link_bytes_per_s >= 0 &&
                  strlen(model->about) > 20 && model->gpu == (strcmp(model->name, "cpu") != 0),
              "%s", model->name);
    }
    assert_true(count >= 9);
    const ckpt_device_model *found = NULL;
    assert_int_equal(ckpt_device_model_find("a1000", &arena, &found, &err), CKPT_BAD_INPUT);
    assert_null(found);
    assert_non_null(strstr(err.msg, "no device \"a1000\": wanted one of cpu, h200, h100, "));
    assert_non_null(strstr(err.msg, "or a JSON file"));
    ckpt_arena_fini(&arena);
}

static void test_roofline(void **state)
{
    (void)state;
    const ckpt_device_model device = {.flop_per_s = 1e12, .bytes_per_s = 1e9, .launch_ns = 10};
    assert_int_equal(ckpt_roofline_ns(&device, CKPT_FLOAT32, 0, 0), 10);
    assert_int_equal(ckpt_roofline_ns(&device, CKPT_FLOAT32, 5000, 0), 15);    /* 5000 operations at 1000 per ns */
    assert_int_equal(ckpt_roofline_ns(&device, CKPT_FLOAT32, 5000, 3), 15);    /* 3 bytes hide behind them */
    assert_int_equal(ckpt_roofline_ns(&device, CKPT_FLOAT32, 5000, 100), 110); /* memory bound */
    const ckpt_device_model narrow = {.flop_per_s = 1e12, .flop_per_s16 = 5e12, .bytes_per_s = 1e9, .launch_ns = 10};
    assert_int_equal(ckpt_roofline_ns(&narrow, CKPT_FLOAT32, 5000, 0), 15);
    assert_int_equal(ckpt_roofline_ns(&narrow, CKPT_BFLOAT16, 5000, 0), 11);
    assert_true(ckpt_roofline_ns(&device, CKPT_FLOAT32, INT64_MAX, INT64_MAX) > 0);
}

static const char path[] = CKPT_WORK_DIR "/test_device.json";

static ckpt_code read_text(const char *text, ckpt_arena *arena, const ckpt_device_model **device, ckpt_err *err)
{
    ckpt_err write_err = {0};
    CHECK_OK(ckpt_file_write(path, text, strlen(text), &write_err), write_err);
    return ckpt_device_model_find(path, arena, device, err);
}

static void test_own_file(void **state)
{
    (void)state;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_device_model *device = NULL;
    CHECK_OK(read_text("{ \"name\": \"mine\", \"about\": \"measured\", \"memory_bytes\": 8000, \"flop_per_s\": 2e12,"
                       " \"bytes_per_s\": 3e11, \"launch_ns\": 7, \"link_bytes_per_s\": 9 }",
                       &arena, &device, &err),
             err);
    assert_string_equal(device->name, "mine");
    assert_string_equal(device->about, "measured");
    assert_true(device->flop_per_s == 2e12 && device->bytes_per_s == 3e11);
    assert_true(device->memory_bytes == 8000 && device->launch_ns == 7 && device->link_bytes_per_s == 9);
    CHECK_OK(read_text("{ \"flop_per_s\": 1, \"bytes_per_s\": 1 }", &arena, &device, &err), err);
    assert_string_equal(device->name, path);
    assert_true(!device->gpu && device->flop_per_s16 == 1);
    CHECK_OK(read_text("{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"flop_per_s16\": 8, \"gpu\": true }", &arena, &device,
                       &err),
             err);
    assert_true(device->gpu && device->flop_per_s16 == 8 && device->flop_per_s == 1);
    static const char *const wrong[][2] = {
        {"{ \"bytes_per_s\": 1 }", "flop_per_s"},
        {"{ \"flop_per_s\": 1 }", "bytes_per_s"},
        {"{ \"flop_per_s\": 0, \"bytes_per_s\": 1 }", "wanted a number above 0"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": -3.5 }", "\"bytes_per_s\" is -3.5"},
        {"{ \"flop_per_s\": \"fast\", \"bytes_per_s\": 1 }", "flop_per_s"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"launch_ns\": -1 }", "launch_ns"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"name\": 5 }", "name"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"flop_per_s16\": 0 }", "\"flop_per_s16\" is 0"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"gpu\": 1 }", "gpu"},
        {"[1]", "object"},
        {"{", "test_device.json:1:"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(read_text(wrong[i][0], &arena, &device, &err) == CKPT_BAD_INPUT, "%s", wrong[i][0]);
        CHECK(strstr(err.msg, wrong[i][1]) != NULL, "wanted \"%s\" in \"%s\"", wrong[i][1], err.msg);
        CHECK(strstr(err.msg, "test_device.json:1:") != NULL, "no place in \"%s\"", err.msg);
    }
    assert_int_equal(ckpt_device_model_find("./no/such/file.json", &arena, &device, &err), CKPT_IO);
    ckpt_arena_fini(&arena);
}

static ckpt_code find_own(void *context, ckpt_err *err)
{
    (void)context;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const ckpt_device_model *device = NULL;
    const ckpt_code code = ckpt_device_model_find(path, &arena, &device, err);
    ckpt_arena_fini(&arena);
    return code;
}

static void test_starved(void **state)
{
    (void)state;
    ckpt_err err = {0};
    static const char text[] = "{ \"name\": \"mine\", \"flop_per_s\": 2e12, \"bytes_per_s\": 3e11 }";
    CHECK_OK(ckpt_file_write(path, text, strlen(text), &err), err);
    assert_true(ckpt_test_starve(find_own, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_own_file),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
