/* labels: unit */
/* The rank tests against every way to deal the values out, counted one by one, and against SciPy 1.17.1: the exact ones
 * stats.permutation_test over all deals, the others stats.mannwhitneyu(method="asymptotic"), stats.binomtest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_test.h"
#include "viz/compare/rank_tests.h"

static double test_of(const int64_t *a, int na, const int64_t *b, int nb)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    double p = -1;
    CHECK_OK(ckpt_mann_whitney_test(a, na, b, nb, &arena, &p, &err), err);
    ckpt_arena_fini(&arena);
    return p;
}

/* Four times U less its mean, by comparing each with each: no ranks. */
static int64_t pairs(const int64_t *all, int count, unsigned of_a)
{
    int64_t u = 0;
    int na = 0;
    for (int i = 0; i < count; i++) {
        na += (of_a >> i & 1) != 0;
        for (int k = 0; k < count; k++) {
            if ((of_a >> i & 1) != 0 && (of_a >> k & 1) == 0) {
                u += all[i] > all[k] ? 4 : all[i] == all[k] ? 2 : 0;
            }
        }
    }
    return llabs(u - 2 * (int64_t)na * (count - na));
}

static int ones(unsigned bits)
{
    int count = 0;
    for (; bits != 0; bits &= bits - 1) {
        count++;
    }
    return count;
}

static double count_deals(const int64_t *all, int count, int na)
{
    const int64_t found = pairs(all, count, (1U << na) - 1);
    double beyond = 0, whole = 0;
    for (unsigned deal = 0; deal < 1U << count; deal++) {
        if (ones(deal) == na) {
            whole++;
            beyond += pairs(all, count, deal) >= found;
        }
    }
    return beyond / whole;
}

static void small_sets_against_every_deal(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(300, 60);
    for (uint64_t i = 0; i < rounds; i++) {
        const int na = 1 + (int)ckpt_test_draw(6), nb = 1 + (int)ckpt_test_draw(6), count = na + nb;
        const uint64_t values = 1 + ckpt_test_draw(12); /* few: many ties */
        int64_t all[12];
        for (int k = 0; k < count; k++) {
            all[k] = (int64_t)ckpt_test_draw(values);
        }
        const double p = test_of(all, na, all + na, nb), wanted = count_deals(all, count, na);
        CHECK(fabs(p - wanted) < 1e-12, "instance %llu, %d and %d: p %.15g, counted %.15g", (unsigned long long)i, na,
              nb, p, wanted);
    }
}

static void against_scipy(void **state)
{
    static const struct {
        int64_t a[7], b[7];
        int na, nb;
        double p;
    } cases[] = {
        {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}, 5, 5, 0.007936507936507936},
        {{19, 22, 16, 29, 24}, {20, 11, 17, 12}, 5, 4, 0.1111111111111111},
        {{3, 1, 4, 1, 5, 9}, {2, 6, 5, 3, 5}, 6, 5, 0.5627705627705628},
        {{7, 7, 7, 8, 8}, {8, 8, 9, 9, 9}, 5, 5, 0.047619047619047616},
        {{1, 1, 1}, {1, 1, 1}, 3, 3, 1},
        {{10, 20, 30, 40, 50, 60, 70}, {15, 25, 35, 45, 55}, 7, 5, 0.7550505050505051},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double p = test_of(cases[i].a, cases[i].na, cases[i].b, cases[i].nb);
        CHECK(fabs(p - cases[i].p) < 1e-12, "case %zu: p %.15g, SciPy %.15g", i, p, cases[i].p);
    }
    int64_t a[40], b[40];
    for (int i = 0; i < 40; i++) {
        a[i] = (i * 37 + 11) % 101;
        b[i] = (i * 53 + 29) % 97 + 9;
    }
    double p = test_of(a, 30, b, 25);
    CHECK(fabs(p - 0.3352651870087032) < 1e-12, "30 and 25: %.15g", p);
    for (int i = 0; i < 40; i++) {
        a[i] = i % 7;
        b[i] = i % 6 + 2;
    }
    p = test_of(a, 30, b, 40);
    CHECK(fabs(p - 0.0025745650013076537) < 1e-12, "30 and 40 with ties: %.15g", p);
    for (int i = 0; i < 25; i++) {
        a[i] = 1000 + 3 * i;
        b[i] = 1030 + 3 * i;
    }
    p = test_of(a, 25, b, 25);
    CHECK(fabs(p - 0.00010782933074802627) < 1e-12, "25 and 25: %.15g", p);
}

