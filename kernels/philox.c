/* Philox4x32-10 as published: ten rounds of two 32 x 32 -> 64 bit products, with a new key for each round.
 * ckpt_vector_philox is a copy that vectorises over many blocks; tests compare the two. */
#include "kernels/philox.h"

enum { ROUNDS = 10 };

void ckpt_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)CKPT_PHILOX_M0 * c0;
        const uint64_t p1 = (uint64_t)CKPT_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += CKPT_PHILOX_W0;
        k1 += CKPT_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void ckpt_philox_block(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, layer << 8 | stream};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    ckpt_philox(counter, key, out);
}

float ckpt_philox_uniform(uint32_t word)
{
    return (float)((double)((uint64_t)word + 1) * 0x1p-32);
}

uint64_t ckpt_philox_threshold(double p)
{
    uint64_t low = 0, high = UINT64_C(1) << 32; /* the threshold is in low..high */
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if ((double)ckpt_philox_uniform((uint32_t)middle) > p) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}
