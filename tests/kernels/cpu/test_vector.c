/* labels: unit */
/* The shared loops compared with the C library in double. Results depend only on values and count: neither on the
 * address nor on the position of a value in a vector or the tail. */
#include "tests/support/support_test.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vector.h"

enum { COUNT = 4096 };

/* About `points` floats from `low` to `high`, equally many floats apart, with both signs. */
typedef void walk_call(int64_t n, const float *x);

static void walk(float low, float high, int points, walk_call *call)
{
    uint32_t from, to;
    memcpy(&from, &low, sizeof from);
    memcpy(&to, &high, sizeof to);
    const uint32_t step = (to - from) / (uint32_t)points + 1;
    float x[COUNT];
    int64_t n = 0;
    for (uint64_t word = from; word <= to; word += step) {
        const uint32_t low_word = (uint32_t)word;
        float value;
        memcpy(&value, &low_word, sizeof value);
        x[n++] = value;
        x[n++] = -value;
        if (n == COUNT) {
            call(n, x);
            n = 0;
        }
    }
    if (n > 0) {
        call(n, x);
    }
}

/* Difference in units in the last place of the wanted value; below the normal range, of the smallest float. */
static double units(double wanted, float found)
{
    int exponent;
    frexp(wanted, &exponent);
    const double unit = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)found - wanted) / unit;
}

static double worst;

static void try_exp(int64_t n, const float *x)
{
    float y[COUNT];
    ckpt_vector_exp(n, x, 0.0f, 1.0f, y);
    for (int64_t i = 0; i < n; i++) {
        const double wanted = exp((double)x[i]);
        if (wanted > (double)FLT_MAX) {
            CHECK(isinf(y[i]) || units(wanted, y[i]) < 2.0, "exp(%a) = %a", (double)x[i], (double)y[i]);
            continue;
        }
        if (wanted < (double)FLT_MIN * (1 - 1e-6)) {
            CHECK(y[i] == 0.0f, "exp(%a) = %a, wanted 0 in place of a subnormal number", (double)x[i], (double)y[i]);
            continue;
        }
        if (wanted < 0x1.6A0AP-126 && y[i] == 0.0f) {
            continue; /* below 2^-125.5, and rounding decides which side of the border it is on */
        }
        const double found = units(wanted, y[i]);
        worst = found > worst ? found : worst;
        CHECK(found < 2.0, "exp(%a) = %a, wanted %a: %g units", (double)x[i], (double)y[i], wanted, found);
    }
}

static void try_tanh(int64_t n, const float *x)
{
    float y[COUNT];
    ckpt_vector_tanh(n, x, y);
    for (int64_t i = 0; i < n; i++) {
        const double wanted = tanh((double)x[i]), found = units(wanted, y[i]);
        worst = found > worst ? found : worst;
        CHECK(found < 4.0, "tanh(%a) = %a, wanted %a: %g units", (double)x[i], (double)y[i], wanted, found);
    }
}

static void try_sigmoid(int64_t n, const float *x)
{
    float y[COUNT];
    ckpt_vector_sigmoid(n, x, y);
    for (int64_t i = 0; i < n; i++) {
        const double wanted = 1.0 / (1.0 + exp(-(double)x[i])), found = units(wanted, y[i]);
        if (x[i] < -88.0f) { /* exp overflows: 0 for what is below the normal range */
            CHECK(y[i] >= 0.0f && y[i] < FLT_MIN, "sigmoid(%a) = %a", (double)x[i], (double)y[i]);
            continue;
        }
        worst = found > worst ? found : worst;
        CHECK(found < 4.0, "sigmoid(%a) = %a, wanted %a: %g units", (double)x[i], (double)y[i], wanted, found);
    }
}

static void try_erf(int64_t n, const float *x)
{
    float y[COUNT];
    ckpt_map(n, x, y, ckpt_lanes_erf);
    for (int64_t i = 0; i < n; i++) {
        const double wanted = erf((double)x[i]), found = fabs((double)y[i] - wanted);
        worst = found > worst ? found : worst;
        CHECK(found <= 4e-7 * fabs(wanted) + (double)FLT_MIN, "erf(%a) = %a, wanted %a", (double)x[i], (double)y[i],
              wanted);
    }
}

static void report(const char *name, const char *unit)
{
    print_message("%s: at most %.3g %s\n", name, worst, unit);
    worst = 0.0;
}

static void close_to_the_library(void **state)
{
    worst = 0.0;
    walk(0.0f, 110.0f, 1 << 20, try_exp);
    report("exp", "units in the last place");
    walk(0.0f, 1000.0f, 1 << 20, try_tanh);
    report("tanh", "units in the last place");
    walk(0.0f, 1000.0f, 1 << 20, try_sigmoid);
    report("sigmoid", "units in the last place");
    walk(0.0f, 1000.0f, 1 << 20, try_erf);
    report("erf", "");
}