/* Where counting ends the approximation must be near it; and neither cares which set comes first. */
static void both_ways_agree_where_they_meet(void **state)
{
    for (int round = 0; round < 20; round++) {
        int64_t a[60], b[60];
        for (int i = 0; i < 60; i++) {
            a[i] = (int64_t)ckpt_test_draw(1000);
            b[i] = (int64_t)ckpt_test_draw(1000) + 100;
        }
        const double exact = test_of(a, 20, b, 20), near = test_of(a, 21, b, 20);
        CHECK(fabs(exact - near) < 0.2, "exact %.4f, with one more %.4f", exact, near);
        CHECK(test_of(a, 12, b, 20) == test_of(b, 20, a, 12), "the order of the sets counts");
        CHECK(test_of(a, 60, b, 50) == test_of(b, 50, a, 60), "the order of the sets counts");
    }
    /* Far apart in sets of 20: only the two outermost of all deals are as far. 2 / C(40, 20) */
    int64_t low[20], high[20];
    for (int i = 0; i < 20; i++) {
        low[i] = i;
        high[i] = 100 + i;
    }
    const double p = test_of(low, 20, high, 20);
    CHECK(fabs(p * 137846528820.0 - 2) < 1e-6, "p %.17g", p);
}

static void signs(void **state)
{
    static const int64_t nine[] = {11, 12, 13, 14, 15, 16, 17, 18, 19, 1};
    static const int64_t six[] = {11, 12, 13, 14, 15, 16, 1, 2, 10, 10};
    static const int64_t none[] = {10, 10};
    assert_true(fabs(ckpt_sign_test(nine, 10, 10) - 0.0107421875) < 1e-12);
    assert_true(fabs(ckpt_sign_test(six, 10, 10) - 0.14453125) < 1e-12); /* two are equal: of 8 */
    assert_true(ckpt_sign_test(none, 2, 10) == 1);
    assert_true(fabs(ckpt_sign_test(nine, 5, 10) - 0.03125) < 1e-12); /* five of five: the fewest that tell */
    assert_true(ckpt_sign_test(nine, 4, 10) > 0.05);
}

/* Holm 1979: sorted, times what is left, never falling. Worked by hand: 4 * 0.01, 3 * 0.02, 2 * 0.03, then 0.5. */
static void holm(void **state)
{
    double p[] = {0.03, 0.5, 0.01, 0.02};
    double *each[] = {&p[0], &p[1], &p[2], &p[3]};
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    CHECK_OK(ckpt_holm_adjust(each, 4, &arena, &err), err);
    const double wanted[] = {0.06, 0.5, 0.04, 0.06};
    for (int i = 0; i < 4; i++) {
        CHECK(fabs(p[i] - wanted[i]) < 1e-12, "%d: %.6f, wanted %.6f", i, p[i], wanted[i]);
    }
    double high[] = {0.9, 0.8};
    double *both[] = {&high[0], &high[1]};
    CHECK_OK(ckpt_holm_adjust(both, 2, &arena, &err), err);
    assert_true(high[0] == 1 && high[1] == 1);
    CHECK_OK(ckpt_holm_adjust(both, 0, &arena, &err), err);
}

static ckpt_code starved(void *context, ckpt_err *err)
{
    static const int64_t a[] = {1, 2, 3, 4, 5}, b[] = {3, 4, 5, 6, 7};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    double p = -1, *one = &p;
    ckpt_code code = ckpt_mann_whitney_test(a, 5, b, 5, &arena, &p, err);
    code = code == CKPT_OK ? ckpt_holm_adjust(&one, 1, &arena, err) : code;
    ckpt_arena_fini(&arena);
    (void)context;
    return code;
}

static void starve(void **state)
{
    assert_true(ckpt_test_starve(starved, NULL) > 0);
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_sets_against_every_deal),
        cmocka_unit_test(against_scipy),
        cmocka_unit_test(both_ways_agree_where_they_meet),
        cmocka_unit_test(signs),
        cmocka_unit_test(holm),
        cmocka_unit_test(starve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
