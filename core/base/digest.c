/* SHA-256 as FIPS 180-4 writes it, section 6.2. */
#include "core/base/digest.h"

#include <stdint.h>
#include <string.h>

#include "core/base/memory.h"

enum { BLOCK = 64 };

struct ckpt_digest {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[BLOCK];
};

static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t key[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               (uint32_t)block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t x = w[i - 15];
        const uint32_t y = w[i - 2];
        w[i] =
            w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t one = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice + key[i] + w[i];
        const uint32_t two = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += s[i];
    }
}

static void start(ckpt_digest *digest)
{
    memcpy(digest->state, first, sizeof first);
    digest->length = 0;
}

static void finish(ckpt_digest *digest, char text[CKPT_DIGEST_TEXT])
{
    const uint64_t bits = 8 * digest->length;
    const size_t used = digest->length % BLOCK;
    unsigned char end[2 * BLOCK] = {0x80};
    const size_t length = (used < BLOCK - 8 ? BLOCK : 2 * BLOCK) - used;
    for (size_t i = 0; i < 8; i++) {
        end[length - 1 - i] = (unsigned char)(bits >> 8 * i);
    }
    ckpt_digest_add(digest, end, length);
    for (int i = 0; i < 64; i++) {
        text[i] = "0123456789abcdef"[digest->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    }
    text[64] = '\0';
}

void ckpt_digest_once(const void *bytes, size_t length, char text[CKPT_DIGEST_TEXT])
{
    ckpt_digest digest;
    start(&digest);
    ckpt_digest_add(&digest, bytes, length);
    finish(&digest, text);
}

ckpt_digest *ckpt_digest_create(void)
{
    ckpt_digest *const digest = ckpt_memory_get(sizeof *digest);
    if (digest != NULL) {
        start(digest);
    }
    return digest;
}

void ckpt_digest_add(ckpt_digest *digest, const void *bytes, size_t length)
{
    const unsigned char *next = bytes;
    size_t used = digest->length % BLOCK;
    digest->length += length;
    while (used + length >= BLOCK) {
        const size_t taken = BLOCK - used;
        if (used > 0) {
            memcpy(digest->block + used, next, taken);
        }
        compress(digest->state, used > 0 ? digest->block : next);
        next += taken;
        length -= taken;
        used = 0;
    }
    if (length > 0) {
        memcpy(digest->block + used, next, length);
    }
}

void ckpt_digest_end(ckpt_digest *digest, char text[CKPT_DIGEST_TEXT])
{
    finish(digest, text);
    ckpt_memory_put(digest);
}
