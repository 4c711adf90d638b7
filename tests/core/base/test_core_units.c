/* labels: unit */
/* Sizes as people write them, checked arithmetic, shapes. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/units.h"
#include "core/formats/tensor.h"

typedef struct size_case {
    const char *text;
    ckpt_bytes whole, wanted;
} size_case;

static void test_sizes_are_understood(void **state)
{
    static const size_case cases[] = {
        {"6GB", 0, 6000000000},
        {"6GiB", 0, 6442450944},
        {"512MB", 0, 512000000},
        {"6000000000", 0, 6000000000},
        {"6000000000B", 0, 6000000000},
        {"1.5GiB", 0, 1610612736},
        {".5kB", 0, 500},
        {"1kB", 0, 1000},
        {"1KB", 0, 1000},
        {"1KiB", 0, 1024},
        {"3MiB", 0, 3145728},
        {"2TB", 0, 2000000000000},
        {"2TiB", 0, 2199023255552},
        {"0.1GB", 0, 100000000},           /* exact, not 0.1 in binary */
        {"1.0000000019GB", 0, 1000000001}, /* a fraction of a byte is cut off */
        {"6 GB", 0, 6000000000},
        {"80%", 1000, 800},
        {"33.3%", 1000, 333},
        {"150%", 1000, 1500},
        {"100%", INT64_MAX, INT64_MAX},
        {"50%", INT64_MAX, INT64_MAX / 2},
        {"9223372036854775807", 0, INT64_MAX},
        {"8388607TiB", 0, (int64_t)8388607 << 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_err err = {0};
        ckpt_bytes bytes = -1;
        CHECK_OK(ckpt_bytes_parse(cases[i].text, cases[i].whole, &bytes, &err), err);
        CHECK(bytes == cases[i].wanted, "%s: %lld, wanted %lld", cases[i].text, (long long)bytes,
              (long long)cases[i].wanted);
    }
}

typedef struct bad_case {
    const char *text;
    ckpt_code code;
    const char *fragment;
} bad_case;

static void check_bad(const bad_case *c, ckpt_code code, const ckpt_err *err, ckpt_bytes bytes)
{
    CHECK(code == c->code, "\"%s\": code %d, wanted %d: %s", c->text, (int)code, (int)c->code, err->msg);
    CHECK(strstr(err->msg, c->fragment) != NULL, "\"%s\": \"%s\" lacks \"%s\"", c->text, err->msg, c->fragment);
    CHECK(bytes == -1, "\"%s\": the output was touched", c->text);
}

static void test_bad_sizes_are_refused(void **state)
{
    static const bad_case cases[] = {
        {"6G", CKPT_BAD_INPUT, "write 6GB (powers of 1000) or 6GiB (powers of 1024)"},
        {"1.5M", CKPT_BAD_INPUT, "write 1.5MB (powers of 1000) or 1.5MiB"},
        {"7k", CKPT_BAD_INPUT, "7kB (powers of 1000) or 7KiB"},
        {"", CKPT_BAD_INPUT, "wanted a size"},
        {"GB", CKPT_BAD_INPUT, "wanted a size"},
        {".", CKPT_BAD_INPUT, "wanted a size"},
        {"-6GB", CKPT_BAD_INPUT, "wanted a size"},
        {"6GBB", CKPT_BAD_INPUT, "unknown unit \"GBB\""},
        {"6gb", CKPT_BAD_INPUT, "unknown unit \"gb\""},
        {"6GB ", CKPT_BAD_INPUT, "unknown unit"},
        {"1e9", CKPT_BAD_INPUT, "unknown unit \"e9\""},
        {"80%", CKPT_BAD_INPUT, "nothing here to take it of"},
        {"0", CKPT_BAD_INPUT, "at least 1"},
        {"0.0001B", CKPT_BAD_INPUT, "at least 1"},
        {"9223372036854775808", CKPT_OVERFLOW, "63 bits"},
        {"8388608TiB", CKPT_OVERFLOW, "63 bits"},
        {"99999999999999999999999999GB", CKPT_OVERFLOW, "63 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_err err = {0};
        ckpt_bytes bytes = -1;
        check_bad(&cases[i], ckpt_bytes_parse(cases[i].text, 0, &bytes, &err), &err, bytes);
        assert_int_equal(ckpt_bytes_parse(cases[i].text, 0, &bytes, NULL), cases[i].code);
    }
    ckpt_err err = {0};
    ckpt_bytes bytes = -1;
    assert_int_equal(ckpt_bytes_parse("101%", INT64_MAX, &bytes, &err), CKPT_OVERFLOW);
}

static void test_whole_numbers_stay_within_their_limits(void **state)
{
    static const char *const bad[] = {"", " ", "x", "1x", "1 ", "1.0", "0", "11", "-1", "99999999999999999999"};
    int number = 7;
    int64_t large = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!ckpt_int_parse(bad[i], 1, 10, &number) && number == 7, "\"%s\" gives %d", bad[i], number);
    }
    assert_true(ckpt_int_parse("10", 1, 10, &number) && number == 10);
    assert_true(ckpt_int_parse("-3", -3, -3, &number) && number == -3);
    assert_true(ckpt_int64_parse("9223372036854775807", 0, INT64_MAX, &large) && large == INT64_MAX);
    assert_false(ckpt_int64_parse("9223372036854775808", 0, INT64_MAX, &large));
}

