/* labels: contract */
/* The CPU's optimizers take the steps of torch.optim's: tests/kernels/optimizers/torch_optimizers.txt, which the script
 * beside it wrote. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/support/support_test.h"

enum { VALUES = 64, STATE = 4096 };

static void read_floats(FILE *file, float *to, int count)
{
    for (int i = 0; i < count; i++) {
        double x = 0;
        assert_int_equal(fscanf(file, "%lf", &x), 1);
        to[i] = (float)x;
    }
}

static void test_steps(void **state)
{
    static float slots[2][STATE];
    static _Alignas(64) unsigned char workspace[STATE * 16];
    float *const slot[2] = {slots[0], slots[1]};
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    char name[32];
    int rows = 0, columns = 0, steps = 0, given = 0, cases = 0;
    FILE *const file = fopen(ckpt_source_file("tests/kernels/optimizers/torch_optimizers.txt"), "r");
    assert_non_null(file);
    CHECK_OK(ckpt_device_open("cpu", 2, &device, &err), err);
    while (fscanf(file, "%31s %d %d %d %d", name, &rows, &columns, &steps, &given) == 5) {
        double hyper[CKPT_HYPER_MAX] = {0};
        float param[VALUES], grad[VALUES];
        const ckpt_optimizer *const optimizer = ckpt_optimizer_find(name);
        const int count = rows * columns;
        assert_true(optimizer != NULL && count <= VALUES && given <= CKPT_HYPER_MAX);
        for (int i = 0; i < given; i++) {
            assert_int_equal(fscanf(file, "%lf", &hyper[i]), 1);
        }
        memset(slots, 0, sizeof slots);
        read_floats(file, param, count);
        for (int step = 1; step <= steps; step++) {
            read_floats(file, grad, count);
            const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, hyper, (uint64_t)step);
            ckpt_update_args args = {.hyper = hyper,
                                     .decay = true,
                                     .count = count,
                                     .matrix = {1, rows, columns, true},
                                     .param = param,
                                     .grad = grad,
                                     .slot = slot,
                                     .workspace = workspace};
            CHECK_OK(ckpt_device_update(device, optimizer, &numbers, &args, 1, &err), err);
        }
        for (int i = 0; i < count; i++) {
            double want = 0;
            assert_int_equal(fscanf(file, "%lf", &want), 1);
            CHECK(fabs((double)param[i] - want) <= 4e-6 * (1 + fabs(want)), "%s, case %d, value %d: %.9g, wanted %.9g",
                  name, cases, i, (double)param[i], want);
        }
        cases++;
    }
    assert_true(cases >= 11 && feof(file));
    fclose(file);
    ckpt_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
