/* labels: unit */
/* Schedules of learning rates against their formulas at chosen steps, what is refused, and that what is shown reads back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/formats/schedule.h"
#include "tests/support/support_test.h"

static void factors(void **state)
{
    static const struct {
        const char *text;
        uint64_t step;
        double wanted;
    } row[] = {
        {"constant", 1, 1},
        {"constant", 1000000, 1},
        {"constant:warmup=4", 1, 0.25},
        {"constant:warmup=4", 4, 1},
        {"constant:warmup=4", 5, 1},
        {"linear:steps=10", 1, 1},
        {"linear:steps=10,min=0.5", 6, 0.75},
        {"linear:steps=10,min=0.5", 11, 0.5},
        {"linear:steps=10,min=0.5", 4000, 0.5},
        {"linear:steps=12,warmup=2", 2, 1},
        {"linear:steps=12,warmup=2", 3, 1},
        {"linear:steps=12,warmup=2", 8, 0.5},
        {"linear:steps=12,warmup=2", 13, 0},
        {"cosine:steps=8,min=0.2", 1, 1},
        {"cosine:steps=8,min=0.2", 3, 0.6 + 0.4 * 0.70710678118654752},
        {"cosine:steps=8,min=0.2", 5, 0.6},
        {"cosine:steps=8,min=0.2", 9, 0.2},
        {"cosine:steps=18,warmup=10", 5, 0.5},
        {"cosine:steps=18,warmup=10", 15, 0.5},
        {"step:every=3", 3, 1},
        {"step:every=3", 4, 0.1},
        {"step:every=3,factor=0.5", 10, 0.125},
        {"step:every=3,factor=0.5,warmup=2", 5, 1},
        {"step:every=3,factor=0.5,warmup=2", 6, 0.5},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ckpt_err err = {0};
        ckpt_schedule schedule, again;
        ckpt_text text;
        CHECK_OK(ckpt_schedule_parse(row[i].text, &schedule, &err), err);
        const double found = ckpt_schedule_at(&schedule, row[i].step);
        CHECK(fabs(found - row[i].wanted) <= 1e-15, "%s, step %llu: %.17g, wanted %.17g", row[i].text,
              (unsigned long long)row[i].step, found, row[i].wanted);
        ckpt_text_init(&text);
        ckpt_schedule_show(&schedule, &text);
        CHECK_OK(ckpt_text_end(&text, &err), err);
        CHECK_OK(ckpt_schedule_parse(text.bytes, &again, &err), err);
        assert_memory_equal(&again, &schedule, sizeof again);
        ckpt_text_fini(&text);
    }
}

static void refusals(void **state)
{
    static const char *const row[][2] = {
        {"", "wanted constant, linear, cosine or step"},
        {"exponential", "wanted constant, linear, cosine or step"},
        {"constant:steps=3", "wanted warmup"},
        {"step:min=3", "wanted warmup, every or factor"},
        {"cosine:every=3", "wanted warmup, steps or min"},
        {"cosine", "a cosine schedule has 0 steps"},
        {"linear:steps=5,warmup=5", "more than its warmup of 5"},
        {"linear:steps=5,min=1.5", "min 1.5"},
        {"linear:steps=5.5", "a whole number"},
        {"linear:steps=-5", "a whole number"},
        {"linear:steps=5x", "a whole number"},
        {"linear:steps", "wanted key=value"},
        {"linear:", "wanted key=value"},
        {"step:every=0", "every 0"},
        {"step:every=2,factor=0", "factor 0"},
        {"step:every=2,factor=inf", "wanted a number"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ckpt_schedule schedule;
        ckpt_err err = {0};
        assert_int_equal(ckpt_schedule_parse(row[i][0], &schedule, &err), CKPT_BAD_INPUT);
        CHECK(strstr(err.msg, row[i][1]) != NULL, "%s: \"%s\", wanted \"%s\"", row[i][0], err.msg, row[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(factors), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
