/* labels: unit */
/* safetensors: what is written reads back, every 16-bit number is the float it stands for, and memory may be short at any
 * place. Damaged files are tests/programs/weights_damage.py's. */
#include "tests/support/support_core.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/formats/safetensors.h"

enum { ALL = 65536 };

/* One tensor of every number of 16 bits, two of other types, and an empty one. */
static const char *write_file(void)
{
    static const int64_t all[] = {256, 256}, none[] = {3, 0};
    static const ckpt_safetensor tensor[] = {
        {.name = "half \"\xC3\xA9\"", .type = "F16", .rank = 2, .dim = all, .bytes = 2 * ALL},
        {.name = "brain", .type = "BF16", .rank = 2, .dim = all, .bytes = 2 * ALL},
        {.name = "empty", .type = "F32", .rank = 2, .dim = none, .bytes = 0},
        {.name = "scalar", .type = "F32", .rank = 0, .bytes = 4},
        {.name = "whole", .type = "I32", .rank = 0, .bytes = 4},
    };
    static uint16_t bits[ALL];
    const float scalar = -0.75f;
    const int32_t whole = 7;
    ckpt_text text;
    ckpt_err err = {0};
    for (int i = 0; i < ALL; i++) {
        bits[i] = (uint16_t)i;
    }
    ckpt_text_init(&text);
    ckpt_safetensors_header(tensor, 5, &text);
    assert_int_equal(text.length % 8, 0);
    ckpt_text_put(&text, (const char *)bits, sizeof bits);
    ckpt_text_put(&text, (const char *)bits, sizeof bits);
    ckpt_text_put(&text, (const char *)&scalar, sizeof scalar);
    ckpt_text_put(&text, (const char *)&whole, sizeof whole);
    CHECK_OK(ckpt_text_end(&text, &err), err);
    const char *const path = ckpt_test_file("numbers.safetensors", text.bytes, text.length);
    ckpt_text_fini(&text);
    return path;
}

static double half_of(int bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

static double brain_of(int bits)
{
    const int exponent = bits >> 7 & 255, fraction = bits & 127;
    const double size = exponent == 255 ? (fraction == 0 ? INFINITY : NAN)
                        : exponent == 0 ? ldexp(fraction, -133)
                                        : ldexp(128 + fraction, exponent - 134);
    return (bits & 0x8000) != 0 ? -size : size;
}

static void test_every_number_of_16_bits(void **state)
{
    static float value[ALL];
    ckpt_safetensors *tensors = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_safetensors_open(write_file(), &tensors, &err), err);
    assert_int_equal(ckpt_safetensors_count(tensors), 5);
    static const char *const name[] = {"half \"\xC3\xA9\"", "brain"};
    for (int kind = 0; kind < 2; kind++) {
        const int at = ckpt_safetensors_find(tensors, name[kind]);
        assert_true(at >= 0);
        CHECK_OK(ckpt_safetensors_floats(tensors, at, value, &err), err);
        for (int i = 0; i < ALL; i++) {
            const double wanted = kind == 0 ? half_of(i) : brain_of(i);
            const double found = (double)value[i];
            CHECK(isnan(wanted) ? isnan(found) : found == wanted && signbit(found) == signbit(wanted),
                  "%s %04x is %g, wanted %g", name[kind], (unsigned)i, found, wanted);
        }
    }
    const int scalar = ckpt_safetensors_find(tensors, "scalar"), whole = ckpt_safetensors_find(tensors, "whole");
    CHECK_OK(ckpt_safetensors_floats(tensors, scalar, value, &err), err);
    assert_true(value[0] == -0.75f);
    assert_int_equal(ckpt_safetensors_at(tensors, ckpt_safetensors_find(tensors, "empty"))->count, 0);
    assert_int_equal(ckpt_safetensors_floats(tensors, whole, value, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "\"whole\" has dtype I32, wanted F32, F16 or BF16"));
    int32_t seven = 0;
    CHECK_OK(ckpt_safetensors_bytes(tensors, whole, 0, 4, &seven, &err), err);
    assert_int_equal(seven, 7);
    assert_int_equal(ckpt_safetensors_find(tensors, "nobody"), -1);
    ckpt_safetensors_close(tensors);
}

static void test_a_file_that_becomes_shorter(void **state)
{
    static float value[ALL];
    ckpt_safetensors *tensors = NULL;
    ckpt_err err = {0};
    const char *const path = write_file();
    CHECK_OK(ckpt_safetensors_open(path, &tensors, &err), err);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(ckpt_safetensors_floats(tensors, 0, value, &err), CKPT_IO);
    assert_non_null(strstr(err.msg, "the file has become shorter"));
    ckpt_safetensors_close(tensors);
}

static ckpt_code open_and_close(void *context, ckpt_err *err)
{
    ckpt_safetensors *tensors = NULL;
    CKPT_TRY(ckpt_safetensors_open(context, &tensors, err));
    ckpt_safetensors_close(tensors);
    return CKPT_OK;
}

static void test_without_memory(void **state)
{
    static const char index[] =
        "{\"weight_map\": {\"scalar\": \"numbers.safetensors\", \"whole\": \"numbers.safetensors\", "
        "\"empty\": \"numbers.safetensors\", \"brain\": \"numbers.safetensors\", \"half \\\"\xC3\xA9\\\"\": "
        "\"numbers.safetensors\"}}";
    char path[500];
    snprintf(path, sizeof path, "%s", write_file());
    ckpt_test_starve(open_and_close, path);
    snprintf(path, sizeof path, "%s", ckpt_test_file("index.json", index, sizeof index - 1));
    ckpt_test_starve(open_and_close, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_16_bits),
        cmocka_unit_test(test_a_file_that_becomes_shorter),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
