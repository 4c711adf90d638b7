/* labels: unit */
/* Device models: the table, a JSON file of one's own, and the roofline. */
#include "tests/support/support_test.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "ops/device_model.h"
#include "ops/op.h"

static void test_table(void **state)
{
    CKPT_TEST_ARENA(arena);
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
        CHECK(model->sheet_flop_per_s >= model->flop_per_s && model->sheet_flop_per_s16 >= model->flop_per_s16 &&
                  model->sheet_bytes_per_s >= model->bytes_per_s &&
                  model->sheet_bytes_per_s >= model->cache_bytes_per_s,
              "%s: sustained is more than the data sheet has", model->name);
        for (const ckpt_op_factor *factor = model->factor; factor != NULL && factor->op != NULL; factor++) {
            CHECK(strcmp(factor->op, "update") == 0 || ckpt_op_find(factor->op) != NULL, "%s: no op %s", model->name,
                  factor->op);
        }
    }
    assert_true(count >= 9);
    const ckpt_device_model *found = NULL;
    assert_int_equal(ckpt_device_model_find("a1000", &arena, &found, &err), CKPT_BAD_INPUT);
    assert_null(found);
    assert_non_null(strstr(err.msg, "no device \"a1000\": wanted one of cpu, h200, h100, "));
    assert_non_null(strstr(err.msg, "or a JSON file"));
}

static void test_roofline(void **state)
{
    const ckpt_device_model device = {.flop_per_s = 1e12, .bytes_per_s = 1e9, .launch_ns = 10};
    assert_int_equal(ckpt_roofline_ns(&device, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 0, 0), 10);
    assert_int_equal(ckpt_roofline_ns(&device, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 5000, 0),
                     15); /* 5000 operations at 1000 per ns */
    assert_int_equal(ckpt_roofline_ns(&device, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 5000, 3),
                     15); /* 3 bytes hide behind them */
    assert_int_equal(ckpt_roofline_ns(&device, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 5000, 100),
                     110); /* memory bound */
    const ckpt_device_model narrow = {.flop_per_s = 1e12, .flop_per_s16 = 5e12, .bytes_per_s = 1e9, .launch_ns = 10};
    assert_int_equal(ckpt_roofline_ns(&narrow, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 5000, 0), 15);
    assert_int_equal(ckpt_roofline_ns(&narrow, NULL, CKPT_DIRECTION_FORWARD, CKPT_BFLOAT16, 5000, 0), 11);
    assert_true(ckpt_roofline_ns(&device, NULL, CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, INT64_MAX, INT64_MAX) > 0);
}

/* The first bytes come from the cache, the others from memory; an op's factor is on the work, not on the launch. To
 * the nanosecond: what is between two of them is cut off. */
static void test_roofline_with_cache_and_factors(void **state)
{
    static const ckpt_op_factor factor[] = {{"gelu", {4, 3, 0}}, {"update", {0, 0, 0.5}}, {NULL, {0}}};
    const ckpt_device_model device = {.flop_per_s = 1e12,
                                      .bytes_per_s = 1e9,
                                      .cache_bytes = 100,
                                      .cache_bytes_per_s = 1e10,
                                      .launch_ns = 10,
                                      .factor = factor};
    static const struct {
        const char *op;
        ckpt_direction direction;
        ckpt_flop flop;
        ckpt_bytes moved;
        ckpt_ns ns;
    } wanted[] = {
        {"relu", CKPT_DIRECTION_FORWARD, 0, 100, 10 + 10},        /* all in the cache */
        {"relu", CKPT_DIRECTION_FORWARD, 0, 150, 10 + 10 + 50},   /* 50 bytes are not */
        {"relu", CKPT_DIRECTION_FORWARD, 30000, 150, 10 + 60},    /* 30 ns of compute hide */
        {"relu", CKPT_DIRECTION_FORWARD, 70000, 150, 10 + 70},    /* these do not */
        {"gelu", CKPT_DIRECTION_FORWARD, 0, 150, 10 + 4 * 60},    /* four times as long */
        {"gelu", CKPT_DIRECTION_BACKWARD, 70000, 0, 10 + 3 * 70}, /* whatever bounds it */
        {"gelu", CKPT_DIRECTION_UPDATE, 0, 150, 10 + 30},         /* an update is one for every op */
        {"relu", CKPT_DIRECTION_UPDATE, 0, 150, 10 + 30},         {NULL, CKPT_DIRECTION_FORWARD, 0, 150, 10 + 60},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ckpt_ns found =
            ckpt_roofline_ns(&device, wanted[i].op, wanted[i].direction, CKPT_FLOAT32, wanted[i].flop, wanted[i].moved);
        CHECK(llabs(found - wanted[i].ns) <= 1, "%zu: %lld ns, wanted %lld", i, (long long)found,
              (long long)wanted[i].ns);
    }
    const ckpt_device_model none = {.flop_per_s = 1e12, .bytes_per_s = 1e9, .factor = &factor[2]};
    assert_int_equal(ckpt_roofline_ns(&none, "gelu", CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 0, 7), 7);
}