static void test_rates(void **state)
{
    ckpt_err err = {0};
    int64_t rate = 0;
    CHECK_OK(ckpt_rate_parse("50GB/s", &rate, &err), err);
    assert_int_equal(rate, 50000000000);
    CHECK_OK(ckpt_rate_parse("12.5GiB/s", &rate, &err), err);
    assert_int_equal(rate, 13421772800);
    CHECK_OK(ckpt_rate_parse("123", &rate, &err), err);
    assert_int_equal(rate, 123);
    static const bad_case cases[] = {
        {"50GB", CKPT_BAD_INPUT, "wanted a rate"},
        {"50G/s", CKPT_BAD_INPUT, "50GB/s (powers of 1000) or 50GiB/s"},
        {"/s", CKPT_BAD_INPUT, "wanted a size such as 6GB/s"},
        {"80%/s", CKPT_BAD_INPUT, "unknown unit"},
        {"0/s", CKPT_BAD_INPUT, "at least 1 byte per second"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rate = -1;
        check_bad(&cases[i], ckpt_rate_parse(cases[i].text, &rate, &err), &err, rate);
    }
}

static void test_times_and_percentages(void **state)
{
    static const struct {
        const char *text;
        int64_t wanted; /* -1: refused */
        const char *fragment;
    } times[] = {{"500ms", 500000000, ""},
                 {"1.5s", 1500000000, ""},
                 {"1.5 s", 1500000000, ""},
                 {"20us", 20000, ""},
                 {"20\302\265s", 20000, ""},
                 {"7ns", 7, ""},
                 {"0.0000000019s", 1, ""},
                 {"0", 0, ""},
                 {"9223372036854775807ns", INT64_MAX, ""},
                 {"9223372036854775808ns", -1, "63 bits"},
                 {"9223372037s", -1, "63 bits"},
                 {"5", -1, "no unit"},
                 {"5min", -1, "unknown unit \"min\""},
                 {"ms", -1, "wanted a time"},
                 {"-1s", -1, "wanted a time"},
                 {"", -1, "wanted a time"}},
      shares[] = {{"3%", 30000, ""},
                  {"0.5 %", 5000, ""},
                  {"0%", 0, ""},
                  {"0.00019%", 1, ""},
                  {"150%", 1500000, ""},
                  {"3", -1, "wanted a percentage"},
                  {"3%%", -1, "wanted a percentage"},
                  {"99999999999999999%", -1, "63 bits"}};
    for (int k = 0; k < 2; k++) {
        const size_t count = k == 0 ? sizeof times / sizeof times[0] : sizeof shares / sizeof shares[0];
        for (size_t i = 0; i < count; i++) {
            const char *const text = k == 0 ? times[i].text : shares[i].text;
            const int64_t wanted = k == 0 ? times[i].wanted : shares[i].wanted;
            ckpt_err err = {0};
            int64_t value = -1;
            const ckpt_code code = k == 0 ? ckpt_ns_parse(text, &value, &err) : ckpt_percent_parse(text, &value, &err);
            CHECK(value == wanted && (code == CKPT_OK) == (wanted >= 0), "\"%s\": code %d, %lld, wanted %lld", text,
                  (int)code, (long long)value, (long long)wanted);
            const char *const fragment = k == 0 ? times[i].fragment : shares[i].fragment;
            CHECK(strstr(err.msg, fragment) != NULL, "\"%s\": \"%s\" is not in \"%s\"", text, fragment, err.msg);
        }
    }
}

static void test_links(void **state)
{
    ckpt_err err = {0};
    int64_t down = 0, up = 0;
    CHECK_OK(ckpt_link_parse("50GB/s", &down, &up, &err), err);
    assert_true(down == 50000000000 && up == 50000000000);
    CHECK_OK(ckpt_link_parse("50GB/s,25 GB/s", &down, &up, &err), err);
    assert_true(down == 50000000000 && up == 25000000000);
    CHECK_OK(ckpt_link_parse("1000, 1kB/s", &down, &up, &err), err);
    assert_true(down == 1000 && up == 1000);
    static const bad_case cases[] = {
        {"", CKPT_BAD_INPUT, "wanted a size such as 6GB/s"},
        {"50GB", CKPT_BAD_INPUT, "while reading the link \"50GB\": found \"50GB\", wanted a rate"},
        {"50GB/s,", CKPT_BAD_INPUT, "wanted a size such as 6GB/s"},
        {",50GB/s", CKPT_BAD_INPUT, "wanted a size such as 6GB/s"},
        {"50GB/s,25G/s", CKPT_BAD_INPUT, "25GB/s (powers of 1000) or 25GiB/s"},
        {"50GB/s,0/s", CKPT_BAD_INPUT, "at least 1 byte per second"},
        {"1/s,2/s,3/s", CKPT_BAD_INPUT, "one rate such as 50GB/s, or two"},
        {"99999999PB/s", CKPT_OVERFLOW, "does not fit 63 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        down = up = -1;
        const ckpt_code code = ckpt_link_parse(cases[i].text, &down, &up, &err);
        assert_int_equal(up, -1);
        check_bad(&cases[i], code, &err, down);
    }
}

static void test_quantities_are_shown_with_three_digits(void **state)
{
    char text[CKPT_UNITS_TEXT];
    assert_string_equal(ckpt_bytes_show(0, text), "0 B");
    assert_string_equal(ckpt_bytes_show(999, text), "999 B");
    assert_string_equal(ckpt_bytes_show(1000, text), "1.00 kB");
    assert_string_equal(ckpt_bytes_show(9994, text), "9.99 kB");
    assert_string_equal(ckpt_bytes_show(9996, text), "10.0 kB");
    assert_string_equal(ckpt_bytes_show(99960, text), "100 kB");
    assert_string_equal(ckpt_bytes_show(999499, text), "999 kB");
    assert_string_equal(ckpt_bytes_show(999500, text), "1.00 MB");
    assert_string_equal(ckpt_bytes_show(6000000000, text), "6.00 GB");
    assert_string_equal(ckpt_bytes_show(-6000000000, text), "-6.00 GB");
    assert_string_equal(ckpt_bytes_show(INT64_MAX, text), "9.22 EB");
    assert_string_equal(ckpt_ns_show(12345678, text), "12.3 ms");
    assert_string_equal(ckpt_ns_show(1500, text), "1.50 us");
    assert_string_equal(ckpt_ns_show(90000000000, text), "90.0 s");
    assert_string_equal(ckpt_ns_show(4000000000000, text), "4000 s");
}

static void test_sums_and_products_do_not_wrap(void **state)
{
    int64_t out = 7;
    assert_true(ckpt_sum(INT64_MAX - 1, 1, &out) && out == INT64_MAX);
    assert_false(ckpt_sum(INT64_MAX, 1, &out));
    assert_false(ckpt_sum(-1, 1, &out));
    assert_true(ckpt_product(INT64_MAX / 2, 2, &out) && out == INT64_MAX - 1);
    assert_false(ckpt_product(INT64_MAX / 2 + 1, 2, &out));
    assert_true(out == INT64_MAX - 1); /* untouched by the failure */
    assert_true(ckpt_product(0, INT64_MAX, &out) && out == 0);
    assert_true(ckpt_product(INT64_MAX, 0, &out) && out == 0);
    assert_int_equal(ckpt_round_up(0, 64), 0);
    assert_int_equal(ckpt_round_up(1, 64), 64);
    assert_int_equal(ckpt_round_up(64, 64), 64);
    assert_int_equal(ckpt_round_up(65, 64), 128);
}

static void test_shapes(void **state)
{
    ckpt_err err = {0};
    char text[CKPT_SHAPE_TEXT];
    int64_t stride[CKPT_RANK_MAX];
    const ckpt_shape image = {4, {2, 3, 5, 7}};
    assert_string_equal(ckpt_shape_show(&image, text), "[2, 3, 5, 7]");
    assert_int_equal(ckpt_shape_count(&image), 210);
    ckpt_shape_strides(&image, stride);
    /* The place of [n, c, h, w] counted plainly, channels last. */
    int64_t next = 0;
    for (int64_t n = 0; n < 2; n++) {
        for (int64_t h = 0; h < 5; h++) {
            for (int64_t w = 0; w < 7; w++) {
                for (int64_t c = 0; c < 3; c++) {
                    assert_int_equal(n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3], next);
                    next++;
                }
            }
        }
    }
    const ckpt_shape cube = {3, {2, 3, 5}};
    ckpt_shape_strides(&cube, stride);
    assert_int_equal(stride[0], 15);
    assert_int_equal(stride[1], 5);
    assert_int_equal(stride[2], 1);
    const ckpt_shape scalar = {0, {0}};
    assert_string_equal(ckpt_shape_show(&scalar, text), "[]");
    const ckpt_tensor loss = {.name = "loss", .dtype = CKPT_FLOAT32, .shape = scalar};
    const ckpt_tensor rows = {.dtype = CKPT_BFLOAT16, .shape = {3, {2, 5, 7}}, .pitch = 64};
    assert_int_equal(ckpt_tensor_bytes(&loss), 4);
    assert_int_equal(ckpt_tensor_room(&rows), 10 * 64); /* the last row has its gap too */
    assert_int_equal(ckpt_tensor_bytes(&rows), 10 * 64 * 2);
    assert_false(ckpt_shape_equal(&image, &cube));
    assert_true(ckpt_shape_equal(&cube, &cube));
    CHECK_OK(ckpt_shape_check(&image, CKPT_INT32, &err), err);
    const ckpt_shape most = {2, {(int64_t)1 << 30, (int64_t)1 << 30}};
    CHECK_OK(ckpt_shape_check(&most, CKPT_FLOAT32, &err), err);
    const ckpt_shape beyond = {2, {(int64_t)1 << 30, ((int64_t)1 << 30) + 1}};
    assert_int_equal(ckpt_shape_check(&beyond, CKPT_FLOAT32, &err), CKPT_OVERFLOW);
    const ckpt_shape wraps = {6, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    assert_int_equal(ckpt_shape_check(&wraps, CKPT_FLOAT32, &err), CKPT_OVERFLOW);
    const ckpt_shape empty = {2, {3, 0}};
    assert_int_equal(ckpt_shape_check(&empty, CKPT_FLOAT32, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "[3, 0]"));
    const ckpt_shape deep = {7, {1, 1, 1, 1, 1, 1}};
    assert_int_equal(ckpt_shape_check(&deep, CKPT_FLOAT32, &err), CKPT_BAD_INPUT);
}

/* Of an even count the mean of the middle two: the upper one alone made the slower of two steps their median. */
static void test_median_of_an_even_count(void **state)
{
    int64_t two[] = {9, 4}, odd[] = {5, 1, 3}, four[] = {40, 10, 20, 31}, large[] = {INT64_MAX, INT64_MAX - 2}, spread;
    assert_int_equal(ckpt_median(two, 2, NULL), 6);
    assert_int_equal(ckpt_median(odd, 3, &spread), 3);
    assert_int_equal(spread, 4);
    assert_int_equal(ckpt_median(four, 4, &spread), 25);
    assert_int_equal(spread, 20);
    assert_int_equal(ckpt_median(large, 2, NULL), INT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_understood),
        cmocka_unit_test(test_bad_sizes_are_refused),
        cmocka_unit_test(test_whole_numbers_stay_within_their_limits),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_times_and_percentages),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_quantities_are_shown_with_three_digits),
        cmocka_unit_test(test_sums_and_products_do_not_wrap),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_median_of_an_even_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
