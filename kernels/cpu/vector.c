/* The shared loops. The arithmetic of an element has no branch and calls no library, so that the compiler can vectorise
 * it without reordering anything. A tail computed one by one has the same bits.
 *
 * The polynomials interpolate at Chebyshev nodes of the given interval, rounded to float. */
#include "kernels/cpu/vector.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/philox.h"

enum { LANES = 16, PHILOX_BLOCKS = 64 };

typedef union bits {
    float real;
    uint32_t word;
} bits;

/* a * b + c: fused if the processor has an instruction for it, never by a library call. */
static inline float fused(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* exp(x) = 2^n exp(r), n = x / ln 2 rounded (by adding 1.5 * 2^23), |r| <= ln 2 / 2. 2^n is applied as two factors, so
 * that subnormal results round once and large ones become infinite. NaN stays NaN. */
static inline float exp_one(float x)
{
    const float round = 0x1.8p23f;
    const float low = x < -104.0f ? -104.0f : x;
    const float inside = low > 89.0f ? 89.0f : low;
    const bits shifted = {.real = fused(inside, 1.44269504f, round)};
    const float n = shifted.real - round;
    const float r = fused(n, -1.42860677e-6f, fused(n, -0.693145752f, inside)); /* ln 2 in two parts */
    float p = 1.394111641e-03f;
    p = fused(p, r, 8.375132781e-03f);
    p = fused(p, r, 4.166635280e-02f);
    p = fused(p, r, 1.666641544e-01f);
    p = fused(p, r, 5.000000047e-01f);
    p = fused(p, r, 1.0f);
    p = fused(p, r, 1.0f);
    const int32_t exponent = (int32_t)(shifted.word - UINT32_C(0x4B400000));
    const int32_t half = exponent >> 1;
    const bits a = {.word = ((uint32_t)half + 127u) << 23};
    const bits b = {.word = ((uint32_t)exponent - (uint32_t)half + 127u) << 23};
    return p * a.real * b.real;
}

/* An odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above. */
static inline float tanh_one(float x)
{
    const float z = x * x;
    float p = -6.096714163e-03f;
    p = fused(p, z, 2.099717900e-02f);
    p = fused(p, z, -5.385090958e-02f);
    p = fused(p, z, 1.333276974e-01f);
    p = fused(p, z, -3.333332894e-01f);
    const float small = fused(p * z, x, x);
    const float size = fabsf(x);
    const float large = 1.0f - 2.0f / (exp_one(2.0f * size) + 1.0f);
    return size < 0.625f ? small : copysignf(large, x);
}

static inline float sigmoid_one(float x)
{
    return 1.0f / (1.0f + exp_one(-x));
}

/* x P(x^2) below 1; above, 1 - exp(-G(|x|)) with G = -ln erfc on [1, 4], beyond which erf is 1 in float. */
static inline float erf_one(float x)
{
    const float z = x * x;
    float p = 7.875875050e-05f;
    p = fused(p, z, -8.016864283e-04f);
    p = fused(p, z, 5.189087423e-03f);
    p = fused(p, z, -2.685421201e-02f);
    p = fused(p, z, 1.128359472e-01f);
    p = fused(p, z, -3.761262667e-01f);
    p = fused(p, z, 1.128379166e+00f);
    const float size = fabsf(x);
    const float t = size > 4.0f ? 4.0f : size;
    float g = 1.327236181e-05f;
    g = fused(g, t, -3.169370225e-04f);
    g = fused(g, t, 3.432351381e-03f);
    g = fused(g, t, -2.260477224e-02f);
    g = fused(g, t, 1.032811176e-01f);
    g = fused(g, t, 6.391412576e-01f);
    g = fused(g, t, 1.125893652e+00f);
    g = fused(g, t, 7.658977796e-04f);
    const float large = 1.0f - exp_one(-g);
    return size < 1.0f ? x * p : copysignf(large, x);
}

/* The lanes combined pairwise. */
static float combine(float lane[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

float ckpt_vector_max(int64_t n, const float *x)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++) {
        lane[j] = x[0];
    }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    float most = x[0];
    for (; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
    for (int j = 0; j < LANES; j++) {
        most = lane[j] > most ? lane[j] : most;
    }
    return most;
}

float ckpt_vector_sum(int64_t n, const float *x)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    return combine(lane);
}

float ckpt_vector_dot(int64_t n, const float *x, const float *y)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] = fused(x[i + j], y[i + j], lane[j]);
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] = fused(x[i + j], y[i + j], lane[j]);
    }
    return combine(lane);
}

