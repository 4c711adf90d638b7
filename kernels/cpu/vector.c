/* The shared loops. A tail has the same bits as a vector. */
#include "kernels/cpu/vector.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/philox.h"

/* Sums of LONG elements and more begin with LONG lanes, so that additions need not wait for each other; then SHORT. */
enum { LONG = 64, SHORT = 16, FAR = LONG / CKPT_LANES, NEAR = SHORT / CKPT_LANES, PHILOX_BLOCKS = 64 };

/* LONG lanes become SHORT, pairwise. */
static inline void fold(ckpt_lanes sum[FAR])
{
#pragma GCC unroll 4
    for (int width = FAR / 2; width >= NEAR; width /= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < width; j++) {
            sum[j] += sum[j + width];
        }
    }
}

/* SHORT lanes become one, pairwise. */
static float combine(const ckpt_lanes sum[NEAR])
{
    float lane[SHORT];
    memcpy(lane, sum, sizeof lane);
    for (int width = SHORT / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

float ckpt_vector_max(int64_t n, const float *x)
{
    ckpt_lanes most[FAR];
#pragma GCC unroll 16
    for (int j = 0; j < FAR; j++) {
        most[j] = ckpt_all(x[0]);
    }
    int64_t i = 0;
    for (; i + LONG <= n; i += LONG) {
#pragma GCC unroll 16
        for (int j = 0; j < FAR; j++) {
            most[j] = ckpt_most(ckpt_load(x + i + j * CKPT_LANES), most[j]);
        }
    }
#pragma GCC unroll 16
    for (int j = 1; j < FAR; j++) {
        most[0] = ckpt_most(most[j], most[0]);
    }
    for (; i + CKPT_LANES <= n; i += CKPT_LANES) {
        most[0] = ckpt_most(ckpt_load(x + i), most[0]);
    }
    float found = most[0][0];
    for (int j = 1; j < CKPT_LANES; j++) {
        found = found < most[0][j] ? most[0][j] : found;
    }
    for (; i < n; i++) {
        found = found < x[i] ? x[i] : found;
    }
    return found;
}

/* Of x, or of x y. `pairs` is a constant here, like `keeps` below. */
static inline __attribute__((always_inline)) float sum_of(bool pairs, int64_t n, const float *x, const float *y)
{
    ckpt_lanes sum[FAR] = {{0}};
    int64_t i = 0;
    for (; i + LONG <= n; i += LONG) {
#pragma GCC unroll 16
        for (int j = 0; j < FAR; j++) {
            const ckpt_lanes a = ckpt_load(x + i + j * CKPT_LANES);
            sum[j] = pairs ? ckpt_fused(a, ckpt_load(y + i + j * CKPT_LANES), sum[j]) : sum[j] + a;
        }
    }
    if (n >= LONG) {
        fold(sum);
    }
    for (; i < n; i += SHORT) {
#pragma GCC unroll 4
        for (int j = 0; j < NEAR; j++) {
            const int64_t at = i + j * CKPT_LANES;
            const ckpt_lanes a = ckpt_load_some(n - at, x + at);
            sum[j] = pairs ? ckpt_fused(a, ckpt_load_some(n - at, y + at), sum[j]) : sum[j] + a;
        }
    }
    return combine(sum);
}

float ckpt_vector_sum(int64_t n, const float *x)
{
    return sum_of(false, n, x, NULL);
}

float ckpt_vector_dot(int64_t n, const float *x, const float *y)
{
    return sum_of(true, n, x, y);
}

/* Of exp(x - shift), which it may keep in y. */
static inline __attribute__((always_inline)) float exp_sum(bool keeps, int64_t n, const float *x, float shift, float *y)
{
    static const float place[SHORT] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ckpt_lanes sum[NEAR] = {{0}};
    for (int64_t i = 0; i < n; i += SHORT) {
#pragma GCC unroll 4
        for (int j = 0; j < NEAR; j++) {
            const int64_t at = i + j * CKPT_LANES, left = n - at;
            const ckpt_lanes power = ckpt_lanes_exp(ckpt_load_some(left, x + at) - shift);
            const ckpt_lanes there = ckpt_if_less(ckpt_load(place), ckpt_all((float)left), power, ckpt_all(0));
            sum[j] += left >= CKPT_LANES ? power : there;
            if (keeps) {
                ckpt_store_some(left, power, y + at);
            }
        }
    }
    return combine(sum);
}

float ckpt_vector_exp_sum(int64_t n, const float *x, float shift)
{
    return exp_sum(false, n, x, shift, NULL);
}

float ckpt_vector_powers(int64_t n, const float *x, float shift, float *y)
{
    return exp_sum(true, n, x, shift, y);
}

static inline ckpt_lanes scaled_power(ckpt_lanes x, float shift, float scale)
{
    const ckpt_lanes power = scale * ckpt_lanes_exp(x - shift);
    return ckpt_if_less(ckpt_size(power), ckpt_all(FLT_MIN), ckpt_all(0), power);
}

void ckpt_vector_exp(int64_t n, const float *x, float shift, float scale, float *y)
{
    for (int64_t i = 0; i < n; i += CKPT_LANES) {
        ckpt_store_some(n - i, scaled_power(ckpt_load_some(n - i, x + i), shift, scale), y + i);
    }
}

void ckpt_vector_tanh(int64_t n, const float *x, float *y)
{
    ckpt_map(n, x, y, ckpt_lanes_tanh);
}

void ckpt_vector_sigmoid(int64_t n, const float *x, float *y)
{
    ckpt_map(n, x, y, ckpt_lanes_sigmoid);
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
