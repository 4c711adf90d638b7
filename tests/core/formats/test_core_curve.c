/* labels: unit */
/* ckpt-sweep/1: what is read is what the file says, and what is written reads back the same. What malformed files say
 * is test_malformed.c's. */
#include "tests/support/support_core.h"

#include <stdio.h>
#include <string.h>

#include "core/formats/curve.h"

static const char *const sweep_text =
    "{ \"format\": \"ckpt-sweep/1\", \"graph\": { \"name\": \"t\\u0001<&\\\"\", \"sha256\": \"SHA\" },\n"
    "  \"costs\": \"roofline of cpu\", \"static_bytes\": 100, \"unknown\": {},\n"
    "  \"keep_all\": { \"peak_bytes\": 900, \"time_ns\": 1000 }, \"complete\": false, \"least_budget_bytes\": 7,\n"
    "  \"points\": [ { \"budget_bytes\": 500, \"peak_bytes\": 480, \"arena_bytes\": 390, \"time_ns\": 1500,\n"
    "      \"overhead\": 77.0, \"bound\": { \"time_ns\": 1200, \"gap\": 77.0, \"how\": \"lp\", \"scope\": \"all\" },\n"
    "      \"strategy\": \"chain\" },\n"
    "    { \"budget_bytes\": 900, \"peak_bytes\": 900, \"arena_bytes\": 800, \"time_ns\": 1000 } ],\n"
    "  \"baselines\": [ { \"strategy\": \"sqrt\", \"points\": [\n"
    "      { \"budget_bytes\": 600, \"peak_bytes\": 600, \"arena_bytes\": 500, \"time_ns\": 1300 },\n"
    "      { \"budget_bytes\": 700, \"peak_bytes\": 700, \"arena_bytes\": 600, \"time_ns\": 1400, \"strategy\": \"s\" "
    "} ] "
    "},\n"
    "    { \"strategy\": \"none\", \"points\": [] } ] }\n";
static const char *const sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static const ckpt_curve *read_curve(const char *text, ckpt_arena *arena)
{
    ckpt_err err = {0};
    const ckpt_curve *curve = NULL;
    CHECK_OK(ckpt_curve_read(ckpt_test_file("sweep.json", text, strlen(text)), arena, &curve, &err), err);
    return curve;
}

static void check_fields(const ckpt_curve *c)
{
    assert_string_equal(c->graph_name, "t\001<&\"");
    assert_string_equal(c->graph_sha256, sha);
    assert_string_equal(c->costs, "roofline of cpu");
    assert_int_equal(c->static_bytes, 100);
    assert_int_equal(c->keep_all_peak_bytes, 900);
    assert_int_equal(c->keep_all_time_ns, 1000);
    assert_int_equal(c->min_budget_bytes, 7);
    assert_false(c->complete);
    assert_int_equal(c->point_count, 2);
    assert_int_equal(c->point[0].budget_bytes, 500);
    assert_int_equal(c->point[0].peak_bytes, 480);
    assert_int_equal(c->point[0].arena_bytes, 390);
    assert_int_equal(c->point[0].time_ns, 1500);
    assert_true(c->point[0].has_bound);
    assert_int_equal(c->point[0].bound_ns, 1200);
    assert_string_equal(c->point[0].bound_how, "lp");
    assert_string_equal(c->point[0].bound_scope, "all");
    assert_string_equal(c->point[0].strategy, "chain");
    assert_false(c->point[1].has_bound);
    assert_string_equal(c->point[1].strategy, "");
    assert_int_equal(c->baseline_count, 2);
    assert_string_equal(c->baseline[0].strategy, "sqrt");
    assert_int_equal(c->baseline[0].point_count, 2);
    assert_int_equal(c->baseline[0].point[1].time_ns, 1400); /* slower with more: baselines may */
    assert_string_equal(c->baseline[1].strategy, "none");
    assert_int_equal(c->baseline[1].point_count, 0);
}

static void fields_survive_a_round_trip(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    const ckpt_curve *const curve = read_curve(ckpt_test_replace(sweep_text, "SHA", sha), &arena);
    check_fields(curve);
    ckpt_curve_write(curve, &text);
    check_fields(read_curve(text.bytes, &arena));
    assert_non_null(strstr(text.bytes, "\"overhead\": 0.5,")); /* computed, never copied */
    assert_non_null(strstr(text.bytes, "\"gap\": 0.25,"));
    ckpt_test_round_trip("sweep", text.bytes);
    ckpt_text_fini(&text);
}

/* What may be absent is, and the file still says what it can: no digest, no baselines, nothing that fits. */
static void little_is_needed(void **state)
{
    static const char *const little =
        "{ \"format\": \"ckpt-sweep/1\", \"graph\": { \"name\": \"t\" }, \"static_bytes\": 0,\n"
        "  \"keep_all\": { \"peak_bytes\": 0, \"time_ns\": 0 }, \"points\": [] }\n";
    CKPT_TEST_ARENA(arena);
    const ckpt_curve *const curve = read_curve(little, &arena);
    assert_string_equal(curve->graph_sha256, "");
    assert_string_equal(curve->costs, "");
    assert_true(curve->complete);
    assert_int_equal(curve->point_count, 0);
    assert_int_equal(curve->baseline_count, 0);
    ckpt_test_round_trip("sweep", little);
}

/* Figures of 63 bits are kept to the last one, and time by which nothing can be divided gives no nan. */
static void extremes(void **state)
{
    const ckpt_curve_point point = {.budget_bytes = INT64_MAX,
                                    .peak_bytes = INT64_MAX,
                                    .arena_bytes = INT64_MAX,
                                    .time_ns = INT64_MAX,
                                    .has_bound = true,
                                    .bound_ns = 0};
    const ckpt_curve curve = {.graph_name = "x", .complete = true, .point = &point, .point_count = 1};
    CKPT_TEST_ARENA(arena);
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_curve_write(&curve, &text);
    CHECK(strstr(text.bytes, "nan") == NULL && strstr(text.bytes, "inf") == NULL, "%s", text.bytes);
    const ckpt_curve *const back = read_curve(text.bytes, &arena);
    assert_true(back->point[0].budget_bytes == INT64_MAX && back->point[0].time_ns == INT64_MAX);
    assert_true(back->point[0].has_bound && back->point[0].bound_ns == 0);
    ckpt_text_fini(&text);
}

static void no_memory(void **state)
{
    ckpt_test_starve_format("sweep", ckpt_test_replace(sweep_text, "SHA", sha));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_survive_a_round_trip),
        cmocka_unit_test(little_is_needed),
        cmocka_unit_test(extremes),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