/* A profile's machine block says on what it was recorded. */
static void test_machines(void **state)
{
    static const struct {
        bool gpu;
        const char *device, *model; /* model NULL: none of the table */
    } wanted[] = {
        {true, "cuda:0: NVIDIA H200, 132 multiprocessors, 139 GiB", "h200"},
        {true, "cuda:3: NVIDIA A100-SXM4-40GB, 108 multiprocessors, 39 GiB", "a100-40gb"},
        {true, "cuda:0: NVIDIA A10, 72 multiprocessors, 22 GiB", "a10"},
        {true, "cuda:0: NVIDIA A10G, 80 multiprocessors, 22 GiB", NULL},
        {true, "cuda:0: NVIDIA GeForce RTX 3060 Ti, 38 multiprocessors, 8 GiB", NULL},
        {true, "", NULL},
        {false, "cpu: AMD EPYC, 2 threads", "cpu"},
        {false, "cpu: AMD EPYC, 20 threads", NULL},
        {false, "cuda:0: NVIDIA H200, 132 multiprocessors, 139 GiB", NULL},
        {false, "", NULL},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ckpt_machine machine = {.device = wanted[i].device, .gpu = wanted[i].gpu};
        const ckpt_device_model *const found = ckpt_device_model_of_machine(&machine);
        CHECK((found == NULL) == (wanted[i].model == NULL), "\"%s\"", wanted[i].device);
        assert_true(found == NULL || strcmp(found->name, wanted[i].model) == 0);
    }
}

static const char *path; /* set by main */

static ckpt_code read_text(const char *text, ckpt_arena *arena, const ckpt_device_model **device, ckpt_err *err)
{
    ckpt_err write_err = {0};
    CHECK_OK(ckpt_file_write(path, text, strlen(text), &write_err), write_err);
    return ckpt_device_model_find(path, arena, device, err);
}

static void test_own_file(void **state)
{
    CKPT_TEST_ARENA(arena);
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
    CHECK_OK(read_text("{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"cache_bytes\": 32, \"cache_bytes_per_s\": 5,"
                       " \"sheet_flop_per_s\": 2, \"sheet_bytes_per_s\": 6, \"op_factors\": {"
                       " \"gelu\": { \"forward\": 4.5, \"backward\": 3 }, \"update\": { \"update\": 0.5 } } }",
                       &arena, &device, &err),
             err);
    assert_true(device->cache_bytes == 32 && device->cache_bytes_per_s == 5);
    assert_true(device->sheet_flop_per_s == 2 && device->sheet_flop_per_s16 == 1 && device->sheet_bytes_per_s == 6);
    const ckpt_op_factor *const factor = device->factor;
    assert_string_equal(factor[0].op, "gelu");
    assert_true(factor[0].times[CKPT_DIRECTION_FORWARD] == 4.5 && factor[0].times[CKPT_DIRECTION_BACKWARD] == 3);
    assert_string_equal(factor[1].op, "update");
    assert_true(factor[1].times[CKPT_DIRECTION_UPDATE] == 0.5 && factor[1].times[CKPT_DIRECTION_FORWARD] == 0);
    assert_null(factor[2].op);
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
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"cache_bytes\": 5 }", "cache_bytes_per_s"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"cache_bytes\": 5, \"cache_bytes_per_s\": 0 }", "is 0"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"sheet_bytes_per_s\": -1 }", "\"sheet_bytes_per_s\" is -1"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"op_factors\": [] }", "object"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"op_factors\": { \"gelu\": 2 } }", "object"},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"op_factors\": { \"gleu\": {} } }", "no op \"gleu\""},
        {"{ \"flop_per_s\": 1, \"bytes_per_s\": 1, \"op_factors\": { \"gelu\": { \"forward\": 0 } } }", "above 0"},
        {"[1]", "object"},
        {"{", "test_device.json:1:"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(read_text(wrong[i][0], &arena, &device, &err) == CKPT_BAD_INPUT, "%s", wrong[i][0]);
        CHECK(strstr(err.msg, wrong[i][1]) != NULL, "wanted \"%s\" in \"%s\"", wrong[i][1], err.msg);
        CHECK(strstr(err.msg, "test_device.json:1:") != NULL, "no place in \"%s\"", err.msg);
    }
    assert_int_equal(ckpt_device_model_find("./no/such/file.json", &arena, &device, &err), CKPT_IO);
}

static ckpt_code find_own(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    const ckpt_device_model *device = NULL;
    return ckpt_device_model_find(path, arena, &device, err);
}

static void test_starved(void **state)
{
    ckpt_err err = {0};
    static const char text[] = "{ \"name\": \"mine\", \"flop_per_s\": 2e12, \"bytes_per_s\": 3e11,"
                               " \"op_factors\": { \"gelu\": { \"forward\": 2 } } }";
    CHECK_OK(ckpt_file_write(path, text, strlen(text), &err), err);
    assert_true(ckpt_test_starve_arena(find_own, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_roofline_with_cache_and_factors),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_own_file),
        cmocka_unit_test(test_starved),
    };
    path = ckpt_work_file("test_device.json");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