static void infinities_and_nan(void **state)
{
    const float x[3] = {INFINITY, -INFINITY, NAN};
    float y[3];
    ckpt_vector_exp(3, x, 0.0f, 1.0f, y);
    assert_true(isinf(y[0]) && y[1] == 0.0f && isnan(y[2]));
    ckpt_vector_tanh(3, x, y);
    assert_true(y[0] == 1.0f && y[1] == -1.0f && isnan(y[2]));
    ckpt_vector_sigmoid(3, x, y);
    assert_true(y[0] == 1.0f && y[1] == 0.0f && isnan(y[2]));
    ckpt_map(3, x, y, ckpt_lanes_erf);
    assert_true(y[0] == 1.0f && y[1] == -1.0f && isnan(y[2]));
}

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill(uint32_t seed, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)noise(&seed) / 0x1p22f - 2.0f;
    }
}

static void reductions_are_right(void **state)
{
    float x[200], y[200];
    for (int64_t n = 1; n <= 200; n++) {
        fill((uint32_t)n, n, x);
        fill((uint32_t)n + 1000u, n, y);
        double sum = 0.0, dot = 0.0, powers = 0.0, size = 0.0;
        float most = x[0];
        for (int64_t i = 0; i < n; i++) {
            sum += (double)x[i];
            size += fabs((double)x[i]);
            dot += (double)x[i] * (double)y[i];
            powers += exp((double)x[i] - 0.5);
            most = fmaxf(most, x[i]);
        }
        /* each term goes through n / 16 + 4 roundings */
        const double rounding = ((double)n / 16.0 + 4.0) * (double)FLT_EPSILON;
        CHECK(ckpt_vector_max(n, x) == most, "max of %lld", (long long)n);
        CHECK(fabs((double)ckpt_vector_sum(n, x) - sum) <= rounding * size, "sum of %lld", (long long)n);
        CHECK(fabs((double)ckpt_vector_dot(n, x, y) - dot) <= rounding * 2.0 * size, "dot of %lld", (long long)n);
        const float power_sum = ckpt_vector_exp_sum(n, x, 0.5f);
        CHECK(fabs((double)power_sum - powers) <= (rounding + 3e-7) * powers, "sum of %lld powers", (long long)n);
        float written[201] = {0}, wanted[200];
        written[n] = 7.0f;
        CHECK(ckpt_vector_powers(n, x, 0.5f, written) == power_sum && written[n] == 7.0f, "%lld powers", (long long)n);
        ckpt_vector_exp(n, x, 0.5f, 1.0f, wanted);
        CHECK(memcmp(written, wanted, (size_t)n * sizeof *wanted) == 0, "%lld powers", (long long)n);
    }
}

/* The same values at every shift of 4 bytes from a cache line. */
static void bits_do_not_depend_on_the_address(void **state)
{
    enum { LENGTH = 333 };
    static float room[LENGTH + 32], out[LENGTH + 32], values[LENGTH], first[6][LENGTH];
    fill(5, LENGTH, values);
    for (int shift = 0; shift < 17; shift++) {
        float *const x = room + shift, *const y = out + (16 - shift);
        memcpy(x, values, sizeof values);
        float found[6][LENGTH] = {{0}};
        found[0][0] = ckpt_vector_sum(LENGTH, x);
        found[0][1] = ckpt_vector_max(LENGTH, x);
        found[0][2] = ckpt_vector_exp_sum(LENGTH, x, 0.25f);
        memcpy(y, values, sizeof values);
        found[0][3] = ckpt_vector_dot(LENGTH, x, y);
        ckpt_vector_exp(LENGTH, x, 0.5f, 3.0f, y);
        memcpy(found[1], y, sizeof values);
        ckpt_vector_tanh(LENGTH, x, y);
        memcpy(found[2], y, sizeof values);
        ckpt_vector_sigmoid(LENGTH, x, y);
        memcpy(found[3], y, sizeof values);
        found[0][4] = ckpt_vector_powers(LENGTH, x, 0.25f, y);
        memcpy(found[4], y, sizeof values);
        ckpt_vector_add(LENGTH, x, y);
        memcpy(found[5], y, sizeof values);
        if (shift == 0) {
            memcpy(first, found, sizeof first);
        }
        CHECK(memcmp(first, found, sizeof first) == 0, "shift of %d elements", shift);
    }
}

/* An element has the same bits alone, inside a vector, in the tail, and in place. */
static void bits_do_not_depend_on_the_place(void **state)
{
    float x[100], all[4][100];
    fill(9, 100, x);
    ckpt_vector_exp(100, x, 0.5f, 3.0f, all[0]);
    ckpt_vector_tanh(100, x, all[1]);
    ckpt_vector_sigmoid(100, x, all[2]);
    ckpt_map(100, x, all[3], ckpt_lanes_erf);
    for (int i = 0; i < 100; i++) {
        float one[4] = {x[i], x[i], x[i], x[i]};
        ckpt_vector_exp(1, one, 0.5f, 3.0f, one);
        ckpt_vector_tanh(1, one + 1, one + 1);
        ckpt_vector_sigmoid(1, one + 2, one + 2);
        ckpt_map(1, one + 3, one + 3, ckpt_lanes_erf);
        for (int k = 0; k < 4; k++) {
            CHECK(memcmp(&one[k], &all[k][i], sizeof one[k]) == 0, "function %d of %a", k, (double)x[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_library),
        cmocka_unit_test(infinities_and_nan),
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(bits_do_not_depend_on_the_address),
        cmocka_unit_test(bits_do_not_depend_on_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
