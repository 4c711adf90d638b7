/* Ranks are kept doubled, so that the mean of two neighbouring ranks is a whole number and every count is exact. */
#include "viz/compare/rank_tests.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    int64_t value;
    bool of_a;
    int64_t twice; /* the rank from 1, doubled */
} ranked;

static int by_value(const void *x, const void *y)
{
    const ranked *const a = x, *const b = y;
    return (a->value > b->value) - (a->value < b->value);
}

/* Sort and rank. Gives the sum over groups of equal values of t^3 - t, for groups of t. */
static double rank(ranked *all, int count)
{
    double ties = 0;
    qsort(all, (size_t)count, sizeof *all, by_value);
    for (int i = 0, end = 0; i < count; i = end) {
        while (end < count && all[end].value == all[i].value) {
            end++;
        }
        const double equal = end - i;
        ties += equal * equal * equal - equal;
        for (int k = i; k < end; k++) {
            all[k].twice = i + 1 + end; /* ranks i + 1 .. end */
        }
    }
    return ties;
}

/* ways[k][s]: how many choices of k of the values seen so far have doubled ranks that sum to s. All of them are whole
 * numbers below 2^53, so a double holds them exactly. */
static ckpt_code count_all(const ranked *all, int count, int chosen, int64_t found, ckpt_arena *scratch, double *p,
                           ckpt_err *err)
{
    const size_t sums = (size_t)count * ((size_t)count + 1) + 1;
    double *const ways = CKPT_NEW(scratch, double, (size_t)(chosen + 1) * sums);
    if (ways == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to count %d ranks", count);
    }
    ways[0] = 1;
    for (int i = 0; i < count; i++) {
        const size_t rank_of = (size_t)all[i].twice;
        for (int k = i + 1 < chosen ? i + 1 : chosen; k > 0; k--) {
            double *const to = ways + (size_t)k * sums;
            const double *const from = to - sums;
            for (size_t s = rank_of; s < sums; s++) {
                to[s] += from[s - rank_of];
            }
        }
    }
    const double *const last = ways + (size_t)chosen * sums;
    const int64_t mean = (int64_t)chosen * (count + 1); /* of the doubled sum */
    const int64_t far = llabs(found - mean);
    double beyond = 0, whole = 0;
    for (size_t s = 0; s < sums; s++) {
        whole += last[s];
        beyond += llabs((int64_t)s - mean) >= far ? last[s] : 0;
    }
    *p = beyond / whole;
    return CKPT_OK;
}

static double approximate(int a_count, int b_count, int64_t found, double ties)
{
    const double a = a_count, b = b_count, n = a + b;
    const double variance = a * b / 12 * (n + 1 - ties / (n * (n - 1)));
    if (!(variance > 0)) {
        return 1; /* all are equal */
    }
    const double off = fabs((double)found / 2 - a * (n + 1) / 2) - 0.5;
    return off <= 0 ? 1 : erfc(off / sqrt(2 * variance));
}

ckpt_code ckpt_mann_whitney_test(const int64_t *a, int a_count, const int64_t *b, int b_count, ckpt_arena *scratch,
                                 double *p, ckpt_err *err)
{
    if (a_count > b_count) {
        return ckpt_mann_whitney_test(b, b_count, a, a_count, scratch, p, err);
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const int count = a_count + b_count;
    ranked *const all = CKPT_NEW(scratch, ranked, count);
    if (all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to rank %d values", count);
    }
    for (int i = 0; i < count; i++) {
        all[i] = (ranked){i < a_count ? a[i] : b[i - a_count], i < a_count, 0};
    }
    const double ties = rank(all, count);
    int64_t found = 0;
    for (int i = 0; i < count; i++) {
        found += all[i].of_a ? all[i].twice : 0;
    }
    if (count <= CKPT_RANK_TESTS_EXACT) {
        CKPT_TRY(count_all(all, count, a_count, found, scratch, p, err));
    } else {
        *p = approximate(a_count, b_count, found, ties);
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

double ckpt_sign_test(const int64_t *value, int count, int64_t limit)
{
    int above = 0, below = 0;
    for (int i = 0; i < count; i++) {
        above += value[i] > limit;
        below += value[i] < limit;
    }
    const int n = above + below;
    double p = 0;
    for (int k = above; k <= n; k++) {
        p += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) - n * log(2));
    }
    return n == 0 || p > 1 ? 1 : p;
}

static int by_probability(const void *x, const void *y)
{
    const double a = **(double *const *)x, b = **(double *const *)y;
    return (a > b) - (a < b);
}

ckpt_code ckpt_holm_adjust(double *const *p, int count, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    double **const sorted = CKPT_NEW(scratch, double *, count);
    if (sorted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d probabilities", count);
    }
    memcpy(sorted, p, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_probability);
    double most = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, *sorted[i] * (count - i));
        *sorted[i] = fmin(most, 1);
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}