float ckpt_vector_exp_sum(int64_t n, const float *x, float shift)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] += exp_one(x[i + j] - shift);
        }
    }
    if (i < n) { /* rows of few classes are mostly tail: one padded vector beats up to 15 single elements */
        const int64_t rest = n - i;
        float padded[LANES];
        for (int j = 0; j < LANES; j++) {
            padded[j] = j < rest ? x[i + j] : shift;
        }
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float power = exp_one(padded[j] - shift);
            lane[j] += j < rest ? power : 0.0f;
        }
    }
    return combine(lane);
}

void ckpt_vector_exp(int64_t n, const float *x, float shift, float scale, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float power = scale * exp_one(x[i] - shift);
        y[i] = fabsf(power) < FLT_MIN ? 0.0f : power;
    }
}

void ckpt_vector_tanh(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = tanh_one(x[i]);
    }
}

void ckpt_vector_sigmoid(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = sigmoid_one(x[i]);
    }
}

void ckpt_vector_erf(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = erf_one(x[i]);
    }
}

void ckpt_vector_add(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

/* The product of the low halves of a and b, as the processor has it for vectors: compilers multiply whole 64-bit numbers
 * at several times the cost. */
#if defined(__AVX512F__)
enum { WIDE = 8 };
typedef uint64_t wide __attribute__((vector_size(WIDE * sizeof(uint64_t))));
static inline wide low_product(wide a, wide b)
{
    return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
enum { WIDE = 4 };
typedef uint64_t wide __attribute__((vector_size(WIDE * sizeof(uint64_t))));
static inline wide low_product(wide a, wide b)
{
    return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
enum { WIDE = 2 };
typedef uint64_t wide __attribute__((vector_size(WIDE * sizeof(uint64_t))));
static inline wide low_product(wide a, wide b)
{
    return (a & UINT32_MAX) * (b & UINT32_MAX);
}
#endif

/* WIDE blocks from `block`, the four words of each in a row: ckpt_philox in the low halves of 64-bit lanes. The high
 * halves hold anything; products leave them out. */
static inline void philox_lanes(const uint32_t key[2], uint32_t c2, uint32_t c3, uint64_t block, uint32_t *words)
{
    wide w0 = {0}, w2 = w0 + c2, w3 = w0 + c3;
    for (int b = 0; b < WIDE; b++) {
        w0[b] = block + (uint64_t)b;
    }
    wide w1 = w0 >> 32;
    uint32_t k0 = key[0], k1 = key[1];
    const wide m0 = w0 * 0 + CKPT_PHILOX_M0, m1 = w0 * 0 + CKPT_PHILOX_M1;
    for (int round = 0; round < 10; round++) {
        const wide p0 = low_product(m0, w0), p1 = low_product(m1, w2);
        w0 = (p1 >> 32) ^ w1 ^ k0;
        w2 = (p0 >> 32) ^ w3 ^ k1;
        w1 = p1;
        w3 = p0;
        k0 += CKPT_PHILOX_W0;
        k1 += CKPT_PHILOX_W1;
    }
    /* Two words in each lane (the lower address has the low half), then lane by lane in turns. */
    const wide front = (w0 & UINT32_MAX) | w1 << 32, back = (w2 & UINT32_MAX) | w3 << 32;
    wide turn[2];
    for (int b = 0; b < 2 * WIDE; b++) {
        turn[b / WIDE][b % WIDE] = b % 2 == 0 ? front[b / 2] : back[b / 2];
    }
    memcpy(words, turn, sizeof turn);
}

/* PHILOX_BLOCKS blocks from `block`, the four words of each in a row. */
static void philox_blocks(const uint32_t key[2], uint32_t c2, uint32_t c3, uint64_t block, uint32_t *words)
{
    for (int b = 0; b < PHILOX_BLOCKS; b += WIDE) {
        philox_lanes(key, c2, c3, block + (uint64_t)b, words + 4 * b);
    }
}

void ckpt_vector_philox(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t first, int64_t n,
                        uint32_t *words)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t c3 = layer << 8 | stream;
    const int64_t chunk = 4 * PHILOX_BLOCKS;
    int64_t i = 0;
    for (; i + chunk <= n; i += chunk) {
        philox_blocks(key, (uint32_t)step, c3, (first + (uint64_t)i) / 4, words + i);
    }
    for (; i < n; i += 4) {
        uint32_t four[4];
        ckpt_philox_block(seed, step, layer, stream, (first + (uint64_t)i) / 4, four);
        for (int w = 0; w < 4 && i + w < n; w++) {
            words[i + w] = four[w];
        }
    }
}
