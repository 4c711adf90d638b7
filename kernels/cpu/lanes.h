/* Vectors of floats as wide as the processor has them, and exp, tanh, sigmoid and erf of their elements. Nothing here has
 * a branch or calls a library, and lanes do not meet: an element has the same bits in any vector, at any place.
 *
 * The operators of C apply (gcc, clang). Functions of this file are what they lack, or what compilers make slow code of:
 * they turn a < b ? a : b into the processor's minimum only where NaN does not matter. */
#ifndef CKPT_KERNELS_CPU_LANES_H
#define CKPT_KERNELS_CPU_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { CKPT_LANES = 16 };
#elif defined(__AVX2__)
enum { CKPT_LANES = 8 };
#else
enum { CKPT_LANES = 4 };
#endif
typedef float ckpt_lanes __attribute__((vector_size(CKPT_LANES * sizeof(float))));
typedef int32_t ckpt_words __attribute__((vector_size(CKPT_LANES * sizeof(int32_t))));

static inline ckpt_lanes ckpt_all(float x)
{
    return (ckpt_lanes){0} + x;
}

static inline ckpt_lanes ckpt_load(const float *x)
{
    ckpt_lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void ckpt_store(ckpt_lanes v, float *y)
{
    memcpy(y, &v, sizeof v);
}

/* Lanes 0 .. n - 1. */
#if defined(__AVX512F__)
static inline __mmask16 ckpt_first(int64_t n)
{
    return (__mmask16)(n < 0 ? 0 : (1U << n) - 1);
}
#elif defined(__AVX2__)
static inline __m256i ckpt_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/* The first n elements, at most all; the others are 0. */
static inline ckpt_lanes ckpt_load_some(int64_t n, const float *x)
{
    if (n >= CKPT_LANES) {
        return ckpt_load(x);
    }
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_ps(ckpt_first(n), x);
#elif defined(__AVX2__)
    return _mm256_maskload_ps(x, ckpt_first(n));
#else
    ckpt_lanes v = {0};
    memcpy(&v, x, n > 0 ? (size_t)n * sizeof *x : 0);
    return v;
#endif
}

static inline void ckpt_store_some(int64_t n, ckpt_lanes v, float *y)
{
    if (n >= CKPT_LANES) {
        ckpt_store(v, y);
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(y, ckpt_first(n), v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(y, ckpt_first(n), v);
#else
    memcpy(y, &v, n > 0 ? (size_t)n * sizeof *y : 0);
#endif
}

/* a < b ? yes : no */
static inline ckpt_lanes ckpt_if_less(ckpt_lanes a, ckpt_lanes b, ckpt_lanes yes, ckpt_lanes no)
{
#if defined(__AVX512F__)
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
#elif defined(__AVX2__)
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
#else
    const ckpt_words less = (ckpt_words)(a < b);
    return (ckpt_lanes)(((ckpt_words)yes & less) | ((ckpt_words)no & ~less));
#endif
}

/* a < b ? a : b and a > b ? a : b: b where one is NaN. */
static inline ckpt_lanes ckpt_least(ckpt_lanes a, ckpt_lanes b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#elif defined(__SSE__)
    return _mm_min_ps(a, b);
#else
    return ckpt_if_less(a, b, a, b);
#endif
}

static inline ckpt_lanes ckpt_most(ckpt_lanes a, ckpt_lanes b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#elif defined(__SSE__)
    return _mm_max_ps(a, b);
#else
    return ckpt_if_less(b, a, a, b);
#endif
}

/* x, but between -most and most; NaN stays NaN. */
static inline ckpt_lanes ckpt_within(ckpt_lanes x, float most)
{
    return ckpt_least(ckpt_all(most), ckpt_most(ckpt_all(-most), x));
}

static inline ckpt_lanes ckpt_size(ckpt_lanes x)
{
    return (ckpt_lanes)((ckpt_words)x & INT32_MAX);
}

/* a * b + c: fused if the processor has an instruction for it, never by a library call. */
static inline ckpt_lanes ckpt_fused(ckpt_lanes a, ckpt_lanes b, ckpt_lanes c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__FP_FAST_FMAF)
    ckpt_lanes sum;
    for (int j = 0; j < CKPT_LANES; j++) {
        sum[j] = fmaf(a[j], b[j], c[j]);
    }
    return sum;
#else
    return a * b + c;
#endif
}

/* The polynomial whose coefficient of the highest power is first. */
static inline __attribute__((always_inline)) ckpt_lanes ckpt_polynomial(ckpt_lanes x, int count, const float *c)
{
    ckpt_lanes p = ckpt_all(c[0]);
#pragma GCC unroll 8
    for (int k = 1; k < count; k++) {
        p = ckpt_fused(p, x, ckpt_all(c[k]));
    }
    return p;
}

/* Within 2 units in the last place. exp(x) = 2^(n-1) 2 exp(r), n = x / ln 2 rounded, |r| <= ln 2 / 2. Rounding adds
 * 1.5 * 2^23 + 126, which leaves the exponent of 2^(n-1) in the sum's last bits. What is too large becomes infinite,
 * below 2^-125.5 all is 0, NaN stays NaN. The polynomial interpolates at Chebyshev nodes. */
static inline ckpt_lanes ckpt_lanes_exp(ckpt_lanes x)
{
    static const float twice_exp[] = {
        2.788223292e-03f, 1.675026556e-02f, 8.333270560e-02f, 3.333283088e-01f, 1.000000009e+00f, 2.0f, 2.0f};
    const ckpt_lanes round = ckpt_all(0x1.8p23f + 126.0f);
    const ckpt_lanes inside = ckpt_least(ckpt_all(89.0f), ckpt_most(ckpt_all(-87.3f), x));
    const ckpt_lanes shifted = ckpt_fused(inside, ckpt_all(1.44269504f), round), n = shifted - round;
    const ckpt_lanes near = ckpt_fused(n, ckpt_all(-0.693145752f), inside); /* ln 2 in two parts */
    const ckpt_lanes r = ckpt_fused(n, ckpt_all(-1.42860677e-6f), near);
    return ckpt_polynomial(r, 7, twice_exp) * (ckpt_lanes)((ckpt_words)shifted << 23);
}

/* Within 4 units in the last place. An odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above. */
static inline ckpt_lanes ckpt_lanes_tanh(ckpt_lanes x)
{
    static const float odd[] = {-6.096714163e-03f, 2.099717900e-02f, -5.385090958e-02f, 1.333276974e-01f,
                                -3.333332894e-01f};
    const ckpt_lanes z = x * x, size = ckpt_size(x);
    const ckpt_lanes small = ckpt_fused(ckpt_polynomial(z, 5, odd) * z, x, x);
    const ckpt_lanes large = 1.0f - 2.0f / (ckpt_lanes_exp(2.0f * size) + 1.0f);
    const ckpt_lanes turned = (ckpt_lanes)((ckpt_words)large | ((ckpt_words)x & INT32_MIN));
    return ckpt_if_less(size, ckpt_all(0.625f), small, turned);
}

/* Within 4 units in the last place, where it is normal. */
static inline ckpt_lanes ckpt_lanes_sigmoid(ckpt_lanes x)
{
    return 1.0f / (1.0f + ckpt_lanes_exp(-x));
}

/* Relatively within 4e-7: x P(x^2) / Q(x^2) up to where it is 1 in float. P / Q is the best by Lawson's weighted least
 * squares (Ellacott, Williams, SIAM J. Numer. Anal. 13(3), 1976), its coefficients moved by some units in the last place
 * to where float arithmetic errs least. */
static inline ckpt_lanes ckpt_lanes_erf(ckpt_lanes x)
{
    static const float above[] = {2.036319302e-06f, 2.847621508e-04f, 3.789537819e-03f,
                                  5.281985179e-02f, 1.910509020e-01f, 1.128379107e+00f};
    static const float below[] = {3.794321310e-05f, 1.167122973e-03f, 1.501747500e-02f,
                                  1.143626794e-01f, 5.026471615e-01f, 1.0f};
    const ckpt_lanes inside = ckpt_within(x, 3.94f), z = inside * inside;
    return ckpt_within(inside * ckpt_polynomial(z, 6, above) / ckpt_polynomial(z, 6, below), 1.0f);
}

/* y = function(x), element by element; y may be x. */
static inline __attribute__((always_inline)) void ckpt_map(int64_t n, const float *x, float *y,
                                                           ckpt_lanes (*function)(ckpt_lanes x))
{
    for (int64_t i = 0; i < n; i += CKPT_LANES) {
        ckpt_store_some(n - i, function(ckpt_load_some(n - i, x + i)), y + i);
    }
}

#endif
