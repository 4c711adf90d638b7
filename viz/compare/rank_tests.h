/* Whether two sets of measurements differ by more than chance: tests that assume no distribution. */
#ifndef CKPT_VIZ_COMPARE_RANK_TESTS_H
#define CKPT_VIZ_COMPARE_RANK_TESTS_H

#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/status.h"

/* Up to so many values in all, p counts every way to deal them out (ties too); beyond, it is the normal approximation
 * with the corrections for ties and for continuity. */
enum { CKPT_RANK_TESTS_EXACT = 40 };

/* The Mann-Whitney U test: the two-sided probability that dealing out these values at random to two sets of these sizes
 * puts the sum of ranks at least as far from its mean. Equal values share the mean of their ranks.
 *   a, b   at least one each; left as they are
 * Errors: CKPT_NO_MEMORY. Cost: O(n^4 / 8) additions for n = a_count + b_count up to CKPT_RANK_TESTS_EXACT (800,000 at
 * most), then O(n log n). Source: Mann and Whitney 1947, Annals of Mathematical Statistics 18; counting with ties as
 * Streitberg and Roehmel 1986, Statistical Software Newsletter 12 (the shift algorithm); tie correction: Lehmann 1975,
 * Nonparametrics, 1.4. */
CKPT_MUST_USE ckpt_code ckpt_mann_whitney_test(const int64_t *a, int a_count, const int64_t *b, int b_count,
                                               ckpt_arena *scratch, double *p, ckpt_err *err);

/* The sign test: the probability that of `count` values as many or more are above `limit` if half of them ought to
 * be. Values equal to it count for neither side; 1 when none is left.
 * Source: Dixon and Mood 1946, Journal of the American Statistical Association 41. */
double ckpt_sign_test(const int64_t *value, int count, int64_t limit);

/* Make of `count` probabilities those that may be held against the same level together: Holm's step-down form of
 * Bonferroni's correction. Errors: CKPT_NO_MEMORY.
 * Source: Holm 1979, Scandinavian Journal of Statistics 6. */
CKPT_MUST_USE ckpt_code ckpt_holm_adjust(double *const *p, int count, ckpt_arena *scratch, ckpt_err *err);

#endif
