/* labels: contract gpu; on a GPU: 60 s, together */
/* Values that the tables of cases lack, on every GPU present (the emulated one always).
 *
 * Ids outside an embedding's table: a GPU cannot refuse them like the CPU, so it reads nothing, gives rows of NaN, and
 * drops their gradient. The gradient is compared with plain sums in double; the bound is the rounding of one addition
 * per token, of numbers up to 1.
 *
 * Max pooling of ties, infinities and NaN chooses the CPU's element. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

enum { ROWS = 20, TOKENS = 1100 };

static const ckpt_run plain_run = {.workspace_byte = 0xFF, .guard_byte = 0xFF};

static bool outside(int32_t id)
{
    return id < 0 || id >= ROWS;
}

/* Every seventh id is wrong; the others are right, or only a few distinct ones, in long runs. */
static void spoil_ids(ckpt_gpu_case *c, int32_t *id)
{
    static const int32_t wrong[] = {-1, ROWS, INT32_MIN, INT32_MAX, ROWS + 256, -256};
    assert_int_equal(c->in[0].count, TOKENS);
    memcpy(id, c->in[0].bits, TOKENS * sizeof *id);
    for (int t = 0; t < TOKENS; t += 7) {
        id[t] = wrong[t / 7 % (int)(sizeof wrong / sizeof wrong[0])];
    }
    memcpy(c->in[0].bits, id, TOKENS * sizeof *id);
}

static void check_rows(const ckpt_gpu_case *c, const int32_t *id, int64_t features)
{
    for (int64_t i = 0; i < c->out[0].count; i++) {
        const int32_t row = id[i / features];
        const float got = c->out[0].value[i];
        if (outside(row)) {
            CHECK(isnan(got), "token %lld of id %d gives %g, wanted NaN", (long long)(i / features), row, (double)got);
        } else {
            assert_true(got == c->param[0].value[row * features + i % features]);
        }
    }
}

static void check_gradient(const ckpt_gpu_case *c, const int32_t *id, int64_t features)
{
    for (int64_t i = 0; i < ROWS * features; i++) {
        double want = 0;
        for (int t = 0; t < TOKENS; t++) {
            want += id[t] == i / features ? (double)c->grad_out[0].value[t * features + i % features] : 0;
        }
        CHECK(fabs((double)c->grad_param[0].value[i] - want) <= TOKENS * 6e-8 * 4, "gradient %lld is %.9g, wanted %.9g",
              (long long)i, (double)c->grad_param[0].value[i], want);
    }
}

static void check_ids(int g, ckpt_dtype dtype, int64_t limit, int64_t features)
{
    const ckpt_case test = {.op = "embedding",
                            .in = {{.rank = 1, .dim = {TOKENS}, .limit = limit}},
                            .attr = {{.name = "rows", .kind = CKPT_INT, .integer = ROWS, .real = ROWS},
                                     {.name = "features", .kind = CKPT_INT, .integer = features}}};
    ckpt_gpu_case *const c = ckpt_memory_get(sizeof *c);
    int32_t id[TOKENS];
    assert_non_null(c);
    assert_true(ckpt_gpu_case_init(c, &test, 0, dtype, &ckpt_gpus[g], ckpt_gpus_cpu, 20261120));
    spoil_ids(c, id);
    ckpt_gpu_forward(c, &plain_run);
    check_rows(c, id, features);
    ckpt_gpu_backward(c, &plain_run);
    check_gradient(c, id, features);
    assert_false(c->failed);
    ckpt_gpu_case_fini(c);
    ckpt_memory_put(c);
}

static void test_ids_outside_the_table(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int64_t features = 7; features <= 8; features++) {
            check_ids(g, CKPT_FLOAT32, ROWS, features);
            check_ids(g, CKPT_FLOAT32, 2, features);
            check_ids(g, CKPT_BFLOAT16, ROWS, features);
        }
    }
}

/* The input has five values, so that windows have ties; the CPU gets the same values. */
static void check_pool(int g, ckpt_dtype dtype, int64_t channels)
{
    static const float values[] = {0, 1, -INFINITY, INFINITY};
    const ckpt_case test = {.op = "maxpool2d",
                            .in = {{.rank = 4, .dim = {2, channels, 9, 8}}},
                            .attr = {{.name = "kernel_size", .kind = CKPT_INT, .integer = 3, .real = 3},
                                     {.name = "stride", .kind = CKPT_INT, .integer = 2, .real = 2},
                                     {.name = "padding", .kind = CKPT_INT, .integer = 1, .real = 1}}};
    ckpt_gpu_case *const c = ckpt_memory_get(sizeof *c);
    assert_non_null(c);
    assert_true(ckpt_gpu_case_init(c, &test, 0, dtype, &ckpt_gpus[g], ckpt_gpus_cpu, 20261120));
    for (int64_t i = 0; i < c->in[0].count; i++) {
        /* no value in step with rows, columns or channels; NaN once in eleven */
        const float x = i % 11 == 3 ? NAN : values[i * i / 7 % 3 == 2 ? 3 : i / 3 % 3];
        const uint16_t half = ckpt_bfloat16_of(x);
        c->in[0].value[i] = x;
        memcpy(c->in[0].bits + (dtype == CKPT_BFLOAT16 ? 2 : 4) * i,
               dtype == CKPT_BFLOAT16 ? (void *)&half : (void *)&x, dtype == CKPT_BFLOAT16 ? 2 : 4);
    }
    ckpt_gpu_forward(c, &plain_run);
    ckpt_gpu_want_forward(c, false);
    assert_memory_equal(c->saved[0].value, c->saved[0].want, c->saved[0].bytes);
    for (int64_t i = 0; i < c->out[0].count; i++) {
        const float got = c->out[0].value[i], want = c->out[0].want[i];
        assert_true(got == want || (isnan(got) && isnan(want)));
    }
    assert_false(c->failed);
    ckpt_gpu_case_fini(c);
    ckpt_memory_put(c);
}

static void test_maxima_of_ties_and_nan(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        for (int64_t channels = 3; channels <= 8; channels += 5) {
            check_pool(g, CKPT_FLOAT32, channels);
            check_pool(g, CKPT_BFLOAT16, channels);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_outside_the_table),
        cmocka_unit_test(test_maxima_of_ties_and_nan),
    };
    return cmocka_run_group_tests(tests, ckpt_gpus_open, ckpt_gpus_close);
}
