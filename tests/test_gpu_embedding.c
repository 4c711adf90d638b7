/* labels: contract gpu */
/* Ids outside an embedding's table, on every GPU there is (the emulated one always): a GPU cannot refuse them as the
 * CPU does, so they read nothing and give rows of NaN, and their gradient goes nowhere. The gradient is held against
 * plain sums in double; the bound is the rounding of as many additions as there are tokens, of numbers up to 1. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support_gpu.h"
#include "tests/support_test.h"

enum { ROWS = 20, TOKENS = 1100 };

static const ckpt_run plain_run = {.workspace_byte = 0xFF, .guard_byte = 0xFF};

static bool outside(int32_t id)
{
    return id < 0 || id >= ROWS;
}

/* Every seventh id is wrong; all between are right, or only a few distinct ones, in long runs. */
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

static void check(ckpt_gpu *gpu, ckpt_device *cpu, ckpt_dtype dtype, int64_t limit, int64_t features)
{
    const ckpt_case test = {.op = "embedding",
                            .in = {{.rank = 1, .dim = {TOKENS}, .limit = limit}},
                            .attr = {{.name = "rows", .kind = CKPT_INT, .integer = ROWS, .real = ROWS},
                                     {.name = "features", .kind = CKPT_INT, .integer = features}}};
    ckpt_gpu_case *const c = ckpt_memory_get(sizeof *c);
    int32_t id[TOKENS];
    assert_non_null(c);
    assert_true(ckpt_gpu_case_init(c, &test, 0, dtype, gpu, cpu, 20261120));
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
    (void)state;
    ckpt_gpu gpu[CKPT_GPU_MAX];
    ckpt_device *cpu = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", 1, &cpu, &err), err);
    const int gpus = ckpt_gpu_open_all(gpu);
    for (int g = 0; g < gpus; g++) {
        for (int64_t features = 7; features <= 8; features++) {
            check(&gpu[g], cpu, CKPT_FLOAT32, ROWS, features);
            check(&gpu[g], cpu, CKPT_FLOAT32, 2, features);
            check(&gpu[g], cpu, CKPT_BFLOAT16, ROWS, features);
        }
        ckpt_gpu_close(&gpu[g]);
    }
    ckpt_device_close(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_outside_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
